/**
 * Several gateways on one Redis: limits exact over all of them, calls and replays answered by any, failures of the
 * engine said clearly.
 */
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import type { Clock } from '../../core/tools/clock.ts'
import { eventually, timersOf } from '../eventually.ts'
import { RedisServer, redisDatabases, skipWithoutRedis as skip } from '../stores/redis-server.ts'
import { defaultYaml, KEY, sha256, startGateway, stillClock, type TestGateway } from './harness.ts'

const newDatabase = redisDatabases()
/** So many gateways on a database of their own. */
async function gateways(count: number, organization = '', extra = '', clock?: Clock): Promise<TestGateway[]> {
  const url = newDatabase()
  const all: TestGateway[] = []
  for (let i = 0; i < count; i++) {
    all.push(
      await startGateway({
        yaml: sim => defaultYaml(sim, { organization, extra, store: `{ url: "${url}", timeout: 20s }` }),
        ...(clock && { gateway: { clock } }),
      }),
    )
  }
  return all
}
const closeAll = (all: TestGateway[]) => Promise.all(all.map(t => t.close()))
const ask = (text = 'x', more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content: text }],
  max_tokens: 50,
  ...more,
})

/** Every dimension of LIM-1 that a store counts, and the word of its headers. */
const DIMENSIONS = {
  requests_per_minute: 'requests',
  requests_per_day: 'requests-day',
  tokens_per_minute: 'tokens',
  tokens_per_day: 'tokens-day',
  input_tokens_per_minute: 'input-tokens',
  input_tokens_per_day: 'input-tokens-day',
  output_tokens_per_minute: 'output-tokens',
  output_tokens_per_day: 'output-tokens-day',
  concurrent_requests: 'concurrency',
  daily_spend_usd: 'spend',
  monthly_spend_usd: 'spend',
}
/** Is admitted and goes on for longer than a round takes. */
const LASTING = ask('[[sim: tokens 200; pace 500ms]] x', { stream: true })

/** What the lasting exchange takes of each dimension, as its headers say. */
async function amountsTaken(): Promise<Record<string, number>> {
  const limits = Object.keys(DIMENSIONS).map(name => `${name}: ${name.endsWith('usd') ? '900.00' : 1_000_000}`)
  const all = await gateways(1, `    limits: { ${limits.join(', ')} }`)
  const controller = new AbortController()
  const { headers } = await lasting(all[0]!, KEY, controller.signal)
  controller.abort()
  await closeAll(all)
  const header = (name: string) => Number(headers.get(`x-ratelimit-${name}`))
  return Object.fromEntries(
    Object.values(DIMENSIONS).map(word => [word, header(`limit-${word}`) - header(`remaining-${word}`)]),
  )
}

function lasting(t: TestGateway, key: string, signal: AbortSignal): Promise<Response> {
  return fetch(`${t.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify(LASTING),
    signal,
  })
}

for (const count of [2, 4]) {
  test(`[LIM-1] [LIM-3] ${count} gateways, one Redis: of 20·N simultaneous requests exactly N pass, for each dimension of organization and key`, {
    skip,
  }, async () => {
    const N = 2
    const taken = await amountsTaken()
    const cases = Object.entries(DIMENSIONS).flatMap(([name, word]) => {
      assert.ok(taken[word]! > 0, word)
      const limit = `${name}: ${word === 'spend' ? (N * taken[word]!).toFixed(6) : N * taken[word]!}`
      return [
        { name: `o-${name}`, organization: limit, key: '' },
        { name: `k-${name}`, organization: '', key: `, limits: { ${limit} }` },
      ]
    })
    const extra = cases
      .map(
        ({ name, organization, key }) =>
          `  ${name}:\n    plan: custom\n    limits: { ${organization} }\n    keys: [{ id: key_1, sha256: "${sha256(name)}", status: active${key} }]\n`,
      )
      .join('')
    // Half a minute of a slow machine would refill what one more request takes.
    const all = await gateways(count, '', extra, stillClock())
    const controller = new AbortController()
    try {
      await Promise.all(
        cases.map(async ({ name }) => {
          const replies = await Promise.all(
            Array.from({ length: 20 * N }, (_, i) => lasting(all[i % count]!, name, controller.signal)),
          )
          assert.deepEqual(
            [200, 429].map(status => replies.filter(r => r.status === status).length),
            [N, 19 * N],
            name,
          )
        }),
      )
    } finally {
      controller.abort()
      await closeAll(all)
    }
  })
}

/** While Redis was asked nobody was counted, and as many passed as the door let in. */
test('[LIM-3] [LIM-10] of many simultaneous requests no more pass than platform.max_concurrent_requests', {
  skip,
}, async () => {
  const extra = 'platform: { max_concurrent_requests: 16, scale_limits_above: 1 }'
  const all = await gateways(1, '    limits: { requests_per_minute: 100000 }', extra)
  const controller = new AbortController()
  try {
    const replies = await Promise.all(Array.from({ length: 60 }, () => lasting(all[0]!, KEY, controller.signal)))
    assert.equal(replies.filter(r => r.status === 200).length, 16)
  } finally {
    controller.abort()
    await closeAll(all)
  }
})

test('[TOOL-1] [IDEM-1] [RESP-2] [RESP-8] [RESP-9] what one gateway began another goes on with', { skip }, async () => {
  const all = await gateways(2)
  const [a, b] = all as [TestGateway, TestGateway]
  try {
    const tools = [{ type: 'function', name: 'f', parameters: { type: 'object', properties: {} } }]
    const first = (await (
      await a.post('/v1/responses', {
        model: 'eb1-fast-preview',
        input: '[[sim: reason 2; call f {}]] go',
        tools,
        reasoning: { effort: 'high' },
      })
    ).json()) as any
    const call = first.output.find((o: any) => o.type === 'function_call')
    const second = await b.post('/v1/responses', {
      model: 'eb1-fast-preview',
      previous_response_id: first.id,
      tools,
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'done' }],
    })
    assert.equal(second.status, 200, await second.clone().text())
    const headers = { 'idempotency-key': 'across' }
    const one = await a.post('/v1/chat/completions', ask('idem'), headers)
    const bytes = await one.text()
    // The record is written behind the reply: until it is there, the first use counts as running.
    let two = await b.post('/v1/chat/completions', ask('idem'), headers)
    while (two.status === 409) two = await b.post('/v1/chat/completions', ask('idem'), headers)
    assert.equal(two.headers.get('x-idempotent-replay'), 'true')
    assert.equal(await two.text(), bytes)

    // A stream that runs is known where it runs, and to both when it is stored.
    const streamed = { model: 'eb1-preview', input: '[[sim: tokens 40; pace 50ms]] x', stream: true }
    const running = await a.post('/v1/responses', streamed, { 'x-sluice-resumable': 'true' })
    const reader = running.body!.getReader()
    const id = /resp_\w+/.exec(Buffer.from((await reader.read()).value!).toString())![0]
    const read = (t: TestGateway, after = '') =>
      fetch(`${t.url}/v1/responses/${id}?stream=true${after}`, { headers: { authorization: `Bearer ${KEY}` } })
    const elsewhere = await read(b)
    assert.equal(elsewhere.status, 404)
    assert.match(await elsewhere.text(), /ask again when it has ended/)
    const whole = await read(a)
    await reader.cancel()
    const events = await whole.text()
    await eventually(async () => {
      const reply = await read(b)
      await reply.text()
      return reply.status === 200
    })
    for (const t of all) assert.equal(await (await read(t)).text(), events)
    const rest = await (await read(b, '&starting_after=9')).text()
    assert.equal(
      rest,
      events
        .split(/(?<=\n\n)/)
        .slice(10)
        .join(''),
    )
  } finally {
    await closeAll(all)
  }
})

test('[AUTH-1] Redis down: 503 provider_unavailable with 5–15 s, never 401; recovery needs no restart; streams go on', {
  skip,
}, async () => {
  const own = await RedisServer.start(['--appendonly', 'yes', '--appendfsync', 'always'])
  const t = await startGateway({
    yaml: sim =>
      defaultYaml(sim, { organization: '    limits: { requests_per_minute: 1000 }' }).replace(
        '"sqlite::memory:"',
        `{ url: "${own.url}", timeout: 20s }`,
      ),
  })
  try {
    assert.equal((await t.post('/v1/chat/completions', ask())).status, 200)
    const running = await t.post('/v1/chat/completions', ask('[[sim: tokens 30; pace 30ms]] x', { stream: true }))
    await own.down()
    const denied = await t.post('/v1/chat/completions', ask())
    const { error } = (await denied.json()) as any
    assert.equal(denied.status, 503)
    assert.equal(error.code, 'provider_unavailable')
    const wait = Number(denied.headers.get('retry-after'))
    assert.ok(wait >= 5 && wait <= 15)
    assert.match(await running.text(), /\[DONE\]/)
    await own.up()
    // The client of the store tries again by itself, ever later.
    await eventually(async () => (await t.post('/v1/chat/completions', ask())).status === 200)
    const rows = await t.ledger()
    assert.equal(rows.filter(r => r.outcome === 'completed').length >= 3, true)
  } finally {
    await t.close()
    await own.stop()
  }
})

test('[RESP-3] an sqlite disk slower than store.timeout delays the end of a reply that has run, and never refuses it', async t => {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-slow-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'gateway.db')
  const gateway = await startGateway({
    yaml: sim => defaultYaml(sim, { store: `{ url: "sqlite:${file}", timeout: 100ms }` }),
  })
  t.after(() => gateway.close())
  // Another connection's write transaction holds commits up, as a slow disk does.
  const db = new DatabaseSync(file)
  db.exec('BEGIN IMMEDIATE')
  const asking = gateway.post('/v1/responses', { model: 'eb1-preview', input: 'x' })
  let over = false
  void asking.finally(() => {
    over = true
  })
  await eventually(() => gateway.simulator.requests.length === 1)
  await gateway.simulator.requests[0]!.settled
  await timersOf(200)
  const early = over
  db.exec('ROLLBACK')
  db.close()
  assert.equal(early, false)
  const reply = await asking
  assert.equal(reply.status, 200)
  const { id } = (await reply.json()) as any
  const next = await gateway.post('/v1/responses', { model: 'eb1-preview', input: 'y', previous_response_id: id })
  assert.equal(next.status, 200)
})
