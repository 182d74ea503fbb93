/**
 * One timer for many slow deadlines: keep-alives, idle and ceiling timeouts, repeated counts. A timer for each stream
 * would cost more than the stream's own work; one walk over all members in each period costs nothing measurable.
 */
import type { Clock, Timer } from './clock.ts'
import { DenseSet, type Placed } from './collections.ts'

export interface Ticking extends Placed {
  /** @param now monotonic milliseconds */
  tick(now: number): void
}

/** Calls `tick` of every member once in each period. The timer runs only while there are members. */
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
