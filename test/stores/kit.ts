/** What the store tests share: cells, rows, a quiet logger, temporary folders. */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import type { Logger } from '../../core/plugin.ts'
import type {
  Cell,
  LedgerIntent,
  LedgerOutcome,
  LedgerRow,
  Store,
  UsageFilter,
  UsageSum,
} from '../../core/ports/store.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { columnOf, LEDGER_COLUMNS, TEXT_COLUMNS } from '../../stores/columns.ts'
import type { StoreOptions } from '../../stores/index.ts'
import type { RedisStoreOptions } from '../../stores/redis/store.ts'

/** 2026-11-21T10:00:00Z */
export const T0 = Date.UTC(2026, 10, 21, 10)
export const MINUTE = 60_000
export const DAY = 86_400_000

export interface RecordingLog extends Logger {
  lines: { level: string; message: string; fields: Record<string, unknown> }[]
}
export function recordingLog(): RecordingLog {
  const lines: RecordingLog['lines'] = []
  const at = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields: fields as Record<string, unknown> })
  return { lines, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}

const folders: string[] = []
// At the very end: a store closes after its test, and closes into its folder.
process.on('exit', () => {
  for (const dir of folders) fs.rmSync(dir, { recursive: true, force: true })
})
export function temporary(): string {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'sluice-store-'))
  folders.push(dir)
  return dir
}

export function options(url: string, more: Partial<StoreOptions> = {}): StoreOptions {
  return { url, timeout: 10_000, clock: systemClock, log: recordingLog(), ...more }
}

let instances = 0
/** Of an engine on Redis that is opened by itself, with bounds that no test reaches. */
export function redisOptions(url: string, more: Partial<RedisStoreOptions> = {}): RedisStoreOptions {
  return {
    ...options(url),
    instance: `test-${process.pid}-${++instances}`,
    ledgerKeep: null,
    maxRecord: 1e6,
    maxTotal: 1e9,
    maxRecords: 1e9,
    maxValues: 1e9,
    share: 1,
    replicas: 'auto',
    dataDir: temporary(),
    ...more,
  }
}

export const bucket = (
  id: string,
  capacity: number,
  windowMs = MINUTE,
  dimension: Cell['dimension'] = 'requests',
): Cell => ({
  id,
  scope: id.startsWith('k:') ? 'key' : 'org',
  dimension,
  kind: 'bucket',
  capacity,
  windowMs,
})
export const slots = (id: string, capacity: number): Cell => ({
  id,
  scope: id.startsWith('k:') ? 'key' : 'org',
  dimension: 'concurrency',
  kind: 'slots',
  capacity,
})
export const spend = (id: string, capacity: number, period: 'day' | 'month' = 'day'): Cell => ({
  id,
  scope: id.startsWith('k:') ? 'key' : 'org',
  dimension: 'spend',
  kind: 'spend',
  capacity,
  period,
})

export const balance = (capacity: number): Cell => ({
  id: 'o:balance',
  scope: 'org',
  dimension: 'balance',
  kind: 'balance',
  capacity,
})

/** What each exchange of crash-child.ts takes from. A unit of its buckets comes back in 17 seconds. */
export const CRASH_CELLS: readonly Cell[] = [
  slots('o:concurrency', 100),
  spend('o:spend:month', 1e15, 'month'),
  bucket('o:rpd', 5000, DAY),
  bucket('o:tpd', 5000, DAY, 'tokens'),
  bucket('o:itpd', 5000, DAY, 'input_tokens'),
  balance(1e15),
]

/** Every dimension of LIM-1 that admission holds but what is left unbilled, for organization and key: 22 cells. */
export function everyDimension(capacity = 1e9): Cell[] {
  const cells: Cell[] = []
  const rates = { rp: 'requests', tp: 'tokens', itp: 'input_tokens', otp: 'output_tokens' } as const
  for (const scope of ['o', 'k:key_ci']) {
    for (const [word, dimension] of Object.entries(rates)) {
      cells.push(bucket(`${scope}:${word}m`, capacity, MINUTE, dimension))
      cells.push(bucket(`${scope}:${word}d`, capacity, DAY, dimension))
    }
    cells.push(slots(`${scope}:conc`, 1e6), spend(`${scope}:day`, 1e15), spend(`${scope}:month`, 1e15, 'month'))
  }
  return cells
}

export function intent(id: string, more: Partial<LedgerIntent> = {}): LedgerIntent {
  return {
    request_id: id,
    time: T0,
    organization: 'acme',
    key_id: 'key_ci',
    surface: 'responses',
    model: 'eb1-preview',
    price_book: '2026-11',
    billing: 'standard',
    input_tokens: 120,
    ...more,
  }
}

export function outcome(id: string, more: Partial<LedgerOutcome> = {}): LedgerOutcome {
  return {
    request_id: id,
    provider: 'local',
    outcome: 'completed',
    usage: { input: 120, cached: 20, cacheWrite: 10, output: 30, reasoning: 5, searches: 1, estimated: false },
    cost: 425_000,
    duration_ms: 1234.5,
    ttfb_ms: 210.25,
    ...more,
  }
}

/** What the provider's side says of `outcome`, with the price and the reservation. */
export const PROVIDER_SIDE = {
  provider_model: 'sim-large',
  service_tier: 'priority',
  rounds: 2,
  provider_input: 150,
  provider_cached: 21,
  provider_cache_write: 11,
  provider_cache_write_1h: 4,
  provider_output: 33,
  provider_reasoning: 6,
  provider_cost: 212_500,
  counted_input: 120,
  counted_output: 31,
  price_used: 'plan:tier1>200000',
  price_input: 1_250_000,
  price_output: 10_000_000,
  output_reserved: 4096,
  code: 'provider_overloaded',
  body_digest: 'a'.repeat(64),
}

const COUNTS = [
  ...['input', 'cached', 'cacheWrite', 'output', 'reasoning', 'searches', 'cost', 'provider_input', 'provider_cached'],
  ...['provider_cache_write', 'provider_cache_write_1h', 'provider_output', 'provider_reasoning', 'provider_cost'],
  ...['counted_input', 'counted_output'],
]

/** What rows used, by hour and the texts of the row: requests, those with a known cost, then the figures. */
export function usedBy(rows: Iterable<LedgerRow | UsageSum>): Map<string, number[]> {
  const used = new Map<string, number[]>()
  for (const row of rows) {
    const { time, organization, key_id, model, provider, surface, outcome, provider_model = '' } = row
    const tag = 'requests' in row ? row.tag : undefined
    const texts = [organization, key_id, model, provider, surface, outcome, provider_model, tag]
    const name = [Math.floor(time / 3_600_000), ...texts].join()
    const counts = 'requests' in row ? [row.requests, row.costed] : [1, row.provider_cost === undefined ? 0 : 1]
    for (const figure of COUNTS) counts.push((row as unknown as Record<string, number | undefined>)[figure] ?? 0)
    const sums = used.get(name) ?? counts.map(() => 0)
    used.set(
      name,
      sums.map((sum, i) => sum + counts[i]!),
    )
  }
  return new Map([...used].sort(([a], [b]) => (a < b ? -1 : 1)))
}

/** What a store's sums say, as `usedBy` has it. */
export async function usedIn(store: Pick<Store, 'usage'>, filter: UsageFilter = {}): Promise<Map<string, number[]>> {
  const sums: UsageSum[] = []
  for await (const page of store.usage(filter)) sums.push(...page)
  return usedBy(sums)
}

/** Writes rows into the ledger of a database that is prepared, as if they had been charged. */
export function insertRows(db: DatabaseSync, rows: Iterable<LedgerRow>): void {
  const places = LEDGER_COLUMNS.map(() => '?').join()
  const insert = db.prepare(`INSERT INTO ledger (${LEDGER_COLUMNS.join()}, charged) VALUES (${places}, 1)`)
  db.exec('BEGIN')
  for (const row of rows) {
    const values = LEDGER_COLUMNS.map(name => columnOf(row, name) ?? (TEXT_COLUMNS.has(name) ? '' : null))
    insert.run(...values.map(value => (typeof value === 'boolean' ? Number(value) : value)))
  }
  db.exec('COMMIT')
}
