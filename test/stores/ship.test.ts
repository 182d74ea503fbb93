/** Shipping the ledger from both engines, here to files: each row once, whatever happens in between. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { type TestContext, test } from 'node:test'
import type { Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { FileTarget } from '../../stores/ship/files.ts'
import {
  Follower,
  nameOfTarget,
  openSource,
  openTarget,
  ShipError,
  type ShipStatus,
  shipAll,
} from '../../stores/ship/ship.ts'
import { Tables } from '../../stores/sqlite/tables.ts'
import { eventually } from '../eventually.ts'
import { DAY, intent, options, outcome, PROVIDER_SIDE, recordingLog, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const silent = recordingLog()

/** Books rows with these ids; `time` is that of each request. */
async function book(store: Store, ids: readonly string[], time = T0): Promise<void> {
  for (const id of ids) {
    store.ledger.intent(intent(id, { time }))
    store.ledger.outcome(outcome(id, PROVIDER_SIDE))
  }
  await store.ledger.flush()
}
const names = (prefix: string, count: number) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`)

/** Ships all that is there, in batches of 10. */
async function ship(url: string, dir: string): Promise<void> {
  const source = await openSource(url, 'test')
  const target = new FileTarget(dir)
  try {
    await shipAll(source, target, { name: `file:${dir}`, log: silent }, 10)
  } finally {
    await target.close()
    await source.close()
  }
}

const fileOf = (dir: string, time = T0) => path.join(dir, `${new Date(time).toISOString().slice(0, 10)}.ndjson`)
const linesOf = (file: string): Record<string, unknown>[] =>
  fs.existsSync(file)
    ? fs
        .readFileSync(file, 'utf8')
        .split('\n')
        .slice(0, -1)
        .map(line => JSON.parse(line))
    : []
const idsOf = (file: string) => linesOf(file).map(row => row['request_id'])

async function redisUrl(t: TestContext): Promise<string> {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  return server.url
}
const sqliteUrl = async () => `sqlite:${path.join(temporary(), 'gateway.db')}`

for (const [engine, urlOf, skip] of [
  ['sqlite', sqliteUrl, false],
  ['redis', redisUrl, skipWithoutRedis],
] as const) {
  const open = async (t: TestContext, more: Parameters<typeof options>[1] = {}) => {
    const url = await urlOf(t)
    const store = await openStore(options(url, { dataDir: temporary(), ...more }))
    t.after(() => store.close())
    return { url, store, dir: path.join(temporary(), 'shipped') }
  }

  test(`${engine}: rows are in the file of their day, once, in the order in which they were booked`, {
    skip,
  }, async t => {
    const { url, store, dir } = await open(t)
    await book(store, names('a', 25))
    await ship(url, dir)
    assert.deepEqual(idsOf(fileOf(dir)), names('a', 25))
    assert.deepEqual(linesOf(fileOf(dir))[0], {
      request_id: 'a-0',
      time: T0,
      organization: 'acme',
      key_id: 'key_ci',
      surface: 'responses',
      model: 'eb1-preview',
      provider: 'local',
      input: 120,
      cached: 20,
      cache_write: 10,
      output: 30,
      reasoning: 5,
      searches: 1,
      estimated: false,
      cost: 425_000,
      price_book: '2026-11',
      billing: 'standard',
      outcome: 'completed',
      duration_ms: 1234.5,
      ttfb_ms: 210.25,
      bytes_in: null,
      bytes_out: null,
      input_tokens: 120,
      tags: '',
      ...PROVIDER_SIDE,
    })
    // Late rows: booked after others that are newer by their time, as from the journal of a dead process.
    await book(store, names('late', 3), T0 - DAY)
    await book(store, names('b', 12))
    await ship(url, dir)
    await ship(url, dir)
    assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 25), ...names('b', 12)])
    assert.deepEqual(idsOf(fileOf(dir, T0 - DAY)), names('late', 3))
  })

  test(`${engine}: what a crash left behind the position is cut off, and written again`, { skip }, async t => {
    const { url, store, dir } = await open(t)
    await book(store, names('a', 5))
    await ship(url, dir)
    const before = fs.readFileSync(path.join(dir, 'position.json'))
    await book(store, names('b', 5))
    await book(store, names('c', 2), T0 + DAY)
    await ship(url, dir)
    // A crash before the position was replaced, in the middle of a line.
    fs.writeFileSync(path.join(dir, 'position.json'), before)
    const whole = fs.readFileSync(fileOf(dir))
    fs.writeFileSync(fileOf(dir), whole.subarray(0, whole.length - 40))
    await ship(url, dir)
    assert.deepEqual(fs.readFileSync(fileOf(dir)), whole)
    assert.deepEqual(idsOf(fileOf(dir, T0 + DAY)), names('c', 2))
  })

  test(`${engine}: without its position, a folder gets only the rows that it does not have`, { skip }, async t => {
    const { url, store, dir } = await open(t)
    await book(store, names('a', 25))
    await ship(url, dir)
    fs.rmSync(path.join(dir, 'position.json'))
    fs.appendFileSync(fileOf(dir), '{"request_id":"torn')
    await book(store, names('b', 25))
    await ship(url, dir)
    await ship(url, dir)
    assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 25), ...names('b', 25)])
  })

  test(`${engine}: two shippers of one folder take turns`, { skip }, async t => {
    const { url, store, dir } = await open(t)
    await book(store, names('a', 95))
    await Promise.all([ship(url, dir), ship(url, dir), ship(url, dir)])
    assert.deepEqual(idsOf(fileOf(dir)), names('a', 95))
  })

  test(`${engine}: two stores fill one folder`, { skip }, async t => {
    const one = await open(t)
    const two = await open(t)
    await book(one.store, names('a', 15))
    await book(two.store, names('b', 15))
    for (const { url } of [one, two, one]) await ship(url, one.dir)
    await book(one.store, names('c', 15))
    for (const { url } of [one, two]) await ship(url, one.dir)
    assert.deepEqual(idsOf(fileOf(one.dir)), [...names('a', 15), ...names('b', 15), ...names('c', 15)])
  })

  test(`${engine}: a follower ships new rows; a target that is out is told of, and tried again`, { skip }, async t => {
    const { url, store, dir } = await open(t)
    fs.writeFileSync(dir, 'a file, where the folder should be')
    const log = recordingLog()
    let status: ShipStatus | undefined
    const follower = new Follower({
      store: url,
      to: `file:${dir}`,
      interval: 20,
      holder: 'one',
      clock: systemClock,
      log,
      onStatus: next => (status = next),
    })
    t.after(() => follower.stop())
    await book(store, names('a', 3))
    await eventually(
      () => status?.lag?.rows === 3 && status.failure !== null,
      () => status,
    )
    assert.match(status!.failure!, /EEXIST|ENOTDIR/)
    assert.match(status!.failure!, /; name a folder$/)
    assert.equal(status!.lag!.oldest, T0)
    assert.deepEqual(
      log.lines.map(({ message }) => message),
      ['the ledger is not shipped; it is tried again'],
    )
    fs.rmSync(dir)
    await eventually(
      () => status!.shipped === 3 && status!.lag!.rows === 0,
      () => status,
    )
    await book(store, names('b', 3))
    await eventually(
      () => status!.shipped === 6,
      () => status,
    )
    assert.deepEqual([status!.failure, log.lines.at(-1)!.message], [null, 'the ledger is shipped again'])
    assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 3), ...names('b', 3)])
  })
}

test('files: a disk that is full in the middle of a line is told with its cure, and nothing is doubled', async t => {
  const url = await sqliteUrl()
  const store = await openStore(options(url))
  t.after(() => store.close())
  const dir = temporary()
  await book(store, names('a', 5))
  await ship(url, dir)
  await book(store, names('b', 5))
  const write = fs.writeSync
  let writes = 0
  const full = t.mock.method(fs, 'writeSync', ((fd: number, bytes: Buffer, offset: number, _: number, at: number) => {
    if (writes++ === 0) return write(fd, bytes, offset, 700, at)
    throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  }) as typeof fs.writeSync)
  await assert.rejects(ship(url, dir), /^Error: file:.*ENOSPC.*; free space on its disk$/)
  full.mock.restore()
  assert.ok(writes > 1)
  await ship(url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 5), ...names('b', 5)])
})

test('sqlite: a rowid that is given again does not hide its row', async t => {
  // SQLite takes the rowid after the highest one. When the newest rows are deleted (here by hand, or a backup is
  // restored), the rows that come next have rowids that were shipped already, and a position of a number alone would
  // pass them over.
  const url = await sqliteUrl()
  const store = await openStore(options(url))
  t.after(() => store.close())
  const dir = temporary()
  await book(store, names('a', 25))
  await ship(url, dir)
  const db = new DatabaseSync(url.slice('sqlite:'.length))
  db.exec("DELETE FROM ledger WHERE request_id IN ('a-22', 'a-23', 'a-24')")
  db.close()
  await book(store, names('b', 4))
  await ship(url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 25), ...names('b', 4)])
  // Nor when all of them are.
  const again = new DatabaseSync(url.slice('sqlite:'.length))
  again.exec('DELETE FROM ledger')
  again.close()
  await ship(url, dir)
  await book(store, names('c', 4))
  await ship(url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 25), ...names('b', 4), ...names('c', 4)])
})

test('redis: a stream that lost its last entries is read again', { skip: skipWithoutRedis }, async t => {
  // A failover may lose what no replica had. The journals append it again, under new ids, which may be lower than the
  // position when the clock of the new master is behind.
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const store = await openStore(options(server.url, { dataDir: temporary() }))
  t.after(() => store.close())
  const dir = temporary()
  await book(store, names('a', 5))
  const lost = await server.reply('XREVRANGE', 'sluice:ledger', '+', '-', 'COUNT', 1)
  const id = /\d+-\d+/.exec(lost)![0]
  await book(store, ['far'])
  const far = `${Number(id.split('-')[0]) + 86_400_000}-0`
  await server.command('XADD', 'sluice:ledger', far, 'request_id', 'z', 'time', T0)
  await ship(server.url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 5), 'far', 'z'])
  // As the new master has it: without the last entry, and with ids that go on from there.
  await server.command('XDEL', 'sluice:ledger', far)
  await server.command('XSETID', 'sluice:ledger', id)
  await server.command('DEL', 'sluice:ledger')
  await book(store, [...names('a', 5), ...names('b', 5)])
  await ship(server.url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 5), 'far', 'z', ...names('b', 5)])
})

test('redis: of several followers one ships, and another one goes on', { skip: skipWithoutRedis }, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const store = await openStore(options(server.url, { dataDir: temporary() }))
  t.after(() => store.close())
  const dir = temporary()
  const states: (ShipStatus | undefined)[] = [undefined, undefined]
  const followers = states.map(
    (_, i) =>
      new Follower({
        store: server.url,
        to: `file:${dir}`,
        interval: 10,
        holder: `f${i}`,
        clock: systemClock,
        log: silent,
        onStatus: next => (states[i] = next),
      }),
  )
  t.after(() => Promise.all(followers.map(follower => follower.stop())))
  await eventually(() => states.every(state => state !== undefined))
  await book(store, names('a', 5))
  await eventually(() => states.some(state => state!.shipped === 5))
  assert.deepEqual(states.map(state => state!.leading).sort(), [false, true])
  const first = states.findIndex(state => state!.leading)
  await followers[first]!.stop()
  await book(store, names('b', 5))
  await eventually(
    () => states[1 - first]!.shipped === 5,
    () => states,
  )
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 5), ...names('b', 5)])
})

test('sqlite: retention leaves rows that were not shipped, up to keep_unshipped', async t => {
  const url = await sqliteUrl()
  const file = url.slice('sqlite:'.length)
  const dir = temporary()
  const target = `file:${dir}`
  const store = await openStore(options(url))
  await book(store, names('a', 10))
  await ship(url, dir)
  await book(store, names('b', 10), T0 + 1)
  await store.close()
  const db = new DatabaseSync(file)
  t.after(() => db.close())
  const left = () =>
    db
      .prepare('SELECT request_id AS id FROM ledger ORDER BY rowid')
      .all()
      .map(row => row['id'])
  const sweep = (keepUnshipped: number | null, now: number, to = target) => {
    const caps = { idempotencyBytes: 1e6, recordBytes: 1e6, valueBytes: 1e6, share: 1, ledgerKeep: 1000 }
    new Tables(db, { ...caps, ship: { target: to, keepUnshipped } }).apply([{ op: 'sweep', now }])
    return left()
  }
  // Nothing was shipped to another target.
  assert.equal(sweep(null, T0 + DAY, 'file:/elsewhere').length, 20)
  // The last row that was shipped stays, too.
  assert.deepEqual(sweep(null, T0 + DAY), ['a-9', ...names('b', 10)])
  assert.deepEqual(sweep(DAY, T0 + DAY), ['a-9', ...names('b', 10)])
  assert.deepEqual(sweep(DAY, T0 + 1 + DAY), names('b', 10))
  assert.deepEqual(sweep(0, T0 + DAY), [])
})

test('redis: retention leaves rows that were not shipped, up to keep_unshipped', {
  skip: skipWithoutRedis,
}, async t => {
  const server = await RedisServer.start(['--stream-node-max-entries', '1'])
  t.after(() => server.stop())
  const dir = temporary()
  const target = `file:${dir}`
  const clock = { ...systemClock, now: () => systemClock.now() + ahead }
  let ahead = 0
  const book1 = async (keepUnshipped: number | null, ids: readonly string[]) => {
    const ship = { target, keepUnshipped }
    const store = await openStore(options(server.url, { dataDir: temporary(), ledgerKeep: 1000, clock, ship }))
    await book(store, ids)
    await store.close()
    const reply = await server.command('XLEN', 'sluice:ledger')
    return Number(reply.slice(1))
  }
  assert.equal(await book1(null, names('a', 10)), 10)
  ahead = DAY
  assert.equal(await book1(null, ['b']), 11)
  await ship(server.url, dir)
  // Trimmed up to the last row that was shipped.
  assert.equal(await book1(null, ['c']), 2)
  assert.equal(await book1(2 * DAY, ['d']), 3)
  ahead = 3 * DAY
  assert.equal(await book1(2 * DAY, ['e']), 0)
  await ship(server.url, dir)
  assert.deepEqual(idsOf(fileOf(dir)), [...names('a', 10), 'b'])
})

test('a row with texts that no database takes holds nothing up', async () => {
  const { shipRow } = await import('../../stores/ship/ship.ts')
  const { usage, ...rest } = outcome('r\0', { provider: 'a\ud800' })
  const row = JSON.parse(shipRow({ ...intent('r\0'), ...rest, ...usage }).json)
  assert.deepEqual([row.request_id, row.provider], ['r', 'a\ufffd'])
})

test('targets: a name without the password; what is none is refused', async () => {
  assert.equal(
    nameOfTarget('postgres://me:secret@db:5433/billing?sslmode=verify-full'),
    'postgres://me@db:5433/billing',
  )
  assert.equal(nameOfTarget('postgresql:///billing?host=/run/postgresql'), 'postgres:///run/postgresql/billing')
  assert.throws(() => nameOfTarget('kafka://x'), ShipError)
  assert.throws(
    () => nameOfTarget('postgres://me:sec ret@[/x'),
    (error: Error) => !error.message.includes('sec'),
  )
  await assert.rejects(openTarget('mysql://x'), Error)
})
