/** Pages of single rows, the same for both engines. */
import type { LedgerRow, RowsQuestion } from '../core/ports/store.ts'

/** One page looks at no more rows than this, so it may have fewer than were asked for, and a cursor to go on with. */
export const MOST_LOOKED_AT = 5000

/** Whether a row of the organization is asked for. */
export function answers(row: LedgerRow, { key, outcome, code, since, until }: RowsQuestion): boolean {
  return (
    row.time >= since &&
    row.time < until &&
    (key === undefined || row.key_id === key) &&
    (outcome === undefined || row.outcome === outcome) &&
    (code === undefined || row.code === code)
  )
}

/** The two numbers of a cursor, as `RowsPage` has it. */
export const placeOf = (cursor: string): [number, number] => cursor.split('-').map(Number) as [number, number]
