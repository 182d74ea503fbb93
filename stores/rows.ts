/**
 * A ledger row as JSON text, as the journal stores it and the sink takes it: one array of values in a fixed order,
 * followed by the charges of the exchange. Leaving out the column names halves the time to write, copy and parse a row.
 *
 * The order of the values is part of the journal's format. A new order needs a new journal version (journal.ts).
 */
import type { LedgerIntent, LedgerOutcome } from '../core/ports/store.ts'
import { type LedgerColumn, TEXT_COLUMNS } from './columns.ts'
import type { Charge } from './journal.ts'

/** The columns of the journal's `i` record (intent): the values that are known before dispatch. */
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

/**
 * The columns of the journal's `o` record (whole row): the values of the intent, then those of the outcome. Behind
 * these columns the record has four values for each charge: cell, period, index, amount.
 */
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
  'tags',
  'provider_model',
  'service_tier',
  'rounds',
  'provider_input',
  'provider_cached',
  'provider_cache_write',
  'provider_cache_write_1h',
  'provider_output',
  'provider_reasoning',
  'provider_cost',
  'counted_input',
  'counted_output',
  'price_used',
  'price_input',
  'price_output',
  'output_reserved',
  'code',
  'body_digest',
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

/**
 * The JSON text of the whole row.
 * @param intent the text that `intentJson` made; its values are not parsed again
 */
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
    row.tags ?? '',
    row.provider_model ?? '',
    row.service_tier ?? '',
    row.rounds ?? null,
    row.provider_input ?? null,
    row.provider_cached ?? null,
    row.provider_cache_write ?? null,
    row.provider_cache_write_1h ?? null,
    row.provider_output ?? null,
    row.provider_reasoning ?? null,
    row.provider_cost ?? null,
    row.counted_input ?? null,
    row.counted_output ?? null,
    row.price_used ?? '',
    row.price_input ?? null,
    row.price_output ?? null,
    row.output_reserved ?? null,
    row.code ?? '',
    row.body_digest ?? '',
  ]
  if (charges) for (const [cell, period, index, amount] of charges) values.push(cell, period, index, amount)
  return intent.slice(0, -1) + ',' + JSON.stringify(values).slice(1)
}

/** How many columns a row had in earlier versions of the journal, with its charges behind them. */
const COLUMNS: Readonly<Record<number, number>> = { 2: 23, 3: 41, 4: ROW_COLUMNS.length }

/** A row of one version of the journal as the next one has it: what that added is empty. */
export function rowOfNext(version: number, json: string): string {
  const [from, to] = [COLUMNS[version]!, COLUMNS[version + 1]!]
  const added: RowValue[] = ROW_COLUMNS.slice(from, to).map(name => (TEXT_COLUMNS.has(name) ? '' : null))
  return JSON.stringify((JSON.parse(json) as RowValues).toSpliced(from, 0, ...added))
}

/** The charges behind the columns of a parsed row. */
export function chargesOf(values: RowValues): Charge[] {
  const charges: Charge[] = []
  for (let at = ROW_COLUMNS.length; at < values.length; at += 4)
    charges.push(values.slice(at, at + 4) as unknown as Charge)
  return charges
}
