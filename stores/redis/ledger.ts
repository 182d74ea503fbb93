/** The ledger as a stream: `sluice:ledger`, one entry per row, fields as docs/ledger.md lists them. */
import type { Clock } from '../../core/clock.ts'
import type { Ledger, LedgerRow } from '../../core/store.ts'
import { LEDGER_COLUMNS, type LedgerColumn } from '../columns.ts'
import type { Entry, LedgerSink } from '../ledger.ts'
import { ROW_COLUMNS, type RowValues } from '../rows.ts'
import { script } from './call.ts'
import type { RedisClient } from './client.ts'
import { APPEND } from './scripts.ts'

type Filter = Parameters<Ledger['query']>[0]

const APPEND_SCRIPT = script(APPEND)
export const STREAM = 'sluice:ledger'
/** Rows per script call: about a millisecond of Redis's time. */
export const LEDGER_GROUP = 200
const PAGE = 1000

/** Key that lives in the stream's cluster slot. */
export function sentKey(instance: string): string {
  return `{${STREAM}}:sent:${instance}`
}

export interface RedisLedgerOptions {
  client: RedisClient
  clock: Clock
  instance: string
  ledgerKeep: number | null
  /** Resolves when the settlements of these requests are taken: a row must not be forgotten before its charges are. */
  settled: (ids: readonly string[]) => Promise<void>
}

export class RedisLedgerSink implements LedgerSink {
  #options: RedisLedgerOptions

  constructor(options: RedisLedgerOptions) {
    this.#options = options
  }

  async write(entries: readonly Entry[]): Promise<void> {
    await this.#options.settled(entries.map(entry => entry.id))
    await this.append(entries, this.#options.instance, true)
  }

  /**
   * Appends rows, each once. `anew`: the offers of a living owner come in order, so the set of sent ids holds the last offer only; those of a dead one's journal are added.
   */
  async append(entries: readonly Entry[], instance: string, anew: boolean): Promise<void> {
    const { client, clock, ledgerKeep } = this.#options
    const minId = ledgerKeep === null ? '' : String(clock.now() - ledgerKeep)
    const rows: string[] = []
    for (const { kind, json } of entries) if (kind === 'o') rows.push(toFields(json))
    if (rows.length === 0) return
    const args = [minId, anew ? '1' : '0', '[' + rows.join() + ']']
    await client.script(APPEND_SCRIPT, [STREAM, sentKey(instance)], args)
  }

  async query(filter: Filter): Promise<LedgerRow[]> {
    const rows: LedgerRow[] = []
    for await (const page of scanStream(this.#options.client, filter)) for (const row of page) rows.push(row)
    rows.sort((a, b) => a.time - b.time)
    return filter.limit === undefined ? rows : rows.slice(-filter.limit || rows.length)
  }
}

/**
 * Pages of matching rows in the order they were appended (the order in which exchanges ended).
 * @param read called with each page's count, rows that do not match included
 */
export async function* scanStream(
  client: RedisClient,
  filter: Filter,
  read?: (rows: number) => void,
): AsyncGenerator<LedgerRow[]> {
  let from = '-'
  for (;;) {
    const page = await client.call(client.redis.xrange(STREAM, from, '+', 'COUNT', PAGE))
    const rows = page.map(([, fields]) => fromFields(fields)).filter(row => matches(row, filter))
    read?.(page.length)
    if (rows.length) yield rows
    if (page.length < PAGE) return
    from = '(' + page.at(-1)![0]
  }
}

/** Rows in all, whatever the filter. */
export async function countStream(client: RedisClient): Promise<number> {
  return client.call(client.redis.xlen(STREAM))
}

function matches(row: LedgerRow, { org, key, model, since, until }: Filter): boolean {
  return (
    (org === undefined || row.organization === org) &&
    (key === undefined || row.key_id === key) &&
    (model === undefined || row.model === model) &&
    (since === undefined || row.time >= since) &&
    (until === undefined || row.time < until)
  )
}

const NUMBERS = new Set<LedgerColumn>([
  'time',
  'input',
  'cached',
  'cache_write',
  'output',
  'reasoning',
  'searches',
  'cost',
  'duration_ms',
  'ttfb_ms',
  'bytes_in',
  'bytes_out',
  'input_tokens',
])

/** Members of a row in the order of LEDGER_COLUMNS. */
const MEMBERS = LEDGER_COLUMNS.map(name => (name === 'cache_write' ? 'cacheWrite' : name))

/** The values of a row in the order of LEDGER_COLUMNS; what is missing is empty. */
export function toColumns(row: LedgerRow): string[] {
  return MEMBERS.map(member => toText(row[member]))
}

function toText(value: string | number | boolean | null | undefined): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? '1' : '0'
  return value === null || value === undefined ? '' : String(value)
}

/** Where the values of a row stand, in the order of LEDGER_COLUMNS. */
const PLACES = LEDGER_COLUMNS.map(name => ROW_COLUMNS.indexOf(name))

/** A stream entry's fields as APPEND takes them. */
function toFields(row: string): string {
  const values = JSON.parse(row) as RowValues
  const fields: string[] = []
  for (let i = 0; i < PLACES.length; i++) {
    const text = toText(values[PLACES[i]!])
    if (text !== '') fields.push(LEDGER_COLUMNS[i]!, text)
  }
  const json = JSON.stringify(fields)
  // cjson refuses half a surrogate pair, and with it the whole group.
  return json.includes('\\ud') ? JSON.stringify(fields.map(field => field.toWellFormed())) : json
}

function fromFields(fields: readonly string[]): LedgerRow {
  // An empty value is left out of the entry: '' for text, null for the one number that may be missing.
  const row: Record<string, unknown> = { ttfb_ms: null }
  for (const name of LEDGER_COLUMNS) if (!NUMBERS.has(name)) row[name] = ''
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as LedgerColumn
    row[name] = NUMBERS.has(name) ? Number(fields[i + 1]) : fields[i + 1]
  }
  const { cache_write, estimated, ...same } = row
  return { ...same, cacheWrite: cache_write, estimated: estimated === '1' } as LedgerRow
}
