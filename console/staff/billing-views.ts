/** What the page Payments and tiers of staff consists of. */
import { html } from 'hono/html'
import type { Selectable } from 'kysely'
import type { Payment } from '../billing/payments.ts'
import { amountOf, kindOf, usd } from '../billing/views.ts'
import type { BillingWorkTable, HoldTable, MeteredTable, ReviewTable } from '../db/tables.ts'
import { newId } from '../people/secrets.ts'
import { badge, button, confirm, empty, form, input, select, table, time } from '../views/parts.ts'
import type { Html, PersonVisit } from '../web/visit.ts'

export const HERE = '/staff/billing'
/** Rows of a table. */
export const SHOWN = 100

export const TIERS_OFF = html`<p class="alert" role="status">Tiers are off (<code>tiers: off</code> in console.yaml):
  payments are kept, and change no plan.</p>`

const link = (organization: string): Html =>
  html`<a href="/staff/organizations/${encodeURIComponent(organization)}/payments">${organization}</a>`

export function reviewsTable(
  visit: PersonVisit,
  reviews: readonly (Selectable<ReviewTable> & { counted: number })[],
): Html {
  if (reviews.length === 0) return empty('Nobody waits for a review.')
  const { table: tiers } = visit.parts.config.tiers
  return table(
    'Reviews',
    ['Organization', 'Tier', '#Counts', 'Since', ''],
    reviews.map(({ id, organization, plan, state, created, counted }) => {
      const name = tiers.find(tier => tier.plan === plan)?.name ?? plan
      const path = `${HERE}/reviews/${encodeURIComponent(id)}`
      const about = `${name} for ${organization}`
      return [
        link(organization),
        html`${name} ${state === 'refused' ? badge('refused', 'warn') : ''}`,
        usd(counted),
        time(created, false),
        html`<div class="actions">${button(visit, `${path}/grant`, 'Grant', { class: 'main', about })}
          ${state === 'open' ? button(visit, `${path}/refuse`, 'Refuse', { about }) : ''}</div>`,
      ]
    }),
  )
}

export function holdsTable(visit: PersonVisit, holds: readonly Selectable<HoldTable>[]): Html {
  if (holds.length === 0) return empty('No hold stands.')
  return table(
    'Holds',
    ['Organization', 'Why', 'Since', ''],
    holds.map(({ id, organization, why, note, created }) => [
      link(organization),
      html`${note} ${why === 'fell' ? badge('by itself', 'warn') : ''}`,
      time(created),
      liftButton(visit, { id, organization }),
    ]),
  )
}

export const liftButton = (visit: PersonVisit, { id, organization }: { id: string; organization: string }): Html =>
  button(visit, `${HERE}/holds/${encodeURIComponent(id)}/lift`, 'Lift', { about: `the hold on ${organization}` })

export const failing = (work: readonly Selectable<BillingWorkTable>[]): Html =>
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

export const METERED = ['Organization', 'Customer', 'Meter', 'Hour', '#Amount']
export const meteredCells = ({ organization, customer, event_name, hour, amount }: Selectable<MeteredTable>) => [
  link(organization),
  html`<code>${customer}</code>`,
  event_name,
  time(hour),
  String(amount),
]

export const notKnown = (visit: PersonVisit, unsure: readonly Selectable<MeteredTable>[]): Html =>
  html`<section><h2>Usage that Stripe may have</h2>
    <p>It was sent more than a day ago, and no answer came. Look at the meter of the customer at Stripe for this
      hour.</p>
    ${table(
      'Usage that Stripe may have',
      [...METERED, ''],
      unsure.map(event => [
        ...meteredCells(event),
        html`<div class="actions">${button(visit, `${HERE}/metered/${event.id}/done`, 'It is there', { about: event.id })}
          ${button(visit, `${HERE}/metered/${event.id}/again`, 'Send it', { about: event.id })}</div>`,
      ]),
    )}</section>`

export const notTaken = (visit: PersonVisit, refused: readonly Selectable<MeteredTable>[]): Html =>
  html`<section><h2>Usage that Stripe does not take</h2>
    <p>It is sent again every minute, until it is taken. Mend at Stripe what it says; it takes usage of the last 35
      days.</p>
    ${table(
      'Usage that Stripe does not take',
      [...METERED, 'What it said', ''],
      refused.map(event => [
        ...meteredCells(event),
        event.fault ?? '',
        event.tried === null
          ? confirm(
              visit,
              'Give it up',
              html`It is sent no more, and the meter bills nothing of it: ${String(event.amount)} of ${event.event_name} for
                ${event.organization}. The payments of ${event.organization} list it as given up, so that you can bill
                it in another way, or send it after all.`,
              `${HERE}/metered/${event.id}/drop`,
              'Give it up',
            )
          : 'An attempt had no answer: Stripe may have it',
      ]),
    )}</section>`

export const nobodys = (visit: PersonVisit, lost: readonly Payment[]): Html =>
  html`<section><h2>Payments of nobody</h2>
    <p>Say whose customer it is, and all of its payments count. A payment without a customer is written by hand,
      below.</p>
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

// ---- forms ----------------------------------------------------------------------------------------------------------

export const HAND_KINDS = [
  ['settled', 'Payment that arrived'],
  ['refund', 'Refund'],
  ['adjustment', 'Adjustment'],
] as const

/** @param fields and the button */
const card = (visit: PersonVisit, title: string, why: string, path: string, fields: Html): Html =>
  html`<section class="card narrow"><h2>${title}</h2>
    <p class="muted">${why}</p>${form(visit, path, fields)}</section>`

export function paymentForm(visit: PersonVisit): Html {
  const { form: sent, now } = visit
  const id = /^[0-9a-z]{20,40}$/.exec(sent.get('id') ?? '')?.[0] ?? newId(now)
  const text = (name: string, label: string, maxlength: number, more: { value?: string; hint?: string } = {}) =>
    input({ name, label, value: sent.get(name), required: true, ...more, more: { maxlength: String(maxlength) } })
  return card(
    visit,
    'A payment by hand',
    `What arrived by bank transfer and the like. Rows are never changed: an adjustment, also one below zero, corrects
      what was wrong.`,
    `${HERE}/payments`,
    html`<input type="hidden" name="id" value="${id}" />
      ${text('organization', 'Organization', 64)}
      ${select({ name: 'kind', label: 'What', options: HAND_KINDS, value: sent.get('kind') })}
      ${text('amount', 'Amount', 14)}
      ${text('currency', 'Currency', 3, { value: sent.get('currency') ?? 'USD' })}
      ${text('note', 'Reference', 200, { hint: 'Such as the number of the transfer; the customer sees it.' })}
      <button type="submit" class="main">Add</button>`,
  )
}

export function holdForm(visit: PersonVisit): Html {
  const { form: sent } = visit
  const [held, why] = [sent.get('held'), sent.get('why')]
  return card(
    visit,
    'Set a hold',
    'The organization keeps its plan, and does not rise.',
    `${HERE}/holds`,
    html`${input({
      ...{ name: 'held', label: 'Organization to hold', value: held, required: true },
      more: { maxlength: '64' },
    })}
      ${input({
        ...{ name: 'why', label: 'Why', value: why, required: true, hint: 'For staff.' },
        more: { maxlength: '200' },
      })}
      <button type="submit">Set it</button>`,
  )
}

export const usageForm = ({ now }: PersonVisit): Html =>
  html`<section class="card narrow"><h2>Usage for another biller</h2>
    <form method="get" action="${HERE}/usage.csv">
      ${input({
        ...{ name: 'day', label: 'Day (UTC)', type: 'date', required: true },
        value: new Date(now).toISOString().slice(0, 10),
      })}
      <button type="submit">By hour, organization and model (CSV)</button></form></section>`
