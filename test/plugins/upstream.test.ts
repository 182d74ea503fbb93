/**
 * `upstream`: a terminal that sends the request to the first candidate that may be asked. Attempts, clocks, pools and
 * failover need a real server: test/upstream/, test/e2e/upstreams.test.ts and test/e2e/faults-*.test.ts. Here is what
 * is decided before anything is dispatched.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { GatewayConfig, ProviderConfig } from '../../config/types.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { candidates, identity, model, servedBy } from '../../plugins/shared/slots.ts'
import {
  createSharedState,
  GatewayError,
  ManualClock,
  MemoryIncoming,
  type RunOptions,
  runPlugin,
} from '../../plugins/testing.ts'
import { MAX_ORGANIZATIONS } from '../../plugins/upstream/breaker.ts'
import { sharedBackends, sharedPools, upstreamHealth } from '../../plugins/upstream/health.ts'
import { upstream } from '../../plugins/upstream/index.ts'
import { backend, caller, gatewayOf, modelOf } from './kit.ts'

const provider = (over: Partial<ProviderConfig> = {}): ProviderConfig => ({
  name: 'local',
  dialect: 'openai-chat',
  base_url: 'http://backend.invalid/v1',
  headers: {},
  max_connections: 1,
  queue: { max: 1, wait: 1000 },
  http2: false,
  settings: {},
  tls: null,
  proxy: null,
  key_header: undefined,
  auth: null,
  at: { file: 'gateway.yaml', line: 1, column: 1 },
  ...over,
})
const row = { idle: 60_000, ceiling: 600_000 }
const gatewayWith = (providers: Record<string, ProviderConfig>) =>
  gatewayOf({
    providers,
    stream_limits: { minimal: row, medium: row, high: row, xhigh: row, max: row } as GatewayConfig['stream_limits'],
  })

/**
 * Backends whose request was asked for, in order: nothing is written for one that is left out.
 * @param known whether a plugin has found the client's organization
 */
function asking(backends: Backend[] = [backend()], written: (to: Backend) => never = refuse, known = true) {
  const tried: string[] = []
  const ask = (more: RunOptions<any> = {}) =>
    runPlugin(upstream, {
      gateway: gatewayWith({ local: provider() }),
      translate: () => call => {
        tried.push(call.backend.id)
        return written(call.backend)
      },
      ...more,
      slots: [
        ...(known ? [[identity, caller()] as const] : []),
        [model, modelOf({ backends })],
        [candidates, backends],
        ...(more.slots ?? []),
      ],
    })
  return { ask, tried }
}
function refuse(): never {
  throw new GatewayError('request_requirements_unsatisfied', { message: 'It cannot be written.', param: 'tools' })
}

// ---- a request that cannot be written -------------------------------------------------------------------------------

test('a request that a dialect refuses to write gets that refusal', async () => {
  const { ask } = asking()
  const { status, json, exchange } = await ask()
  assert.deepEqual([status, json.error.code, json.error.param], [400, 'request_requirements_unsatisfied', 'tools'])
  assert.equal(exchange.peek(servedBy), undefined)
})

test('a dialect that breaks is a fault of the gateway, told in the log alone', async () => {
  const { ask } = asking(undefined, () => {
    throw new TypeError('secret detail')
  })
  const { status, body, log } = await ask()
  assert.equal(status, 500)
  assert.doesNotMatch(body, /secret detail/)
  assert.ok(log.some(({ level, fields }) => level === 'error' && /secret detail/.test(fields.err.message)))
})

test('its connection is free for the next request, and its backend none the worse', async () => {
  const shared = createSharedState()
  // As a configuration that serves does: the pool outlives each of the runs.
  sharedPools(shared).acquire(provider(), 5000, new ManualClock())
  const { ask, tried } = asking()
  for (let i = 0; i < 5; i++) assert.equal((await ask({ shared })).status, 400)
  assert.equal(tried.length, 5)
  const { backends, providers } = upstreamHealth(shared, new ManualClock().mono())
  assert.deepEqual([backends[0]!.breaker, backends[0]!.failures], ['closed', 0])
  assert.deepEqual(providers, [{ provider: 'local', inFlight: 0, queued: 0, capacity: 1, refused: 0 }])
})

// ---- backends that are left out -------------------------------------------------------------------------------------

const OPTIONS = { failures: 5, error_rate: 0.5, window: 30_000, open_for: 15_000 }

test('[ERR-6] an open breaker leaves its backend out; the next candidate is asked', async () => {
  const shared = createSharedState()
  const clock = new ManualClock()
  const { breaker } = sharedBackends(shared).of('local/one', OPTIONS)
  for (let i = 0; i < OPTIONS.failures; i++) breaker.failed(clock.mono(), caller().organization.id, 'organization')
  const { ask, tried } = asking([backend({ id: 'local/one' }), backend({ id: 'local/two' })])
  await ask({ shared, clock })
  assert.deepEqual(tried, ['local/two'])
})

test('[ERR-6] all out: 503 provider_unavailable, nothing is asked; after open_for one trial is', async () => {
  const shared = createSharedState()
  const clock = new ManualClock()
  const { breaker } = sharedBackends(shared).of('local/small', OPTIONS)
  for (let i = 0; i < OPTIONS.failures; i++) breaker.failed(clock.mono(), caller().organization.id, 'organization')
  const { ask, tried } = asking()
  const { status, json, headers } = await ask({ shared, clock })
  assert.deepEqual([status, json.error.code, tried], [503, 'provider_unavailable', []])
  const wait = Number(headers.get('retry-after-ms'))
  assert.ok(wait >= 5000 && wait <= 15_000, String(wait))
  clock.advance(OPTIONS.open_for)
  await ask({ shared, clock })
  assert.deepEqual(tried, ['local/small'])
})

test('where no plugin finds organizations, what a client provokes leaves the backend out for its address alone', async () => {
  const shared = createSharedState()
  const clock = new ManualClock()
  for (const [id, tenant] of Object.entries({ 'local/one': '@192.0.2.1', 'local/two': '@127.0.0.1' })) {
    const { breaker } = sharedBackends(shared).of(id, OPTIONS)
    for (let i = 0; i < OPTIONS.failures; i++) breaker.failed(clock.mono(), tenant, 'organization')
  }
  for (const order of [['local/one'], ['local/two', 'local/one']]) {
    const { ask, tried } = asking(
      order.map(id => backend({ id })),
      refuse,
      false,
    )
    await ask({ shared, clock })
    assert.deepEqual(tried, ['local/one'])
  }
})

test('a breaker counts the organizations that it forgets for want of room, and none of the 512 met last', () => {
  const shared = createSharedState()
  const clock = new ManualClock()
  const { breaker } = sharedBackends(shared).of('local/small', OPTIONS)
  const forgotten = () => upstreamHealth(shared, clock.mono()).backends[0]!.forgotten
  const meet = (from: number, to: number) => {
    for (let i = from; i < to; i++) breaker.failed(clock.mono(), `organization ${i}`, 'organization')
  }
  const half = MAX_ORGANIZATIONS / 2
  meet(0, half)
  meet(0, half)
  assert.equal(forgotten(), 0)
  meet(half, 2 * MAX_ORGANIZATIONS + 1)
  assert.equal(forgotten(), 3 * half)
  // What was forgotten because it was idle for long is not counted.
  clock.advance(3_600_000)
  meet(0, 1)
  assert.equal(forgotten(), 3 * half)
})

test('[ERR-7] a backend that asked for a pause: one probe a second, and 429 with the time until it for the others', async () => {
  const shared = createSharedState()
  const clock = new ManualClock()
  for (const another of ['a', 'b'])
    sharedBackends(shared).of('local/small', OPTIONS).breaker.pause(clock.mono(), another, 10_000, 'capacity')
  const { ask, tried } = asking()
  clock.advance(999)
  const { status, json, headers } = await ask({ shared, clock })
  assert.deepEqual([status, json.error.code, tried], [429, 'capacity_exceeded', []])
  const wait = Number(headers.get('retry-after-ms'))
  assert.ok(wait >= 1 && wait <= 1000, `${wait} ms: at most the time to the next probe`)
  clock.advance(1)
  await ask({ shared, clock })
  assert.equal(tried.length, 1, 'the probe')
  assert.equal((await ask({ shared, clock })).status, 429)
  clock.advance(9000)
  for (let i = 0; i < 3; i++) await ask({ shared, clock })
  assert.equal(tried.length, 4)
})

// ---- connections that are all busy ----------------------------------------------------------------------------------

/** A provider whose connections are all in use: it is given none. */
const busy = (queue: ProviderConfig['queue']) => gatewayWith({ local: provider({ max_connections: 0, queue }) })

test('[ERR-6] no connection and no place to wait: 503 route_capacity at once', async () => {
  const { ask, tried } = asking()
  const { status, json, headers } = await ask({ gateway: busy({ max: 0, wait: 1000 }) })
  assert.deepEqual([status, json.error.code, tried], [503, 'route_capacity', []])
  assert.ok(Number(headers.get('retry-after-ms')) >= 2000)
})

test('[ERR-6] queue.wait: who waits is told when it is over', async () => {
  const clock = new ManualClock()
  const client = new MemoryIncoming()
  const { ask } = asking()
  const running = ask({ gateway: busy({ max: 1, wait: 1000 }), clock, request: client })
  await new Promise(setImmediate)
  clock.advance(999)
  assert.equal(client.status, 0)
  clock.advance(1)
  const { status, json } = await running
  assert.deepEqual([status, json.error.code], [503, 'route_capacity'])
})

test('busy connections of one provider: the candidate of another is asked', async () => {
  const gateway = gatewayWith({
    local: provider({ max_connections: 0, queue: { max: 0, wait: 0 } }),
    other: provider({ name: 'other' }),
  })
  const { ask, tried } = asking([backend(), backend({ id: 'other/small', provider: 'other' })])
  await ask({ gateway })
  assert.deepEqual(tried, ['other/small'])
})

test('[STR-4] a client that leaves while it waits gives up its place', async () => {
  const clock = new ManualClock()
  const shared = createSharedState()
  const client = new MemoryIncoming()
  const { ask, tried } = asking()
  const running = ask({ gateway: busy({ max: 1, wait: 1000 }), clock, shared, request: client })
  await new Promise(setImmediate)
  assert.equal(clock.pending, 1)
  client.abort()
  const { settlement } = await running
  assert.deepEqual([settlement.outcome, clock.pending, tried], ['client_gone', 0, []])
})
