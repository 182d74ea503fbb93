/** A real three-node Redis Cluster: all keys of a script in one slot, wherever the organization lives. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { moveStore } from '../../stores/move/move.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import {
  bucket,
  DAY,
  everyDimension,
  intent,
  outcome,
  recordingLog,
  redisOptions,
  slots,
  T0,
  temporary,
} from './kit.ts'
import { skipWithoutRedis, startCluster } from './redis-server.ts'

test('limits, ledger, idempotency and records on a cluster of three', { skip: skipWithoutRedis }, async t => {
  const nodes = await startCluster(t)

  const url = `redis+cluster://${nodes.map(node => `127.0.0.1:${node.port}`).join(',')}`
  const store = await openRedisStore(redisOptions(url, { leaseTimes: { ttl: 60_000, every: 200 } }))
  t.after(() => store.close())
  await eventually(async () => (await store.ready()).ok)

  // Organizations spread over all nodes.
  const cells = everyDimension(1000)
  for (let i = 0; i < 30; i++) {
    const org = `org-${i}`
    const admission = await store.limits.admit({ org, id: 'a', cells, amounts: cells.map(() => 10), now: T0 })
    assert.equal(admission.admitted, true)
    store.limits.settle(
      org,
      'a',
      cells.map(() => 4),
      T0,
    )
    assert.equal((await store.idempotency.begin(org, 'k', 'f', 'r')).state, 'first')
    await store.idempotency.finish(
      org,
      'k',
      { requestId: 'r', status: 200, headers: [], body: Buffer.from(org), whole: true },
      DAY,
    )
    assert.equal((await store.idempotency.begin(org, 'k', 'f', 'r2')).state, 'replay')
    await store.records.put(org, 'response', 'x', Buffer.from('1'), DAY)
    await store.records.put(org, 'response', 'y', Buffer.from('2'), DAY)
    assert.deepEqual((await store.records.getMany(org, 'response', ['x', 'y'])).map(String), ['1', '2'])
    await store.records.touch(org, 'response', ['x', 'y'], DAY)
    store.ledger.intent(intent(org, { organization: org }))
    store.ledger.outcome(outcome(org))
  }
  await eventually(() => store.limits.undelivered === 0)
  assert.equal((await store.limits.peek('org-7', cells, T0))[0]!.remaining, 996)
  await store.ledger.flush()
  assert.equal((await store.ledger.query({})).length, 30)

  for (let i = 0; i < 30; i++) {
    const keys = [0, 1].map(k => ({ id: `key_${k}`, sha256: `${2 * i + k}`.padStart(64, '0'), settings: '{}' }))
    const [result] = await store.accounts.change([{ id: `org-${i}`, expected: 0, settings: '{}', keys }])
    assert.equal(result!.refused, undefined)
    assert.equal((await store.accounts.find(keys[1]!.sha256))?.organization.id, `org-${i}`)
  }
  assert.equal((await store.accounts.page('org-7', 5)).length, 2)
  const { version } = (await store.accounts.read('org-28'))!
  assert.deepEqual((await store.accounts.since(version)).ids, ['org-29'])

  const N = 20
  const tight = [bucket('o:rpm', N), slots('o:conc', 1e6)]
  for (const org of ['race-1', 'race-2', 'race-3', 'race-4']) {
    const results = await Promise.all(
      Array.from({ length: 20 * N }, (_, i) =>
        store.limits.admit({ org, id: `r${i}`, cells: tight, amounts: [1, 1], now: T0 }),
      ),
    )
    assert.equal(results.filter(result => result.admitted).length, N)
  }

  // Moved to a database and back: every node is read, and every node is written.
  await store.close()
  const file = `sqlite:${temporary()}/gateway.db`
  const rest = { maxMemory: null, log: recordingLog(), tell() {}, progress() {} }
  const there = await moveStore({ from: url, to: file, ...rest })
  const { organizations, levels, ledger, idempotency, records } = there.carried!
  assert.deepEqual(
    [organizations, ledger, idempotency, records].map(({ count }) => count),
    [30, 30, 30, 60],
  )
  // What the races hold was never settled, and is given back.
  assert.equal(levels.count, 30 * 16)
  for (const node of nodes) await node.command('FLUSHALL')
  assert.deepEqual((await moveStore({ from: file, to: url, ...rest })).carried, there.carried)
})
