/**
 * One timer for many slow clocks: keep-alives, idle and ceiling limits, retries of a count. A timer for each stream would cost
 * more than the streams' own work; a sweep over a set once a period costs nothing that can be measured.
 */
import type { Clock, Timer } from './clock.ts'
import { DenseSet, type Placed } from './collections.ts'

export interface Ticking extends Placed {
  /** @param now monotonic milliseconds */
  tick(now: number): void
}

export class Ticker {
  readonly #clock: Clock
  readonly #periodMs: number
  readonly #members = new DenseSet<Ticking>()
  #timer: Timer | null = null

  constructor(clock: Clock, periodMs: number) {
    this.#clock = clock
    this.#periodMs = periodMs
  }

  add(member: Ticking): void {
    this.#members.add(member)
    this.#timer ??= this.#clock.setTimer(this.#periodMs, this.#sweep)
  }

  delete(member: Ticking): void {
    this.#members.delete(member)
  }

  get size(): number {
    return this.#members.size
  }

  readonly #sweep = (): void => {
    this.#timer = null
    const now = this.#clock.mono()
    this.#members.forEach(member => {
      member.tick(now)
    })
    if (this.#members.size > 0) this.#timer ??= this.#clock.setTimer(this.#periodMs, this.#sweep)
  }
}
