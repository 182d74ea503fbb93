/**
 * Limits the requests in flight, with a bounded queue in front (ERR-6). Organizations take turns in the queue; within
 * one of them, first come, first served.
 */
import type { Budget } from '../../core/engine/budget.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { FairQueue } from '../../core/tools/fair.ts'

/** Why there is no room: the queue was full, or the wait took too long. `waitedMs`: how long the request waited. */
export type Refusal = { reason: 'full' | 'waited'; waitedMs: number }

interface Waiting {
  since: number
  timer: Timer
  /** Called once: null gives the place. */
  go: (refused: Refusal | null) => void
}

export const queueBudget: Budget = {
  name: 'provider_queue',
  bound: 'requests that wait for a place at a provider',
  owner: 'tenant',
  each: 'by turns; in a full queue whoever has most gives room to whoever has less',
  all: '`queue.max` of the provider: 1,000, for `queue.wait`: 2 s',
  over: '503 `route_capacity`',
  seen: '`sluice_provider_queued`, `sluice_provider_refused`',
}

export class Gate {
  readonly #capacity: number
  readonly #queueMax: number
  readonly #waitMs: number
  #inFlight = 0
  #refused = 0
  readonly #queue = new FairQueue<Waiting>()

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
   * caller must then call `leave`), else with the refusal. When the queue is full, the organization with most waiting
   * requests gives up its newest one for an organization with fewer.
   * @returns a function that gives up waiting; null when `go` was already called
   */
  wait(clock: Clock, owner: string, go: (refused: Refusal | null) => void): (() => void) | null {
    const since = clock.mono()
    const last = this.#queue.size >= this.#queueMax ? this.#giveWay(owner) : null
    if (last === undefined) {
      this.#refused++
      go({ reason: 'full', waitedMs: 0 })
      return null
    }
    const waiting: Waiting = {
      since,
      go,
      timer: clock.setTimer(this.#waitMs, () => {
        this.#queue.delete(owner, waiting)
        this.#refused++
        go({ reason: 'waited', waitedMs: clock.mono() - since })
      }),
    }
    this.#queue.push(owner, waiting)
    if (last) {
      this.#refused++
      last.timer.cancel()
      last.go({ reason: 'full', waitedMs: since - last.since })
    }
    return () => {
      waiting.timer.cancel()
      this.#queue.delete(owner, waiting)
    }
  }

  leave(): void {
    const next = this.#queue.shift()
    if (!next) {
      this.#inFlight--
      return
    }
    // The place goes to the next in the queue, so the count stays.
    next.timer.cancel()
    next.go(null)
  }

  /**
   * Takes the newest request of the organization that has most of them, when that is at least two more than `owner`
   * has.
   */
  #giveWay(owner: string): Waiting | undefined {
    const longest = this.#queue.longest
    if (longest === undefined || this.#queue.waitingOf(longest) <= this.#queue.waitingOf(owner) + 1) return undefined
    return this.#queue.pop(longest)
  }
}
