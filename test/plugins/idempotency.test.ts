/** `idempotency`: a request with an Idempotency-Key is executed once; when it comes again, its first answer does. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyConfig } from '../../config/types.ts'
import { request } from '../../core/plugin.ts'
import type { IdempotencyRecord, Store } from '../../core/ports/store.ts'
import { idempotency } from '../../plugins/idempotency.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { GatewayError, ManualClock, MemoryIncoming, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, heldStore, lateStore, memoryStore, modelOf, OUT, reading, text } from './kit.ts'

interface Asked {
  key?: string
  body?: string
  path?: string
  organization?: string
}

/** One request after the other, to one store. */
function client(store: Store, clock = new ManualClock()) {
  let sent = 0
  return (asked: Asked = {}, more: RunOptions<any> = {}) => {
    const { key = 'order-1', body = '{"a":1}', path = '/v1/test', organization = 'acme' } = asked
    return runPlugin(idempotency, {
      id: `req_${++sent}`,
      store,
      clock,
      gateway: gatewayOf(),
      slots: [[identity, caller({ id: organization })]],
      request: { path, body, headers: { 'idempotency-key': key } },
      events: [text(`answer ${sent}`)],
      ...more,
    })
  }
}

const STORES = { 'a store that answers at once': (store: Store) => store, 'a store that answers late': lateStore }
for (const [engine, of] of Object.entries(STORES)) {
  test(`[IDEM-1] ${engine}: the second request gets the bytes of the first answer, and says so`, async () => {
    const ask = client(of(await memoryStore()))
    const first = await ask()
    const again = await ask()
    assert.match(first.body, /answer 1/)
    assert.equal(again.body, first.body)
    assert.deepEqual([again.status, again.headers.get('content-type')], [200, first.headers.get('content-type')])
    assert.equal(again.headers.get('x-idempotent-replay'), 'true')
    assert.equal(again.headers.get('x-original-request-id'), 'req_1')
    assert.equal(first.headers.has('x-idempotent-replay'), false)
    assert.equal(again.settlement.outcome, 'replayed')
  })
}

test('[IDEM-2] a replay has a request id of its own', async () => {
  const ask = client(await memoryStore())
  const ids = [await ask(), await ask()].map(run => run.headers.get('x-request-id'))
  assert.deepEqual(ids, ['req_1', 'req_2'])
})

test('[IDEM-2] what belongs to one sending of the reply is not kept with it', async () => {
  const store = await memoryStore()
  const kept: string[] = []
  const finish = store.idempotency.finish.bind(store.idempotency)
  store.idempotency.finish = (...record) => {
    kept.push(...record[2]!.headers.map(([name]) => name))
    return finish(...record)
  }
  await client(store)()
  assert.ok(kept.includes('content-type'))
  assert.ok(!kept.includes('x-request-id'))
})

// A replay repeated the limits of a day before.
test('[IDEM-1] the limits that were recorded with the first reply are not told again', async () => {
  const store = await memoryStore()
  const finish = store.idempotency.finish.bind(store.idempotency)
  store.idempotency.finish = (...record) => {
    record[2]!.headers.push(['x-ratelimit-remaining-requests', '3'])
    return finish(...record)
  }
  const ask = client(store)
  await ask()
  const again = await ask()
  assert.equal(again.headers.get('x-idempotent-replay'), 'true')
  assert.equal(again.headers.has('x-ratelimit-remaining-requests'), false)
})

test('without the header every request is executed', async () => {
  const ask = client(await memoryStore())
  const bare = { request: { body: '{"a":1}' } }
  assert.match((await ask({}, bare)).body, /answer 1/)
  assert.match((await ask({}, bare)).body, /answer 2/)
})

for (const [what, asked] of Object.entries<Asked>({
  'another body': { body: '{"a":2}' },
  'another endpoint': { path: '/v1/other' },
})) {
  test(`[IDEM-2] the same key with ${what}: 409, not to be retried`, async () => {
    const ask = client(await memoryStore())
    await ask()
    const { status, json } = await ask(asked)
    assert.deepEqual([status, json.error.code, json.error.retryable], [409, 'idempotency_key_conflict', false])
    assert.match(json.error.message, /another body or endpoint/)
  })
}

test('[IDEM-1] a key belongs to its organization', async () => {
  const ask = client(await memoryStore())
  await ask()
  assert.match((await ask({ organization: 'globex' })).body, /answer 2/)
})

test('[IDEM-2] while the first still runs, the second is told to come again: 409, retriable, with a wait', async () => {
  const ask = client(await memoryStore())
  let go = () => {}
  const first = ask({}, { events: [x => void (go = x.hold()), text('slow')] })
  const second = await ask()
  assert.deepEqual([second.status, second.json.error.code], [409, 'idempotency_key_conflict'])
  assert.equal(second.json.error.retryable, true)
  assert.ok(Number(second.headers.get('retry-after-ms')) >= 1000)
  go()
  assert.match((await first).body, /slow/)
  assert.match((await ask()).body, /slow/)
})

for (const key of ['', 'k'.repeat(256), 'two words', 'schlüssel', 'tab\t']) {
  test(`a key is 1 to 255 visible ASCII characters: ${JSON.stringify(key).slice(0, 20)} is 400`, async () => {
    const { status, json } = await client(await memoryStore())({ key })
    assert.deepEqual([status, json.error.code, json.error.param], [400, 'bad_request', 'Idempotency-Key'])
  })
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

const fault = { type: 'error' as const, error: new GatewayError('upstream_server_error', { message: 'x' }) }

test('[IDEM-3] what was not executed is not kept: after an error before any output the key is free', async () => {
  const ask = client(await memoryStore())
  assert.equal((await ask({}, { events: [fault] })).status, 502)
  assert.match((await ask()).body, /answer 2/)
})

test('[IDEM-3] a reply that failed after output was delivered is replayed, its error frame included', async () => {
  const ask = client(await memoryStore())
  const first = await ask({}, { events: [text('half'), x => void x.flush(), fault] })
  assert.deepEqual([first.status, first.events.at(-1).type], [200, 'error'])
  assert.equal((await ask()).body, first.body)
})

test('[IDEM-3] a client that leaves in the middle: what it got is replayed, and cut there', async () => {
  const ask = client(await memoryStore())
  await ask({}, { events: [text('half'), x => void x.flush(), text('more')], leaveAfter: 1 })
  const back = new MemoryIncoming({ body: '{"a":1}', path: '/v1/test', headers: { 'idempotency-key': 'order-1' } })
  const again = await ask({}, { request: back })
  assert.match(again.body, /half/)
  assert.doesNotMatch(again.body, /more/)
  assert.equal(back.ending, 'cut')
})

test('[IDEM-3] a client that leaves before anything came: the key is free', async () => {
  const ask = client(await memoryStore())
  assert.equal((await ask({}, { leaveAfter: 0 })).settlement.outcome, 'client_gone')
  assert.match((await ask()).body, /answer 2/)
})

test('[IDEM-3] keep: after it the key may be used anew', async () => {
  const clock = new ManualClock()
  const ask = client(await memoryStore(clock), clock)
  const config = { keep: 60_000 }
  await ask({}, { config })
  clock.advance(59_999)
  assert.match((await ask({}, { config })).body, /answer 1/)
  clock.advance(2)
  assert.match((await ask({}, { config })).body, /answer 3/)
})

test('[IDEM-3] max_record: a larger reply is remembered as executed, and not executed again', async () => {
  const ask = client(await memoryStore())
  const config = { max_record: 100 }
  assert.equal((await ask({}, { config, events: [text('x'.repeat(200))] })).status, 200)
  const again = await ask({}, { config })
  assert.deepEqual([again.status, again.json.error.code], [409, 'idempotency_key_conflict'])
  assert.match(again.json.error.message, /was executed \(req_1\)/)
})

// ---- failures -------------------------------------------------------------------------------------------------------

for (const [how, out] of Object.entries(OUT)) {
  test(`a store that ${how}: 503 provider_unavailable, and nothing is executed`, async () => {
    let executed = false
    const ask = client(out(await memoryStore()))
    const { status, json } = await ask({}, { events: [() => void (executed = true)] })
    assert.deepEqual([status, json.error.code, executed], [503, 'provider_unavailable', false])
  })
}

test('a store that fails only when the record is written: the client has its answer, and the log says so', async () => {
  let asked = 0
  const store = heldStore(await memoryStore(), ask => (++asked === 1 ? ask() : Promise.reject(new Error('gone'))))
  const run = await client(store)()
  assert.equal(run.status, 200)
  await new Promise(setImmediate)
  assert.ok(run.log.some(({ level, message }) => level === 'warn' && message === 'idempotency record not written'))
})

test('a client that leaves while the store is asked: the key is free for its retry', async () => {
  const real = await memoryStore()
  const leaving = new MemoryIncoming({ path: '/v1/test', body: '{"a":1}', headers: { 'idempotency-key': 'order-1' } })
  const store = heldStore(real, async ask => {
    const found = ask()
    leaving.abort()
    return found
  })
  assert.equal((await client(store)({}, { request: leaving })).settlement.outcome, 'client_gone')
  await new Promise(setImmediate)
  assert.match((await client(real)()).body, /answer 1/)
})

test('[IDEM-1] what 0.1.0 stored without what it was asked for is judged by the body', async () => {
  const store = await memoryStore()
  const finish = store.idempotency.finish.bind(store.idempotency)
  store.idempotency.finish = (org, key, record, ...more) => finish(org, key, record && old(record), ...more)
  const old = ({ asked: _, ...record }: IdempotencyRecord) => record
  const models = { small: modelOf({ id: 'small' }), large: modelOf({ id: 'large' }) }
  const ask = client(store)
  const as = (key: Partial<KeyConfig>, members: object = {}, name = 'k') => {
    const body = { model: 'large', messages: [{ role: 'user', content: 'hello' }], ...members }
    const slots = [
      [identity, caller({}, key)],
      [request, body],
    ] as never
    const more = { gateway: gatewayOf({ models }), surface: reading('chat'), slots }
    return ask({ body: JSON.stringify(body), key: name }, more)
  }
  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }]
  await as({})
  await as({}, { stream: true }, 'stream')
  await as({}, { tools }, 'tools')
  assert.equal((await as({ models: ['large'] })).headers.get('x-idempotent-replay'), 'true')
  assert.equal((await as({ models: ['small'] })).status, 403)
  assert.equal((await as({ streaming: false })).status, 200)
  assert.equal((await as({ streaming: false }, { stream: true }, 'stream')).status, 403)
  assert.equal((await as({ capabilities: ['images'] }, { tools }, 'tools')).status, 400)
  assert.equal((await as({ capabilities: ['tools'] }, { tools }, 'tools')).status, 200)
})
