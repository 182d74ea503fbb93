/** `own-usage`: a terminal that answers from the sums by hour; test/e2e/own-usage.test.ts asks it over HTTP. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createSharedState } from '../../core/engine/shared-state.ts'
import type { UsageFilter } from '../../core/ports/store.ts'
import { ownUsage } from '../../plugins/own-usage.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, MemoryIncoming, runPlugin } from '../../plugins/testing.ts'
import { eventually } from '../eventually.ts'
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

test('what one organization asks at once is read one after the other, and another does not wait for it', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const shared = createSharedState()
  const started: (string | undefined)[] = []
  const releases: (() => void)[] = []
  const slow = new Proxy(store, {
    get: (of, name) =>
      name !== 'usage'
        ? Reflect.get(of, name)
        : async function* ({ org }: UsageFilter) {
            started.push(org)
            await new Promise<void>(resolve => releases.push(resolve))
            yield []
          },
  })
  const ask = (id: string) =>
    runPlugin(ownUsage, {
      ...{ store: slow, clock, shared, request: asked('') },
      slots: [[identity, caller({ id }, { usage: 'key' })]],
    })
  const all = [ask('acme'), ask('acme'), ask('acme'), ask('other')]
  await eventually(() => started.length === 2)
  assert.deepEqual(started, ['acme', 'other'])
  while (releases.length > 0) {
    for (const release of releases.splice(0)) release()
    await eventually(() => releases.length > 0 || started.length === 4)
  }
  for (const { status } of await Promise.all(all)) assert.equal(status, 200)
  assert.deepEqual(started, ['acme', 'other', 'acme', 'acme'])
})

test('a store that does not answer is 503', async () => {
  const run = await runPlugin(ownUsage, {
    store: Object.values(OUT)[0]!(await memoryStore()),
    request: asked(''),
    slots: [[identity, caller({ limits: { requests_per_minute: 5 } }, { usage: 'key' })]],
  })
  assert.equal(run.status, 503)
})
