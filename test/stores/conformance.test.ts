/** One suite for both engines: what the chain may rely on, whichever line stands in gateway.yaml. */
import assert from 'node:assert/strict'
import path from 'node:path'
import { after, before, describe, type TestContext, test } from 'node:test'
import fc from 'fast-check'
import type { Admission, Cell, IdempotencyRecord, Store } from '../../core/ports/store.ts'
import { openStore, type StoreOptions } from '../../stores/index.ts'
import { RedisLimits } from '../../stores/redis/limits.ts'
import { eventually } from '../eventually.ts'
import {
  bucket,
  DAY,
  everyDimension,
  intent,
  MINUTE,
  options,
  outcome,
  PROVIDER_SIDE,
  slots,
  spend,
  T0,
  temporary,
} from './kit.ts'
import { Model } from './model.ts'
import { RedisServer, skipWithoutRedis } from './redis-server.ts'

let server: RedisServer | undefined
let orgs = 0
/** An organization of its own for each test: the shared server is never emptied. */
const newOrg = () => `org${++orgs}`

interface Engine {
  name: string
  skip: string | false
  open(t: TestContext, more?: Partial<StoreOptions>): Promise<Store>
}

const engines: Engine[] = [
  {
    name: 'sqlite',
    skip: false,
    async open(t, more) {
      const store = await openStore(options(`sqlite:${path.join(temporary(), 'gateway.db')}`, more))
      t.after(() => store.close())
      return store
    },
  },
  {
    name: 'sqlite in memory',
    skip: false,
    async open(t, more) {
      const store = await openStore(options('sqlite::memory:', more))
      t.after(() => store.close())
      return store
    },
  },
  {
    name: 'redis',
    skip: skipWithoutRedis,
    async open(t, more) {
      const store = await openStore(options(server!.url, { dataDir: temporary(), ...more }))
      t.after(() => store.close())
      return store
    },
  },
]

/** For a store that must share nothing with other tests: the URL of an empty Redis database, or undefined for SQLite. */
let databases = 0
const alone = (engine: Engine) =>
  engine.name === 'redis' ? { url: server!.url.replace(/\/0$/, `/${++databases}`) } : {}

before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

const denied = (admission: Admission) => {
  assert.equal(admission.admitted, false)
  return admission as Extract<Admission, { admitted: false }>
}
const reply = (id: string, text = 'hello', whole = true): IdempotencyRecord => ({
  requestId: id,
  status: 200,
  headers: [
    ['content-type', 'text/event-stream'],
    ['x-request-id', id],
  ],
  body: Buffer.from(text),
  whole,
})

for (const engine of engines) {
  const it = (name: string, fn: (t: TestContext) => Promise<void>) => test(name, { skip: engine.skip }, fn)

  describe(engine.name, () => {
    it('[LIM-2] takes from all cells or from none', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const cells = [
        bucket('o:rpm', 10),
        bucket('o:tpm', 1000, MINUTE, 'tokens'),
        slots('o:concurrency', 2),
        spend('o:spend:day', 5000),
      ]
      const first = await limits.admit({ org, id: 'a', cells, amounts: [1, 400, 1, 100], now: T0 })
      assert.deepEqual(first, {
        admitted: true,
        states: [
          { remaining: 9, resetMs: 6000 },
          { remaining: 600, resetMs: 24_000 },
          { remaining: 1, resetMs: 0 },
          { remaining: 4900, resetMs: 0 },
        ],
      })
      const second = denied(await limits.admit({ org, id: 'b', cells, amounts: [1, 601, 1, 100], now: T0 }))
      assert.equal(second.denied, 1)
      assert.equal(second.horizonMs, 60)
      assert.deepEqual(await limits.wouldDeny({ org, cells, amounts: [1, 601, 1, 100], now: T0 }), second)
      assert.equal(await limits.wouldDeny({ org, cells, amounts: [9, 600, 1, 4900], now: T0 }), null)
      const left = await limits.peek(org, cells, T0)
      assert.deepEqual(
        left.map(state => state.remaining),
        [9, 600, 1, 4900],
      )
    })

    it('says whether a look is a call to another process', async t => {
      const store = await engine.open(t)
      const look = store.limits.wouldDeny({ org: newOrg(), cells: [bucket('o:rpm', 10)], amounts: [1], now: T0 })
      assert.equal(look instanceof Promise, store.remote)
      await look
    })

    it('[LIM-4] settles to the final figures, once', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const cells = [
        bucket('o:rpm', 10),
        bucket('o:tpm', 1000, MINUTE, 'tokens'),
        slots('o:concurrency', 2),
        spend('o:spend:day', 5000),
      ]
      await limits.admit({ org, id: 'a', cells, amounts: [1, 400, 1, 900], now: T0 })
      await limits.admit({ org, id: 'b', cells, amounts: [1, 400, 1, 900], now: T0 })
      limits.settle(org, 'a', [1, 150, 1, 300], T0)
      limits.settle(org, 'a', [0, 0, 0, 0], T0)
      limits.settle(org, 'unknown', [0, 0, 0, 0], T0)
      const remaining = async () => (await limits.peek(org, cells, T0)).map(state => state.remaining)
      await eventually(async () => (await remaining())[2] === 1)
      assert.deepEqual(await remaining(), [8, 450, 1, 3800])
      // Given back whole.
      limits.settle(org, 'b', [0, 0, 0, 0], T0)
      await eventually(async () => (await remaining())[2] === 2)
      assert.deepEqual(await remaining(), [9, 850, 2, 4700])
    })

    it('[LIM-4] use beyond the reserve is debt that later refill pays', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const cells = [bucket('o:otpm', 60_000, MINUTE, 'output_tokens')]
      await limits.admit({ org, id: 'a', cells, amounts: [10_000], now: T0 })
      limits.settle(org, 'a', [90_000], T0)
      await eventually(async () => (await limits.peek(org, cells, T0))[0]!.remaining === 0)
      const wait = denied(await limits.admit({ org, id: 'b', cells, amounts: [1], now: T0 })).horizonMs
      assert.equal(wait, 30_001)
      assert.equal((await limits.admit({ org, id: 'c', cells, amounts: [1], now: T0 + wait })).admitted, true)
    })

    it('a limit that exchanges of the same scope do not ask for meanwhile refills all the same', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const minute = bucket('o:rpm', 10)
      const day = bucket('o:rpd', 864_000, DAY)
      const other = bucket('o:tpm', 1000, MINUTE, 'tokens')
      await limits.admit({ org, id: 'a', cells: [minute, day], amounts: [10, 800], now: T0 })
      for (const [i, seconds] of [6, 18, 30].entries())
        await limits.admit({ org, id: `b${i}`, cells: [other], amounts: [100], now: T0 + seconds * 1000 })
      const at = T0 + 36_000
      const remaining = async (cells: Cell[]) => (await limits.peek(org, cells, at)).map(state => state.remaining)
      assert.deepEqual(await remaining([minute, day, other]), [6, 864_000 - 800 + 360, 1000])
      const full = denied(await limits.admit({ org, id: 'c', cells: [minute], amounts: [7], now: at }))
      assert.equal(full.horizonMs, 6000)
      assert.equal((await limits.admit({ org, id: 'd', cells: [minute], amounts: [6], now: at })).admitted, true)
      limits.settle(org, 'a', [10, 400], at)
      await eventually(async () => (await remaining([day]))[0] === 864_000 - 400 + 360)
      assert.deepEqual(await remaining([minute]), [0])
    })

    it('[LIM-3] of 20·N simultaneous requests exactly N pass, for each dimension', async t => {
      const { limits } = await engine.open(t)
      const N = 25
      const dimensions: Cell[] = [
        bucket('c:minute', N),
        bucket('c:day', N, DAY),
        slots('c:slots', N),
        spend('c:spend', N),
        spend('c:month', N, 'month'),
      ]
      for (const cell of dimensions) {
        const org = newOrg()
        const others = [bucket('o:wide', 1e9), slots('o:wide-slots', 1e6)]
        const cells = [others[0]!, cell, others[1]!]
        const results = await Promise.all(
          Array.from({ length: 20 * N }, (_, i) =>
            limits.admit({ org, id: `r${i}`, cells, amounts: [1, 1, 1], now: T0 }),
          ),
        )
        assert.equal(results.filter(result => result.admitted).length, N, cell.id)
        // The denied ones took nothing of the wide cells.
        const [rest] = await limits.peek(org, others, T0)
        assert.equal(rest!.remaining, 1e9 - N)
      }
    })

    it('an admission sent twice is taken once', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const cells = [bucket('o:rpm', 2)]
      assert.equal((await limits.admit({ org, id: 'a', cells, amounts: [1], now: T0 })).admitted, true)
      assert.equal((await limits.admit({ org, id: 'a', cells, amounts: [1], now: T0 })).admitted, true)
      assert.equal((await limits.peek(org, cells, T0))[0]!.remaining, 1)
    })

    it('[LIM-8] spend ends with its UTC day and month, and a late settlement stays in its own', async t => {
      const { limits } = await engine.open(t)
      const org = newOrg()
      const cells = [spend('o:spend:day', 1000), spend('o:spend:month', 3000, 'month')]
      const evening = Date.UTC(2026, 10, 30, 23, 59)
      const morning = Date.UTC(2026, 11, 1, 0, 1)
      await limits.admit({ org, id: 'a', cells, amounts: [900, 900], now: evening })
      const wait = denied(await limits.admit({ org, id: 'b', cells, amounts: [200, 200], now: evening }))
      assert.equal(wait.horizonMs, MINUTE)
      assert.equal((await limits.admit({ org, id: 'b', cells, amounts: [200, 200], now: morning })).admitted, true)
      limits.settle(org, 'a', [950, 950], morning)
      limits.settle(org, 'b', [150, 150], morning)
      await eventually(async () => (await limits.peek(org, cells, morning))[0]!.remaining === 850)
      assert.deepEqual(
        (await limits.peek(org, cells, morning)).map(state => state.remaining),
        [850, 2850],
      )
    })

    it('a clock that goes back, and forth again, gives nothing back', async t => {
      const { limits } = await engine.open(t)
      const cells = [spend('o:day', 1e6), spend('o:month', 1e6, 'month'), bucket('o:rpd', 1000, DAY)]
      const jump = fc.record({ days: fc.nat({ max: 30 }), ms: fc.nat({ max: DAY }), take: fc.nat({ max: 9 }) })
      await fc.assert(
        fc.asyncProperty(fc.array(jump, { minLength: 1, maxLength: 8 }), async jumps => {
          const org = newOrg()
          let taken = 0
          for (const [i, { days, ms, take }] of jumps.entries()) {
            for (const now of [Math.max(T0 - days * DAY - ms, T0 - 30 * DAY), T0]) {
              const id = `r${i}-${now}`
              assert.ok(
                (await limits.admit({ org, id, cells, amounts: [take, take, take], now: i ? now : T0 })).admitted,
              )
              limits.settle(org, id, [take, take, take], i ? now : T0)
              if (limits instanceof RedisLimits) await limits.delivered([id])
              taken += take
              const left = await limits.peek(org, cells, T0)
              assert.deepEqual(
                left.slice(0, 2).map(state => state.remaining),
                [1e6 - taken, 1e6 - taken],
              )
              if (days === 0) assert.ok(left[2]!.remaining <= 1000)
            }
          }
        }),
        { numRuns: engine.name === 'redis' ? 20 : 60 },
      )
    })

    it('cells of two organizations never meet', async t => {
      const { limits } = await engine.open(t)
      const cells = [bucket('o:rpm', 1)]
      for (const org of [newOrg(), newOrg(), 'a{b', 'a}b', '{}', 'é ü']) {
        const name = org + Math.random()
        assert.equal((await limits.admit({ org: name, id: 'a', cells, amounts: [1], now: T0 })).admitted, true, org)
        assert.equal((await limits.admit({ org: name, id: 'b', cells, amounts: [1], now: T0 })).admitted, false, org)
      }
    })

    it('[LIM-1] every dimension of organization and key in one step; no cells at all passes', async t => {
      const { limits } = await engine.open(t)
      const cells = everyDimension()
      const admission = await limits.admit({ org: newOrg(), id: 'a', cells, amounts: cells.map(() => 1), now: T0 })
      assert.equal(admission.admitted, true)
      assert.equal(admission.states.length, 22)
      assert.deepEqual(await limits.admit({ org: newOrg(), id: 'b', cells: [], amounts: [], now: T0 }), {
        admitted: true,
        states: [],
      })
    })

    it('random interleavings of admissions and settlements agree with the model', async t => {
      const { limits } = await engine.open(t)
      const cells = [
        bucket('o:rpm', 7),
        bucket('o:tpm', 1000, MINUTE, 'tokens'),
        bucket('o:tpd', 900_000_011, DAY, 'tokens'),
        slots('o:concurrency', 3),
        spend('o:spend:day', 100_000),
      ]
      const step = fc.oneof(
        {
          weight: 3,
          arbitrary: fc.record({
            do: fc.constant('admit' as const),
            id: fc.nat({ max: 30 }),
            tokens: fc.nat({ max: 600 }),
            usd: fc.nat({ max: 40_000 }),
          }),
        },
        {
          weight: 2,
          arbitrary: fc.record({
            do: fc.constant('settle' as const),
            id: fc.nat({ max: 30 }),
            tokens: fc.nat({ max: 900 }),
            usd: fc.nat({ max: 60_000 }),
          }),
        },
        {
          weight: 2,
          arbitrary: fc.record({
            do: fc.constant('wait' as const),
            ms: fc.oneof(fc.nat({ max: 20_000 }), fc.constant(DAY)),
          }),
        },
      )
      await fc.assert(
        fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async steps => {
          const org = newOrg()
          const model = new Model()
          let now = T0
          for (const s of steps) {
            if (s.do === 'wait') now += s.ms
            else {
              const amounts = [1, s.tokens, s.tokens, 1, s.usd]
              if (s.do === 'admit') {
                const admission = await limits.admit({ org, id: `r${s.id}`, cells, amounts, now })
                assert.equal(admission.admitted, model.admit(`r${s.id}`, cells, amounts, now))
              } else {
                limits.settle(org, `r${s.id}`, amounts, now)
                // The shared engine sends a settlement when its journal record is written.
                if (limits instanceof RedisLimits) await limits.delivered([`r${s.id}`])
                model.settle(`r${s.id}`, amounts, now)
              }
            }
            const states = await limits.peek(org, cells, now)
            assert.deepEqual(
              states.map(state => state.remaining),
              cells.map(cell => model.remaining(cell, now)),
            )
          }
        }),
        { numRuns: engine.name === 'redis' ? 60 : 150 },
      )
    })

    it('[LIM-1] [LIM-2] every dimension of organization and key, any capacities, agrees with the model', async t => {
      const { limits } = await engine.open(t)
      const count = everyDimension().length
      // Up to 1e13, where a product of capacity and time is far above 2^53.
      const capacity = fc.oneof(fc.integer({ min: 1, max: 2000 }), fc.integer({ min: 1e9, max: 1e13 }))
      const step = fc.record({
        ms: fc.oneof(fc.constant(0), fc.nat({ max: 90_000 }), fc.constant(DAY), fc.constant(40 * DAY)),
        id: fc.nat({ max: 6 }),
        /** Of each cell's capacity, in 1/8: what is reserved, and what it comes to. */
        shares: fc.array(fc.nat({ max: 9 }), { minLength: count, maxLength: count }),
        settles: fc.boolean(),
      })
      await fc.assert(
        fc.asyncProperty(
          fc.array(capacity, { minLength: count, maxLength: count }),
          fc.array(step, { minLength: 4, maxLength: 20 }),
          async (capacities, steps) => {
            const org = newOrg()
            const cells = everyDimension().map((cell, i) => ({ ...cell, capacity: capacities[i]! }))
            const model = new Model()
            let now = T0
            for (const { ms, id, shares, settles } of steps) {
              now += ms
              const amounts = cells.map((cell, i) =>
                cell.kind === 'slots' ? 1 : Math.floor((cell.capacity * shares[i]!) / (settles ? 8 : 40)),
              )
              if (settles) {
                limits.settle(org, `r${id}`, amounts, now)
                if (limits instanceof RedisLimits) await limits.delivered([`r${id}`])
                model.settle(`r${id}`, amounts, now)
              } else {
                const { admitted } = await limits.admit({ org, id: `r${id}`, cells, amounts, now })
                assert.equal(admitted, model.admit(`r${id}`, cells, amounts, now))
              }
              assert.deepEqual(
                (await limits.peek(org, cells, now)).map(state => state.remaining),
                cells.map(cell => model.remaining(cell, now)),
              )
            }
          },
        ),
        { numRuns: engine.name === 'redis' ? 60 : 100 },
      )
    })

    it('[BILL-1] [BILL-4] one ledger row per intent, with every field', async t => {
      const { ledger } = await engine.open(t)
      const org = newOrg()
      ledger.intent(intent(`${org}-a`, { organization: org }))
      ledger.intent(
        intent(`${org}-b`, { organization: org, time: T0 + 1, key_id: 'key_2', model: '', billing: 'free' }),
      )
      ledger.intent(intent(`${org}-open`, { organization: org, time: T0 + 2 }))
      ledger.outcome(outcome(`${org}-a`, PROVIDER_SIDE))
      ledger.outcome(
        outcome(`${org}-b`, {
          outcome: 'client_gone',
          ttfb_ms: null,
          cost: 0,
          provider: '',
          bytes_in: 10,
          bytes_out: 0,
        }),
      )
      ledger.outcome(outcome(`${org}-b`))
      ledger.outcome(outcome('never-announced'))
      await ledger.flush()
      const rows = await ledger.query({ org })
      const { usage, ...rest } = outcome(`${org}-a`, PROVIDER_SIDE)
      assert.deepEqual(rows[0], { ...intent(`${org}-a`, { organization: org }), tags: '', ...rest, ...usage })
      assert.equal(rows.length, 2)
      const absent = Object.keys(PROVIDER_SIDE).filter(name => Object.hasOwn(rows[1]!, name))
      assert.deepEqual(
        absent.sort(),
        ['body_digest', 'code', 'price_used', 'provider_model', 'service_tier'],
        'what is not known is absent; texts are empty',
      )
      assert.deepEqual(
        [rows[1]!.outcome, rows[1]!.ttfb_ms, rows[1]!.provider, rows[1]!.model, rows[1]!.bytes_in, rows[1]!.bytes_out],
        ['client_gone', null, '', '', 10, 0],
      )
    })

    it('the row of a request is found for its organization alone, and a statement has all rows of a range', async t => {
      const store = await engine.open(t)
      const [org, other] = [newOrg(), newOrg()]
      const book = (id: string, time: number, more: { organization?: string; key_id?: string } = {}) => {
        store.ledger.intent(intent(id, { organization: org, time, ...more }))
        store.ledger.outcome(outcome(id, { body_digest: id }))
      }
      const now = Date.now()
      const month = Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth(), 1)
      const since = month - 40 * DAY
      // Of two days each, more than one read of an index; of another organization and another key at the same times.
      for (let i = 0; i < 250; i++) {
        book(`${org}-${i}`, now - i, i % 50 === 0 ? { key_id: 'key_2' } : {})
        book(`${org}-old${i}`, since + i)
        if (i < 20) book(`${other}-${i}`, now - i, { organization: other })
      }
      await store.ledger.flush()
      const idOf = async (organization: string, id: string, time: number) =>
        (await store.row(organization, id, time))?.request_id
      for (const i of [0, 1, 99, 100, 249]) {
        assert.equal(await idOf(org, `${org}-${i}`, now - i), `${org}-${i}`)
        assert.equal(await idOf(other, `${org}-${i}`, now - i), undefined)
      }
      const row = (await store.row(org, `${org}-7`, now - 7))!
      assert.deepEqual(
        row,
        (await store.ledger.query({ org })).find(({ request_id }) => request_id === row.request_id),
      )
      assert.equal(row.body_digest, `${org}-7`)
      assert.equal(await idOf(org, 'unknown', now), undefined)
      // A clock that is somewhat off, and an exchange that ran for some minutes.
      assert.equal(await idOf(org, `${org}-3`, now - 3 + 5 * MINUTE), `${org}-3`)
      assert.equal(await idOf(org, `${org}-3`, now - 3 - 5 * MINUTE), `${org}-3`)
      const statement = async (filter: { key?: string; since: number; until: number }, organization = org) => {
        const ids: string[] = []
        for await (const page of store.statement({ org: organization, ...filter }))
          for (const { request_id } of page) ids.push(request_id)
        return ids.sort()
      }
      const all = Array.from({ length: 250 }, (_, i) => i)
      const until = now + 1
      assert.deepEqual(await statement({ since: now - 249, until }), all.map(i => `${org}-${i}`).sort())
      assert.deepEqual(
        await statement({ since: now - 99, until: now - 49 }),
        all
          .slice(50, 100)
          .map(i => `${org}-${i}`)
          .sort(),
      )
      assert.deepEqual(await statement({ since, until: since + 250 }), all.map(i => `${org}-old${i}`).sort())
      assert.equal((await statement({ since, until })).length, 500)
      assert.deepEqual(
        await statement({ key: 'key_2', since, until }),
        [0, 50, 100, 150, 200].map(i => `${org}-${i}`).sort(),
      )
      assert.equal((await statement({ since, until }, other)).length, 20)
      assert.deepEqual(await statement({ since, until }, newOrg()), [])
    })

    it('the ledger is queried by organization, key, model and time, in time order', async t => {
      const { ledger } = await engine.open(t)
      const org = newOrg()
      const ids = [5, 3, 1, 4, 2].map(n => `${org}-${n}`)
      for (const id of ids) {
        const n = Number(id.at(-1))
        ledger.intent(
          intent(id, {
            organization: org,
            time: T0 + n,
            key_id: n % 2 ? 'odd' : 'even',
            model: n > 3 ? 'big' : 'small',
          }),
        )
      }
      for (const id of ids) ledger.outcome(outcome(id))
      await ledger.flush()
      const numbers = async (filter: object) => (await ledger.query({ org, ...filter })).map(row => row.time - T0)
      assert.deepEqual(await numbers({}), [1, 2, 3, 4, 5])
      assert.deepEqual(await numbers({ key: 'odd' }), [1, 3, 5])
      assert.deepEqual(await numbers({ model: 'big' }), [4, 5])
      assert.deepEqual(await numbers({ since: T0 + 2, until: T0 + 4 }), [2, 3])
      assert.deepEqual(await numbers({ limit: 2 }), [4, 5])
      assert.deepEqual(await numbers({ limit: 0 }), [])
      assert.deepEqual(await ledger.query({ org: 'nobody' }), [])
    })

    it('thousands of rows arrive, each once', async t => {
      const { ledger } = await engine.open(t)
      const org = newOrg()
      const count = 3000
      for (let i = 0; i < count; i++) {
        ledger.intent(intent(`${org}-${i}`, { organization: org, time: T0 + i }))
        if (i % 7 === 0) await Promise.resolve()
        ledger.outcome(outcome(`${org}-${i}`, { cost: i }))
      }
      await ledger.flush()
      const rows = await ledger.query({ org })
      assert.equal(rows.length, count)
      assert.equal(new Set(rows.map(row => row.request_id)).size, count)
      assert.equal(
        rows.reduce((sum, row) => sum + row.cost, 0),
        (count * (count - 1)) / 2,
      )
    })

    it('[IDEM-1] a finished first use is replayed byte for byte', async t => {
      const { idempotency } = await engine.open(t)
      const org = newOrg()
      const key = 'k!~ "\\'
      assert.deepEqual(await idempotency.begin(org, key, 'f1', 'r1', DAY, Date.now()), { state: 'first' })
      assert.deepEqual(await idempotency.begin(org, key, 'f1', 'r2', DAY, Date.now()), { state: 'running' })
      const bytes = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256))
      const finishing = idempotency.finish(org, key, { ...reply('r1'), body: bytes, whole: false }, DAY, Date.now())
      if (engine.name !== 'redis') {
        // Answered at once, before anything is committed.
        assert.equal((await idempotency.begin(org, key, 'f1', 'r2', DAY, Date.now())).state, 'replay')
      }
      await finishing
      const replay = await idempotency.begin(org, key, 'f1', 'r3', DAY, Date.now())
      assert.equal(replay.state, 'replay')
      if (replay.state !== 'replay') return
      assert.deepEqual(
        { ...replay.record, body: Buffer.from(replay.record.body) },
        { ...reply('r1'), body: bytes, whole: false },
      )
      // Another organization's same key is another key.
      assert.equal((await idempotency.begin(newOrg(), key, 'f2', 'r4', DAY, Date.now())).state, 'first')
    })

    it('[IDEM-2] another body under the same key is a conflict, while running and after', async t => {
      const { idempotency } = await engine.open(t)
      const org = newOrg()
      await idempotency.begin(org, 'k', 'f1', 'r1', DAY, Date.now())
      assert.deepEqual(await idempotency.begin(org, 'k', 'f2', 'r2', DAY, Date.now()), { state: 'conflict' })
      await idempotency.finish(org, 'k', reply('r1'), DAY, Date.now())
      assert.deepEqual(await idempotency.begin(org, 'k', 'f2', 'r3', DAY, Date.now()), { state: 'conflict' })
    })

    it('[IDEM-3] what was not executed frees its key; what is too large leaves a mark', async t => {
      const { idempotency } = await engine.open(t, { idempotency: { maxRecord: 100 } })
      const org = newOrg()
      await idempotency.begin(org, 'k', 'f1', 'r1', DAY, Date.now())
      await idempotency.release(org, 'k')
      assert.deepEqual(await idempotency.begin(org, 'k', 'f2', 'r2', DAY, Date.now()), { state: 'first' })
      await idempotency.finish(org, 'k', null, DAY, Date.now())
      assert.deepEqual(await idempotency.begin(org, 'k', 'f2', 'r3', DAY, Date.now()), {
        state: 'not_kept',
        requestId: 'r2',
      })
      // A release after the end changes nothing.
      await idempotency.release(org, 'k')
      assert.equal((await idempotency.begin(org, 'k', 'f2', 'r3', DAY, Date.now())).state, 'not_kept')
      await idempotency.begin(org, 'large', 'f', 'r4', DAY, Date.now())
      await idempotency.finish(org, 'large', reply('r4', 'x'.repeat(101)), DAY, Date.now())
      assert.deepEqual(await idempotency.begin(org, 'large', 'f', 'r5', DAY, Date.now()), {
        state: 'not_kept',
        requestId: 'r4',
      })
    })

    it('[IDEM-3] kept for its time and no longer', async t => {
      const { idempotency } = await engine.open(t)
      const org = newOrg()
      await idempotency.begin(org, 'k', 'f1', 'r1', 50, Date.now())
      await idempotency.finish(org, 'k', reply('r1'), 50, Date.now())
      await eventually(async () => (await idempotency.begin(org, 'k', 'f2', 'r2', DAY, Date.now())).state === 'first')
    })

    it('[IDEM-2] of 500 simultaneous first uses one is first', async t => {
      const { idempotency } = await engine.open(t)
      const org = newOrg()
      const states = await Promise.all(
        Array.from({ length: 500 }, (_, i) => idempotency.begin(org, 'k', 'f', `r${i}`, DAY, Date.now())),
      )
      assert.equal(states.filter(({ state }) => state === 'first').length, 1)
      assert.equal(states.filter(({ state }) => state === 'running').length, 499)
    })

    it('kept replies are bounded: the oldest become marks and never run again', async t => {
      const { idempotency } = await engine.open(t, { idempotency: { maxTotal: 110_000 }, share: 1, ...alone(engine) })
      const org = newOrg()
      for (let i = 0; i < 20; i++) {
        await idempotency.begin(org, `k${i}`, 'f', `r${i}`, DAY, Date.now())
        await idempotency.finish(org, `k${i}`, reply(`r${i}`, 'x'.repeat(10_000)), DAY, Date.now())
      }
      const states = await Promise.all(
        Array.from({ length: 20 }, (_, i) => idempotency.begin(org, `k${i}`, 'f', 'again', DAY, Date.now())),
      )
      const kept = states.filter(({ state }) => state === 'replay').length
      assert.ok(kept >= 8 && kept <= 10, `${kept} kept`)
      assert.equal(states.filter(({ state }) => state === 'not_kept').length, 20 - kept)
      assert.equal(states[19]!.state, 'replay')
    })

    it('says how much it takes, and how much it can take', async t => {
      const store = await engine.open(t)
      const size = async () => (await store.size!())!
      const before = await size()
      assert.ok(before.used > 0 && before.limit > before.used, JSON.stringify(before))
      const org = newOrg()
      for (let i = 0; i < 20; i++)
        await store.records.put(org, 'continuation', `r${i}`, Buffer.alloc(50_000, i), DAY, Date.now())
      await eventually(async () => (await size()).used > before.used + 500_000)
      if (engine.name !== 'redis') return
      await server!.command('CONFIG', 'SET', 'maxmemory', 3_000_000_000)
      assert.equal((await size()).limit, 3_000_000_000)
      await server!.command('CONFIG', 'SET', 'maxmemory', 0)
      assert.ok((await size()).limit > 0)
    })

    // A key whose reply was not kept, or was evicted, left a hash of some 850 bytes for a day that no bound counted: an
    // organization of the largest tier could fill Redis with 1.2 GB of them a day, and keys without replies were still
    // there, all of them.
    it('marks of keys are bounded by the share, the oldest go, and replies keep their half of it', async t => {
      const bounds = { idempotency: { maxTotal: 4_000_000 }, share: 0.25 }
      const store = await engine.open(t, { ...bounds, ...alone(engine) })
      const { idempotency } = store
      const org = newOrg()
      const use = async (key: string, record: IdempotencyRecord | null) => {
        assert.equal((await idempotency.begin(org, key, 'f', key, DAY, Date.now())).state, 'first')
        await idempotency.finish(org, key, record, DAY, Date.now())
      }
      for (let i = 0; i < 10_000; i += 500)
        await Promise.all(Array.from({ length: 500 }, (_, n) => use(`key-${String(i + n).padStart(5, '0')}`, null)))
      const bytes = () => store.stats!().kept.idempotency.bytes
      await eventually(() => bytes() > 900_000 && bytes() <= 1_000_000)
      assert.ok(store.stats!().kept.idempotency.evicted.share > 8000)
      const again = async (key: string) => (await idempotency.begin(org, key, 'f', 'again', DAY, Date.now())).state
      assert.equal(await again('key-09999'), 'not_kept')
      // Whether it was executed is forgotten.
      assert.equal(await again('key-00000'), 'first')
      await idempotency.release(org, 'key-00000')

      for (let i = 0; i < 20; i++) await use(`reply-${i}`, reply(`r${i}`, 'x'.repeat(10_000)))
      for (let i = 0; i < 20; i++) assert.equal(await again(`reply-${i}`), 'replay')
      for (let i = 20; i < 200; i++) await use(`reply-${i}`, reply(`r${i}`, 'x'.repeat(10_000)))
      // The first replies went, and the marks that they left are kept, as are many of the marks before them.
      assert.equal(await again('reply-0'), 'not_kept')
      assert.equal(await again('reply-199'), 'replay')
      assert.equal(await again('key-09999'), 'not_kept')
      await eventually(() => bytes() > 900_000 && bytes() <= 1_000_000)
    })

    it('[IDEM-1] what a reply was asked for is kept with it, and absent in a record without it', async t => {
      const { idempotency } = await engine.open(t)
      const org = newOrg()
      for (const asked of ['', '{"models":["m"]}', undefined]) {
        const key = `k${asked}`
        await idempotency.begin(org, key, 'f', 'r', DAY, Date.now())
        await idempotency.finish(org, key, { ...reply('r'), asked }, DAY, Date.now())
        const again = await idempotency.begin(org, key, 'f', 'r2', DAY, Date.now())
        assert.equal(again.state === 'replay' && again.record.asked, asked)
      }
    })

    it('a full share evicts its own oldest, and nothing of the others', async t => {
      const bounds = { maxRecords: 40_000, idempotency: { maxTotal: 500_000 }, share: 0.25 }
      const store = await engine.open(t, { ...bounds, ...alone(engine) })
      const { records, idempotency } = store
      const keep = async (org: string, i: number) => {
        await records.put(org, i % 2 ? 'response' : 'continuation', `r${i}`, Buffer.alloc(1000), DAY, Date.now())
        await idempotency.begin(org, `k${i}`, 'f', `r${i}`, DAY, Date.now())
        await idempotency.finish(org, `k${i}`, reply(`r${i}`, 'x'.repeat(10_000)), DAY, Date.now())
      }
      for (let i = 0; i < 5; i++) await keep('victim', i)
      for (let i = 0; i < 60; i++) await keep('flood', i)
      const left = async (org: string, count: number) => {
        const found: number[] = []
        const replayed: number[] = []
        for (let i = 0; i < count; i++) {
          const kind = i % 2 ? 'response' : 'continuation'
          if (await records.get(org, kind, `r${i}`, Date.now())) found.push(i)
          const { state } = await idempotency.begin(org, `k${i}`, 'f', 'again', DAY, Date.now())
          if (state === 'replay') replayed.push(i)
          // It was executed, and must not be again.
          else assert.equal(state, 'not_kept')
        }
        return [found, replayed]
      }
      const all = [0, 1, 2, 3, 4]
      assert.deepEqual(await left('victim', 5), [all, all])
      // The newest; a reply has headers, too.
      const newest = (count: number) => Array.from({ length: count }, (_, i) => 60 - count + i)
      assert.deepEqual(await left('flood', 60), [newest(10), newest(9)])
      const { kept } = store.stats!()
      assert.deepEqual(kept.records.evicted, { share: 50, total: 0 })
      assert.deepEqual(kept.idempotency.evicted, { share: 51, total: 0 })
      await eventually(() => store.stats!().kept.records.bytes === 15_000)
    })

    it('what is stored at once is evicted in the order in which it came', async t => {
      const { records } = await engine.open(t, { maxRecords: 40_000, share: 0.25, ...alone(engine) })
      const org = newOrg()
      const ids = Array.from({ length: 60 }, (_, i) => i)
      const kind = (i: number) => (i % 2 ? 'response' : 'continuation')
      const size = (i: number) => (i % 3 ? 1000 : 990)
      await Promise.all(ids.map(i => records.put(org, kind(i), `r${i}`, Buffer.alloc(size(i)), DAY, Date.now())))
      const found: number[] = []
      for (const i of ids) if (await records.get(org, kind(i), `r${i}`, Date.now())) found.push(i)
      assert.deepEqual(found, ids.slice(-10))
    })

    it('when all is full, the largest share gives way', async t => {
      const store = await engine.open(t, { maxRecords: 40_000, share: 0.5, ...alone(engine) })
      const put = (org: string, i: number) =>
        store.records.put(org, 'response', `r${i}`, Buffer.alloc(1000), DAY, Date.now())
      const count = async (org: string) => {
        const ids = Array.from({ length: 100 }, (_, i) => `r${i}`)
        const found = await store.records.getMany(org, 'response', ids, Date.now())
        return found.filter(value => value !== null).length
      }
      for (let i = 0; i < 5; i++) await put('small', i)
      for (let i = 0; i < 20; i++) await put('large', i)
      // 15 are free; then the largest share gives way, until both have the same.
      for (let i = 0; i < 17; i++) await put('new', i)
      await eventually(async () => (await count('large')) === 18)
      for (let i = 17; i < 40; i++) await put('new', i)
      await eventually(async () => (await count('large')) + (await count('new')) === 35)
      assert.ok(Math.abs((await count('large')) - (await count('new'))) <= 1)
      assert.equal(await count('small'), 5)
      assert.equal(store.stats!().kept.records.bytes, 40_000)
      assert.deepEqual(store.stats!().kept.records.evicted, { share: 0, total: 25 })
    })

    it('[RESP-2] records are private to their organization and kind', async t => {
      const { records } = await engine.open(t)
      const org = newOrg()
      const value = Buffer.from([0, 1, 2, 255, 10, 13])
      await records.put(org, 'response', 'resp_1', value, DAY, Date.now())
      assert.deepEqual(Buffer.from((await records.get(org, 'response', 'resp_1', Date.now()))!), value)
      assert.equal(await records.get(newOrg(), 'response', 'resp_1', Date.now()), null)
      assert.equal(await records.get(org, 'continuation', 'resp_1', Date.now()), null)
      await records.put(org, 'response', 'resp_1', Buffer.from('newer'), DAY, Date.now())
      const many = await records.getMany(org, 'response', ['nope', 'resp_1'], Date.now())
      assert.equal(many[0], null)
      assert.equal(Buffer.from(many[1]!).toString(), 'newer')
      assert.deepEqual(await records.getMany(org, 'response', [], Date.now()), [])
    })

    it('[RESP-2] whether all records are there is one question', async t => {
      const { records } = await engine.open(t)
      const org = newOrg()
      const all = (...ids: string[]) => records.hasAll(org, 'response', ids)
      assert.equal(await all(), true)
      await records.put(org, 'response', 'a', Buffer.from('a'), DAY, Date.now())
      await records.put(org, 'response', 'b', Buffer.from('b'), DAY, Date.now())
      // While it is being written, too.
      const writing = records.put(org, 'response', 'c', Buffer.from('c'), DAY, Date.now())
      assert.equal(await all('a', 'b', 'c'), true)
      await writing
      await records.touch(org, 'response', ['a'], 2 * DAY, Date.now())
      assert.equal(await all('c', 'b', 'a'), true)
      assert.equal(await all('a', 'd'), false)
      assert.equal(await records.hasAll(org, 'reply', ['a']), false)
      assert.equal(await records.hasAll(newOrg(), 'response', ['a']), false)
      const deleting = records.delete(org, 'response', 'b')
      assert.equal(await all('b'), false)
      await deleting
      assert.equal(await all('a', 'b'), false)
      assert.equal(await all('a', 'c'), true)
    })

    it('[RESP-3] a record ends with its time to live unless it is touched', async t => {
      const { records } = await engine.open(t)
      const org = newOrg()
      // Again, when this process got no turn for so long that the second one ended before it was touched.
      await eventually(async () => {
        await records.put(org, 'response', 'short', Buffer.from('a'), 60, Date.now())
        await records.put(org, 'response', 'renewed', Buffer.from('b'), 60, Date.now())
        await records.touch(org, 'response', ['renewed', 'missing'], DAY, Date.now())
        await eventually(async () => (await records.get(org, 'response', 'short', Date.now())) === null)
        return (await records.get(org, 'response', 'renewed', Date.now())) !== null
      })
      await records.touch(org, 'response', ['short'], DAY, Date.now())
      assert.equal(await records.get(org, 'response', 'short', Date.now()), null)
    })

    it('[RESP-6] a deleted record is gone at once and stays gone; others, and a later one of its name, stay', async t => {
      const { records } = await engine.open(t)
      const org = newOrg()
      const there = async (kind: 'response' | 'reply', id: string) => {
        const found = await records.get(org, kind, id, Date.now())
        return found && Buffer.from(found).toString()
      }
      for (const committed of [true, false]) {
        const putting = Promise.all([
          records.put(org, 'reply', 'r', Buffer.from('x'), DAY, Date.now()),
          records.put(org, 'response', 'r', Buffer.from('turn'), DAY, Date.now()),
          records.put(org, 'reply', 'other', Buffer.from('y'), DAY, Date.now()),
        ])
        if (committed) await putting
        const deleting = records.delete(org, 'reply', 'r')
        assert.equal(await there('reply', 'r'), null)
        await putting
        await deleting
        assert.equal(await there('reply', 'r'), null)
        assert.deepEqual([await there('response', 'r'), await there('reply', 'other')], ['turn', 'y'])
        await records.delete(org, 'reply', 'r')
        await records.touch(org, 'reply', ['r'], DAY, Date.now())
        assert.equal(await there('reply', 'r'), null)
      }
      await records.put(org, 'reply', 'r', Buffer.from('again'), DAY, Date.now())
      assert.equal(await there('reply', 'r'), 'again')
    })

    it('a record can be read back in the same breath', async t => {
      const { records } = await engine.open(t)
      const org = newOrg()
      const putting = records.put(org, 'response', 'r', Buffer.from('x'), DAY, Date.now())
      assert.notEqual(await records.get(org, 'response', 'r', Date.now()), null)
      await putting
      assert.notEqual(await records.get(org, 'response', 'r', Date.now()), null)
    })

    it('values of plugins are kept, replaced, deleted and over in time, each for its organization', async t => {
      const { pluginValues } = await engine.open(t)
      const org = newOrg()
      const there = async (id: string, of = org) => {
        const found = await pluginValues.get(of, 'value', id, Date.now())
        return found && Buffer.from(found).toString()
      }
      const put = (id: string, value: string, ttlMs: number) =>
        pluginValues.put(org, 'value', id, Buffer.from(value), ttlMs, Date.now())
      await put('a', 'first', DAY)
      await put('b', 'other', DAY)
      assert.deepEqual([await there('a'), await there('a', newOrg()), await there('c')], ['first', null, null])
      const putting = put('a', 'second', DAY)
      assert.equal(await there('a'), 'second')
      await putting
      assert.equal(await there('a'), 'second')
      await pluginValues.delete(org, 'value', 'a')
      assert.deepEqual([await there('a'), await there('b')], [null, 'other'])
      await put('short', 'x', 60)
      await eventually(async () => (await there('short')) === null)
    })

    it('values of plugins have a bound of their own: they take no place of records, and records none of theirs', async t => {
      const bounds = { maxRecords: 40_000, maxValues: 20_000, share: 0.25 }
      const store = await engine.open(t, { ...bounds, ...alone(engine) })
      const { records, pluginValues } = store
      const bytes = Buffer.alloc(1000)
      for (let i = 0; i < 3; i++) {
        await records.put('a', 'response', `r${i}`, bytes, DAY, Date.now())
        await pluginValues.put('b', 'value', `r${i}`, bytes, DAY, Date.now())
      }
      for (let i = 0; i < 30; i++) await pluginValues.put('a', 'value', `r${i}`, bytes, DAY, Date.now())
      for (let i = 0; i < 30; i++) await records.put('b', 'response', `r${i}`, bytes, DAY, Date.now())
      const left = async (get: (id: string) => unknown) => {
        const ids = Array.from({ length: 30 }, (_, i) => `r${i}`)
        const found = await Promise.all(ids.map(get))
        return ids.filter((_, i) => found[i] !== null)
      }
      const value = (org: string) => left(id => pluginValues.get(org, 'value', id, Date.now()))
      const record = (org: string) => left(id => records.get(org, 'response', id, Date.now()))
      assert.deepEqual(await record('a'), ['r0', 'r1', 'r2'])
      assert.deepEqual(await value('b'), ['r0', 'r1', 'r2'])
      assert.deepEqual(await value('a'), ['r25', 'r26', 'r27', 'r28', 'r29'])
      assert.equal((await record('b')).length, 10)
      const { kept } = store.stats!()
      assert.deepEqual(kept.plugin_values.evicted, { share: 25, total: 0 })
      await eventually(() => store.stats!().kept.plugin_values.bytes === 8000)
    })

    it('is ready, and keeps one secret', async t => {
      const store = await engine.open(t)
      assert.deepEqual(await store.ready(), { ok: true })
      const secret = await store.secret('')
      assert.ok(secret.length >= 32)
      assert.deepEqual(Buffer.from(await store.secret('')), Buffer.from(secret))
      const long = 'a secret that is long enough to be used as it is, byte for byte'
      assert.deepEqual(Buffer.from(await store.secret(long)), Buffer.from(long))
      assert.equal((await store.secret('short')).length, 32)
      await store.close()
      assert.equal((await store.ready()).ok, false)
      await store.close()
    })
  })
}
