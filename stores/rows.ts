/**
 * A ledger row as text, in the journal and on its way to the sink: one array of values in a fixed order, and behind them what the exchange was charged. Values
 * without their names take half the time to write, to copy and to read.
 *
 * The order is the journal's format: it changes with the version in the journal's head (`stores/journal.ts`).
 */
import type { LedgerIntent, LedgerOutcome } from '../core/store.ts'
import type { LedgerColumn } from './columns.ts'
import type { Charge } from './journal.ts'

/** The journal's `i` record: what is known before dispatch. */
const INTENT_COLUMNS = [
  'request_id',
  'time',
  'organization',
  'key_id',
  'surface',
  'model',
  'price_book',
  'billing',
  'input_tokens',
] as const satisfies readonly LedgerColumn[]

/** The journal's `o` record: the values of the intent, those of the outcome, then four for each charge: cell, period, index, amount. */
export const ROW_COLUMNS = [
  ...INTENT_COLUMNS,
  'provider',
  'outcome',
  'input',
  'cached',
  'cache_write',
  'output',
  'reasoning',
  'searches',
  'estimated',
  'cost',
  'duration_ms',
  'ttfb_ms',
  'bytes_in',
  'bytes_out',
] as const satisfies readonly LedgerColumn[]

export type RowValue = string | number | null
export type RowValues = [request_id: string, time: number, organization: string, ...rest: RowValue[]]

export function intentJson(row: LedgerIntent): string {
  return JSON.stringify([
    row.request_id,
    row.time,
    row.organization,
    row.key_id,
    row.surface,
    row.model,
    row.price_book,
    row.billing,
    row.input_tokens,
  ])
}

/** The whole row, from its intent's text. */
export function rowJson(intent: string, row: LedgerOutcome, charges: readonly Charge[] | undefined): string {
  const { usage } = row
  const values: RowValue[] = [
    row.provider,
    row.outcome,
    usage.input,
    usage.cached,
    usage.cacheWrite,
    usage.output,
    usage.reasoning,
    usage.searches,
    usage.estimated ? 1 : 0,
    row.cost,
    row.duration_ms,
    row.ttfb_ms,
    row.bytes_in ?? null,
    row.bytes_out ?? null,
  ]
  if (charges) for (const [cell, period, index, amount] of charges) values.push(cell, period, index, amount)
  return intent.slice(0, -1) + ',' + JSON.stringify(values).slice(1)
}

export function chargesOf(values: RowValues): Charge[] {
  const charges: Charge[] = []
  for (let at = ROW_COLUMNS.length; at < values.length; at += 4)
    charges.push(values.slice(at, at + 4) as unknown as Charge)
  return charges
}
