/** Limits the requests in flight, with a bounded line in front (ERR-6). */
import type { Budget } from '../../core/engine/budget.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { BY_TURNS, Line, type Refusal } from './line.ts'

export const queueBudget: Budget = {
  name: 'provider_queue',
  bound: 'requests that wait for a place at a provider',
  owner: 'tenant',
  each: BY_TURNS,
  all: '`queue.max` of the provider: 1,000, for `queue.wait`: 2 s',
  over: '503 `route_capacity`',
  seen: '`sluice_provider_queued`, `sluice_provider_refused`',
}

export class Gate {
  readonly #capacity: number
  readonly #waitMs: number
  readonly #line: Line
  #inFlight = 0

  constructor(capacity: number, queueMax: number, waitMs: number) {
    this.#capacity = capacity
    this.#waitMs = waitMs
    this.#line = new Line(queueMax)
  }

  get inFlight(): number {
    return this.#inFlight
  }
  get queued(): number {
    return this.#line.size
  }
  get capacity(): number {
    return this.#capacity
  }
  /** All requests refused so far, for metrics. */
  get refused(): number {
    return this.#line.refused
  }

  /** @returns true when there is room; the caller must then call `leave` */
  enter(): boolean {
    if (this.#inFlight >= this.#capacity) return false
    this.#inFlight++
    return true
  }

  /** Waits for room after `enter` returned false, as `Line.wait` does. Who gets a place must call `leave`. */
  wait(clock: Clock, owner: string, go: (refused: Refusal | null) => void): (() => void) | null {
    return this.#line.wait(clock, owner, this.#waitMs, go)
  }

  /** The place goes to the next in the line, if there is one. */
  leave(): void {
    // Whoever it is may leave before this returns, so its place is counted all the while.
    if (!this.#line.next()) this.#inFlight--
  }
}
