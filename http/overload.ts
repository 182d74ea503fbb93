/**
 * Sheds load before latency collapses: new requests are refused at the door while the event loop lags, or while far more run than the platform
 * allows. What already runs goes on. Limits of accounts are admission's (LIM-10); this guard protects the process, whatever the chain does.
 */
import type { Clock, Timer } from '../core/clock.ts'

/** How late the event loop is now, milliseconds. */
export interface LagProbe {
  lagMs(): number
  close(): void
}

/**
 * From this lag on fewer exchanges may run at a time. What each costs is known only later, when its upstream speaks: so it is their number that is held,
 * not what comes in at a moment. A burst that meets a cold process makes half of it.
 */
const LATE_MS = 200
/** So many may always run: what they have to do between two turns of the loop is bounded, and lag with fewer is not of their making. */
const LEAST_RUNNING = 64
/** The number is judged this often: down to four fifths while it is late, up by a twentieth while it is not. */
const JUDGED_MS = 100
const FEWER = 0.8
const MORE = 1.05
/** A limit that has grown so far is none. */
const MOST_RUNNING = 1e6

/** From this lag on some are refused whatever runs, for requests that cost before anything is sent (large bodies, floods with bad keys). */
const CALM_MS = 400
/** From this lag on all but `LEAST_SHARE` of new requests are. */
const FULL_MS = 1200
/** Some are always let in: they may be what shows that the lag is over. */
const LEAST_SHARE = 0.05
/** Exchanges beyond `platform.max_concurrent_requests` that may be on their way to admission. */
const HEADROOM = 1.25

export class OverloadGuard {
  readonly #probe: LagProbe
  readonly #random: () => number
  readonly #clock: Clock
  #limit = Number.POSITIVE_INFINITY
  #judged: number
  /** Requests refused so far by what was too much, for metrics. */
  readonly shed = { lag: 0, in_flight: 0 }

  constructor(probe: LagProbe, random: () => number, clock: Clock) {
    this.#probe = probe
    this.#random = random
    this.#clock = clock
    this.#judged = clock.mono()
  }

  /** Whether a new request is to be refused. @param capacity `platform.max_concurrent_requests` */
  refuses(running: number, capacity: number): boolean {
    if (running >= capacity * HEADROOM) {
      this.shed.in_flight++
      return true
    }
    const lag = this.#probe.lagMs()
    this.#judge(lag, running)
    if (running < this.#limit) {
      const share = shareAt(lag)
      if (share === 1 || this.#random() < share) return false
    }
    this.shed.lag++
    return true
  }

  /** Moves the limit. Between two requests nothing has to: the time since the last is made up for. */
  #judge(lag: number, running: number): void {
    const now = this.#clock.mono()
    const periods = Math.floor((now - this.#judged) / JUDGED_MS)
    if (periods === 0) return
    this.#judged = now
    if (lag >= LATE_MS) this.#limit = Math.max(LEAST_RUNNING, Math.min(this.#limit, running) * FEWER)
    else if (this.#limit !== Number.POSITIVE_INFINITY) {
      this.#limit *= MORE ** periods
      if (this.#limit > MOST_RUNNING) this.#limit = Number.POSITIVE_INFINITY
    }
  }

  close(): void {
    this.#probe.close()
  }
}

/** Share of new requests that are let in at a lag, however few run. */
export function shareAt(lagMs: number): number {
  if (lagMs <= CALM_MS) return 1
  return Math.max(LEAST_SHARE, 1 - (lagMs - CALM_MS) / (FULL_MS - CALM_MS))
}

const PERIOD_MS = 20

/**
 * Measures how late a timer comes. What counts is lag that stands: of two measurements in a row the smaller, so that one stall (a large body, a garbage
 * collection, a machine that slept) is none. The one under way counts as soon as it is late: a turn of the loop that is too long already
 * lets nobody in, instead of all who waited.
 */
export class TimerLag implements LagProbe {
  readonly #clock: Clock
  #timer: Timer
  #due: number
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
