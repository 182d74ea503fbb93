/** Staff: reviews, holds, payments by hand, and what could not be carried out. */
import { html } from 'hono/html'
import { centsOf, usdOf } from '../billing/config.ts'
import { decideMetered, failingMetered, sumsByHour, unsureMetered } from '../billing/meters.ts'
import { decideReview, liftHold, needsLook, setHold, settle, standingOf } from '../billing/moves.ts'
import { bindCustomer, COUNTED_CURRENCY, recordPayment } from '../billing/payments.ts'
import { note } from '../people/events.ts'
import { csv } from '../usage/csv.ts'
import { page } from '../views/layout.ts'
import { type Answer, FormFault, get, type Page, type PersonVisit, post, Refusal, see } from '../web/visit.ts'
import {
  failing,
  HAND_KINDS,
  HERE,
  holdForm,
  holdsTable,
  nobodys,
  notKnown,
  notTaken,
  paymentForm,
  reviewsTable,
  SHOWN,
  TIERS_OFF,
  usageForm,
} from './billing-views.ts'
import { StaffGateway } from './gateway.ts'
import { tabs } from './index.ts'
import { showPayments } from './payments.ts'

export const staffBilling: Page = {
  name: 'staff-billing',
  routes: [
    get.staff('/staff/billing', show),
    get.staff('/staff/billing/usage.csv', usageCsv),
    get.staff('/staff/organizations/:id/payments', showPayments),
    post.staff('/staff/billing/payments', addPayment, show),
    post.staff('/staff/billing/reviews/:id/grant', decide('granted')),
    post.staff('/staff/billing/reviews/:id/refuse', decide('refused')),
    post.staff('/staff/billing/holds', addHold, show),
    post.staff('/staff/billing/holds/:id/lift', lift),
    post.staff('/staff/billing/customers', placeCustomer, show),
    post.staff('/staff/billing/metered/:id/again', metered('again')),
    post.staff('/staff/billing/metered/:id/done', metered('done')),
    post.staff('/staff/billing/metered/:id/drop', metered('drop')),
  ],
}

async function show(visit: PersonVisit): Promise<Answer> {
  const { db, parts, now } = visit
  const { tiers } = parts.config
  const [reviews, holds, lost, work, unsure, refused] = await Promise.all([
    db
      .selectFrom('review')
      .selectAll()
      .where('state', 'in', ['open', 'refused'])
      .orderBy('created')
      .limit(SHOWN)
      .execute(),
    db.selectFrom('hold').selectAll().where('ended', 'is', null).orderBy('created', 'desc').limit(SHOWN).execute(),
    placeless(visit),
    db.selectFrom('billing_work').selectAll().where('fault', 'is not', null).orderBy('due').limit(SHOWN).execute(),
    unsureMetered(db, now).limit(SHOWN).execute(),
    failingMetered(db, now).orderBy('hour').limit(SHOWN).execute(),
  ])
  const counted = await Promise.all(reviews.map(({ organization }) => standingOf(db, organization)))
  return page(
    visit,
    'Payments and tiers',
    html`${tabs(HERE)}
      ${tiers.open ? '' : TIERS_OFF}
      <section><h2>Reviews</h2>${reviewsTable(
        visit,
        reviews.map((review, i) => ({ ...review, counted: counted[i]!.counted })),
      )}</section>
      <section><h2>Holds</h2>${holdsTable(visit, holds)}</section>
      ${work.length > 0 ? failing(work) : ''}
      ${unsure.length > 0 ? notKnown(visit, unsure) : ''}
      ${refused.length > 0 ? notTaken(visit, refused) : ''}
      ${lost.length > 0 ? nobodys(visit, lost) : ''}
      ${paymentForm(visit)}${holdForm(visit)}${usageForm(visit)}`,
  )
}

/** Payments that are nobody's: no word of the organization, and a customer whom the console does not know. */
const placeless = ({ db }: PersonVisit) =>
  db
    .selectFrom('payment')
    .selectAll()
    .where('organization', 'is', null)
    .where('kind', '=', 'settled')
    .where(eb =>
      eb.or([
        eb('customer', 'is', null),
        eb('customer', 'not in', eb.selectFrom('customer').select('customer.customer')),
      ]),
    )
    .orderBy('received', 'desc')
    .limit(SHOWN)
    .execute()

const known = async ({ db }: PersonVisit, id: string): Promise<string> => {
  const found = await db.selectFrom('organization').select('id').where('id', '=', id.trim()).executeTakeFirst()
  if (!found)
    throw new FormFault('the console has no organization with this id; copy it from the list of organizations')
  return found.id
}

const words = (text: string | null, field: string): string => {
  const clean = (text ?? '').replace(/[\p{C}\s]+/gu, ' ').trim()
  if (clean === '' || clean.length > 200) throw new FormFault(`${field}: write it in 1 to 200 characters`)
  return clean
}

async function addPayment(visit: PersonVisit): Promise<Answer> {
  const { db, parts, form: sent, session, now, address } = visit
  const kind = HAND_KINDS.find(([word]) => word === sent.get('kind'))?.[0]
  if (!kind) throw new FormFault('choose what it is')
  const id = /^[0-9a-z]{20,40}$/.exec(sent.get('id') ?? '')?.[0]
  if (!id) throw new FormFault('this form is incomplete; reload the page')
  const currency = (sent.get('currency') ?? '').trim().toLowerCase()
  if (currency !== COUNTED_CURRENCY)
    throw new FormFault('currency: USD alone counts; write the amount in USD for which it was booked')
  const text = (sent.get('amount') ?? '').trim()
  const below = text.startsWith('-')
  const cents = centsOf(below ? text.slice(1) : text)
  if (!cents) throw new FormFault('amount: write an amount above 0 such as 25.00')
  if (below && kind !== 'adjustment') throw new FormFault('amount: an adjustment alone may be below 0')
  const organization = await known(visit, sent.get('organization') ?? '')
  const reference = words(sent.get('note'), 'reference')
  const row = `hand_${id}`
  await db.transaction().execute(async step => {
    const fresh = await recordPayment(step, {
      ...{ id: row, provider: 'hand', kind, state: kind === 'refund' ? 'made' : '', organization, customer: null },
      ...{ payment: kind === 'settled' ? row : null, object: row, amount: below ? -cents : cents, currency },
      ...{ time: now, received: now, person: session.person, note: reference },
    })
    if (!fresh) return
    await needsLook(step, organization, now)
    const detail = `${kind} $${usdOf(below ? -cents : cents)}: ${reference}`
    await note(step, { organization, person: session.person, action: 'payment.hand', detail, address, now })
  })
  parts.later(() => settle(parts, organization))
  return see(HERE, 'payment-added')
}

function decide(state: 'granted' | 'refused') {
  return async ({ db, parts, params, session, now, address }: PersonVisit): Promise<Answer> => {
    const review = await decideReview(db, params['id']!, state, session.person, now)
    if (!review) throw new Refusal(404, 'This review is over.')
    const { organization, plan } = review
    await note(db, { organization, person: session.person, action: `review.${state}`, detail: plan, address, now })
    parts.later(() => settle(parts, organization))
    return see(HERE, `review-${state}`)
  }
}

async function addHold(visit: PersonVisit): Promise<Answer> {
  const { db, form: sent, session, now, address } = visit
  const organization = await known(visit, sent.get('held') ?? '')
  const why = words(sent.get('why'), 'why')
  if (!(await setHold(db, { organization, note: why, person: session.person }, now)))
    throw new FormFault('a hold stands already')
  await note(db, { organization, person: session.person, action: 'hold.set', address, now })
  return see(HERE, 'hold-set')
}

async function lift({ db, parts, params, session, now, address }: PersonVisit): Promise<Answer> {
  const hold = await liftHold(db, params['id']!, session.person, now)
  if (!hold) throw new Refusal(404, 'This hold is lifted already.')
  const { organization } = hold
  await note(db, { organization, person: session.person, action: 'hold.lift', address, now })
  parts.later(() => settle(parts, organization))
  return see(HERE, 'hold-lifted')
}

async function placeCustomer(visit: PersonVisit): Promise<Answer> {
  const { db, parts, form: sent, session, now, address } = visit
  const customer = sent.get('customer') ?? ''
  const organization = await known(visit, sent.get('organization') ?? '')
  const paid = await db.selectFrom('payment').select('id').where('customer', '=', customer).limit(1).executeTakeFirst()
  if (!paid) throw new FormFault('no payment has this customer')
  await db.transaction().execute(async step => {
    await bindCustomer(step, customer, organization, now)
    await needsLook(step, organization, now)
    await note(step, { organization, person: session.person, action: 'payment.place', detail: customer, address, now })
  })
  parts.later(() => settle(parts, organization))
  return see(HERE, 'customer-placed')
}

/** Staff has looked at Stripe, or has decided to bill it in another way. */
function metered(what: 'again' | 'done' | 'drop') {
  return async ({ db, params, session, now, address }: PersonVisit): Promise<Answer> => {
    await db.transaction().execute(async step => {
      const changed = await decideMetered(step, params['id']!, what, now)
      if (!changed) throw new Refusal(404, 'This is sent, or on its way. Reload the page.')
      const { organization, event_name, amount, hour } = changed
      const detail = `${amount} of ${event_name}, ${new Date(hour).toISOString().slice(0, 16).replace('T', ' ')}`
      await note(step, { organization, person: session.person, action: `usage.${what}`, detail, address, now })
    })
    return see(HERE, what === 'drop' ? 'usage-dropped' : 'usage-noted')
  }
}

const DAY = 86_400_000
const COLUMNS = ['requests', 'input', 'cached', 'output', 'reasoning', 'searches', 'cost_usd'] as const

async function usageCsv({ db, parts, url, session, now }: PersonVisit): Promise<Answer> {
  const day = url.searchParams.get('day') ?? new Date(now).toISOString().slice(0, 10)
  const since = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(day) : Number.NaN
  if (Number.isNaN(since)) throw new FormFault('day: write a day such as 2026-11-26')
  const sums = await sumsByHour(db, new StaffGateway(parts.config, `user:${session.person}`), since, since + DAY)
  const rows = sums.map(sum => [sum.hour, sum.organization, sum.model, ...COLUMNS.map(name => sum[name])])
  return {
    status: 200,
    headers: {
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': `attachment; filename="usage-${day}.csv"`,
    },
    body: csv(['hour', 'organization', 'model', ...COLUMNS], rows),
  }
}
