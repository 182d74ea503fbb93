/** `sluice store backup` and `restore`: a store as one file, from any engine and into any. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { after, before, type TestContext, test } from 'node:test'
import type { Store } from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { type BackupOptions, backup, restore } from '../../stores/move/backup.ts'
import { openRedisEnd } from '../../stores/move/redis.ts'
import { folder, sluice, YAML } from '../cli/capture.ts'
import { booksOf, fill } from './books.ts'
import { intent, options, outcome, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis
let server: RedisServer
before(async () => {
  if (!skip) server = await RedisServer.start()
})
after(() => server?.stop())

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
    // An embedded store writes levels of buckets now and then, and the journal has the rest.
    const comparable = ({ ofUsers, ...books }: Awaited<ReturnType<typeof booksOf>>) =>
      from === 'SQLite' ? books : { ...books, ofUsers }
    const books = comparable(await booksOf(source))
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
      assert.deepEqual(comparable(await booksOf(there)), books)
    }
    assert.ok(bytes.equals(fs.readFileSync(file)))
  })
}

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
