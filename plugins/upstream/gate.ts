/** Limits the requests in flight, with a bounded queue in front (ERR-6). First come, first served. */
import type { Clock, Timer } from '../../core/clock.ts'

/** Why there is no room: the queue was full, or the wait took too long. `waitedMs`: how long the request waited. */
export type Refusal = { reason: 'full' | 'waited'; waitedMs: number }

interface Waiting {
  since: number
  timer: Timer
  /** Called once: null gives the place. */
  go: (refused: Refusal | null) => void
}

export class Gate {
  readonly #capacity: number
  readonly #queueMax: number
  readonly #waitMs: number
  #inFlight = 0
  #refused = 0
  readonly #queue = new Set<Waiting>()

  constructor(capacity: number, queueMax: number, waitMs: number) {
    this.#capacity = capacity
    this.#queueMax = queueMax
    this.#waitMs = waitMs
  }

  get inFlight(): number {
    return this.#inFlight
  }
  get queued(): number {
    return this.#queue.size
  }
  get capacity(): number {
    return this.#capacity
  }
  /** All requests refused so far, for metrics. */
  get refused(): number {
    return this.#refused
  }

  /** @returns true when there is room; the caller must then call `leave` */
  enter(): boolean {
    if (this.#inFlight >= this.#capacity) return false
    this.#inFlight++
    return true
  }

  /**
   * Waits for room after `enter` returned false. Calls `go` once, at once or later: with null when there is room (the
   * caller must then call `leave`), else with the refusal.
   * @returns a function that gives up waiting; null when `go` was already called
   */
  wait(clock: Clock, go: (refused: Refusal | null) => void): (() => void) | null {
    if (this.#queue.size >= this.#queueMax) {
      this.#refused++
      go({ reason: 'full', waitedMs: 0 })
      return null
    }
    const since = clock.mono()
    const waiting: Waiting = {
      since,
      go,
      timer: clock.setTimer(this.#waitMs, () => {
        this.#queue.delete(waiting)
        this.#refused++
        go({ reason: 'waited', waitedMs: clock.mono() - since })
      }),
    }
    this.#queue.add(waiting)
    return () => {
      waiting.timer.cancel()
      this.#queue.delete(waiting)
    }
  }

  leave(): void {
    const next = this.#queue.values().next().value
    if (!next) {
      this.#inFlight--
      return
    }
    // The place goes to the next in the queue, so the count stays.
    this.#queue.delete(next)
    next.timer.cancel()
    next.go(null)
  }
}
