/**
 * Usage reaches Stripe's meters: sums by organization, model and hour, each as one event. What is to be sent is written
 * down first, under an identifier that follows from what it is, and Stripe takes an identifier once. So a console that
 * is killed at any place sends what it has not sent, and sends again what it does not know of, which changes nothing.
 *
 * A row of the ledger may come late, so hours are looked at again for three days. What came since is one more event,
 * whose identifier follows from the sum before.
 */
import { createHash } from 'node:crypto'
import Stripe from 'stripe'
import { underLease } from '../db/lease.ts'
import type { Database, MeteredTable } from '../db/tables.ts'
import { GatewayRefused } from '../gateway.ts'
import { StaffGateway } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'
import type { Metered, StripeConfig } from './config.ts'
import { ensureCustomer, stripeOf } from './stripe.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR
/** What ended in an hour is in its sum by then, but for what comes late. */
const SETTLES_MS = 600_000
const SOON_MS = 3 * HOUR
const LATE_MS = 3 * DAY
/** Stripe takes events of 35 days. */
const OLDEST_MS = 34 * DAY
/** Stripe knows an identifier for a day at least. What was sent without an answer is not sent again after that. */
const KNOWN_MS = 23 * HOUR
const LEASE_MS = 300_000
const RETRY_MS = 60_000
/** How long one console has for one event before another sends it. */
const CLAIM_MS = 60_000
const TOGETHER = 8
const PAGE = 200

/** Of an hour: one organization, one model. */
interface Sum extends Record<Exclude<Metered, 'cost'>, number> {
  organization: string
  model: string
  /** `2026-11-26T14:00Z` */
  hour: string
  /** USD as decimal text. */
  cost_usd: string
}

/** Writes down and sends what is due. It is called again and again. */
export async function meterUsage(parts: Parts): Promise<void> {
  const { stripe } = parts.config
  if (!stripe || stripe.meters.length === 0) return
  const now = parts.now()
  try {
    await underLease(parts.db, 'meters', { now, forMs: LEASE_MS }, state => readUsage(parts, stripe, state))
  } finally {
    // What is written down does not wait for what cannot be read.
    await sendMetered(parts, stripe)
  }
}

/** What the lease keeps: from which hour on usage is reported, and up to where it was read, Unix ms. */
interface State {
  from: number
  read: number
}

async function readUsage(parts: Parts, stripe: StripeConfig, text: string): Promise<string> {
  const now = parts.now()
  const hourOf = (time: number) => Math.floor(time / HOUR) * HOUR
  // What was used before meters were configured is not reported: it was billed in some other way.
  const state: State = text === '' ? { from: hourOf(now), read: hourOf(now) } : JSON.parse(text)
  const until = hourOf(now - SETTLES_MS)
  if (until <= state.read) return JSON.stringify(state)
  // Nearly all that comes late does so within some hours. The rest is looked for once a day.
  const newDay = Math.floor(until / DAY) > Math.floor(state.read / DAY)
  const late = newDay ? now - LATE_MS : state.read - SOON_MS
  const since = Math.max(state.from, Math.min(state.read, late), now - OLDEST_MS)
  const run: Run = { modes: new Map(), failed: new Map() }
  for (let at = hourOf(since); at < until; at += DAY) await writeDown(parts, stripe, run, at, Math.min(at + DAY, until))
  // These hours are read again until all of it is written down; what is written down stays.
  if (run.failed.size > 0) throw new Error(faultOf(run.failed))
  return JSON.stringify({ ...state, read: until } satisfies State)
}

/** What one reading learns of organizations: how they pay, and why their usage could not be written down. */
interface Run {
  modes: Map<string, Promise<string>>
  failed: Map<string, Error>
}

const NAMED = 5

function faultOf(failed: ReadonlyMap<string, Error>): string {
  const more = failed.size > NAMED ? ` and of ${failed.size - NAMED} more` : ''
  const named = [...failed].slice(0, NAMED)
  const why = named[0]![1].message
  return `usage of ${named.map(([id]) => id).join(', ')}${more} is not written down for Stripe: ${why}`
}

const GROUPS = 'hour,organization,model'

/**
 * Sums of these hours, in as few questions as the gateway answers: it refuses answers of too many groups. What has too
 * many in one hour is asked for by organization, of those that the console has.
 */
export async function sumsByHour(db: Database, staff: StaffGateway, since: number, until: number): Promise<Sum[]> {
  const [from, to] = [since, until].map(time => new Date(time).toISOString()) as [string, string]
  try {
    return await staff.usage({ since: from, until: to, group_by: GROUPS })
  } catch (error) {
    if (!(error instanceof GatewayRefused) || error.status !== 400) throw error
  }
  if (until - since > HOUR) {
    const half = since + Math.max(1, Math.floor((until - since) / HOUR / 2)) * HOUR
    return [...(await sumsByHour(db, staff, since, half)), ...(await sumsByHour(db, staff, half, until))]
  }
  const found: Sum[] = []
  for (let after = ''; ; ) {
    const page = await db
      .selectFrom('organization')
      .select('id')
      .where('id', '>', after)
      .orderBy('id')
      .limit(PAGE)
      .execute()
    if (page.length === 0) return found
    for (let i = 0; i < page.length; i += TOGETHER) {
      const some = page.slice(i, i + TOGETHER)
      const sums = await Promise.all(
        some.map(({ id }) => usageOf(staff, id, { since: from, until: to, group_by: GROUPS })),
      )
      found.push(...sums.flat())
    }
    after = page.at(-1)!.id
  }
}

/** Nothing for an organization that is gone from the gateway. */
const usageOf = (staff: StaffGateway, id: string, query: Record<string, string>): Promise<Sum[]> =>
  staff.usage(query, id).catch(error => {
    if (error instanceof GatewayRefused && error.status === 404) return []
    throw error
  })

async function writeDown(
  parts: Parts,
  stripe: StripeConfig,
  { modes, failed }: Run,
  since: number,
  until: number,
): Promise<void> {
  const { db, now, tell } = parts
  const staff = new StaffGateway(parts.config, 'console:meters')
  const sums = await sumsByHour(db, staff, since, until)
  const rows = await db.selectFrom('metered').selectAll().where('hour', '>=', since).where('hour', '<', until).execute()
  const known = new Map<string, number>()
  for (const { organization, model, hour, event_name, total } of rows) {
    const name = [organization, model, hour, event_name].join('\n')
    known.set(name, Math.max(known.get(name) ?? 0, total))
  }
  let wrote = false
  const writeSum = async (sum: Sum): Promise<void> => {
    const { organization, model } = sum
    const hour = Date.parse(sum.hour)
    for (const { event_name, value } of stripe.meters) {
      const before = known.get([organization, model, hour, event_name].join('\n')) ?? 0
      const total = valueIn(sum, value)
      if (total <= before) continue
      const mode = await (modes.get(organization) ?? keep(modes, organization, billingOf(staff, organization)))
      // What a balance paid for, or nobody pays for, is on no invoice.
      const billed = mode !== 'prepaid' && mode !== 'free'
      const customer = billed ? await customerFor(parts, stripe, organization) : ''
      await writeOne(db, {
        ...{ id: identifierOf([organization, model, hour, event_name, before]), organization, customer, model, hour },
        ...{ event_name, amount: total - before, total, created: now(), tried: null, due: now() },
        ...{ sent: customer === '' ? now() : null, fault: null, dropped: null },
      })
      wrote = true
    }
  }
  for (const sum of sums) {
    const { organization } = sum
    // What cannot be found out of one organization keeps no other one off the bill. It is asked for once.
    if (!failed.has(organization)) await writeSum(sum).catch((error: Error) => void failed.set(organization, error))
  }
  if (wrote) tell(`usage of ${new Date(since).toISOString()} and the hours after it is written down for Stripe`)
}

function keep<T>(map: Map<string, T>, name: string, value: T): T {
  map.set(name, value)
  return value
}

const billingOf = (staff: StaffGateway, organization: string): Promise<string> =>
  staff.organization(organization).then(
    ({ organization: { billing } }) => billing ?? '',
    error => {
      // It is gone from the gateway; what it used is still owed.
      if (error instanceof GatewayRefused && error.status === 404) return ''
      throw error
    },
  )

/** '' for an organization that the console does not have: nobody is sent its invoice. */
async function customerFor(parts: Parts, stripe: StripeConfig, organization: string): Promise<string> {
  const known = await parts.db.selectFrom('organization').select('id').where('id', '=', organization).executeTakeFirst()
  return known ? ensureCustomer(parts, stripeOf(stripe), organization) : ''
}

/** Rounding is of the hour's sum, so that parts of it add up to it. */
const valueIn = (sum: Sum, value: Metered): number =>
  value === 'cost' ? Math.round(Number(sum.cost_usd) * 1e6) : sum[value]

const identifierOf = (of: readonly (string | number)[]): string =>
  `sluice_${createHash('sha256').update(of.join('\n')).digest('base64url')}`

async function writeOne(db: Database, row: MeteredTable): Promise<void> {
  await db
    .insertInto('metered')
    .values(row)
    .onConflict(conflict => conflict.column('id').doNothing())
    .execute()
}

// ---- sending --------------------------------------------------------------------------------------------------------

/** Events that Stripe has not, as far as the console knows, and that nobody has given up. */
const waitingMetered = (db: Database) => db.selectFrom('metered').where('sent', 'is', null).where('dropped', 'is', null)

/** Events of which nobody knows whether Stripe has them, and for which it is too late to ask by sending again. */
export const unsureMetered = (db: Database, now: number) =>
  waitingMetered(db)
    .selectAll()
    .where('tried', '<', now - KNOWN_MS)

/** Events that wait because of what Stripe, or the way to it, said to the last attempt. */
export const failingMetered = (db: Database, now: number) =>
  waitingMetered(db)
    .selectAll()
    .where('fault', 'is not', null)
    .where(eb => eb.or([eb('tried', 'is', null), eb('tried', '>=', now - KNOWN_MS)]))

/** Events of an organization that were given up. */
export const droppedMetered = (db: Database, organization: string) =>
  db.selectFrom('metered').selectAll().where('organization', '=', organization).where('dropped', 'is not', null)

/**
 * What staff says of an event that was not taken.
 * - `again`: Stripe has it not, and it is sent once more, also when it was given up.
 * - `done`: it is at Stripe.
 * - `drop`: it is sent no more. Not while it is sent, nor when an attempt had no answer: Stripe may have it then.
 * @returns the event, or undefined where that cannot be said of it
 */
export async function decideMetered(
  db: Database,
  id: string,
  what: 'again' | 'done' | 'drop',
  now: number,
): Promise<MeteredTable | undefined> {
  const all = db.updateTable('metered').where('id', '=', id).where('sent', 'is', null)
  const kept = all.where('dropped', 'is', null)
  const change = {
    again: all.set({ tried: null, due: now, dropped: null }),
    done: kept.set({ sent: now, fault: null }),
    drop: kept.where('fault', 'is not', null).where('tried', 'is', null).set({ dropped: now }),
  }
  return change[what].returningAll().executeTakeFirst()
}

async function sendMetered(parts: Parts, config: StripeConfig): Promise<void> {
  const { db, now } = parts
  const stripe = stripeOf(config)
  for (;;) {
    const due = await waitingMetered(db)
      .select('id')
      .where('due', '<=', now())
      .where(eb => eb.or([eb('tried', 'is', null), eb('tried', '>=', now() - KNOWN_MS)]))
      .orderBy('due')
      .limit(PAGE)
      .execute()
    for (let i = 0; i < due.length; i += TOGETHER)
      await Promise.all(due.slice(i, i + TOGETHER).map(({ id }) => sendOne(parts, stripe, id)))
    if (due.length < PAGE) return
  }
}

async function sendOne({ db, now, tell }: Parts, stripe: Stripe, id: string): Promise<void> {
  const at = now()
  const row = await db
    .updateTable('metered')
    .set(eb => ({ due: at + CLAIM_MS, tried: eb.fn.coalesce('tried', eb.val(at)) }))
    .where('id', '=', id)
    .where('sent', 'is', null)
    .where('dropped', 'is', null)
    .where('due', '<=', at)
    .returningAll()
    .executeTakeFirst()
  if (!row) return
  const { customer, event_name, amount, hour, tried } = row
  const set = (values: Partial<MeteredTable>) => db.updateTable('metered').set(values).where('id', '=', id).execute()
  try {
    await stripe.billing.meterEvents.create(
      {
        ...{ event_name, identifier: id, payload: { stripe_customer_id: customer, value: String(amount) } },
        // The last second of the hour: an invoice of a month has all of its hours.
        timestamp: (hour + HOUR) / 1000 - 1,
      },
      // A second try of the library would hide that the first one had no answer.
      { maxNetworkRetries: 0 },
    )
    await set({ sent: now(), fault: null })
  } catch (error) {
    if (isKnown(error, id)) return void (await set({ sent: now(), fault: null }))
    const { message } = error as Error
    // An answer that refuses says that this attempt left nothing at Stripe. An attempt before, which had no answer, may
    // have: it stays unsure.
    const refused = error instanceof Stripe.errors.StripeInvalidRequestError
    await set({ due: now() + RETRY_MS, fault: message, ...(refused && tried === at && { tried: null }) })
    tell(`usage ${id} could not be sent to Stripe: ${message}`)
  }
}

/** Stripe has taken an event with this identifier: it refuses a second one, and that is the answer to the first. */
const isKnown = (error: unknown, id: string): boolean =>
  error instanceof Stripe.errors.StripeInvalidRequestError &&
  (error.code === 'duplicate_meter_event' || error.message.includes(`already exists with identifier ${id}`))
