/**
 * The running UTC day: requests, tokens, revenue and failures by the ledger, so that they outlast a restart and are
 * those of all gateways on one store; the time to first byte and refusals by this process, since the ledger has neither.
 */
import { periodIndex, periodStart } from '../core/canon/limits.ts'
import type { Store } from '../core/ports/store.ts'
import { quantilesOf } from './quantiles.ts'

const HOUR_MS = 3_600_000
/** The ledger is read at most so often, milliseconds, and takes at most one part in fifty of the time. */
const LEAST_WAIT_MS = 5000
const SHARE = 50

/** What the ledger has of a day. */
export interface LedgerDay {
  requests: number
  input: number
  output: number
  /** nano-USD. */
  cost: number
  /** Exchanges that failed upstream or here, or whose end is not known. */
  failed: number
}

export interface TodayRow {
  /** When the day began, Unix milliseconds. */
  since: number
  /** Null until the ledger was read, and while the store does not answer. */
  ledger: LedgerDay | null
  /** From when on refusals and times are counted, Unix milliseconds: from the start of the process at the earliest. */
  countedSince: number
  refused: number
  /** Milliseconds; null when no reply has begun. */
  ttfb99: number | null
}

const dayOf = (now: number) => periodStart('day', periodIndex('day', now))

const FAILED = new Set(['upstream_error', 'gateway_error', 'lost'])

/** Sums the rows of the UTC day. Rejects with StoreUnavailable. @param now Unix milliseconds */
export async function ledgerDay(store: Pick<Store, 'usage'>, now: number): Promise<LedgerDay> {
  const day: LedgerDay = { requests: 0, input: 0, output: 0, cost: 0, failed: 0 }
  // Up to the end of the running hour, so that its sum is taken and no row is read.
  const until = Math.ceil((now + 1) / HOUR_MS) * HOUR_MS
  for await (const page of store.usage({ since: dayOf(now), until }))
    for (const sum of page) {
      day.requests += sum.requests
      day.input += sum.input
      day.output += sum.output
      day.cost += sum.cost
      if (FAILED.has(sum.outcome)) day.failed += sum.requests
    }
  return day
}

export class Today {
  readonly #read: (now: number) => Promise<LedgerDay | undefined>
  #since: number
  #countedSince: number
  #refused = 0
  #ttfb: number[] = []
  #ledger: LedgerDay | null = null
  #dueAt = Number.NEGATIVE_INFINITY
  #reading = false

  /** @param read undefined when nobody answers @param now Unix milliseconds of the start */
  constructor(read: (now: number) => Promise<LedgerDay | undefined>, now: number) {
    this.#read = read
    this.#since = dayOf(now)
    this.#countedSince = now
  }

  /**
   * Counts what has ended since the last call.
   * @param ttfb as `Quantiles.drain` has it
   */
  ended(now: number, refused: number, ttfb: ArrayLike<number>): void {
    this.#turn(now)
    this.#refused += refused
    for (let i = 0; i < ttfb.length; i++) if (ttfb[i]) this.#ttfb[i] = (this.#ttfb[i] ?? 0) + ttfb[i]!
  }

  /** Reads the ledger if it is due. @param mono a monotonic clock, milliseconds */
  async ask(now: number, mono: () => number): Promise<void> {
    const began = mono()
    if (this.#reading || began < this.#dueAt) return
    this.#reading = true
    const day = dayOf(now)
    const found = await this.#read(now).catch(() => undefined)
    const took = mono() - began
    this.#dueAt = mono() + Math.max(LEAST_WAIT_MS, SHARE * took)
    this.#reading = false
    this.#turn(now)
    // Midnight may have passed meanwhile.
    if (day === this.#since) this.#ledger = found ?? null
  }

  row(now: number): TodayRow {
    this.#turn(now)
    const [ttfb99] = quantilesOf(this.#ttfb, [0.99])
    return {
      since: this.#since,
      ledger: this.#ledger,
      countedSince: this.#countedSince,
      refused: Math.round(this.#refused),
      ttfb99,
    }
  }

  #turn(now: number): void {
    const day = dayOf(now)
    if (day <= this.#since) return
    this.#since = this.#countedSince = day
    this.#refused = 0
    this.#ttfb = []
    this.#ledger = null
  }
}
