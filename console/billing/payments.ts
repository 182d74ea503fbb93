/**
 * Money that arrived. The rows are what happened, in any order and each once; what counts is worked out of all of them,
 * so that a refund may come before its payment. There is no data of cards here.
 */
import type { Selectable } from 'kysely'
import type { Database, PaymentTable } from '../db/tables.ts'

export type Payment = Selectable<PaymentTable>

export const COUNTED_CURRENCY = 'usd'

/** Adds a row. @returns false when there is one of this event */
export async function recordPayment(db: Database, row: PaymentTable): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await db
    .insertInto('payment')
    .values(row)
    .onConflict(conflict => conflict.column('id').doNothing())
    .executeTakeFirst()
  return numInsertedOrUpdatedRows === 1n
}

/** Says which organization a customer of the provider is; the first word stays. */
export async function bindCustomer(db: Database, customer: string, organization: string, now: number): Promise<void> {
  await db
    .insertInto('customer')
    .values({ customer, organization, created: now })
    .onConflict(conflict => conflict.column('customer').doNothing())
    .execute()
}

/** The organization's customer at the provider: the latest of several. */
export async function customerOf(db: Database, organization: string): Promise<string | null> {
  const found = await db
    .selectFrom('customer')
    .select('customer')
    .where('organization', '=', organization)
    .orderBy('created', 'desc')
    .orderBy('customer')
    .limit(1)
    .executeTakeFirst()
  return found?.customer ?? null
}

/** The organization of a row: its own, that of its customer, or that of the payment that it is about. */
export async function organizationOf(
  db: Database,
  { organization, customer, payment }: Pick<Payment, 'organization' | 'customer' | 'payment'>,
): Promise<string | null> {
  if (organization !== null) return organization
  if (customer !== null) {
    const bound = await db
      .selectFrom('customer')
      .select('organization')
      .where('customer', '=', customer)
      .executeTakeFirst()
    if (bound) return bound.organization
  }
  if (payment === null) return null
  const of = await db
    .selectFrom('payment')
    .select(['organization', 'customer'])
    .where('payment', '=', payment)
    .where('kind', '=', 'settled')
    .executeTakeFirst()
  return of ? organizationOf(db, { ...of, payment: null }) : null
}

/** At most this many values in one question to the database. */
const TOGETHER = 500

/** All rows of an organization. */
export async function paymentsOf(db: Database, organization: string): Promise<Payment[]> {
  const all = db.selectFrom('payment').selectAll()
  const rows = new Map<string, Payment>()
  const add = (found: readonly Payment[]) => {
    for (const row of found) rows.set(row.id, row)
  }
  add(await all.where('organization', '=', organization).execute())
  const customers = await db
    .selectFrom('customer')
    .select('customer')
    .where('organization', '=', organization)
    .execute()
  // Those that came before it was known whose customer it is. What has an organization of its own is left out here and
  // not by the database, which would take the index of organizations, where most rows of others are alike.
  for (const some of inParts(customers.map(({ customer }) => customer)))
    add((await all.where('customer', 'in', some).execute()).filter(row => row.organization === null))
  const settled = [...rows.values()].flatMap(({ kind, payment }) =>
    kind === 'settled' && payment !== null ? [payment] : [],
  )
  // A refund or a dispute names its payment alone.
  for (const some of inParts(settled))
    add(
      (await all.where('payment', 'in', some).execute()).filter(
        row => row.organization === null && row.customer === null,
      ),
    )
  return [...rows.values()].sort((a, b) => a.time - b.time || (a.id < b.id ? -1 : 1))
}

function inParts(values: readonly string[]): string[][] {
  return Array.from({ length: Math.ceil(values.length / TOGETHER) }, (_, i) =>
    values.slice(i * TOGETHER, (i + 1) * TOGETHER),
  )
}

export interface Counted {
  /** What arrived in all, in cents. */
  arrived: number
  /** What counts of it: without refunds and lost disputes. */
  counted: number
  /**
   * What each part of it counts: by its payment, which never counts below nothing, else by its own id. Their sum is
   * what counts.
   */
  parts: Map<string, number>
}

/** The part of what counts to which a row belongs. */
export const partOf = ({ payment, object }: Payment): string => payment ?? object

/** Of two states that came in one second, the later in this list is the end of it. */
const ORDER: readonly Payment['state'][] = ['', 'open', 'made', 'won', 'failed', 'lost']
const TAKEN: readonly Payment['state'][] = ['made', 'lost']

/** What counts of rows: the same in whatever order they came, and however often. */
export function countOf(rows: readonly Payment[]): Counted {
  const objects = new Map<string, Payment>()
  for (const row of rows) {
    if (row.currency !== COUNTED_CURRENCY) continue
    const name = `${row.kind} ${row.object}`
    const known = objects.get(name)
    if (!known || later(row, known)) objects.set(name, row)
  }
  const parts = new Map<string, number>()
  let arrived = 0
  for (const row of objects.values()) {
    const { kind, amount } = row
    if (kind !== 'settled' && kind !== 'adjustment') continue
    parts.set(partOf(row), (parts.get(partOf(row)) ?? 0) + amount)
    arrived += Math.max(0, amount)
  }
  // Of a payment that is not there yet, nothing is taken: its refund came first.
  const settled = new Set(parts.keys())
  for (const row of objects.values()) {
    const { kind, state, payment, amount } = row
    if ((kind !== 'refund' && kind !== 'dispute') || !TAKEN.includes(state)) continue
    if (payment === null) parts.set(partOf(row), -amount)
    // A refund and a dispute of one payment may ask back more than it was; they take nothing from other payments.
    else if (settled.has(payment)) parts.set(payment, Math.max(0, parts.get(payment)! - amount))
  }
  return { arrived, counted: [...parts.values()].reduce((sum, part) => sum + part, 0), parts }
}

function later(a: Payment, b: Payment): boolean {
  if (a.time !== b.time) return a.time > b.time
  const [x, y] = [ORDER.indexOf(a.state), ORDER.indexOf(b.state)]
  if (x !== y) return x > y
  return a.id > b.id
}
