/**
 * Usage reaches Stripe's meters once: over kill -9 of a console at each place, sums that grow afterwards, meters that
 * are missing, and answers that never came.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { sql } from 'kysely'
import { eventually } from '../../test/eventually.ts'
import { freePort } from '../../test/ports.ts'
import { meterUsage } from '../billing/meters.ts'
import { openDatabase } from '../db/database.ts'
import type { Database } from '../db/tables.ts'
import { type AdminQuestion, type AdminStandIn, startAdmin } from './admin-stand-in.ts'
import { startConsole, type TestConsole } from './kit.ts'
import { type MeterEvent, StripeStandIn } from './stripe-stand-in.ts'

const HOUR = 3_600_000
const METERS = ', meters: [{ event_name: cost, value: cost }, { event_name: tokens, value: output }]'

let stripe: StripeStandIn
let admin: AdminStandIn
let answer: (question: AdminQuestion) => unknown
before(async () => {
  stripe = await StripeStandIn.start()
  admin = await startAdmin(question => answer(question))
})
after(async () => {
  await stripe?.close()
  await admin?.close()
})

interface Use {
  organization: string
  model: string
  hour: number
  cost_usd: string
  output: number
}

const hourName = (time: number) => `${new Date(time).toISOString().slice(0, 13)}:00Z`

/** What the gateway says of this use. */
function usageOf(uses: readonly Use[], query: URLSearchParams) {
  assert.equal(query.get('group_by'), 'hour,organization,model')
  const [since, until] = ['since', 'until'].map(name => Date.parse(query.get(name)!)) as [number, number]
  const found = uses.filter(({ hour }) => hour >= since && hour < until)
  return { usage: found.map(({ hour, ...use }) => ({ ...use, hour: hourName(hour), requests: 1, input: 5 })) }
}

const gatewayOf =
  (uses: () => readonly Use[], billing: (id: string) => string | null = () => null) =>
  (question: AdminQuestion) => {
    const { path, query } = question
    if (path === 'usage') return usageOf(uses(), query)
    const [, id, ...more] = path.split('/')
    if (path.startsWith('organizations/') && more.length === 0)
      return { id, place: 'store', plan: 'beta', billing: billing(id!) }
    return null
  }

/** What was taken, as sums by organization's customer, hour and meter. */
function sums(events: Iterable<MeterEvent>): Record<string, number> {
  const found: Record<string, number> = {}
  for (const { customer, event_name, timestamp, value } of events) {
    const name = `${customer} ${event_name} ${timestamp}`
    found[name] = (found[name] ?? 0) + value
  }
  return found
}

async function addOrganizations(db: Database, ids: readonly string[]) {
  for (const id of ids) {
    await db.insertInto('organization').values({ id, name: id, created: 0, creator: null, deleted: null }).execute()
    await db
      .insertInto('customer')
      .values({ customer: `cus_${id}`, organization: id, created: 0 })
      .execute()
  }
}

const expected = (uses: readonly Use[]) =>
  sums(
    uses.flatMap(({ organization, hour, cost_usd, output }) => {
      const common = { identifier: '', customer: `cus_${organization}`, timestamp: hour / 1000 + 3599 }
      return [
        { ...common, event_name: 'cost', value: Math.round(Number(cost_usd) * 1e6) },
        { ...common, event_name: 'tokens', value: output },
      ]
    }),
  )

test('kill -9 of the console at any place: each event is taken once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-meters-'))
  const port = await freePort()
  const database = `sqlite:${join(folder, 'console.db')}`
  writeFileSync(
    join(folder, 'console.yaml'),
    `listen: 127.0.0.1:${port}
url: http://127.0.0.1:${port}
database: ${database}
gateway: { admin: "${admin.url}", token: a, staff_token: b }
${stripe.yaml(METERS)}`,
  )
  const first = Math.floor(Date.now() / HOUR) * HOUR - 3 * HOUR
  const uses = ['ash', 'elm', 'fir'].flatMap((organization, i) =>
    [0, 1].map(n => ({
      organization,
      model: 'eb1-preview',
      hour: first + n * HOUR,
      cost_usd: `0.${i + 1}00${n}`,
      output: 10 * i + n + 1,
    })),
  )
  /** Lets time pass: claims of who was killed run out. */
  const later = async (work: (db: Database) => Promise<unknown>) => {
    const db = await openDatabase(database)
    await work(db)
    await db.destroy()
  }
  await later(async db => {
    await addOrganizations(db, ['ash', 'elm', 'fir'])
    const state = JSON.stringify({ from: first, read: first })
    await db.insertInto('lease').values({ name: 'meters', holder: '', until: 0, state }).execute()
  })

  let child: ChildProcess | undefined
  const ended = () => new Promise<void>(resolve => child!.once('exit', () => resolve()))
  /** Kills the console at a place, and answers nothing there. */
  const kill = () => child!.kill('SIGKILL')
  const killed = () => {
    kill()
    return 'hang'
  }
  const normal = gatewayOf(() => uses)
  let dead = 0
  const places: Record<string, () => void> = {
    'when it asks for usage': () => {
      answer = question => (question.path === 'usage' ? killed() : normal(question))
    },
    'between two events that it writes down': () => {
      answer = question => (question.path === 'organizations/fir' ? killed() : normal(question))
    },
    'before Stripe takes an event': () => {
      stripe.before = event => event.identifier !== '' && kill()
    },
    'when Stripe has taken one, and before it says so': () => {
      stripe.after = () => kill()
    },
    'right after Stripe has answered some': () => {
      let answered = 0
      stripe.before = () => {
        if (++answered === 3) setImmediate(kill)
        return false
      }
    },
  }
  try {
    for (const [place, arm] of Object.entries(places)) {
      answer = normal
      stripe.before = stripe.after = () => false
      arm()
      await later(async db => {
        await db.updateTable('lease').set({ until: 0 }).execute()
        await db.updateTable('metered').set({ due: 0 }).execute()
      })
      child = spawn(
        process.execPath,
        [join(import.meta.dirname, '../main.ts'), '--config', join(folder, 'console.yaml')],
        {
          stdio: ['ignore', 'ignore', 'inherit'],
        },
      )
      await ended()
      assert.equal(child!.signalCode, 'SIGKILL', place)
      dead++
    }
    answer = normal
    stripe.before = stripe.after = () => false
    await later(async db => {
      await db.updateTable('lease').set({ until: 0 }).execute()
      await db.updateTable('metered').set({ due: 0 }).execute()
    })
    child = spawn(
      process.execPath,
      [join(import.meta.dirname, '../main.ts'), '--config', join(folder, 'console.yaml')],
      {
        stdio: ['ignore', 'ignore', 'inherit'],
      },
    )
    await eventually(() => stripe.taken.size >= 12)
    // Every row is noted as sent, those included that Stripe refused because it had them.
    const db = await openDatabase(database)
    await eventually(
      async () => (await db.selectFrom('metered').select('id').where('sent', 'is', null).execute()).length === 0,
    )
    assert.equal((await db.selectFrom('metered').select('id').execute()).length, 12)
    await db.destroy()
    kill()
    await ended()
    assert.equal(dead, 5)
    assert.equal(stripe.taken.size, 12)
    assert.deepEqual(sums(stripe.taken.values()), expected(uses))
    const sent = stripe.asked.filter(path => path.endsWith('/meter_events')).length
    assert.ok(sent > 12, `some were sent again: ${sent}`)
  } finally {
    child?.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
})

// ---- one console, whose clock a test moves --------------------------------------------------------------------------

const T0 = Date.UTC(2026, 10, 26, 12)

/** A console that starts at T0, with nothing of the tests before. */
async function withConsole(
  uses: () => readonly Use[],
  work: (c: TestConsole, clock: { now: number }) => Promise<void>,
  { billing, meters = METERS }: { billing?: (id: string) => string | null; meters?: string } = {},
) {
  const clock = { now: T0 }
  stripe.taken.clear()
  stripe.before = stripe.after = () => false
  stripe.makes = () => true
  answer = gatewayOf(uses, billing)
  const c = await startConsole(
    { url: 'http://127.0.0.1:1', gateway: { adminAddress: admin.url } },
    { yaml: stripe.yaml(meters), now: () => clock.now },
  )
  try {
    // Its first run has noted from which hour on it reports.
    const { db } = c.console.parts
    const begun = db.selectFrom('lease').select('name').where('name', '=', 'meters').where('state', '<>', '')
    await eventually(async () => (await begun.execute()).length === 1)
    await work(c, clock)
  } finally {
    await c.close()
  }
}

test('what comes late is one more event; what was before meters were configured, or is not on invoices, is none', async () => {
  const use = (organization: string, hour: number, output: number): Use => ({
    ...{ organization, model: 'eb1-preview', hour: T0 + hour * HOUR, cost_usd: '0.0000004', output },
  })
  let uses = [use('oak', -5, 7), use('oak', 0, 10), use('pre', 0, 10), use('gone', 0, 10)]
  await withConsole(
    () => uses,
    async (c, clock) => {
      const { parts } = c.console
      await addOrganizations(parts.db, ['oak', 'pre'])
      clock.now = T0 + HOUR
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 0, 'an hour that has just ended may still grow')
      clock.now = T0 + 1.2 * HOUR
      await meterUsage(parts)
      await meterUsage(parts)
      const value = (events: MeterEvent[]) =>
        events.map(({ customer, event_name, value }) => [customer, event_name, value])
      // 0.4 millionths of a USD are none.
      assert.deepEqual(value([...stripe.taken.values()]), [['cus_oak', 'tokens', 10]])
      uses = [{ ...use('oak', 0, 25), cost_usd: '0.0000015' }, use('pre', 0, 30)]
      clock.now = T0 + 3 * HOUR
      await meterUsage(parts)
      assert.deepEqual(sums(stripe.taken.values()), {
        [`cus_oak tokens ${T0 / 1000 + 3599}`]: 25,
        [`cus_oak cost ${T0 / 1000 + 3599}`]: 2,
      })
      // A gateway that lost its rows takes nothing back, and after three days an hour stays as it is.
      uses = [use('oak', 0, 1)]
      clock.now = T0 + 5 * HOUR
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 3)
      // What comes later than some hours is found when the next day begins.
      uses = [use('oak', 0, 26)]
      clock.now = T0 + 8 * HOUR
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 3)
      clock.now = T0 + 13 * HOUR
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 4)
      uses = [use('oak', 0, 500)]
      clock.now = T0 + 84 * HOUR
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 4)
    },
    { billing: id => (id === 'pre' ? 'prepaid' : null) },
  )
})

/** One use of one organization, two hours before what the test does. */
function withOak(
  work: (...args: [...Parameters<Parameters<typeof withConsole>[1]>, uses: Use[]]) => Promise<void>,
  options?: Parameters<typeof withConsole>[2],
) {
  const uses: Use[] = [{ organization: 'oak', model: 'm', hour: T0, cost_usd: '1', output: 3 }]
  return withConsole(
    () => uses,
    async (c, clock) => {
      await addOrganizations(c.console.parts.db, ['oak'])
      clock.now = T0 + 2 * HOUR
      await work(c, clock, uses)
    },
    options,
  )
}

test('an organization without a customer gets one, with its name', async () => {
  const uses: Use[] = [{ organization: 'new', model: 'm', hour: T0, cost_usd: '1.25', output: 3 }]
  await withConsole(
    () => uses,
    async (c, clock) => {
      const { parts } = c.console
      await parts.db
        .insertInto('organization')
        .values({ id: 'new', name: 'New & Co', created: 0, creator: null, deleted: null })
        .execute()
      clock.now = T0 + 2 * HOUR
      await meterUsage(parts)
      const made = stripe.bodies.findLast(({ path }) => path === '/v1/customers')!.body
      assert.deepEqual([made.get('name'), made.get('metadata[organization]')], ['New & Co', 'new'])
      const [customer] = await parts.db.selectFrom('customer').select('customer').execute()
      assert.deepEqual(
        sums(stripe.taken.values()),
        // Events are sent beside each other, in no order.
        {
          [`${customer!.customer} cost ${T0 / 1000 + 3599}`]: 1_250_000,
          [`${customer!.customer} tokens ${T0 / 1000 + 3599}`]: 3,
        },
      )
    },
  )
})

test('a meter that Stripe does not have is told to staff, and its events wait', async () => {
  await withOak(
    async (c, clock) => {
      const { parts } = c.console
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 0)
      assert.match(c.lines.join('\n'), /could not be sent to Stripe: No active meter found/)
      // A refusal is an answer: nothing is unsure after days. It waits, and staff sees why.
      clock.now += 30 * HOUR
      const staff = await c.person('staff@example.com', { staff: true })
      const page = (await staff.get('/staff/billing')).body
      assert.ok(!page.includes('Usage that Stripe may have'))
      const list = page.slice(page.indexOf('<h2>Usage that Stripe does not take</h2>'))
      for (const words of ['oak', 'cus_oak', 'no_such_meter', 'No active meter found for event name no_such_meter'])
        assert.ok(list.includes(words), words)
      // When the meter is there it is sent by itself, and is listed no longer.
      await parts.db.updateTable('metered').set({ event_name: 'tokens' }).execute()
      await meterUsage(parts)
      assert.deepEqual(Object.values(sums(stripe.taken.values())), [3])
      assert.ok(!(await staff.get('/staff/billing')).body.includes('Usage that Stripe does not take'))
    },
    { meters: ', meters: [{ event_name: no_such_meter, value: output }]' },
  )
})

test('a refused event is given up by staff: it is sent no more, and stays on record until it is sent after all', async () => {
  await withOak(
    async (c, clock, uses) => {
      const { parts } = c.console
      const { db } = parts
      const asked = () => stripe.asked.filter(path => path.endsWith('/meter_events')).length
      await meterUsage(parts)
      const staff = await c.person('staff@example.com', { staff: true })
      const { id } = await db.selectFrom('metered').select('id').executeTakeFirstOrThrow()
      const path = (what: string) => `/staff/billing/metered/${id}/${what}`
      const page = (await staff.get('/staff/billing')).body
      assert.match(page, /the meter bills nothing of it: 3 of no_such_meter for\s+oak\./)
      assert.ok(page.includes(`action="${path('drop')}"`))
      // Nobody else may, and nobody without the token of the form.
      const owner = await c.member('oak', 'owner@example.com', 'owner')
      assert.equal((await owner.send('/o/oak/members', path('drop'))).status, 404)
      assert.equal((await staff.post(path('drop'), { form: 'wrong' })).status, 403)
      await staff.get('/staff/billing')
      assert.equal((await staff.post(path('drop'))).location, '/staff/billing?done=usage-dropped')
      assert.ok(!(await staff.get('/staff/billing')).body.includes('Usage that Stripe does not take'))

      // The hour is read again, and has grown meanwhile: what is new alone is an event.
      const before = asked()
      clock.now += HOUR
      uses[0]!.output = 5
      await meterUsage(parts)
      const rows = await db.selectFrom('metered').selectAll().orderBy('total').execute()
      assert.deepEqual(
        rows.map(({ amount, sent, dropped }) => [amount, sent, dropped !== null]),
        [
          [3, null, true],
          [2, null, false],
        ],
      )
      assert.equal(asked(), before + 1)
      // It is no longer unsure, nor anything else, after days.
      clock.now += 48 * HOUR
      assert.ok(!(await staff.get('/staff/billing')).body.includes('Usage that Stripe may have'))
      assert.equal((await staff.post(path('done'))).status, 404)
      assert.equal((await staff.post(path('drop'))).status, 404)

      // It is on record: with the money of the organization, and in its audit.
      const money = (await staff.get('/staff/organizations/oak/payments')).body
      const list = money.slice(money.indexOf('<h2>Usage that was given up</h2>'))
      for (const words of ['no_such_meter', '>3<', 'No active meter found', path('again')])
        assert.ok(list.includes(words), words)
      const noted = await db
        .selectFrom('event')
        .selectAll()
        .where('action', '=', 'usage.drop')
        .executeTakeFirstOrThrow()
      assert.deepEqual(
        [noted.organization, noted.person, noted.detail],
        ['oak', staff.id, '3 of no_such_meter, 2026-11-26 12:00'],
      )

      // The meter is there now: what was given up by mistake is sent after all, once.
      await db.updateTable('metered').set({ event_name: 'tokens' }).execute()
      await staff.post(path('again'))
      await meterUsage(parts)
      assert.deepEqual(Object.values(sums(stripe.taken.values())), [5])
      assert.ok(!(await staff.get('/staff/organizations/oak/payments')).body.includes('given up'))
    },
    { meters: ', meters: [{ event_name: no_such_meter, value: output }]' },
  )
})

test('what Stripe may have is not given up: an event on its way, or one without an answer', async () => {
  await withOak(
    async (c, clock) => {
      const { parts } = c.console
      const staff = await c.person('staff@example.com', { staff: true })
      await meterUsage(parts)
      const { id } = await parts.db.selectFrom('metered').select('id').executeTakeFirstOrThrow()
      const drop = async () => (await staff.send('/staff/billing', `/staff/billing/metered/${id}/drop`)).status
      // It was refused before, and is on its way again: Stripe takes it this time.
      await parts.db.updateTable('metered').set({ event_name: 'tokens' }).execute()
      clock.now += 60_000
      let onItsWay = 0
      stripe.before = async () => {
        onItsWay = await drop()
        return false
      }
      await meterUsage(parts)
      assert.equal(onItsWay, 404)
      assert.equal(stripe.taken.size, 1)
      const row = () => parts.db.selectFrom('metered').select(['sent', 'dropped']).executeTakeFirstOrThrow()
      assert.deepEqual({ ...(await row()) }, { sent: clock.now, dropped: null })
      assert.equal(await drop(), 404)
      // The way to Stripe broke.
      await parts.db.updateTable('metered').set({ sent: null, tried: clock.now, fault: 'timeout' }).execute()
      const page = (await staff.get('/staff/billing')).body
      assert.ok(page.includes('An attempt had no answer: Stripe may have it'))
      assert.ok(!page.includes(`${id}/drop`))
      assert.equal(await drop(), 404)
      assert.equal((await row()).dropped, null)
    },
    { meters: ', meters: [{ event_name: no_such_meter, value: output }]' },
  )
})

test('what got no answer for a day is not sent again by itself: staff decides', async () => {
  await withOak(async (c, clock) => {
    const { parts } = c.console
    // The console was killed when it had sent both, and was down for two days.
    await meterUsage(parts)
    const [cost, tokens] = [...stripe.taken.values()]
    await parts.db.updateTable('metered').set({ sent: null, due: 0 }).execute()
    stripe.taken.delete(cost!.identifier)
    clock.now += 48 * HOUR
    await meterUsage(parts)
    assert.equal(stripe.taken.size, 1)
    const staff = await c.person('staff@example.com', { staff: true })
    assert.match((await staff.get('/staff/billing')).body, /Usage that Stripe may have/)
    await staff.post(`/staff/billing/metered/${tokens!.identifier}/done`)
    await staff.get('/staff/billing')
    await staff.post(`/staff/billing/metered/${cost!.identifier}/again`)
    await meterUsage(parts)
    assert.deepEqual([...stripe.taken.keys()].sort(), [cost!.identifier, tokens!.identifier].sort())
    assert.ok(!(await staff.get('/staff/billing')).body.includes('Usage that Stripe may have'))
  })
})

// A refusal made the console forget that an attempt before it had no answer. When Stripe took events again, and had
// forgotten the identifier, the event was billed a second time.
test('a refusal after an attempt without an answer does not say that Stripe has nothing', async () => {
  await withOak(
    async (c, clock) => {
      const { parts } = c.console
      const set = (values: { sent?: null; event_name?: string }) =>
        parts.db.updateTable('metered').set(values).execute()
      const tried = async () => (await parts.db.selectFrom('metered').select('tried').executeTakeFirstOrThrow()).tried
      // As after a kill -9 between Stripe's answer and the note of it.
      await meterUsage(parts)
      const [first] = stripe.taken.keys()
      await set({ sent: null, event_name: 'no_such_meter' })
      const sent = clock.now
      clock.now += HOUR / 2
      await meterUsage(parts)
      assert.match(c.lines.at(-1)!, /No active meter found/)
      assert.equal(await tried(), sent)
      // Two days later the meter is there again, and Stripe has forgotten the identifier.
      clock.now += 48 * HOUR
      stripe.taken.clear()
      await set({ event_name: 'tokens' })
      await meterUsage(parts)
      assert.equal(stripe.taken.size, 0)
      const staff = await c.person('staff@example.com', { staff: true })
      assert.match((await staff.get('/staff/billing')).body, /Usage that Stripe may have/)
      // What staff sends once more is an attempt of its own: its refusal is the last word.
      await set({ event_name: 'no_such_meter' })
      await staff.post(`/staff/billing/metered/${first}/again`)
      await meterUsage(parts)
      assert.equal(await tried(), null)
    },
    { meters: ', meters: [{ event_name: tokens, value: output }]' },
  )
})

// The first organization of which the gateway or Stripe gave no answer kept the usage of all behind it off the bill.
test('an organization that nothing can be found out of keeps no other one waiting, and is not left out', async () => {
  const uses = ['ash', 'elm', 'yew'].flatMap(organization =>
    [0, 26].map(n => ({ organization, model: 'm', hour: T0 + n * HOUR, cost_usd: '0', output: n + 1 })),
  )
  await withConsole(
    () => uses,
    async (c, clock) => {
      const { parts } = c.console
      await addOrganizations(parts.db, ['ash', 'elm', 'yew'])
      const normal = answer
      answer = question =>
        question.path === 'organizations/ash'
          ? { error: { code: 'invalid', message: 'no such plan' } }
          : normal(question)
      // Stripe makes no customer for this one.
      await parts.db.deleteFrom('customer').where('organization', '=', 'yew').execute()
      stripe.makes = () => false
      clock.now = T0 + 28 * HOUR
      await assert.rejects(
        meterUsage(parts),
        /^Error: usage of ash, yew is not written down for Stripe: .*no such plan/,
      )
      const ofElm = expected(uses.filter(({ organization }) => organization === 'elm'))
      const taken = (wanted: Record<string, number>) =>
        assert.deepEqual(
          sums(stripe.taken.values()),
          Object.fromEntries(Object.entries(wanted).filter(([, value]) => value > 0)),
        )
      taken(ofElm)
      answer = normal
      stripe.makes = () => true
      await parts.db.insertInto('customer').values({ customer: 'cus_yew', organization: 'yew', created: 0 }).execute()
      await meterUsage(parts)
      taken(expected(uses))
      // What was written down at first was not sent again.
      assert.equal(stripe.taken.size, 6)
    },
  )
})

// A database of a week ago sent each hour again of which Stripe had forgotten the identifier.
test('a restored backup bills nothing twice when the operator does what docs/console.md says', async () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/console.md'), 'utf8')
  const statements = [...page.matchAll(/`((?:DELETE FROM|UPDATE) [^`]+)`/g)].map(([, text]) => text!)
  assert.equal(statements.length, 2)
  const use = (n: number): Use => ({
    organization: 'oak',
    model: 'm',
    hour: T0 + n * HOUR,
    cost_usd: '0',
    output: n + 1,
  })
  let uses = [use(0), use(1)]
  await withConsole(
    () => uses,
    async (c, clock) => {
      const { db } = c.console.parts
      await addOrganizations(db, ['oak'])
      clock.now = T0 + 3 * HOUR
      await meterUsage(c.console.parts)
      assert.equal(stripe.taken.size, 2)
      // The backup has one of them written down, and knows nothing of the other.
      const state = JSON.stringify({ from: T0, read: T0 + HOUR })
      await db.updateTable('lease').set({ state }).where('name', '=', 'meters').execute()
      await db
        .deleteFrom('metered')
        .where('hour', '=', T0 + HOUR)
        .execute()
      await db.updateTable('metered').set({ sent: null, tried: null, due: 0 }).execute()
      stripe.taken.clear()

      clock.now = T0 + 7 * 24 * HOUR
      uses = [use(0), use(1), use(7 * 24)]
      for (const statement of statements) await sql.raw(statement).execute(db)
      await meterUsage(c.console.parts)
      assert.equal(stripe.taken.size, 0)
      const staff = await c.person('staff@example.com', { staff: true })
      assert.match((await staff.get('/staff/billing')).body, /Usage that Stripe may have/)
      clock.now += 2 * HOUR
      await meterUsage(c.console.parts)
      assert.deepEqual(sums(stripe.taken.values()), { [`cus_oak tokens ${T0 / 1000 + 7 * 86_400 + 3599}`]: 7 * 24 + 1 })
    },
  )
})

test('an answer of too many groups is asked for in parts, and in one hour by organization', async () => {
  const uses = ['ash', 'elm', 'none'].flatMap(organization =>
    [0, 1, 2].map(n => ({ organization, model: 'm', hour: T0 + n * HOUR, cost_usd: '0', output: n + 1 })),
  )
  await withConsole(
    () => uses,
    async (c, clock) => {
      const { parts } = c.console
      await addOrganizations(parts.db, ['ash', 'elm', 'gone'])
      const normal = answer
      // Three rows in an answer are too many, as ten thousand are for the gateway.
      answer = question => {
        const { path, query } = question
        const [, id, part] = path.split('/')
        if (part === 'usage') {
          const own = uses.filter(({ organization }) => organization === id)
          return own.length === 0 ? null : usageOf(own, query)
        }
        const found = normal(question) as { usage?: unknown[] }
        const tooMany = { error: { code: 'invalid', message: 'group_by: more than 2 groups; ask for less time' } }
        return (found?.usage?.length ?? 0) > 2 ? tooMany : found
      }
      clock.now = T0 + 3.5 * HOUR
      await meterUsage(parts)
      const tokens = uses.filter(({ organization }) => organization !== 'none')
      assert.deepEqual(
        sums(stripe.taken.values()),
        Object.fromEntries(Object.entries(expected(tokens)).filter(([, value]) => value > 0)),
      )
    },
  )
})

test('staff gets the sums as CSV', async () => {
  const uses: Use[] = [0, 5, 23].map(n => ({
    organization: 'oak',
    model: '=m',
    hour: T0 - 12 * HOUR + n * HOUR,
    cost_usd: '0.5',
    output: n,
  }))
  await withConsole(
    () => uses,
    async c => {
      const staff = await c.person('staff@example.com', { staff: true })
      const { status, body, headers } = await staff.get('/staff/billing/usage.csv?day=2026-11-26')
      assert.equal(status, 200)
      assert.match(headers.get('content-disposition')!, /usage-2026-11-26\.csv/)
      const [head, ...rows] = body.trim().split('\r\n')
      assert.equal(head, 'hour,organization,model,requests,input,cached,output,reasoning,searches,cost_usd')
      assert.equal(rows.length, 3)
      assert.equal(rows[0]!.split(',')[2], "'=m", 'no formula for a spreadsheet')
      assert.equal((await staff.get('/staff/billing/usage.csv?day=today')).status, 400)
    },
  )
})
