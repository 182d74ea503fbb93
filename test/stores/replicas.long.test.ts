/**
 * Ledger rows leave the journal when a replica of Redis has them.
 *
 * They left on the word of the master alone: after a failover, rows that no replica had yet were in nobody's hands.
 */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { type TestContext, test } from 'node:test'
import { Redis } from 'ioredis'
import { openRedisStore, type RedisStore } from '../../stores/redis/store.ts'
import { defaultYaml, startGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { intent, outcome, redisOptions, temporary } from './kit.ts'
import {
  addReplica,
  linked,
  RedisServer,
  skipWithoutRedis as skip,
  startCluster,
  startFailoverSet,
  startReplica,
} from './redis-server.ts'

async function open(url: string, more: { dataDir?: string; replicas?: number | 'auto' } = {}): Promise<RedisStore> {
  return openRedisStore(redisOptions(url, { timeout: 5000, leaseTimes: { ttl: 60_000, every: 200 }, ...more }))
}

async function pair(t: TestContext): Promise<{ master: RedisServer; replica: RedisServer }> {
  const master = await RedisServer.start(['--repl-diskless-sync-delay', '0'])
  t.after(() => master.stop())
  const replica = await startReplica(master)
  t.after(() => replica.stop())
  await linked(replica)
  return { master, replica }
}

async function book(store: RedisStore, id: string): Promise<void> {
  await store.ledger.intent(intent(id))
  await store.ledger.outcome(outcome(id))
  await store.ledger.flush()
}
const rowsIn = async (store: RedisStore) => (await store.ledger.query({})).map(row => row.request_id)
/** The request ids that the journals of a folder still hold, and that are not noted as delivered. */
function owed(dataDir: string): string[] {
  const owed = new Set<string>()
  for (const file of fs.globSync(path.join(dataDir, 'journal', '*', '*.log')))
    for (const line of fs.readFileSync(file, 'utf8').split('\n')) {
      const json = line.slice(11)
      if (line[9] === 'o') owed.add((JSON.parse(json) as string[])[0]!)
      if (line[9] === 'd') for (const id of JSON.parse(json) as string[]) owed.delete(id)
    }
  return [...owed]
}

test('rows stay in the journal while the replica is out, and leave when it is back', { skip }, async t => {
  const { master, replica } = await pair(t)
  const store = await open(master.url)
  t.after(() => store.close())
  await book(store, 'a')
  await eventually(() => store.ledger.unreplicated === 0)
  assert.deepEqual(await store.ready(), { ok: true })

  await replica.down()
  for (const id of ['b', 'c']) await book(store, id)
  // Whoever reads the ledger has them; the journal, too.
  assert.deepEqual(await rowsIn(store), ['a', 'b', 'c'])
  assert.equal(store.ledger.unreplicated, 2)
  assert.equal(store.stats().unreplicatedRows, 2)
  assert.deepEqual(await store.ready(), {
    ok: true,
    reason: 'a replica of the store is missing; ledger rows that wait for it in the journal: 2',
  })

  await replica.up()
  await eventually(() => store.ledger.unreplicated === 0)
  assert.deepEqual(await store.ready(), { ok: true })
  assert.deepEqual(await rowsIn(store), ['a', 'b', 'c'])
  const there = new Redis(replica.port)
  assert.equal(await there.xlen('sluice:ledger'), 3)
  there.disconnect()
})

test('a connection that is lost meanwhile: rows are offered again, and are in the stream once', { skip }, async t => {
  const { master, replica } = await pair(t)
  const store = await open(master.url)
  t.after(() => store.close())
  await book(store, 'a')
  await eventually(() => store.ledger.unreplicated === 0)
  await replica.down()
  for (let i = 0; i < 450; i++) {
    void store.ledger.intent(intent(`r${i}`))
    void store.ledger.outcome(outcome(`r${i}`))
  }
  await store.ledger.flush()
  assert.equal(store.ledger.unreplicated, 450)
  const admin = new Redis(master.port)
  await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
  admin.disconnect()
  await eventually(async () => (await store.ready()).ok)
  await book(store, 'z')
  await replica.up()
  await eventually(() => store.ledger.unreplicated === 0 && store.ledger.pending === 0)
  const rows = await rowsIn(store)
  assert.equal(rows.length, 452)
  assert.equal(new Set(rows).size, 452)
})

test('a gateway that is killed meanwhile: the next books its rows once, and keeps them until a replica has them', {
  skip,
}, async t => {
  const { master, replica } = await pair(t)
  const dataDir = temporary()
  const store = await open(master.url, { dataDir })
  t.after(() => store.close())
  await book(store, 'a')
  await eventually(() => store.ledger.unreplicated === 0)
  await replica.down()
  await book(store, 'b')
  assert.deepEqual(owed(dataDir), ['b'])
  // As a kill leaves it: the close keeps what no replica has.
  await store.close()
  assert.deepEqual(owed(dataDir), ['b'])

  const next = await open(master.url, { dataDir, replicas: 1 })
  t.after(() => next.close())
  assert.deepEqual(owed(dataDir), ['b'])
  await replica.up()
  await linked(replica)
  await eventually(() => owed(dataDir).length === 0)
  assert.deepEqual(await rowsIn(next), ['a', 'b'])
})

test('without a replica, or with replicas: 0, none is waited for; with replicas: 1 one is', { skip }, async t => {
  const { master, replica } = await pair(t)
  const none = await open(master.url, { replicas: 0 })
  t.after(() => none.close())
  await replica.down()
  await book(none, 'a')
  assert.equal(none.ledger.unreplicated, 0)
  const auto = await open(master.url)
  t.after(() => auto.close())
  // Redis notices that the replica is gone when it has closed its connection.
  await eventually(async () => (await master.info('replication')).includes('connected_slaves:0'))
  await book(auto, 'b')
  assert.equal(auto.ledger.unreplicated, 0)
  const one = await open(master.url, { replicas: 1 })
  t.after(() => one.close())
  await book(one, 'c')
  assert.equal(one.ledger.unreplicated, 1)
  assert.match((await one.ready()).reason!, /in the journal: 1$/)
})

test('rows that a master took with it are on the next one: they were still in the journal', { skip }, async t => {
  const set = await startFailoverSet()
  t.after(() => set.stop())
  const store = await open(set.url)
  t.after(() => store.close())
  await book(store, 'a')
  await eventually(() => store.ledger.unreplicated === 0)
  // Both replicas stand still: what the master takes now, it has alone.
  for (const replica of set.replicas) replica.freeze()
  for (const id of ['b', 'c']) await book(store, id)
  assert.deepEqual(await rowsIn(store), ['a', 'b', 'c'])
  assert.equal(store.ledger.unreplicated, 2)
  await set.master.down()
  for (const replica of set.replicas) replica.thaw()
  await eventually(async () => (await store.ready()).ok && store.ledger.pending + store.ledger.unreplicated === 0)
  assert.deepEqual((await rowsIn(store)).sort(), ['a', 'b', 'c'])
})

test('on a cluster, the replica of the node that has the ledger is asked', { skip }, async t => {
  const nodes = await startCluster(t)
  const replica = await addReplica(t, nodes, 'sluice:ledger')
  const store = await open(`redis+cluster://${nodes.map(node => `127.0.0.1:${node.port}`).join(',')}`)
  t.after(() => store.close())
  await eventually(async () => (await store.ready()).ok)
  await book(store, 'a')
  await eventually(() => store.ledger.unreplicated === 0)
  replica.freeze()
  await book(store, 'b')
  assert.equal(store.ledger.unreplicated, 1)
  assert.match((await store.ready()).reason!, /in the journal: 1$/)
  replica.thaw()
  await eventually(() => store.ledger.unreplicated === 0)
  assert.deepEqual(await rowsIn(store), ['a', 'b'])
})

test('/readyz says that rows wait for a replica, and stays 200', { skip }, async t => {
  const { master, replica } = await pair(t)
  const home = process.cwd()
  // A gateway keeps its journal in ./data.
  process.chdir(temporary())
  t.after(() => process.chdir(home))
  const gateway = await startGateway({
    yaml: sim => defaultYaml(sim, { store: `{ url: "${master.url}", timeout: 10s }` }),
  })
  t.after(() => gateway.close())
  const chat = { model: 'eb1-preview', messages: [{ role: 'user', content: 'Hi' }] }
  const ask = async () => {
    const reply = await gateway.post('/v1/chat/completions', chat)
    await reply.text()
    assert.equal(reply.status, 200)
    await gateway.gateway.store.ledger.flush()
  }
  const readyz = async () => {
    const reply = await fetch(`${gateway.gateway.adminAddress}/readyz`)
    return `${reply.status} ${await reply.text()}`
  }
  await ask()
  await eventually(async () => (await readyz()) === '200 ready\n')
  await replica.down()
  await ask()
  assert.equal(
    await readyz(),
    '200 ready\na replica of the store is missing; ledger rows that wait for it in the journal: 1\n',
  )
  await replica.up()
  await eventually(async () => (await readyz()) === '200 ready\n')
})
