/** Sums of the ledger by hour: whatever was booked in whatever way, they say what a scan of the rows says. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type TestContext, test } from 'node:test'
import fc from 'fast-check'
import { Redis } from 'ioredis'
import {
  type LedgerRow,
  RECENT_ROWS,
  type RowsQuestion,
  type UsageFilter,
  type UsageSum,
} from '../../core/ports/store.ts'
import { GROUPS, type Group, sumBy } from '../../core/ports/usage-groups.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import type { Entry } from '../../stores/ledger.ts'
import { RedisClient } from '../../stores/redis/client.ts'
import {
  RedisLedgerSink,
  recentRows,
  rowsOf as redisRows,
  STREAM,
  scanStream,
  sentKey,
} from '../../stores/redis/ledger.ts'
import { scanUsage as scanRedisUsage } from '../../stores/redis/usage.ts'
import { intentJson, ROW_COLUMNS, type RowValues, rowJson } from '../../stores/rows.ts'
import { scanLedger, scanUsage, rowsOf as sqliteRows } from '../../stores/sqlite/ledger.ts'
import { prepare, STEPS } from '../../stores/sqlite/schema.ts'
import { packEntries, Tables } from '../../stores/sqlite/tables.ts'
import { NOT_TOLD, sumOf, sumsOf } from '../../stores/usage.ts'
import { eventually } from '../eventually.ts'
import { DAY, intent, options, outcome, recordingLog, T0, temporary, usedBy, usedIn } from './kit.ts'
import { RedisServer, skipWithoutRedis, startCluster } from './redis-server.ts'

const HOUR = 3_600_000

/** One row; equal seeds make equal rows, so that a row may be offered again. */
function entry(seed: number): Entry {
  const of = <T>(list: readonly T[], salt: number): T => list[Math.floor(seed / salt) % list.length]!
  const id = `r${seed}`
  const row = intent(id, {
    // Within three days around the turn of a year, some exactly on the hour.
    time: Date.UTC(2026, 11, 30) + ((seed * 7919) % 72) * HOUR + of([0, 1, HOUR - 1, 1234567], 3),
    organization: of(['acme', 'b{r}ace:2026', 'ÿ'], 1),
    key_id: of(['key_ci', 'key_2'], 5),
    model: of(['eb1-preview', '', 'eb1 %d\n'], 7).trim(),
    surface: of(['chat', 'messages'], 2),
  })
  const ended = outcome(id, {
    provider: of(['local', ''], 11),
    outcome: of(['completed', 'lost'], 13),
    cost: of([0, 1, 4_999_999_999_999], 17),
    code: of(['', 'provider_overloaded'], 19),
    usage: { input: seed, cached: seed % 3, cacheWrite: 1, output: 2, reasoning: 0, searches: 0, estimated: true },
    ...(seed % 3 > 0 && { tags: JSON.stringify({ team: `t "${seed % 4}"`, ...(seed % 5 > 2 && { user: 'ü:1 ' }) }) }),
    ...(seed % 4 > 0 && {
      provider_model: of(['sim-large', 'sim-small', ''], 3),
      ...(seed % 4 > 1 && { provider_cost: of([0, 7, 2_999_999_999_999], 5) }),
      ...(seed % 4 > 2 && { provider_input: 2 * seed, counted_input: seed, provider_output: 3, counted_output: 2 }),
    }),
  })
  return { id, kind: 'o', json: rowJson(intentJson(row), ended, undefined) }
}

const seeds = fc.array(fc.nat({ max: 400 }), { maxLength: 40 })
const edge = fc.oneof(
  fc.constant(undefined),
  fc.nat({ max: 72 }).map(hour => Date.UTC(2026, 11, 30) + hour * HOUR),
  fc.nat({ max: 72 * HOUR }).map(ms => Date.UTC(2026, 11, 30) + ms),
)
const filters = fc.record(
  {
    org: fc.constantFrom('acme', 'b{r}ace:2026', 'nobody'),
    key: fc.constantFrom('key_ci', 'key_2'),
    model: fc.constantFrom('eb1-preview', ''),
    since: edge,
    until: edge,
    tag: fc.constantFrom(undefined, 'team', 'user', 'none'),
  },
  { requiredKeys: [] },
) as fc.Arbitrary<UsageFilter>

async function all<T>(pages: AsyncIterable<T[]>): Promise<T[]> {
  const list: T[] = []
  for await (const page of pages) list.push(...page)
  return list
}
const agrees = async (
  { tag }: UsageFilter,
  sums: AsyncIterable<UsageSum[]>,
  rows: AsyncIterable<LedgerRow[]>,
): Promise<void> => {
  const scanned = await all(rows)
  if (tag === undefined) return assert.deepEqual(usedBy(await all(sums)), usedBy(scanned))
  const tagged = scanned.flatMap(row => {
    const value = row.tags ? JSON.parse(row.tags)[tag] : undefined
    return value === undefined ? [] : [{ ...sumOf(row), ...NOT_TOLD, tag: value }]
  })
  assert.deepEqual(usedBy(await all(sums)), usedBy(tagged))
}

/** Books rows as a release did that knew nothing of tags and the provider's side. */
function bookAsBefore(db: DatabaseSync, rows: readonly number[]): void {
  const names = ROW_COLUMNS.slice(0, 23)
  const insert = db.prepare(
    `INSERT OR IGNORE INTO ledger (${names.join()}, charged) VALUES (${'?,'.repeat(names.length)}1)`,
  )
  for (const seed of rows) insert.run(...(JSON.parse(entry(seed).json) as RowValues).slice(0, names.length))
}

const groupings = fc.shuffledSubarray(Object.keys(GROUPS) as Group[], { minLength: 1, maxLength: 4 })

/** Whether sums by these groups are those of the rows. */
async function agreesBy(db: DatabaseSync, filter: UsageFilter, by: Group[]): Promise<void> {
  const groups = by.map(name => GROUPS[name] as (sum: UsageSum) => string)
  const byRows = async function* () {
    for await (const page of scanLedger(db, filter)) yield sumsOf(page, filter)
  }
  assert.deepEqual(await sumBy(scanUsage(db, { ...filter, by }), groups), await sumBy(byRows(), groups))
}

const CAPS = { idempotencyBytes: 1e6, recordBytes: 1e6, valueBytes: 1e6, share: 1, ledgerKeep: null }
/** A database as release 4 of the tables left it, with `rows` rows; then brought up to date. */
function databaseWith(rows: readonly number[], caps = CAPS): { db: DatabaseSync; tables: Tables } {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:', STEPS.slice(0, 4))
  bookAsBefore(db, rows)
  prepare(db, ':memory:')
  return { db, tables: new Tables(db, caps) }
}

test('sqlite: sums equal a scan, whatever is booked, repeated, late or broken off, before, while and after the rows of the release before are summed', async () => {
  const steps = fc.array(
    fc.oneof(
      seeds.map(list => ({ do: 'book' as const, list })),
      seeds.map(list => ({ do: 'break' as const, list })),
      fc.constant({ do: 'sweep' as const, list: [] as number[] }),
      filters.map(filter => ({ do: 'ask' as const, list: [] as number[], filter })),
    ),
    { maxLength: 12 },
  )
  const run = async (old: number[], all: typeof steps extends fc.Arbitrary<infer T> ? T : never, last: UsageFilter) => {
    const { db, tables } = databaseWith(old)
    for (const step of all) {
      const entries = packEntries(step.list.map(entry))
      if (step.do === 'book') tables.apply([{ op: 'ledger', entries }])
      // The record that follows cannot be parsed: the whole transaction is undone.
      else if (step.do === 'break')
        assert.throws(() =>
          tables.apply([
            { op: 'ledger', entries },
            { op: 'ledger', entries: '[' },
          ]),
        )
      else if (step.do === 'sweep') tables.apply([{ op: 'sweep', now: T0 }])
      else await agrees(step.filter, scanUsage(db, step.filter), scanLedger(db, step.filter))
    }
    await agrees(last, scanUsage(db, last), scanLedger(db, last))
    db.close()
  }
  await fc.assert(fc.asyncProperty(seeds, steps, filters, run), { numRuns: 150 })
})

test('sqlite: rows of the release before are summed in slices, the latest first, and right between two of them', async () => {
  const { db, tables } = databaseWith(Array.from({ length: 7000 }, (_, i) => i))
  const since = () => db.prepare('SELECT since FROM summed').get()!['since'] as number
  const seen = [since()]
  let left = true
  for (let next = 0; left; next++) {
    await agrees({}, scanUsage(db, { org: 'acme' }), scanLedger(db, { org: 'acme' }))
    // Rows that come meanwhile, from before and after what is summed so far.
    tables.apply([{ op: 'ledger', entries: packEntries([entry(10_000 + next), entry(20_000 + 7 * next)]) }])
    left = tables.apply([{ op: 'sweep', now: T0 }])
    seen.push(since())
  }
  assert.ok(seen.length > 4, 'several slices')
  assert.deepEqual(
    seen,
    seen.toSorted((a, b) => b - a),
  )
  assert.equal(seen.at(-1), 0)
  await agrees({}, scanUsage(db, {}), scanLedger(db, {}))
  assert.equal(
    db.prepare('SELECT sum(requests) AS n FROM usage').get()!['n'],
    db.prepare('SELECT count(*) AS n FROM ledger').get()!['n'],
  )
})

test('sqlite: sums of a month are kept until its last row is too old', async () => {
  const { db, tables } = databaseWith([], { ...CAPS, ledgerKeep: 10 * DAY } as never)
  const at = (id: string, time: number): Entry => ({
    id,
    kind: 'o',
    json: rowJson(intentJson(intent(id, { time })), outcome(id), undefined),
  })
  const rows = [at('a', Date.UTC(2026, 9, 31)), at('b', Date.UTC(2026, 10, 1)), at('c', Date.UTC(2026, 10, 20))]
  tables.apply([{ op: 'ledger', entries: packEntries(rows) }])
  const left = async () => (await all(scanUsage(db, {}))).map(({ time }) => new Date(time).toISOString().slice(0, 10))
  tables.apply([{ op: 'sweep', now: Date.UTC(2026, 10, 25) }])
  assert.deepEqual(await left(), ['2026-11-01', '2026-11-20'], 'the row of the 1st is gone, its sum is not')
  assert.equal((await all(scanLedger(db, {}))).length, 1)
  tables.apply([{ op: 'sweep', now: Date.UTC(2026, 11, 10) }])
  assert.deepEqual(await left(), ['2026-11-01', '2026-11-20'])
  assert.equal(db.prepare('SELECT count(*) AS n FROM usage_days').get()!['n'], 2, 'so are the sums of its days')
  tables.apply([{ op: 'sweep', now: Date.UTC(2026, 11, 11) }])
  assert.deepEqual(await left(), [])
  assert.equal(db.prepare('SELECT count(*) AS n FROM usage_days').get()!['n'], 0)
})

test('sqlite: for any grouping, sums equal a scan, whatever is rolled up into days before or after it is booked', async () => {
  const steps = fc.array(
    fc.oneof(
      seeds.map(list => ({ do: 'book' as const, list })),
      seeds.map(list => ({ do: 'before' as const, list })),
      // Clocks may be wrong: some hours are rolled up before anything of them is booked.
      fc.nat({ max: 80 }).map(hour => ({ do: 'sweep' as const, now: Date.UTC(2026, 11, 30) + hour * HOUR })),
    ),
    { maxLength: 12 },
  )
  const asked = fc.array(fc.record({ filter: filters, by: groupings }), { maxLength: 5 })
  const run = async (
    all: typeof steps extends fc.Arbitrary<infer T> ? T : never,
    questions: typeof asked extends fc.Arbitrary<infer T> ? T : never,
  ) => {
    const { db, tables } = databaseWith([])
    for (const step of all) {
      if (step.do === 'book') tables.apply([{ op: 'ledger', entries: packEntries(step.list.map(entry)) }])
      else if (step.do === 'before') bookAsBefore(db, step.list)
      else while (tables.apply([{ op: 'sweep', now: step.now }]));
    }
    for (const { filter, by } of questions) await agreesBy(db, filter, by)
    await agreesBy(db, { org: 'acme' }, ['day', 'key'])
    db.close()
  }
  await fc.assert(fc.asyncProperty(steps, asked, run), { numRuns: 80 })
})

test('sqlite: hours are rolled up in slices, which end within an hour, and sums are right between two of them', async () => {
  const { db, tables } = databaseWith([])
  const keyed = (i: number): Entry => {
    const time = Date.UTC(2026, 11, 31) + (i % 3) * 20 * HOUR
    const row = intent(`k${i}`, { time, organization: i % 2 ? 'acme' : 'ÿ', key_id: `key_${i}` })
    return { id: row.request_id, kind: 'o', json: rowJson(intentJson(row), outcome(row.request_id), undefined) }
  }
  tables.apply([{ op: 'ledger', entries: packEntries(Array.from({ length: 5000 }, (_, i) => keyed(i))) }])
  const now = Date.UTC(2027, 0, 3)
  const within: string[] = []
  for (let next = 0, left = true; left; next++) {
    left = tables.apply([{ op: 'sweep', now }])
    within.push(db.prepare('SELECT organization FROM rolled').get()!['organization'] as string)
    tables.apply([{ op: 'ledger', entries: packEntries([entry(10_000 + next), entry(20_000 + 7 * next)]) }])
    for (const org of ['acme', 'b{r}ace:2026', 'ÿ']) {
      await agreesBy(db, { org }, ['day', 'key', 'model'])
      await agreesBy(db, { org }, ['month', 'model'])
    }
  }
  assert.ok(within.length > 2, 'several slices')
  assert.ok(within.some(organization => organization !== ''))
  assert.equal(
    db.prepare('SELECT sum(requests) AS n FROM usage_days').get()!['n'],
    db.prepare('SELECT count(*) AS n FROM ledger').get()!['n'],
  )
  // Whole days are read from the days alone.
  const days = async () => all(scanUsage(db, { org: 'acme', until: Date.UTC(2027, 0, 2), by: ['day', 'key'] }))
  const before = await days()
  assert.ok(before.length > 1000)
  db.exec('DROP TRIGGER usage_removed; DELETE FROM usage')
  assert.deepEqual(await days(), before)
})

test('sqlite: hours are rolled up, whatever upstreams report', () => {
  // A day that no integer can hold would have broken off every sweep.
  const { db, tables } = databaseWith([])
  const hours = [0, 1].map(hour => `(${hour}, 'acme', 'key', 'model', '', '', '', 1, ${2n ** 63n - 1n})`)
  db.exec(`INSERT INTO usage (hour, organization, key_id, model, provider, surface, outcome, requests, input)
    VALUES ${hours.join()}`)
  while (tables.apply([{ op: 'sweep', now: DAY }]));
  const found = db.prepare('SELECT day, requests, CAST(input AS TEXT) AS input FROM usage_days').all()
  assert.deepEqual({ ...found[0] }, { day: 0, requests: 2, input: String(2n ** 63n - 1n) })
  db.close()
})

test('sqlite: a database that no gateway of this release has opened is read without sums of days', async () => {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:', STEPS.slice(0, 17))
  bookAsBefore(
    db,
    Array.from({ length: 50 }, (_, i) => i),
  )
  await agreesBy(db, { org: 'acme' }, ['day', 'key'])
  db.close()
})

test('sqlite: sums of whole hours read no rows', async () => {
  const { db, tables } = databaseWith([])
  tables.apply([{ op: 'ledger', entries: packEntries(Array.from({ length: 300 }, (_, i) => entry(i))) }])
  const before = usedBy(await all(scanUsage(db, { since: Date.UTC(2026, 11, 30) })))
  db.exec('DELETE FROM ledger')
  assert.deepEqual(usedBy(await all(scanUsage(db, { since: Date.UTC(2026, 11, 30) }))), before)
})

test('sqlite: sums of the release before are kept, and it goes on beside them', async () => {
  const db = new DatabaseSync(':memory:')
  prepare(db, ':memory:', STEPS.slice(0, 10))
  bookAsBefore(db, [1, 2, 3, 403])
  // As `sluice usage` finds it before the first start of this release.
  await agrees({}, scanUsage(db, {}), scanLedger(db, {}))
  prepare(db, ':memory:')
  new Tables(db, CAPS).apply([{ op: 'ledger', entries: packEntries([entry(4), entry(5), entry(407)]) }])
  bookAsBefore(db, [8, 9, 412])
  await agrees({}, scanUsage(db, {}), scanLedger(db, {}))
  await agrees({ tag: 'team' }, scanUsage(db, { tag: 'team' }), scanLedger(db, {}))
  assert.equal(db.prepare('SELECT sum(requests) AS n FROM usage').get()!['n'], 10)
})

test('sqlite: a store sums what it books, and what an earlier release leaves', async t => {
  const url = `sqlite:${path.join(temporary(), 'gateway.db')}`
  const file = url.slice('sqlite:'.length)
  const db = new DatabaseSync(file)
  prepare(db, file, STEPS.slice(0, 4))
  bookAsBefore(db, [1, 2])
  // It has no sums yet, as `sluice usage` finds it before the first start of this release.
  await agrees({}, scanUsage(db, {}), scanLedger(db, {}))
  db.close()
  const store = await openStore(options(url))
  t.after(() => store.close())
  store.ledger.intent(intent('new'))
  store.ledger.outcome(outcome('new'))
  await store.ledger.flush()
  const rows = await store.ledger.query({})
  assert.equal(rows.length, 3)
  assert.deepEqual(await usedIn(store), usedBy(rows))
})

// ---- Redis ----------------------------------------------------------------------------------------------------------

interface Shared {
  redis: Redis
  client: RedisClient
  sink(instance: string, ledgerKeep?: number | null, now?: () => number): RedisLedgerSink
}
function connect(t: TestContext, url: string, redis: Redis): Shared {
  const client = new RedisClient({ url, timeout: 10_000, log: recordingLog() })
  t.after(() => {
    client.disconnect()
    redis.disconnect()
  })
  const sink = (instance: string, ledgerKeep: number | null = null, now = () => T0) =>
    new RedisLedgerSink({
      ...{ client, writer: client, log: recordingLog(), replicas: 0, instance, ledgerKeep, ship: null, drained: null },
      clock: { ...systemClock, now },
      settled: async () => {},
    })
  return { redis, client, sink }
}

async function startRedis(t: TestContext) {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const connected = connect(t, server.url, new Redis(server.url))
  await connected.client.connect()
  return connected
}

/** Appends as a gateway of the release before: nothing is counted. */
async function appendUncounted(redis: Redis, list: readonly number[]): Promise<void> {
  for (const seed of list) {
    const [id, time, organization, key_id, surface, model, , , , provider, outcome, ...figures] = JSON.parse(
      entry(seed).json,
    ) as string[]
    const [input, cached, cache_write, output, reasoning, searches, , cost] = figures
    const fields = {
      time,
      organization,
      key_id,
      surface,
      model,
      provider,
      outcome,
      input,
      cached,
      cache_write,
      output,
      reasoning,
      searches,
      cost,
    }
    await redis.xadd(
      STREAM,
      '*',
      'request_id',
      id!,
      ...(Object.entries(fields)
        .filter(([, value]) => value !== '')
        .flat() as string[]),
    )
  }
}

test('redis: sums equal a scan, whatever is appended, repeated or late, beside gateways of the release before', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  const steps = fc.array(
    fc.oneof(
      seeds.map(list => ({ do: 'append' as const, list })),
      seeds.map(list => ({ do: 'repeat' as const, list })),
      seeds.map(list => ({ do: 'uncounted' as const, list })),
      fc.constant({ do: 'count' as const, list: [] as number[] }),
      filters.map(filter => ({ do: 'ask' as const, list: [] as number[], filter })),
    ),
    { maxLength: 10 },
  )
  const run = async (all: typeof steps extends fc.Arbitrary<infer T> ? T : never, last: UsageFilter) => {
    await redis.flushdb()
    const [one, two] = [sink('one'), sink('two')]
    for (const step of all) {
      const entries = step.list.map(entry)
      if (step.do === 'append') await two.append(entries, 'two', false)
      else if (step.do === 'repeat') for (let i = 0; i < 2; i++) await one.append(entries, 'one', true)
      else if (step.do === 'uncounted') await appendUncounted(redis, step.list)
      else if (step.do === 'count') await one.count()
      else await agrees(step.filter, scanRedisUsage(client, null, step.filter), scanStream(client, step.filter))
    }
    await agrees(last, scanRedisUsage(client, null, last), scanStream(client, last))
    await one.count()
    assert.deepEqual(
      [await redis.get(`{${STREAM}}:summed`)],
      [(await redis.xrevrange(STREAM, '+', '-', 'COUNT', 1))[0]?.[0] ?? null],
    )
    await agrees({}, scanRedisUsage(client, null, {}), scanStream(client, {}))
  }
  await fc.assert(fc.asyncProperty(steps, filters, run), { numRuns: 60 })
})

test('redis: a ledger of the release before is counted in slices, and answers are right meanwhile', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  await appendUncounted(
    redis,
    Array.from({ length: 1500 }, (_, i) => i),
  )
  const one = sink('one')
  const counted = new Set<string | null>()
  for (
    let i = 0;
    (await redis.get(`{${STREAM}}:summed`)) !== (await redis.xrevrange(STREAM, '+', '-', 'COUNT', 1))[0]![0];
    i++
  ) {
    await agrees({}, scanRedisUsage(client, null, { org: 'acme' }), scanStream(client, { org: 'acme' }))
    await one.append([entry(10_000 + i)], 'one', true)
    counted.add(await redis.get(`{${STREAM}}:summed`))
  }
  assert.ok(counted.size > 3, 'no call counts a whole ledger')
  await agrees({}, scanRedisUsage(client, null, {}), scanStream(client, {}))
})

test('redis: a gateway counts what one of the release before appends, without a row of its own', {
  skip: skipWithoutRedis,
}, async t => {
  const server = await RedisServer.start()
  const redis = new Redis(server.url)
  const store = await openStore(options(server.url, { dataDir: temporary() }))
  t.after(async () => {
    redis.disconnect()
    await store.close()
    await server.stop()
  })
  await appendUncounted(redis, [1, 2, 3])
  assert.deepEqual(await usedIn(store), usedBy(await store.ledger.query({})))
  await eventually(async () => (await redis.get(`{${STREAM}}:summed`)) !== null)
  assert.deepEqual(await usedIn(store), usedBy(await store.ledger.query({})))
})

test('redis: sums of whole hours read no rows, and what is in the stream and is no row is passed over', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  await redis.xadd(STREAM, '*', 'what', 'is this')
  await sink('one').append(
    Array.from({ length: 150 }, (_, i) => entry(i)),
    'one',
    true,
  )
  const filter = { since: Date.UTC(2026, 11, 30) }
  const before = usedBy(await all(scanRedisUsage(client, null, filter)))
  assert.ok(before.size > 100)
  await redis.xtrim(STREAM, 'MAXLEN', 0)
  assert.deepEqual(usedBy(await all(scanRedisUsage(client, null, filter))), before)
})

test('redis: sums of a month are kept until its last row is too old, and then leave nothing behind', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, sink } = await startRedis(t)
  let now = Date.UTC(2026, 11, 31)
  const one = sink('one', 10 * DAY, () => now)
  const many = Array.from({ length: 250 }, (_, i): Entry => {
    const row = intent(`x${i}`, { organization: `o${i}`, time: Date.UTC(2026, 10, 30) })
    return { id: row.request_id, kind: 'o', json: rowJson(intentJson(row), outcome(`x${i}`), undefined) }
  })
  await one.append([...many, entry(0)], 'one', true)
  const months = async () => (await redis.keys(`{${STREAM}}:usage:????-??`)).map(key => key.slice(-7)).sort()
  now = Date.UTC(2026, 11, 10, 23)
  await one.count()
  assert.deepEqual(await months(), ['2026-11', '2026-12'])
  now = Date.UTC(2026, 11, 11)
  for (let i = 0; i < 3; i++) await one.count()
  assert.deepEqual(await months(), ['2026-12'])
  assert.deepEqual(await redis.keys(`{${STREAM}}:usage:2026-11*`), [])
  assert.equal(await redis.zcard(`{${STREAM}}:usage`), 1)
})

test('redis cluster: a row and its sums are in one slot', { skip: skipWithoutRedis }, async t => {
  const nodes = await startCluster(t)
  const { client, sink } = connect(t, `redis+cluster://127.0.0.1:${nodes[0]!.port}`, new Redis({ lazyConnect: true }))
  await client.connect()
  await sink('one').append(
    Array.from({ length: 100 }, (_, i) => entry(i)),
    'one',
    true,
  )
  await agrees({}, scanRedisUsage(client, null, {}), scanStream(client, {}))
  assert.ok(sentKey('one').startsWith(`{${STREAM}}`))
})

for (const [engine, skip] of [
  ['sqlite', false],
  ['redis', skipWithoutRedis],
] as const) {
  test(`${engine}: the last rows of an organization are the latest of its own, a bounded number`, { skip }, async t => {
    const server = engine === 'redis' ? await RedisServer.start() : undefined
    const url = server?.url ?? `sqlite:${path.join(temporary(), 'gateway.db')}`
    const store = await openStore(options(url, { dataDir: temporary() }))
    t.after(async () => {
      await store.close()
      await server?.stop()
    })
    assert.deepEqual(await store.recent('acme'), [])
    for (let i = 0; i < 2 * RECENT_ROWS + 10; i++) {
      const organization = i % 2 ? 'acme' : 'b{r}ace:2026'
      store.ledger.intent(intent(`r${i}`, { time: T0 + i, organization }))
      store.ledger.outcome(outcome(`r${i}`))
      if (i % 20 === 0) await store.ledger.flush()
    }
    await store.ledger.flush()
    const rows = await store.recent('acme')
    assert.deepEqual(rows, (await store.ledger.query({ org: 'acme' })).slice(-RECENT_ROWS).reverse())
    assert.equal(rows.length, RECENT_ROWS)
    assert.equal((await store.recent('b{r}ace:2026'))[0]!.request_id, `r${2 * RECENT_ROWS + 8}`)
    assert.deepEqual(await store.recent('nobody'), [])
  })
}

test('redis: last rows are those of earlier gateways, too; retention takes them and their list', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  await appendUncounted(redis, [3])
  const kept = sink('kept', DAY)
  await kept.append([entry(6)], 'kept', true)
  await kept.count()
  const list = `{${STREAM}}:last:acme`
  const { organization } = (await all(scanStream(client, {})))[0]!
  assert.equal(organization, 'acme')
  assert.deepEqual((await recentRows(client, 'acme')).map(row => row.request_id).sort(), ['r3', 'r6'])
  const ttl = await redis.pttl(list)
  assert.ok(ttl > 0 && ttl <= DAY)
  await redis.xtrim(STREAM, 'MAXLEN', 0)
  assert.deepEqual(await recentRows(client, 'acme'), [])
})

// ---- groups, and single rows ----------------------------------------------------------------------------------------

test('sqlite and redis: for any grouping, sums by hour are the sums of the rows', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  const run = async (list: number[], filter: UsageFilter, by: Group[]) => {
    const groups = by.map(name => GROUPS[name] as (sum: UsageSum) => string)
    const { db, tables } = databaseWith([])
    tables.apply([{ op: 'ledger', entries: packEntries(list.map(entry)) }])
    await redis.flushdb()
    await sink('one').append(list.map(entry), 'one', true)
    const byRows = async function* () {
      for await (const page of scanLedger(db, filter)) yield sumsOf(page, filter)
    }
    const expected = await sumBy(byRows(), groups)
    for (const asked of [filter, { ...filter, by }]) {
      assert.deepEqual(await sumBy(scanUsage(db, asked), groups), expected)
      assert.deepEqual(await sumBy(scanRedisUsage(client, null, asked), groups), expected)
    }
    db.close()
  }
  await fc.assert(fc.asyncProperty(seeds, filters, groupings, run), { numRuns: 40 })
})

const questions = fc.record(
  {
    key: fc.constantFrom('key_ci', 'key_2'),
    outcome: fc.constantFrom('completed', 'lost'),
    code: fc.constantFrom('', 'provider_overloaded'),
  },
  { requiredKeys: [] },
)

test('sqlite and redis: rows of an organization, page by page, are those of a scan, once each, the latest day first', {
  skip: skipWithoutRedis,
}, async t => {
  const { redis, client, sink } = await startRedis(t)
  const run = async (
    list: number[],
    left: number[],
    only: Partial<RowsQuestion>,
    from: number | undefined,
    to: number | undefined,
    limit: number,
  ) => {
    const { db, tables } = databaseWith([])
    bookAsBefore(db, left)
    tables.apply([{ op: 'ledger', entries: packEntries(list.map(entry)) }])
    await redis.flushdb()
    // What a release before appended is in no index yet.
    await appendUncounted(redis, [...new Set(left)])
    await sink('one').append(list.filter(seed => !left.includes(seed)).map(entry), 'one', true)
    await sink('one').count()
    const [since, until] = [from ?? Date.UTC(2026, 11, 1), to ?? Date.UTC(2027, 0, 31)]
    const question = { organization: 'acme', ...only, since, until, limit }
    const expected = (await all(scanLedger(db, { org: 'acme', since, until }))).filter(
      row =>
        (only.key === undefined || row.key_id === only.key) &&
        (only.outcome === undefined || row.outcome === only.outcome) &&
        (only.code === undefined || (row.code ?? '') === only.code),
    )
    for (const page of [
      (after: string | null) => sqliteRows(db, { ...question, after }),
      (after: string | null) => redisRows(client, { ...question, after }),
    ]) {
      const found: LedgerRow[] = []
      for (let after: string | null = null; ; ) {
        const { rows, next } = await page(after)
        assert.ok(rows.length <= limit)
        found.push(...rows)
        if (next === null) break
        after = next
      }
      assert.deepEqual(found.map(row => row.request_id).sort(), expected.map(row => row.request_id).sort())
      const days = found.map(row => Math.floor(row.time / DAY))
      assert.deepEqual(
        days,
        days.toSorted((a, b) => b - a),
      )
    }
    db.close()
  }
  const some = fc.array(fc.nat({ max: 60 }), { maxLength: 8 })
  await fc.assert(fc.asyncProperty(seeds, some, questions, edge, edge, fc.integer({ min: 1, max: 9 }), run), {
    numRuns: 40,
  })
})

test('sqlite and redis: a page looks at a bounded number of rows, and its cursor goes on', {
  skip: skipWithoutRedis,
}, async t => {
  const { client, sink } = await startRedis(t)
  const { db, tables } = databaseWith([])
  const list = Array.from({ length: 6000 }, (_, i) => entry(3 * i))
  for (let i = 0; i < list.length; i += 200) await sink('one').append(list.slice(i, i + 200), 'one', false)
  tables.apply([{ op: 'ledger', entries: packEntries(list) }])
  const question = { organization: 'acme', code: 'nothing', since: 0, until: Date.UTC(2027, 5, 1), limit: 500 }
  // Lists by day are asked for within a range that somebody names: admin/api.ts bounds it.
  const near = { ...question, since: Date.UTC(2026, 11, 1), until: Date.UTC(2027, 0, 31) }
  for (const page of [
    (after: string | null) => sqliteRows(db, { ...question, after }),
    (after: string | null) => redisRows(client, { ...near, after }),
  ]) {
    const first = await page(null)
    assert.deepEqual(first.rows, [])
    assert.notEqual(first.next, null)
    assert.deepEqual(await page(first.next), { rows: [], next: null })
  }
})

test('redis: the index ends with its rows', { skip: skipWithoutRedis }, async t => {
  const { redis, sink } = await startRedis(t)
  const keys = () => redis.keys(`{${STREAM}}:rows:*`)
  await sink('one').append([entry(0)], 'one', true)
  const [key] = await keys()
  assert.equal(await redis.pexpiretime(key!), -1, 'kept for ever, as the rows are')
  await redis.flushdb()
  await sink('one', 400 * DAY).append([entry(0)], 'one', true)
  const day = Number(key!.split(':')[3])
  assert.equal(await redis.pexpiretime(key!), (day + 1 + 400) * DAY)
})
