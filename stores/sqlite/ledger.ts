/** The ledger table as the ledger's sink, and its queries. */
import type { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import {
  type Ledger,
  type LedgerRow,
  RECENT_ROWS,
  type RowsPage,
  type RowsQuestion,
  type StatementFilter,
  type UsageFilter,
  type UsageSum,
} from '../../core/ports/store.ts'
import { appendAll } from '../../core/tools/append.ts'
import { COUNT_COLUMNS, LEDGER_COLUMNS, type LedgerColumn } from '../columns.ts'
import type { Entry, LedgerSink } from '../ledger.ts'
import { answers, MOST_LOOKED_AT, placeOf } from '../rows-page.ts'
import { divide, sumsOf } from '../usage.ts'
import { packEntries } from './tables.ts'
import { scanHours, scanTagged, summedSince } from './usage.ts'
import type { Writer } from './writer.ts'

type Filter = Parameters<Ledger['query']>[0]

/** At most this many rows are read before other work of the event loop runs. */
const PAGE = 2000
/** The same, where somebody asks for a page of them. */
const LOOK = 500

export class SqliteLedgerSink implements LedgerSink {
  #reader: DatabaseSync
  #writer: Writer

  constructor(reader: DatabaseSync, writer: Writer) {
    this.#reader = reader
    this.#writer = writer
  }

  write(entries: readonly Entry[]): Promise<void> {
    return this.#writer.write({ op: 'ledger', entries: packEntries(entries) })
  }

  async query(filter: Filter): Promise<LedgerRow[]> {
    const rows: LedgerRow[] = []
    for await (const page of scanLedger(this.#reader, filter)) for (const row of page) rows.push(row)
    return rows
  }
}

/** The SQL conditions of a filter, and the values of their placeholders. */
function conditions(filter: Filter): { wheres: string[]; values: (string | number)[] } {
  const wheres: string[] = []
  const values: (string | number)[] = []
  const where = (condition: string, value: string | number | undefined) => {
    if (value === undefined) return
    wheres.push(condition)
    values.push(value)
  }
  where('organization = ?', filter.org)
  where('key_id = ?', filter.key)
  where('model = ?', filter.model)
  where('time >= ?', filter.since)
  where('time < ?', filter.until)
  return { wheres, values }
}

/** How many rows match the filter; its limit is ignored. */
export function countLedger(db: DatabaseSync, filter: Filter): number {
  const { wheres, values } = conditions(filter)
  const text = `SELECT count(*) AS rows FROM ledger ${wheres.length ? `WHERE ${wheres.join(' AND ')}` : ''}`
  return db.prepare(text).get(...values)!['rows'] as number
}

/**
 * Pages of matching rows in ascending order of time. With a limit: one page with the latest rows.
 * @param size rows of a page
 */
export async function* scanLedger(db: DatabaseSync, filter: Filter, size = PAGE): AsyncGenerator<LedgerRow[]> {
  const { wheres, values } = conditions(filter)
  const select = `SELECT rowid, * FROM ledger`
  if (filter.limit !== undefined) {
    const text = `${select} ${wheres.length ? `WHERE ${wheres.join(' AND ')}` : ''} ORDER BY time DESC, rowid DESC LIMIT ?`
    yield db
      .prepare(text)
      .all(...values, filter.limit)
      .reverse()
      .map(toRow)
    return
  }
  // Each page is its own query, which begins after the last row of the page before (keyset pagination). So a long read
  // does not keep a snapshot open, and does not block the event loop.
  const next = db.prepare(
    `${select} WHERE ${[...wheres, '(time, rowid) > (?, ?)'].join(' AND ')} ORDER BY time, rowid LIMIT ${size}`,
  )
  // An object of each row, with its 45 names, takes twice as long as its values alone.
  next.setReturnArrays(true)
  const read = reader(next.columns().map(({ name }) => name))
  let [time, rowid] = [Number.MIN_SAFE_INTEGER, 0]
  for (;;) {
    const page = next.all(...values, time, rowid) as unknown as unknown[][]
    const rows = page.map(read)
    if (rows.length) yield rows
    if (rows.length < size) return
    ;({ time } = rows.at(-1)!)
    rowid = page.at(-1)![0] as number
    await setImmediate()
  }
}

/** Rows of an organization by the index of organization and time. A cursor has the time and the rowid of the last one. */
export async function rowsOf(db: DatabaseSync, question: RowsQuestion): Promise<RowsPage> {
  const { organization, since, until, after, limit } = question
  const next = db.prepare(
    `SELECT rowid, * FROM ledger INDEXED BY ledger_organization_time
     WHERE organization = ? AND time >= ? AND time < ? AND (time, rowid) < (?, ?) ORDER BY time DESC, rowid DESC LIMIT ?`,
  )
  let place = after === null ? [Number.MAX_SAFE_INTEGER, 0] : placeOf(after)
  const rows: LedgerRow[] = []
  for (let looked = 0; looked < MOST_LOOKED_AT; looked += LOOK) {
    const page = next.all(organization, since, until, ...place, LOOK)
    for (const columns of page) {
      place = [columns['time'] as number, columns['rowid'] as number]
      const row = toRow(columns)
      if (answers(row, question)) rows.push(row)
      if (rows.length === limit) return { rows, next: place.join('-') }
    }
    if (page.length < LOOK) return { rows, next: null }
    await setImmediate()
  }
  return { rows, next: place.join('-') }
}

/** The row of a request of an organization. */
export async function rowOf(db: DatabaseSync, organization: string, requestId: string): Promise<LedgerRow | null> {
  const found = db
    .prepare('SELECT * FROM ledger WHERE request_id = ? AND organization = ?')
    .get(requestId, organization)
  return found ? toRow(found) : null
}

/** Pages of the rows of an organization, as somebody asks for them. */
export const statementOf = (db: DatabaseSync, filter: StatementFilter): AsyncGenerator<LedgerRow[]> =>
  scanLedger(db, filter, LOOK)

/** The latest rows of an organization, the latest first, by the index of organization and time. */
export async function recentRows(db: DatabaseSync, org: string): Promise<LedgerRow[]> {
  const rows: LedgerRow[] = []
  for await (const page of scanLedger(db, { org, limit: RECENT_ROWS })) appendAll(rows, page)
  return rows.reverse()
}

/** Pages of sums of the matching rows, in any order. */
export async function* scanUsage(db: DatabaseSync, filter: UsageFilter): AsyncGenerator<UsageSum[]> {
  const { first, end, rest } = divide(filter, summedSince(db))
  for (const range of rest) for await (const page of scanLedger(db, { ...filter, ...range })) yield sumsOf(page, filter)
  if (first < end) yield* (filter.tag === undefined ? scanHours : scanTagged)(db, filter, first, end)
}

/**
 * Makes rows of values that stand in the order of these columns. Members are written one by one: copying an object and
 * deleting what a row lacks took eight times as long.
 */
function reader(names: readonly string[]): (values: readonly unknown[]) => LedgerRow {
  const known: ReadonlySet<string> = new Set(LEDGER_COLUMNS)
  // In the order of the table, which is that of rows as text.
  const same = names.flatMap((name, at) =>
    known.has(name) && name !== 'cache_write' && name !== 'estimated'
      ? [[name, at, COUNT_COLUMNS.has(name as LedgerColumn)] as const]
      : [],
  )
  const cacheWrite = names.indexOf('cache_write')
  const estimated = names.indexOf('estimated')
  return values => {
    const row: Record<string, unknown> = {}
    for (const [name, at, isCount] of same) {
      const value = values[at]
      if (!(isCount && value === null)) row[name] = value
    }
    row['cacheWrite'] = values[cacheWrite]
    row['estimated'] = values[estimated] === 1
    return row as unknown as LedgerRow
  }
}

/** The reader of the rows that were read last: nearly always those of the next, too. */
let lastReader: { names: string; read: ReturnType<typeof reader> } | undefined

/** @param columns a row as SQLite gives it */
export function toRow(columns: Record<string, unknown>): LedgerRow {
  const names = Object.keys(columns)
  const joined = names.join()
  if (lastReader?.names !== joined) lastReader = { names: joined, read: reader(names) }
  return lastReader.read(Object.values(columns))
}
