/** Notices of spend limits: at 50, 80 and 100 percent, each once, by what was billed and not by what is reserved. */
import assert from 'node:assert/strict'
import { after, before, describe, type TestContext, test } from 'node:test'
import { SpendWatch } from '../../admin/spend-watch.ts'
import type { Notice, Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { cellsFor } from '../../plugins/admission/cells.ts'
import type { Identity } from '../../plugins/shared/slots.ts'
import { openStore } from '../../stores/index.ts'
import { caller } from '../plugins/kit.ts'
import { DAY, intent, options, outcome, recordingLog, T0, temporary } from '../stores/kit.ts'
import { RedisServer, skipWithoutRedis } from '../stores/redis-server.ts'

/** A clock that can pass over the moments at which timers are due. */
class JumpingClock extends ManualClock {
  #ahead = 0
  jump(ms: number): void {
    this.#ahead += ms
  }
  override now(): number {
    return super.now() + this.#ahead
  }
}

let server: RedisServer | undefined
let databases = 0
before(async () => {
  if (!skipWithoutRedis) server = await RedisServer.start()
})
after(() => server?.stop())

for (const [engine, skip, urlOf] of [
  ['sqlite', false, () => 'sqlite::memory:'],
  ['redis', skipWithoutRedis, () => server!.url.replace(/\/0$/, `/${databases++}`)],
] as const) {
  describe(engine, { skip }, () => {
    async function start(t: TestContext) {
      const clock = new JumpingClock(T0)
      const store = await openStore(options(urlOf(), { clock, dataDir: temporary() }))
      t.after(() => store.close())
      const watch = (of: Store | undefined = store) => {
        const one = new SpendWatch({ store: () => of, clock, log: recordingLog() })
        t.after(() => one.close())
        return one
      }
      const who = caller({ limits: { daily_spend_usd: 1e9, monthly_spend_usd: 30e9 } }, {
        limits: { daily_spend_usd: 6e8 },
      } as never)
      const cells = cellsFor(who.organization, who.key, null).cells.filter(cell => cell.kind === 'spend')
      let id = 0
      const admit = async (cost: number) => {
        const request = { org: 'acme', id: `r${id++}`, cells, amounts: cells.map(() => cost), now: clock.now() }
        assert.ok((await store.limits.admit(request)).admitted)
        return request.id
      }
      /** What an exchange leaves that has ended: a settlement, and a row. */
      const bill = async (admitted: string, cost: number) => {
        store.ledger.intent(intent(admitted, { organization: 'acme', key_id: 'key_ci', time: clock.now() }))
        store.ledger.outcome(outcome(admitted, { cost }))
        store.limits.settle(
          'acme',
          admitted,
          cells.map(() => cost),
          clock.now(),
        )
        await store.ledger.flush()
      }
      const posted = async () => (await store.notices.page('', 500)).notices
      const words = (all: readonly Notice[]) =>
        all.map(({ key, period, percent }) => `${key || 'org'} ${period} ${percent}`)
      return { clock, store, watch, who, admit, bill, posted, words }
    }

    test('what is billed crosses a threshold, what is reserved does not; each is told once', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const one = watch()
      const look = (identity: Identity = who) => {
        one.saw(identity, '', false, clock.now())
        return one.look()
      }
      const first = await admit(5e8)
      await look()
      assert.deepEqual(await posted(), [], 'half of the day is reserved, and nothing is spent')
      await bill(first, 290_000_000)
      await look()
      assert.deepEqual(await posted(), [], '29 % of the organization’s day, 48 % of the key’s')
      await bill(await admit(1e8), 1e7)
      await look()
      assert.deepEqual(words(await posted()), ['key_ci day 50'])
      await bill(await admit(3e8), 2e8)
      await look()
      await look()
      assert.deepEqual(words(await posted()), ['key_ci day 50', 'org day 50', 'key_ci day 80'])
      assert.deepEqual(
        [...one.posted],
        [
          [50, 2],
          [80, 1],
          [100, 0],
        ],
      )
      const { id: _, ...notice } = (await posted())[1]!
      assert.deepEqual(notice, {
        ...{ time: T0, organization: 'acme', key: '', model: '', period: 'day', number: Math.floor(T0 / DAY) },
        ...{ percent: 50, limit: 1e9, spent: 500_000_000 },
      })
    })

    test('many gateways, and one that starts anew, tell each once; the next day and a changed limit begin anew', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const all = [watch(), watch(), watch()]
      const look = (identity: Identity = who) =>
        Promise.all(
          all.map(one => {
            one.saw(identity, '', false, clock.now())
            return one.look()
          }),
        )
      await bill(await admit(6e8), 6e8)
      await look()
      const day = ['org day 50', 'key_ci day 100']
      assert.deepEqual(words(await posted()).sort(), day.toSorted())
      assert.equal(
        all.reduce((sum, one) => sum + [...one.posted.values()].reduce((a, b) => a + b), 0),
        2,
      )
      all.push(watch())
      await look()
      assert.equal((await posted()).length, 2)
      assert.deepEqual(
        all.map(one => [one.atCap('key'), one.atCap('org')]),
        all.map(() => [1, 0]),
      )
      const raised = {
        ...who,
        organization: { ...who.organization, limits: { ...who.organization.limits, daily_spend_usd: 11e8 } },
      }
      await look(raised)
      assert.deepEqual(words((await posted()).slice(2)), ['org day 50'], 'of another limit')
      clock.jump(DAY)
      assert.equal(all[0]!.atCap('key'), 0)
      await look()
      assert.equal((await posted()).length, 3)
      await bill(await admit(6e8), 6e8)
      await look()
      assert.deepEqual(words((await posted()).slice(3)).sort(), day.toSorted())
    })

    // A cap of 1 dollar that was lowered to 10 cents when 60 were spent made three notices, and three mails, at once.
    test('of thresholds that are crossed at once the highest is told, and none below it after it', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const one = watch()
      const look = (identity: Identity, refused: boolean, by = one) => {
        by.saw(identity, '', refused, clock.now())
        return by.look()
      }
      await bill(await admit(2e8), 2e8)
      await look(who, false)
      assert.deepEqual(await posted(), [])
      const { organization } = who
      const lowered = {
        ...who,
        organization: { ...organization, limits: { ...organization.limits, daily_spend_usd: 1e8 } },
      }
      await look(lowered, false)
      assert.deepEqual(words(await posted()), ['org day 100'])
      const narrow = {
        ...who,
        organization: { ...organization, limits: { ...organization.limits, daily_spend_usd: 24e7 } },
      }
      await look(narrow, true)
      await look(narrow, false, watch())
      const told = (await posted()).slice(1).map(({ percent, limit }) => [percent, limit])
      assert.deepEqual(told, [[100, 24e7]], 'another gateway saw no refusal')
    })

    test('a limit that refuses what does not fit any more is used up, though something is left', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const one = watch()
      await bill(await admit(3e8), 3e8)
      one.saw(who, '', true, clock.now())
      await one.look()
      assert.deepEqual(words(await posted()), ['key_ci day 50'], 'a large request was refused at half of the limit')
      await bill(await admit(2e8), 2e8)
      one.saw(who, '', true, clock.now())
      await one.look()
      assert.deepEqual(words((await posted()).slice(1)), ['org day 50', 'key_ci day 100'])
    })

    test('what crossed before midnight is told after it', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const one = watch()
      await bill(await admit(3e8), 3e8)
      one.saw(who, '', false, clock.now())
      clock.jump(DAY)
      await one.look()
      assert.deepEqual(words(await posted()), ['key_ci day 50'])
      assert.equal((await posted())[0]!.number, Math.floor(T0 / DAY))
    })

    // What the old day left was the entry of the caller and model, so it stood for what the new day brought: that was
    // looked up under the old day alone, and its notice came with the next exchange, or never.
    test('what is left of a day does not stand for the next one, nor its refusals', async t => {
      const { clock, watch, who, admit, bill, posted, words } = await start(t)
      const one = watch()
      const big = await admit(5e8)
      one.saw(who, '', true, clock.now())
      await one.look()
      assert.deepEqual(await posted(), [], 'half is reserved and nothing is spent: it is looked at again')
      clock.jump(DAY)
      await bill(await admit(5e8), 5e8)
      one.saw(who, '', false, clock.now())
      await one.look()
      assert.deepEqual(words(await posted()), ['org day 50', 'key_ci day 80'], big)
      assert.deepEqual(new Set((await posted()).map(({ number }) => number)), new Set([Math.floor(T0 / DAY) + 1]))
    })

    // An exchange is booked when it began. It was looked up in the day in which it ended.
    test('an exchange that ends after midnight is told of the day in which it began', async t => {
      const { clock, watch, who, admit, store, posted, words } = await start(t)
      const one = watch()
      const id = await admit(3e8)
      store.ledger.intent(intent(id, { organization: 'acme', key_id: 'key_ci', time: clock.now() }))
      const began = clock.now()
      clock.jump(DAY)
      one.saw(who, '', false, began)
      await one.look()
      assert.deepEqual(await posted(), [], 'its row is not booked yet')
      store.ledger.outcome(outcome(id, { cost: 3e8 }))
      await store.ledger.flush()
      await one.look()
      assert.deepEqual(words(await posted()), ['key_ci day 50'])
      assert.equal((await posted())[0]!.number, Math.floor(T0 / DAY))
    })

    test('pages go on from their cursor, also of one organization', async t => {
      const { store } = await start(t)
      const notice = (organization: string, percent: number): Notice => ({
        ...{ time: T0, organization, key: '', model: '', period: 'month', number: 24_322, percent, limit: 1, spent: 1 },
      })
      for (const organization of ['acme', 'other'])
        for (const percent of [50, 80, 100]) await store.notices.post(notice(organization, percent))
      const first = await store.notices.page('', 2, 'other')
      assert.deepEqual(
        first.notices.map(one => one.percent),
        [50, 80],
      )
      const second = await store.notices.page(first.next, 2, 'other')
      assert.deepEqual(
        second.notices.map(one => one.percent),
        [100],
      )
      assert.deepEqual((await store.notices.page(second.next, 2)).notices, [])
      assert.equal((await store.notices.page(second.next, 2)).next, second.next)
      await store.notices.post(notice('late', 50))
      assert.deepEqual(
        (await store.notices.page(second.next, 2)).notices.map(one => one.organization),
        ['late'],
      )
    })
  })
}

test('while the store does not answer, nothing is lost', async t => {
  const clock = new ManualClock(T0)
  const log = recordingLog()
  const watch = new SpendWatch({
    store: () => ({ limits: { peek: () => Promise.reject(new Error('out')) } }) as never,
    clock,
    log,
  })
  t.after(() => watch.close())
  watch.saw(caller({ limits: { daily_spend_usd: 1e9 } }), '', false, T0)
  await watch.look()
  await watch.look()
  assert.equal(log.lines.length, 2, 'it is looked at again')
})
