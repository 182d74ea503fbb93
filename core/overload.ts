/**
 * Sheds load before latency collapses: new requests are refused at the door while the event loop lags, or while far more run than the platform
 * allows. What already runs goes on. Limits of accounts are admission's (LIM-10); this guard protects the process, whatever the chain does.
 */
import type { Clock, Timer } from './clock.ts'

/** How late the event loop is now, milliseconds. */
export interface LagProbe {
  lagMs(): number
  close(): void
}

/** Below this lag nothing is shed: a large body or a garbage collection alone may cost so much. */
const CALM_MS = 200
/** From this lag on all but `LEAST_SHARE` of new requests are refused. */
const FULL_MS = 800
/** Some are always let in: only they can show that the lag is over. */
const LEAST_SHARE = 0.05
/** Exchanges beyond `platform.max_concurrent_requests` that may be on their way to admission. */
const HEADROOM = 1.25

export class OverloadGuard {
  readonly #probe: LagProbe
  readonly #random: () => number
  /** Requests refused so far, for metrics. */
  shed = 0

  constructor(probe: LagProbe, random: () => number) {
    this.#probe = probe
    this.#random = random
  }

  /** Whether a new request is to be refused. @param capacity `platform.max_concurrent_requests` */
  refuses(running: number, capacity: number): boolean {
    const refused = running >= capacity * HEADROOM || this.#random() >= shareAt(this.#probe.lagMs())
    if (refused) this.shed++
    return refused
  }

  close(): void {
    this.#probe.close()
  }
}

/** Share of new requests that are let in at a lag. */
export function shareAt(lagMs: number): number {
  if (lagMs <= CALM_MS) return 1
  return Math.max(LEAST_SHARE, 1 - (lagMs - CALM_MS) / (FULL_MS - CALM_MS))
}

const PERIOD_MS = 50
/** A machine that slept, or a process that was stopped, is not overloaded for minutes. */
const MOST_MS = 2000
/** Weight of the newest measurement: a single stall of 500 ms does not shed, three in a row do. */
const WEIGHT = 0.3

/** Measures how late a timer comes, smoothed. */
export class TimerLag implements LagProbe {
  readonly #clock: Clock
  #timer: Timer
  #due: number
  #smoothed = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#due = clock.mono() + PERIOD_MS
    this.#timer = clock.setTimer(PERIOD_MS, this.#measure)
  }

  lagMs(): number {
    return this.#smoothed
  }

  close(): void {
    this.#timer.cancel()
  }

  readonly #measure = (): void => {
    const now = this.#clock.mono()
    const late = Math.min(Math.max(0, now - this.#due), MOST_MS)
    this.#smoothed += WEIGHT * (late - this.#smoothed)
    this.#due = now + PERIOD_MS
    this.#timer = this.#clock.setTimer(PERIOD_MS, this.#measure)
  }
}
