/** Billing: what was paid, the tier that it makes, and the way to pay. Webhooks of billers are here, too. */
import { html } from 'hono/html'
import type { Organization } from '../gateway.ts'
import { newId } from '../people/secrets.ts'
import { page } from '../views/layout.ts'
import { badge, dollars, empty, form, input, meter } from '../views/parts.ts'
import { type Answer, FormFault, get, type Html, type MemberVisit, type Page, post, see } from '../web/visit.ts'
import { billerWebhook } from './billers.ts'
import { centsOf, usdOf } from './config.ts'
import { openHold } from './moves.ts'
import { countOf, paymentsOf } from './payments.ts'
import { limitsOfPlans } from './plans.ts'
import { askStripe, checkoutLink, portalLink, webhook } from './stripe.ts'
import { nextTier } from './tiers.ts'
import { paymentsTable, tierTable, usd } from './views.ts'

export const billing: Page = {
  name: 'billing',
  menu: { label: 'Billing', path: '/billing', right: 'billing.see' },
  routes: [
    get.member('/billing', 'billing.see', show),
    get.member('/billing/portal', 'billing.change', portal),
    post.member('/billing/checkout', 'billing.change', checkout, show),
    post.machine('/webhooks/stripe', webhook),
    post.machine('/webhooks/billers/:name', billerWebhook),
  ],
}

const SHOWN = 50

async function show(visit: MemberVisit): Promise<Answer> {
  const { db, parts, gateway, organization: here, url } = visit
  const { tiers, stripe } = parts.config
  const [{ plan, billing: mode, balance, spend_usd }, rows, hold, plans] = await Promise.all([
    gateway.organization(),
    paymentsOf(db, here.id),
    openHold(db, here.id),
    limitsOfPlans(parts),
  ])
  const { counted } = countOf(rows)
  const from = Math.max(0, Math.floor(Number(url.searchParams.get('from') ?? 0)) || 0)
  const latest = rows.toReversed()
  const shown = latest.slice(from, from + SHOWN)
  return page(
    visit,
    'Billing',
    html`<div class="cards">
        ${figure('Paid', usd(counted), 'without refunds and lost disputes')}
        ${figure('Used this month', spend_usd ? dollars(spend_usd.month) : '–')}
        ${mode === 'prepaid' && balance ? left(balance) : ''}
      </div>
      <section><h2>Tier</h2>${tierNow(visit, plan, counted, hold !== undefined)}
        ${tierTable(tiers.table, plan, plans)}${tiers.open ? '' : CLOSED}</section>
      ${stripe && visit.may('billing.change') ? wayToPay(visit, mode) : ''}
      <section><h2>Payments</h2>
        ${shown.length === 0 ? empty('Nothing has been paid yet.') : paymentsTable(shown)}
        ${from + SHOWN < latest.length ? html`<p><a href="?from=${from + SHOWN}">Older</a></p>` : ''}
      </section>`,
  )
}

const figure = (title: string, value: string, words = ''): Html =>
  html`<div class="card"><h2>${title}</h2><span class="figure">${value}</span>
    <span class="muted">${words}</span></div>`

const left = ({ left_nano_usd, credited_nano_usd }: NonNullable<Organization['balance']>): Html =>
  figure('Left of the balance', dollars(left_nano_usd / 1e9), `of ${dollars(credited_nano_usd / 1e9)} in all`)

const CLOSED = html`<p class="muted">Tiers are not open at the moment: plans are given by invitation.</p>`

/** For the overview: the tier, and what is missing to the next; nothing where tiers are not open or it is none. */
export async function tierLine({ db, parts, organization: here }: MemberVisit, plan: string): Promise<Html | ''> {
  const { open, table } = parts.config.tiers
  const tier = table.find(one => one.plan === plan)
  if (!open || !tier) return ''
  const [rows, hold] = await Promise.all([paymentsOf(db, here.id), openHold(db, here.id)])
  const next = nextTier(table, plan, countOf(rows).counted)
  return html`<span class="muted">${tier.name}${hold || next === null ? '' : `, ${missingTo(next)}`}</span>
    <a href="/o/${here.id}/billing">Billing</a>`
}

const missingTo = ({ tier, missing }: NonNullable<ReturnType<typeof nextTier>>): string =>
  missing > 0
    ? `${usd(missing)} more to ${tier.name}`
    : `enough for ${tier.name}, which comes after a ${tier.activation}`

function tierNow({ parts }: MemberVisit, plan: string, counted: number, held: boolean): Html {
  const { open, table } = parts.config.tiers
  const tier = table.find(one => one.plan === plan)
  if (!tier)
    return html`<p>Your plan is <strong>${plan}</strong>, which is no tier: it does not change by what is paid.</p>`
  const next = nextTier(table, plan, counted)
  const name = html`<p>You are at <strong>${tier.name}</strong>.
    ${held ? badge('on hold', 'bad') : ''}</p>`
  if (!open) return name
  if (held)
    return html`${name}<p class="alert bad" role="status">A hold stands: the tier does not rise until we have lifted it.
      Write to us if you do not know why.</p>`
  if (next === null) return html`${name}<p>It is the highest.</p>`
  const { name: above, basis } = next.tier
  const done = Math.max(0, Math.min(counted, basis))
  return html`${name}<div class="card meters">${meter(above, done, basis, missingTo(next))}</div>`
}

function wayToPay(visit: MemberVisit, mode: string | null): Html {
  const { organization: here, parts, form: sent, now } = visit
  const { portal, checkout, checkout_least_usd } = parts.config.stripe!
  const path = `/o/${here.id}/billing`
  const pays = checkout === 'on' && mode === 'prepaid'
  if (portal === 'off' && !pays) return html``
  const amount = input({
    name: 'amount',
    label: 'Amount, USD',
    value: sent.get('amount') ?? usdOf(checkout_least_usd),
    required: true,
    hint: 'It is added to the balance when it has arrived.',
    more: { inputmode: 'decimal', maxlength: '12' },
  })
  const paying = html`<input type="hidden" name="id" value="${sent.get('id') ?? newId(now)}" />${amount}
    <button type="submit" class="main">Go on to pay</button>`
  const toPortal = html`<p><a href="${path}/portal">Invoices, receipts and means of payment</a>
    <span class="muted">at Stripe; this console sees no card.</span></p>`
  return html`<section><h2>Pay</h2>
    ${pays ? html`<div class="card narrow">${form(visit, `${path}/checkout`, paying)}</div>` : ''}
    ${portal === 'on' ? toPortal : ''}</section>`
}

async function portal(visit: MemberVisit): Promise<Answer> {
  const { parts, organization: here } = visit
  const { stripe } = parts.config
  if (stripe?.portal !== 'on')
    return page(visit, 'Invoices', empty('Invoices are not shown here. Ask who runs this service for them.'))
  return see(await askStripe(parts, here.id, stripe => portalLink(parts, stripe, here.id)))
}

/** A form may not lead to another site (`form-action`), so that the way on is a link. */
async function checkout(visit: MemberVisit): Promise<Answer> {
  const { parts, organization: here, gateway, form: sent } = visit
  const { stripe } = parts.config
  if (stripe?.checkout !== 'on') throw new FormFault('paying here is not set up')
  const amount = centsOf(sent.get('amount') ?? '')
  const [least, most] = [stripe.checkout_least_usd, stripe.checkout_most_usd]
  if (amount === null || amount < least || amount > most)
    throw new FormFault(`write an amount from ${usdOf(least)} to ${usdOf(most)} USD, such as 25.00`)
  if ((await gateway.organization()).billing !== 'prepaid')
    throw new FormFault('this organization has no balance: it pays its invoices')
  const id = /^[0-9a-z]{20,40}$/.exec(sent.get('id') ?? '')?.[0] ?? newId(visit.now)
  const wish = { organization: here.id, amount, id }
  const link = await askStripe(parts, here.id, stripe => checkoutLink(parts, stripe, wish))
  return page(
    visit,
    'Pay',
    html`<div class="card narrow"><p>You pay ${usd(amount)} for ${here.name} on a page of Stripe.</p>
      <p><a class="button main" href="${link}">Go to Stripe</a> <a href="/o/${here.id}/billing">Back</a></p></div>`,
  )
}
