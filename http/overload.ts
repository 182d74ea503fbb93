/**
 * Sheds load before latency collapses: the ingress refuses new requests while the event loop lags, or while far more
 * run than the platform allows. Running exchanges continue. The limits of accounts are the task of admission
 * (LIM-10); this guard protects the process, whatever the chain does.
 */

import { type Budget, counter, gauge } from '../core/engine/budget.ts'
import type { Clock, Timer } from '../core/tools/clock.ts'

/** The present lag of the event loop that its own work causes, in milliseconds. */
export interface LagProbe {
  lagMs(): number
  /** Set while load is shed: event-loop turns of a few milliseconds must then be distinguished from longer ones. */
  closely?: boolean
  close(): void
}

/** The section `platform` of the configuration, as far as it is about overload. */
export interface Bounds {
  readonly max_concurrent_requests: number
  /**
   * From this lag on, in milliseconds, the number of young exchanges is limited. (At the default, a burst on a cold
   * process causes about half of it.) What an exchange costs is known only later, when its upstream sends data, so the
   * limit is on exchanges that run, not on requests that arrive at one moment.
   */
  readonly overload_delay: number
}

/** An exchange that has run for longer than this is not young: an open stream costs little, and nothing can be refused. */
const YOUNG_MS = 1000
const SLOTS = 10
const SLOT_MS = YOUNG_MS / SLOTS

/**
 * Counts young exchanges and those of each tenant, to a tenth of `YOUNG_MS`. The number that may run at a time bounds
 * the work of fast exchanges in an event-loop turn; of slow ones, it is about the number that may begin in a second.
 * Were all exchanges counted, open streams would keep every new request out.
 */
export class YoungExchanges {
  readonly #clock: Clock
  /** How many exchanges of each tenant run that began in each of the last slots. */
  readonly #slots = Array.from({ length: SLOTS }, () => new Map<string, number>())
  #slot: number
  #count = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#slot = this.#now()
  }

  get count(): number {
    this.#advance()
    return this.#count
  }

  /** How many tenants have a young exchange. */
  get tenants(): number {
    this.#advance()
    return new Set(this.#slots.flatMap(slot => [...slot.keys()])).size
  }

  of(tenant: string): number {
    this.#advance()
    let count = 0
    for (const slot of this.#slots) count += slot.get(tenant) ?? 0
    return count
  }

  started(tenant: string): void {
    this.#advance()
    const slot = this.#slots[this.#slot % SLOTS]!
    slot.set(tenant, (slot.get(tenant) ?? 0) + 1)
    this.#count++
  }

  /** @param ms how long the exchange has run */
  ended(tenant: string, ms: number): void {
    if (ms >= YOUNG_MS - SLOT_MS) return
    this.#advance()
    const at = this.#slot - Math.floor(ms / SLOT_MS)
    // By rounding, its slot may be the neighbour, which may have no more to give; then it is counted until it is old.
    for (const slot of [this.#slots[at % SLOTS]!, this.#slots[(at - 1) % SLOTS]!]) {
      const count = slot.get(tenant)
      if (count === undefined) continue
      if (count === 1) slot.delete(tenant)
      else slot.set(tenant, count - 1)
      this.#count--
      return
    }
  }

  #now(): number {
    // The remainder of a negative number would be negative.
    return SLOTS + Math.floor(this.#clock.mono() / SLOT_MS)
  }

  /** Forgets the slots that are old now. */
  #advance(): void {
    const now = this.#now()
    if (now === this.#slot) return
    const passed = Math.min(SLOTS, now - this.#slot)
    for (let i = 1; i <= passed; i++) {
      const slot = this.#slots[(now - passed + i) % SLOTS]!
      for (const count of slot.values()) this.#count -= count
      slot.clear()
    }
    this.#slot = now
  }
}

/**
 * While load is shed, the lag is kept below `overload_delay` divided by this. A refusal takes one event-loop turn, and
 * so do several steps of an exchange: short turns make both fast, and few running exchanges keep the processor's caches
 * and the young generation small. Without the distance between the two, every gateway at its peak would refuse requests
 * that it could serve a little later.
 */
const CALM = 20
/**
 * This many young exchanges may always run: their work in one event-loop turn is bounded, so lag with fewer has another
 * cause.
 */
const MIN_RUNNING = 64
/**
 * The limit is adjusted this often, in milliseconds: to a half while the lag is above `overload_delay`, to four fifths
 * while it is not yet calm, up by a twentieth while it is.
 */
const ADJUST_MS = 100
const DECREASE_FAST = 0.5
const DECREASE = 0.8
const INCREASE = 1.05
/** Tenants below their share are admitted up to this many times the limit. */
const FAIR = 1.25
/** A limit above this is removed. */
const MAX_LIMIT = 1e6

/**
 * From this multiple of `overload_delay` on, a share of new requests is refused however few exchanges run. It protects
 * against requests that cost much before anything is sent upstream (large bodies, floods with bad keys).
 */
const SHED_LAG = 2
/** From this multiple on, all but `MIN_SHARE` of new requests are refused. */
const SHED_MOST_LAG = 6
/** The share of new requests that is always admitted, since only their work can show that the lag has ended. */
const MIN_SHARE = 0.05
/**
 * Up to this many times `platform.max_concurrent_requests` exchanges may run, since some have not reached admission
 * yet.
 */
const HEADROOM = 1.25

export const youngBudget: Budget = {
  name: 'young_exchanges',
  bound: 'young exchanges while load is shed',
  owner: 'tenant',
  each: 'the limit of all divided by the tenants that have one',
  all: `a limit that the lag of the event loop sets, at least ${MIN_RUNNING}`,
  over: '503 `route_capacity`',
  seen: '`sluice_shed_total{reason="lag"}`, `sluice_shed_running_limit`',
  metrics: [
    counter(
      'sluice_shed_total',
      'Requests refused at once to shed load, so that those that run can finish.',
      ({ shedding }) => shedding.shed,
      'reason',
    ),
    gauge(
      'sluice_shed_running_limit',
      'Most young exchanges that may run while load is shed; 0 while it is not.',
      ({ shedding }) => shedding.limit,
    ),
  ],
}

type Young = Pick<YoungExchanges, 'count' | 'tenants' | 'of'>

/** Decides for each new request whether it is admitted. */
export class OverloadGuard {
  readonly #probe: LagProbe
  readonly #random: () => number
  readonly #clock: Clock
  /** A new exchange is admitted while fewer young ones than this run. Finite while load is shed. */
  #limit = Number.POSITIVE_INFINITY
  /** A tenant with fewer young exchanges than this is admitted above the limit, too: others hold the places. */
  #share = 0
  /** When the limit was last adjusted (monotonic milliseconds). */
  #adjustedAt: number
  /** Requests refused so far, by reason, for metrics. */
  readonly shed = { lag: 0, in_flight: 0 }

  constructor(probe: LagProbe, random: () => number, clock: Clock) {
    this.#probe = probe
    this.#random = random
    this.#clock = clock
    this.#adjustedAt = clock.mono()
  }

  /** How many young exchanges may run while load is shed; 0 while it is not. */
  get limit(): number {
    return this.#limit === Number.POSITIVE_INFINITY ? 0 : Math.floor(this.#limit)
  }

  /**
   * Whether a new request must be refused.
   * @param running how many exchanges run
   * @param young which of them are young; read only while it matters
   */
  refuses(tenant: string, running: number, young: Young, { max_concurrent_requests, overload_delay }: Bounds): boolean {
    if (running >= max_concurrent_requests * HEADROOM) {
      this.shed.in_flight++
      return true
    }
    const lag = this.#probe.lagMs()
    this.#adjust(lag, young, overload_delay)
    if (this.#limit === Number.POSITIVE_INFINITY || this.#hasPlace(tenant, young)) {
      const share = shareAt(lag, overload_delay)
      if (share === 1 || this.#random() < share) return false
    }
    this.shed.lag++
    return true
  }

  #hasPlace(tenant: string, young: Young): boolean {
    const { count } = young
    return count < this.#limit || (count < this.#limit * FAIR && young.of(tenant) < this.#share)
  }

  /**
   * Adjusts the limit. This happens only when a request arrives; an increase then covers all periods since the last
   * time.
   */
  #adjust(lag: number, young: Young, overloadDelay: number): void {
    const now = this.#clock.mono()
    const periods = Math.floor((now - this.#adjustedAt) / ADJUST_MS)
    if (periods === 0) return
    this.#adjustedAt = now
    const shedding = this.#limit !== Number.POSITIVE_INFINITY
    if (lag >= overloadDelay) this.#lower(young.count, DECREASE_FAST)
    else if (shedding && lag >= overloadDelay / CALM) {
      // Young exchanges far above the limit end or grow old. Until then the lag is that of the former limit.
      if (young.count <= this.#limit * FAIR) this.#lower(young.count, DECREASE)
    } else if (shedding) {
      this.#limit *= INCREASE ** periods
      if (this.#limit > MAX_LIMIT) this.#limit = Number.POSITIVE_INFINITY
    }
    this.#probe.closely = this.#limit !== Number.POSITIVE_INFINITY
    if (this.#probe.closely) this.#share = this.#limit / Math.max(1, young.tenants)
  }

  #lower(young: number, to: number): void {
    this.#limit = Math.max(MIN_RUNNING, Math.min(this.#limit, young) * to)
  }

  close(): void {
    this.#probe.close()
  }
}

/** The share of new requests that is admitted at this lag, however few exchanges run. */
export function shareAt(lagMs: number, overloadDelay: number): number {
  const from = SHED_LAG * overloadDelay
  if (lagMs <= from) return 1
  return Math.max(MIN_SHARE, 1 - (lagMs - from) / (SHED_MOST_LAG * overloadDelay - from))
}

/**
 * Period of the timer whose lag is measured, in milliseconds. An event-loop turn shorter than it shows as no lag. The
 * short period wakes an idle process 500 times a second, so it is only for one that sheds load.
 */
const PERIOD_MS = 20
const CLOSE_PERIOD_MS = 2

/** The CPU time of this thread so far, in milliseconds. Where Node cannot tell, that of all threads of the process. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage?.() ?? process.cpuUsage()
  return (user + system) / 1000
}

/**
 * Measures how late a timer fires, as far as the thread's own work made it late. Where other programs had the core
 * meanwhile, the thread used less CPU time than passed: with fewer requests it would be as late, so nobody is refused
 * for that.
 *
 * Only lag that lasts counts: the smaller of two measurements in a row, so that a single delay (a large body, a garbage
 * collection, a machine that slept) does not. The running measurement counts as soon as it is late, so that the
 * requests that wait behind a long event-loop turn are refused already, instead of all being admitted.
 */
export class TimerLag implements LagProbe {
  readonly #clock: Clock
  readonly #cpuMs: () => number
  closely = false
  #timer: Timer
  /** The period of the timer that is set, in milliseconds. */
  #period = PERIOD_MS
  /** When the timer should fire (monotonic milliseconds). */
  #due: number
  /** The thread's CPU time when the timer was set. */
  #cpuAtSet: number
  /** The two latest measurements, in milliseconds. */
  #last = 0
  #before = 0

  /** @param cpu the CPU time of this thread so far, in milliseconds */
  constructor(clock: Clock, cpu: () => number = cpuMs) {
    this.#clock = clock
    this.#cpuMs = cpu
    this.#cpuAtSet = cpu()
    this.#due = clock.mono() + PERIOD_MS
    this.#timer = clock.setTimer(PERIOD_MS, this.#measure)
  }

  lagMs(): number {
    // What runs now counts only above what was measured before, and at most as much as that.
    if (this.#last <= this.#before) return this.#last
    return Math.min(this.#last, Math.max(this.#before, this.#late()))
  }

  /** By how much the timer is late by the thread's own work, in milliseconds. It may have worked while it waited. */
  #late(): number {
    const late = this.#clock.mono() - this.#due
    return late <= 0 ? 0 : Math.min(late, Math.max(0, this.#cpuMs() - this.#cpuAtSet - this.#period))
  }

  close(): void {
    this.#timer.cancel()
  }

  readonly #measure = (): void => {
    this.#before = this.#last
    this.#last = this.#late()
    this.#period = this.closely ? CLOSE_PERIOD_MS : PERIOD_MS
    this.#cpuAtSet = this.#cpuMs()
    this.#due = this.#clock.mono() + this.#period
    this.#timer = this.#clock.setTimer(this.#period, this.#measure)
  }
}
