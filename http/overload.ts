/**
 * Sheds load before latency collapses: the ingress refuses new requests while the event loop lags, or while far more
 * run than the platform allows. Running exchanges continue. The limits of accounts are the task of admission
 * (LIM-10); this guard protects the process, whatever the chain does.
 */
import type { Clock, Timer } from '../core/clock.ts'

/** The present lag of the event loop, in milliseconds. */
export interface LagProbe {
  lagMs(): number
  close(): void
}

/**
 * From this lag on, in milliseconds, the number of running exchanges is limited. (A burst on a cold process causes
 * about half of this lag.) What an exchange costs is known only later, when its upstream sends data, so the limit is
 * on running exchanges, not on requests that arrive at one moment.
 */
const LIMIT_LAG_MS = 200
/**
 * This many exchanges may always run: their work in one event-loop turn is bounded, so lag with fewer has another
 * cause.
 */
const MIN_RUNNING = 64
/**
 * The limit is adjusted this often, in milliseconds: down to four fifths while the loop is late, up by a twentieth
 * while it is not.
 */
const ADJUST_MS = 100
const DECREASE = 0.8
const INCREASE = 1.05
/** A limit above this is removed. */
const MAX_LIMIT = 1e6

/**
 * From this lag on, in milliseconds, a share of new requests is refused however few exchanges run. It protects
 * against requests that cost much before anything is sent upstream (large bodies, floods with bad keys).
 */
const SHED_LAG_MS = 400
/** From this lag on, in milliseconds, all but `MIN_SHARE` of new requests are refused. */
const SHED_MOST_LAG_MS = 1200
/** The share of new requests that is always admitted, since only their work can show that the lag has ended. */
const MIN_SHARE = 0.05
/**
 * Up to this many times `platform.max_concurrent_requests` exchanges may run, since some have not reached admission
 * yet.
 */
const HEADROOM = 1.25

/** Decides for each new request whether it is admitted. */
export class OverloadGuard {
  readonly #probe: LagProbe
  readonly #random: () => number
  readonly #clock: Clock
  /** A new exchange is admitted while fewer than this many run. */
  #limit = Number.POSITIVE_INFINITY
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

  /**
   * Whether a new request must be refused.
   * @param capacity `platform.max_concurrent_requests`
   */
  refuses(running: number, capacity: number): boolean {
    if (running >= capacity * HEADROOM) {
      this.shed.in_flight++
      return true
    }
    const lag = this.#probe.lagMs()
    this.#adjust(lag, running)
    if (running < this.#limit) {
      const share = shareAt(lag)
      if (share === 1 || this.#random() < share) return false
    }
    this.shed.lag++
    return true
  }

  /**
   * Adjusts the limit. This happens only when a request arrives; an increase then covers all periods since the last
   * time.
   */
  #adjust(lag: number, running: number): void {
    const now = this.#clock.mono()
    const periods = Math.floor((now - this.#adjustedAt) / ADJUST_MS)
    if (periods === 0) return
    this.#adjustedAt = now
    if (lag >= LIMIT_LAG_MS) this.#limit = Math.max(MIN_RUNNING, Math.min(this.#limit, running) * DECREASE)
    else if (this.#limit !== Number.POSITIVE_INFINITY) {
      this.#limit *= INCREASE ** periods
      if (this.#limit > MAX_LIMIT) this.#limit = Number.POSITIVE_INFINITY
    }
  }

  close(): void {
    this.#probe.close()
  }
}

/** The share of new requests that is admitted at this lag, however few exchanges run. */
export function shareAt(lagMs: number): number {
  if (lagMs <= SHED_LAG_MS) return 1
  return Math.max(MIN_SHARE, 1 - (lagMs - SHED_LAG_MS) / (SHED_MOST_LAG_MS - SHED_LAG_MS))
}

/** Period of the timer whose lag is measured, in milliseconds. */
const PERIOD_MS = 20

/**
 * Measures how late a timer fires. Only lag that lasts counts: the smaller of two measurements in a row, so that a
 * single delay (a large body, a garbage collection, a machine that slept) does not. The running measurement counts as
 * soon as it is late, so that the requests that wait behind a long event-loop turn are refused already, instead of
 * all being admitted.
 */
export class TimerLag implements LagProbe {
  readonly #clock: Clock
  #timer: Timer
  /** When the timer should fire (monotonic milliseconds). */
  #due: number
  /** The two latest measurements, in milliseconds. */
  #last = 0
  #before = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#due = clock.mono() + PERIOD_MS
    this.#timer = clock.setTimer(PERIOD_MS, this.#measure)
  }

  lagMs(): number {
    const now = this.#clock.mono() - this.#due
    return Math.min(this.#last, Math.max(this.#before, now))
  }

  close(): void {
    this.#timer.cancel()
  }

  readonly #measure = (): void => {
    const now = this.#clock.mono()
    this.#before = this.#last
    this.#last = Math.max(0, now - this.#due)
    this.#due = now + PERIOD_MS
    this.#timer = this.#clock.setTimer(PERIOD_MS, this.#measure)
  }
}
