/** Limits of the end users of a key, on both engines: who is kept, and that no name gains anything by it. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, test } from 'node:test'
import fc from 'fast-check'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { USERS_KEPT, userCellId } from '../../core/canon/limits.ts'
import type { Admission, Cell, Denial, LimitEngine } from '../../core/ports/store.ts'
import { ManualClock, systemClock } from '../../core/tools/clock.ts'
import { openAccounts } from '../../stores/accounts.ts'
import { openStore } from '../../stores/index.ts'
import { MemoryLimits } from '../../stores/limits/memory.ts'
import { RedisLimits } from '../../stores/redis/limits.ts'
import { planOfUser } from '../../stores/redis/plan.ts'
import { script } from '../../stores/redis/scripts.ts'
import { openRedisStore, type RedisStore } from '../../stores/redis/store.ts'
import { killableEngines } from './killed.ts'
import {
  bucket,
  DAY,
  intent,
  MINUTE,
  options,
  outcome,
  recordingLog,
  redisOptions,
  slots,
  spend,
  T0,
  temporary,
} from './kit.ts'
import { Model } from './model.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const KEPT = 3
const skip = skipWithoutRedis
let server: RedisServer | undefined
let store: RedisStore | undefined
before(async () => {
  if (skip) return
  server = await RedisServer.start()
  store = await openRedisStore(redisOptions(server.url))
})
after(async () => {
  await store?.close()
  await server?.stop()
})

const ofUser = (cell: Cell): Cell => ({ ...cell, scope: 'user' })

/** With a limit of concurrency, or with one that only counts. */
const userCells = (concurrent: number): Cell[] =>
  [
    bucket('k:key_ci:u:rpm', 4),
    bucket('k:key_ci:u:tpd', 1000, DAY, 'tokens'),
    slots('k:key_ci:u:conc', concurrent),
    spend('k:key_ci:u:day', 900),
  ].map(ofUser)

/** What every account has: spend that is only booked. */
const booked = [spend('o:day', Number.POSITIVE_INFINITY)]

let orgs = 0
interface Engine {
  limits: LimitEngine
  settled(id: string): Promise<void>
  close(): void
}

function memory(usersKept = KEPT): Engine {
  const limits = new MemoryLimits({ clock: new ManualClock(), usersKept })
  return { limits, settled: async () => {}, close: () => limits.close() }
}

function redis(usersKept = KEPT): Engine {
  const { client, leases } = store!
  const limits = new RedisLimits({
    ...{ client, leases, clock: systemClock, log: recordingLog(), usersKept },
    ...{ onCharge() {}, onCount() {}, billed: async () => 0 },
  })
  return { limits, settled: id => limits.delivered([id]), close: () => limits.close() }
}

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('admit' as const),
      id: fc.nat({ max: 40 }),
      // Most names come back, and some come once.
      user: fc.oneof(
        { weight: 9, arbitrary: fc.constantFrom('', 'ann', 'böb: 1', 'cy', 'di', 'ed', 'fe', 'gil') },
        fc.nat(99).map(String),
      ),
      tokens: fc.nat({ max: 300 }),
      usd: fc.nat({ max: 200 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      id: fc.nat({ max: 40 }),
      tokens: fc.nat({ max: 700 }),
      usd: fc.nat({ max: 500 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.oneof({ weight: 5, arbitrary: fc.nat({ max: 9000 }) }, fc.constant(MINUTE), fc.constant(DAY)),
    }),
  },
)

describe('end users', () => {
  test('[LIM-12] any sequence of users and times: both engines answer alike, and nobody has more than his limit', {
    skip,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 20, maxLength: 90 }),
        fc.constantFrom(1, 2, Number.POSITIVE_INFINITY),
        // Below, at and above the number that an admission looks at.
        fc.constantFrom(2, 4, 6),
        async (steps, concurrent, kept) => {
          const engines = [memory(kept), redis(kept)]
          const model = new Model()
          const org = `users${++orgs}`
          const cells = [bucket('k:key_ci:rpm', 40), slots('k:key_ci:conc', 12), spend('o:day', 1e6)]
          const own = userCells(concurrent)
          const limited = own.filter(({ capacity }) => capacity !== Number.POSITIVE_INFINITY)
          let now = T0
          for (const s of steps) {
            if (s.do === 'wait') now += s.ms
            else if (s.do === 'settle') {
              const finals = [1, s.tokens, 1, s.usd]
              for (const { limits, settled } of engines) {
                limits.settle(org, `r${s.id}`, [1, 1, s.usd], now, finals)
                await settled(`r${s.id}`)
              }
              model.settle(`r${s.id}`, concurrent === Number.POSITIVE_INFINITY ? [1, s.tokens, s.usd] : finals, now)
            } else {
              const user = { name: s.user, cells: own, amounts: [1, s.tokens, 1, s.usd] }
              const request = { org, id: `r${s.id}`, cells, amounts: [1, 1, s.usd], now, user }
              const [one, other] = await Promise.all(engines.map(({ limits }) => limits.admit(request)))
              assert.deepEqual(other, one)
              if (!one!.admitted) continue
              const exact = limited.map(cell => ({ ...cell, id: userCellId(cell.id, s.user) }))
              const amounts = limited.map(cell => user.amounts[own.indexOf(cell)]!)
              assert.equal(model.admit(`r${s.id}`, exact, amounts, now), true, 'more than the limit of one user')
            }
          }
          for (const { close } of engines) close()
        },
      ),
      { numRuns: 150 },
    )
  })

  for (const [name, make] of [
    ['embedded', memory],
    ['redis', redis],
  ] as const)
    test(`[LIM-12] ${name}: invented names have at most what all who are kept have, and the shared cell`, {
      skip: make === redis && skip,
    }, async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.record({ user: fc.nat({ max: 400 }), ends: fc.boolean() }), { minLength: 100, maxLength: 200 }),
          async requests => {
            const { limits, settled, close } = make()
            const org = `invented${++orgs}`
            const user = { cells: userCells(Number.POSITIVE_INFINITY), amounts: [1, 0, 1, 0] }
            let admitted = 0
            for (const [i, { user: name, ends }] of requests.entries()) {
              const id = `r${i}`
              const request = { org, id, cells: booked, amounts: [0], now: T0, user: { ...user, name: `n${name}` } }
              const answer = (await limits.admit(request)) as Admission
              if (!answer.admitted) continue
              admitted++
              if (!ends) continue
              limits.settle(org, id, [0], T0, user.amounts)
              await settled(id)
            }
            assert.ok(admitted <= (KEPT + 1) * 4, `${admitted} requests were admitted`)
            close()
          },
        ),
        { numRuns: make === redis ? 20 : 100 },
      )
    })

  test('of each key a thousand users are kept', { skip }, async () => {
    const cells = userCells(Number.POSITIVE_INFINITY)
    for (const { limits, settled, close } of [memory(USERS_KEPT), redis(USERS_KEPT)]) {
      const org = `many${++orgs}`
      const ask = async (name: string, i: number) => {
        const user = { name, cells, amounts: [4, 0, 1, 0] }
        const { admitted } = await limits.admit({ org, id: `r${i}`, cells: booked, amounts: [0], now: T0, user })
        limits.settle(org, `r${i}`, [0], T0, user.amounts)
        await settled(`r${i}`)
        return admitted
      }
      for (let i = 0; i < USERS_KEPT + 20; i++) assert.equal(await ask(`user ${i}`, i), i < USERS_KEPT, `user ${i}`)
      assert.equal(await ask('user 0', -1), false)
      if (limits instanceof MemoryLimits) assert.equal(limits.size, 1 + 4 * (USERS_KEPT + 1))
      else {
        const { redis } = store!.client
        assert.equal(await redis.zcard(`sluice:{${org}}:order:key_ci`), USERS_KEPT)
        assert.ok((await redis.hlen(`sluice:{${org}}:users:key_ci`)) <= USERS_KEPT + 2)
        assert.equal(await redis.hlen(`sluice:{${org}}:limits`), 1)
      }
      close()
    }
  })
})

/** A day gives one unit back in 432 s, and no clock moves. */
const SLOW = [
  bucket('k:key_ci:u:tpd', 200, DAY, 'tokens'),
  slots('k:key_ci:u:conc', Number.POSITIVE_INFINITY),
  spend('k:key_ci:u:month', 10_000, 'month'),
].map(ofUser)
const NAMES = ['', 'ann', 'böb: 1']

/** What a user has used of tokens and spend: a request that is more than all there is takes nothing, and tells it. */
async function usedBy(limits: LimitEngine, org: string, name: string, now: number): Promise<number[]> {
  const user = { name, cells: SLOW, amounts: [201, 1, 0] }
  const answer = await limits.admit({ org, id: 'none', cells: booked, amounts: [0], now, user })
  assert.ok(!answer.admitted && answer.user)
  return [0, 2].map(i => SLOW[i]!.capacity - answer.user![i]!.remaining)
}

let database = 0
const newRedis = () => server!.url.replace(/0$/, String(++database % 16))
const tick = () => new Promise<void>(resolve => setImmediate(resolve))
type Step = ['admit', number] | ['settle', number] | ['turn'] | ['save'] | ['book'] | ['kill']

for (const engine of killableEngines(newRedis))
  test(`${engine.name}: after any kill, users have used what their rows say`, { skip: engine.skip }, () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            { weight: 4, arbitrary: fc.tuple(fc.constant('admit' as const), fc.nat(2)) },
            { weight: 4, arbitrary: fc.tuple(fc.constant('settle' as const), fc.nat(12)) },
            { weight: 2, arbitrary: fc.constant(['turn'] as ['turn']) },
            { weight: 1, arbitrary: fc.constant(['save'] as ['save']) },
            { weight: 1, arbitrary: fc.constant(['book'] as ['book']) },
            { weight: 2, arbitrary: fc.constant(['kill'] as ['kill']) },
          ),
          { minLength: 4, maxLength: 20 },
        ),
        async (steps: Step[]) => {
          const clock = new ManualClock(T0)
          const { open, kill, end } = await engine.begin(clock)
          const finals = new Map<string, { name: string; counted: number[] }>()
          let running: { id: string; name: string }[] = []
          let next = 0
          try {
            let store = await open()
            for (const [what, figure = 0] of [...steps, ['kill'], ['kill']] as Step[]) {
              const now = clock.now()
              if (what === 'admit') {
                const [id, name] = [`r${next++}`, NAMES[figure]!]
                const user = { name, cells: SLOW, amounts: [9, 1, 900] }
                if (!(await store.limits.admit({ org: 'acme', id, cells: booked, amounts: [5], now, user })).admitted)
                  continue
                void store.ledger.intent(intent(id, { time: now }))
                running.push({ id, name })
              } else if (what === 'settle' && running.length > 0) {
                const { id, name } = running.splice(figure % running.length, 1)[0]!
                finals.set(id, { name, counted: [figure, 10 * figure] })
                void store.ledger.outcome(outcome(id, { cost: 10 * figure }))
                store.limits.settle('acme', id, [10 * figure], now, [figure, 0, 10 * figure])
              } else if (what === 'turn') await tick()
              else if (what === 'save') clock.advance(750)
              else if (what === 'book') await store.ledger.flush()
              else if (what === 'kill') {
                // What the killed process on Redis has not journaled yet, its own connection may still deliver as a row.
                if (engine.name === 'redis') await tick()
                await kill()
                store = await open()
                running = []
                await store.ledger.flush()
                const rows = (await store.ledger.query({})).filter(({ outcome }) => outcome !== 'lost')
                const all = rows.map(row => finals.get(row.request_id)!)
                for (const name of NAMES) {
                  const used = all.flatMap(one => (one.name === name ? [one.counted] : []))
                  const expected = [0, 1].map(i => used.reduce((sum, counted) => sum + counted[i]!, 0))
                  assert.deepEqual(await usedBy(store.limits, 'acme', name, clock.now()), expected, name)
                }
              }
            }
          } finally {
            await end()
          }
        },
      ),
      { numRuns: Number(process.env['RUNS'] ?? 3) },
    ),
  )

test('redis: what a dead gateway held of users is given back, also behind a release that knows no users', {
  skip,
}, async () => {
  const leaseTimes = { ttl: 600_000, every: 300_000 }
  const open = () => openRedisStore(redisOptions(server!.url, { leaseTimes }))
  const [dead, alive] = await Promise.all([open(), open()])
  const org = `dead${++orgs}`
  const cells = [slots('o:conc', 9)]
  const admit = (one: RedisStore, name: string) => {
    const user = { name, cells: SLOW, amounts: [9, 1, 900] }
    return one.limits.admit({ org, id: `of ${name}`, cells, amounts: [1], now: T0, user })
  }
  try {
    await admit(dead, 'ann')
    await admit(alive, 'böb: 1')
    const { cells: hash, prefix } = dead.leases.keysOf(org)
    // A gateway of 0.1 reads only this hash: the reservation there has the account's groups, and nothing of a user.
    const fields = Object.keys(await dead.client.redis.hgetall(hash))
    assert.deepEqual(
      fields.filter(field => field.startsWith('k:')),
      [],
    )
    assert.doesNotMatch(String(await dead.client.redis.hget(hash, `${prefix}of ann`)), /k:key_ci/)
    const { id } = dead.leases
    await dead.leases.close(false)
    const { redis } = alive.client
    await alive.client.script(script('reclaim'), [hash], [`${prefix}of ann`])
    await redis.del(`sluice:orgs:${id}`)
    await redis.srem('{sluice:leases}:held', id)
    assert.deepEqual(await usedBy(alive.limits, org, 'ann', T0), [9, 900])
    assert.equal(await alive.limits.audit(), 1)
    assert.deepEqual(await usedBy(alive.limits, org, 'ann', T0), [0, 0])
    assert.deepEqual(await usedBy(alive.limits, org, 'böb: 1', T0), [9, 900])
    assert.equal((await alive.limits.peek(org, cells, T0))[0]!.remaining, 8)
    // The same under a lease that is known: both parts at once.
    const third = await open()
    await admit(third, 'ann')
    assert.equal(await alive.leases.reclaim(third.leases.id, org), 1)
    assert.deepEqual(await usedBy(alive.limits, org, 'ann', T0), [0, 0])
    // A settlement that comes late is charged in full.
    third.limits.settle(org, 'of ann', [0], T0, [4, 0, 40])
    await third.limits.delivered(['of ann'])
    assert.deepEqual(await usedBy(alive.limits, org, 'ann', T0), [4, 40])
    await third.close()
  } finally {
    await Promise.all([dead.close(), alive.close()])
  }
})

test('redis: an admission of a user whose answer is lost is given back, also when it comes late', { skip }, async t => {
  const one = await openRedisStore(redisOptions(server!.url))
  t.after(() => one.close())
  const org = `lost${++orgs}`
  const cells = [slots('o:conc', 9)]
  const user = { name: 'ann', cells: SLOW, amounts: [9, 1, 900] }
  const request = { org, cells, amounts: [1], now: T0, user }
  await one.limits.admit({ ...request, id: 'first' })
  const { client, leases, limits } = one
  const keys = { keys: leases.userKeysOf(org, 'key_ci'), name: 'ann', most: 3 }
  const late = planOfUser(cells, SLOW).admission(leases.keysOf(org), 'late', [1, 9, 1, 900], T0, keys)
  const send = client.send.bind(client)
  const lose = t.mock.method(client, 'send', async (call: Parameters<typeof send>[0]) => {
    await send(call)
    throw new StoreUnavailable('lost')
  })
  await assert.rejects(async () => limits.admit({ ...request, id: 'taken' }), /lost/)
  lose.mock.mockImplementation(async () => {
    throw new StoreUnavailable('lost')
  })
  await assert.rejects(async () => limits.admit({ ...request, id: 'late' }), /lost/)
  lose.mock.restore()
  await limits.delivered(['taken', 'late'])
  assert.equal(((await client.send(late)) as Buffer)[0], '0'.charCodeAt(0))
  assert.deepEqual(await usedBy(limits, org, 'ann', T0), [9, 900])
  assert.equal((await limits.peek(org, cells, T0))[0]!.remaining, 8)
})

for (const [name, url] of [
  ['sqlite', () => `sqlite:${path.join(temporary(), 'gateway.db')}`],
  ['redis', newRedis],
] as const)
  test(`${name}: a deleted key leaves no users behind, those of others stay`, {
    skip: name === 'redis' && skip,
  }, async t => {
    const address = url()
    const open = () => openStore(options(address, { dataDir: temporary() }))
    const digest = (n: number) => n.toString(16).padStart(64, 'e')
    const keys = ['key_ci', 'other'].map((id, n) => ({ id, sha256: digest(n), settings: '{}' }))
    const cellsOf = (key: string) => SLOW.map(cell => ({ ...cell, id: cell.id.replace('key_ci', key) }))
    const store = await open()
    const now = Date.now()
    const [made] = await store.accounts.change([{ id: 'acme', expected: 0, settings: '{}', keys }])
    for (const key of ['key_ci', 'other']) {
      const user = { name: 'ann', cells: cellsOf(key), amounts: [9, 1, 900] }
      await store.limits.admit({ org: 'acme', id: key, cells: booked, amounts: [0], now, user })
      store.limits.settle('acme', key, [0], now, [9, 0, 900])
    }
    await store.close()
    const accounts = await openAccounts(address)
    assert.ok(made && 'version' in made)
    await accounts.accounts.change([{ id: 'acme', expected: made.version, keys: [], removed: ['key_ci'] }])
    await accounts.close()
    const again = await open()
    t.after(() => again.close())
    assert.deepEqual(await usedBy(again.limits, 'acme', 'ann', now), [0, 0])
    const user = { name: 'ann', cells: cellsOf('other'), amounts: [201, 1, 0] }
    const answer = await again.limits.admit({ org: 'acme', id: 'none', cells: booked, amounts: [0], now, user })
    assert.equal(answer.admitted, false)
    assert.equal((answer as Denial).user?.[0]?.remaining, 191)
  })
