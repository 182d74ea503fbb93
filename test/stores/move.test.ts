// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the notation of gateway.yaml
/** `sluice store move`: everything is carried, exactly, and no gateway starts on a store that is not whole. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { after, before, type TestContext, test } from 'node:test'
import { Redis } from 'ioredis'
import type { Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { openStore } from '../../stores/index.ts'
import { LocalServer } from '../../stores/local.ts'
import { cellsOf, groupsOf, levelPlace } from '../../stores/move/cells.ts'
import { cancelMove, type MoveOptions, moveStore } from '../../stores/move/move.ts'
import { openRedisEnd } from '../../stores/move/redis.ts'
import { openSqliteEnd } from '../../stores/move/sqlite.ts'
import { prepare } from '../../stores/sqlite/schema.ts'
import { Tables } from '../../stores/sqlite/tables.ts'
import { folder, sluice, YAML } from '../cli/capture.ts'
import { booksOf, CELLS, fill, note, textOf } from './books.ts'
import { DAY, intent, MINUTE, options, outcome, recordingLog, T0, temporary, usedIn } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis
let server: RedisServer
before(async () => {
  if (!skip) server = await RedisServer.start()
})
after(() => server?.stop())

/** A database of the server's for each test. */
let database = 0
const newRedis = () => server.url.replace(/0$/, String(++database))
const newFile = () => `sqlite:${path.join(temporary(), 'gateway.db')}`

const move = (from: string, to: string, more: Partial<MoveOptions> = {}): MoveOptions => ({
  ...{ from, to, maxMemory: null, log: recordingLog(), tell() {}, progress() {} },
  ...more,
})
const open = (t: TestContext, url: string, more = {}): Promise<Store> =>
  openStore(options(url, { dataDir: temporary(), ...more })).then(store => {
    t.after(() => store.close())
    return store
  })

/** The rows of a database that no engine writes on its own. */
function tablesOf(url: string) {
  const db = new DatabaseSync(url.slice('sqlite:'.length), { readOnly: true })
  const rows = (text: string) =>
    db
      .prepare(text)
      .all()
      .map(row => ({ ...row }))
  const tables = {
    organizations: rows('SELECT * FROM organizations ORDER BY id'),
    keys: rows('SELECT * FROM keys ORDER BY sha256'),
    audit: rows('SELECT time, organization, entry FROM audit ORDER BY id'),
    spend: rows('SELECT * FROM spend ORDER BY organization, cell, period, number'),
    levels: rows('SELECT organization, cell, used, round(at) AS at FROM levels ORDER BY organization, cell'),
    usage: rows('SELECT * FROM usage ORDER BY 1, 2, 3, 4, 5, 6, 7').map(row => ({
      ...row,
      provider: String(row['provider']).toWellFormed(),
    })),
    ledger: rows('SELECT * FROM ledger ORDER BY request_id').map(row => ({
      ...row,
      provider: String(row['provider']).toWellFormed(),
    })),
    records: rows('SELECT organization, kind, id, value, size FROM records ORDER BY 1, 2, 3'),
    idempotency: rows(
      'SELECT organization, key, fingerprint, request_id, status, headers, body, whole, asked, size FROM idempotency ORDER BY 1, 2',
    ),
    tagged: rows('SELECT * FROM tagged ORDER BY 1, 2, 3, 4, 5, 6'),
    credits: rows('SELECT * FROM credits ORDER BY 1, 2'),
    billed: rows('SELECT * FROM billed ORDER BY 1'),
    shares: rows('SELECT * FROM shares ORDER BY 1, 2'),
    secret: rows("SELECT value FROM meta WHERE name = 'secret'"),
    min_reader: rows("SELECT value FROM meta WHERE name = 'min_reader'"),
  }
  db.close()
  return tables
}

test('a store goes from SQLite to Redis and back with everything in it', { skip }, async t => {
  const [first, redis, last] = [newFile(), newRedis(), newFile()]
  const source = await openStore(options(first))
  await fill(source)
  const before = await booksOf(source)
  // What a limit counts has whole numbers in it, and each organization has spent.
  assert.ok(before.spent.every(([, day, month]) => day! < 1e12 && day === month))
  assert.deepEqual(
    before.ofUsers[0],
    [7, 17, 27].map((used, n) => [1000 - used, 1e12 - 100 * n - 3]),
  )
  await source.close()

  const there = await moveStore(move(first, redis))
  assert.deepEqual(
    Object.values(there.carried!).map(({ count }) => count),
    [3, 0, 4, 15, 18, there.carried!.sums.count, 60, there.carried!.tagged.count, 1, 2, 2, 6, 6],
  )
  assert.ok(there.carried!.tagged.count >= 9)
  const cost = before.ledger.reduce((sum, row) => sum + row.cost, 0)
  assert.deepEqual([there.carried!.ledger.sum, there.carried!.sums.sum], [BigInt(cost), BigInt(cost)])

  const moved = await open(t, redis)
  assert.deepEqual(await booksOf(moved), before)
  await moved.close()

  const back = await moveStore(move(redis, last))
  assert.deepEqual(
    Object.entries(back.carried!).map(([name, { count, sum }]) => [name, count, sum]),
    Object.entries(there.carried!).map(([name, { count, sum }]) => [name, count, sum]),
  )
  // The first is set aside, and the second is not.
  const { min_reader: aside, ...rest } = tablesOf(first)
  const { min_reader: own, ...same } = tablesOf(last)
  assert.deepEqual(same, rest)
  assert.notDeepEqual(own, aside)
  assert.deepEqual(await booksOf(await open(t, last)), before)
})

test('a store goes on after a move: new rows, charges and changes join the old ones', { skip }, async t => {
  for (const [from, to] of [
    [newFile(), newRedis()],
    [newRedis(), newFile()],
  ] as const) {
    const source = await openStore(options(from, { dataDir: temporary() }))
    await fill(source)
    await source.close()
    await moveStore(move(from, to))
    const store = await open(t, to)
    const now = systemClock.now()
    const before = await usedIn(store)
    const [acme] = await store.accounts.page('', 1)
    const { version } = await store.accounts.since(0)
    const changed = await store.accounts.change([{ id: 'acme', expected: acme!.version, settings: '{}', keys: [] }])
    const later = (changed[0] as { version: number }).version
    assert.ok(later > acme!.version)
    assert.deepEqual((await store.accounts.since(version)).ids, ['acme'])
    const spent = async () => (await store.limits.peek('acme', CELLS, now))[4]!.remaining
    const left = await spent()
    await store.limits.admit({ org: 'acme', id: 'next', cells: CELLS, amounts: [1, 1, 1, 1, 5, 5], now })
    await store.ledger.intent(intent('next', { time: now }))
    store.limits.settle('acme', 'next', [1, 1, 1, 1, 5, 5], now)
    await store.ledger.outcome(outcome('next', { cost: 5 }))
    await store.ledger.flush()
    assert.equal(await spent(), left - 5)
    assert.equal((await store.recent('acme'))[0]!.request_id, 'next')
    const requests = (used: Map<string, number[]>) => [...used.values()].reduce((sum, [count]) => sum + count!, 0)
    assert.equal(requests(await usedIn(store)), requests(before) + 1)
    // A record that is replaced keeps the shares right, and a running key was not carried.
    await store.records.put('acme', 'response', 'resp_1', Buffer.from('two'), DAY, now)
    assert.equal(await textOf(store, 'acme', 'response', 'resp_1'), 'two')
    assert.equal((await store.idempotency.begin('acme', 'running', 'g', 'y', DAY, now)).state, 'first')
    await store.close()
  }
})

test('no gateway starts on a moved source, nor on a target that is not whole; both say where to go', {
  skip,
}, async t => {
  const [from, to] = [newFile(), newRedis()]
  const source = await openStore(options(from))
  await fill(source)
  await source.close()

  // Interrupted: the process was killed while the third batch was written.
  let batches = 0
  const killed = new Error('killed')
  const progress = () => {
    if (++batches === 3) throw killed
  }
  await assert.rejects(moveStore(move(from, to, { progress })), killed)
  const refusedTo = (state: RegExp) => assert.rejects(openStore(options(to, { dataDir: temporary() })), state)
  await refusedTo(/is being filled from sqlite:\/.*gateway\.db and is not complete: .*`sluice store move`/)
  await assert.rejects(openAccounts(to), /is not complete/)
  // What failed was said, so that the source can be used; after a kill its mark stays.
  const end = openSqliteEnd(from, false)
  assert.equal(await end.mark(), null)
  const name = (await nameOf(to))!
  await end.setMark({ state: 'moving', other: name })
  await end.close()
  await assert.rejects(openStore(options(from)), /is being moved to redis:.*or `sluice store move --cancel`/)
  await assert.rejects(moveStore(move(from, newRedis())), /is being moved to redis:/)

  // Taken back: the target is empty, and the source as before.
  assert.equal((await cancelMove(move(from, to))).length, 2)
  await (await openStore(options(from))).close()
  await (await openStore(options(to, { dataDir: temporary() }))).close()
  await assert.rejects(cancelMove(move(from, to)), /no move from .* was interrupted/)

  // Asked to stop: the source can be used at once.
  const stop = new AbortController()
  const stopping = moveStore(move(from, to, { progress: () => stop.abort(), signal: stop.signal }))
  await assert.rejects(stopping, /stopped; nothing was changed in the source/)
  await (await openStore(options(from))).close()

  // Interrupted again, and repeated.
  batches = 0
  await assert.rejects(moveStore(move(from, to, { progress })), killed)
  const left = openSqliteEnd(from, false)
  await left.setMark({ state: 'moving', other: name })
  await left.close()
  assert.equal((await moveStore(move(from, to))).carried!.ledger.count, 60)
  await assert.rejects(openStore(options(from)), /was moved to redis:.*: name that store in 'store'/)
  await assert.rejects(openAccounts(from), /was moved to redis:/)
  await assert.rejects(moveStore(move(from, newRedis())), /was moved to redis:.* already/)

  // Killed between the last two steps: the target is whole, and only not in use yet.
  const target = await openRedisEnd(to, null, () => {})
  await target.setMark({ state: 'filling', other: `sqlite:${from.slice('sqlite:'.length)}` })
  await target.close()
  await refusedTo(/is not complete/)
  const other = newFile()
  await (await openStore(options(other))).close()
  await assert.rejects(moveStore(move(other, to)), /is being filled from .* and is not complete; end that move first/)
  await assert.rejects(cancelMove(move(other, to)), /is being filled from .* and is not complete; end that move first/)
  await assert.rejects(cancelMove(move(from, to)), /was moved to/)
  assert.equal((await moveStore(move(from, to))).carried, null)
  assert.equal((await (await open(t, to)).ledger.query({})).length, 60)
})

async function nameOf(url: string): Promise<string> {
  const end = await openRedisEnd(url, null, () => {})
  await end.close()
  return end.name
}

test('a release that does not know of moves refuses a store that is set aside', { skip }, async () => {
  const [from, to] = [newFile(), newRedis()]
  await (await openStore(options(from))).close()
  await moveStore(move(from, to))
  const db = new DatabaseSync(from.slice('sqlite:'.length))
  db.exec("DELETE FROM meta WHERE name = 'move'")
  db.close()
  await assert.rejects(openStore(options(from)), /this release of Sluice reads 1 to/)
})

test('a store that a gateway uses is not moved, and nothing is moved into one that holds something', {
  skip,
}, async t => {
  const [file, redis, other] = [newFile(), newRedis(), newRedis()]
  const running = await openStore(options(file))
  await running.accounts.note(note('x'))
  await assert.rejects(moveStore(move(file, redis)), /a gateway uses .*gateway\.db; stop it first/)
  await running.close()
  const shared = await open(t, redis)
  await shared.accounts.note(note('x'))
  // It runs on the target, then on the source.
  await assert.rejects(
    moveStore(move(file, redis)),
    /has the key \{sluice:accounts\}:audit: a store is moved into an empty/,
  )
  const unused = newFile()
  await assert.rejects(moveStore(move(redis, unused)), /gateways use redis:.* stop them first/)
  await (await openStore(options(unused))).close()
  await open(t, other)
  await assert.rejects(moveStore(move(file, other)), /gateways use redis:.* stop them first/)
  await shared.close()
  await assert.rejects(moveStore(move(redis, file)), /has rows in its table audit: a store is moved into an empty/)
  await assert.rejects(moveStore(move(file, file)), /both ends|a gateway uses/)
  await assert.rejects(moveStore(move(newFile(), newRedis())), /there is no database/)
  // A command has no lock: it must not change what is being carried.
  const command = await openAccounts(file)
  assert.equal(await command.accounts.count(), 0)
  await assert.rejects(moveStore(move(file, newRedis())), /a command uses .*gateway\.db; wait until it has ended/)
  await command.close()
  const late = newRedis()
  await (await openStore(options(late, { dataDir: temporary() }))).close()
  const beside = await openAccounts(late)
  await beside.accounts.change([{ id: 'a', expected: 0, settings: '{}', keys: [] }])
  let changed: unknown
  const progress = () => {
    changed ??= beside.accounts.change([{ id: 'b', expected: 0, settings: '{}', keys: [] }])
  }
  await assert.rejects(moveStore(move(late, newFile(), { progress })), /a command has changed redis:/)
  await beside.close()
  assert.ok(changed)
  // None of these has changed anything.
  await (await openStore(options(file))).close()
})

test('what is moved into a database that a gateway swept while it was empty is in the sums of days', async () => {
  // That gateway had rolled up all hours until then, so sums whose rows retention had removed came into no day.
  const [from, to] = [newFile(), newFile()]
  const source = await openStore(options(from))
  await fill(source)
  await source.close()
  const old = new DatabaseSync(from.slice('sqlite:'.length))
  old.exec('DELETE FROM ledger WHERE rowid % 2 = 0')
  old.close()
  const swept = <T>(read: (db: DatabaseSync) => T): T => {
    const file = to.slice('sqlite:'.length)
    const db = new DatabaseSync(file)
    prepare(db, file)
    const caps = { idempotencyBytes: 1e6, recordBytes: 1e6, valueBytes: 1e6, share: 1, ledgerKeep: null }
    new Tables(db, caps).apply([{ op: 'sweep', now: T0 + 60 * DAY }])
    const found = read(db)
    db.close()
    return found
  }
  swept(() => {})
  await moveStore(move(from, to))
  const requests = (table: string) =>
    swept(db => db.prepare(`SELECT organization, sum(requests) FROM ${table} GROUP BY 1`).all())
  assert.ok(requests('usage').length > 1)
  assert.deepEqual(requests('usage_days'), requests('usage'))
})

test('what was carried is compared: a target that lost something does not come into use', { skip }, async () => {
  const [from, to] = [newFile(), newRedis()]
  const source = await openStore(options(from))
  await fill(source)
  await source.close()
  const end = await openRedisEnd(to, null, () => {})
  const lose = Object.getPrototypeOf(end).finish as () => Promise<void>
  Object.getPrototypeOf(end).finish = async function (this: typeof end) {
    await lose.call(this)
    const redis = new Redis(to)
    await redis.del('sluice:{acme}:limits')
    await redis.quit()
  }
  try {
    await assert.rejects(
      moveStore(move(from, to)),
      /does not hold what was carried \(spend: 15 \(sum \d+\) were read, and 13/,
    )
  } finally {
    Object.getPrototypeOf(end).finish = lose
    await end.close()
  }
  await (await openStore(options(from))).close()
})

test('levels of different times share a group of Redis and come back with their times', () => {
  const now = systemClock.now()
  const level = (cell: string, used: number, part: number, at: number) => ({ cell, used, part, at })
  const cells = {
    organization: 'acme',
    spend: [{ cell: 'o:day', period: 'day' as const, number: Math.floor(now / DAY), amount: 2 ** 53 - 1 }],
    levels: [level('o:rpm', 7, 0.5, now), level('o:tpd', 9, 3, now - 5000), level('k:a:tpm', 4, 2, now - MINUTE)],
  }
  const groups = groupsOf(cells)
  assert.deepEqual([...groups.keys()].sort(), ['k:a', 'o'])
  const found = cellsOf('acme', Object.fromEntries(groups), now, assert.fail)
  assert.deepEqual(found.spend, cells.spend)
  // What the older one had earned of its next unit is lost; its time is not.
  cells.levels[1]!.part = 0
  const sorted = (levels: typeof cells.levels) => levels.sort((a, b) => (a.cell < b.cell ? -1 : 1))
  assert.deepEqual(sorted(found.levels), sorted(cells.levels))
  assert.equal(levelPlace('o:of-a-later-release'), null)
})

test('a killed gateway: its journal is booked first, and its reservations are given back', { skip }, async t => {
  const [from, to, dir] = [newRedis(), newFile(), temporary()]
  const now = systemClock.now()
  const store = await openStore(options(from, { dataDir: dir }))
  await store.limits.admit({ org: 'acme', id: 'cut', cells: CELLS, amounts: [1, 50, 40, 1, 900, 900], now })
  await store.idempotency.begin('acme', 'claimed', 'f', 'r', DAY, now)
  await store.idempotency.claim('acme', 'claimed', DAY)
  await store.idempotency.begin('acme', 'running', 'f', 'r', DAY, now)
  await store.close()
  // As if nobody knew the lease of the reservation any more.
  const redis = new Redis(from)
  await redis.del('{sluice:leases}:held')
  await redis.quit()
  const { dropped } = await moveStore(move(from, to))
  assert.deepEqual([...dropped.keys()].sort(), [
    'idempotency keys whose first use was cut off',
    'reservations of requests that a killed gateway left',
  ])
  const moved = await open(t, to)
  assert.deepEqual(
    (await moved.limits.peek('acme', CELLS, now)).map(({ remaining }, i) => CELLS[i]!.capacity - remaining),
    CELLS.map(() => 0),
  )
  // It was about to end, so it counts as executed.
  const state = await moved.idempotency.begin('acme', 'claimed', 'f', 'x', DAY, now)
  assert.deepEqual(state, { state: 'not_kept', requestId: 'r' })
  assert.equal((await moved.idempotency.begin('acme', 'running', 'f', 'x', DAY, now)).state, 'first')
})

test('the verb moves into the store of the configuration, also beside the data of a local store', { skip }, async t => {
  const { dir, file } = folder(t)
  const yaml = (store: string) => fs.writeFileSync(file, YAML.replace('"sqlite::memory:"', store))
  const data = path.join(dir, 'data')
  const database = `sqlite:${path.join(data, 'gateway.db')}`
  const source = await openStore(options(database))
  await fill(source)
  const before = await booksOf(source)
  await source.close()

  yaml(`"local:${data}"`)
  const url = `local:${data}`
  const start = () => LocalServer.start({ url, maxMemory: null, tell() {} })
  await assert.rejects(start(), new RegExp(`\`sluice store move --from ${database}\` carries everything`))
  const { code, out, err } = await sluice('store', 'move', '--from', database, '--config', file)
  assert.deepEqual([code, err], [0, ''])
  assert.match(out, /rows of the ledger +60 +0\.480000\d{3} USD/)
  assert.match(out, /Left behind:\n {2}slots, leases/)
  const local = await start()
  t.after(() => local.stop())
  const store = await openStore(options(url))
  const books = await booksOf(store).finally(() => store.close())
  assert.deepEqual(books, before)

  const again = await sluice('store', 'move', '--from', database, '--config', file)
  assert.deepEqual([again.code, again.err.includes('in use by another gateway')], [1, true])
  assert.equal((await sluice('store', 'move', '--config', file)).code, 2)
  assert.equal((await sluice('store', 'drop', '--config', file)).code, 2)
  assert.equal((await sluice('store', 'move', '--from', '${SLUICE_NO_SUCH}', '--config', file)).code, 2)
})
