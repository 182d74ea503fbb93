/** Staff: reviews, holds, payments by hand, and what could not be carried out. */
import { html } from 'hono/html'
import { centsOf, usdOf } from '../billing/config.ts'
import { sumsByHour, unsureMetered } from '../billing/meters.ts'
import { decideReview, liftHold, needsLook, openHold, setHold, settle, standingOf } from '../billing/moves.ts'
import { bindCustomer, COUNTED_CURRENCY, countOf, paymentsOf, recordPayment } from '../billing/payments.ts'
import { amountOf, kindOf, paymentsTable, usd } from '../billing/views.ts'
import { note } from '../people/events.ts'
import { newId } from '../people/secrets.ts'
import { csv } from '../usage/csv.ts'
import { page } from '../views/layout.ts'
import { badge, button, empty, form, input, select, table, time } from '../views/parts.ts'
import {
  type Answer,
  FormFault,
  get,
  type Html,
  type Page,
  type PersonVisit,
  post,
  Refusal,
  see,
} from '../web/visit.ts'
import { StaffGateway } from './gateway.ts'
import { tabs } from './index.ts'

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
  ],
}

const HERE = '/staff/billing'
const SHOWN = 100

async function show(visit: PersonVisit): Promise<Answer> {
  const { db, parts, now } = visit
  const { tiers } = parts.config
  const [reviews, holds, lost, work, unsure] = await Promise.all([
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
  ])
  const standings = await Promise.all(reviews.map(({ organization }) => standingOf(db, organization)))
  const nameOf = (plan: string) => tiers.table.find(tier => tier.plan === plan)?.name ?? plan
  return page(
    visit,
    'Payments and tiers',
    html`${tabs(HERE)}
      ${tiers.open ? '' : html`<p class="alert" role="status">Tiers are off (<code>tiers: off</code> in console.yaml): payments are kept, and change no plan.</p>`}
      <section><h2>Reviews</h2>${
        reviews.length === 0
          ? empty('Nobody waits for a review.')
          : table(
              'Reviews',
              ['Organization', 'Tier', '#Counts', 'Since', ''],
              reviews.map(({ id, organization, plan, state, created }, i) => [
                link(organization),
                html`${nameOf(plan)} ${state === 'refused' ? badge('refused', 'warn') : ''}`,
                usd(standings[i]!.counted),
                time(created, false),
                html`<div class="actions">
                  ${button(visit, `${HERE}/reviews/${encodeURIComponent(id)}/grant`, 'Grant', { class: 'main', about: `${nameOf(plan)} for ${organization}` })}
                  ${state === 'open' ? button(visit, `${HERE}/reviews/${encodeURIComponent(id)}/refuse`, 'Refuse', { about: `${nameOf(plan)} for ${organization}` }) : ''}</div>`,
              ]),
            )
      }</section>
      <section><h2>Holds</h2>${
        holds.length === 0
          ? empty('No hold stands.')
          : table(
              'Holds',
              ['Organization', 'Why', 'Since', ''],
              holds.map(({ id, organization, why, note: words, created }) => [
                link(organization),
                html`${words} ${why === 'fell' ? badge('by itself', 'warn') : ''}`,
                time(created),
                liftButton(visit, { id, organization }),
              ]),
            )
      }</section>
      ${work.length > 0 ? failing(work) : ''}
      ${unsure.length > 0 ? notKnown(visit, unsure) : ''}
      ${lost.length > 0 ? nobodys(visit, lost) : ''}
      ${forms(visit)}`,
  )
}

const link = (organization: string): Html =>
  html`<a href="/staff/organizations/${encodeURIComponent(organization)}/payments">${organization}</a>`

const liftButton = (visit: PersonVisit, { id, organization }: { id: string; organization: string }): Html =>
  button(visit, `${HERE}/holds/${encodeURIComponent(id)}/lift`, 'Lift', { about: `the hold on ${organization}` })

/** Everything about the money of one organization. */
async function showPayments(visit: PersonVisit): Promise<Answer> {
  const { db, params } = visit
  const id = params['id']!
  const [rows, hold, moves, credits, customers] = await Promise.all([
    paymentsOf(db, id),
    openHold(db, id),
    db
      .selectFrom('tier_move')
      .selectAll()
      .where('organization', '=', id)
      .where('dropped', 'is', null)
      .orderBy('created', 'desc')
      .limit(SHOWN)
      .execute(),
    db
      .selectFrom('credit')
      .selectAll()
      .where('organization', '=', id)
      .where('amount', '<>', 0)
      .orderBy('created', 'desc')
      .limit(SHOWN)
      .execute(),
    db.selectFrom('customer').selectAll().where('organization', '=', id).orderBy('created').limit(SHOWN).execute(),
  ])
  const { arrived, counted } = countOf(rows)
  return page(
    visit,
    `Payments of ${id}`,
    html`${tabs(HERE)}
      <div class="card"><dl>
        <dt>Organization</dt><dd><a href="/staff/organizations/${encodeURIComponent(id)}">${id}</a></dd>
        <dt>Counts</dt><dd>${usd(counted)}</dd>
        <dt>Arrived</dt><dd>${usd(arrived)}</dd>
        <dt>At Stripe</dt><dd>${customers.length === 0 ? '–' : customers.map(({ customer }) => html`<code>${customer}</code> `)}</dd>
        <dt>Hold</dt><dd>${hold ? html`${hold.note}, ${time(hold.created)} ${liftButton(visit, hold)}` : 'none'}</dd>
      </dl></div>
      <section><h2>Payments</h2>${rows.length === 0 ? empty('Nothing has been paid yet.') : paymentsTable(rows.toReversed().slice(0, SHOWN))}</section>
      ${
        moves.length === 0
          ? ''
          : html`<section><h2>Tiers</h2>${table(
              'Tiers',
              ['When (UTC)', 'Plan', 'Why', '#Counted', 'At the gateway'],
              moves.map(({ created, from_plan, to_plan, because, counted, applied }) => [
                time(created),
                `${from_plan} → ${to_plan}`,
                because,
                usd(counted),
                applied === null ? badge('waits', 'warn') : time(applied),
              ]),
            )}</section>`
      }
      ${
        credits.length === 0
          ? ''
          : html`<section><h2>Balance</h2>${table(
              'Credits',
              ['When (UTC)', '#Amount', 'Of', 'At the gateway'],
              credits.map(({ created, amount, payment, given }) => [
                time(created),
                usd(amount),
                html`<code>${payment}</code>`,
                given === null ? badge('waits', 'warn') : time(given),
              ]),
            )}</section>`
      }`,
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

const failing = (
  work: readonly { organization: string; attempts: number; due: number; fault: string | null }[],
): Html =>
  html`<section><h2>Not carried out yet</h2>${table(
    'Not carried out yet',
    ['Organization', 'Why', '#Attempts', 'Next'],
    work.map(({ organization, fault, attempts, due }) => [
      link(organization),
      fault ?? '',
      String(attempts),
      time(due),
    ]),
  )}</section>`

const notKnown = (visit: PersonVisit, unsure: Awaited<ReturnType<ReturnType<typeof unsureMetered>['execute']>>): Html =>
  html`<section><h2>Usage that Stripe may have</h2>
    <p>It was sent more than a day ago, and no answer came. Look at the meter of the customer at Stripe for this hour.</p>
    ${table(
      'Usage that Stripe may have',
      ['Organization', 'Customer', 'Meter', 'Hour', '#Amount', ''],
      unsure.map(({ id, organization, customer, event_name, hour, amount }) => [
        link(organization),
        html`<code>${customer}</code>`,
        event_name,
        time(hour),
        String(amount),
        html`<div class="actions">${button(visit, `${HERE}/metered/${id}/done`, 'It is there', { about: id })}
          ${button(visit, `${HERE}/metered/${id}/again`, 'Send it', { about: id })}</div>`,
      ]),
    )}</section>`

const nobodys = (visit: PersonVisit, lost: Awaited<ReturnType<typeof placeless>>): Html =>
  html`<section><h2>Payments of nobody</h2>
    <p>Say whose customer it is, and all of its payments count. A payment without a customer is written by hand, below.</p>
    ${table(
      'Payments of nobody',
      ['When (UTC)', 'What', '#Amount', 'Reference', 'Whose'],
      lost.map(row => [
        time(row.time),
        kindOf(row),
        amountOf(row),
        html`<code>${row.object}</code>`,
        row.customer === null
          ? 'no customer'
          : form(
              visit,
              `${HERE}/customers`,
              html`<input type="hidden" name="customer" value="${row.customer}" />
                <label class="hidden" for="whose-${row.id}">Organization of ${row.customer}</label>
                <input id="whose-${row.id}" name="organization" required maxlength="64" placeholder="organization" />
                <button type="submit">Place</button>`,
              { class: 'inline' },
            ),
      ]),
    )}</section>`

function forms(visit: PersonVisit): Html {
  const { form: sent, now } = visit
  const id = /^[0-9a-z]{20,40}$/.exec(sent.get('id') ?? '')?.[0] ?? newId(now)
  return html`<section class="card narrow"><h2>A payment by hand</h2>
      <p class="muted">What arrived by bank transfer and the like. Rows are never changed: an adjustment, also one below zero,
        corrects what was wrong.</p>
      ${form(
        visit,
        `${HERE}/payments`,
        html`<input type="hidden" name="id" value="${id}" />
          ${input({ name: 'organization', label: 'Organization', value: sent.get('organization'), required: true, more: { maxlength: '64' } })}
          ${select({ name: 'kind', label: 'What', options: HAND_KINDS, value: sent.get('kind') })}
          ${input({ name: 'amount', label: 'Amount', value: sent.get('amount'), required: true, more: { inputmode: 'decimal', maxlength: '14' } })}
          ${input({ name: 'currency', label: 'Currency', value: sent.get('currency') ?? 'USD', required: true, more: { maxlength: '3' } })}
          ${input({ name: 'note', label: 'Reference', value: sent.get('note'), required: true, hint: 'Such as the number of the transfer; the customer sees it.', more: { maxlength: '200' } })}
          <button type="submit" class="main">Add</button>`,
      )}</section>
    <section class="card narrow"><h2>Set a hold</h2>
      <p class="muted">The organization keeps its plan, and does not rise.</p>
      ${form(
        visit,
        `${HERE}/holds`,
        html`${input({ name: 'held', label: 'Organization to hold', value: sent.get('held'), required: true, more: { maxlength: '64' } })}
          ${input({ name: 'why', label: 'Why', value: sent.get('why'), required: true, hint: 'For staff.', more: { maxlength: '200' } })}
          <button type="submit">Set it</button>`,
      )}</section>
    <section class="card narrow"><h2>Usage for another biller</h2>
      <form method="get" action="${HERE}/usage.csv">
        ${input({ name: 'day', label: 'Day (UTC)', type: 'date', value: new Date(now).toISOString().slice(0, 10), required: true })}
        <button type="submit">By hour, organization and model (CSV)</button></form></section>`
}

const HAND_KINDS = [
  ['settled', 'Payment that arrived'],
  ['refund', 'Refund'],
  ['adjustment', 'Adjustment'],
] as const

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

/** Staff has looked at Stripe: it is sent once more, or counts as sent. */
function metered(what: 'again' | 'done') {
  return async ({ db, params, session, now, address }: PersonVisit): Promise<Answer> => {
    const changed = await db
      .updateTable('metered')
      .set(what === 'done' ? { sent: now, fault: null } : { tried: null, due: now })
      .where('id', '=', params['id']!)
      .where('sent', 'is', null)
      .returning(['organization', 'event_name'])
      .executeTakeFirst()
    if (!changed) throw new Refusal(404, 'This is sent.')
    const { organization, event_name: detail } = changed
    await note(db, { organization, person: session.person, action: `usage.${what}`, detail, address, now })
    return see(HERE, 'usage-noted')
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
