/** A sentinel failover: the master is killed, a replica takes over, and the store goes on without a restart. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import { bucket, intent, outcome, redisOptions, slots, T0 } from './kit.ts'
import { skipWithoutRedis, startFailoverSet } from './redis-server.ts'

test('a failover refuses for a while, then the replica has limits and ledger', { skip: skipWithoutRedis }, async t => {
  const set = await startFailoverSet()
  t.after(() => set.stop())
  const store = await openRedisStore(
    redisOptions(set.url, { timeout: 10_000, leaseTimes: { ttl: 60_000, every: 200 } }),
  )
  t.after(() => store.close())
  const cells = [bucket('o:rpm', 10), slots('o:conc', 5)]
  for (const id of ['a', 'b'])
    assert.equal((await store.limits.admit({ org: 'acme', id, cells, amounts: [1, 1], now: T0 })).admitted, true)
  store.ledger.intent(intent('a'))
  await set.replicated()
  await set.master.down()
  await assert.rejects(
    async () => store.limits.admit({ org: 'acme', id: 'c', cells, amounts: [1, 1], now: T0 }),
    StoreUnavailable,
  )
  store.limits.settle('acme', 'a', [1, 1], T0)
  store.ledger.outcome(outcome('a'))
  await eventually(async () => (await store.ready()).ok)
  await eventually(() => store.limits.undelivered === 0)
  assert.deepEqual(
    (await store.limits.peek('acme', cells, T0)).map(state => state.remaining),
    [8, 4],
  )
  await store.ledger.flush()
  assert.equal((await store.ledger.query({})).length, 1)
  assert.equal((await store.limits.admit({ org: 'acme', id: 'd', cells, amounts: [1, 1], now: T0 })).admitted, true)
})
