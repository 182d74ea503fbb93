/**
 * Payments that another biller reports: a program of the operator's own that knows of bank transfers, or another
 * provider. It signs as Stripe does, with a secret of its own, and its rows are the same.
 */
import Stripe from 'stripe'
import type { Database, PaymentTable } from '../db/tables.ts'
import { type Answer, json, type MachineVisit } from '../web/visit.ts'
import { settle } from './moves.ts'
import { COUNTED_CURRENCY } from './payments.ts'
import { TOLERANCE_S, takeRow } from './stripe.ts'

const KINDS = ['settled', 'refund', 'dispute', 'adjustment'] as const
const STATES: Record<(typeof KINDS)[number], readonly PaymentTable['state'][]> = {
  settled: [''],
  refund: ['made', 'failed'],
  dispute: ['open', 'won', 'lost'],
  adjustment: [''],
}
const ID = /^[A-Za-z0-9_.-]{1,64}$/
/** A million USD. */
const MOST = 100_000_000

/** POST /webhooks/billers/NAME with an event as docs/console-billing.md has it. */
export async function billerWebhook({ parts, params, headers, body, now }: MachineVisit): Promise<Answer> {
  const biller = parts.config.billers.find(({ name }) => name === params['name'])
  let event: unknown = null
  try {
    // Without a biller of this name the signature is checked all the same, so that time does not tell of names.
    const signature = headers.get('sluice-signature') ?? ''
    event = Stripe.webhooks.constructEvent(body, signature, biller?.secret ?? 'none', TOLERANCE_S, undefined, now)
  } catch {
    // It is refused below.
  }
  if (!biller || event === null) return json({ error: 'the signature is wrong or too old' }, 400)
  const row = rowOf(biller.name, event, now)
  if (typeof row === 'string') return json({ error: row }, 400)
  // What is refused is sent again; by then the console may have the organization.
  if (row.organization !== null && !(await isKnown(parts.db, row.organization)))
    return json({ error: `organization: the console has no ${row.organization}; open it first` }, 409)
  const { organization, fresh } = await takeRow(parts.db, row, row.organization, now)
  if (organization !== null) parts.later(() => settle(parts, organization))
  return json({ received: true, counted: organization !== null, repeated: !fresh })
}

const isKnown = async (db: Database, id: string): Promise<boolean> =>
  (await db.selectFrom('organization').select('id').where('id', '=', id).executeTakeFirst()) !== undefined

/** @returns the row, or what is wrong with the event */
function rowOf(name: string, event: unknown, now: number): PaymentTable | string {
  if (typeof event !== 'object' || event === null) return 'the body is no object'
  const {
    id,
    kind,
    state,
    organization,
    amount,
    currency,
    payment,
    object,
    time,
    note = '',
  } = event as Record<string, unknown>
  const isId = (value: unknown): value is string => typeof value === 'string' && ID.test(value)
  if (!isId(id)) return 'id: 1 to 64 letters, digits, _, . or -; it tells a repeated event'
  const known = KINDS.find(one => one === kind)
  if (!known) return `kind: one of ${KINDS.join(', ')}`
  const states = STATES[known]
  const given = states.length === 1 ? states[0]! : states.find(one => one === state)
  if (given === undefined) return `state: one of ${states.join(', ')}`
  const about = known === 'refund' || known === 'dispute'
  if (about ? !isId(payment) : !isId(organization))
    return about ? 'payment: the id of the payment that it is about' : 'organization: its id'
  if (about && !isId(object)) return `object: the id of the ${known}, the same in each of its events`
  if (!Number.isSafeInteger(amount) || Math.abs(amount as number) > MOST || amount === 0)
    return 'amount: a whole number of cents'
  if ((amount as number) < 0 && known !== 'adjustment') return 'amount: above 0; an adjustment alone may be below'
  if (currency !== COUNTED_CURRENCY) return 'currency: usd; other currencies do not count'
  if (time !== undefined && (!Number.isSafeInteger(time) || (time as number) < 0)) return 'time: Unix seconds'
  if (typeof note !== 'string' || note.length > 200) return 'note: text of at most 200 characters'
  const own = (value: unknown) => `${name}_${value}`
  return {
    ...{ id: own(id), provider: name, kind: known, state: given, customer: null, person: null, note },
    organization: about ? null : (organization as string),
    payment: about ? own(payment) : known === 'settled' ? own(id) : null,
    object: about ? own(object) : own(id),
    ...{ amount: amount as number, currency, time: time === undefined ? now : (time as number) * 1000, received: now },
  }
}
