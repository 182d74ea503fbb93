/**
 * `sluice usage`: what was used and what it cost, from the ledger of either engine. It can run beside a gateway: it
 * takes no lock and no lease.
 */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { parseArgs } from 'node:util'
import { StoreUnavailable } from '../core/canon/errors.ts'
import { formatUsd } from '../core/canon/money.ts'
import {
  type LedgerRow,
  noUse,
  TOTALS,
  type UsageFilter,
  type UsageSum,
  type UsageTotals,
} from '../core/ports/store.ts'
import { faultByTag, GROUPS, type Group, type GroupedUse, sumBy, withOwners } from '../core/ports/usage-groups.ts'
import { LEDGER_COLUMNS } from '../stores/columns.ts'
import { RedisClient } from '../stores/redis/client.ts'
import { drainOf } from '../stores/redis/drained.ts'
import { checkLayout } from '../stores/redis/format.ts'
import { countStream, scanRows, toColumns } from '../stores/redis/ledger.ts'
import { scanUsage as scanRedisUsage } from '../stores/redis/usage.ts'
import { countLedger, scanLedger, scanUsage } from '../stores/sqlite/ledger.ts'
import { checkDatabase } from '../stores/sqlite/schema.ts'
import { csvLine } from './csv.ts'
import { Progress, type ProgressStream } from './progress.ts'
import { Failure, UsageError } from './terminal.ts'

const HELP = `Usage: sluice usage [FILE] [OPTIONS]

Sums of the ledger of FILE's store (default gateway.yaml).

  --org ID --key ID --model ID   only these
  --tag NAME                     only rows with this tag (usage-capture: { tags }); group by it with \`tag\`
  --since WHEN --until WHEN      2026-11-01, 2026-11-01T12:00:00Z, or an age: 24h, 7d, 30m (default: the running UTC month)
  --month WHEN                   a whole UTC month: 2026-11
  --group-by LIST                organization, key, model, provider, backend, surface, outcome, tag, day, hour, month; comma-separated (default: organization,model).
                                 \`key\` means organization,key unless --org names one: ids of keys are of their organization
  --by LIST                      the same groups with both sides: what was billed, what the provider charged, the margin, and by how much the provider counts more than the gateway
  --rows                         the single rows instead of sums
  --json | --csv                 for programs; amounts in nano-USD (1e-9 USD)
  --config FILE                  the same as FILE
  --store URL                    the store itself, without a configuration
`

export interface UsageIo {
  out: { write(text: string): unknown; isTTY?: boolean; columns?: number }
  err: ProgressStream
  now(): number
  /** Monotonic milliseconds. */
  mono?(): number
}
const processIo: UsageIo = { out: process.stdout, err: process.stderr, now: () => Date.now() }

/** Finds the store's URL in a configuration, for calls without `--store`. */
type StoreOf = (config: string | undefined, positionals: readonly string[]) => Promise<string>
const noStore: StoreOf = () => {
  throw new UsageError('no store: give --store URL')
}

/** @returns the exit code: 0, 1 when the store cannot be read, 2 for wrong arguments */
export async function runUsage(
  args: readonly string[],
  io: UsageIo = processIo,
  storeOf: StoreOf = noStore,
): Promise<number> {
  try {
    const request = parse(args, io.now())
    if (request === 'help') {
      io.out.write(HELP)
      return 0
    }
    // Rows that are printed on the same terminal already show the progress.
    const watch = request.rows && io.out.isTTY ? { write() {} } : io.err
    const progress = new Progress(watch, 'rows', io.mono)
    const store = request.store ?? (await storeOf(request.config, request.positionals))
    if (request.rows) await writeRows(openLedger(store, request.filter, progress), request.format, io)
    else await writeSums(readSums(store, request.filter, progress), request, io)
    return 0
  } catch (error) {
    // cli/main.ts prints the faults of a configuration, as for every verb.
    if (error instanceof Failure) throw error
    io.err.write(`sluice usage: ${(error as Error).message}\n`)
    return error instanceof UsageError ? 2 : 1
  }
}

interface UsageRequest {
  store: string | undefined
  config: string | undefined
  positionals: readonly string[]
  filter: UsageFilter
  groups: Group[]
  /** Whether the table shows the provider's side. */
  bothSides: boolean
  rows: boolean
  format: 'table' | 'json' | 'csv'
}

function parse(args: readonly string[], now: number): UsageRequest | 'help' {
  const text = { type: 'string' } as const
  const flag = { type: 'boolean', default: false } as const
  let values: Record<string, string | boolean | undefined>
  let positionals: string[]
  try {
    ;({ values, positionals } = parseArgs({
      args: [...args],
      options: {
        store: text,
        config: text,
        month: text,
        org: text,
        key: text,
        model: text,
        tag: text,
        since: text,
        until: text,
        'group-by': text,
        by: text,
        rows: flag,
        json: flag,
        csv: flag,
        help: { ...flag, short: 'h' },
      },
      allowPositionals: true,
    }))
  } catch (error) {
    throw new UsageError((error as Error).message)
  }
  if (values['help']) return 'help'
  const string = (name: string) => values[name] as string | undefined
  const store = string('store')
  if (store !== undefined && (positionals.length > 0 || values['config']))
    throw new UsageError('name the store or the configuration, not both')
  if (values['json'] && values['csv']) throw new UsageError('--json or --csv, not both')
  if (string('by') !== undefined && string('group-by') !== undefined)
    throw new UsageError('--by or --group-by, not both: --by shows the provider’s side of the same groups')
  const tag = string('tag')
  if (tag !== undefined && values['rows']) throw new UsageError('--tag is for sums; rows have all their tags')
  const standard = tag === undefined ? 'organization,model' : 'organization,tag'
  const named = (string('by') ?? string('group-by') ?? standard).split(',')
  const asked = named.map(name => {
    if (!Object.hasOwn(GROUPS, name))
      throw new UsageError(`cannot group by ${name}; there are ${Object.keys(GROUPS).join(', ')}`)
    return name as Group
  })
  const groups = withOwners(asked, string('org'))
  const fault = faultByTag(groups, tag)
  if (fault !== null) throw new UsageError(`${tag === undefined ? '--tag NAME' : '--group-by'}: ${fault}`)
  return {
    store,
    config: string('config'),
    positionals,
    filter: {
      org: string('org'),
      key: string('key'),
      model: string('model'),
      tag,
      ...spanOf({ since: string('since'), until: string('until'), month: string('month') }, now),
    },
    groups,
    bothSides: string('by') !== undefined,
    rows: values['rows'] === true,
    format: values['json'] ? 'json' : values['csv'] ? 'csv' : 'table',
  }
}

/**
 * The period that options name, Unix ms; without them the running UTC month.
 * @throws UsageError
 */
export function spanOf(
  { since, until, month }: { since?: string | undefined; until?: string | undefined; month?: string | undefined },
  now: number,
): { since: number; until: number | undefined } {
  if (month !== undefined) {
    if (since !== undefined || until !== undefined)
      throw new UsageError('--month is a --since and an --until by itself')
    return wholeMonth(month)
  }
  const date = new Date(now)
  return {
    since: since === undefined ? Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1) : when(since, now),
    until: until === undefined ? undefined : when(until, now),
  }
}

/** The first instant of a UTC month, and that of the next. */
function wholeMonth(text: string): { since: number; until: number } {
  const [, year, month] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text) ?? []
  if (year === undefined) throw new UsageError(`${text} is no month; use 2026-11`)
  return { since: Date.UTC(Number(year), Number(month) - 1, 1), until: Date.UTC(Number(year), Number(month), 1) }
}

const UNITS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

/**
 * A time, or an age before `now`, Unix ms.
 * @throws UsageError
 */
export function when(text: string, now: number): number {
  const age = /^(\d{1,6})([mhdw])$/.exec(text)
  if (age) return now - Number(age[1]) * UNITS[age[2] as keyof typeof UNITS]
  const time = /^\d{4}-\d{2}(-\d{2}(T[\d:.]+(Z|[+-]\d{2}:\d{2})?)?)?$/.test(text) ? Date.parse(text) : Number.NaN
  if (Number.isNaN(time))
    throw new UsageError(`${text} is no time; use 2026-11-01, 2026-11-01T12:00:00Z or an age like 24h`)
  return time
}

/**
 * Pages of ledger rows, read directly from the engine. On a terminal the progress is shown.
 * @param filter `endedSince` (Unix milliseconds): Redis, whose rows stand in the order in which exchanges ended, skips
 * those that ended before
 * @throws StoreUnavailable when there is no ledger yet, or the engine does not answer
 */
export function openLedger(
  url: string,
  filter: UsageFilter & { endedSince?: number },
  progress: Progress,
): AsyncGenerator<LedgerRow[]> {
  let read = 0
  const shown = (rows: number, total: number | undefined) => {
    read += rows
    progress.show(read, total && read / total)
  }
  return open(
    url,
    progress,
    async function* (db) {
      const total = progress.watched ? countLedger(db, filter) : undefined
      for await (const page of scanLedger(db, filter)) {
        shown(page.length, total)
        yield page
      }
    },
    async function* (client) {
      const drained = drainOf(url)
      const total = progress.watched && drained === null ? await countStream(client) : undefined
      const from = filter.endedSince === undefined ? undefined : String(filter.endedSince)
      yield* scanRows(client, drained, filter, rows => shown(rows, total), from)
    },
  )
}

/** Pages of sums. On a terminal the progress is shown: how many were read, as it is not known how many there are. */
function readSums(url: string, filter: UsageFilter, progress: Progress): AsyncGenerator<UsageSum[]> {
  let read = 0
  const shown = (sums: number) => progress.show((read += sums))
  return open(
    url,
    progress,
    async function* (db) {
      for await (const page of scanUsage(db, filter)) {
        shown(page.length)
        yield page
      }
    },
    client => scanRedisUsage(client, drainOf(url), filter, shown),
  )
}

/** What one of the two reads from the engine behind this URL. */
async function* open<T>(
  url: string,
  progress: Progress,
  ofSqlite: (db: DatabaseSync) => AsyncGenerator<T>,
  ofRedis: (client: RedisClient) => AsyncGenerator<T>,
): AsyncGenerator<T> {
  if (url.startsWith('sqlite:')) {
    const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
    if (!fs.existsSync(file)) throw new StoreUnavailable(`there is no ledger at ${path.resolve(file)} yet`)
    const db = new DatabaseSync(file, { readOnly: true })
    try {
      db.exec('PRAGMA busy_timeout = 5000')
      checkDatabase(db, file)
      yield* ofSqlite(db)
    } finally {
      progress.clear()
      db.close()
    }
    return
  }
  const quiet = () => {}
  const client = new RedisClient({
    url,
    timeout: 10_000,
    log: { debug: quiet, info: quiet, warn: quiet, error: quiet },
  })
  try {
    await client.connect()
    await checkLayout(client)
    yield* ofRedis(client)
  } finally {
    progress.clear()
    client.disconnect()
  }
}

async function writeSums(
  pages: AsyncIterable<UsageSum[]>,
  { groups, bothSides, format }: UsageRequest,
  io: UsageIo,
): Promise<void> {
  const sorted = await sumBy(
    pages,
    groups.map(group => sum => GROUPS[group](sum) || '-'),
  )
  const total = noUse()
  for (const { sums } of sorted) for (const name of TOTALS) total[name] += sums[name]
  if (format === 'json') {
    const list = sorted.map(entry => ({
      ...Object.fromEntries(groups.map((group, i) => [group, entry.names[i]])),
      ...entry.sums,
    }))
    io.out.write(JSON.stringify(list, null, 2) + '\n')
    return
  }
  if (format === 'csv') {
    io.out.write(csvLine([...groups, ...TOTALS]))
    for (const entry of sorted) io.out.write(csvLine([...entry.names, ...TOTALS.map(name => String(entry.sums[name]))]))
    return
  }
  if (!sorted.length) {
    io.out.write('no rows\n')
    return
  }
  const shown = [...sorted]
  if (sorted.length > 1) shown.push({ names: groups.map((_, i) => (i === 0 ? 'total' : '')), sums: total })
  io.out.write(table(groups, shown, bothSides ? MARGIN : USE, io.out.columns ?? 80))
  if (bothSides && total.costed < total.requests) io.out.write(`+ ${total.requests - total.costed} ${UNCOSTED}\n`)
}

async function writeRows(
  pages: AsyncIterable<LedgerRow[]>,
  format: UsageRequest['format'],
  io: UsageIo,
): Promise<void> {
  if (format === 'table') {
    io.out.write(
      `${'time'.padEnd(20)} ${'organization'.padEnd(14)} ${'model'.padEnd(18)} ${'input'.padStart(7)} ${'output'.padStart(6)} ${'USD'.padStart(10)}\n`,
    )
    for await (const page of pages)
      for (const row of page) {
        const time = new Date(row.time).toISOString().slice(0, 19) + 'Z'
        const numbers = `${compact(row.input).padStart(7)} ${compact(row.output).padStart(6)} ${usd(row.cost).padStart(10)}`
        io.out.write(
          `${time.padEnd(20)} ${fit(row.organization, 14)} ${fit(row.model || row.outcome, 18)} ${numbers}\n`,
        )
      }
    return
  }
  if (format === 'csv') io.out.write(csvLine(LEDGER_COLUMNS))
  let first = true
  for await (const page of pages)
    for (const row of page) {
      const values = toColumns(row)
      if (format === 'csv') io.out.write(csvLine(values))
      else {
        const { cacheWrite, ...same } = row
        io.out.write((first ? '[\n' : ',\n') + JSON.stringify({ ...same, cache_write: cacheWrite }))
      }
      first = false
    }
  if (format === 'json') io.out.write(first ? '[]\n' : '\n]\n')
}

/** Behind a cost that not all requests are in. */
const UNCOSTED = 'requests are not in the cost: their backend has no `cost:`, or its answer is not known'

type Numbers = Readonly<Record<string, (sums: UsageTotals) => string>>
const MARGIN: Numbers = {
  requests: sums => compact(sums.requests),
  revenue: sums => usd(sums.cost),
  cost: sums => usd(sums.provider_cost) + (sums.costed < sums.requests ? '+' : ''),
  margin: sums => (sums.costed < sums.requests ? '-' : usd(sums.cost - sums.provider_cost)),
  'input±': sums => drift(sums.provider_input, sums.counted_input),
  'output±': sums => drift(sums.provider_output, sums.counted_output),
}

/** By how much the provider counts more than the gateway. */
function drift(theirs: number, ours: number): string {
  if (ours === 0) return '-'
  const percent = (100 * theirs) / ours - 100
  return `${percent < 0 ? '' : '+'}${percent.toFixed(1)}%`
}

const USE: Numbers = {
  requests: sums => compact(sums.requests),
  input: sums => compact(sums.input),
  cached: sums => compact(sums.cached),
  output: sums => compact(sums.output),
  reasoning: sums => compact(sums.reasoning),
  USD: sums => usd(sums.cost),
}
/** The columns that a narrow table leaves out, in this order; --json and --csv have every column. */
const DISPENSABLE = ['reasoning', 'cached']

function table(groups: readonly Group[], entries: readonly GroupedUse[], texts: Numbers, columns: number): string {
  const width = Math.min(columns, 160)
  const nameWidths = groups.map((group, i) => Math.max(group.length, ...entries.map(entry => entry.names[i]!.length)))
  let numbers = Object.keys(texts)
  const numberWidth = (name: string) => Math.max(name.length, ...entries.map(entry => texts[name]!(entry.sums).length))
  const total = () => [...nameWidths, ...numbers.map(numberWidth)].reduce((sum, w) => sum + w + 1, -1)
  for (const name of DISPENSABLE) if (total() > width) numbers = numbers.filter(other => other !== name)
  while (total() > width) {
    const widest = nameWidths.indexOf(Math.max(...nameWidths))
    if (nameWidths[widest]! <= 8) break
    nameWidths[widest]!--
  }
  const line = (names: readonly string[], texts: readonly string[]) =>
    `${names.map((name, i) => fit(name, nameWidths[i]!)).join(' ')} ${texts.map((text, i) => text.padStart(numberWidth(numbers[i]!))).join(' ')}\n`
  return (
    line(groups, numbers) +
    entries
      .map(({ names, sums }) =>
        line(
          names,
          numbers.map(name => texts[name]!(sums)),
        ),
      )
      .join('')
  )
}

/** An amount in USD to the sixth decimal, of which a half and more is rounded away from zero. @param nano nano-USD */
function usd(nano: number): string {
  const rounded = Math.round(Math.abs(nano) / 1000) * 1000
  return formatUsd(nano < 0 ? -rounded : rounded)
}

/** At most seven characters: 1234567 → 1234567, 12345678 → 12.3M. */
function compact(count: number): string {
  if (count < 10_000_000) return String(count)
  for (const [unit, size] of [
    ['T', 1e12],
    ['G', 1e9],
  ] as const)
    if (count >= size) return (count / size).toFixed(1) + unit
  return (count / 1e6).toFixed(1) + 'M'
}

export function fit(text: string, width: number): string {
  const clean = text.replace(/[\x00-\x1f\x7f]/g, '?')
  return clean.length > width ? clean.slice(0, width - 1) + '…' : clean.padEnd(width)
}
