/**
 * The rows of a local store that are in files. Its ledger's stream is in memory, so rows that are shipped to the files
 * beside it leave the stream, but for the last DRAIN_TAIL of them. Readers take the stream first and then from the files
 * what the stream did not have: a row is in the files before it leaves the stream, so none is missed, and none is read
 * twice.
 */
import fs from 'node:fs'
import path from 'node:path'
import { createInterface } from 'node:readline'
import type { LedgerRow, UsageFilter } from '../../core/ports/store.ts'
import { TEXT_COLUMNS } from '../columns.ts'
import { folderOf, isLocal } from '../local.ts'
import { POSITION, type Position } from '../ship/files.ts'

/** The stream keeps at least this many rows that were shipped: some 20 MB, for those who look at the last exchanges. */
export const DRAIN_TAIL = 100_000
/** Rows that are yielded together. */
const PAGE = 1000

/** The folder of the files of a local store; null for other stores. */
export const drainOf = (url: string): string | null => (isLocal(url) ? path.join(folderOf(url), 'ledger') : null)

/** Whether rows were drained to this folder. */
export const holdsDrained = (folder: string): boolean => fs.existsSync(path.join(folder, POSITION))

export function matches(row: LedgerRow, { org, key, model, since, until }: UsageFilter): boolean {
  return (
    (org === undefined || row.organization === org) &&
    (key === undefined || row.key_id === key) &&
    (model === undefined || row.model === model) &&
    (since === undefined || row.time >= since) &&
    (until === undefined || row.time < until)
  )
}

/**
 * Pages of matching rows of the files, by day.
 * @param passed ids of requests that are left out
 * @param read called for each page with the number of rows read, including those that do not match
 */
export async function* readDrained(
  folder: string,
  filter: UsageFilter,
  passed: ReadonlySet<string>,
  read?: (rows: number) => void,
): AsyncGenerator<LedgerRow[]> {
  if (!holdsDrained(folder)) return
  const { files } = JSON.parse(fs.readFileSync(path.join(folder, POSITION), 'utf8')) as Position
  const { since = 0, until = Number.POSITIVE_INFINITY } = filter
  const owner = filter.org === undefined ? undefined : memberOf('organization', filter.org)
  for (const name of Object.keys(files).sort()) {
    const day = Date.parse(name.slice(0, 10))
    const file = path.join(folder, name)
    if (day >= until || day + DAY_MS <= since || files[name] === 0) continue
    const opened = await openIfThere(file)
    if (!opened) continue
    // What is behind these bytes belongs to a batch that has not ended.
    const input = opened.createReadStream({ end: files[name]! - 1 })
    let page: LedgerRow[] = []
    let lines = 0
    for await (const line of createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY })) {
      lines++
      if (!isBetween(line, since, until) || (owner !== undefined && !line.includes(owner))) continue
      const row = fromLine(line)
      if (matches(row, filter) && !passed.has(row.request_id)) page.push(row)
      if (page.length < PAGE) continue
      yield page
      page = []
    }
    read?.(lines)
    if (page.length > 0) yield page
  }
}

const DAY_MS = 86_400_000

/** A member as the lines have it: most lines of a day are of other organizations, and need not be parsed. */
const memberOf = (name: string, value: string) => `${JSON.stringify(name)}:${JSON.stringify(value)}`

/** The row of a request of an organization in the file of a day (counted from 1970). */
export async function findDrained(
  folder: string,
  organization: string,
  requestId: string,
  day: number,
): Promise<LedgerRow | null> {
  if (!holdsDrained(folder)) return null
  const { files } = JSON.parse(fs.readFileSync(path.join(folder, POSITION), 'utf8')) as Position
  const name = `${new Date(day * DAY_MS).toISOString().slice(0, 10)}.ndjson`
  const opened = files[name] ? await openIfThere(path.join(folder, name)) : undefined
  if (!opened) return null
  const wanted = Buffer.from(memberOf('request_id', requestId))
  let rest: Buffer = Buffer.alloc(0)
  for await (const read of opened.createReadStream({ end: files[name]! - 1, highWaterMark: 1 << 20 })) {
    const piece = Buffer.concat([rest, read as Buffer])
    const at = piece.indexOf(wanted)
    const end = piece.indexOf('\n', Math.max(at, 0))
    if (at >= 0 && end >= 0) {
      const row = fromLine(piece.subarray(piece.lastIndexOf('\n', at) + 1, end).toString())
      return row.organization === organization ? row : null
    }
    rest = piece.subarray(piece.lastIndexOf('\n') + 1)
  }
  return null
}

/** Opens a file for reading. Undefined: it was moved away, or was older than `ledger.keep`. */
async function openIfThere(file: string): Promise<fs.promises.FileHandle | undefined> {
  try {
    return await fs.promises.open(file)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/** Looks at the time of a line without parsing it: most lines of a day are of other hours than the one that is asked for. */
function isBetween(line: string, since: number, until: number): boolean {
  const at = line.indexOf('"time":')
  const time = Number.parseInt(line.slice(at + 7, at + 22), 10)
  return time >= since && time < until
}

/** The row of a line as `shipRow` writes it; that of an earlier release lacks columns. */
const fromLine = (line: string): LedgerRow => fromColumns(JSON.parse(line))

/** The row of values by the names of their columns. */
export function fromColumns({ cache_write, ttfb_ms, ...rest }: Record<string, unknown>): LedgerRow {
  const row: Record<string, unknown> = {}
  for (const name of TEXT_COLUMNS) row[name] = ''
  for (const [name, value] of Object.entries(rest)) if (value !== null) row[name] = value
  return { ...row, cacheWrite: cache_write, ttfb_ms } as unknown as LedgerRow
}
