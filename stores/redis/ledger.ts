/**
 * The ledger as the Redis stream `sluice:ledger`: one entry for each row, with the fields that docs/ledger.md lists.
 */
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
/** One script call appends at most this many rows, which takes Redis about a millisecond. */
export const LEDGER_GROUP = 200
/** One XRANGE reads at most this many rows. */
const PAGE = 1000

/** The key of the set of ids that an instance has sent (APPEND in scripts.ts). Its tag puts it in the stream's slot. */
export function sentKey(instance: string): string {
  return `{${STREAM}}:sent:${instance}`
}

export interface RedisLedgerOptions {
  client: RedisClient
  clock: Clock
  instance: string
  ledgerKeep: number | null
  /**
   * Resolves when Redis has taken the settlements of these requests. The journal forgets a row once it is delivered,
   * and recovery of its charges needs the row; so its charges must be delivered first.
   */
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
   * Appends rows; a row that is offered again is appended once.
   * @param instance the instance whose set of sent ids is used
   * @param anew whether the set of sent ids is replaced by the ids of this call. True for a living owner, which repeats
   *   only its last offer. False for the journal of a dead one, whose ids are added to the set.
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
 * Pages of matching rows, in the order in which they were appended (the order in which exchanges ended).
 * @param read called for each page with the number of rows read, including those that do not match
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

/** Number of all rows of the ledger. */
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

/** The member names of a LedgerRow, in the order of LEDGER_COLUMNS. */
const MEMBERS = LEDGER_COLUMNS.map(name => (name === 'cache_write' ? 'cacheWrite' : name))

/** The values of a row as texts, in the order of LEDGER_COLUMNS. A missing value is an empty text. */
export function toColumns(row: LedgerRow): string[] {
  return MEMBERS.map(member => toText(row[member]))
}

function toText(value: string | number | boolean | null | undefined): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? '1' : '0'
  return value === null || value === undefined ? '' : String(value)
}

/** The index of each of LEDGER_COLUMNS in the values of a row. */
const PLACES = LEDGER_COLUMNS.map(name => ROW_COLUMNS.indexOf(name))

/** The fields of a stream entry, as JSON, in the form that APPEND takes. */
function toFields(row: string): string {
  const values = JSON.parse(row) as RowValues
  const fields: string[] = []
  for (let i = 0; i < PLACES.length; i++) {
    const text = toText(values[PLACES[i]!])
    if (text !== '') fields.push(LEDGER_COLUMNS[i]!, text)
  }
  const json = JSON.stringify(fields)
  // cjson refuses a lone surrogate, which would fail the whole group.
  return json.includes('\\ud') ? JSON.stringify(fields.map(field => field.toWellFormed())) : json
}

function fromFields(fields: readonly string[]): LedgerRow {
  // `toFields` leaves out empty values. A missing text is '', and null is for the one number that may be missing.
  const row: Record<string, unknown> = { ttfb_ms: null }
  for (const name of LEDGER_COLUMNS) if (!NUMBERS.has(name)) row[name] = ''
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] as LedgerColumn
    row[name] = NUMBERS.has(name) ? Number(fields[i + 1]) : fields[i + 1]
  }
  const { cache_write, estimated, ...same } = row
  return { ...same, cacheWrite: cache_write, estimated: estimated === '1' } as LedgerRow
}
