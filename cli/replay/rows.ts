/**
 * Rows of a ledger in the order in which requests came. Those of one millisecond come in the order of their ids, so that
 * the order is the same whatever the ledger was read from.
 *
 * A table of SQLite has an index of the time. What comes in another order (a stream of Redis, files) is first written
 * into a temporary database: in memory there is one page.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { DatabaseSync } from 'node:sqlite'
import { setImmediate } from 'node:timers/promises'
import type { LedgerRow } from '../../core/ports/store.ts'
import { LEDGER_COLUMNS } from '../../stores/columns.ts'
import { fromColumns } from '../../stores/redis/drained.ts'
import { fromFields } from '../../stores/redis/ledger.ts'
import { cellsOf } from '../csv.ts'
import type { Progress } from '../progress.ts'
import { Failure } from '../terminal.ts'
import { openLedger } from '../usage-report.ts'

/** Where rows are: the URL of a store, or the path of a file or folder that was made of one. */
export type RowsFrom = { store: string } | { path: string }

/** Rows whose time is at least `since` and below `until`, Unix ms. */
export interface Span {
  since: number
  until: number
}

/** A row was written when its exchange ended, by a clock that may be this far behind that of the gateway, ms. */
const CLOCKS_APART_MS = 3_600_000
const PAGE = 2000

/** @throws StoreUnavailable, or Failure where a file cannot be read */
export function orderedRows(from: RowsFrom, span: Span, progress: Progress): AsyncGenerator<LedgerRow[]> {
  if ('path' in from) return spooled(readFiles(from.path, span), progress)
  const pages = openLedger(from.store, { ...span, endedSince: span.since - CLOCKS_APART_MS }, progress)
  return from.store.startsWith('sqlite:') ? byId(pages) : spooled(pages, progress)
}

/** Puts rows of one millisecond in order. @param pages in order of time */
async function* byId(pages: AsyncIterable<LedgerRow[]>): AsyncGenerator<LedgerRow[]> {
  let held: LedgerRow[] = []
  for await (const page of pages) {
    const rows = held.concat(page)
    const last = rows.at(-1)!.time
    const end = rows.findIndex(({ time }) => time === last)
    held = rows.splice(end)
    if (rows.length > 0) yield rows.sort(inOrder)
  }
  if (held.length > 0) yield held.sort(inOrder)
}

const inOrder = (a: LedgerRow, b: LedgerRow): number =>
  a.time - b.time || (a.request_id < b.request_id ? -1 : a.request_id > b.request_id ? 1 : 0)

/** Puts rows in order with a temporary database. A row that comes twice is taken once. */
async function* spooled(pages: AsyncIterable<LedgerRow[]>, progress: Progress): AsyncGenerator<LedgerRow[]> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-replay-'))
  const db = new DatabaseSync(path.join(folder, 'rows.db'))
  try {
    db.exec(`PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
      CREATE TABLE rows (time REAL, id TEXT, row TEXT, PRIMARY KEY (time, id)) WITHOUT ROWID`)
    const add = db.prepare('INSERT OR IGNORE INTO rows VALUES (?, ?, ?)')
    let read = 0
    for await (const page of pages) {
      db.exec('BEGIN')
      for (const row of page) add.run(row.time, row.request_id, JSON.stringify(row))
      db.exec('COMMIT')
      read += page.length
      progress.show(read, undefined, 'sorting')
    }
    const next = db.prepare(`SELECT * FROM rows WHERE (time, id) > (?, ?) ORDER BY time, id LIMIT ${PAGE}`)
    let [time, id] = [Number.MIN_SAFE_INTEGER, '']
    for (;;) {
      const page = next.all(time, id)
      if (page.length > 0) yield page.map(({ row }) => JSON.parse(row as string) as LedgerRow)
      if (page.length < PAGE) return
      ;({ time, id } = page.at(-1) as { time: number; id: string })
      await setImmediate()
    }
  } finally {
    db.close()
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/** The files by how their names end; `sluice ledger ship` writes the first, and `sluice usage --rows` the others. */
const FORMS: Readonly<Record<string, () => (line: string) => LedgerRow | null>> = {
  '.ndjson': jsonLines,
  '.jsonl': jsonLines,
  '.json': jsonLines,
  '.csv': csvLines,
}

async function* readFiles(named: string, { since, until }: Span): AsyncGenerator<LedgerRow[]> {
  let page: LedgerRow[] = []
  for (const file of filesOf(named)) {
    const read = FORMS[path.extname(file)]!()
    let line = 0
    const input = (await opened(file)).createReadStream()
    for await (const text of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      line++
      let row: LedgerRow | null
      try {
        row = read(text)
      } catch (error) {
        throw new Failure(`${file}:${line}: ${(error as Error).message}`)
      }
      if (!row || row.time < since || row.time >= until) continue
      page.push(row)
      if (page.length < PAGE) continue
      yield page
      page = []
    }
  }
  if (page.length > 0) yield page
}

async function opened(file: string): Promise<fs.promises.FileHandle> {
  try {
    return await fs.promises.open(file)
  } catch (error) {
    throw new Failure(`cannot read ${file}: ${(error as Error).message}`)
  }
}

function filesOf(named: string): string[] {
  const known = Object.keys(FORMS).join(', ')
  const found = fs.statSync(named, { throwIfNoEntry: false })
  if (!found) throw new Failure(`there is no ${named}; --rows names a file (${known}), or a folder of such files`)
  if (!found.isDirectory()) {
    if (Object.hasOwn(FORMS, path.extname(named))) return [named]
    throw new Failure(`the name of ${named} does not say what it holds; it ends with ${known}`)
  }
  const names = fs.readdirSync(named).filter(name => /\.(ndjson|jsonl|csv)$/.test(name))
  if (names.length === 0) throw new Failure(`${named} has no files of rows (.ndjson, .jsonl, .csv)`)
  return names.sort().map(name => path.join(named, name))
}

/** One object a line; of a JSON array, one element a line. */
function jsonLines() {
  return function read(line: string): LedgerRow | null {
    const text = line.trim().replace(/,$/, '')
    if (text === '' || text === '[' || text === ']') return null
    return checked(fromColumns(JSON.parse(text)))
  }
}

function csvLines() {
  let names: string[] | undefined
  return function read(line: string): LedgerRow | null {
    if (line === '') return null
    const cells = cellsOf(line)
    if (!cells) throw new Error('a quote is not closed')
    if (!names) {
      const unknown = cells.find(name => !(LEDGER_COLUMNS as string[]).includes(name))
      if (unknown !== undefined)
        throw new Error(
          `the ledger has no column '${unknown}'; the first line has those of \`sluice usage --rows --csv\``,
        )
      names = cells
      return null
    }
    if (cells.length !== names.length) throw new Error(`${cells.length} cells, and ${names.length} columns`)
    const fields = names.flatMap((name, i) => {
      // A value that a spreadsheet would run is written behind an apostrophe.
      const value = cells[i]!.replace(/^'(?=[=+@-])/, '')
      return value === '' ? [] : [name, value]
    })
    return checked(fromFields(fields))
  }
}

const NEEDED = ['time', 'input', 'output', 'cost', 'input_tokens', 'duration_ms'] as const

/** A row of a file, with what a replay needs. */
function checked(row: LedgerRow): LedgerRow {
  for (const name of ['request_id', 'organization', 'key_id', 'outcome'] as const)
    if (typeof row[name] !== 'string' || row[name] === '') throw new Error(`the row has no ${name}`)
  for (const name of NEEDED) if (!Number.isFinite(row[name])) throw new Error(`the row has no ${name}`)
  row.cached ??= 0
  row.cacheWrite ??= 0
  row.searches ??= 0
  return row
}
