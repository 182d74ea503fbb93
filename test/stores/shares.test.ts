/**
 * The sums behind the shares of organizations are right whatever is stored, replaced, touched, evicted or has ended, on
 * both engines; what an organization below its fair part has is never evicted; and releases without shares may write.
 */
import assert from 'node:assert/strict'
import { DatabaseSync } from 'node:sqlite'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { Redis } from 'ioredis'
import { ManualClock, systemClock } from '../../core/tools/clock.ts'
import { markBytes } from '../../stores/marks.ts'
import { openRedisStore, type RedisStore } from '../../stores/redis/store.ts'
import { prepare, STEPS } from '../../stores/sqlite/schema.ts'
import { Tables } from '../../stores/sqlite/tables.ts'
import { eventually } from '../eventually.ts'
import { DAY, redisOptions, T0 } from './kit.ts'
import { RedisServer, skipWithoutRedis as skip } from './redis-server.ts'

const ORGS = ['a', 'b', 'c', 'd']
const TOTAL = 1000
const SHARE = 0.5
/** Of idempotency keys, each of which counts as a mark at least. */
const IDEMPOTENCY_TOTAL = 20_000

const step = fc.record({
  org: fc.constantFrom(...ORGS),
  what: fc.constantFrom('response', 'continuation', 'value', 'reply', 'no reply', 'touch'),
  id: fc.integer({ min: 0, max: 12 }),
  size: fc.integer({ min: 1, max: 200 }),
})
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

/** What was stored and not replaced; the fuller an organization was at most, the less it may rely on. */
class Expected {
  readonly #total: number
  readonly sizes = new Map<string, Map<string, number>>()
  readonly most = new Map<string, number>()
  constructor(total: number) {
    this.#total = total
  }
  put(org: string, id: string, size: number): void {
    const own = this.sizes.get(org) ?? new Map<string, number>()
    this.sizes.set(org, own.set(id, size))
    const sum = [...own.values()].reduce((a, b) => a + b, 0)
    this.most.set(org, Math.max(this.most.get(org) ?? 0, sum))
  }
  /** Organizations that were always below their fair part have everything, whatever the others do. */
  check(found: ReadonlyMap<string, number>): void {
    for (const [org, own] of this.sizes) {
      if (this.most.get(org)! > this.#total / ORGS.length) continue
      assert.equal(
        found.get(org) ?? 0,
        [...own.values()].reduce((a, b) => a + b, 0),
        org,
      )
    }
    const all = [...found.values()]
    for (const bytes of all) assert.ok(bytes <= this.#total * SHARE, `${bytes}`)
    const sum = all.reduce((a, b) => a + b, 0)
    assert.ok(sum <= this.#total, `${sum}`)
  }
}

test('sqlite: sums and bounds after any writes, and after sweeps', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), steps => {
      const db = new DatabaseSync(':memory:')
      prepare(db, ':memory:')
      const bounds = { idempotencyBytes: IDEMPOTENCY_TOTAL, recordBytes: TOTAL, valueBytes: TOTAL }
      const tables = new Tables(db, { ...bounds, share: SHARE, ledgerKeep: null })
      const expected = {
        records: new Expected(TOTAL),
        idempotency: new Expected(IDEMPOTENCY_TOTAL),
        plugin_values: new Expected(TOTAL),
      }
      for (const { org, what, id, size } of steps) {
        const common = { organization: org, expires: T0 + DAY }
        if (what === 'touch')
          tables.apply([
            { op: 'touch', table: 'records', ...common, kind: 'response', ids: [`r${id}`], expires: T0 + 2 * DAY },
          ])
        else if (what === 'reply' || what === 'no reply') {
          const reply =
            what === 'reply'
              ? { status: 200, headers: '[]', body: Buffer.alloc(10 * size), whole: true, asked: null }
              : null
          const row = { ...common, key: `k${id}`, fingerprint: 'f', requestId: 'r', reply }
          tables.apply([{ op: 'idempotency', row }])
          expected.idempotency.put(org, `k${id}`, markBytes(row.key) + (reply ? 10 * size + 2 : 0))
        } else {
          const table = what === 'value' ? 'plugin_values' : 'records'
          tables.apply([{ op: 'record', table, ...common, kind: what, id: `r${id}`, value: Buffer.alloc(size) }])
          expected[table].put(org, `${what} r${id}`, size)
        }
        const marks = 'SELECT organization, sum(size) AS bytes FROM idempotency WHERE status IS NULL GROUP BY 1'
        const counted = "SELECT organization, bytes FROM shares WHERE kind = 'marks' ORDER BY 1"
        assert.deepEqual(db.prepare(counted).all(), db.prepare(marks).all())
        for (const table of ['records', 'idempotency', 'plugin_values'] as const) {
          const found = sums(db, table)
          expected[table].check(found)
          const shares = db.prepare("SELECT organization, bytes FROM shares WHERE kind = ? AND organization <> ''")
          assert.deepEqual(new Map(shares.all(table).map(row => [row['organization'], row['bytes']])), found)
          assert.equal(
            tables.kept()[table].bytes,
            [...found.values()].reduce((a, b) => a + b, 0),
          )
        }
      }
      tables.apply([{ op: 'sweep', now: T0 + 3 * DAY }])
      for (const { bytes } of Object.values(tables.kept())) assert.equal(bytes, 0)
      assert.equal(db.prepare("SELECT count(*) AS n FROM shares WHERE organization <> ''").get()!['n'], 0)
    }),
    { numRuns: 60 },
  )
})

const sums = (db: DatabaseSync, table: string) => {
  const rows = db.prepare(`SELECT organization, sum(size) AS bytes FROM ${table} WHERE size > 0 GROUP BY 1`).all()
  return new Map(rows.map(row => [row['organization'] as string, row['bytes'] as number]))
}

test('sqlite: what is there already is counted, and so is what a release without shares writes', () => {
  const db = new DatabaseSync(':memory:')
  const put = (org: string, id: string, size: number) =>
    db
      .prepare(
        'INSERT OR REPLACE INTO records (organization, kind, id, value, size, expires) VALUES (?, ?, ?, ?, ?, ?)',
      )
      .run(org, 'response', id, Buffer.alloc(size), size, T0 + DAY)
  prepare(db, ':memory:', STEPS.slice(0, 2))
  for (let i = 0; i < 10; i++) put('a', `r${i}`, 100)
  prepare(db, ':memory:')
  const tables = new Tables(db, {
    idempotencyBytes: TOTAL,
    recordBytes: TOTAL,
    valueBytes: TOTAL,
    share: SHARE,
    ledgerKeep: null,
  })
  assert.equal(tables.kept().records.bytes, 1000)
  put('a', 'r0', 50)
  put('b', 'r0', 30)
  db.prepare("DELETE FROM records WHERE organization = 'a' AND id = 'r1'").run()
  assert.equal(tables.kept().records.bytes, 880)
  assert.deepEqual(
    db
      .prepare("SELECT organization, bytes FROM shares WHERE kind = 'records' ORDER BY 1")
      .all()
      .map(row => Object.values(row)),
    [
      ['', 880],
      ['a', 850],
      ['b', 30],
    ],
  )
  // The bounds of this start are smaller: the first sweep goes on until they are kept.
  while (tables.apply([{ op: 'sweep', now: T0 }])) {}
  assert.deepEqual(
    [...sums(db, 'records')],
    [
      ['a', 450],
      ['b', 30],
    ],
  )
})

test('sqlite: one write evicts a bounded number of rows, and sweeps the rest', () => {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:')
  const large = new Tables(db, { idempotencyBytes: 1e6, recordBytes: 1e6, valueBytes: 1e6, share: 1, ledgerKeep: null })
  const put = (id: number) =>
    ({
      op: 'record',
      table: 'records',
      organization: 'a',
      kind: 'response',
      id: `r${id}`,
      value: Buffer.alloc(10),
      expires: T0 + DAY,
    }) as const
  large.apply(Array.from({ length: 1800 }, (_, i) => put(i)))
  const small = new Tables(db, {
    idempotencyBytes: 1e6,
    recordBytes: 1000,
    valueBytes: 1000,
    share: 1,
    ledgerKeep: null,
  })
  const count = () => db.prepare('SELECT count(*) AS n FROM records').get()!['n']
  small.apply([put(1800)])
  assert.equal(count(), 1301)
  assert.equal(small.apply([{ op: 'sweep', now: T0 }]), true)
  assert.equal(count(), 801)
  while (small.apply([{ op: 'sweep', now: T0 }])) {}
  assert.equal(count(), 100)
  assert.ok(db.prepare("SELECT 1 FROM records WHERE id = 'r1800'").get())
})

// ---- redis ----------------------------------------------------------------------------------------------------------

let server: RedisServer
before(async () => {
  if (!skip) server = await RedisServer.start(['--databases', '100'])
})
after(() => server?.stop())

const openOn = (url: string, more: { every?: number } = {}): Promise<RedisStore> =>
  openRedisStore(
    redisOptions(url, {
      timeout: 30_000,
      clock: more.every === undefined ? new ManualClock(T0) : systemClock,
      maxTotal: IDEMPOTENCY_TOTAL,
      maxRecords: TOTAL,
      share: SHARE,
      leaseTimes: { ttl: 600_000, every: more.every ?? 300_000 },
    }),
  )

async function inRedis(redis: Redis): Promise<{ records: Map<string, number>; sums: Map<string, number> }> {
  const records = new Map<string, number>()
  const sums = new Map<string, number>()
  for (const org of ORGS) {
    let bytes = 0
    for (const kind of ['response', 'continuation'])
      for (const key of await redis.keys(`sluice:{${org}}:${kind}:*`)) bytes += await redis.strlen(key)
    if (bytes) records.set(org, bytes)
    const sum = Number(await redis.hget(`sluice:{${org}}:records`, 'bytes'))
    if (sum) sums.set(org, sum)
  }
  return { records, sums }
}

test('redis: sums and bounds after any writes', { skip }, async t => {
  const redis = new Redis(server.url.replace(/\/0$/, '/1'))
  const store = await openOn(server.url.replace(/\/0$/, '/1'))
  t.after(async () => {
    await store.close()
    redis.disconnect()
  })
  const run = async (steps: Step[]) => {
    for (const key of await redis.keys('*'))
      if (/\}:(response|continuation|records)|shares/.test(key)) await redis.del(key)
    const expected = new Expected(TOTAL)
    for (const { org, what, id, size } of steps) {
      if (what === 'touch') await store.records.touch(org, 'response', [`r${id}`], 2 * DAY)
      else if (what === 'response' || what === 'continuation') {
        await store.records.put(org, what, `r${id}`, Buffer.alloc(size), what === 'response' ? DAY : 3 * DAY)
        expected.put(org, `${what} r${id}`, size)
        await store.records.shares.report()
      }
    }
    await store.records.shares.report()
    const { records, sums } = await inRedis(redis)
    expected.check(records)
    assert.deepEqual(sums, records)
    const all = [...records.values()].reduce((a, b) => a + b, 0)
    assert.equal(Number(await redis.get('{sluice:shares}:records:bytes')), all)
    if (records.size) assert.equal(store.stats().kept.records.bytes, all)
  }
  await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 60 }), run), { numRuns: 25 })
})

test('redis: what has ended is forgotten though nobody writes; what was touched is not', { skip }, async t => {
  const url = server.url.replace(/\/0$/, '/2')
  const redis = new Redis(url)
  const stores = [await openOn(url, { every: 50 }), await openOn(url, { every: 50 })]
  t.after(async () => {
    for (const store of stores) await store.close()
    redis.disconnect()
  })
  const [store] = stores as [RedisStore]
  // Touched at once, and with some seconds left: a machine that stands still must not end it before.
  await store.records.put('a', 'response', 'r2', Buffer.alloc(100), 5000)
  await store.records.touch('a', 'response', ['r2'], DAY)
  for (const i of [0, 1, 3]) await store.records.put('a', 'response', `r${i}`, Buffer.alloc(100), 5000)
  await store.records.put('b', 'response', 'r', Buffer.alloc(100), 5000)
  await store.idempotency.begin('a', 'k', 'f', 'r')
  const record = { requestId: 'r', status: 200, headers: [], body: Buffer.alloc(98), whole: true }
  await store.idempotency.finish('a', 'k', record, 100)
  for (const { stats } of [stores[0]!.records.shares, stores[1]!.records.shares])
    await eventually(() => stats.bytes === 100)
  await eventually(() => stores[1]!.stats().kept.idempotency.bytes === 0)
  assert.equal(await redis.hget('sluice:{a}:records', 'bytes'), '100')
  assert.deepEqual(await redis.zrange('{sluice:shares}:records', '0', '-1'), ['a'])
  // It has its new end: it is not looked at again for a day.
  const [seconds] = await redis.time()
  assert.ok(Number(await redis.zscore('{sluice:shares}:records:due', 'a')) > Number(seconds) * 1000 + DAY / 2)
})

/** Sums of one organization that two processes report may arrive in the wrong order. */
test('redis: two processes at once keep the bounds, and agree on the sums in the end', { skip }, async t => {
  const url = server.url.replace(/\/0$/, '/4')
  const redis = new Redis(url)
  const stores = [await openOn(url, { every: 50 }), await openOn(url, { every: 50 })]
  t.after(async () => {
    for (const store of stores) await store.close()
    redis.disconnect()
  })
  for (let round = 0; round < 20; round++)
    await Promise.all(
      stores.flatMap((store, which) =>
        ORGS.map((org, i) =>
          store.records.put(org, 'response', `r${which}-${round}`, Buffer.alloc(10 + 30 * i + round), DAY),
        ),
      ),
    )
  await eventually(
    async () => {
      const { records, sums } = await inRedis(redis)
      const reported = await redis.zrange('{sluice:shares}:records', '0', '-1', 'WITHSCORES')
      const all = [...records.values()].reduce((a, b) => a + b, 0)
      return (
        all <= TOTAL &&
        // The largest gave way, and nobody all.
        records.size === ORGS.length &&
        ORGS.every(org => {
          const at = reported.indexOf(org)
          return records.get(org)! <= TOTAL * SHARE && Number(reported[at + 1]) === records.get(org)
        }) &&
        ORGS.every(org => sums.get(org) === records.get(org)) &&
        stores.every(store => store.stats().kept.records.bytes === all)
      )
    },
    async () => [await inRedis(redis), stores.map(store => store.stats().kept.records)],
  )
})

test('redis: a process without shares beside it: its records are read, and its replies count', { skip }, async t => {
  const url = server.url.replace(/\/0$/, '/3')
  const redis = new Redis(url)
  const store = await openOn(url)
  t.after(async () => {
    await store.close()
    redis.disconnect()
  })
  // As the release before writes them.
  await redis.set('sluice:{a}:response:old', Buffer.alloc(400), 'PX', DAY)
  const soon = Date.now() + DAY
  await redis.hset('sluice:{a}:idem:old', {
    fingerprint: 'f',
    request: 'r',
    state: 'done',
    status: 200,
    headers: '[]',
    body: 'x'.repeat(998),
    whole: 1,
  })
  await redis.pexpire('sluice:{a}:idem:old', DAY)
  await redis.zadd('sluice:{a}:idem', soon, '1000 old')
  await redis.incrby('sluice:{a}:idem-bytes', 1000)
  assert.equal((await store.records.get('a', 'response', 'old'))!.length, 400)
  await store.records.put('a', 'response', 'old', Buffer.alloc(100), DAY)
  assert.equal(await redis.hget('sluice:{a}:records', 'bytes'), '100')
  const record = { requestId: 'r', status: 200, headers: [], body: Buffer.alloc(8900), whole: true }
  await store.idempotency.begin('a', 'k', 'f', 'r')
  await store.idempotency.finish('a', 'k', record, 2 * DAY)
  assert.equal((await store.idempotency.begin('a', 'old', 'f', 'again')).state, 'not_kept')
  assert.equal((await store.idempotency.begin('a', 'k', 'f', 'again')).state, 'replay')
  const reply = markBytes('k') + '[]'.length + 8900
  assert.equal(await redis.get('sluice:{a}:idem-bytes'), String(reply + markBytes('old')))
})
