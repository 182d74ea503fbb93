/** Overload: what the door refuses, how fast, and that it opens again. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/clock.ts'
import { OverloadGuard, shareAt, TimerLag } from '../../http/overload.ts'
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
    const metrics = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
    assert.match(metrics, new RegExp(`^sluice_shed_total\\{reason="lag"\\} ${refused}$`, 'm'))
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
  assert.deepEqual([0, 400, 800, 1200, 60_000].map(shareAt), [1, 1, 0.5, 0.05, 0.05])
})

test('too many on their way: refused at a quarter above the platform’s capacity', () => {
  const guard = new OverloadGuard({ lagMs: () => 0, close() {} }, () => 0.5, new ManualClock())
  assert.deepEqual(
    [guard.refuses(100, 100), guard.refuses(124, 100), guard.refuses(125, 100), guard.shed],
    [false, false, true, { lag: 0, in_flight: 1 }],
  )
})

test('lag that stands lowers how many may run, step by step and never below 64, and calm raises it again', () => {
  let lag = 0
  const clock = new ManualClock()
  const guard = new OverloadGuard({ lagMs: () => lag, close() {} }, () => 0.5, clock)
  /** What runs where the next is refused. */
  const limit = () => {
    for (let running = 0; running < 2000; running++) if (guard.refuses(running, 1e9)) return running
    return Number.POSITIVE_INFINITY
  }
  const later = (ms: number, running: number) => {
    clock.advance(ms)
    guard.refuses(running, 1e9)
  }
  later(10_000, 1000)
  assert.equal(limit(), Number.POSITIVE_INFINITY, 'no lag, no limit')
  lag = 250
  later(100, 1000)
  assert.equal(limit(), 800)
  later(50, 800)
  assert.equal(limit(), 800, 'what was decided shows before it is judged again')
  later(50, 800)
  assert.equal(limit(), 640)
  for (let i = 0; i < 30; i++) later(100, 500)
  assert.equal(limit(), 64)
  lag = 0
  later(1000, 64)
  assert.ok(limit() > 64 && limit() < 120, `${limit()} a second later`)
  later(60_000, 64)
  assert.equal(limit(), Number.POSITIVE_INFINITY)
})

test('lag is what stands: one stall is none, two in a row are, the one under way counts, and it is forgotten when it is over', () => {
  /** Timers come late by `late`. */
  class LateClock extends ManualClock {
    late = 0
    override setTimer(ms: number, fn: () => void) {
      return super.setTimer(ms + this.late, fn)
    }
  }
  const clock = new LateClock()
  const lag = new TimerLag(clock)
  clock.advance(1000)
  assert.equal(lag.lagMs(), 0)
  // The timer that is set already comes in time; the next is late.
  clock.late = 500
  clock.advance(20)
  clock.late = 0
  clock.advance(520)
  assert.equal(lag.lagMs(), 0, 'one stall')
  clock.advance(100)
  clock.late = 300
  clock.advance(20 + 320)
  clock.advance(20 + 150)
  assert.equal(lag.lagMs(), 150, 'the second, as far as it has come')
  clock.advance(150)
  assert.equal(lag.lagMs(), 300)
  clock.late = 0
  clock.advance(1000)
  assert.equal(lag.lagMs(), 0)
  clock.late = 3_600_000
  clock.advance(20)
  clock.late = 0
  clock.advance(3_600_100)
  assert.equal(lag.lagMs(), 0, 'an hour of sleep is one stall')
  lag.close()
  assert.equal(clock.pending, 0)
})
