/** `own-usage`: a terminal that answers from the sums by hour; test/e2e/own-usage.test.ts asks it over HTTP. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ownUsage } from '../../plugins/own-usage.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, MemoryIncoming, runPlugin } from '../../plugins/testing.ts'
import { intent, outcome } from '../stores/kit.ts'
import { caller, memoryStore, OUT } from './kit.ts'

const HOUR = 3_600_000
const asked = (query: string) => new MemoryIncoming({ method: 'GET', path: '/v1/usage', query })

test('sums are of whole hours: the one in which the range begins, and the one in which it ends', async () => {
  const clock = new ManualClock(Date.UTC(2026, 10, 21, 12, 30))
  const store = await memoryStore(clock)
  for (const [id, hour] of [
    ['a', 9],
    ['b', 10],
    ['c', 11],
    ['d', 13],
  ] as const) {
    store.ledger.intent(intent(id, { time: Date.UTC(2026, 10, 21, hour, 59) }))
    store.ledger.outcome(outcome(id))
  }
  await store.ledger.flush()
  const run = await runPlugin(ownUsage, {
    store,
    clock,
    request: asked('since=2026-11-21T10:40:00Z&group_by=hour'),
    slots: [[identity, caller({}, { usage: 'key' })]],
  })
  assert.deepEqual(
    [run.json.since, run.json.until],
    [new Date(Date.UTC(2026, 10, 21, 10)).toISOString(), new Date(Math.ceil(clock.now() / HOUR) * HOUR).toISOString()],
  )
  assert.deepEqual(
    run.json.data.map((sum: any) => [sum.hour, sum.requests]),
    [
      ['2026-11-21T10:00Z', 1],
      ['2026-11-21T11:00Z', 1],
    ],
  )
})

test('a store that does not answer is 503', async () => {
  const run = await runPlugin(ownUsage, {
    store: Object.values(OUT)[0]!(await memoryStore()),
    request: asked(''),
    slots: [[identity, caller({ limits: { requests_per_minute: 5 } }, { usage: 'key' })]],
  })
  assert.equal(run.status, 503)
})
