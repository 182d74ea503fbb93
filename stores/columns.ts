/**
 * The ledger's columns, in the order of docs/ledger.md. These are the public names in the SQLite table, in the Redis
 * stream and in the output of `sluice usage`. A column keeps its name; new ones come at the end. A row of a release
 * that did not know a column has '' in it, or nothing.
 */
import type { LedgerRow } from '../core/ports/store.ts'

/** `count` is a number that a row may lack: null in tables, absent in a `LedgerRow`. */
const COLUMNS = {
  request_id: 'text',
  time: 'number',
  organization: 'text',
  key_id: 'text',
  surface: 'text',
  model: 'text',
  provider: 'text',
  input: 'number',
  cached: 'number',
  cache_write: 'number',
  output: 'number',
  reasoning: 'number',
  searches: 'number',
  estimated: 'flag',
  cost: 'number',
  price_book: 'text',
  billing: 'text',
  outcome: 'text',
  duration_ms: 'number',
  ttfb_ms: 'null',
  bytes_in: 'count',
  bytes_out: 'count',
  input_tokens: 'number',
  tags: 'text',
  provider_model: 'text',
  service_tier: 'text',
  rounds: 'count',
  provider_input: 'count',
  provider_cached: 'count',
  provider_cache_write: 'count',
  provider_cache_write_1h: 'count',
  provider_output: 'count',
  provider_reasoning: 'count',
  provider_cost: 'count',
  counted_input: 'count',
  counted_output: 'count',
  price_used: 'text',
  price_input: 'count',
  price_output: 'count',
  output_reserved: 'count',
  code: 'text',
  body_digest: 'text',
} as const satisfies Record<string, 'text' | 'number' | 'flag' | 'null' | 'count'>

export type LedgerColumn = keyof typeof COLUMNS
export const LEDGER_COLUMNS = Object.keys(COLUMNS) as LedgerColumn[]

const of = (...kinds: string[]): ReadonlySet<LedgerColumn> =>
  new Set(LEDGER_COLUMNS.filter(name => kinds.includes(COLUMNS[name])))
export const TEXT_COLUMNS = of('text')
export const NUMBER_COLUMNS = of('number', 'null', 'count')
/** Those that a `LedgerRow` lacks where there is no value. */
export const COUNT_COLUMNS = of('count')
/** Those that are null where there is no value. */
export const NULLABLE_COLUMNS = of('null', 'count')

/** The name of a column in a `LedgerRow` or a `UsageSum`. */
export const memberOf = <C extends string>(column: C) =>
  (column === 'cache_write' ? 'cacheWrite' : column) as C extends 'cache_write' ? 'cacheWrite' : C

/** The value of a column, undefined where the row has none. */
export const columnOf = (row: LedgerRow, column: LedgerColumn): string | number | boolean | null | undefined =>
  row[memberOf(column)]
