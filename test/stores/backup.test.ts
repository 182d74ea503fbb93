/** `sluice store backup` and `restore`: a store as one file, from any engine and into any. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { after, before, type TestContext, test } from 'node:test'
import { Redis } from 'ioredis'
import type { Store } from '../../core/ports/store.ts'
import { type Clock, systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { LocalServer } from '../../stores/local.ts'
import { type BackupOptions, backup, restore } from '../../stores/move/backup.ts'
import { openRedisEnd } from '../../stores/move/redis.ts'
import { folder, sluice, YAML } from '../cli/capture.ts'
import { booksOf, fill, note, ORGS } from './books.ts'
import { bucket, DAY, intent, options, outcome, spend, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis
let server: RedisServer
before(async () => {
  if (!skip) server = await RedisServer.start()
})
after(() => server?.stop())

interface Times {
  organization: string
  first: number
  last: number
}

let database = 0
const newRedis = () => server.url.replace(/0$/, String(++database))
const newFile = () => `sqlite:${path.join(temporary(), 'gateway.db')}`
const newBackup = () => path.join(temporary(), 'backup.db')
const of = (store: string, file: string, more: Partial<BackupOptions> = {}): BackupOptions => ({
  ...{ store, file, maxMemory: null, tell() {}, progress() {} },
  ...more,
})
const open = (t: TestContext, url: string): Promise<Store> =>
  openStore(options(url, { dataDir: temporary() })).then(store => {
    t.after(() => store.close())
    return store
  })

for (const [from, to] of [
  ['SQLite', 'SQLite'],
  ['SQLite', 'Redis'],
  ['Redis', 'SQLite'],
  ['Redis', 'Redis'],
] as const) {
  const needs = from === 'Redis' || to === 'Redis' ? skip : false
  const urlOf = (engine: string) => (engine === 'Redis' ? newRedis() : newFile())

  test(`a backup of ${from}, made while it is used, restores everything into ${to}`, { skip: needs }, async t => {
    const [store, other, file] = [urlOf(from), urlOf(to), newBackup()]
    const source = await open(t, store)
    await fill(source)
    const books = await booksOf(source)
    const made = await backup(of(store, file))
    assert.equal(fs.statSync(file).mode & 0o777, 0o600)
    assert.deepEqual(fs.readdirSync(path.dirname(file)), ['backup.db'])
    assert.equal(made.content.ledger.count, 60)
    // What happens later is not in it, and the backup serves more than once.
    await source.ledger.intent(intent('later', { organization: 'acme' }))
    await source.ledger.outcome(outcome('later', { cost: 5 }))
    await source.ledger.flush()
    const bytes = fs.readFileSync(file)
    for (const target of [other, urlOf(to)]) {
      const restored = await restore(of(target, file))
      assert.deepEqual(
        Object.entries(restored.content).map(([name, { count, sum }]) => [name, count, sum]),
        Object.entries(made.content).map(([name, { count, sum }]) => [name, count, sum]),
      )
      const there = await open(t, target)
      assert.deepEqual(await booksOf(there), books)
    }
    assert.ok(bytes.equals(fs.readFileSync(file)))
  })
}

/**
 * A backup of a running gateway had the levels that it had written last, up to a second before, and those of requests
 * that came together were missing for longer while its disk was slow. Here it writes none at all.
 */
test('a backup of SQLite has rows and levels that the gateway has not written yet, and no running request', async t => {
  const [url, file, other] = [newFile(), newBackup(), newFile()]
  // Nothing is written by a timer.
  const clock: Clock = { ...systemClock, setTimer: () => ({ cancel() {} }) }
  const open = (url: string) =>
    openStore(options(url, { clock })).then(store => {
      t.after(() => store.close())
      return store
    })
  const store = await open(url)
  const cells = [bucket('o:rpm', 30), bucket('o:tpd', 1e6, DAY, 'tokens'), spend('o:day', 1e12)]
  const now = systemClock.now()
  for (const id of ['done', 'running']) {
    await store.limits.admit({ org: 'acme', id, cells, amounts: [1, 500, 9], now })
    await store.ledger.intent(intent(id, { organization: 'acme', time: now }))
    if (id === 'running') continue
    store.limits.settle('acme', id, [1, 400, 7], now)
    await store.ledger.outcome(outcome(id, { cost: 7 }))
  }
  const db = new DatabaseSync(url.slice('sqlite:'.length), { readOnly: true })
  t.after(() => db.close())
  const rows = (of: DatabaseSync) => of.prepare('SELECT request_id, outcome FROM ledger').all().map(Object.values)
  const levels = (of: DatabaseSync) =>
    of.prepare('SELECT cell, used FROM levels ORDER BY cell').all().map(Object.values)
  assert.deepEqual([rows(db), levels(db)], [[], []])
  const { content, read } = await backup(of(url, file))
  assert.deepEqual([content.ledger.count, content.levels.count, content.levels.sum], [1, 2, 401n])
  assert.ok(read !== null && read.first === read.last && read.first >= now)
  await restore(of(other, file))
  const there = new DatabaseSync(other.slice('sqlite:'.length), { readOnly: true })
  t.after(() => there.close())
  assert.deepEqual(rows(there), [['done', 'completed']])
  const left = (await (await open(other)).limits.peek('acme', cells, now)).map(({ remaining }) => remaining)
  assert.deepEqual(left, [29, 999_600, 1e12 - 7])
})

/**
 * SQLite begins its copy anew when somebody else commits between two of its steps. A database of more than one step beside
 * a busy gateway was never copied.
 */
test('a backup of SQLite ends although something is committed between any two steps of the copy', async t => {
  const [url, file] = [newFile(), newBackup()]
  const store = await open(t, url)
  await store.accounts.note(note('first'))
  const db = new DatabaseSync(url.slice('sqlite:'.length))
  t.after(() => db.close())
  db.exec('PRAGMA busy_timeout = 5000; CREATE TABLE padding (x BLOB)')
  // Three steps of 16 MB.
  for (let i = 0; i < 40; i++) db.exec('INSERT INTO padding VALUES (zeroblob(1000000))')
  let commits = 0
  const each = () => {
    db.exec('INSERT INTO padding VALUES (zeroblob(10))')
    assert.ok(++commits < 50, 'the copy begins again and again')
  }
  await backup(of(url, file, { step: each }))
  assert.ok(commits >= 2)
})

test('a backup says when it was read, organization by organization', { skip }, async t => {
  const [store, file, other] = [newRedis(), newBackup(), newFile()]
  const source = await open(t, store)
  await fill(source)
  const before = systemClock.now()
  const { read } = await backup(of(store, file))
  const after = systemClock.now()
  const db = new DatabaseSync(file, { readOnly: true })
  const copied = db.prepare('SELECT * FROM copied ORDER BY organization').all() as unknown as Times[]
  db.close()
  assert.deepEqual(
    copied.map(({ organization }) => organization),
    ['', ...ORGS],
  )
  for (const { first, last } of copied) assert.ok(Math.floor(before) <= first && first <= last && last <= after)
  assert.deepEqual(read, { first: copied[0]!.first, last: copied[0]!.last })
  // It is of the backup, and not of the store.
  assert.deepEqual((await restore(of(other, file))).read, read)
  const there = new DatabaseSync(other.slice('sqlite:'.length), { readOnly: true })
  assert.equal(there.prepare("SELECT count(*) AS n FROM sqlite_schema WHERE name = 'copied'").get()!['n'], 0)
  there.close()
})

test('a backup of Redis under load: its sums are those of its rows', { skip }, async t => {
  const [store, file, other] = [newRedis(), newBackup(), newFile()]
  const source = await open(t, store)
  await fill(source)
  let n = 0
  const book = async () => {
    const id = `busy_${n++}`
    await source.ledger.intent(intent(id, { organization: 'acme', time: systemClock.now() }))
    await source.ledger.outcome(outcome(id, { cost: 7, tags: '{"team":"busy"}' }))
    await source.ledger.flush()
  }
  // A row between any two batches.
  const waits: Promise<void>[] = []
  await backup(of(store, file, { progress: () => void waits.push(book()) }))
  await Promise.all(waits)
  assert.ok(n > 5)
  await restore(of(other, file))
  const db = new DatabaseSync(other.slice('sqlite:'.length), { readOnly: true })
  t.after(() => db.close())
  const row = (text: string) => Object.values(db.prepare(text).get()!)
  assert.deepEqual(row('SELECT sum(requests), sum(cost) FROM usage'), row('SELECT count(*), sum(cost) FROM ledger'))
  assert.deepEqual(
    row(`SELECT sum(requests), sum(cost) FROM tagged WHERE tag = 'team' AND value = 'busy'`),
    row(`SELECT count(*), sum(cost) FROM ledger WHERE tags = '{"team":"busy"}'`),
  )
})

// Its own server was to be started beside that of the gateway, and the folder was in use.
test('a local store is copied beside its gateway, which goes on', { skip }, async t => {
  const [folder, file, other] = [temporary(), newBackup(), newFile()]
  const url = `local:${folder}`
  const server = await LocalServer.start({ url, maxMemory: null, tell: () => {} })
  t.after(() => server.stop())
  const store = await open(t, url)
  const book = async (id: string) => {
    await store.ledger.intent(intent(id, { organization: 'acme' }))
    await store.ledger.outcome(outcome(id, { cost: 7 }))
    await store.ledger.flush()
  }
  await book('before')
  const { content } = await backup(of(url, file))
  assert.equal(content.ledger.count, 1)
  await book('after')
  assert.deepEqual(
    (await store.ledger.query({})).map(row => row.request_id),
    ['before', 'after'],
  )
  await restore(of(other, file))
  assert.deepEqual(
    (await (await open(t, other)).ledger.query({})).map(row => row.request_id),
    ['before'],
  )
  // A restore wants the store for itself.
  await assert.rejects(restore(of(url, file)), /in use by another gateway/)
})

test('what is in the way is named, with its cure, and nothing is changed', async () => {
  const [store, file] = [newFile(), newBackup()]
  const refused = (work: Promise<unknown>, words: RegExp) => assert.rejects(work, words)
  await refused(backup(of(store, file)), /there is no database/)
  await refused(backup(of('sqlite::memory:', file)), /in memory has no backup/)
  const source = await openStore(options(store))
  await fill(source)
  await refused(backup(of(store, path.join(temporary(), 'none', 'b.db'))), /there is no folder/)
  await backup(of(store, file))
  await refused(backup(of(store, file)), /exists already; name another file/)
  await refused(restore(of(store, file)), /a gateway uses .*gateway\.db; stop it first/)
  await source.close()
  const before = fs.readFileSync(store.slice('sqlite:'.length))
  await refused(restore(of(store, file)), /has rows in its table organizations: .*an empty store/)
  await refused(restore(of(`sqlite:${file}`, file)), /is the store itself/)
  assert.ok(before.equals(fs.readFileSync(store.slice('sqlite:'.length))))
  await refused(restore(of(newFile(), path.join(temporary(), 'none.db'))), /there is no file/)

  // The old database was moved away, and what SQLite would play into the new one was left.
  const other = newFile()
  fs.writeFileSync(`${other.slice('sqlite:'.length)}-wal`, 'x')
  await refused(restore(of(other, file)), /-wal belongs to a database that is not there any more/)

  const damaged = newBackup()
  const bytes = fs.readFileSync(file)
  bytes.fill(0xff, 8192, 40_000)
  fs.writeFileSync(damaged, bytes)
  const target = newFile()
  await refused(restore(of(target, damaged)), /damaged|cannot be copied|malformed/)
  assert.ok(!fs.existsSync(target.slice('sqlite:'.length)) || (await restore(of(target, file))))
  fs.writeFileSync(damaged, 'no database')
  await refused(restore(of(newFile(), damaged)), /cannot|not a database/)
})

test('a backup that is copied over a database whose log was left does not open; the log of its own is played', async t => {
  const dir = temporary()
  const [file, kept] = [path.join(dir, 'gateway.db'), path.join(dir, 'kept')]
  const wal = `${file}-wal`
  const copy = newBackup()
  const url = `sqlite:${file}`
  const first = await openStore(options(url))
  await fill(first)
  await backup(of(url, copy))
  await first.ledger.intent(intent('later', { organization: 'acme' }))
  await first.ledger.outcome(outcome('later', { cost: 5 }))
  await first.ledger.flush()
  // What a process that is killed leaves.
  fs.mkdirSync(kept)
  for (const end of ['', '-wal', '.lock']) fs.copyFileSync(file + end, path.join(kept, `gateway.db${end}`))
  await first.close()
  const put = (...ends: string[]) => {
    for (const end of ['', '-wal', '-shm', '.lock']) fs.rmSync(file + end, { force: true })
    for (const end of ends) fs.copyFileSync(path.join(kept, `gateway.db${end}`), file + end)
  }
  put('', '-wal', '.lock')
  assert.ok(fs.statSync(wal).size > 0)
  const again = await openStore(options(url))
  assert.equal((await again.ledger.query({})).length, 61)
  await again.close()

  put('', '-wal', '.lock')
  fs.copyFileSync(copy, file)
  await assert.rejects(openStore(options(url)), /is not the database to which .*gateway\.db-wal belongs/)
  fs.rmSync(wal)
  const restored = await open(t, url)
  assert.equal((await restored.ledger.query({})).length, 60)
})

test('a restore into Redis that was stopped begins anew', { skip }, async t => {
  const [store, file, other] = [newFile(), newBackup(), newRedis()]
  const source = await openStore(options(store))
  await fill(source)
  const books = await booksOf(source)
  await source.close()
  await backup(of(store, file))
  const stop = new AbortController()
  const stopping = restore(
    of(other, file, { progress: count => void (count > 30 && stop.abort()), signal: stop.signal }),
  )
  await assert.rejects(stopping, /stopped; nothing was changed/)
  // As when the process was killed before it could clean up.
  const end = await openRedisEnd(other, null, () => {})
  assert.equal(await end.content(), null)
  await end.setMark({ state: 'filling', other: `sqlite:${file}` })
  await end.close()
  await restore(of(other, file))
  assert.deepEqual(await booksOf(await open(t, other)), books)
})

/**
 * A Redis with `appendonly yes` ignores a `dump.rdb`, and starts empty. Gateways served from it as if it were new, without
 * keys, spend and ledger, and /readyz said `ready`.
 */
test('no gateway starts on a Redis whose data is gone, until it is restored or given up', { skip }, async t => {
  const [url, file, dataDir] = [newRedis(), newBackup(), temporary()]
  const warned: string[] = []
  const log = { debug() {}, info() {}, warn: (_: object, text: string) => void warned.push(text), error() {} }
  const start = () => openStore(options(url, { dataDir, log }))
  const first = await start()
  await fill(first)
  const books = await booksOf(first)
  await backup(of(url, file))
  await first.close()
  await (await start()).close()
  assert.deepEqual(warned, [])

  const lost = async () => {
    const redis = new Redis(url)
    await redis.flushdb()
    redis.disconnect()
  }
  await lost()
  await assert.rejects(start(), /the data in redis:.* is gone: .*ignores a dump\.rdb.*store restore.*remove .*\.store/)
  // Another machine has never used it.
  await (await open(t, url)).close()
  await lost()
  await restore(of(url, file))
  const restored = await start()
  assert.deepEqual(warned, ['the store has other data than before'])
  assert.deepEqual(await booksOf(restored), books)
  await restored.close()

  await lost()
  const message = await start().then(
    () => '',
    (error: Error) => error.message,
  )
  fs.rmSync(/remove (\S+\.store)$/.exec(message)![1]!)
  await (await start()).close()
  await (await start()).close()
})

// It was remembered in the working directory alone, so a start from another folder did not know of it.
test('which data was there is remembered beside the configuration, too, and a folder that cannot be written is none', {
  skip,
}, async () => {
  const [url, configDir, before, after, none] = [
    newRedis(),
    path.join(temporary(), 'data'),
    temporary(),
    temporary(),
    temporary(),
  ]
  const start = (dataDir: string, beside = configDir) => openStore(options(url, { dataDir, configDir: beside }))
  const remembered = (dir: string) => fs.readdirSync(dir).filter(name => name.endsWith('.store')).length
  // As an earlier release left it; the start of this one takes it over.
  await (await openStore(options(url, { dataDir: before }))).close()
  await (await start(before)).close()
  assert.deepEqual([remembered(before), remembered(configDir)], [1, 1])
  fs.writeFileSync(path.join(none, 'file'), '')
  await (await start(none, path.join(none, 'file', 'data'))).close()
  assert.equal(remembered(none), 1)

  const redis = new Redis(url)
  await redis.flushdb()
  redis.disconnect()
  const [name] = fs.readdirSync(configDir)
  await assert.rejects(start(after), new RegExp(`is gone: .* remove ${path.join(configDir, name!)}$`))
  await assert.rejects(
    start(before),
    new RegExp(`remove ${path.join(configDir, name!)} and ${path.join(before, name!)}$`),
  )
  for (const dir of [configDir, before]) fs.rmSync(path.join(dir, name!))
  await (await start(before)).close()
})

/**
 * Once a gateway of a new machine had begun with nothing on a Redis that was empty, the machines that knew the lost data
 * started there too, with no more than a warning.
 */
test('no gateway starts on data that another machine has begun, until it is restored or taken', { skip }, async () => {
  const [url, file] = [newRedis(), newBackup()]
  const [mine, other] = [temporary(), temporary()]
  const start = (dataDir: string) => openStore(options(url, { dataDir }))
  const first = await start(mine)
  await fill(first)
  const books = await booksOf(first)
  await backup(of(url, file))
  await first.close()
  const lost = async () => {
    const redis = new Redis(url)
    await redis.flushdb()
    redis.disconnect()
  }
  await lost()
  await (await start(other)).close()
  await (await start(other)).close()
  const refused = /the data in redis:.* is not that with .*another one has begun.*store restore.*remove \S+\.store$/
  await assert.rejects(start(mine), refused)
  await assert.rejects(start(mine), refused, 'a refusal does not make it known')
  // What a restore brings, all machines take: each for the first time, and again.
  await lost()
  await restore(of(url, file))
  for (const dir of [mine, other, mine, other]) {
    const store = await start(dir)
    assert.deepEqual(await booksOf(store), books)
    await store.close()
  }
  // It is not taken for restored when it is lost after that.
  await lost()
  await (await start(temporary())).close()
  const message = await start(mine).then(
    () => '',
    (error: Error) => error.message,
  )
  assert.match(message, refused)
  fs.rmSync(/remove (\S+\.store)$/.exec(message)![1]!)
  await (await start(mine)).close()
})

test('the commands say what they did, and what they need', async t => {
  const { dir, file } = folder(t)
  const at = `sqlite:${dir}/gateway.db`
  fs.writeFileSync(file, YAML.replace('sqlite::memory:', at))
  const copy = path.join(dir, 'copy.db')
  const early = await sluice('store', 'backup', copy, '--config', file)
  assert.equal(early.code, 1)
  assert.match(early.err, /there is no database/)
  const store = await openStore(options(at))
  await fill(store)
  const { code, out } = await sluice('store', 'backup', copy, '--config', file)
  assert.equal(code, 0)
  assert.match(out, /^Copied from sqlite:.*gateway\.db to .*copy\.db, and read again there:/)
  assert.match(out, /^It is the state of \d{4}-\d\d-\d\dT[\d:.]+Z\.$/m)
  assert.match(out, /notices of spend +2/)
  assert.match(out, /rows of the ledger +60 +1\.44\d+ USD|rows of the ledger +60 /)
  await store.close()
  fs.writeFileSync(file, YAML.replace('sqlite::memory:', `sqlite:${dir}/other.db`))
  const restored = await sluice('store', 'restore', copy, '--config', file)
  assert.equal(restored.code, 0)
  assert.match(restored.out, /Restored from .*copy\.db to sqlite:.*other\.db.*Start the gateways\./s)
  for (const [args, words] of [
    [['store'], /backup, restore or move\?/],
    [['store', 'copy'], /there is no 'store copy'/],
    [['store', 'backup'], /needs the file to write/],
    [['store', 'restore'], /needs the file of the backup/],
    [['store', 'backup', 'x', '--cancel'], /options of 'store move'/],
  ] as const) {
    const { code, err } = await sluice(...args)
    assert.equal(code, 2)
    assert.match(err, words)
  }
})
