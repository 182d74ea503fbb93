/** own-receipts: who gets which receipt, and the statement of a month; test/e2e/receipts.test.ts asks over HTTP. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import type { LedgerOutcome, Store } from '../../core/ports/store.ts'
import { requestId } from '../../core/tools/ids.ts'
import { ownReceipts } from '../../plugins/own-receipts.ts'
import { canonical, faultOf, keysOf, receiptOf } from '../../plugins/shared/receipt.ts'
import { receiptKeys } from '../../plugins/shared/receipt-keys.ts'
import { identity } from '../../plugins/shared/slots.ts'
import { ManualClock, MemoryIncoming, runPlugin } from '../../plugins/testing.ts'
import { silent } from '../chain/harness.ts'
import { eventually } from '../eventually.ts'
import { intent, outcome } from '../stores/kit.ts'
import { caller, memoryStore } from './kit.ts'

const RECEIPTS = { folder: null, keys: [], fault: null }
const MONTH = '2026-11'
const NOON = Date.UTC(2026, 10, 21, 12)

/** @param later than now, so that ids are not those of exchanges that have just ended */
async function bench(later = 60_000) {
  const clock = new ManualClock(Date.now() + later)
  const store = await memoryStore(clock)
  const shared = createSharedState()
  const gateway = { receipts: RECEIPTS }
  return {
    ...{ clock, store, shared },
    keys: () => keysOf({ keys: receiptKeys(RECEIPTS, shared, clock, silent).published }),
    book(time: number, more: Partial<LedgerOutcome> = {}, owner: { organization?: string; key_id?: string } = {}) {
      const id = more.request_id ?? requestId()
      store.ledger.intent(intent(id, { time, ...owner }))
      store.ledger.outcome(outcome(id, more))
      return id
    },
    ask(
      path: string,
      query = '',
      who = caller({}, { id: 'key_1', usage: 'organization' } as never),
      of: Store = store,
      more = {},
    ) {
      return runPlugin(ownReceipts, {
        ...{ clock, shared, gateway, store: of, route: path === '' ? 'GET /v1/receipts' : 'GET /v1/receipts/*' },
        request: new MemoryIncoming({ method: 'GET', path: `/v1/receipts${path === '' ? '' : `/${path}`}`, query }),
        slots: [[identity, who]],
        ...more,
      })
    },
  }
}
const only = (key: string, org = 'acme') => caller({ id: org }, { id: key, usage: 'key' } as never)

test('a receipt has what the row has for its customer, and is signed', async () => {
  const b = await bench()
  const id = b.book(NOON, {
    body_digest: 'ab'.repeat(32),
    tags: '{"team":"blue"}',
    price_used: 'plan:tier1',
    price_input: 1_250_000,
    price_output: 10_000_000,
    provider_cost: 7,
    provider_model: 'secret-model',
  })
  await b.store.ledger.flush()
  const { status, json, headers } = await b.ask(id)
  assert.equal(status, 200)
  assert.match(headers.get('content-type')!, /json/)
  assert.equal(await faultOf(json, b.keys()), null)
  const { signature, ...receipt } = json
  assert.deepEqual(receipt, {
    object: 'receipt',
    version: 1,
    request_id: id,
    time: '2026-11-21T12:00:00.000Z',
    organization: 'acme',
    key: 'key_ci',
    surface: 'responses',
    model: 'eb1-preview',
    outcome: 'completed',
    body_sha256: 'ab'.repeat(32),
    tags: { team: 'blue' },
    usage: {
      input_tokens: 120,
      cached_tokens: 20,
      cache_write_tokens: 10,
      output_tokens: 30,
      reasoning_tokens: 5,
      searches: 1,
      estimated: false,
    },
    billing: 'standard',
    price: { book: '2026-11', used: 'plan:tier1', input_pico_usd: 1_250_000, output_pico_usd: 10_000_000 },
    cost_nano_usd: 425_000,
  })
  // What the provider charges, and which model it has, is the operator's.
  assert.doesNotMatch(JSON.stringify(json), /secret-model|provider/)
  assert.ok(signature.value.length > 80)
})

test('a row without a digest, a price or tags says so', async () => {
  const b = await bench()
  const id = b.book(NOON, { cost: 0 })
  await b.store.ledger.flush()
  const { json } = await b.ask(id)
  assert.deepEqual([json.body_sha256, json.price, json.tags, json.cost_nano_usd], [null, null, undefined, 0])
})

test('others get nothing: another organization, another key that sees its own use alone, an unknown id, nonsense', async () => {
  const b = await bench()
  const id = b.book(NOON, {}, { key_id: 'key_1' })
  await b.store.ledger.flush()
  assert.equal((await b.ask(id, '', only('key_1'))).status, 200)
  for (const [path, who] of [
    [id, caller({ id: 'other' }, { id: 'key_1', usage: 'organization' } as never)],
    [id, only('key_2')],
    [id, only('key_1', 'other')],
    [`req_0${'0'.repeat(23)}`, only('key_1')],
    ['nonsense', only('key_1')],
    [`${id}x`, only('key_1')],
  ] as const) {
    const { status, json } = await b.ask(path, '', who)
    assert.deepEqual([status, json.error.code], [404, 'receipt_not_found'], path)
  }
})

test('a row that is on its way into the store is looked for once more; an old id is not waited for', async () => {
  const b = await bench(0)
  const id = requestId()
  let looks = 0
  const late = new Proxy(b.store, {
    get: (of, name) =>
      name !== 'row'
        ? Reflect.get(of, name)
        : async (...of: Parameters<Store['row']>) => (looks++ === 0 ? null : b.store.row(...of)),
  })
  b.book(NOON, { request_id: id })
  await b.store.ledger.flush()
  const timers = b.clock.pending
  const asked = b.ask(id, '', undefined, late)
  await eventually(() => b.clock.pending === timers + 1)
  b.clock.advance(200)
  assert.equal((await asked).status, 200)
  assert.equal(looks, 2)
  looks = 0
  b.clock.advance(60_000)
  assert.equal((await b.ask(id, '', undefined, late)).status, 404)
  assert.equal(looks, 1)
})

test('a client that leaves while it waits leaves no timer', async () => {
  const b = await bench(0)
  const id = requestId()
  const request = new MemoryIncoming({ method: 'GET', path: `/v1/receipts/${id}` })
  const timers = b.clock.pending
  const asked = b.ask(id, '', undefined, b.store, { request })
  await eventually(() => b.clock.pending === timers + 1)
  request.abort()
  assert.equal((await asked).settlement.outcome, 'client_gone')
  assert.equal(b.clock.pending, timers)
})

/** The lines of a statement. */
const linesOf = (body: string) =>
  body
    .trimEnd()
    .split('\n')
    .map(line => JSON.parse(line))

test('a statement has the receipts of the UTC month, a line each, between its head and its signed end', async () => {
  const b = await bench()
  const first = b.book(Date.UTC(2026, 10, 1), { cost: 5 })
  const last = b.book(Date.UTC(2026, 11, 1) - 1, { cost: 7 })
  b.book(Date.UTC(2026, 11, 1))
  b.book(Date.UTC(2026, 10, 1) - 1)
  b.book(NOON, {}, { organization: 'other' })
  for (let i = 0; i < 150; i++) b.book(NOON + i, { cost: 1 }, { key_id: 'key_2' })
  await b.store.ledger.flush()
  const run = await b.ask('', `month=${MONTH}`)
  assert.equal(run.status, 200)
  assert.equal(run.headers.get('content-type'), 'application/x-ndjson')
  const [head, ...rest] = linesOf(run.body)
  const end = rest.pop()
  assert.deepEqual(
    { ...head, made_at: '' },
    { object: 'statement', version: 1, organization: 'acme', key: null, month: MONTH, made_at: '' },
  )
  assert.equal(head.made_at, new Date(b.clock.now()).toISOString())
  assert.deepEqual(
    rest.map(({ n }) => n),
    Array.from({ length: 152 }, (_, i) => i + 1),
  )
  assert.deepEqual([rest[0].receipt.request_id, rest[151].receipt.request_id], [first, last])
  const { chain, signature, ...totals } = end
  assert.deepEqual(totals, {
    object: 'statement_end',
    receipts: 152,
    input_tokens: 152 * 120,
    output_tokens: 152 * 30,
    cost_nano_usd: 162,
  })
  assert.equal(chain, rest[151].chain)
  for (const object of [end, ...rest.map(({ receipt }) => receipt)]) assert.equal(await faultOf(object, b.keys()), null)
  // A receipt of the statement is the receipt that is answered alone.
  assert.deepEqual((await b.ask(first)).json, rest[0].receipt)
  const own = linesOf((await b.ask('', `month=${MONTH}`, only('key_2'))).body)
  assert.deepEqual([own[0].key, own.length], ['key_2', 152])
  const none = linesOf((await b.ask('', 'month=2020-02')).body)
  assert.deepEqual([none.length, none[1].receipts], [2, 0])
})

test('a question that is wrong names what to ask', async () => {
  const b = await bench()
  for (const [query, code, message] of [
    ['', 'missing_required_parameter', /Name the month/],
    ['month=2026-13', 'invalid_value', /write a UTC month such as 2026-11/],
    ['month=november', 'invalid_value', /november/],
    [`month=${MONTH}&key=x`, 'unknown_parameter', /There is no parameter "key" here; there is month/],
  ] as const) {
    const { status, json } = await b.ask('', query)
    assert.deepEqual([status, json.error.code], [400, code])
    assert.match(json.error.message, message)
  }
})

test('a statement is made at the pace at which its client reads, and is given up with it', async () => {
  const b = await bench()
  for (let i = 0; i < 300; i++) b.book(NOON + i)
  await b.store.ledger.flush()
  let read = 0
  const pages = new Proxy(b.store, {
    get: (of, name) =>
      name !== 'statement'
        ? Reflect.get(of, name)
        : async function* (filter: Parameters<Store['statement']>[0]) {
            for await (const page of of.statement(filter))
              for (let at = 0; at < page.length; at += 50) {
                read++
                yield page.slice(at, at + 50)
              }
          },
  })
  const request = new MemoryIncoming({ method: 'GET', path: '/v1/receipts', query: `month=${MONTH}` })
  request.fast = false
  const asked = b.ask('', `month=${MONTH}`, undefined, pages, { request })
  await eventually(() => request.sent !== '')
  for (let i = 0; i < 20; i++) await new Promise(setImmediate)
  assert.equal(read, 1, 'the next page waits for the client')
  request.abort()
  const { settlement } = await asked
  assert.equal(settlement.outcome, 'client_gone')
  assert.ok(read <= 2)
  // The place in the gate is free again.
  assert.equal((await b.ask('', `month=${MONTH}`)).status, 200)
})

test('what one organization asks at once is made one after the other; another one does not wait', async () => {
  const b = await bench()
  const started: string[] = []
  const releases: (() => void)[] = []
  const slow = new Proxy(b.store, {
    get: (of, name) =>
      name !== 'row'
        ? Reflect.get(of, name)
        : async (org: string) => {
            started.push(org)
            await new Promise<void>(resolve => releases.push(resolve))
            return null
          },
  })
  const old = `req_0${'0'.repeat(23)}`
  const all = ['acme', 'acme', 'acme', 'other'].map(org => b.ask(old, '', only('k', org), slow))
  await eventually(() => started.length === 2)
  assert.deepEqual(started, ['acme', 'other'])
  while (started.length < 4 || releases.length > 0) {
    for (const release of releases.splice(0)) release()
    await new Promise(setImmediate)
  }
  for (const { status } of await Promise.all(all)) assert.equal(status, 404)
})

test('a store that does not answer is 503; one that fails in the middle cuts the statement', async () => {
  const b = await bench()
  for (let i = 0; i < 100; i++) b.book(NOON + i)
  await b.store.ledger.flush()
  const failing = (after: number) =>
    new Proxy(b.store, {
      get: (of, name) =>
        name === 'row'
          ? () => Promise.reject(new StoreUnavailable('down'))
          : name !== 'statement'
            ? Reflect.get(of, name)
            : async function* (filter: Parameters<Store['statement']>[0]) {
                for await (const page of of.statement(filter)) yield page.slice(0, after)
                throw new StoreUnavailable('down')
              },
    })
  assert.equal((await b.ask(requestId(), '', undefined, failing(0))).status, 503)
  assert.equal((await b.ask('', `month=${MONTH}`, undefined, failing(0))).status, 503)
  const request = new MemoryIncoming({ method: 'GET', path: '/v1/receipts', query: `month=${MONTH}` })
  await b.ask('', `month=${MONTH}`, undefined, failing(80), { request })
  assert.equal(request.ending, 'cut')
  assert.doesNotMatch(request.sent, /statement_end/)
})

test('gateways that would each have keys of their own do not load', () => {
  const check = (fault: string | null) => ownReceipts.check!({}, { receipts: { ...RECEIPTS, fault } } as never)
  assert.deepEqual(check(null), [])
  assert.deepEqual(check('say why'), ['say why'])
})

test('canonical JSON is that of RFC 8785', () => {
  // The example of section 3.2.3, and what sorts by code units and not by code points.
  const value = {
    '\u20ac': 'Euro Sign',
    '\r': 'Carriage Return',
    '\ufb33': 'Hebrew',
    '1': 'One',
    '\ud83d\ude00': 'Smiley',
    '\u0080': 'Control',
    '\u00f6': 'Latin',
  }
  assert.deepEqual(
    [...canonical(value).matchAll(/"(Euro Sign|Carriage Return|Hebrew|One|Smiley|Control|Latin)"/g)].map(
      found => found[1],
    ),
    ['Carriage Return', 'One', 'Control', 'Latin', 'Euro Sign', 'Smiley', 'Hebrew'],
  )
  assert.equal(
    canonical({ b: [1, { d: null, c: true }], a: 'x"\n', e: undefined }),
    '{"a":"x\\"\\n","b":[1,{"c":true,"d":null}]}',
  )
  assert.equal(receiptOf({ body_digest: '', time: 0 } as never).body_sha256, null)
})
