/**
 * Requests that find no backend, while a trial runs at one that may be well again: they are held until it has had its
 * say, and no longer than `HELD_MS`. A reply may take a minute, and nobody is to be refused for so long.
 *
 * When the backend is open again, they follow in growing numbers: a provider that has just recovered does not get all of
 * them at once.
 */
import type { Budget } from '../../core/engine/budget.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import type { Breaker } from './breaker.ts'
import { BY_TURNS, Line, type Refusal } from './line.ts'

/** Milliseconds. Clients wait for a first token as long, and SDKs for minutes. */
export const HELD_MS = 10_000
/** The most that are held for one backend. */
export const MAX_HELD = 1000
/** Milliseconds between two looks at who may go. */
const STEP_MS = 100

export const heldBudget: Budget = {
  name: 'backend_held',
  bound: 'requests that wait for the trial of a backend that was left out',
  owner: 'tenant',
  each: BY_TURNS,
  all: `${MAX_HELD.toLocaleString('en-US')} for each backend, for ${HELD_MS / 1000} s`,
  over: '503 `provider_unavailable`, to be tried again in a second',
  seen: '`sluice_backend_held`, `sluice_backend_held_in_vain_total`',
}

export class Held {
  readonly #breaker: Breaker
  readonly #line = new Line(MAX_HELD)
  #timer: Timer | undefined
  /** How many may go in one step. */
  #batch = 1
  #going = false

  constructor(breaker: Breaker) {
    this.#breaker = breaker
  }

  get size(): number {
    return this.#line.size
  }
  /** All that were held for too long so far, or found no room. */
  get inVain(): number {
    return this.#line.refused
  }

  /**
   * Holds a request of `owner` for whom `Breaker.awaits` is true. Calls `go` once, with null when it is to look again.
   * @param ms the longest wait
   * @returns a function that gives up waiting; null when `go` was already called
   */
  wait(clock: Clock, owner: string, ms: number, go: (refused: Refusal | null) => void): (() => void) | null {
    const giveUp = this.#line.wait(clock, owner, ms, go)
    if (this.#line.size > 0) this.#timer ??= clock.setTimer(STEP_MS, () => this.#tick(clock))
    return giveUp
  }

  #tick(clock: Clock): void {
    this.#timer = undefined
    this.#step(clock.mono())
    if (this.#line.size > 0) this.#timer ??= clock.setTimer(STEP_MS, () => this.#tick(clock))
    else this.#batch = 1
  }

  /** Something was learned about the backend. @param well false when it may be sick */
  told(now: number, well: boolean): void {
    if (!well) this.#batch = 1
    if (this.#line.size > 0) this.#step(now)
  }

  #step(now: number): void {
    // Whoever goes may fail before this returns.
    if (this.#going) return
    this.#going = true
    const breaker = this.#breaker
    const admits = (owner: string) => breaker.admits(now, owner)
    let gone = 0
    while (gone < this.#batch && this.#line.next(admits)) gone++
    if (gone === this.#batch) this.#batch = Math.min(2 * gone, MAX_HELD)
    // Whose trial has failed or was left learns that it is refused.
    while (this.#line.next(owner => !admits(owner) && !breaker.awaits(now, owner)));
    this.#going = false
  }
}
