/** What of limits outlives the process on SQLite, and how sweeps keep up. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type TestContext, test } from 'node:test'
import { Redis } from 'ioredis'
import { StoreSlow, StoreUnavailable } from '../../core/canon/errors.ts'
import type { Cell, Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { prepare } from '../../stores/sqlite/schema.ts'
import { Tables } from '../../stores/sqlite/tables.ts'
import { WriteProbe } from '../../stores/write-probe.ts'
import { eventually } from '../eventually.ts'
import { bucket, DAY, MINUTE, options, slots, spend, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const CELLS = [bucket('o:rpd', 10, DAY), bucket('o:tpm', 6000, MINUTE, 'tokens'), slots('o:conc', 5)]

const open = async (t: TestContext, file: string, clock: ManualClock): Promise<Store> => {
  const store = await openStore(options(`sqlite:${file}`, { clock }))
  t.after(() => store.close())
  return store
}
const newFile = () => path.join(temporary(), 'gateway.db')
const take = async (store: Store, id: string, tokens: number, now: number, cells: Cell[] = CELLS) =>
  (await store.limits.admit({ org: 'acme', id, cells, amounts: [1, tokens, 1], now })).admitted
const left = async (store: Store, now: number, cells: Cell[] = CELLS) =>
  (await store.limits.peek('acme', cells, now)).map(({ remaining }) => remaining)
const levels = (file: string) => {
  const db = new DatabaseSync(file, { readOnly: true })
  const rows = db.prepare('SELECT cell, used FROM levels ORDER BY cell').all()
  db.close()
  return rows.map(row => [row['cell'], row['used']])
}
/** A copy of the files as they are: what a kill would leave. */
function killed(file: string): string {
  const copy = newFile()
  for (const end of ['', '-wal']) if (fs.existsSync(file + end)) fs.copyFileSync(file + end, copy + end)
  return copy
}

/** With SQLite every restart, the cleanest too, gave requests_per_day and tokens_per_day back whole. */
test('[LIM-1] a restart gives no quota back, and refill goes on over it', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const first = await open(t, file, clock)
  for (let i = 0; i < 4; i++) {
    assert.ok(await take(first, `r${i}`, 1000, T0))
    first.limits.settle('acme', `r${i}`, [1, 1500, 0], T0)
  }
  assert.deepEqual(await left(first, T0), [6, 0, 5])
  await first.close()
  clock.advance(10_000)
  const second = await open(t, file, clock)
  assert.deepEqual(await left(second, T0 + 10_000), [6, 1000, 5])
  await second.close()
  // Full again by the time of the third start.
  clock.advance(10 * DAY)
  assert.deepEqual(await left(await open(t, file, clock), clock.now()), [10, 6000, 5])
})

test('a kill forgets less than a second of use, and gives back what running exchanges had reserved', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const store = await open(t, file, clock)
  assert.ok(await take(store, 'done', 1000, T0))
  store.limits.settle('acme', 'done', [1, 700, 0], T0)
  assert.ok(await take(store, 'running', 2000, T0))
  clock.advance(999)
  await eventually(() => levels(file).length === 2)
  assert.deepEqual(levels(file), [
    ['o:rpd', 1],
    ['o:tpm', 700],
  ])
  const after = await open(t, killed(file), new ManualClock(T0))
  assert.deepEqual(await left(after, T0), [9, 5300, 5])
  // Its own settlement comes to nothing: there is no such reservation.
  after.limits.settle('acme', 'running', [1, 2000, 0], T0)
  assert.deepEqual(await left(after, T0), [9, 5300, 5])
})

test('what is given back is not taken again after a restart, and rows of full buckets go', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const store = await open(t, file, clock)
  assert.ok(await take(store, 'a', 3000, T0))
  store.limits.settle('acme', 'a', [1, 3000, 0], T0)
  clock.advance(999)
  await eventually(() => levels(file).length === 2)
  // Both are full again, and leave memory and the table.
  clock.advance(2 * DAY)
  await eventually(() => {
    clock.advance(1000)
    return levels(file).length === 0
  })
  assert.deepEqual(await left(store, clock.now()), [10, 6000, 5])
})

test('only what changed is written, in slices, and nothing while nothing changes', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const store = await open(t, file, clock)
  for (let i = 0; i < 2500; i++)
    await store.limits.admit({ org: `org${i}`, id: 'a', cells: CELLS, amounts: [1, 1, 1], now: T0 })
  for (let i = 0; i < 2500; i++) store.limits.settle(`org${i}`, 'a', [1, 1, 0], T0)
  clock.advance(999)
  await eventually(() => levels(file).length === 5000)
  const limits = store.limits as import('../../stores/limits/memory.ts').MemoryLimits
  await eventually(() => limits.changes === 0)
  await store.limits.peek('org7', CELLS, clock.now())
  const refused = await store.limits.admit({
    org: 'org7',
    id: 'b',
    cells: CELLS,
    amounts: [11, 1, 1],
    now: clock.now(),
  })
  assert.equal(refused.admitted, false)
  assert.equal(limits.changes, 0)
})

/** One sweep deleted 5,000 rows of a table every 30 s: above 167 a second expired rows piled up. */
test('a sweep goes on in slices until nothing that has expired is left', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const store = await open(t, file, clock)
  const value = Buffer.from('x')
  // In batches, since a busy machine may need longer for all of them than a record waits for its commit.
  for (let batch = 0; batch < 12; batch++)
    await Promise.all(
      Array.from({ length: 1000 }, (_, i) =>
        store.records.put('acme', 'response', `r${batch * 1000 + i}`, value, 1000, T0),
      ),
    )
  await store.records.put('acme', 'response', 'kept', value, DAY, T0)
  const count = () => {
    const db = new DatabaseSync(file, { readOnly: true })
    const { rows } = db.prepare('SELECT count(*) AS rows FROM records').get() as { rows: number }
    db.close()
    return rows
  }
  assert.equal(count(), 12_001)
  clock.advance(30_000)
  await eventually(() => count() === 1)
  assert.ok(await store.records.get('acme', 'response', 'kept', clock.now()))
})

test('one slice of a sweep deletes a bounded number of rows of each table, and says that there is more', () => {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:')
  const tables = new Tables(db, {
    idempotencyBytes: 1e6,
    recordBytes: 1e6,
    valueBytes: 1e6,
    share: 1,
    ledgerKeep: 1000,
  })
  const count = (table: string) => db.prepare(`SELECT count(*) AS rows FROM ${table}`).get()!['rows'] as number
  const levelRows = Array.from({ length: 700 }, (_, i) => [`org${i}`, 'o:rpd', 1, 0, T0, T0, 10, DAY])
  tables.apply([{ op: 'levels', levels: JSON.stringify(levelRows), position: 1 }])
  const insert = db.prepare(
    "INSERT INTO spend (organization, cell, period, number, amount) VALUES (?, 'o:day', 'day', ?, 1)",
  )
  for (let i = 0; i < 1200; i++) insert.run(`org${i}`, 3)
  insert.run('acme', Math.floor(T0 / DAY))
  const slices: [boolean, number, number][] = []
  for (let more = true; more; ) {
    more = tables.apply([{ op: 'sweep', now: T0 + 1 }])
    slices.push([more, count('levels'), count('spend')])
  }
  assert.deepEqual(slices, [
    [true, 200, 701],
    [true, 0, 201],
    [false, 0, 1],
  ])
  assert.equal(tables.apply([{ op: 'sweep', now: T0 + 1 }]), false)
})

test('spend of the period is there after a restart, for a cell that had no cap before', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const first = await open(t, file, clock)
  const uncapped = [spend('o:day', Number.POSITIVE_INFINITY)]
  const capped = [spend('o:day', 1000)]
  first.ledger.intent({
    request_id: 'a',
    time: T0,
    organization: 'acme',
    key_id: 'k',
    surface: 'chat',
    model: 'm',
    price_book: '1',
    billing: 'standard',
    input_tokens: 1,
  })
  await first.limits.admit({ org: 'acme', id: 'a', cells: uncapped, amounts: [900], now: T0 })
  first.limits.settle('acme', 'a', [400], T0)
  first.ledger.outcome({
    request_id: 'a',
    provider: 'p',
    outcome: 'completed',
    usage: { input: 1, cached: 0, cacheWrite: 0, output: 1, reasoning: 0, searches: 0, estimated: false },
    cost: 400,
    duration_ms: 1,
    ttfb_ms: 1,
  })
  assert.deepEqual(await left(first, T0, capped), [600])
  await first.close()
  assert.deepEqual(await left(await open(t, file, clock), T0, capped), [600])
})

/** A ping is answered by a Redis that is full, and nothing was asked of a disk: /readyz said ready. */
test('readiness tries a write, once a second however many ask, and says why it failed', async () => {
  const clock = new ManualClock(T0)
  let writes = 0
  let fault: Error | undefined
  const probe = new WriteProbe(clock, async () => {
    writes++
    if (fault) throw fault
  })
  const ask = () => Promise.all([probe.check(), probe.check(), probe.check()])
  assert.deepEqual(await ask(), [undefined, undefined, undefined])
  fault = new Error('no space')
  clock.advance(999)
  assert.deepEqual([await probe.check(), writes], [undefined, 1])
  clock.advance(1)
  const full = { reason: 'no space', slow: false }
  assert.deepEqual(await ask(), [full, full, full])
  fault = undefined
  clock.advance(1000)
  assert.deepEqual([await probe.check(), writes], [undefined, 3])
})

/** A commit of seconds made /readyz wait for as long, though a slow disk refuses nobody. */
test('readiness does not wait for a slow write; one of five seconds counts as failed', async () => {
  const clock = new ManualClock(T0)
  let end: (() => void) | undefined
  const probe = new WriteProbe(clock, () => new Promise<void>(resolve => (end = resolve)), 1)
  assert.equal(await probe.check(), undefined)
  clock.advance(5001)
  assert.deepEqual(await probe.check(), { reason: 'a write has not ended within 5 s', slow: false })
  end!()
  assert.equal(await probe.check(), undefined)
})

test('an engine whose writes are late is slow for five seconds; one that refuses them is not', async () => {
  const clock = new ManualClock(T0)
  let fault: Error | undefined = new StoreSlow('late')
  const probe = new WriteProbe(clock, async () => {
    if (fault) throw fault
  })
  const slow = async () => (await probe.check())?.slow
  assert.equal(await slow(), true)
  clock.advance(5000)
  assert.equal(await slow(), true)
  clock.advance(1)
  assert.equal(await slow(), false)
  fault = undefined
  clock.advance(1000)
  assert.equal(await probe.check(), undefined)
  fault = new StoreSlow('late')
  clock.advance(1000)
  assert.equal(await slow(), true, 'counted from the first of its own row')
  fault = new StoreUnavailable('no connection')
  clock.advance(1000)
  assert.equal(await slow(), false)
})

test('sqlite: a database that takes no write is not ready', async t => {
  const file = newFile()
  const clock = new ManualClock(T0)
  const store = await open(t, file, clock)
  assert.deepEqual(await store.ready(), { ok: true })
  const db = new DatabaseSync(file)
  db.exec("CREATE TRIGGER full BEFORE INSERT ON meta BEGIN SELECT raise(ABORT, 'no space'); END")
  db.close()
  clock.advance(1000)
  const state = await store.ready()
  assert.equal(state.ok, false)
  assert.match(state.reason!, /no space/)
})

test('redis: a server that is full is not ready, though it answers a ping', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const clock = new ManualClock(T0)
  const store = await openStore(options(server.url, { clock, dataDir: temporary() }))
  t.after(() => store.close())
  assert.deepEqual(await store.ready(), { ok: true })
  const redis = new Redis(server.url)
  t.after(() => redis.disconnect())
  await redis.config('SET', 'maxmemory', '1')
  clock.advance(1000)
  const state = await store.ready()
  assert.equal(state.ok, false)
  assert.match(state.reason!, /OOM/)
  await redis.config('SET', 'maxmemory', '0')
})
