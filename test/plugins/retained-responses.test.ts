/** `retained-responses`: a terminal that answers with a stored response object, or deletes it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KeyConfig } from '../../config/types.ts'
import type { Turn } from '../../core/canon/conversation.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import type { Retained } from '../../plugins/conversation/memory.ts'
import { RetainedReplies } from '../../plugins/conversation/replies.ts'
import { Sealer } from '../../plugins/conversation/seal.ts'
import { retainedResponses } from '../../plugins/retained-responses/index.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { caller, gatewayOf, heldStore, lateStore, memoryStore, modelOf, OUT } from './kit.ts'

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
