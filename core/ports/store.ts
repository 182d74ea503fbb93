/**
 * The store port: limits, ledger, idempotency records, private and retained records, and values of plugins. Two engines implement it,
 * `stores/sqlite` (embedded) and `stores/redis` (shared), and one suite of tests runs on both. A call may return its
 * result (embedded) or a promise (shared). Every failure of the engine, including a timeout, is a StoreUnavailable,
 * which the chain answers with 503 provider_unavailable (decisions 27).
 */

import type { Usage } from '../canon/events.ts'
import type { CounterKind, Dimension } from '../canon/limits.ts'
import type { AccountStore } from './accounts.ts'
import type { Group } from './usage-groups.ts'

export type MaybePromise<T> = T | Promise<T>

/** So many rows of one organization can be asked for by `Store.recent`. */
export const RECENT_ROWS = 50

/** One store with all that it keeps. */
export interface Store {
  readonly engine: 'sqlite' | 'redis'
  /** Whether a look at limits or records is a call to another process. */
  readonly remote: boolean
  readonly limits: LimitEngine
  readonly ledger: Ledger
  readonly idempotency: IdempotencyStore
  readonly records: RecordStore
  /** What plugins keep through `context.values`, with a bound of its own. */
  readonly pluginValues: ValueStore
  readonly accounts: AccountStore
  readonly notices: NoticeStore
  /** Pages of sums of what the ledger's rows used, in any order; of whole hours, they are kept as rows are booked. */
  usage(filter: UsageFilter): AsyncIterable<UsageSum[]>
  /**
   * The latest rows of one organization, the latest first: at most `RECENT_ROWS`. They are found without a look at the
   * rows of others.
   */
  recent(organization: string): Promise<LedgerRow[]>
  /** Rows of one organization, the latest first, found by an index. */
  rows(question: RowsQuestion): Promise<RowsPage>
  /**
   * The row of a request of one organization, found by an index; null when there is none.
   * @param time when its id was made, Unix milliseconds
   */
  row(organization: string, requestId: string, time: number): Promise<LedgerRow | null>
  /** All rows of one organization in a range, in pages, found by an index. Each page is read when it is asked for. */
  statement(filter: StatementFilter): AsyncIterable<LedgerRow[]>
  /** For metrics; reads memory only. */
  stats?(): StoreStats
  /** For metrics; asks the engine. Undefined where the engine does not tell. */
  size?(): Promise<StoreSize | undefined>
  /** For /readyz; answers within the engine's time limit. A reason beside `ok: true` is a warning. */
  ready(): Promise<{ ok: boolean; reason?: string }>
  /**
   * The gateway's secret: the configured one, or one that is made once and kept in the store. At least 32 bytes.
   * Rejects with StoreRefused when a later call would not succeed either.
   */
  secret(configured: string): Promise<Uint8Array>
  /** Writes what is pending, then closes the engine. */
  close(): Promise<void>
}

export interface StoreStats {
  /** Ledger intents that have no outcome yet. */
  openRows: number
  /** Ledger rows that are not yet in the engine. */
  pendingRows: number
  /** Ledger rows that the engine has and its replica has not, so that they stay in the journal. */
  unreplicatedRows: number
  /** Number of files of the local journal; 0 without a journal. */
  journalSegments: number
  kept: KeptStats
}

/** In bytes: of memory where the engine keeps its data there (Redis), else of the disk that it writes to (SQLite). */
export interface StoreSize {
  used: number
  /** What it can take at most: a limit that is set for it, else all that there is. */
  limit: number
}

/** What is kept for a while: retained responses with continuation data, replies of idempotency keys, values of plugins. */
export type Retained = 'records' | 'idempotency' | 'plugin_values'

/**
 * `bytes`: of all organizations, as last seen. `evicted`: how many this process has evicted since its start, because
 * the share of their organization was full, or because all was full and its share the largest.
 */
export type KeptStats = Record<Retained, { bytes: number; evicted: { share: number; total: number } }>

// ---- limits ---------------------------------------------------------------------------------------------------------

/**
 * The counter of one limit of one account. All cells of an admission belong to one organization.
 * - `bucket`: holds `capacity`, is refilled continuously with `capacity` per `windowMs`, and starts full. A
 *   settlement may bring it below zero (debt, decisions 18, 19).
 * - `slots`: at most `capacity` at the same time, held under the instance's lease.
 * - `spend`: at most `capacity` in the UTC day or month, in nano-USD (1e-9 USD): whole numbers up to $9,007,199 stay
 *   exact below 2^53. The cost of an exchange is rounded half up to whole nano-USD once, when the exchange ends.
 * - `balance`: at most `capacity`, the sum of all credits, for ever. What was taken is a cache: the engine makes it of
 *   what the organization's prepaid rows cost (`AccountStore.billed`) and of what is reserved.
 */
export interface Cell {
  /** Unique within the organization and stable across reloads, e.g. `o:tpm`, `k:key_ci:rpm`, `o:m:eb1-preview:tpd`. */
  id: string
  /** `user`: of each end user of a key; such a cell is in `UserRequest` alone. */
  scope: 'org' | 'key' | 'user'
  /** The public id of the one model that the limit is for; absent where it is for all. */
  model?: string
  dimension: Dimension
  kind: CounterKind
  /**
   * A whole number; of spend and balance in nano-USD. Already reduced by platform load where that applies. Spend may have Infinity:
   * it is booked, so that a cap that comes later sees the running period, and it never denies.
   */
  capacity: number
  /** Buckets only: 60 000 or 86 400 000 milliseconds. */
  windowMs?: number
  /** Spend only. */
  period?: 'day' | 'month'
}

/** Whether a cell is a limit. One without a cap only books. */
export function isLimit(cell: Cell): boolean {
  return cell.capacity !== Number.POSITIVE_INFINITY
}

export interface AdmitRequest {
  org: string
  /** The exchange's request id. It is also the reservation's id. */
  id: string
  /**
   * `amounts[i]` is taken from `cells[i]`; slots take 1. Both arrays are kept until the settlement, so they must not
   * change.
   */
  cells: readonly Cell[]
  amounts: readonly number[]
  /** Unix milliseconds. Engines never read their own clock for limits. */
  now: number
  /** Where the key limits each of its end users. */
  user?: UserRequest
}

/**
 * What one end user of a key takes. The engine keeps `USERS_KEPT` users of a key: those admitted last. Who is not kept
 * begins with the shared level, which is never below that of anyone who has left: so a name gains nothing by leaving, and
 * invented names have at most as much as all that are kept. Nobody leaves while a request of his runs; where nobody can,
 * who is not kept takes from the shared cells.
 */
export interface UserRequest {
  /** At most 64 characters, none of them a control character; '' for who is not named. */
  name: string
  /**
   * The shared cells (`sharedPrefix`), one of them of concurrency, with or without a limit: it shows who has requests
   * that run. All of one key, and the same array each time.
   */
  cells: readonly Cell[]
  amounts: readonly number[]
}

/** State of one cell after the call, for headers (LIM-9). Arrays of states are parallel to the cells of the call. */
export interface CellState {
  remaining: number
  /** Milliseconds until the cell is full again; only of buckets. */
  resetMs: number
}

export type Admission = { admitted: true; states: CellState[] } | Denial

export interface Denial {
  admitted: false
  /** Index in `cells` of the cell that denies; if several do, the one with the longest wait. */
  denied: number
  /** The wait before a retry in milliseconds, before jitter; infinite where waiting does not help. */
  horizonMs: number
  states: CellState[]
  /** Set where it is a limit of the end user: his states. `denied` is then an index in his cells. */
  user?: CellState[]
}

export interface LimitEngine {
  /** Checks all cells, then takes from all or none, in one atomic step (LIM-2, LIM-3). */
  admit(request: AdmitRequest): MaybePromise<Admission>
  /**
   * Ends a reservation, once: a second call with the same id does nothing. Slots are given back; every other cell is
   * corrected from the reserved amount to `finals[i]` (0 gives everything back). Never throws. While the engine is
   * down, settlements are kept and delivered later, so `finals` must not change.
   * @param ofUser the same for the cells of the end user
   */
  settle(org: string, id: string, finals: readonly number[], now: number, ofUser?: readonly number[]): void
  /** What `admit` would deny now; null when it would admit. Takes nothing, and knows no end users. */
  wouldDeny(request: Omit<AdmitRequest, 'id' | 'user'>): MaybePromise<Denial | null>
  /** The current state of cells, for the dashboard and /v1/models; takes nothing. */
  peek(org: string, cells: readonly Cell[], now: number): MaybePromise<CellState[]>
}

// ---- ledger ---------------------------------------------------------------------------------------------------------

/** How an exchange ended; docs/ledger.md explains each. */
export type Outcome =
  | 'completed'
  | 'incomplete'
  | 'client_gone'
  | 'upstream_error'
  | 'gateway_error'
  | 'refused'
  | 'replayed'
  | 'lost'

/** Written before the request goes upstream (decisions 26). */
export interface LedgerIntent {
  request_id: string
  /** Unix milliseconds. */
  time: number
  organization: string
  key_id: string
  surface: string
  /** The canonical public id; '' on proxy routes. */
  model: string
  price_book: string
  billing: 'standard' | 'free' | 'prepaid'
  /** Metered prompt tokens. */
  input_tokens: number
}
/** There is one for each intent (BILL-4). */
export interface LedgerOutcome extends ProviderSide {
  request_id: string
  provider: string
  outcome: Outcome
  /** Zero when nothing is billed (BILL-3). */
  usage: Usage
  /** nano-USD. */
  cost: number
  duration_ms: number
  /** Null when no byte was sent. */
  ttfb_ms: number | null
  /** Proxy routes only: the bytes of request and reply. */
  bytes_in?: number
  bytes_out?: number
  /** For whom the request was within its key: JSON of texts by the name of the tag. Left out for nobody. */
  tags?: string
  /** Whose price it was and of which step, as `priceUsed` names it; absent where nothing is charged. */
  price_used?: string
  /** The rates of that price, in pico-USD per token; absent where nothing is charged. */
  price_input?: number
  price_output?: number
  /** Output tokens that were reserved. */
  output_reserved?: number
  /** The code of the error with which it ended; '' where it ended well. */
  code?: string
  /** SHA-256 of the request's body in hex; absent or '' where none was made. */
  body_digest?: string
}

/** What the provider's side says of an exchange. What is absent was not reported, or is not known. */
export interface ProviderSide {
  /** The provider's own name of the model that answered; '' when nobody did. */
  provider_model?: string
  /** In the provider's words; '' when it reported none. */
  service_tier?: string
  /** Upstream requests behind the reply: more than one where a search was run between them. */
  rounds?: number
  /** The provider's counts, in its own tokens, over all rounds. `provider_input` includes the three that follow. */
  provider_input?: number
  provider_cached?: number
  provider_cache_write?: number
  provider_cache_write_1h?: number
  provider_output?: number
  provider_reasoning?: number
  /** nano-USD; 0 where nothing was used, absent where the backend has no `cost`. */
  provider_cost?: number
  /** The gateway's own count of what the provider counted, whether it is billed or not. */
  counted_input?: number
  counted_output?: number
}

export type LedgerRow = LedgerIntent & Omit<LedgerOutcome, 'usage'> & Usage

/** The figures that are added up, with the names of their columns, in the order of `sluice usage`. */
export const FIGURES = [
  'input',
  'cached',
  'cache_write',
  'output',
  'reasoning',
  'searches',
  'cost',
  'provider_input',
  'provider_cached',
  'provider_cache_write',
  'provider_cache_write_1h',
  'provider_output',
  'provider_reasoning',
  'provider_cost',
  'counted_input',
  'counted_output',
] as const
type Figure = (typeof FIGURES)[number]

/** What the rows of one hour that agree in all texts used together; or one row alone. */
export interface UsageSum extends Omit<Usage, 'estimated'>, Record<Exclude<Figure, 'cache_write'>, number> {
  /** Unix milliseconds: when the hour began; or the time of the row. */
  time: number
  organization: string
  key_id: string
  model: string
  provider: string
  surface: string
  outcome: Outcome | ''
  provider_model: string
  /** Number of rows. */
  requests: number
  /** Number of rows whose `provider_cost` is known. */
  costed: number
  /** Of sums by a tag: its value. Provider, surface, outcome and the provider's model are '' then. */
  tag?: string
}

/** The names of a sum's counts, as `sluice usage` and the admin API have them. Costs are nano-USD. */
export const TOTALS = ['requests', ...FIGURES, 'costed'] as const
/** The counts of several sums together. */
export type UsageTotals = Record<(typeof TOTALS)[number], number>

export function noUse(): UsageTotals {
  return Object.fromEntries(TOTALS.map(name => [name, 0])) as UsageTotals
}

export function addUse(totals: UsageTotals, sum: UsageSum): void {
  for (const name of TOTALS) totals[name] += sum[name === 'cache_write' ? 'cacheWrite' : name]
}

/** Sums are by the hour. How far back a last use is looked for: each step looks at the hours before those of the step before. */
const LAST_USE_MS = 3_600_000
const DAYS_BACK = [1, 7, 31, 400]
/** A key that is younger than this, ms, and without a last use was never used. */
export const LAST_USE_BACK_MS = 400 * 86_400_000

/**
 * When keys were last used, by the sums by hour: by the key's id, the beginning of the hour, Unix ms. One that was not
 * used within 400 days is not in it.
 * @param usage as of `Store`
 */
export async function lastUses(
  usage: (filter: UsageFilter) => AsyncIterable<UsageSum[]>,
  organization: string,
  keys: readonly string[],
  now: number,
): Promise<Map<string, number>> {
  const found = new Map<string, number>()
  let until: number | undefined
  for (const days of DAYS_BACK) {
    if (keys.every(key => found.has(key))) break
    // Whole hours alone, so that no row is looked at.
    const since = Math.max(0, Math.floor(now / LAST_USE_MS) - days * 24) * LAST_USE_MS
    for await (const page of usage({ org: organization, since, ...(until !== undefined && { until }) }))
      for (const { key_id, time } of page) {
        const hour = Math.floor(time / LAST_USE_MS) * LAST_USE_MS
        if (hour > (found.get(key_id) ?? Number.NEGATIVE_INFINITY)) found.set(key_id, hour)
      }
    until = since
  }
  return found
}

/** Rows whose time is at least `since` and below `until`, both Unix milliseconds. */
export interface UsageFilter {
  org?: string
  key?: string
  model?: string
  since?: number
  until?: number
  /** The name of a tag: the rows that have it, by its values. */
  tag?: string
  /**
   * What the reader groups by. A store may then join sums of one UTC day that agree in these, and leave the other texts
   * empty. Absent: none are joined.
   */
  by?: readonly Group[]
}

/** The rows of a statement: those of an organization, or of one key of it alone. Both times are Unix milliseconds. */
export interface StatementFilter {
  org: string
  key?: string
  since: number
  until: number
}

/** Rows of an organization whose time is at least `since` and below `until`, both Unix milliseconds. */
export interface RowsQuestion {
  organization: string
  key?: string
  outcome?: string
  /** The code of the error with which it ended; '' for those that ended well. */
  code?: string
  since: number
  until: number
  /** `next` of the page before; null for the first. */
  after: string | null
  /** At most this many rows. */
  limit: number
}

export interface RowsPage {
  rows: LedgerRow[]
  /** Two whole numbers with a hyphen between; null: nothing follows. A page with few rows may still have it. */
  next: string | null
}

export interface Ledger {
  /**
   * The row survives a killed process once this returns undefined, or once its promise resolves. All rows of one
   * event-loop turn are one write.
   * @throws StoreUnavailable (or rejects with it): nothing was written, and the exchange must not be dispatched
   */
  intent(row: LedgerIntent): undefined | Promise<undefined>
  /**
   * The row survives a killed process once this returns undefined, or once its promise resolves. If it rejects with
   * StoreUnavailable, the row is kept in memory until the engine has it.
   * @param unsent true when nothing of the reply was sent. A row that cannot be written then becomes a
   * `gateway_error` that bills nothing, because the caller must not send the reply.
   */
  outcome(row: LedgerOutcome, unsent?: boolean): undefined | Promise<undefined>
  /** Resolves when all rows given so far can be queried. For tests and shutdown. */
  flush(): Promise<void>
  /** Rows in order of time, for tests. With a limit: the latest of them. */
  query(filter: UsageFilter & { limit?: number }): Promise<LedgerRow[]>
}

// ---- notices --------------------------------------------------------------------------------------------------------

/** The shares of a spend limit that are noticed, in percent. */
export const NOTICED_PERCENT = [50, 80, 100] as const

/** A spend limit of an organization or a key has been used up to a threshold. */
export interface Notice {
  /** When it was found, Unix milliseconds. */
  time: number
  organization: string
  /** '' where the limit is the organization's. */
  key: string
  /** '' where the limit is for all models. */
  model: string
  /** The UTC day or month, as of `periodIndex`. */
  period: 'day' | 'month'
  number: number
  /** One of `NOTICED_PERCENT`. */
  percent: number
  /** What may be spent, and what was spent by then, in nano-USD. */
  limit: number
  spent: number
}

export interface NoticePage {
  notices: (Notice & { id: string })[]
  /** The cursor for what follows; that of the call when nothing does. */
  next: string
}

export interface NoticeStore {
  /**
   * Keeps a notice, once for each limit, period and threshold, and none after that of a higher threshold.
   * @returns whether it is news
   */
  post(notice: Notice): MaybePromise<boolean>
  /**
   * Notices in the order in which they were posted.
   * @param after `next` of the page before; '' for the first
   */
  page(after: string, most: number, organization?: string): MaybePromise<NoticePage>
}

// ---- idempotency ----------------------------------------------------------------------------------------------------

/** The reply that is stored for an `Idempotency-Key`. */
export interface IdempotencyRecord {
  requestId: string
  status: number
  headers: [string, string][]
  body: Uint8Array
  /**
   * False when the reply was cut (decisions 28): a replay sends these bytes and closes without the chunk terminator.
   */
  whole: boolean
  /**
   * JSON of what the request asked for (plugins/model-access/asked.ts), by which a replay is judged; '' when that is
   * nothing. Absent in a record of a release before it was stored.
   */
  asked?: string
}
/** The state of an `Idempotency-Key` when a request uses it. */
export type IdempotencyState =
  | { state: 'first' }
  | { state: 'running' }
  /** The key was used with another body or endpoint. */
  | { state: 'conflict' }
  /** The first use was executed, but its reply was too large to keep. */
  | { state: 'not_kept'; requestId: string }
  | { state: 'replay'; record: IdempotencyRecord }

export interface IdempotencyStore {
  /**
   * Atomic: of simultaneous first uses exactly one gets `first`, under the instance's lease. Times are in
   * milliseconds.
   * @param onLost called when another execution has taken the key over, because the lease was not renewed in time
   */
  begin(
    org: string,
    key: string,
    fingerprint: string,
    requestId: string,
    ttlMs: number,
    now: number,
    onLost?: () => void,
  ): MaybePromise<IdempotencyState>
  /**
   * The first use is about to end. After true no other execution gets the key within `ttlMs`; after false another has
   * it, and this one must not be billed. Rejects with StoreUnavailable.
   */
  claim(org: string, key: string, ttlMs: number): MaybePromise<boolean>
  /** Whether no other execution can have the key yet, without asking the engine: its lease has not run out. */
  holds(org: string, key: string): boolean
  /** Stores the record; null says that the reply was too large to keep. */
  finish(org: string, key: string, record: IdempotencyRecord | null, ttlMs: number, now: number): MaybePromise<void>
  /** The first use was not executed: the key may be used again (IDEM-3). */
  release(org: string, key: string): MaybePromise<void>
}

// ---- records --------------------------------------------------------------------------------------------------------

/**
 * `response`: the turn of a retained response, from which it is continued. `reply`: the object that its client got.
 * `continuation`: private data of a provider.
 */
export type RecordKind = 'response' | 'reply' | 'continuation'

/**
 * Small private values with a time to live: retained responses and continuation data, and what plugins keep. Each belongs
 * to an organization. Values arrive already sealed.
 */
export interface RecordStore<Kind extends string = RecordKind> {
  put(org: string, kind: Kind, id: string, value: Uint8Array, ttlMs: number, now: number): MaybePromise<void>
  get(org: string, kind: Kind, id: string, now: number): MaybePromise<Uint8Array | null>
  /** Reads several of one kind; null where one is missing. */
  getMany(org: string, kind: Kind, ids: readonly string[], now: number): MaybePromise<(Uint8Array | null)[]>
  /**
   * Whether each of these is there, in one question that reads no value. One whose time to live is over may still be
   * there.
   */
  hasAll(org: string, kind: Kind, ids: readonly string[]): MaybePromise<boolean>
  /** Renews the time to live of those that exist; ignores the others. */
  touch(org: string, kind: Kind, ids: readonly string[], ttlMs: number, now: number): MaybePromise<void>
  /** Deletes one, if it exists. From then on `get` does not find it. */
  delete(org: string, kind: Kind, id: string): MaybePromise<void>
}

/** The records of plugins. */
export type ValueStore = Pick<RecordStore<'value'>, 'get' | 'put' | 'delete'>
