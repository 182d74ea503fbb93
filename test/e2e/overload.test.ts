/** Overload: what the door refuses, how fast, and that it opens again. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ManualClock } from '../../core/tools/clock.ts'
import { OverloadGuard, shareAt, TimerLag, YoungExchanges } from '../../http/overload.ts'
import { eventually } from '../eventually.ts'
import { KEY, startGateway } from './harness.ts'

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

/** So many young exchanges, all of tenant `a`. */
const oneTenant = (count: number) => ({ count, tenants: 1, of: (tenant: string) => (tenant === 'a' ? count : 0) })
const bounds = (capacity: number) => ({ max_concurrent_requests: capacity, overload_delay: 200 })

test('the share that is let in falls with the lag and never to nothing', () => {
  assert.deepEqual(
    [0, 400, 800, 1200, 60_000].map(lag => shareAt(lag, 200)),
    [1, 1, 0.5, 0.05, 0.05],
  )
})

test('too many on their way: refused at a quarter above the platform’s capacity', () => {
  const guard = new OverloadGuard({ lagMs: () => 0, close() {} }, () => 0.5, new ManualClock())
  assert.deepEqual(
    [...[100, 124, 125].map(running => guard.refuses('a', running, oneTenant(running), bounds(100))), guard.shed],
    [false, false, true, { lag: 0, in_flight: 1 }],
  )
})

test('lag that stands lowers how many may run, step by step and never below 64, and calm raises it again', () => {
  let lag = 0
  const clock = new ManualClock()
  const guard = new OverloadGuard({ lagMs: () => lag, close() {} }, () => 0.5, clock)
  /** What runs where the next is refused. */
  const limit = () => {
    for (let running = 0; running < 2000; running++)
      if (guard.refuses('a', running, oneTenant(running), bounds(1e9))) return running
    return Number.POSITIVE_INFINITY
  }
  const later = (ms: number, running: number) => {
    clock.advance(ms)
    guard.refuses('a', running, oneTenant(running), bounds(1e9))
  }
  later(10_000, 1000)
  assert.equal(limit(), Number.POSITIVE_INFINITY, 'no lag, no limit')
  lag = 150
  later(10_000, 1000)
  assert.equal(limit(), Number.POSITIVE_INFINITY, 'a gateway at its peak is as late as that')
  lag = 250
  later(100, 1000)
  assert.equal(limit(), 500)
  assert.equal(guard.limit, 500)
  later(50, 500)
  assert.equal(limit(), 500, 'what was decided shows before it is judged again')
  later(50, 500)
  assert.equal(limit(), 250)
  lag = 15
  later(100, 400)
  assert.equal(limit(), 250, 'more run than may: the lag is still that of the former limit')
  later(100, 250)
  assert.equal(limit(), 200, 'not calm yet, though no longer as late as where it began')
  for (let i = 0; i < 30; i++) later(100, 64)
  assert.equal(limit(), 64)
  lag = 5
  later(1000, 64)
  assert.ok(limit() > 64 && limit() < 120, `${limit()} a second later`)
  later(60_000, 64)
  assert.equal(limit(), Number.POSITIVE_INFINITY)
  assert.equal(guard.limit, 0)
})

test('while load is shed, a tenant below its share is admitted although others hold all places', () => {
  let lag = 250
  const clock = new ManualClock()
  const guard = new OverloadGuard({ lagMs: () => lag, close() {} }, () => 0.5, clock)
  const young = new YoungExchanges(clock)
  const refuses = (tenant: string) => {
    const refused = guard.refuses(tenant, young.count, young, bounds(1e9))
    if (!refused) young.started(tenant)
    return refused
  }
  const admitted = (tenant: string) => {
    for (let i = 0; ; i++) if (refuses(tenant)) return i
  }
  for (let i = 0; i < 399; i++) young.started('flood')
  young.started('victim')
  clock.advance(100)
  assert.equal(refuses('flood'), true)
  assert.equal(guard.limit, 200)
  lag = 150
  for (let i = 0; i < 249; i++) young.ended('flood', 100)
  assert.equal(admitted('flood'), 49, '150 of the flood and one of the victim run, and 200 may')
  assert.equal(admitted('victim'), 50, 'up to a quarter above the limit; its share is a half')
  for (let i = 0; i < 51; i++) young.ended('victim', i === 0 ? 100 : 0)
  for (let i = 0; i < 300; i++) refuses(`tenant ${i}`)
  assert.equal(young.count, 250, 'many tenants are no way around it')
})

test('young exchanges are counted until they end or have run for a second', () => {
  const clock = new ManualClock()
  const young = new YoungExchanges(clock)
  for (let i = 0; i < 3; i++) young.started('a')
  clock.advance(450)
  for (let i = 0; i < 5; i++) young.started('a')
  assert.equal(young.count, 8)
  young.ended('a', 450)
  young.ended('a', 0)
  assert.equal(young.count, 6)
  clock.advance(560)
  assert.equal(young.count, 4, 'the two of the beginning are a second old')
  young.ended('a', 1010)
  assert.equal(young.count, 4, 'one that is old was not counted any more')
  clock.advance(60_000)
  assert.equal(young.count, 0)
  young.started('a')
  young.ended('a', 0)
  assert.equal(young.count, 0)
})

test('young exchanges are counted by tenant', () => {
  const clock = new ManualClock()
  const young = new YoungExchanges(clock)
  const counts = () => [young.count, young.tenants, young.of('a'), young.of('b')]
  young.started('a')
  clock.advance(500)
  young.started('a')
  young.started('b')
  assert.deepEqual(counts(), [3, 2, 2, 1])
  young.ended('b', 0)
  assert.deepEqual(counts(), [2, 1, 2, 0])
  young.ended('b', 0)
  assert.deepEqual(counts(), [2, 1, 2, 0], 'it has none')
  clock.advance(500)
  assert.deepEqual(counts(), [1, 1, 1, 0])
  clock.advance(500)
  assert.deepEqual(counts(), [0, 0, 0, 0])
})

test('[LIM-10] while load is shed, 64 young exchanges may run; open streams go on and do not count', async () => {
  // Were all exchanges counted, a gateway with a hundred open streams would refuse everything once it had been late.
  let lag = 0
  const lagClock = new ManualClock()
  const t = await startGateway({ gateway: { lag: { lagMs: () => lag, close() {} }, lagClock } })
  const streaming = new AbortController()
  try {
    const stream = { ...ask, stream: true, messages: [{ role: 'user', content: '[[sim: tokens 100; pace 10s]] x' }] }
    const init = { method: 'POST', body: JSON.stringify(stream), signal: streaming.signal }
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${KEY}` }
    for (let i = 0; i < 70; i++) fetch(`${t.url}${PATHS.chat}`, { ...init, headers }).catch(() => {})
    const figure = async (name: string) => {
      const metrics = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
      return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics)?.[1])
    }
    await eventually(async () => (await figure('sluice_open_exchanges')) === 70)
    lag = 250
    lagClock.advance(100)
    const refused = await t.post(PATHS.chat, ask)
    assert.equal(refused.status, 503)
    assert.match(((await refused.json()) as any).error.message, /overloaded/)
    assert.ok(Number(refused.headers.get('retry-after')) >= 1)
    assert.equal(await figure('sluice_shed_running_limit'), 64)
    const theirs = await t.post(PATHS.chat, ask, { authorization: 'Bearer sk-other-0001-secret' })
    assert.equal(theirs.status, 200, 'a tenant that holds no place is served')
    lag = 15
    lagClock.advance(100)
    assert.equal((await t.post(PATHS.chat, ask)).status, 503, 'not calm yet')
    lagClock.advance(1000)
    assert.equal((await t.post(PATHS.chat, ask)).status, 200, 'the streams are not young any more')
    assert.equal(await figure('sluice_open_exchanges'), 70)
    lag = 0
    lagClock.advance(60_000)
    assert.equal((await t.post(PATHS.chat, ask)).status, 200)
    assert.equal(await figure('sluice_shed_running_limit'), 0)
  } finally {
    streaming.abort()
    await t.close()
  }
})

test('of a flood of refusals all are counted, and a hundred a second are logged', async () => {
  let now = 1_700_000_000_000
  const clock = new (class extends ManualClock {
    override now() {
      return now
    }
  })()
  const t = await startGateway({ gateway: { lag: { lagMs: () => 5000, close() {} }, random: () => 0.5, clock } })
  try {
    for (let i = 0; i < 130; i++) assert.equal((await t.post(PATHS.chat, ask)).status, 503)
    const lines = () => t.log.filter(({ message, fields }) => message === 'exchange' && 'code' in fields)
    assert.equal(lines().length, 100)
    now += 1000
    assert.equal((await t.post(PATHS.chat, ask)).status, 503)
    assert.equal(lines().length, 101)
    const [summary] = t.log.filter(({ message }) => message.startsWith('refusals without'))
    assert.deepEqual(summary?.fields, { unnoted: 30 })
    const metrics = await (await fetch(`${t.gateway.adminAddress}/metrics`)).text()
    assert.match(metrics, /^sluice_shed_total\{reason="lag"\} 131$/m)
  } finally {
    await t.close()
  }
})

/** Timers come late by `late`. */
class LateClock extends ManualClock {
  late = 0
  override setTimer(ms: number, fn: () => void) {
    return super.setTimer(ms + this.late, fn)
  }
}

test('lag is what stands: one stall is none, two in a row are, the one under way counts, and it is forgotten when it is over', () => {
  const clock = new LateClock()
  // It works all the time.
  const lag = new TimerLag(clock, () => clock.mono())
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

test('lag that others cause, who had the core meanwhile, is none; of a mixture the own part counts', () => {
  for (const [share, least, most] of [
    [0, 0, 0],
    [0.02, 0, 0],
    [0.5, 100, 160],
    [1, 300, 300],
  ] as const) {
    const clock = new LateClock()
    const lag = new TimerLag(clock, () => clock.mono() * share)
    clock.late = 300
    clock.advance(20)
    for (let i = 0; i < 5; i++) clock.advance(320)
    const seen = lag.lagMs()
    assert.ok(seen >= least && seen <= most, `${share}: ${seen}`)
    lag.close()
  }
})
