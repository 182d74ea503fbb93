/**
 * Carries out at the gateway what payments mean: plans by tiers, and balances of prepaid organizations. What has to be
 * done is worked out anew of all rows each time, so that it is enough to know which organizations are to be looked at:
 * the table `billing_work`, whose rows are written in the transaction that brings the news, and stay until the gateway
 * has all of it.
 */
import { randomUUID } from 'node:crypto'
import type { Selectable } from 'kysely'
import { underLease } from '../db/lease.ts'
import type { Database, TierMoveTable } from '../db/tables.ts'
import { GatewayRefused, type Organization } from '../gateway.ts'
import { type NoticeMail, sendNotices, tellMembers, tellStaff } from '../notices/outbox.ts'
import { note } from '../people/events.ts'
import { StaffGateway } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'
import { usdOf } from './config.ts'
import { giveCredits } from './credits.ts'
import { countOf, paymentsOf } from './payments.ts'
import { lostBelowGiven, type Standing, type Tier, verdictOf } from './tiers.ts'

/** Who changes plans, in the gateway's audit. */
export const ACTOR = 'console:tiers'

/** How long one console works at an organization before another tries. */
const CLAIM_MS = 60_000
const PAUSE_MS = 1000
const LONGEST_PAUSE_MS = 60_000
/** A gateway that refuses does so until somebody changes something. */
const REFUSED_PAUSE_MS = 600_000
const AT_ONCE = 20

/** Notes that an organization has to be looked at. Give the transaction that brings the news. */
export async function needsLook(db: Database, organization: string, now: number): Promise<void> {
  const fresh = { stamp: randomUUID(), due: now, attempts: 0, fault: null }
  await db
    .insertInto('billing_work')
    .values({ organization, claimed: 0, ...fresh })
    .onConflict(conflict => conflict.column('organization').doUpdateSet(fresh))
    .execute()
}

const LEASE_MS = 60_000

/** When tiers were opened, or their table is another one, everybody who has paid is looked at. */
export async function lookAgain({ db, config, now }: Parts): Promise<void> {
  await underLease(db, 'tiers', { now: now(), forMs: LEASE_MS }, async state => {
    const tiers = JSON.stringify(config.tiers)
    if (state === tiers || !config.tiers.open) return tiers
    const paid = db
      .selectFrom('payment')
      .select('organization')
      .where('organization', 'is not', null)
      .union(db.selectFrom('customer').select('organization'))
    await db
      .insertInto('billing_work')
      .columns(['organization', 'stamp', 'due', 'claimed', 'attempts'])
      .expression(
        db
          .selectFrom(paid.as('paid'))
          .select(eb => [
            eb.ref('paid.organization').$notNull().as('organization'),
            eb.val(randomUUID()).as('stamp'),
            eb.cast<number>(eb.val(now()), 'bigint').as('due'),
            eb.cast<number>(eb.val(0), 'bigint').as('claimed'),
            eb.cast<number>(eb.val(0), 'bigint').as('attempts'),
          ])
          // SQLite reads ON CONFLICT behind a SELECT as a join unless there is a WHERE.
          .where('paid.organization', 'is not', null),
      )
      .onConflict(conflict => conflict.column('organization').doNothing())
      .execute()
    return tiers
  })
}

/** Looks at all organizations that are due. */
export async function settleDue(parts: Parts): Promise<void> {
  const now = parts.now()
  const due = await parts.db
    .selectFrom('billing_work')
    .select('organization')
    .where('due', '<=', now)
    .where('claimed', '<=', now)
    .orderBy('due')
    .limit(AT_ONCE)
    .execute()
  await Promise.all(due.map(({ organization }) => settle(parts, organization)))
}

/** Looks at one organization, if it needs it and nobody else does. Failures are noted, and tried again. */
export async function settle(parts: Parts, organization: string): Promise<void> {
  const { db, tell } = parts
  for (;;) {
    const now = parts.now()
    const claimed = await db
      .updateTable('billing_work')
      .set({ claimed: now + CLAIM_MS })
      .where('organization', '=', organization)
      .where('claimed', '<=', now)
      .returning(['stamp', 'attempts'])
      .executeTakeFirst()
    if (!claimed) return
    const { stamp, attempts } = claimed
    const work = db.updateTable('billing_work').where('organization', '=', organization)
    try {
      await look(parts, organization)
    } catch (error) {
      const fault = (error as Error).message
      tell(`billing of ${organization} (attempt ${attempts + 1}): ${fault}`)
      const longest = error instanceof GatewayRefused ? REFUSED_PAUSE_MS : LONGEST_PAUSE_MS
      const due = parts.now() + Math.min(PAUSE_MS * 2 ** Math.min(attempts, 20), longest)
      await work
        .set({ attempts: attempts + 1, due, fault })
        .where('stamp', '=', stamp)
        .execute()
      await work.set({ claimed: 0 }).execute()
      return
    }
    const done = await db
      .deleteFrom('billing_work')
      .where('organization', '=', organization)
      .where('stamp', '=', stamp)
      .executeTakeFirst()
    if (done.numDeletedRows > 0n) {
      // What was decided is told at once.
      parts.later(() => sendNotices(parts))
      return
    }
    // There is news since.
    await work.set({ claimed: 0 }).execute()
  }
}

async function look(parts: Parts, id: string): Promise<void> {
  const staff = new StaffGateway(parts.config, ACTOR)
  let organization: Organization
  try {
    organization = (await staff.organization(id)).organization
  } catch (error) {
    if (error instanceof GatewayRefused && error.status === 404) return
    throw error
  }
  // What stands in the file is its operator's.
  if (organization.place === 'file') return
  const failed: unknown[] = []
  await giveCredits(parts, staff, organization).catch(error => failed.push(error))
  if (parts.config.tiers.open) await moveTier(parts, staff, organization)
  if (failed.length > 0) throw failed[0]
}

// ---- tiers ----------------------------------------------------------------------------------------------------------

/** Where an organization stands, but for its plan, which the gateway knows. */
export async function standingOf(db: Database, organization: string): Promise<Omit<Standing, 'plan'>> {
  const { arrived, counted } = countOf(await paymentsOf(db, organization))
  const [hold, granted] = await Promise.all([
    openHold(db, organization),
    db
      .selectFrom('review')
      .select('plan')
      .where('organization', '=', organization)
      .where('state', '=', 'granted')
      .execute(),
  ])
  return { arrived, counted, held: hold !== undefined, granted: granted.map(({ plan }) => plan) }
}

export const openHold = (db: Database, organization: string) =>
  db
    .selectFrom('hold')
    .selectAll()
    .where('organization', '=', organization)
    .where('ended', 'is', null)
    .orderBy('created')
    .executeTakeFirst()

type Move = Selectable<TierMoveTable>

/** Of several tries at a moment, in which staff changes plans, too. */
const TRIES = 5

async function moveTier(parts: Parts, staff: StaffGateway, { id, plan: first }: Organization): Promise<void> {
  const { db, config } = parts
  let plan = first
  for (let attempt = 1; attempt <= TRIES; attempt++) {
    const standing = { ...(await standingOf(db, id)), plan }
    const verdict = verdictOf(config.tiers.table, standing)
    const pending = await pendingMove(db, id)
    // The gateway had it before this console could note that.
    if (pending && pending.to_plan === plan) {
      await finish(parts, pending)
      continue
    }
    if (pending && (pending.to_plan !== verdict.plan || pending.from_plan !== plan)) {
      await drop(parts, pending)
      continue
    }
    if (verdict.review !== null) await askReview(parts, id, verdict.review, standing.counted)
    if (lostBelowGiven(config.tiers.table, standing)) await tellLost(parts, id, standing)
    if (verdict.because === null) return
    const move = pending ?? (await decide(parts, id, plan, { ...verdict, because: verdict.because }, standing.counted))
    await staff.change(id, now => {
      plan = now.plan
      return plan === move.from_plan ? { plan: move.to_plan } : null
    })
    if (plan === move.from_plan) {
      await finish(parts, move)
      return
    }
  }
  throw new Error(`the plan of ${id} is changed by others again and again`)
}

const pendingMove = (db: Database, organization: string): Promise<Move | undefined> =>
  db
    .selectFrom('tier_move')
    .selectAll()
    .where('organization', '=', organization)
    .where('applied', 'is', null)
    .where('dropped', 'is', null)
    .executeTakeFirst()

/** The next free id of a table's rows of an organization: two consoles that decide at one moment make one row. */
async function nextId(db: Database, table: 'tier_move' | 'hold' | 'review', organization: string): Promise<string> {
  const { count } = await db
    .selectFrom(table)
    .select(eb => eb.fn.countAll<number | bigint>().as('count'))
    .where('organization', '=', organization)
    .executeTakeFirstOrThrow()
  return `${organization}:${count}`
}

/** Notes what is going to be done, with the hold that belongs to it. */
async function decide(
  { db, now }: Parts,
  organization: string,
  from: string,
  { plan, because, hold }: { plan: string; because: TierMoveTable['because']; hold: boolean },
  counted: number,
): Promise<Move> {
  const move: Move = {
    ...{ id: await nextId(db, 'tier_move', organization), organization, from_plan: from, to_plan: plan, because },
    ...{ counted, created: now(), applied: null, dropped: null },
  }
  await db.transaction().execute(async step => {
    await step
      .insertInto('tier_move')
      .values(move)
      .onConflict(conflict => conflict.column('id').doNothing())
      .execute()
    if (hold) await fell(step, organization, from, counted, now())
  })
  return move
}

/** Sets the hold of what fell, ends reviews, and tells staff. */
async function fell(db: Database, organization: string, plan: string, counted: number, now: number): Promise<void> {
  await db
    .updateTable('review')
    .set({ state: 'ended' })
    .where('organization', '=', organization)
    .where('state', 'in', ['open', 'granted', 'refused'])
    .execute()
  if (await openHold(db, organization)) return
  const words = `What counts fell to $${usdOf(counted)}, below the basis of ${plan}`
  const hold = {
    ...{ id: await nextId(db, 'hold', organization), organization, why: 'fell' as const, note: words },
    ...{ person: null, created: now, ended: null, ender: null },
  }
  await db
    .insertInto('hold')
    .values(hold)
    .onConflict(conflict => conflict.column('id').doNothing())
    .execute()
  await note(db, { organization, action: 'hold.set', detail: words, address: '', now })
  const body = `${words}. It does not rise until you lift the hold, on the page Staff, Payments and tiers.\n`
  await tellStaff(db, { id: `hold:${hold.id}`, subject: `A hold on ${organization}`, body }, now)
}

/** Tells staff, once for each sum that was taken back: the tier is theirs, and so is what becomes of it. */
async function tellLost({ db, now, config }: Parts, organization: string, { plan, arrived, counted }: Standing) {
  const name = config.tiers.table.find(tier => tier.plan === plan)!.name
  const left = usdOf(Math.max(0, counted))
  const body = `Of $${usdOf(arrived)} that arrived, $${left} counts: the rest was taken back. ${name} was given by staff, so it
stays, and no hold is set. Change the plan, or set a hold, if that is not what you want:

${config.url}/staff/organizations/${organization}/payments
`
  const id = `lost:${organization}:${plan}:${arrived - counted}`
  await tellStaff(db, { id, subject: `Payments of ${organization} were taken back`, body }, now())
}

/** Asks staff for a review, once, until a hold ends it. */
async function askReview({ db, now, config }: Parts, organization: string, plan: string, counted: number) {
  const known = await db
    .selectFrom('review')
    .select('id')
    .where('organization', '=', organization)
    .where('plan', '=', plan)
    .where('state', 'in', ['open', 'refused'])
    .executeTakeFirst()
  if (known) return
  const id = await nextId(db, 'review', organization)
  const { name, activation } = config.tiers.table.find(tier => tier.plan === plan)!
  await db.transaction().execute(async step => {
    await step
      .insertInto('review')
      .values({ id, organization, plan, state: 'open', created: now(), decided: null, person: null })
      .onConflict(conflict => conflict.column('id').doNothing())
      .execute()
    const body = `${organization} has paid $${usdOf(counted)}, enough for ${name}, which needs a ${activation}:

${config.url}/staff/billing
`
    await tellStaff(step, { id: `review:${id}`, subject: `${organization} asks for ${name}`, body }, now())
  })
}

const drop = ({ db, now }: Parts, { id }: Move) =>
  db.updateTable('tier_move').set({ dropped: now() }).where('id', '=', id).where('applied', 'is', null).execute()

/** Notes that the gateway has it, and tells the customer. */
async function finish({ db, now, config }: Parts, move: Move): Promise<void> {
  const { id, organization, from_plan, to_plan } = move
  await db.transaction().execute(async step => {
    const noted = await step
      .updateTable('tier_move')
      .set({ applied: now() })
      .where('id', '=', id)
      .where('applied', 'is', null)
      .executeTakeFirst()
    if (noted.numUpdatedRows === 0n) return
    const detail = `${from_plan} → ${to_plan}`
    await note(step, { organization, action: 'tier.move', detail, address: '', now: now() })
    const of = await step.selectFrom('organization').select('name').where('id', '=', organization).executeTakeFirst()
    await tellMembers(step, organization, 'billing.see', mailOf(move, of?.name ?? organization, config), now())
  })
}

function mailOf(
  { id, organization, to_plan, because }: Move,
  name: string,
  { url, tiers, name: service }: Parts['config'],
): NoticeMail {
  const tier = tiers.table.find(({ plan }: Tier) => plan === to_plan)?.name ?? to_plan
  const why = {
    paid: `With what you have paid, ${name} has the limits of ${tier} from now on.`,
    review: `After our review, ${name} has the limits of ${tier} from now on.`,
    fell: [
      `Payments of ${name} were refunded or disputed, so it has the limits of ${tier} from now on. It does not rise`,
      'by itself until we have looked at it; answer this mail if that is a mistake.',
    ].join('\n'),
  }[because]
  const body = `${why}

The limits: ${url}/o/${organization}/limits
Payments: ${url}/o/${organization}/billing
`
  return { id: `move:${id}`, subject: `${name} is at ${tier} of ${service} now`, body }
}

// ---- what staff decides ---------------------------------------------------------------------------------------------

/** Sets a hold by hand: the organization keeps its plan, and does not rise. @returns false when one stands */
export async function setHold(
  db: Database,
  { organization, note: words, person }: { organization: string; note: string; person: string },
  now: number,
): Promise<boolean> {
  return db.transaction().execute(async step => {
    if (await openHold(step, organization)) return false
    const id = await nextId(step, 'hold', organization)
    await step
      .insertInto('hold')
      .values({ id, organization, why: 'staff', note: words, person, created: now, ended: null, ender: null })
      .execute()
    return true
  })
}

/** Lifts a hold. @returns it; undefined when there is none such */
export async function liftHold(db: Database, id: string, person: string, now: number) {
  return db.transaction().execute(async step => {
    const hold = await step
      .updateTable('hold')
      .set({ ended: now, ender: person })
      .where('id', '=', id)
      .where('ended', 'is', null)
      .returningAll()
      .executeTakeFirst()
    if (hold) await needsLook(step, hold.organization, now)
    return hold
  })
}

/** Decides a review. A refusal can still become a yes. @returns it; undefined when it is over */
export async function decideReview(
  db: Database,
  id: string,
  state: 'granted' | 'refused',
  person: string,
  now: number,
) {
  return db.transaction().execute(async step => {
    const review = await step
      .updateTable('review')
      .set({ state, decided: now, person })
      .where('id', '=', id)
      .where('state', 'in', state === 'granted' ? ['open', 'refused'] : ['open'])
      .returningAll()
      .executeTakeFirst()
    if (review) await needsLook(step, review.organization, now)
    return review
  })
}
