/**
 * Mails that are sent once: spend limits, tiers and ends of keys; also with two consoles on one PostgreSQL that do
 * everything at the same time.
 */
import assert from 'node:assert/strict'
import { after, afterEach, before, beforeEach, describe, test } from 'node:test'
import pg from 'pg'
import type Stripe from 'stripe'
import { eventually } from '../../test/eventually.ts'
import { PostgresServer, skipWithoutPostgres } from '../../test/stores/postgres-server.ts'
import { meterUsage } from '../billing/meters.ts'
import { lookAgain, settle, settleDue } from '../billing/moves.ts'
import { recordPayment } from '../billing/payments.ts'
import { rowOf } from '../billing/stripe.ts'
import { underLease } from '../db/lease.ts'
import type { Mail } from '../mail.ts'
import { lookAtKeys, warningOf } from '../notices/keys.ts'
import { sendNotices } from '../notices/outbox.ts'
import { readSpendNotices } from '../notices/spend.ts'
import type { SpendNotice } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'
import { type AdminQuestion, type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole, type TestConsole } from './kit.ts'
import { deliver, StripeStandIn, signatureOf } from './stripe-stand-in.ts'

const DAY = 86_400_000
const T0 = Date.UTC(2026, 10, 26, 12)

let admin: AdminStandIn
let stripe: StripeStandIn
let clock = T0
let notices: SpendNotice[] = []
let keys: {
  id: string
  status: string
  expires: string | null
  created: string | null
  label: string | null
  hint: string
}[] = []
let plans = new Map<string, string>()
let usage: { organization: string; model: string; hour: string; output: number; cost_usd: string }[] = []

before(async () => {
  admin = await startAdmin(answer)
  stripe = await StripeStandIn.start()
})
after(async () => {
  await admin?.close()
  await stripe?.close()
})
beforeEach(() => {
  clock = T0
  notices = []
  keys = []
  plans = new Map()
  usage = []
  admin.asked.length = 0
})

/** A gateway, as far as its admin API is asked here. */
function answer({ method, path, query, body }: AdminQuestion): unknown {
  if (path === 'notices') {
    const after = Number(query.get('after') ?? 0)
    const found = notices.filter(({ id }) => Number(id) > after).slice(0, Number(query.get('limit')))
    return { notices: found, next: found.at(-1)?.id ?? query.get('after') ?? '' }
  }
  if (path === 'usage') return { usage }
  const [, id, part] = path.split('/')
  if (part === 'keys') return { keys }
  if (part !== undefined || id === undefined) return null
  if (method === 'PATCH') plans.set(id, body.plan)
  return { id, place: 'store', plan: plans.get(id) ?? 'free', billing: null }
}

const spent = (id: number, percent: SpendNotice['percent'], more: Partial<SpendNotice> = {}): SpendNotice => ({
  ...{ id: String(id), time: T0, organization: 'oak', key: null, model: null, period: 'month', percent },
  ...{ period_start: '2026-11-01T00:00:00.000Z', limit_nano_usd: 100e9, spent_nano_usd: percent * 1e9 },
  ...more,
})

const open = (database: string, mail?: Parts['mail']) =>
  startConsole(
    { url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } },
    {
      database,
      now: () => clock,
      yaml: `tiers: on\n${stripe.yaml(', meters: [{ event_name: out, value: output }]')}`,
      ...(mail && { mail }),
    },
  )

async function addOak(c: TestConsole): Promise<void> {
  const { db } = c.console.parts
  await db
    .insertInto('organization')
    .values({ id: 'oak', name: 'Oak', created: 0, creator: null, deleted: null })
    .execute()
  for (const role of ['owner', 'billing', 'developer', 'viewer'] as const)
    await c.member('oak', `${role}@example.com`, role)
}

/** As Stripe signs by the clock of the test. */
const sign = (body: string) => signatureOf(body, { at: clock / 1000 })

/** Who got what, sorted. */
const told = (mails: readonly Mail[]) => mails.map(({ to, subject }) => `${to} ${subject}`).sort()

describe('two consoles on one PostgreSQL', { skip: skipWithoutPostgres }, () => {
  let server: PostgresServer
  let a: TestConsole
  let b: TestConsole
  before(async () => {
    server = await PostgresServer.start()
    a = await open(server.url())
    b = await open(server.url())
    await addOak(a)
    await a.person('staff@example.com', { staff: true })
  })
  after(async () => {
    await a?.close()
    await b?.close()
    await server?.stop()
  })
  afterEach(() => {
    a.mails.length = b.mails.length = 0
  })

  const both = async (work: (parts: Parts) => Promise<unknown>) => {
    await Promise.all([a, b, a, b].map(one => work(one.console.parts)))
  }
  /** Until nothing is left to be sent. */
  const sent = async (): Promise<Mail[]> => {
    await both(sendNotices)
    const { db } = a.console.parts
    const left = db.selectFrom('notice').select('id').where('sent', 'is', null)
    await eventually(async () => (await left.execute()).length === 0)
    return [...a.mails, ...b.mails]
  }

  test('each notice of a spend limit is one mail to each who pays', async () => {
    notices = [spent(1, 50, { time: T0 - 2 * DAY }), spent(2, 50), spent(3, 80)]
    await both(readSpendNotices)
    const mails = await sent()
    assert.deepEqual(
      told(mails),
      [50, 80]
        .flatMap(percent =>
          ['billing', 'owner'].map(
            who => `${who}@example.com Sluice: ${percent} % of the monthly spend limit of oak is spent`,
          ),
        )
        .sort(),
    )
    assert.match(mails[0]!.text, /\$(50|80)\.00 of \$100\.00/)
    // What comes is read from the cursor, and a store that counts anew tells nobody twice.
    notices.push(
      spent(4, 100, { key: 'key_1', model: 'eb1-preview', period: 'day', period_start: '2026-11-26T00:00:00.000Z' }),
    )
    notices.push({ ...spent(5, 80) })
    a.mails.length = b.mails.length = 0
    await eventually(async () => {
      await both(readSpendNotices)
      return (await sent()).length === 2
    })
    const places = admin.asked.filter(({ path }) => path === 'notices').map(({ query }) => query.get('after'))
    assert.ok(places.includes('3'), `it goes on behind the last: ${places}`)
    const last = a.mails.concat(b.mails)[0]!
    assert.match(last.subject, /100 % of the daily spend limit/)
    assert.match(last.text, /the key key_1 of oak on eb1-preview, 100 % is spent for the day 2026-11-26/)
    assert.match(last.text, /429 until the day is over/)
  })

  test('a key that ends is told a week and a day before, to who may make another', async () => {
    const end = T0 + 7 * DAY - 60_000
    keys = [
      {
        ...{ id: 'key_1', status: 'active', label: 'CI\r\nBcc: x', hint: '4f2a' },
        expires: new Date(end).toISOString(),
        created: null,
      },
      {
        ...{ id: 'key_2', status: 'revoked', label: null, hint: '' },
        expires: new Date(end).toISOString(),
        created: null,
      },
    ]
    for (const [name, now] of [
      ['a week before', T0],
      ['the same day', T0 + 3_600_000],
      ['a day before', end - DAY + 1],
    ] as const) {
      clock = now
      a.mails.length = b.mails.length = 0
      // The second run of a console begins with the first organization again.
      for (let i = 0; i < 3; i++) await both(lookAtKeys)
      const mails = await sent()
      const wanted =
        name === 'the same day'
          ? []
          : ['developer', 'owner'].map(who => `${who}@example.com Sluice: a key of oak ends on 2026-12-03`)
      assert.deepEqual(told(mails), wanted, name)
      for (const { text } of mails)
        assert.match(text, /The key CI Bcc: x \(key_1\), which ends in 4f2a, ends at 2026-12-03 11:59 UTC/)
    }
  })

  test('a tier is moved and told once, when both get the payment and both look', async () => {
    const event = stripe.paid('pi_1', 500, { metadata: { organization: 'oak' } })
    await Promise.all([a, b, a, b].map(one => deliver(one.url, event, sign)))
    await both(parts => settle(parts, 'oak'))
    await eventually(
      async () => (await a.console.parts.db.selectFrom('billing_work').selectAll().execute()).length === 0,
    )
    assert.deepEqual(told(await sent()), [
      'billing@example.com Oak is at Tier 1 of Sluice now',
      'owner@example.com Oak is at Tier 1 of Sluice now',
    ])
    await Promise.all([a, b].map(one => deliver(one.url, stripe.refunded('re_1', 'pi_1', 500), sign)))
    await eventually(async () => plans.get('oak') === 'free')
    await eventually(async () => (await sent()).length === 5)
    assert.equal(told([...a.mails, ...b.mails]).filter(one => one === 'staff@example.com A hold on oak').length, 1)
    assert.equal(admin.asked.filter(({ method }) => method === 'PATCH').length, 2)
    const { db } = a.console.parts
    assert.equal((await db.selectFrom('hold').selectAll().execute()).length, 1)
  })

  test('everybody who has paid is looked at when tiers are another table', async () => {
    const { db } = a.console.parts
    await db.updateTable('hold').set({ ended: clock }).execute()
    const { id: staff } = await a.person('staff@example.com', { staff: true })
    await recordPayment(db, {
      ...{
        id: 'row',
        provider: 'hand',
        kind: 'settled',
        state: '',
        organization: 'oak',
        customer: null,
        payment: 'row',
      },
      ...{ object: 'row', amount: 5000, currency: 'usd', time: clock, received: clock, person: staff, note: '' },
    })
    await db.updateTable('lease').set({ state: 'another table' }).where('name', '=', 'tiers').execute()
    await both(lookAgain)
    await eventually(async () => {
      await both(settleDue)
      return plans.get('oak') === 'tier2'
    })
  })

  test('usage is sent once by two consoles', async () => {
    const { db } = a.console.parts
    const lease = db.selectFrom('lease').select('state').where('name', '=', 'meters').where('state', '<>', '')
    await eventually(async () => (await lease.execute()).length === 1)
    // A run of theirs may have been while a test before had put the clock days forward.
    const state = JSON.stringify({ from: T0, read: T0 })
    await db.updateTable('lease').set({ state }).where('name', '=', 'meters').execute()
    usage = [0, 1, 2].map(n => ({
      ...{ organization: 'oak', model: `m${n}`, hour: new Date(T0).toISOString(), output: n + 1, cost_usd: '0' },
    }))
    clock = T0 + 2 * 3_600_000
    await both(meterUsage)
    await eventually(
      async () => (await db.selectFrom('metered').select('id').where('sent', 'is not', null).execute()).length === 3,
    )
    assert.deepEqual([...stripe.taken.values()].map(({ value }) => value).sort(), [1, 2, 3])
    assert.equal((await db.selectFrom('customer').selectAll().execute()).length, 1)
  })

  test('the page of staff, on PostgreSQL', async () => {
    const staff = await a.person('staff@example.com', { staff: true })
    assert.equal((await staff.get('/staff/billing')).status, 200)
  })

  test('a lease is one console’s until it ends, and keeps where the work stands', async () => {
    const { db } = a.console.parts
    const take = (holder: string, now: number, next: string) => {
      let state: string | null = null
      return underLease(db, 'test', { now, forMs: 1000, holder }, async before => {
        state = before
        return next
      }).then(() => state)
    }
    assert.equal(await take('x', 0, 'one'), '')
    assert.equal(await take('y', 500, 'two'), null)
    assert.equal(await take('x', 900, 'three'), 'one')
    assert.equal(await take('y', 1900, 'four'), 'three')
    assert.equal(await take('x', 1950, 'five'), null)
  })

  // The refund of a payment that was committed while the refund was being written down was nobody's, and nobody looked
  // at the payment's organization again: the tier stayed.
  test('a refund that is written down while its payment is takes the tier back', async () => {
    const { db } = a.console.parts
    const created = { created: 0, creator: null, deleted: null }
    await db
      .insertInto('organization')
      .values({ id: 'elm', name: 'Elm', ...created })
      .execute()
    const becomes = (plan: string) =>
      eventually(async () => {
        await both(settleDue)
        return plans.get('elm') === plan && (await db.selectFrom('billing_work').selectAll().execute()).length === 0
      })
    // Refunds wait for this lock when they have looked for their payment.
    const lock = new pg.Client(server.url())
    await lock.connect()
    try {
      await lock.query('SELECT pg_advisory_lock(1)')
      await lock.query(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'`)
      await lock.query(`CREATE TRIGGER wait BEFORE INSERT ON payment
        FOR EACH ROW WHEN (NEW.kind = 'refund') EXECUTE FUNCTION wait()`)
      const refund = deliver(a.url, stripe.refunded('re_elm', 'pi_elm', 500), sign)
      const waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
      await eventually(async () => (await lock.query(waiting)).rowCount === 1)
      const paid = stripe.paid('pi_elm', 500, { metadata: { organization: 'elm' } })
      assert.equal((await deliver(b.url, paid, sign)).body.counted, true)
      await becomes('tier1')
      await lock.query('SELECT pg_advisory_unlock(1)')
      assert.deepEqual((await refund).body, { received: true, counted: true, repeated: false })
      await becomes('free')
      await lock.query('DROP TRIGGER wait ON payment')
    } finally {
      await lock.end()
    }

    // A console that was killed between the row and the look gets the event again, since it did not answer.
    await db.updateTable('hold').set({ ended: clock }).execute()
    await deliver(a.url, stripe.paid('pi_elm_2', 500, { metadata: { organization: 'elm' } }), sign)
    await becomes('tier1')
    const event = stripe.refunded('re_elm_2', 'pi_elm_2', 500)
    await recordPayment(db, rowOf(event as unknown as Stripe.Event, clock)!)
    assert.deepEqual((await deliver(b.url, event, sign)).body, { received: true, counted: true, repeated: true })
    await becomes('free')
  })

  test('rows of payments are never changed on PostgreSQL, either', async () => {
    const { db } = a.console.parts
    await assert.rejects(db.updateTable('payment').set({ amount: 1 }).execute(), /added, and never changed/)
    await assert.rejects(db.deleteFrom('payment').execute(), /added, and never changed/)
  })
})

test('a mail that the server does not take is sent again, with the same Message-ID; one of a person who is gone is not', async () => {
  const tries: Mail[] = []
  let fails = 1
  const deliver = async (mail: Mail) => {
    tries.push(mail)
    if (fails-- > 0) throw new Error('421 try again later')
  }
  const c = await open('sqlite::memory:', { send: () => {}, deliver, close: async () => {} })
  try {
    const { parts } = c.console
    await addOak(c)
    await parts.db.deleteFrom('member').where('role', '<>', 'owner').execute()
    notices = [spent(1, 50)]
    await readSpendNotices(parts)
    await eventually(async () => {
      await sendNotices(parts)
      return c.lines.some(line => /could not be sent \(attempt 1\): 421/.test(line))
    })
    await sendNotices(parts)
    assert.equal(tries.length, 1, 'not at once')
    clock += 31_000
    await eventually(async () => {
      await sendNotices(parts)
      return tries.length === 2
    })
    assert.deepEqual(tries[0], tries[1])
    assert.match(tries[0]!.messageId!, /^<[0-9a-f]{32}@127\.0\.0\.1>$/)
    // The address is that of the person when it is sent; there is none any more.
    notices.push(spent(2, 80))
    await parts.db
      .updateTable('person')
      .set({ email: 'moved@example.com' })
      .where('email', '=', 'owner@example.com')
      .execute()
    await readSpendNotices(parts)
    await eventually(async () => {
      await sendNotices(parts)
      return tries.length === 3
    })
    assert.equal(tries[2]!.to, 'moved@example.com')
  } finally {
    await c.close()
  }
})

test('many notices are read page by page, from where the last ended', async () => {
  const c = await open('sqlite::memory:')
  try {
    const { parts } = c.console
    await addOak(c)
    await parts.db.deleteFrom('member').where('role', '<>', 'owner').execute()
    notices = Array.from({ length: 450 }, (_, i) => spent(i + 1, 50, { key: `key_${i}` }))
    await readSpendNotices(parts)
    const { count } = await parts.db
      .selectFrom('notice')
      .select(eb => eb.fn.countAll<number | bigint>().as('count'))
      .executeTakeFirstOrThrow()
    assert.equal(Number(count), 450)
    admin.asked.length = 0
    await readSpendNotices(parts)
    const places = admin.asked.filter(({ path }) => path === 'notices').map(({ query }) => query.get('after'))
    assert.ok(places.includes('450'), String(places))
  } finally {
    await c.close()
  }
})

test('which warning of a key is due', () => {
  const key = (
    expires: number | null,
    created: number | null = null,
    status: 'active' | 'staged' | 'revoked' = 'active',
  ) => ({
    status,
    expires: expires === null ? null : new Date(T0 + expires).toISOString(),
    created: created === null ? null : new Date(T0 + created).toISOString(),
  })
  for (const [what, one, wanted] of [
    ['no end', key(null), null],
    ['far away', key(8 * DAY), null],
    ['a week', key(7 * DAY), 'week'],
    ['some days', key(2 * DAY), 'week'],
    ['a day', key(DAY), 'day'],
    ['over', key(0), null],
    ['revoked', key(DAY, null, 'revoked'), null],
    ['staged', key(DAY, null, 'staged'), 'day'],
    ['made for ten minutes', key(600_000, 0), null],
    ['made for a week', key(6 * DAY, -DAY), null],
    ['made for a week, near its end', key(DAY / 2, -6 * DAY), 'day'],
    ['made for two weeks', key(7 * DAY, -7 * DAY), 'week'],
    ['made for two days', key(DAY, -DAY), 'day'],
    ['made for a month', key(6 * DAY, -24 * DAY), 'week'],
  ] as const)
    assert.equal(warningOf(one, T0), wanted, what)
})
