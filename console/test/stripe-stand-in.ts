/**
 * Stripe on loopback: takes what the console sends to it, and signs events as Stripe does. It knows idempotency keys,
 * and takes a meter event of one identifier once: a second one is 400, as Stripe answers.
 */
import { createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export const WEBHOOK_SECRET = 'whsec_test_0001'

export interface MeterEvent {
  identifier: string
  event_name: string
  timestamp: number
  customer: string
  value: number
}

export class StripeStandIn {
  /** What was asked for, as `POST /v1/customers`. */
  readonly asked: string[] = []
  /** Meter events that were taken, each identifier once. */
  readonly taken = new Map<string, MeterEvent>()
  readonly bodies: { path: string; body: URLSearchParams }[] = []
  /** Called with each meter event, before or after it is taken and before it is answered. `true` answers nothing. */
  before: (event: MeterEvent) => boolean | Promise<boolean> = () => false
  after: (event: MeterEvent) => boolean | Promise<boolean> = () => false
  /** Whether a thing of this path, as `/v1/customers`, is made; what is not is refused. */
  makes: (path: string) => boolean = () => true
  #events = 0
  readonly #kept = new Map<string, unknown>()
  readonly #server = createServer((request, response) => void this.#answer(request, response))

  static async start(): Promise<StripeStandIn> {
    const stripe = new StripeStandIn()
    stripe.#server.keepAliveTimeout = 120_000
    await new Promise<void>(resolve => stripe.#server.listen(0, '127.0.0.1', resolve))
    return stripe
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** The section of console.yaml. */
  yaml(more = ''): string {
    return `stripe: { key: sk_test_1, webhook_secrets: [${WEBHOOK_SECRET}], api: "${this.url}"${more} }\n`
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise(resolve => this.#server.close(resolve))
  }

  /** An event. @param more replaces its members */
  event(type: string, object: Record<string, unknown>, more: Record<string, unknown> = {}) {
    const id = `evt_${String(++this.#events).padStart(6, '0')}`
    const created = Math.floor(Date.now() / 1000)
    return {
      ...{ id, object: 'event', api_version: '2026-01-28', created, livemode: false, type },
      data: { object },
      ...more,
    }
  }

  /** A payment that has arrived. @param amount in cents */
  paid(id: string, amount: number, more: Record<string, unknown> = {}) {
    const intent = { id, object: 'payment_intent', amount, amount_received: amount, currency: 'usd', customer: null }
    return this.event('payment_intent.succeeded', { ...intent, status: 'succeeded', metadata: {}, ...more })
  }

  refunded(id: string, payment_intent: string, amount: number, status = 'succeeded', type = 'refund.created') {
    return this.event(type, {
      ...{ id, object: 'refund', amount, currency: 'usd', payment_intent, charge: 'ch_1', status },
    })
  }

  dispute(id: string, payment_intent: string, amount: number, status: string, type = 'charge.dispute.closed') {
    return this.event(type, {
      ...{ id, object: 'dispute', amount, currency: 'usd', payment_intent, charge: 'ch_1', status },
    })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece)
    const body = new URLSearchParams(Buffer.concat(pieces).toString())
    const path = request.url!
    this.asked.push(`${request.method} ${path}`)
    this.bodies.push({ path, body })
    const key = request.headers['idempotency-key'] as string | undefined
    const json = (status: number, answer: unknown) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
    }
    const refuse = (message: string) => json(400, { error: { type: 'invalid_request_error', message } })
    if (request.headers.authorization !== 'Bearer sk_test_1') return refuse('Invalid API Key provided')
    if (path === '/v1/billing/meter_events') {
      const event: MeterEvent = {
        identifier: body.get('identifier')!,
        event_name: body.get('event_name')!,
        timestamp: Number(body.get('timestamp')),
        customer: body.get('payload[stripe_customer_id]')!,
        value: Number(body.get('payload[value]')),
      }
      if (await this.before(event)) return
      if (event.event_name === 'no_such_meter') return refuse('No active meter found for event name no_such_meter')
      if (this.taken.has(event.identifier))
        return refuse(`An event already exists with identifier ${event.identifier}.`)
      this.taken.set(event.identifier, event)
      if (await this.after(event)) return
      return json(200, { object: 'billing.meter_event', ...event })
    }
    const made = (key !== undefined && this.#kept.get(key)) || this.#make(path, body)
    if (!made) return refuse(`Unrecognized request URL (POST: ${path})`)
    if (key !== undefined) this.#kept.set(key, made)
    json(200, made)
  }

  #make(path: string, body: URLSearchParams): unknown {
    const id = this.asked.length
    if (!this.makes(path)) return null
    if (path === '/v1/customers')
      return { id: `cus_${id}`, object: 'customer', metadata: { organization: body.get('metadata[organization]') } }
    if (path === '/v1/billing_portal/sessions')
      return { id: `bps_${id}`, url: `https://billing.example.com/p/${body.get('customer')}` }
    if (path === '/v1/checkout/sessions') return { id: `cs_${id}`, url: `https://checkout.example.com/c/${id}` }
    return null
  }
}

/** The header of a webhook. @param at Unix seconds */
export function signatureOf(
  body: string,
  { secret = WEBHOOK_SECRET, at = Math.floor(Date.now() / 1000) } = {},
): string {
  return `t=${at},v1=${createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')}`
}

/** Sends an event to a console. */
export async function deliver(
  console: string,
  event: unknown,
  sign: (body: string) => string = signatureOf,
): Promise<{ status: number; body: any }> {
  const body = JSON.stringify(event)
  const answer = await fetch(`${console}/webhooks/stripe`, {
    method: 'POST',
    headers: { 'content-type': 'application/json; charset=utf-8', 'stripe-signature': sign(body) },
    body,
  })
  const text = await answer.text()
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : text }
}
