/** `own-limits`: a terminal that answers with the limits of a caller; test/e2e/own-usage.test.ts asks it over HTTP. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ownLimits } from '../../plugins/own-limits.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, runPlugin } from '../../plugins/testing.ts'
import { caller, memoryStore } from './kit.ts'

test('limits of one model bind where they leave less than those of all models', async () => {
  const clock = new ManualClock(Date.UTC(2026, 10, 21, 12, 30))
  const who = caller(
    {
      limits: { requests_per_minute: 100, monthly_spend_usd: 5e9 },
      model_limits: { a: { requests_per_minute: 5 }, b: { requests_per_minute: 500 } },
    } as never,
    { usage: 'organization', limits: { concurrent_requests: 2 } } as never,
  )
  const { json } = await runPlugin(ownLimits, { store: await memoryStore(clock), clock, slots: [[identity, who]] })
  assert.deepEqual(
    json.data.map((one: any) => [one.name, one.scope, one.model, one.unit, one.remaining, one.binds]),
    [
      ['requests_per_minute', 'organization', null, 'requests', 100, true],
      ['unbilled_usd_per_day', 'organization', null, 'nano_usd', 16_666_666, true],
      ['monthly_spend_usd', 'organization', null, 'nano_usd', 5e9, true],
      ['concurrent_requests', 'key', null, 'requests', 2, true],
      ['requests_per_minute', 'organization', 'a', 'requests', 5, true],
      ['requests_per_minute', 'organization', 'b', 'requests', 500, false],
    ],
  )
  assert.equal(json.data[2].resets_at, '2026-12-01T00:00:00.000Z')
})
