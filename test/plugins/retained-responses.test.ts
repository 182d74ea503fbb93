/** `retained-responses`: a terminal that answers with a stored response object, or deletes it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyConfig } from '../../config/types.ts'
import type { Turn } from '../../core/canon/conversation.ts'
import { MemoryIncoming } from '../../core/engine/memory-incoming.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import { type Exchange, GatewayError, type SentStream, type StreamWatch } from '../../core/plugin.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { Sealer } from '../../core/tools/sealer.ts'
import type { Retained } from '../../plugins/conversation/memory.ts'
import { type Reply, RetainedReplies } from '../../plugins/conversation/replies.ts'
import { retainedResponses } from '../../plugins/retained-responses/index.ts'
import { ReadableStreams, readableOf } from '../../plugins/shared/readable.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { type PluginRun, runPlugin } from '../../plugins/testing.ts'
import { responses } from '../../surfaces/responses/index.ts'
import { eventually } from '../eventually.ts'
import { contextFor, drive } from '../surfaces/openai-kit.ts'
import { caller, finish, gatewayOf, heldStore, lateStore, memoryStore, modelOf, OUT, text } from './kit.ts'

const ID = 'resp_abcdefghijklmnopqrstuvwx'
const OBJECT = `{"id":"${ID}","output":["é\\ud83d"]}`
const SECRET = new Uint8Array(32)
const HOUR = 3_600_000

const asked = (store: Store, clock: ManualClock, method = 'GET', id = ID) => ({
  store,
  clock,
  gateway: gatewayOf(),
  route: 'GET /v1/responses/*',
  request: { method, path: `/v1/responses/${id}` },
})
const ask = (store: Store, method = 'GET', id = ID, organization = 'acme', clock = new ManualClock()) =>
  runPlugin(retainedResponses, {
    ...asked(store, clock, method, id),
    slots: [[identity, caller({ id: organization })]],
  })

async function stored(clock = new ManualClock()): Promise<Store> {
  const store = await memoryStore(clock)
  await store.records.put('acme', 'response', ID, Buffer.from('turn'), HOUR, clock.now())
  await new RetainedReplies(store, SECRET, clock).keep('acme', ID, { object: OBJECT, asked: { models: [] } }, HOUR)
  return store
}

for (const [engine, of] of [
  ['a store that answers at once', (store: Store) => store],
  ['a store that answers late', lateStore],
] as const) {
  test(`[RESP-6] ${engine}: the bytes as they were stored, then deleted, then unknown`, async () => {
    const store = of(await stored())
    const found = await ask(store)
    assert.deepEqual([found.status, found.body], [200, OBJECT])
    assert.equal(found.headers.get('content-type'), 'application/json')
    assert.equal((await ask(store, 'GET', ID, 'globex')).status, 404)
    assert.equal((await ask(store, 'DELETE', ID, 'globex')).status, 404)
    assert.deepEqual((await ask(store, 'DELETE')).json, { id: ID, object: 'response', deleted: true })
    for (const method of ['GET', 'DELETE']) {
      const { status, json } = await ask(store, method)
      assert.deepEqual([status, json.error.code], [404, 'response_not_found'])
    }
  })
}

test('[RESP-6] it ends with its time to live', async () => {
  const clock = new ManualClock()
  const store = await stored(clock)
  clock.advance(HOUR - 1)
  assert.equal((await ask(store, 'GET', ID, 'acme', clock)).status, 200)
  clock.advance(1)
  assert.equal((await ask(store, 'GET', ID, 'acme', clock)).status, 404)
})

test('[RESP-6] what an earlier release retained has no object: it is unknown, and can be deleted', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  await store.records.put('acme', 'response', ID, Buffer.from('turn'), HOUR, clock.now())
  assert.equal((await ask(store)).status, 404)
  assert.equal((await ask(store, 'DELETE')).status, 200)
})

test('[AUTH-3] what is stored is sealed for its organization', async () => {
  const clock = new ManualClock()
  const store = await stored(clock)
  const sealed = await store.records.get('acme', 'reply', ID, clock.now())
  assert.ok(!Buffer.from(sealed!).includes('output'))
  await store.records.put('globex', 'reply', ID, sealed!, HOUR, clock.now())
  assert.equal((await ask(store, 'GET', ID, 'globex')).status, 404)
})

for (const [how, out] of Object.entries(OUT)) {
  test(`a store that ${how}: 503, to be retried`, async () => {
    const store = out(await stored())
    for (const method of ['GET', 'DELETE']) {
      const { status, json } = await ask(store, method)
      assert.deepEqual([status, json.error.code], [503, 'provider_unavailable'])
    }
  })
}

test('[RESP-6] what 0.1.0 stored tells its model alone: keys without limits get it, others where the model is theirs', async () => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  await store.records.put('acme', 'response', ID, Buffer.from('turn'), HOUR, clock.now())
  const sealer = new Sealer(SECRET)
  const models = { small: modelOf({ id: 'small', aliases: ['tiny'] }), large: modelOf({ id: 'large' }) }
  const statusOf = async (object: object, key: Partial<KeyConfig>) => {
    const sealed = sealer.seal('acme', JSON.stringify({ id: ID, ...object }))
    await store.records.put('acme', 'reply', ID, sealed, HOUR, clock.now())
    const slots = [[identity, caller({}, key)]] as never
    const run = await runPlugin(retainedResponses, { ...asked(store, clock), gateway: gatewayOf({ models }), slots })
    return run.status
  }
  assert.equal(await statusOf({ model: 'large' }, {}), 200)
  assert.equal(await statusOf({ model: 'large' }, { models: ['large'] }), 200)
  assert.equal(await statusOf({ model: 'tiny' }, { models: ['small'] }), 200)
  assert.equal(await statusOf({ model: 'large' }, { models: ['small'] }), 403)
  assert.equal(await statusOf({}, { models: ['small'] }), 403)
  assert.equal(await statusOf({ model: 'large' }, { capabilities: ['tools'] }), 403)
})

// ---- the items of the input -----------------------------------------------------------------------------------------

const said = (role: 'user' | 'assistant', words: string): Turn => ({ role, parts: [{ type: 'text', text: words }] })
const itemsIn = async (record: Partial<Retained>, key: Partial<KeyConfig> = {}, now = 0) => {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const sealed = new Sealer(SECRET).seal('acme', { system: [], ...record })
  await store.records.put('acme', 'response', ID, sealed, HOUR, clock.now())
  await new RetainedReplies(store, SECRET, clock).keep(
    'acme',
    ID,
    { object: '{"model":"large"}', asked: undefined },
    HOUR,
  )
  clock.advance(now)
  const models = { small: modelOf({ id: 'small' }), large: modelOf({ id: 'large' }) }
  const { status, json } = await runPlugin(retainedResponses, {
    ...asked(lateStore(store), clock),
    request: { method: 'GET', path: `/v1/responses/${ID}/input_items`, query: 'order=asc' },
    gateway: gatewayOf({ models }),
    slots: [[identity, caller({}, key)]] as never,
  })
  return json.data ? json.data.map((item: any) => item.content[0].text) : [status, json.error.code]
}

test('[RESP-7] the reply is no item: not where it is empty and the input ends with the assistant, nor in a record of 0.1.0', async () => {
  const turns = [said('user', 'a'), said('assistant', 'b')]
  assert.deepEqual(await itemsIn({ turns, inputs: 1, asked: { models: [] } }), ['a'])
  assert.deepEqual(await itemsIn({ turns, inputs: 2, asked: { models: [] } }), ['a', 'b'])
  assert.deepEqual(await itemsIn({ turns }), ['a'])
  assert.deepEqual(await itemsIn({ turns: [said('user', 'a')] }), ['a'])
  assert.deepEqual(await itemsIn({ turns }, { models: ['large'] }), ['a'])
  assert.deepEqual(await itemsIn({ turns }, { models: ['small'] }), [403, 'model_not_available'])
})

test('[RESP-7] a response that has ended lists nothing, though a later one still needs its record', async () => {
  const record = { turns: [said('user', 'a')], inputs: 1, asked: { models: [] } }
  const ends = new ManualClock().now() + 1000
  assert.deepEqual(await itemsIn({ ...record, ends }, {}, 999), ['a'])
  assert.deepEqual(await itemsIn({ ...record, ends }, {}, 1000), [404, 'response_not_found'])
})

test('[RESP-7] few records of one organization are opened at a time', async () => {
  const clock = new ManualClock()
  const store = await stored(clock)
  let reading = 0
  let most = 0
  const counted = heldStore(store, async ask => {
    most = Math.max(most, ++reading)
    for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate)
    reading--
    return ask()
  })
  await Promise.all([1, 2, 3, 4, 5].map(() => ask(counted, 'GET', `${ID}/input_items`, 'acme', clock)))
  assert.equal(most, 2)
})
// ---- its stream -----------------------------------------------------------------------------------------------------

/** The frames and the stored form of a response whose text has this many deltas. */
function streamed(deltas: number, words = 'word ') {
  const body = { model: 'large', input: 'hi', stream: true }
  const context = contextFor(responses, body)
  const encoder = responses.encoder({ ...context, objectId: ID.slice(5) })
  const events = Array.from({ length: deltas }, () => text(words))
  const sse = drive(encoder, { events, end: finish })
  return { sse, stream: encoder.sent!, reply: { object: encoder.body(), events: encoder.sent!.events() } }
}
const MANY = 5000
const MIB = 1024 * 1024
async function withStream(deltas = 3, without: Partial<Reply> = {}) {
  const clock = new ManualClock()
  const store = await memoryStore(clock)
  const { sse, reply } = streamed(deltas)
  const kept = { ...reply, asked: { models: [] }, ...without }
  await store.records.put('acme', 'response', ID, Buffer.from('turn'), HOUR, clock.now())
  await new RetainedReplies(store, SECRET, clock).keep('acme', ID, kept, HOUR)
  const shared = createSharedState()
  const read = (query = '', who = caller(), client?: MemoryIncoming) =>
    runPlugin(retainedResponses, {
      ...asked(lateStore(store), clock),
      shared,
      giveUpMs: 60_000,
      request: client ?? clientOf(query),
      slots: [[identity, who]],
    })
  return { store, clock, sse, shared, read }
}
const clientOf = (query = '') =>
  new MemoryIncoming({ method: 'GET', path: `/v1/responses/${ID}`, query: `stream=true${query}` })
const rawOf = ({ exchange }: PluginRun) => (exchange.incoming as MemoryIncoming).sent

test('[RESP-8] readers of a stored stream share what is held of it, slow ones wait for themselves, and all is given back', async () => {
  const { sse, shared, read } = await withStream(MANY)
  const readable = readableOf(shared)
  const slow = clientOf()
  slow.fast = false
  const reading = read('', caller(), slow)
  await eventually(() => slow.sent !== '')
  const held = readable.bytes
  assert.ok(held > 2 * MANY * 5)
  const all = await Promise.all(Array.from({ length: 20 }, () => read('')))
  for (const run of all) assert.equal(rawOf(run), sse)
  assert.equal(readable.bytes, held)
  const slice = slow.sent.length
  assert.ok(slice < sse.length / 4, 'a slow reader is sent one slice')
  while (slow.ending === 'open') {
    const before = slow.sent.length
    slow.drain()
    slow.fast = false
    await eventually(() => slow.sent.length > before || slow.ending !== 'open')
  }
  assert.equal(rawOf(await reading), sse)
  assert.equal(readable.bytes, 0)
})

test('[RESP-8] a reader that leaves gives back what it held', async () => {
  const { shared, read } = await withStream(MANY)
  const client = clientOf()
  client.fast = false
  const reading = read('', caller(), client)
  await eventually(() => client.sent !== '')
  client.abort()
  assert.equal((await reading).settlement.outcome, 'client_gone')
  await eventually(() => readableOf(shared).bytes === 0)
})

test('[RESP-8] a response without numbered events is a stream from its beginning alone', async () => {
  const { read } = await withStream(3, { events: undefined })
  assert.match(rawOf(await read()), /^event: response\.created\n.*event: response\.completed\n/s)
  const { status, json } = await read('&starting_after=0')
  assert.deepEqual([status, json.error.code, json.error.param], [400, 'invalid_value', 'starting_after'])
  assert.match(json.error.message, /Leave 'starting_after' out/)
})

test('[RESP-8] [AUTH-6] a stream needs the right to stream, and takes from the bucket of counts', async () => {
  const { read } = await withStream()
  const refused = await read('', caller({}, { streaming: false }))
  assert.deepEqual([refused.status, refused.json.error.code], [403, 'streaming_not_available'])
  const limited = caller({ limits: { requests_per_minute: 1 } })
  assert.equal((await read('', limited)).status, 200)
  const { status, json } = await read('', limited)
  assert.deepEqual([status, json.error.code], [429, 'requests_limit_exceeded'])
})

test('[RESP-8] deleted while it is read, a stored stream ends in an error', async () => {
  const { store, clock, shared, read } = await withStream(MANY)
  const client = clientOf()
  client.fast = false
  const reading = read('', caller(), client)
  await eventually(() => client.sent !== '')
  const removed = await runPlugin(retainedResponses, {
    ...asked(store, clock, 'DELETE'),
    shared,
    slots: [[identity, caller()]],
  })
  assert.equal(removed.status, 200)
  client.drain()
  const sent = rawOf(await reading)
  assert.match(
    sent,
    /\n\nevent: error\ndata: \{"type":"error","sequence_number":\d+,"code":"response_not_found"[^\n]*\n\n$/,
  )
  assert.equal(readableOf(shared).bytes, 0)
  assert.equal((await read()).status, 404)
})

test('[RESP-8] the bytes of streams that are read are bounded, for one organization and for all', async () => {
  const streams = new ReadableStreams(32 * MIB, 256 * MIB)
  const sized = (size: number) => () => ({ ...streamed(1).stream, size, count: 1 }) as SentStream
  const open = (organization: string, id: string, size: number) =>
    streams.stored(organization, id, undefined, sized(size * MIB))
  const refusedAs = (code: string) => (error: unknown) => error instanceof GatewayError && error.code === code
  // Whoever holds nothing may hold one, however large.
  const large = open('acme', 'a', 40)
  assert.throws(() => open('acme', 'b', 1), refusedAs('concurrency_limit_exceeded'))
  assert.equal(open('acme', 'a', 40), large)
  large.release()
  large.release()
  assert.equal(streams.bytes, 0)
  const twice = [open('acme', 'a', 30), open('acme', 'b', 2)]
  assert.throws(() => open('acme', 'c', 1), refusedAs('concurrency_limit_exceeded'))
  for (const response of twice) response.release()

  for (let i = 0; i < 8; i++) open(`org-${i}`, 'a', 31)
  open('small', 'a', 1)
  // All is full for those who hold more than their share, and not for the others.
  assert.throws(() => open('org-0', 'b', 2), refusedAs('concurrency_limit_exceeded'))
  open('last', 'a', 7)
  assert.throws(() => open('org-0', 'b', 0.9), refusedAs('route_capacity'))
  open('last', 'b', 1)
  assert.equal(streams.refused, 4)
})

/** A response that runs, as `conversation` registers it. */
function runningOf(streams: ReadableStreams, grows: { size: number; count: number }) {
  let watch!: StreamWatch
  let left = 0
  const { stream } = streamed(1)
  const x = {
    objectId: ID.slice(5),
    get sentStream() {
      return grows.count === 0
        ? undefined
        : { ...grows, object: () => stream.object(), events: () => '', read: (after: number) => stream.read(after) }
    },
    runOn(told: StreamWatch) {
      watch = told
      return () => void left++
    },
  }
  const response = streams.run(x as unknown as Exchange, 'acme', () => ({ models: [] }))
  return { response, watch, left: () => left }
}

test('[RESP-9] a response that runs is found from its first event on, until it is stored; then the store has it', async () => {
  const streams = new ReadableStreams()
  const grows = { size: 0, count: 0 }
  const { response, watch } = runningOf(streams, grows)
  assert.equal(streams.running('acme', ID), undefined)
  Object.assign(grows, { size: 100, count: 2 })
  watch.more()
  assert.equal(streams.running('acme', ID), response)
  assert.equal(streams.running('globex', ID), undefined)
  grows.size = 300
  watch.more()
  assert.equal(streams.bytes, 300)
  const stored = Promise.withResolvers<void>()
  response.stores(stored.promise)
  watch.end(true)
  assert.equal(streams.running('acme', ID), response)
  const reader = response.hold()
  stored.resolve()
  await eventually(() => streams.running('acme', ID) === undefined)
  // Who comes from the store meanwhile shares it.
  assert.equal(
    streams.stored('acme', ID, undefined, () => assert.fail()),
    response,
  )
  reader.release()
  reader.release()
  assert.equal(streams.bytes, 0)
})

test('[RESP-9] a response that outgrows the bounds runs on, and its readers are told to come back when it has ended', async () => {
  const streams = new ReadableStreams(MIB)
  const other = runningOf(streams, { size: 100, count: 2 })
  other.watch.more()
  const grows = { size: 100, count: 2 }
  const { response, watch, left } = runningOf(streams, grows)
  watch.more()
  let told = 0
  const unfollow = response.follow(() => told++)
  grows.size = 2 * MIB
  watch.more()
  assert.deepEqual([told, response.cut?.code, left(), streams.bytes, streams.refused], [1, 'route_capacity', 0, 100, 1])
  // It is there to be looked at, and deleted.
  assert.equal(streams.running('acme', ID), response)
  watch.more()
  const reader = response.hold()
  response.stores(undefined)
  watch.end(true)
  await eventually(() => streams.running('acme', ID) === undefined)
  // Who comes now gets it from the store, although a reader has not noticed yet that it was cut.
  const stored = streams.stored('acme', ID, undefined, () => streamed(1).stream)
  assert.notEqual(stored, response)
  reader.release()
  assert.equal(
    streams.stored('acme', ID, undefined, () => assert.fail()),
    stored,
  )
  stored.release()
  stored.release()
  assert.equal(streams.bytes, 100)
  unfollow()
})

test('[RESP-9] a response that runs is known to its process alone; another one says where it is', async () => {
  const { clock, read } = await withStream()
  const empty = await memoryStore(clock)
  const here = createSharedState()
  const grows = { size: 10, count: 3 }
  const { watch } = runningOf(readableOf(here), grows)
  watch.more()
  const from = async (shared: ReturnType<typeof createSharedState>, query: string) =>
    runPlugin(retainedResponses, {
      ...asked(lateStore(empty), clock),
      shared,
      request: { method: 'GET', path: `/v1/responses/${ID}`, query },
      slots: [[identity, caller()]],
    })
  const elsewhere = await from(createSharedState(), 'stream=true')
  assert.deepEqual([elsewhere.status, elsewhere.json.error.code], [404, 'response_not_found'])
  assert.match(elsewhere.json.error.message, /ask again when it has ended/)
  assert.equal((await from(here, '')).json.id, ID)
  const beyond = await from(here, 'stream=true&starting_after=3')
  assert.deepEqual([beyond.status, beyond.json.error.param], [400, 'starting_after'])
  readableOf(here).change('acme', MIB)
  grows.size = 200 * MIB
  watch.more()
  const full = await from(here, 'stream=true')
  assert.deepEqual([full.status, full.json.error.code], [503, 'route_capacity'])
  assert.match(full.json.error.message, /It runs on: read it when it has ended/)
  watch.end(true)
  // Once it is stored, each process has it.
  assert.equal((await read('&starting_after=1')).status, 200)
})

test('[RESP-9] a response that was never begun, broke off or was deleted is found by nobody', async () => {
  const streams = new ReadableStreams()
  const never = runningOf(streams, { size: 0, count: 0 })
  never.watch.end(false)
  const broke = runningOf(streams, { size: 10, count: 2 })
  broke.watch.more()
  broke.response.hold()
  broke.watch.end(false)
  assert.equal(streams.running('acme', ID), undefined)
  assert.equal(broke.response.cut?.code, 'internal_error')
  const removed = runningOf(streams, { size: 10, count: 2 })
  removed.watch.more()
  streams.delete('acme', ID)
  assert.deepEqual([removed.response.deleted, removed.left()], [true, 1])
  removed.watch.more()
  removed.watch.end(false)
  assert.equal(removed.response.cut?.code, 'response_not_found')
  assert.deepEqual([streams.running('acme', ID), streams.bytes], [undefined, 0])
})
