/**
 * Balances of prepaid organizations: what counts of each payment, and of each adjustment, is what its credits at the
 * gateway come to. The first credit has the id of its event, later ones, which take back or give again, have a number
 * behind it; the gateway takes each once.
 */
import type { Organization } from '../gateway.ts'
import type { StaffGateway } from '../staff/gateway.ts'
import type { Parts } from '../web/visit.ts'
import { usdOf } from './config.ts'
import { COUNTED_CURRENCY, countOf, type Payment, partOf, paymentsOf } from './payments.ts'

/** Gives what is missing to the balance of an organization, and takes back what is too much. */
export async function giveCredits(parts: Parts, staff: StaffGateway, { id, billing }: Organization): Promise<void> {
  const { db, now } = parts
  const rows = await paymentsOf(db, id)
  const { parts: counting } = countOf(rows)
  const known = await db.selectFrom('credit').selectAll().where('organization', '=', id).execute()
  for (const [part, first] of firstOfEach(rows, counting)) {
    const given = known.filter(credit => credit.payment === part)
    const sum = given.reduce((all, { amount }) => all + amount, 0)
    // Whether a payment is a credit is decided when it is first seen: a change of `billing` does not reach back.
    const isCredit = given.length === 0 ? billing === 'prepaid' : given.some(({ amount }) => amount !== 0)
    const amount = (isCredit ? counting.get(part)! : 0) - sum
    if (amount === 0 && (given.length > 0 || isCredit)) continue
    const credit = {
      ...{ id: given.length === 0 ? first.id : `${first.id}.${given.length}`, organization: id, payment: part, amount },
      ...{ created: now(), given: amount === 0 ? now() : null },
    }
    await db
      .insertInto('credit')
      .values(credit)
      .onConflict(conflict => conflict.column('id').doNothing())
      .execute()
  }
  const due = await db
    .selectFrom('credit')
    .selectAll()
    .where('organization', '=', id)
    .where('given', 'is', null)
    .orderBy('created')
    .orderBy('id')
    .execute()
  for (const credit of due) {
    await staff.credit(id, { id: credit.id, amount_usd: usdOf(credit.amount), note: credit.payment })
    await db.updateTable('credit').set({ given: now() }).where('id', '=', credit.id).execute()
  }
}

/** The first row of each part of what counts. */
function firstOfEach(rows: readonly Payment[], counting: ReadonlyMap<string, number>): Map<string, Payment> {
  const first = new Map<string, Payment>()
  for (const row of rows) {
    const part = partOf(row)
    // The credit of a payment is known by the event that settled it, though a refund may have come before.
    const begins = row.kind !== 'dispute' && (row.kind !== 'refund' || row.payment === null)
    if (begins && row.currency === COUNTED_CURRENCY && counting.has(part) && !first.has(part)) first.set(part, row)
  }
  return first
}
