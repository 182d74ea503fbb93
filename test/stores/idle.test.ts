/** Organizations that send nothing leave memory, and find their levels and spend as they were when they come back. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { test } from 'node:test'
import fc from 'fast-check'
import { Redis } from 'ioredis'
import type { Cell } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { MemoryLimits } from '../../stores/limits/memory.ts'
import { openRedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import { bucket, DAY, intent, MINUTE, options, outcome, redisOptions, slots, spend, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const CELLS = [
  bucket('o:rpd', 100, DAY),
  bucket('o:tpm', 50_000, MINUTE, 'tokens'),
  bucket('o:tpd', 70_000, DAY, 'tokens'),
  slots('o:conc', 5),
  spend('o:day', 90_000),
  spend('o:month', 200_000, 'month'),
]

const OF_USERS = [
  bucket('k:key_ci:u:tpd', 30_000, DAY, 'tokens'),
  slots('k:key_ci:u:conc', 2),
  spend('k:key_ci:u:month', 50_000, 'month'),
].map((cell): Cell => ({ ...cell, scope: 'user' }))

test('[LIM-1] [LIM-12] levels that leave memory come back as if they had stayed', () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(2), fc.nat(20_000), fc.nat(20_000), fc.constantFrom(0, 1, 7, 40, 200)), {
        minLength: 3,
        maxLength: 12,
      }),
      async steps => {
        const clock = new ManualClock(T0)
        const store = await openStore(options(`sqlite:${path.join(temporary(), 'gateway.db')}`, { clock }))
        const limits = store.limits as MemoryLimits
        const staying = new MemoryLimits({ clock: new ManualClock(T0) })
        try {
          for (const [i, [org, reserved, used, minutes]] of steps.entries()) {
            const name = `org${org}`
            const now = clock.now()
            const request = {
              org: name,
              id: `r${i}`,
              cells: CELLS,
              amounts: [1, reserved, reserved, 1, reserved, reserved],
              now,
              user: { name: `u${used % 2}`, cells: OF_USERS, amounts: [reserved, 1, reserved] },
            }
            const expected = staying.admit(request)
            assert.deepEqual(limits.admit(request), expected)
            if (expected.admitted) {
              store.ledger.intent(intent(`r${i}`, { organization: name, time: now }))
              const finals = [1, used, used, 0, used, used]
              for (const engine of [limits, staying]) engine.settle(name, `r${i}`, finals, now, [used, 0, used])
              store.ledger.outcome(outcome(`r${i}`))
            }
            await store.ledger.flush()
            clock.advance(minutes * MINUTE)
            if (minutes < 7) continue
            // The writer's thread answers when it likes: a second of the store's clock passes while it has not.
            await eventually(() => {
              if (limits.size > 0) clock.advance(1000)
              return limits.size === 0
            })
          }
        } finally {
          staying.close()
          await store.close()
        }
      },
    ),
    { numRuns: 15 },
  ))

test('who has a request running, or spend that the store has not got, stays in memory', async t => {
  const clock = new ManualClock(T0)
  let waiting = Number.POSITIVE_INFINITY
  const limits = new MemoryLimits({ clock, levelBefore: () => undefined, chargesSince: () => waiting })
  t.after(() => limits.close())
  const cells = [spend('o:day', 1000), slots('o:conc', 2)]
  const admit = (org: string) => limits.admit({ org, id: 'a', cells, amounts: [10, 1], now: clock.now() })
  admit('running')
  admit('unbooked')
  limits.settle('unbooked', 'a', [10, 1], T0)
  waiting = T0
  clock.advance(10 * MINUTE)
  assert.deepEqual([limits.open, limits.size], [1, 3])
  waiting = T0 + 1
  clock.advance(2000)
  assert.deepEqual([limits.open, limits.size], [1, 2])
  limits.settle('running', 'a', [10, 1], clock.now())
  waiting = Number.POSITIVE_INFINITY
  clock.advance(10 * MINUTE)
  assert.equal(limits.size, 0)
})

test('on Redis an organization in which nothing is held is forgotten after two audits', {
  skip: skipWithoutRedis,
}, async t => {
  const server = await RedisServer.start()
  t.after(() => server.stop())
  const clock = new ManualClock(T0)
  const store = await openRedisStore(redisOptions(server.url, { clock, replicas: 0 }))
  t.after(() => store.close())
  const admit = (org: string, id: string) =>
    store.limits.admit({ org, id, cells: CELLS, amounts: [1, 1, 1, 1, 1, 1], now: T0 })
  for (const org of ['idle', 'busy']) await admit(org, 'a')
  store.limits.settle('idle', 'a', [1, 1, 1, 0, 1, 1], T0)
  await eventually(() => store.limits.undelivered === 0)
  await store.limits.audit()
  assert.deepEqual(store.leases.organizations(), ['idle', 'busy'])
  await store.limits.audit()
  assert.deepEqual(store.leases.organizations(), ['busy'])
  const again = await admit('idle', 'b')
  assert.deepEqual([again.admitted, again.states[0]!.remaining], [true, 98])
  assert.deepEqual(store.leases.organizations(), ['busy', 'idle'])
})

/**
 * The set of organizations in which a process may hold something only grew: each organization that ever sent a request
 * stood in it until the process ended.
 */
test('on Redis the set of a process has the organizations in use, and no slot is lost on the way', {
  skip: skipWithoutRedis,
}, async t => {
  const server = await RedisServer.start()
  const redis = new Redis(server.url)
  const open = (instance: string, leaseTimes: { ttl: number; every: number }) =>
    openRedisStore(redisOptions(server.url, { instance, replicas: 0, leaseTimes }))
  // No beat of its own comes while the test runs: it would audit, too, and renew the lease that is taken away below.
  const store = await open('a', { ttl: 600_000, every: 300_000 })
  t.after(async () => {
    await store.close()
    redis.disconnect()
    await server.stop()
  })
  const cells = [slots('o:conc', 5)]
  const admit = (org: string, id: string) => store.limits.admit({ org, id, cells, amounts: [1], now: T0 })
  const registered = async () => (await redis.smembers('sluice:orgs:a')).sort()
  const orgs = Array.from({ length: 1200 }, (_, i) => `o${i}`)
  await Promise.all(orgs.map(org => admit(org, 'x')))
  await admit('busy', 'x')
  for (const org of orgs) store.limits.settle(org, 'x', [0], T0)
  await eventually(() => store.limits.undelivered === 0)
  assert.equal((await registered()).length, 1201)
  for (let i = 0; i < 2; i++) await store.limits.audit()
  // Comes back after it was forgotten, and while the others leave the set.
  await admit('o1', 'again')
  const leaving = store.limits.audit()
  const meanwhile = ['o2', 'o3', 'o1100'].map(org => admit(org, 'meanwhile'))
  await leaving
  await Promise.all(meanwhile)
  for (let i = 0; i < 3; i++) await store.limits.audit()
  assert.deepEqual(await registered(), ['busy', 'o1', 'o1100', 'o2', 'o3'])
  assert.equal(store.leases.forgotten().size, 0)

  // The process dies: what it held in those is given back by another.
  await redis.del('{sluice:leases}:id:a')
  const other = await open('b', { ttl: 60_000, every: 20 })
  t.after(() => other.close())
  for (const org of ['busy', 'o1', 'o1100', 'o2', 'o3'])
    await eventually(async () => (await other.limits.peek(org, cells, T0))[0]!.remaining === 5)
})
