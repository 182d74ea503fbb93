/**
 * The shared engine when things go wrong: several instances, dead ones, Redis down, restarted, slow, with its scripts
 * flushed.
 */
import assert from 'node:assert/strict'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { after, before, test } from 'node:test'
import type { Redis } from 'ioredis'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { markBytes } from '../../stores/marks.ts'
import { tagOf } from '../../stores/redis/client.ts'
import { IDEMPOTENCY_LEASE_MS } from '../../stores/redis/idempotency.ts'
import { LEASE_TIMES, type LeaseTimes } from '../../stores/redis/lease.ts'
import { planOf } from '../../stores/redis/plan.ts'
import { script } from '../../stores/redis/scripts.ts'
import { openRedisStore, type RedisStore } from '../../stores/redis/store.ts'
import { describe as describeAddress, parseRedisUrl } from '../../stores/redis/url.ts'
import { eventually, stall, timersOf } from '../eventually.ts'
import {
  bucket,
  DAY,
  everyDimension,
  intent,
  MINUTE,
  outcome,
  type RecordingLog,
  recordingLog,
  redisOptions,
  slots,
  spend,
  T0,
  temporary,
} from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis
let shared: RedisServer
let count = 0
const newOrg = () => `org${++count}`
/**
 * A look at the others' leases every now and then; no lease runs out because its process gets no turn. Tests end them
 * by hand.
 */
const OFTEN: LeaseTimes = { ttl: 600_000, every: 50 }
/** None but the first while a test runs. */
const SELDOM: LeaseTimes = { ttl: 600_000, every: 300_000 }

interface Opened {
  store: RedisStore
  log: RecordingLog
}
async function open(
  url: string,
  more: { timeout?: number; leaseTimes?: LeaseTimes; dataDir?: string; ledgerKeep?: number; clock?: ManualClock } = {},
): Promise<Opened> {
  const log = recordingLog()
  const store = await openRedisStore(redisOptions(url, { timeout: 30_000, log, ...more }))
  return { store, log }
}
/** What a killed process leaves when its lease has run out: no renewal, no goodbye. */
const kill = async (store: RedisStore) => {
  const { leases } = store
  await leases.close(false)
}

before(async () => {
  if (!skip) shared = await RedisServer.start()
})
after(() => shared?.stop())

test('[LIM-1] [LIM-3] 2 and 4 instances on one Redis: of 20·N simultaneous requests exactly N pass, 50 rounds for each dimension', {
  skip,
}, async t => {
  const stores = await Promise.all(Array.from({ length: 4 }, () => open(shared.url)))
  t.after(() => Promise.all(stores.map(({ store }) => store.close())))
  const N = 3
  const all = everyDimension()
  for (let i = 0; i < all.length / 2; i++) {
    for (let round = 0; round < 50; round++) {
      const org = newOrg()
      // The organization's limit binds, then the key's; all others stand beside it, and must not pay for the denied.
      const tight = round % 2 ? i : i + all.length / 2
      const cells = all.map((cell, j) => (j === tight ? { ...cell, capacity: N } : cell))
      const amounts = cells.map(() => 1)
      const instances = round % 4 < 2 ? stores : stores.slice(0, 2)
      const results = await Promise.all(
        Array.from({ length: 20 * N }, (_, k) =>
          instances[k % instances.length]!.store.limits.admit({ org, id: `r${k}`, cells, amounts, now: T0 }),
        ),
      )
      assert.equal(results.filter(result => result.admitted).length, N, `${cells[tight]!.id}, round ${round}`)
      const states = await stores[0]!.store.limits.peek(org, cells, T0)
      assert.deepEqual(
        states.map(({ remaining }, j) => cells[j]!.capacity - remaining),
        amounts.map(() => N),
      )
    }
  }
})

test('a gateway that stops leaves no lease: not by a renewal that is on its way, nor by a call that fails', {
  skip,
}, async () => {
  const { store } = await open(shared.url, { leaseTimes: { ttl: 600_000, every: 20 } })
  const { client, leases } = store
  const { redis } = client
  const key = `{sluice:leases}:id:${leases.id}`

  const renewal = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  const run = client.script.bind(client)
  client.script = async (which, ...rest) => {
    if (which.sha !== script('lease_renew').sha) return run(which, ...rest)
    begun.resolve()
    await renewal.promise
    return run(which, ...rest)
  }
  const del = redis.del.bind(redis)
  const failed: unknown[] = []
  redis.del = ((...names: string[]) => {
    if (names[0] !== key || failed.length > 1) return del(...names)
    failed.push(names)
    return Promise.reject(new Error('Connection is closed.'))
  }) as typeof redis.del

  await begun.promise
  const closed = store.close()
  // What ends the lease would have reached Redis before the answer to this.
  await redis.ping()
  renewal.resolve()
  await closed
  assert.equal(failed.length, 2)
  assert.equal(await shared.command('EXISTS', key), ':0')
  assert.equal(await shared.command('SISMEMBER', '{sluice:leases}:held', leases.id), ':0')
})

test('settlements from two instances add up exactly', { skip }, async t => {
  const [a, b] = await Promise.all([open(shared.url), open(shared.url)])
  t.after(() => Promise.all([a.store.close(), b.store.close()]))
  const org = newOrg()
  const cells = [spend('o:spend', Number.MAX_SAFE_INTEGER), slots('o:slots', 1e6)]
  let sum = 0
  const rounds = 2000
  const one = async (store: RedisStore, i: number) => {
    const cost = (i * 7919) % 1_000_003
    sum += cost
    await store.limits.admit({ org, id: `r${i}`, cells, amounts: [2_000_000, 1], now: T0 })
    store.limits.settle(org, `r${i}`, [cost, 1], T0)
  }
  await Promise.all(Array.from({ length: rounds }, (_, i) => one(i % 2 ? a.store : b.store, i)))
  await eventually(async () => (await a.store.limits.peek(org, cells, T0))[1]!.remaining === 1e6)
  assert.equal(Number.MAX_SAFE_INTEGER - (await a.store.limits.peek(org, cells, T0))[0]!.remaining, sum)
})

test('the settlements of a turn share calls: of those that stand, were given back meanwhile, or are not known', {
  skip,
}, async t => {
  const server = await RedisServer.start()
  const { store } = await open(server.url, { leaseTimes: SELDOM })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const calls = async () => Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.info('commandstats'))![1])
  const cells = [slots('o:slots', 1000), bucket('o:tpm', 1_000_000, MINUTE, 'tokens'), spend('k:key_ci:spend', 1e9)]
  const amounts = [1, 100, 1000]
  const admit = (org: string, id: string) => store.limits.admit({ org, id, cells, amounts, now: T0 })
  const used = async (org: string) =>
    (await store.limits.peek(org, cells, T0)).map(({ remaining }, i) => cells[i]!.capacity - remaining)

  const org = newOrg()
  for (const id of ['open', 'stands', 'reclaimed', 'unknown']) await admit(org, id)
  const { cells: hash, reclaimed, prefix } = store.leases.keysOf(org)
  await store.client.script(script('reclaim'), [hash, reclaimed], [`${prefix}reclaimed`])
  await store.client.redis.hdel(hash, `${prefix}unknown`)
  assert.deepEqual(await used(org), [3, 300, 3000])
  const before = await calls()
  for (const id of ['stands', 'reclaimed', 'unknown']) store.limits.settle(org, id, [1, 7, 70], T0)
  await store.limits.delivered(['stands', 'reclaimed', 'unknown'])
  // `stands`: corrected to its final figures; `reclaimed`: these in full; `unknown` stays as it was reserved.
  assert.deepEqual(await used(org), [2, 214, 2140])
  assert.equal((await calls()) - before, 1)
  assert.deepEqual(await store.leases.marks(store.leases.keysOf(org)), [`${prefix}open`])

  const ids = Array.from({ length: 250 }, (_, i) => `r${i}`)
  for (const org of [newOrg(), newOrg()]) {
    await Promise.all(ids.map(id => admit(org, id)))
    const before = await calls()
    ids.forEach((id, i) => {
      store.limits.settle(org, id, [1, i, 2 * i], T0)
    })
    await store.limits.delivered(ids)
    const sum = (250 * 249) / 2
    assert.deepEqual(await used(org), [0, sum, 2 * sum])
    assert.equal((await calls()) - before, 3)
  }
})

test('the calls of one turn are one write', { skip }, async t => {
  const { store } = await open(shared.url, { leaseTimes: SELDOM })
  t.after(() => store.close())
  const org = newOrg()
  const cells = [bucket('o:rpm', 100)]
  const admit = (id: string) => store.limits.admit({ org, id, cells, amounts: [1], now: T0 })
  await admit('first')
  const { stream } = store.client.redis as Redis
  const writes = [t.mock.method(stream, '_write'), t.mock.method(stream, '_writev' as '_write')]
  await Promise.all(['a', 'b', 'c', 'd', 'e'].map(admit))
  assert.equal(writes[0]!.mock.callCount() + writes[1]!.mock.callCount(), 1)
})

test('slots and reservations of a dead instance are given back by a living one', { skip }, async t => {
  const dead = await open(shared.url, { leaseTimes: OFTEN })
  const living = await open(shared.url, { leaseTimes: OFTEN })
  t.after(() => Promise.all([dead.store.close(), living.store.close()]))
  const org = newOrg()
  const cells = [slots('o:slots', 2), bucket('o:tpm', 1000, MINUTE, 'tokens'), spend('o:spend', 500)]
  for (const id of ['a', 'b'])
    assert.equal((await dead.store.limits.admit({ org, id, cells, amounts: [1, 300, 100], now: T0 })).admitted, true)
  assert.equal(
    (await living.store.limits.admit({ org, id: 'c', cells, amounts: [1, 10, 10], now: T0 })).admitted,
    false,
  )
  await kill(dead.store)
  await eventually(
    async () => (await living.store.limits.admit({ org, id: 'c', cells, amounts: [1, 10, 10], now: T0 })).admitted,
  )
  assert.deepEqual(
    (await living.store.limits.peek(org, cells, T0)).map(state => state.remaining),
    [1, 990, 490],
  )
  await eventually(() => living.log.lines.some(({ message }) => message.includes('dead instance')))
  // It was only asleep: what it settles late is charged in full, and its slots are not given back a second time.
  dead.store.limits.settle(org, 'a', [1, 250, 80], T0)
  await eventually(async () => (await living.store.limits.peek(org, cells, T0))[2]!.remaining === 410)
  assert.deepEqual(
    (await living.store.limits.peek(org, cells, T0)).map(state => state.remaining),
    [1, 740, 410],
  )
})

test('[LIM-4] what a dead instance held is given back within 15 s: the lease runs out, and others look in time', () => {
  assert.ok(LEASE_TIMES.ttl + 2 * LEASE_TIMES.every <= 15_000)
})

test('an instance that slept goes on under a new lease', { skip }, async t => {
  const sleeper = await open(shared.url, { leaseTimes: OFTEN })
  const living = await open(shared.url, { leaseTimes: OFTEN })
  t.after(() => Promise.all([sleeper.store.close(), living.store.close()]))
  const org = newOrg()
  const cells = [slots('o:slots', 5)]
  await sleeper.store.limits.admit({ org, id: 'a', cells, amounts: [1], now: T0 })
  const before = sleeper.store.leases.id
  await shared.command('DEL', `{sluice:leases}:id:${before}`)
  await shared.command('SMOVE', '{sluice:leases}:held', '{sluice:leases}:dead', before)
  await eventually(() => sleeper.store.leases.id !== before)
  await eventually(async () => (await living.store.limits.peek(org, cells, T0))[0]!.remaining === 5)
  await sleeper.store.limits.admit({ org, id: 'b', cells, amounts: [1], now: T0 })
  sleeper.store.limits.settle(org, 'a', [1], T0)
  await eventually(() => sleeper.store.limits.undelivered === 0)
  assert.equal((await living.store.limits.peek(org, cells, T0))[0]!.remaining, 4)
})

test('scripts that the server forgot are loaded again (NOSCRIPT)', { skip }, async t => {
  const { store } = await open(shared.url)
  t.after(() => store.close())
  const org = newOrg()
  const cells = [bucket('o:rpm', 5)]
  await store.limits.admit({ org, id: 'a', cells, amounts: [1], now: T0 })
  await shared.command('SCRIPT', 'FLUSH')
  const results = await Promise.all(
    ['b', 'c', 'd'].map(id => store.limits.admit({ org, id, cells, amounts: [1], now: T0 })),
  )
  assert.ok(results.every(result => result.admitted))
  await shared.command('SCRIPT', 'FLUSH')
  store.limits.settle(org, 'a', [0], T0)
  await eventually(() => store.limits.undelivered === 0)
  assert.equal((await store.limits.peek(org, cells, T0))[0]!.remaining, 2)
})

test('[IDEM-3] a key given back is free for who asks next, though Redis has to be told the script first', {
  skip,
}, async t => {
  const { store } = await open(shared.url)
  t.after(() => store.close())
  const org = newOrg()
  const { idempotency } = store
  assert.equal((await idempotency.begin(org, 'k', 'one body', 'r1')).state, 'first')
  await shared.command('SCRIPT', 'FLUSH')
  await idempotency.begin(org, 'other', 'f', 'r2')
  const released = idempotency.release(org, 'k')
  assert.equal((await idempotency.begin(org, 'k', 'another body', 'r3')).state, 'first')
  await released
})

test('Redis down: refused at once, kept settlements delivered after, no restart needed', {
  skip,
}, async t => {
  const server = await RedisServer.start(['--appendonly', 'yes', '--appendfsync', 'always'])
  const { store, log } = await open(server.url, { leaseTimes: OFTEN })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const org = newOrg()
  const cells = [slots('o:slots', 5), spend('o:spend', 1000)]
  for (const id of ['a', 'b']) {
    await store.limits.admit({ org, id, cells, amounts: [1, 400], now: T0 })
    store.ledger.intent(intent(id, { organization: org }))
  }
  await server.down()
  // For want of a connection, which none of them waits for: the budget is not used up.
  const refused = (error: Error) => error instanceof StoreUnavailable && !/did not answer/.test(error.message)
  await assert.rejects(async () => store.limits.admit({ org, id: 'c', cells, amounts: [1, 1], now: T0 }), refused)
  await assert.rejects(async () => store.idempotency.begin(org, 'k', 'f', 'r'), refused)
  await assert.rejects(async () => store.records.get(org, 'response', 'r'), refused)
  await assert.rejects(async () => store.limits.peek(org, cells, T0), refused)
  assert.equal((await store.ready()).ok, false)
  // Running exchanges end all the same.
  for (const id of ['a', 'b']) {
    store.limits.settle(org, id, [1, 150], T0)
    store.ledger.outcome(outcome(id, { cost: 150 }))
  }
  // Longer than a delivery waits before it is tried again.
  await timersOf(150)
  // Two settlements, and perhaps the end of the admission that was not answered.
  assert.ok(store.limits.undelivered >= 2)
  await server.up()
  await eventually(async () => (await store.ready()).ok)
  await eventually(() => store.limits.undelivered === 0)
  assert.deepEqual(
    (await store.limits.peek(org, cells, T0)).map(state => state.remaining),
    [5, 700],
  )
  await store.ledger.flush()
  const rows = await store.ledger.query({ org })
  assert.deepEqual(
    rows.map(row => [row.request_id, row.cost]),
    [
      ['a', 150],
      ['b', 150],
    ],
  )
  assert.equal((await store.limits.admit({ org, id: 'd', cells, amounts: [1, 1], now: T0 })).admitted, true)
  store.limits.settle(org, 'd', [1, 1], T0)
  assert.ok(
    log.lines.filter(({ message }) => message.includes('requests that need it are refused')).length <= 2,
    'told once, not per request',
  )
})

test('Redis slow: a lost answer is an admission given back', { skip }, async t => {
  const server = await RedisServer.start()
  const { store } = await open(server.url, { timeout: 1000, leaseTimes: SELDOM })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const org = newOrg()
  const cells = [slots('o:slots', 5), bucket('o:rpm', 100)]
  await store.limits.admit({ org, id: 'warm', cells, amounts: [1, 1], now: T0 })
  server.freeze()
  await assert.rejects(
    async () => store.limits.admit({ org, id: 'late', cells, amounts: [1, 1], now: T0 }),
    /did not answer within 1000 ms/,
  )
  assert.match((await store.ready()).reason!, /^the store is slow: /)
  // The server carries it out when it wakes up; then it is undone.
  server.thaw()
  await eventually(() => store.limits.undelivered === 0)
  await eventually(async () => (await store.limits.peek(org, cells, T0).catch(() => []))[0]?.remaining === 4)
  assert.equal((await store.limits.peek(org, cells, T0))[1]!.remaining, 99)
  store.limits.settle(org, 'warm', [1, 1], T0)
})

test('Redis slow: each call ends within its budget, and says so', { skip }, async t => {
  const server = await RedisServer.start()
  const { store } = await open(server.url, { timeout: 1000, leaseTimes: SELDOM })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const org = newOrg()
  const cells = [slots('o:slots', 5)]
  const ask = (id: string) => store.limits.admit({ org, id, cells, amounts: [1], now: T0 })
  await ask('warm')
  for (const key of ['kept', 'freed']) await store.idempotency.begin(org, key, 'f', 'r')
  const record = { requestId: 'r', status: 200, headers: [], body: Buffer.from('x'), whole: true }
  const { records, idempotency } = store
  const calls: Record<string, () => unknown> = {
    admit: () => ask('late'),
    'admit in an organization not seen yet': () =>
      store.limits.admit({ org: newOrg(), id: 'x', cells, amounts: [1], now: T0 }),
    peek: () => store.limits.peek(org, cells, T0),
    begin: () => idempotency.begin(org, 'k', 'f', 'r'),
    finish: () => idempotency.finish(org, 'kept', record, DAY),
    release: () => idempotency.release(org, 'freed'),
    put: () => records.put(org, 'response', 'r', Buffer.from('x'), DAY),
    get: () => records.get(org, 'response', 's'),
    getMany: () => records.getMany(org, 'response', ['r', 's']),
    hasAll: () => records.hasAll(org, 'response', ['s']),
    touch: () => records.touch(org, 'response', ['r'], DAY),
    secret: () => store.secret(''),
    query: () => store.ledger.query({}),
  }
  server.freeze()
  await Promise.all(
    Object.entries(calls).map(([name, call]) =>
      assert.rejects(
        async () => call(),
        (error: Error) => error instanceof StoreUnavailable && /did not answer within 1000 ms/.test(error.message),
        name,
      ),
    ),
  )
  assert.match((await store.ready()).reason!, /did not answer within 1000 ms/)
  server.thaw()
  await eventually(() => store.limits.undelivered === 0)
  store.limits.settle(org, 'warm', [1], T0)
  await eventually(async () => (await store.limits.peek(org, cells, T0).catch(() => []))[0]?.remaining === 5)
})

test('a turn of the event loop longer than the budget fails no call', { skip }, async t => {
  const { store } = await open(shared.url, { timeout: 1000, leaseTimes: SELDOM })
  t.after(() => store.close())
  const org = newOrg()
  const cells = [slots('o:slots', 5)]
  const admit = (id: string) => store.limits.admit({ org, id, cells, amounts: [1], now: T0 })
  await admit('warm')
  const during = admit('during')
  stall(1500)
  assert.equal((await during).admitted, true)
  const written = admit('written')
  await new Promise(resolve => setImmediate(resolve))
  stall(1500)
  assert.equal((await written).admitted, true)
})

test('a connection that has gone dead without a goodbye is broken off, and a new one serves', { skip }, async t => {
  const sockets: net.Socket[] = []
  /** Hands bytes on, until it swallows them. */
  const proxy = net.createServer(client => {
    const upstream = net.connect(shared.port, '127.0.0.1')
    sockets.push(client)
    client.on('data', data => void upstream.write(data)).on('error', () => {})
    upstream.on('data', data => void client.write(data)).on('error', () => {})
    client.on('close', () => upstream.destroy())
  })
  await new Promise<void>(resolve => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as net.AddressInfo
  const { store } = await open(`redis://127.0.0.1:${port}`, { timeout: 1000, leaseTimes: OFTEN })
  t.after(async () => {
    await store.close()
    for (const socket of sockets) socket.destroy()
    proxy.close()
  })
  assert.deepEqual(await store.ready(), { ok: true })
  const first = sockets.length
  for (const socket of sockets) socket.removeAllListeners('data').resume()
  // What readiness found is good for a second.
  await eventually(async () => /did not answer within 1000 ms/.test((await store.ready()).reason ?? ''))
  await eventually(async () => (await store.ready()).reason === undefined)
  assert.ok(sockets.length > first)
})

test('a reservation that nobody knows is found and given back', { skip }, async t => {
  const { store } = await open(shared.url)
  t.after(() => store.close())
  const org = newOrg()
  const cells = [slots('o:slots', 5)]
  await store.limits.admit({ org, id: 'known', cells, amounts: [1], now: T0 })
  await store.limits.admit({ org, id: 'copied', cells, amounts: [1], now: T0 })
  // The field of another request, as if its admission had been carried out after it was given up.
  const { cells: hash, prefix } = store.leases.keysOf(org)
  const { redis } = store.client
  await redis.hset(hash, `${prefix}stray`, (await redis.hgetBuffer(hash, `${prefix}copied`))!)
  assert.equal(await store.limits.audit(), 0)
  assert.equal(await store.limits.audit(), 1)
  assert.equal((await store.limits.peek(org, cells, T0))[0]!.remaining, 4)
})

test('an admission that arrives after it was given up takes nothing, and its mark goes', { skip }, async t => {
  const { store } = await open(shared.url)
  t.after(() => store.close())
  const org = newOrg()
  const cells = [slots('o:slots', 5)]
  await store.limits.admit({ org, id: 'known', cells, amounts: [1], now: T0 })
  const holding = store.leases.keysOf(org)
  const late = planOf(cells).admission(holding, 'late', [1], T0)
  // The answer to an admission is lost; the call itself is delayed until after it was given up.
  const send = t.mock.method(store.client, 'send', async () => {
    throw new StoreUnavailable('lost')
  })
  await assert.rejects(async () => store.limits.admit({ org, id: 'late', cells, amounts: [1], now: T0 }), /lost/)
  send.mock.restore()
  await store.limits.delivered(['late'])
  assert.equal(((await store.client.send(late)) as Buffer)[0], '0'.charCodeAt(0))
  assert.equal((await store.limits.peek(org, cells, T0))[0]!.remaining, 4)
  assert.equal((await store.leases.marks(store.leases.keysOf(org))).length, 2)
  assert.equal(store.limits.clean, false)
  assert.deepEqual([await store.limits.audit(), await store.limits.audit()], [0, 0])
  assert.deepEqual(await store.leases.marks(store.leases.keysOf(org)), [holding.prefix + 'known'])
  store.limits.settle(org, 'known', [1], T0)
  await eventually(() => store.limits.clean)
  assert.equal((await store.limits.peek(org, cells, T0))[0]!.remaining, 5)
})

// A stall of four seconds took every gateway out of service at once, and for some seconds longer than it lasted.
test('Redis that is late is slow for five seconds, and then gone; when it answers again the next look sees it', {
  skip,
}, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const clock = new ManualClock(T0)
  const { store } = await open(server.url, { timeout: 1000, leaseTimes: SELDOM, clock })
  t.after(() => store.close())
  const slow = { ok: true, reason: 'the store is slow: redis did not answer within 1000 ms' }
  server.freeze()
  clock.advance(1000)
  assert.deepEqual(await store.ready(), slow)
  clock.advance(5001)
  assert.deepEqual(await store.ready(), { ok: false, reason: 'redis did not answer within 1000 ms' })
  server.thaw()
  await eventually(() => store.client.call(store.client.redis.ping()).then(Boolean, () => false))
  clock.advance(1000)
  assert.deepEqual(await store.ready(), { ok: true })
  server.freeze()
  clock.advance(1000)
  assert.deepEqual(await store.ready(), slow, 'each stall has its own five seconds')
  server.thaw()
})

test('a lease that was not renewed is renewed when somebody asks whether the store is ready', { skip }, async t => {
  const { store } = await open(shared.url, { leaseTimes: SELDOM })
  t.after(() => store.close())
  store.leases.failure = 'redis did not answer within 100 ms'
  assert.deepEqual(await store.ready(), { ok: true })
})

test('started while Redis is down: refuses, then serves, without a restart', { skip }, async t => {
  const server = await RedisServer.start()
  await server.down()
  const { store } = await open(server.url, { leaseTimes: OFTEN })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  assert.equal((await store.ready()).ok, false)
  await assert.rejects(
    async () => store.limits.admit({ org: 'a', id: 'a', cells: [bucket('o:rpm', 5)], amounts: [1], now: T0 }),
    StoreUnavailable,
  )
  await assert.rejects(async () => store.secret(''), StoreUnavailable)
  await server.up()
  await eventually(async () => (await store.ready()).ok)
  assert.equal(
    (await store.limits.admit({ org: 'a', id: 'a', cells: [bucket('o:rpm', 5)], amounts: [1], now: T0 })).admitted,
    true,
  )
})

test('a full Redis (OOM) refuses what would write, and is not ready', { skip }, async t => {
  const server = await RedisServer.start()
  const { store } = await open(server.url, { leaseTimes: OFTEN })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  await server.command('CONFIG', 'SET', 'maxmemory', '1')
  await assert.rejects(
    async () => store.limits.admit({ org: 'a', id: 'a', cells: [bucket('o:rpm', 5)], amounts: [1], now: T0 }),
    /OOM/,
  )
  await eventually(async () => !(await store.ready()).ok)
  await server.command('CONFIG', 'SET', 'maxmemory', '0')
  await eventually(async () => (await store.ready()).ok)
  assert.equal(
    (await store.limits.admit({ org: 'a', id: 'b', cells: [bucket('o:rpm', 5)], amounts: [1], now: T0 })).admitted,
    true,
  )
})

test('a server that may evict keys, or is smaller than what may be retained, is warned about at start', {
  skip,
}, async t => {
  const server = await RedisServer.start(['--maxmemory-policy', 'allkeys-lru', '--maxmemory', '1gb'])
  const { store, log } = await open(server.url)
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  assert.ok(log.lines.some(({ level, message }) => level === 'warn' && message.includes('noeviction')))
  assert.ok(log.lines.some(({ level, message }) => level === 'warn' && message.includes('store.max_records')))
})

test('[IDEM-3] a running first use keeps its key while its owner lives, and is free after its lease', {
  skip,
}, async t => {
  const owner = await open(shared.url, { leaseTimes: OFTEN })
  const other = await open(shared.url, { leaseTimes: OFTEN })
  t.after(() => Promise.all([owner.store.close(), other.store.close()]))
  const org = newOrg()
  assert.equal((await owner.store.idempotency.begin(org, 'k', 'f', 'r1')).state, 'first')
  // The lease is nearly over: the owner renews it, again and again.
  const { redis } = owner.store.client
  const key = `sluice:${tagOf(org)}:idem:k`
  for (let i = 0; i < 3; i++) {
    assert.equal(await redis.pexpire(key, IDEMPOTENCY_LEASE_MS / 2), 1)
    await eventually(async () => (await redis.pttl(key)) > IDEMPOTENCY_LEASE_MS / 2)
    assert.equal((await other.store.idempotency.begin(org, 'k', 'f', 'r2')).state, 'running')
  }
  await kill(owner.store)
  // A renewal that was on its way has arrived.
  await owner.store.ready()
  await redis.pexpire(key, 1)
  await eventually(async () => (await other.store.idempotency.begin(org, 'k', 'f', 'r2')).state === 'first')
  // The dead one wakes up and wants to record its reply: too late, another has the key.
  await owner.store.idempotency.finish(
    org,
    'k',
    { requestId: 'r1', status: 200, headers: [], body: Buffer.from('old'), whole: true },
    DAY,
  )
  assert.equal((await other.store.idempotency.begin(org, 'k', 'f', 'r3')).state, 'running')
})

/** It counted as running for as long as its process lived, and each retry was a 409. */
test('[IDEM-1] a reply that Redis could not take when it ended is kept later, once, and replayed', {
  skip,
}, async t => {
  const server = await RedisServer.start(['--appendonly', 'yes'])
  const { store } = await open(server.url, { leaseTimes: OFTEN })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const body = Buffer.from('the reply')
  const record = { requestId: 'r1', status: 200, headers: [], body, whole: true }
  assert.equal((await store.idempotency.begin('acme', 'k', 'f', 'r1')).state, 'first')
  await server.down()
  await assert.rejects(store.idempotency.finish('acme', 'k', record, DAY), StoreUnavailable)
  await server.up()
  const { redis } = store.client as { redis: Redis }
  await eventually(async () => (await redis.hget('sluice:{acme}:idem:k', 'state').catch(() => null)) === 'done')
  const replay = await store.idempotency.begin('acme', 'k', 'f', 'r2')
  assert.deepEqual(replay, { state: 'replay', record })
  const bytes = await redis.get('sluice:{acme}:idem-bytes')
  const renewals = t.mock.method(store.idempotency, 'renew')
  await eventually(() => renewals.mock.callCount() > 2)
  assert.equal(await redis.get('sluice:{acme}:idem-bytes'), bytes)
  assert.equal(bytes, String(markBytes('k') + body.length + '[]'.length))
})

test('a dead process’s journal is booked by the next on this machine, each row once', { skip }, async t => {
  const dataDir = temporary()
  const first = await open(shared.url, { dataDir })
  const org = newOrg()
  first.store.ledger.intent(intent('x-open', { organization: org }))
  first.store.ledger.intent(intent('x-done', { organization: org }))
  first.store.ledger.outcome(outcome('x-done'))
  await first.store.ledger.flush()
  await first.store.close()
  const journals = () => fs.readdirSync(path.join(dataDir, 'journal'))
  assert.equal(journals().length, 1)
  const second = await open(shared.url, { dataDir })
  t.after(() => second.store.close())
  const rows = await second.store.ledger.query({ org })
  assert.deepEqual(rows.map(row => [row.request_id, row.outcome]).sort(), [
    ['x-done', 'completed'],
    ['x-open', 'lost'],
  ])
  assert.equal(journals().length, 1)
})

test('rows that were sent without an answer are not in the stream twice', { skip }, async t => {
  const server = await RedisServer.start()
  const { store, log } = await open(server.url, { timeout: 1000, leaseTimes: SELDOM })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  server.freeze()
  for (let i = 0; i < 300; i++) {
    store.ledger.intent(intent(`r${i}`))
    store.ledger.outcome(outcome(`r${i}`))
  }
  await eventually(() => log.lines.some(({ message }) => message.startsWith('ledger rows cannot be delivered')))
  server.thaw()
  await store.ledger.flush()
  const rows = await store.ledger.query({ org: 'acme' })
  assert.equal(rows.length, 300)
  assert.equal(new Set(rows.map(row => row.request_id)).size, 300)
})

/**
 * The disk was full when what had been delivered was to be noted, and nobody noted it later: the next start took its
 * intent for open, and the stream had a second row, `lost`.
 */
test('[BILL-4] rows that were delivered while the disk was full are not booked again after a crash', {
  skip,
}, async t => {
  const dataDir = temporary()
  const first = await open(shared.url, { dataDir })
  const org = newOrg()
  const { ledger } = first.store
  const write = fs.writeSync
  let full = false
  t.mock.method(fs, 'writeSync', ((...args: [number, Buffer, number, number]) => {
    if (full) throw new Error('ENOSPC')
    return write(...args)
  }) as typeof fs.writeSync)
  await ledger.intent(intent(`${org}-a`, { organization: org }))
  full = true
  ledger.outcome(outcome(`${org}-a`))
  const told = () => first.log.lines.some(({ message }) => message === 'delivered ledger rows could not be noted yet')
  await eventually(told)
  full = false
  for (const id of ['b', 'c']) {
    await ledger.intent(intent(`${org}-${id}`, { organization: org }))
    ledger.outcome(outcome(`${org}-${id}`))
    await ledger.flush()
  }
  // As after a kill: what it holds stays, its lock goes.
  const journal = path.join(dataDir, 'journal')
  const copy = temporary()
  fs.cpSync(journal, path.join(copy, 'journal'), { recursive: true })
  const second = await open(shared.url, { dataDir: copy })
  t.after(() => Promise.all([first.store.close(), second.store.close()]))
  const rows = await second.store.ledger.query({ org })
  assert.deepEqual(
    rows.map(row => `${row.request_id} ${row.outcome}`).sort(),
    ['a', 'b', 'c'].map(id => `${org}-${id} completed`),
  )
})

test('a row keeps every character that there is', { skip }, async t => {
  const { store } = await open(shared.url)
  t.after(() => store.close())
  const org = newOrg()
  // The last two are halves of a pair, as they come out of a cut string: no UTF-8 has them.
  const models = ['"]\\u0041', 'a\0b\n\u007f', 'é\u2028😀', '\\ud800', 'x\ud83d', '\ude00y']
  models.forEach((model, i) => {
    store.ledger.intent(intent(`${org}-${i}`, { organization: org, model }))
    store.ledger.outcome(outcome(`${org}-${i}`, { cost: Number.MAX_SAFE_INTEGER, ttfb_ms: null }))
  })
  await store.ledger.flush()
  const rows = await store.ledger.query({ org })
  assert.deepEqual(
    rows.map(({ model }) => model),
    [...models.slice(0, 4), 'x\ufffd', '\ufffdy'],
  )
  for (const row of rows) assert.deepEqual([row.cost, row.ttfb_ms], [Number.MAX_SAFE_INTEGER, null])
})

test('old rows leave the stream after ledger.keep', { skip }, async t => {
  const server = await RedisServer.start()
  const { store } = await open(server.url, { ledgerKeep: 50 })
  t.after(async () => {
    await store.close()
    await server.stop()
  })
  const add = async (from: number) => {
    for (let i = from; i < from + 200; i++) {
      store.ledger.intent(intent(`r${i}`))
      store.ledger.outcome(outcome(`r${i}`))
    }
    await store.ledger.flush()
  }
  await add(0)
  const { redis } = store.client as { redis: Redis }
  const added = Number((await redis.xrevrange('sluice:ledger', '+', '-', 'COUNT', 1))[0]![0].split('-')[0])
  await eventually(async () => Number((await redis.time())[0]) * 1000 > added + 50)
  await add(200)
  const rows = await store.ledger.query({})
  assert.ok(rows.length < 400 && rows.length >= 200, `${rows.length} rows`)
})

test('URLs of every kind', () => {
  assert.deepEqual(parseRedisUrl('redis://host'), {
    mode: 'single',
    hosts: [{ host: 'host', port: 6379 }],
    db: 0,
  })
  assert.deepEqual(parseRedisUrl('rediss://user:p%40ss@[::1]:7000/3'), {
    mode: 'single',
    tls: {},
    hosts: [{ host: '::1', port: 7000 }],
    db: 3,
    username: 'user',
    password: 'p@ss',
  })
  assert.deepEqual(parseRedisUrl('redis+sentinel://:pw@a,b:26380/mymaster/1?sentinel_password=s'), {
    mode: 'sentinel',
    hosts: [
      { host: 'a', port: 26379 },
      { host: 'b', port: 26380 },
    ],
    db: 1,
    password: 'pw',
    name: 'mymaster',
    sentinelPassword: 's',
  })
  assert.deepEqual(parseRedisUrl('rediss+cluster://a:1,b:2').tls, {})
  for (const bad of [
    'redis://',
    'redis://a,b',
    'redis+sentinel://a',
    'redis+cluster://a/1',
    'redis://a/b',
    'redis://a:123456',
    'http://a',
    'redis://a/1/2',
    'redis://a?ca=/nowhere',
    'rediss://a?ca=/nowhere/ca.pem',
    'rediss://a?insecure=1',
  ])
    assert.throws(() => parseRedisUrl(bad), StoreUnavailable, bad)
  assert.equal(
    describeAddress(parseRedisUrl('redis+sentinel://:secret@a,b/m/1')),
    'redis+sentinel://a:26379,b:26379/m/1',
  )
})

test('an organization id with braces stays in one cluster slot, and apart from others', () => {
  assert.equal(tagOf('acme'), '{acme}')
  for (const org of ['a{b', 'a}b', '{}', '%7B']) assert.match(tagOf(org), /^\{[^{}]+\}$/)
  assert.notEqual(tagOf('{'), tagOf('%7B'))
})
