/** The ledger of a local store: rows leave the memory of its server for files, and readers miss none. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { type TestContext, test } from 'node:test'
import type { LedgerRow, Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { LocalServer } from '../../stores/local.ts'
import { moveStore } from '../../stores/move/move.ts'
import { RedisClient } from '../../stores/redis/client.ts'
import { drainOf } from '../../stores/redis/drained.ts'
import { STREAM } from '../../stores/redis/ledger.ts'
import { FileTarget } from '../../stores/ship/files.ts'
import { Follower, openSource, shipAll } from '../../stores/ship/ship.ts'
import { eventually } from '../eventually.ts'
import { DAY, intent, MINUTE, options, outcome, recordingLog, T0, temporary, usedBy, usedIn } from './kit.ts'
import { skipWithoutRedis as skip } from './redis-server.ts'

const TAIL = 200
/** XTRIM removes whole nodes of the stream, which have this many entries. */
const NODE = 100
const log = recordingLog()

async function local(t: TestContext, maxMemory: number | null = null) {
  const url = `local:${temporary()}`
  const server = await LocalServer.start({ url, maxMemory, tell() {} })
  const store = await openStore(options(url, { ledgerKeep: null, ...(maxMemory && { maxMemory }) }))
  const client = new RedisClient({ url, timeout: 10_000, log })
  await client.connect()
  let closed = false
  const close = async () => {
    if (closed) return
    closed = true
    client.disconnect()
    await store.close()
    await server.stop()
  }
  t.after(close)
  const length = () => client.call(client.redis.xlen(STREAM))
  return { url, store, client, length, close, folder: drainOf(url)! }
}

/** Books rows of four hours and two days. */
async function book(store: Store, count: number, from = 0): Promise<void> {
  for (let i = from; i < from + count; i++) {
    const time = T0 + (i % 4) * 25 * MINUTE + (i % 2) * DAY
    store.ledger.intent(intent(`r${i}`, { time, organization: i % 3 === 0 ? 'acme' : 'b"r\nace' }))
    store.ledger.outcome(outcome(`r${i}`, { ...(i % 5 === 0 && { ttfb_ms: null }), cost: 1000 + i }))
  }
  await store.ledger.flush()
}

async function drain(url: string, folder: string): Promise<void> {
  const source = await openSource(url, 'test')
  try {
    await shipAll(source, new FileTarget(folder), { name: `file:${folder}`, log, tail: TAIL }, 50)
  } finally {
    await source.close()
  }
}

const byId = (rows: LedgerRow[]) => rows.toSorted((a, b) => (a.request_id < b.request_id ? -1 : 1))

test('rows that are in the files leave the stream but for its last ones; rows and sums stay what they were', {
  skip,
}, async t => {
  const { url, store, length, folder } = await local(t)
  await book(store, 1000)
  assert.equal(await length(), 1000)
  const rows = byId(await store.ledger.query({}))
  const sums = await usedIn(store)
  await drain(url, folder)
  const left = await length()
  assert.ok(left >= TAIL && left < TAIL + NODE, `${left} rows in the stream`)
  assert.deepEqual(byId(await store.ledger.query({})), rows)
  assert.deepEqual(await usedIn(store), sums)
  // Where a range begins or ends within an hour, rows are read.
  const [since, until] = [T0 + 20 * MINUTE, T0 + DAY + 30 * MINUTE]
  const within = rows.filter(({ time }) => time >= since && time < until)
  assert.ok(within.length > 300 && within.length < 900)
  assert.deepEqual(await usedIn(store, { since, until }), usedBy(within))
  assert.deepEqual(
    byId(await store.ledger.query({ since, until, org: 'acme' })),
    within.filter(({ organization }) => organization === 'acme'),
  )
  // A statement, and the row of one request, are of the stream and the files.
  for (const [org, count] of [
    ['acme', 334],
    ['b"r\nace', 666],
  ] as const) {
    const found: LedgerRow[] = []
    for await (const page of store.statement({ org, since: T0, until: T0 + 2 * DAY })) found.push(...page)
    assert.equal(found.length, count)
    assert.deepEqual(
      byId(found),
      rows.filter(({ organization }) => organization === org),
    )
  }
  for (const i of [0, 3, 333, 600, 999]) {
    const { time, organization, request_id } = rows.find(row => row.request_id === `r${i}`)!
    assert.equal((await store.row(organization, request_id, time))?.request_id, request_id)
    assert.equal(await store.row('other', request_id, time), null)
  }
  assert.equal(await store.row('acme', 'r1000', T0), null)
  // What comes later is drained, too, and what the files have twice over stays single.
  await book(store, 500, 1000)
  await drain(url, folder)
  await drain(url, folder)
  assert.ok((await length()) < TAIL + NODE)
  assert.equal(new Set((await store.ledger.query({})).map(row => row.request_id)).size, 1500)
  assert.equal((await store.ledger.query({})).length, 1500)
})

test('a batch that a crash has cut is not read, and comes with the next one', { skip }, async t => {
  const { url, store, folder } = await local(t)
  await book(store, 300)
  await drain(url, folder)
  const [name] = fs.readdirSync(folder).filter(name => name.endsWith('.ndjson'))
  fs.appendFileSync(path.join(folder, name!), '{"request_id":"cut","time":')
  await book(store, 300, 300)
  assert.equal((await store.ledger.query({})).length, 600)
  await drain(url, folder)
  assert.equal((await store.ledger.query({})).length, 600)
})

test('a store that its ledger has filled is drained, and takes rows again', { skip }, async t => {
  const { url, store, client, length, folder } = await local(t, 8 << 20)
  await book(store, 100)
  await drain(url, folder)
  await book(store, 1900, 100)
  const fill = (i: number, bytes: number) => client.call(client.redis.set(`fill:${i}`, 'x'.repeat(bytes)))
  for (const bytes of [10_000, 100])
    await assert.rejects(async () => {
      for (let i = 0; i < 2000; i++) await fill(bytes + i, bytes)
    }, /maxmemory/)
  await drain(url, folder)
  assert.ok((await length()) < TAIL + NODE)
  await book(store, 10, 2000)
  assert.equal((await store.ledger.query({})).length, 2010)
})

test('files of days that are older than ledger.keep are removed', { skip }, async t => {
  const { url, store, folder } = await local(t)
  await book(store, 500)
  await drain(url, folder)
  const days = () => fs.readdirSync(folder).filter(name => name.endsWith('.ndjson'))
  const [first, second] = days().sort() as [string, string]
  const target = new FileTarget(folder)
  await target.expire(Date.parse(second.slice(0, 10)) - 1)
  assert.deepEqual(days().sort(), [first, second])
  await target.expire(Date.parse(second.slice(0, 10)))
  assert.deepEqual(days(), [second])
  await book(store, 10, 500)
  await drain(url, folder)
  assert.ok((await store.ledger.query({})).length >= 255)
})

test('a move takes the rows of the files, too, the oldest first', { skip }, async t => {
  const { url, store, folder, close } = await local(t)
  await book(store, 600)
  await drain(url, folder)
  const rows = byId(await store.ledger.query({}))
  const sums = await usedIn(store)
  await close()
  const to = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const { carried } = await moveStore({ from: url, to, maxMemory: null, log, tell() {}, progress() {} })
  assert.equal(carried!.ledger.count, 600)
  const moved = await openStore(options(to))
  t.after(() => moved.close())
  assert.deepEqual(byId(await moved.ledger.query({})), rows)
  assert.deepEqual(await usedIn(moved), sums)
  await assert.rejects(
    moveStore({ from: to, to: url, maxMemory: null, log, tell() {}, progress() {} }),
    /a gateway uses|was moved to/,
  )
})

test('a follower that drains trims the stream, and removes the files of old days', { skip }, async t => {
  const { url, store, length, folder } = await local(t)
  await book(store, 1000)
  const follow = (keep: number | null, now: number) =>
    new Follower({
      ...{ store: url, to: `file:${folder}`, interval: 1000, holder: 'test', drain: { tail: TAIL, keep } },
      clock: { ...systemClock, now: () => now },
      log,
      onStatus() {},
    })
  const first = follow(null, T0)
  await eventually(async () => (await length()) < TAIL + NODE)
  await first.stop()
  assert.equal((await store.ledger.query({})).length, 1000)
  const files = () => fs.readdirSync(folder).filter(name => name.endsWith('.ndjson')).length
  assert.equal(files(), 2)
  const second = follow(DAY, T0 + 10 * DAY)
  await eventually(() => files() === 0)
  await second.stop()
})
