/** Quotas outlive the process, and a cap that comes later sees what was spent: through a listening gateway. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { systemClock } from '../../core/tools/clock.ts'
import { spend, T0, temporary } from '../stores/kit.ts'
import { defaultYaml, startGateway } from './harness.ts'

const CHAT = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
/** The middle of a day, so that no test meets midnight. */
const clock = { ...systemClock, now: () => T0 }

const start = (file: string, limits: string) =>
  startGateway({
    yaml: sim => defaultYaml(sim, { organization: `    limits: ${limits}`, store: `"sqlite:${file}"` }),
    gateway: { clock },
  })
const remaining = (reply: Response) => reply.headers.get('x-ratelimit-remaining-requests-day')

/** With SQLite every restart gave requests_per_day back: 4 a day, remaining 2, restart, remaining 3. */
test('[LIM-1] a restart does not give requests_per_day back', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const seen: (string | null)[] = []
  for (let starts = 0; starts < 2; starts++) {
    const gateway = await start(file, '{ requests_per_day: 4 }')
    try {
      for (let i = 0; i < 2; i++) seen.push(remaining(await gateway.post('/v1/chat/completions', CHAT)))
      if (starts === 1) assert.equal((await gateway.post('/v1/chat/completions', CHAT)).status, 429)
    } finally {
      await gateway.close()
    }
  }
  assert.deepEqual(seen, ['3', '2', '1', '0'])
})

/** A cap that a reload added started at zero for the running period. */
test('[LIM-8] a spend cap that a reload brings sees what was spent before, over a restart too', async () => {
  const file = path.join(temporary(), 'gateway.db')
  const first = await start(file, '{}')
  let cost = 0
  try {
    const reply = await first.post('/v1/chat/completions', CHAT)
    assert.equal(reply.status, 200)
    assert.equal(reply.headers.get('x-ratelimit-limit-spend'), null)
    await reply.text()
    ;({ cost } = (await first.ledger())[0]!)
    assert.ok(cost > 0)
    fs.writeFileSync(
      first.file,
      fs.readFileSync(first.file, 'utf8').replace('limits: {}', 'limits: { daily_spend_usd: 1 }'),
    )
    assert.equal((await first.gateway.reload()).applied, true)
    const [day] = await first.gateway.store.limits.peek('acme', [spend('o:day', 1e9)], T0)
    assert.equal(day!.remaining, 1e9 - cost)
  } finally {
    await first.close()
  }
  const second = await start(file, '{ monthly_spend_usd: 1 }')
  try {
    const cells = [spend('o:day', 1e9), spend('o:month', 1e9, 'month'), spend('k:key_test:month', 1e9, 'month')]
    const left = await second.gateway.store.limits.peek('acme', cells, T0)
    assert.deepEqual(
      left.map(state => state.remaining),
      cells.map(() => 1e9 - cost),
    )
  } finally {
    await second.close()
  }
})
