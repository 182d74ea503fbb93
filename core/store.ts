/**
 * What the chain needs of a store: limits, ledger, idempotency records, private and retained records. Two engines implement it, `stores/sqlite` (embedded)
 * and `stores/redis` (shared); one suite runs on both. A call may answer at once (embedded) or later (shared); every failure of
 * the engine, a timeout included, is a StoreUnavailable, which the chain answers with 503 provider_unavailable (decisions 27).
 */
import type { Usage } from './events.ts'
import type { Dimension } from './limits.ts'

export type MaybePromise<T> = T | Promise<T>

/** The engine is down, slow beyond its budget, or full. Never means "not found". */
export class StoreUnavailable extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'StoreUnavailable'
  }
}

export interface Store {
  readonly engine: 'sqlite' | 'redis'
  readonly limits: LimitEngine
  readonly ledger: Ledger
  readonly idempotency: IdempotencyStore
  readonly records: RecordStore
  /** For metrics; reads what is in memory. */
  stats?(): StoreStats
  /** Answers within the engine's budget; for /readyz. */
  ready(): Promise<{ ok: boolean; reason?: string }>
  /** The gateway's secret: the configured one, or one made once and kept here. 32 bytes or more. */
  secret(configured: string): Promise<Uint8Array>
  /** Flushes and closes. */
  close(): Promise<void>
}

export interface StoreStats {
  /** Ledger intents without an outcome. */
  openRows: number
  /** Ledger rows that the engine has not taken yet. */
  pendingRows: number
  /** Files of the local journal; 0 without one. */
  journalSegments: number
}

// ---- limits -----------------------------------------------------------------------------------------------------------

/**
 * One limit of one scope. Cells of an admission belong to one organization.
 * - `bucket`: holds `capacity`, refills `capacity` per `windowMs` continuously, starts full; may go below zero by settlement (debt, decisions 18, 19).
 * - `slots`: at most `capacity` at once, held under the instance's lease.
 * - `spend`: at most `capacity` in the UTC day or month; amounts in nano-USD (1e-9 USD): whole
 *   numbers up to $9,007,199 stay exact below 2^53. One exchange's cost is rounded half up to a whole nano-USD once, at its end.
 */
export interface Cell {
  /** Unique within the organization and stable across reloads, e.g. `o:tpm`, `k:key_ci:rpm`, `o:m:eb1-preview:tpd`. */
  id: string
  scope: 'org' | 'key'
  dimension: Dimension
  kind: 'bucket' | 'slots' | 'spend'
  /** Already compressed by platform load where that applies. Whole number; spend in nano-USD. */
  capacity: number
  /** Buckets: 60 000 or 86 400 000. */
  windowMs?: number
  /** Spend. */
  period?: 'day' | 'month'
}

export interface AdmitRequest {
  org: string
  /** The exchange's request id: names the reservation. */
  id: string
  /** Parallel to `amounts`: cell i is asked for amount i. Slots take 1. Both arrays are kept until the settlement: they must not change. */
  cells: readonly Cell[]
  amounts: readonly number[]
  /** Unix milliseconds; engines never look at a clock of their own for limits. */
  now: number
}

/** State of one cell right after the step; for headers (LIM-9). Parallel to `cells`. */
export interface CellState {
  remaining: number
  /** Milliseconds until the cell is full again; buckets only. */
  resetMs: number
}

export type Admission =
  | { admitted: true; states: CellState[] }
  | {
      admitted: false
      /** Index of the denied cell: the one with the longest horizon among those that deny. */
      denied: number
      /** Computed wait before jitter, milliseconds. */
      horizonMs: number
      states: CellState[]
    }

export interface LimitEngine {
  /** All cells checked, then all taken or none, in one atomic step (LIM-2, LIM-3). */
  admit(request: AdmitRequest): MaybePromise<Admission>
  /**
   * Ends a reservation, once (a second call for one id does nothing): slots go back, every other cell is corrected from what was reserved to
   * `finals[i]` (0 gives everything back). Never throws; kept and delivered later, also when the engine is down: `finals` must not change.
   */
  settle(org: string, id: string, finals: readonly number[], now: number): void
  /** Present use of cells, for the dashboard and /v1/models; takes nothing. */
  peek(org: string, cells: readonly Cell[], now: number): MaybePromise<CellState[]>
}

// ---- ledger -----------------------------------------------------------------------------------------------------------

export type Outcome =
  | 'completed'
  | 'incomplete'
  | 'client_gone'
  | 'upstream_error'
  | 'gateway_error'
  | 'refused'
  | 'replayed'
  | 'lost'

/** Written before dispatch (decisions 26). */
export interface LedgerIntent {
  request_id: string
  /** Unix milliseconds. */
  time: number
  organization: string
  key_id: string
  surface: string
  /** Canonical public id; '' on proxy routes. */
  model: string
  price_book: string
  billing: 'standard' | 'free'
  /** Metered prompt tokens. */
  input_tokens: number
}
/** One per intent (BILL-4). */
export interface LedgerOutcome {
  request_id: string
  provider: string
  outcome: Outcome
  /** Zero when nothing is billed (BILL-3). */
  usage: Usage
  /** nano-USD. */
  cost: number
  duration_ms: number
  /** Null when no byte went out. */
  ttfb_ms: number | null
  /** Proxy routes: bytes both ways. */
  bytes_in?: number
  bytes_out?: number
}
export type LedgerRow = LedgerIntent & Omit<LedgerOutcome, 'usage'> & Usage

export interface Ledger {
  /**
   * Durable against a killed process when it returns undefined, or when its promise resolves: what one turn of the event loop brings is one write.
   * Throws or rejects with StoreUnavailable: nothing was written, and the exchange must not be dispatched.
   */
  intent(row: LedgerIntent): undefined | Promise<undefined>
  outcome(row: LedgerOutcome): void
  /** Resolves when all that was given so far can be queried. For tests and shutdown. */
  flush(): Promise<void>
  /** Rows in time order, for `sluice usage`, tests and the dashboard. */
  query(filter: {
    org?: string
    key?: string
    model?: string
    since?: number
    until?: number
    limit?: number
  }): Promise<LedgerRow[]>
}

// ---- idempotency ------------------------------------------------------------------------------------------------------

export interface IdempotencyRecord {
  requestId: string
  status: number
  headers: [string, string][]
  body: Uint8Array
  /** False when the reply was cut (decisions 28): replayed as its bytes and a close without the terminator. */
  whole: boolean
}
export type IdempotencyState =
  | { state: 'first' }
  | { state: 'running' }
  /** The same key with another body or endpoint. */
  | { state: 'conflict' }
  /** Executed, but too large to keep. */
  | { state: 'not_kept'; requestId: string }
  | { state: 'replay'; record: IdempotencyRecord }

export interface IdempotencyStore {
  /** Atomic: of simultaneous first uses exactly one gets `first`, under the instance's lease. */
  begin(
    org: string,
    key: string,
    fingerprint: string,
    requestId: string,
    ttlMs: number,
    now: number,
  ): MaybePromise<IdempotencyState>
  /** Keeps the record (or the mark that it was too large: null). */
  finish(org: string, key: string, record: IdempotencyRecord | null, ttlMs: number, now: number): MaybePromise<void>
  /** The first use did not execute: the key is free again (IDEM-3). */
  release(org: string, key: string): MaybePromise<void>
}

// ---- records ----------------------------------------------------------------------------------------------------------

/** Small private values with a time to live: retained responses, continuation data. Scoped to an organization; values are already sealed. */
export interface RecordStore {
  put(
    org: string,
    kind: 'response' | 'continuation',
    id: string,
    value: Uint8Array,
    ttlMs: number,
    now: number,
  ): MaybePromise<void>
  get(org: string, kind: 'response' | 'continuation', id: string, now: number): MaybePromise<Uint8Array | null>
  /** Several of one kind at once; null where missing. */
  getMany(
    org: string,
    kind: 'response' | 'continuation',
    ids: readonly string[],
    now: number,
  ): MaybePromise<(Uint8Array | null)[]>
  /** Renews the time to live of those that exist. */
  touch(
    org: string,
    kind: 'response' | 'continuation',
    ids: readonly string[],
    ttlMs: number,
    now: number,
  ): MaybePromise<void>
}
