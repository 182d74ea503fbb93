/** A sentinel failover: the master is killed, a replica takes over, and the store goes on without a restart. */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { systemClock } from '../../core/clock.ts'
import { StoreUnavailable } from '../../core/store.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { bucket, intent, outcome, recordingLog, slots, T0, temporary, until } from './kit.ts'
import { freePort, RedisServer, skipWithoutRedis } from './redis-server.ts'

test('a failover refuses for a while, then the replica has limits and ledger', { skip: skipWithoutRedis }, async t => {
  const master = await RedisServer.start()
  const replica = await RedisServer.start(['--replicaof', '127.0.0.1', String(master.port)])
  const port = await freePort()
  const config = path.join(temporary(), 'sentinel.conf')
  fs.writeFileSync(
    config,
    [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 500',
      'sentinel failover-timeout mymaster 3000',
      'sentinel parallel-syncs mymaster 1',
      '',
    ].join('\n'),
  )
  const sentinel = await RedisServer.startSentinel(config, port)
  t.after(() => Promise.all([sentinel.stop(), master.stop(), replica.stop()]))
  // The sentinel learns of the replica from the master's INFO.
  await until(async () => (await replica.info('replication')).includes('master_link_status:up'), 8000)
  await until(async () => /num-slaves\r\n\$1\r\n1/.test(await sentinel.reply('SENTINEL', 'MASTER', 'mymaster')), 12_000)

  const store = await openRedisStore({
    url: `redis+sentinel://127.0.0.1:${port}/mymaster`,
    timeout: 300,
    instance: 'sentinel-test',
    clock: systemClock,
    log: recordingLog(),
    ledgerKeep: null,
    maxRecord: 1e6,
    maxTotal: 1e9,
    dataDir: temporary(),
    leaseTimes: { ttl: 9000, every: 200 },
  })
  t.after(() => store.close())
  const cells = [bucket('o:rpm', 10), slots('o:conc', 5)]
  for (const id of ['a', 'b'])
    assert.equal((await store.limits.admit({ org: 'acme', id, cells, amounts: [1, 1], now: T0 })).admitted, true)
  store.ledger.intent(intent('a'))
  // What the master had must have reached the replica; replication is asynchronous.
  await until(
    async () => (await replica.info('keyspace')).length > 0 && (await offset(master)) === (await offset(replica)),
  )
  await master.down()
  await assert.rejects(
    async () => store.limits.admit({ org: 'acme', id: 'c', cells, amounts: [1, 1], now: T0 }),
    StoreUnavailable,
  )
  store.limits.settle('acme', 'a', [1, 1], T0)
  store.ledger.outcome(outcome('a'))
  await until(async () => (await store.ready()).ok, 15_000)
  await until(() => store.limits.undelivered === 0)
  assert.deepEqual(
    (await store.limits.peek('acme', cells, T0)).map(state => state.remaining),
    [8, 4],
  )
  await store.ledger.flush()
  assert.equal((await store.ledger.query({})).length, 1)
  assert.equal((await store.limits.admit({ org: 'acme', id: 'd', cells, amounts: [1, 1], now: T0 })).admitted, true)
})

async function offset(server: RedisServer): Promise<string> {
  const text = await server.info('replication')
  return /(?:slave_repl_offset|master_repl_offset):(\d+)/.exec(text)![1]!
}
