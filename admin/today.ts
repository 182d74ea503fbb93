/**
 * The running UTC day: requests, tokens, revenue and failures by the ledger, so that they outlast a restart and are
 * those of all gateways on one store, with the models and organizations that bring most of it, and the day before beside
 * it; the time to first byte and refusals by this process, since the ledger has neither.
 */
import { periodIndex, periodStart } from '../core/canon/limits.ts'
import type { Store, UsageSum } from '../core/ports/store.ts'
import { quantilesOf } from './quantiles.ts'

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** The ledger is read at most so often, milliseconds, and takes at most one part in fifty of the time. */
const LEAST_WAIT_MS = 5000
const SHARE = 50
/** So many models and organizations are shown: those that bring most. */
const SHOWN = 5
/** Of more organizations in a day than this nobody's share is told, to keep the memory small. */
const MOST_ORGANIZATIONS = 10_000

/** What the ledger has of a day, or of a part of it. */
export interface LedgerSum {
  requests: number
  input: number
  output: number
  /** nano-USD. */
  cost: number
  /** Exchanges that failed upstream or here, or whose end is not known. */
  failed: number
}

export interface Named extends LedgerSum {
  name: string
}

export interface LedgerDay extends LedgerSum {
  /** Those that bring most, by revenue. */
  models: Named[]
  /** The same; null when there are too many. */
  organizations: Named[] | null
}

export interface TodayRow {
  /** When the day began, Unix milliseconds. */
  since: number
  /** Null until the ledger was read, and while the store does not answer. */
  ledger: LedgerDay | null
  /** The day before until `until`, Unix milliseconds: as long as today will be at the end of the running hour. */
  before: { until: number; ledger: LedgerSum } | null
  /** From when on refusals and times are counted, Unix milliseconds: from the start of the process at the earliest. */
  countedSince: number
  refused: number
  /** Milliseconds; null when no reply has begun. */
  ttfb99: number | null
}

const dayOf = (now: number) => periodStart('day', periodIndex('day', now))

const FAILED = new Set(['upstream_error', 'gateway_error', 'lost'])

/** The end of the running hour: up to there sums are taken, and no row is read. */
const hourEnd = (now: number) => Math.ceil((now + 1) / HOUR_MS) * HOUR_MS

const noSum = (): LedgerSum => ({ requests: 0, input: 0, output: 0, cost: 0, failed: 0 })

function add(to: LedgerSum, { requests, input, output, cost, outcome }: UsageSum): void {
  to.requests += requests
  to.input += input
  to.output += output
  to.cost += cost
  if (FAILED.has(outcome)) to.failed += requests
}

/** Sums the rows of whole hours. Rejects with StoreUnavailable. @param since and `until` are Unix milliseconds */
export async function ledgerDay(store: Pick<Store, 'usage'>, since: number, until: number): Promise<LedgerDay> {
  const day = noSum()
  const models = new Map<string, LedgerSum>()
  let organizations: Map<string, LedgerSum> | null = new Map()
  for await (const page of store.usage({ since, until, by: ['organization', 'model', 'outcome'] }))
    for (const sum of page) {
      add(day, sum)
      add(of(models, sum.model), sum)
      if (organizations) add(of(organizations, sum.organization), sum)
      if (organizations && organizations.size > MOST_ORGANIZATIONS) organizations = null
    }
  return { ...day, models: foremost(models), organizations: organizations && foremost(organizations) }
}

function of(sums: Map<string, LedgerSum>, name: string): LedgerSum {
  let sum = sums.get(name)
  if (!sum) sums.set(name, (sum = noSum()))
  return sum
}

const foremost = (sums: Map<string, LedgerSum>): Named[] =>
  [...sums]
    .map(([name, sum]) => ({ name, ...sum }))
    .sort((a, b) => b.cost - a.cost || b.requests - a.requests)
    .slice(0, SHOWN)

/** `ledgerDay` of some store; undefined when nobody answers. */
type Read = (since: number, until: number) => Promise<LedgerDay | undefined>

export class Today {
  readonly #read: Read
  #since: number
  #countedSince: number
  #refused = 0
  #ttfb: number[] = []
  #ledger: LedgerDay | null = null
  #before: TodayRow['before'] = null
  #dueAt = Number.NEGATIVE_INFINITY
  #reading = false

  /** @param now Unix milliseconds of the start */
  constructor(read: Read, now: number) {
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
    const found = await this.#read(day, hourEnd(now)).catch(() => undefined)
    const before = found ? await this.#dayBefore(day, hourEnd(now) - DAY_MS) : null
    const took = mono() - began
    this.#dueAt = mono() + Math.max(LEAST_WAIT_MS, SHARE * took)
    this.#reading = false
    this.#turn(now)
    // Midnight may have passed meanwhile.
    if (day !== this.#since) return
    this.#ledger = found ?? null
    if (before) this.#before = before
  }

  /** What is settled: it is read once an hour. */
  async #dayBefore(day: number, until: number): Promise<TodayRow['before']> {
    if (this.#before?.until === until) return this.#before
    const ledger = await this.#read(day - DAY_MS, until).catch(() => undefined)
    if (!ledger) return null
    const { requests, input, output, cost, failed } = ledger
    return { until, ledger: { requests, input, output, cost, failed } }
  }

  row(now: number): TodayRow {
    this.#turn(now)
    const [ttfb99] = quantilesOf(this.#ttfb, [0.99])
    return {
      since: this.#since,
      ledger: this.#ledger,
      before: this.#before,
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
    this.#ledger = this.#before = null
  }
}
