/** Overload: what the door refuses, how fast, and that it opens again. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/clock.ts'
import { OverloadGuard, shareAt, TimerLag } from '../../core/overload.ts'
import { startGateway } from './harness.ts'

const PATHS = { chat: '/v1/chat/completions', responses: '/v1/responses', messages: '/v1/messages' }
const ask = { model: 'eb1-preview', messages: [{ role: 'user', content: 'x' }] }

test('[LIM-10] [ERR-6] a lagging event loop sheds new requests with route_capacity, before the body, and opens again', async () => {
  let lag = 0
  // Uniform enough, and the same every time.
  let n = 0
  const t = await startGateway({
    gateway: { lag: { lagMs: () => lag, close() {} }, random: () => (n++ * 0.618034) % 1 },
  })
  try {
    assert.equal((await t.post(PATHS.chat, ask)).status, 200)
    lag = 5000
    const before = (await t.ledger()).length
    const upstream = t.simulator.requests.length
    let refused = 0
    for (let i = 0; i < 40; i++) {
      for (const path of Object.values(PATHS)) {
        // Nothing is parsed, counted or looked up for it: a body that is no JSON is refused all the same.
        const response = await t.post(path, 'no json')
        const { error } = (await response.json()) as any
        if (response.status !== 503) {
          assert.equal(error.code, 'invalid_json')
          continue
        }
        refused++
        assert.deepEqual([error.code, error.type, error.retryable], ['route_capacity', 'server_error', true])
        assert.equal(error.request_id, response.headers.get('x-request-id'))
        assert.ok(Number(response.headers.get('retry-after')) >= 2)
        assert.deepEqual(
          [...response.headers.keys()].filter(name => name.startsWith('x-ratelimit')),
          [],
        )
      }
    }
    assert.ok(refused >= 105 && refused < 120, `${refused} of 120: a few are let in, to see whether it is over`)
    assert.equal((await t.ledger()).length, before)
    assert.equal(t.simulator.requests.length, upstream)
    assert.equal((await fetch(`${t.url}/api/hello`)).status, 200, 'probes answer')
    lag = 0
    assert.equal((await t.post(PATHS.chat, ask)).status, 200)
  } finally {
    await t.close()
  }
})

test('the share that is let in falls with the lag and never to nothing', () => {
  assert.deepEqual([0, 200, 500, 800, 60_000].map(shareAt), [1, 1, 0.5, 0.05, 0.05])
})

test('too many on their way: refused at a quarter above the platform’s capacity', () => {
  const guard = new OverloadGuard({ lagMs: () => 0, close() {} }, () => 0.5)
  assert.deepEqual(
    [guard.refuses(100, 100), guard.refuses(124, 100), guard.refuses(125, 100), guard.shed],
    [false, false, true, 1],
  )
})

test('the lag is smoothed: one stall sheds nothing, lasting lateness does, and it is forgotten when it is over', () => {
  /** Timers come late by `late`. */
  class LateClock extends ManualClock {
    late = 0
    override setTimer(ms: number, fn: () => void) {
      return super.setTimer(ms + this.late, fn)
    }
  }
  const clock = new LateClock()
  const lag = new TimerLag(clock)
  const run = (ms: number) => clock.advance(ms)
  run(1000)
  assert.equal(lag.lagMs(), 0)
  clock.late = 500
  run(600)
  clock.late = 0
  assert.equal(shareAt(lag.lagMs()), 1, `one stall: ${lag.lagMs()} ms`)
  clock.late = 1000
  run(10_000)
  assert.ok(lag.lagMs() > 800)
  clock.late = 0
  run(3000)
  assert.ok(lag.lagMs() < 1)
  clock.late = 3_600_000
  run(100)
  clock.late = 0
  run(3_700_000)
  assert.ok(lag.lagMs() < 1, 'an hour of sleep is one sample')
  lag.close()
  assert.equal(clock.pending, 0)
})
