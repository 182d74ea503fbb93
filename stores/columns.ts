/**
 * The ledger's columns, in the order of docs/ledger.md. These are the public names in the SQLite table, in the Redis
 * stream and in the output of `sluice usage`.
 */
export const LEDGER_COLUMNS = [
  'request_id',
  'time',
  'organization',
  'key_id',
  'surface',
  'model',
  'provider',
  'input',
  'cached',
  'cache_write',
  'output',
  'reasoning',
  'searches',
  'estimated',
  'cost',
  'price_book',
  'billing',
  'outcome',
  'duration_ms',
  'ttfb_ms',
  'bytes_in',
  'bytes_out',
  'input_tokens',
  'tags',
] as const

export type LedgerColumn = (typeof LEDGER_COLUMNS)[number]
