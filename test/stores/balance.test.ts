/**
 * The balance of a prepaid organization: what is left is credits minus the rows of the ledger, on both engines, after
 * any kill. A cell that forgot would give the credits away a second time; one that took too much would keep a customer's
 * money.
 */
import assert from 'node:assert/strict'
import { after, before, type TestContext, test } from 'node:test'
import fc from 'fast-check'
import type { Cell, Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { BALANCE } from '../../stores/redis/layout.ts'
import type { RedisStore } from '../../stores/redis/store.ts'
import { eventually } from '../eventually.ts'
import { killableEngines } from './killed.ts'
import { balance, bucket, intent, options, outcome, T0, temporary } from './kit.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

const skip = skipWithoutRedis
let server: RedisServer
before(async () => {
  if (!skip) server = await RedisServer.start()
})
after(() => server?.stop())
let database = 0
const newRedis = () => server.url.replace(/0$/, String(++database % 16))

const CREDIT = 1_000_000
const cellsFor = (credited: number): readonly Cell[] => [bucket('o:rpm', 1e6), balance(credited)]
const tick = () => new Promise<void>(resolve => setImmediate(resolve))

type Step = ['admit', number] | ['settle', number] | ['credit', number] | ['turn'] | ['book'] | ['kill']

for (const engine of killableEngines(newRedis)) {
  test(`${engine.name}: after any kill, what is left is credits minus rows`, { skip: engine.skip }, () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            { weight: 4, arbitrary: fc.tuple(fc.constant('admit' as const), fc.integer({ min: 0, max: 900_000 })) },
            { weight: 4, arbitrary: fc.tuple(fc.constant('settle' as const), fc.nat(99)) },
            { weight: 1, arbitrary: fc.tuple(fc.constant('credit' as const), fc.nat(3)) },
            { weight: 2, arbitrary: fc.constant(['turn'] as ['turn']) },
            { weight: 1, arbitrary: fc.constant(['book'] as ['book']) },
            { weight: 2, arbitrary: fc.constant(['kill'] as ['kill']) },
          ),
          { minLength: 4, maxLength: 20 },
        ),
        async (steps: Step[]) => {
          const clock = new ManualClock(T0)
          const { open, kill, end } = await engine.begin(clock)
          let next = 0
          let version = 0
          let cells = cellsFor(0)
          let running: { id: string; reserved: number }[] = []
          const give = async (store: Store, id: string) => {
            const credit = { id, amount: CREDIT, time: T0, by: 'cli:ops', note: '' }
            const settings = JSON.stringify({ credited: cells[1]!.capacity + CREDIT })
            const [result] = await store.accounts.change([
              { id: 'acme', expected: version, settings, keys: [], credit },
            ])
            if (result!.refused === undefined) {
              version = result!.version
              cells = cellsFor(cells[1]!.capacity + CREDIT)
            } else assert.equal(result!.refused, 'credited')
          }
          const admit = (store: Store, id: string, amount: number) =>
            store.limits.admit({ org: 'acme', id, cells, amounts: [1, amount], now: clock.now() })
          const left = async (store: Store) => (await store.limits.peek('acme', cells, clock.now()))[1]!.remaining
          try {
            let store = await open()
            await give(store, 'first')
            for (const [what, figure] of [...steps, ['kill'], ['kill']] as Step[]) {
              if (what === 'admit') {
                const id = `r${next++}`
                if (!(await admit(store, id, figure as number)).admitted) continue
                const now = clock.now()
                void store.ledger.intent(intent(id, { time: now, organization: 'acme', billing: 'prepaid' }))
                running.push({ id, reserved: figure as number })
              } else if (what === 'settle' && running.length > 0) {
                const { id, reserved } = running.splice((figure as number) % running.length, 1)[0]!
                const cost = Math.floor((reserved * (figure as number)) / 99)
                void store.ledger.outcome(outcome(id, { cost }))
                store.limits.settle('acme', id, [1, cost], clock.now())
              } else if (what === 'credit') await give(store, `c${figure}`)
              else if (what === 'turn') await tick()
              else if (what === 'book') await store.ledger.flush()
              else if (what === 'kill') {
                await kill()
                store = await open()
                running = []
                // The cell is made anew, or corrected, before anything is taken of it.
                const id = `p${next++}`
                await admit(store, id, 0)
                store.limits.settle('acme', id, [1, 0], clock.now())
                await store.ledger.flush()
                const rows = await store.ledger.query({ org: 'acme' })
                const credits = await store.accounts.credits('acme')
                const expected =
                  credits.reduce((sum, { amount }) => sum + amount, 0) - rows.reduce((sum, { cost }) => sum + cost, 0)
                assert.ok(expected >= 0, 'it never goes below zero')
                await eventually(
                  async () => (await left(store)) === expected,
                  async () => [await left(store), expected],
                )
                assert.equal(cells[1]!.capacity - (await store.accounts.billed('acme')), expected)
              }
            }
          } finally {
            await end()
          }
        },
      ),
      { numRuns: Number(process.env['RUNS'] ?? 5) },
    ),
  )
}

const redisStore = async (t: TestContext, url: string, more = {}) => {
  const store = (await openStore(options(url, { dataDir: temporary(), ...more }))) as RedisStore
  t.after(() => store.close())
  return store
}

test('redis: a balance whose cell is lost is built of rows and reservations before it is used', { skip }, async t => {
  const store = await redisStore(t, newRedis())
  await store.client.redis.flushdb()
  const org = 'acme'
  const cells = cellsFor(1000)
  const admit = (id: string, amount: number) =>
    store.limits.admit({ org, id, cells, amounts: [1, amount], now: T0 }) as Promise<{ admitted: boolean }>
  assert.equal((await admit('a', 300)).admitted, true)
  await store.ledger.intent(intent('a', { billing: 'prepaid' }))
  store.ledger.outcome(outcome('a', { cost: 200 }))
  store.limits.settle(org, 'a', [1, 200], T0)
  await store.ledger.flush()
  assert.equal((await admit('b', 500)).admitted, true)
  const { cells: key } = store.leases.keysOf(org)
  const used = async () => (await store.client.redis.hgetBuffer(key, BALANCE.group))!.readDoubleLE(17 * 8)
  const whole = await used()
  await store.client.redis.hdel(key, BALANCE.group)
  // A level that is gone would be an untouched one, and give the credits away again.
  assert.equal((await admit('c', 301)).admitted, false)
  assert.equal((await admit('d', 300)).admitted, true)
  assert.equal(await used(), whole + 300)
})

test('redis: a gateway that starts alone builds balances anew; beside another it does not', { skip }, async t => {
  const url = newRedis()
  const first = await redisStore(t, url)
  const generation = async () => Number(await first.client.redis.get('{sluice:leases}:balances'))
  const before = await generation()
  const second = await redisStore(t, url)
  assert.equal(await generation(), before)
  const cells = cellsFor(1000)
  // Something that no row says: lost with a journal.
  await second.limits.admit({ org: 'zed', id: 'a', cells, amounts: [1, 400], now: T0 })
  second.limits.settle('zed', 'a', [1, 400], T0)
  const left = async (store: Store) => (await store.limits.peek('zed', cells, T0))[1]!.remaining
  await eventually(async () => (await left(second)) === 600)
  await second.close()
  await first.close()
  const third = await redisStore(t, url)
  assert.equal(Number(await third.client.redis.get('{sluice:leases}:balances')), before + 1)
  assert.equal((await third.limits.admit({ org: 'zed', id: 'b', cells, amounts: [1, 1000], now: T0 })).admitted, true)
})
