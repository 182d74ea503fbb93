/**
 * Stripe: what its events mean, and the pages of it that customers are sent to. The official library checks signatures
 * and makes requests. Cards are seen by Stripe alone.
 */
import Stripe from 'stripe'
import type { Database, PaymentTable } from '../db/tables.ts'
import { mayTry } from '../people/attempts.ts'
import { type Answer, json, type MachineVisit, type Parts, Refusal } from '../web/visit.ts'
import type { StripeConfig } from './config.ts'
import { needsLook, settle } from './moves.ts'
import { bindCustomer, COUNTED_CURRENCY, customerOf, organizationOf, recordPayment } from './payments.ts'

/** A client of the library for a configuration. */
export function stripeOf({ key, api }: StripeConfig): Stripe {
  const { protocol, hostname, port } = new URL(api)
  return new Stripe(key, {
    protocol: protocol === 'http:' ? 'http' : 'https',
    host: hostname,
    ...(port !== '' && { port }),
    timeout: 15_000,
    maxNetworkRetries: 1,
    telemetry: false,
  })
}

// ---- events ---------------------------------------------------------------------------------------------------------

/** Seconds that a signature is good for: who records a request cannot send it again later. */
export const TOLERANCE_S = 300

/**
 * Takes an event. Whatever is signed and understood is 200, whatever it means: Stripe sends again what is not, and
 * turns a webhook off that refuses for days.
 */
export async function webhook({ parts, headers, body, now }: MachineVisit): Promise<Answer> {
  const { config, tell, db } = parts
  if (!config.stripe || config.stripe.webhook_secrets.length === 0)
    return json({ error: 'stripe.webhook_secrets is not configured' }, 404)
  const event = signedEvent(config.stripe, headers.get('stripe-signature') ?? '', body, now)
  if (event === null) {
    tell('webhook of Stripe: the signature is wrong or too old; it is refused')
    return json({ error: 'the signature is wrong or too old' }, 400)
  }
  const row = rowOf(event, now)
  if (row === null)
    return json({ received: true, counted: false, why: `${event.type} says nothing of money that arrived` })
  const { organization, fresh } = await takeRow(db, row, metadataOf(event), now)
  if (organization !== null) parts.later(() => settle(parts, organization))
  if (row.currency !== COUNTED_CURRENCY) {
    const why = `it is in ${row.currency.toUpperCase()}, and USD alone counts`
    if (fresh) tell(`webhook of Stripe: ${event.id} is kept and not counted: ${why}`)
    return json({ received: true, counted: false, why })
  }
  if (organization === null && fresh)
    tell(`webhook of Stripe: nobody knows whose ${event.id} is; staff sees it under Payments`)
  return json({ received: true, counted: organization !== null, repeated: !fresh })
}

/** With several secrets one can be replaced by another without a gap. */
function signedEvent(config: StripeConfig, signature: string, body: Buffer, now: number): Stripe.Event | null {
  for (const secret of config.webhook_secrets) {
    try {
      return Stripe.webhooks.constructEvent(body, signature, secret, TOLERANCE_S, undefined, now)
    } catch {
      // The next secret may be the right one.
    }
  }
  return null
}

/** Adds a row, and what it says of the customer, in one step. */
export async function takeRow(
  db: Database,
  row: PaymentTable,
  named: string | null,
  now: number,
): Promise<{ organization: string | null; fresh: boolean }> {
  const taken = await db.transaction().execute(async step => {
    // An id that the console does not have is somebody else's word, or that of another console.
    const known =
      named === null
        ? undefined
        : await step.selectFrom('organization').select('id').where('id', '=', named).executeTakeFirst()
    if (known && row.customer !== null) await bindCustomer(step, row.customer, known.id, now)
    // What names its organization belongs to it, whichever customer paid. Where a payment is about another one, whose
    // it is stays with that: it may be there later.
    const organization = known?.id ?? (await organizationOf(step, { ...row, organization: null }))
    const fresh = await recordPayment(step, {
      ...row,
      organization: row.kind === 'settled' ? organization : (known?.id ?? null),
    })
    // An event that comes again may do so because the console was killed after this step, before what is below.
    if (organization !== null) await needsLook(step, organization, now)
    return { organization, fresh }
  })
  if (taken.organization !== null) return taken
  // PostgreSQL does not show this step what another one commits meanwhile: the payment of a refund, or whose customer
  // it is. Either that one is there now, or it ends after this row is there, and counts it.
  const organization = await organizationOf(db, { ...row, organization: null })
  if (organization !== null) await needsLook(db, organization, now)
  return { ...taken, organization }
}

const idOf = (value: string | { id: string } | null | undefined): string | null =>
  typeof value === 'string' ? value : (value?.id ?? null)

/** The organization that checkouts of the console, or the operator, wrote on a payment. */
function metadataOf(event: Stripe.Event): string | null {
  const { metadata } = event.data.object as { metadata?: Record<string, string> | null }
  return event.type === 'payment_intent.succeeded' ? (metadata?.['organization'] ?? null) : null
}

/** What an event says of money that arrived; null for nothing. */
export function rowOf(event: Stripe.Event, now: number): PaymentTable | null {
  const common = {
    ...{ id: event.id, provider: 'stripe' as const, organization: null, customer: null, person: null, note: '' },
    ...{ time: event.created * 1000, received: now },
  }
  switch (event.type) {
    case 'payment_intent.succeeded': {
      const { id, amount_received, currency, customer } = event.data.object
      const settled = { kind: 'settled', state: '', payment: id, object: id, amount: amount_received } as const
      return { ...common, ...settled, currency, customer: idOf(customer) }
    }
    case 'refund.created':
    case 'refund.updated':
    case 'refund.failed':
    case 'charge.refund.updated': {
      const { id, amount, currency, payment_intent, charge, status } = event.data.object
      if (status === 'requires_action') return null
      const state = status === 'failed' || status === 'canceled' ? 'failed' : 'made'
      const payment = idOf(payment_intent) ?? idOf(charge)
      return { ...common, kind: 'refund', state, payment, object: id, amount, currency }
    }
    case 'charge.dispute.created':
    case 'charge.dispute.updated':
    case 'charge.dispute.closed':
    case 'charge.dispute.funds_withdrawn':
    case 'charge.dispute.funds_reinstated': {
      const { id, amount, currency, payment_intent, charge, status } = event.data.object
      const payment = idOf(payment_intent) ?? idOf(charge)
      return { ...common, kind: 'dispute', state: disputeState(status), payment, object: id, amount, currency }
    }
    default:
      return null
  }
}

/** A dispute that was closed without a loss is won, an inquiry that came to nothing, too. */
function disputeState(status: string): 'open' | 'won' | 'lost' {
  if (status === 'lost') return 'lost'
  return ['won', 'warning_closed', 'prevented'].includes(status) ? 'won' : 'open'
}

// ---- pages of Stripe ------------------------------------------------------------------------------------------------

/** The organization's customer at Stripe: it is made when it is first needed, once. */
export async function ensureCustomer(parts: Parts, stripe: Stripe, organization: string): Promise<string> {
  const { db, now } = parts
  const known = await customerOf(db, organization)
  if (known !== null) return known
  const of = await db.selectFrom('organization').select('name').where('id', '=', organization).executeTakeFirst()
  const made = await stripe.customers.create(
    { name: of?.name ?? organization, metadata: { organization } },
    { idempotencyKey: `sluice-customer-${organization}` },
  )
  await bindCustomer(db, made.id, organization, now())
  return (await customerOf(db, organization))!
}

/** Pages of Stripe that one organization may ask for: each makes something there. */
const ASKED = { most: 60, per: 3_600_000 }

/** Asks Stripe for a page for an organization. @throws Refusal when it does not give one */
export async function askStripe(
  parts: Parts,
  organization: string,
  ask: (stripe: Stripe) => Promise<string>,
): Promise<string> {
  const { db, config, now, tell } = parts
  if (!(await mayTry(db, `stripe ${organization}`, ASKED, now())))
    throw new Refusal(429, 'This was asked for often in the last hour. Try again later.')
  try {
    return await ask(stripeOf(config.stripe!))
  } catch (error) {
    if (!(error instanceof Stripe.errors.StripeError)) throw error
    tell(`Stripe gives no page to ${organization}: ${error.message}`)
    throw new Refusal(502, 'Stripe does not answer as it should. Try again later; nothing was paid.')
  }
}

/** The address of Stripe's portal, where a customer sees invoices and means of payment. It is good for some minutes. */
export async function portalLink(parts: Parts, stripe: Stripe, organization: string): Promise<string> {
  const customer = await ensureCustomer(parts, stripe, organization)
  const return_url = `${parts.config.url}/o/${organization}/billing`
  return (await stripe.billingPortal.sessions.create({ customer, return_url })).url
}

/** The address of a page of Stripe where an amount is paid. @param amount in cents. @param id of this wish */
export async function checkoutLink(
  parts: Parts,
  stripe: Stripe,
  { organization, amount, id }: { organization: string; amount: number; id: string },
): Promise<string> {
  const customer = await ensureCustomer(parts, stripe, organization)
  const back = `${parts.config.url}/o/${organization}/billing`
  const product_data = { name: `${parts.config.name}: credit` }
  const session = await stripe.checkout.sessions.create(
    {
      ...{ mode: 'payment', customer, client_reference_id: organization },
      line_items: [{ quantity: 1, price_data: { currency: COUNTED_CURRENCY, unit_amount: amount, product_data } }],
      payment_intent_data: { metadata: { organization } },
      ...{ success_url: `${back}?done=paid`, cancel_url: back },
    },
    { idempotencyKey: `sluice-checkout-${organization}-${id}` },
  )
  return session.url!
}
