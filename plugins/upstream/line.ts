import type { Clock, Timer } from '../../core/tools/clock.ts'
import { FairQueue } from '../../core/tools/fair.ts'

/** Why somebody waited in vain: the line was full, or the wait took too long. `waitedMs`: how long it was. */
export type Refusal = { reason: 'full' | 'waited'; waitedMs: number }

interface Waiting {
  since: number
  timer: Timer
  /** Called once: null when it is its turn. */
  go: (refused: Refusal | null) => void
}

/** How a line is shared, for tables of bounds. */
export const BY_TURNS = 'by turns; in a full queue whoever has most gives room to whoever has less'

/**
 * A bounded line of requests that nobody waits in for longer than a given time. Organizations take turns; within one of
 * them, first come, first served.
 */
export class Line {
  readonly #most: number
  readonly #queue = new FairQueue<Waiting>()
  #refused = 0

  constructor(most: number) {
    this.#most = most
  }

  get size(): number {
    return this.#queue.size
  }
  /** All that waited in vain so far, for metrics. */
  get refused(): number {
    return this.#refused
  }

  /**
   * Calls `go` once, at once or later: with null when it is its turn, else with the refusal. When the line is full, the
   * organization with most waiting requests gives up its newest one for an organization with fewer.
   * @returns a function that gives up waiting; null when `go` was already called
   */
  wait(clock: Clock, owner: string, ms: number, go: (refused: Refusal | null) => void): (() => void) | null {
    const since = clock.mono()
    const last = this.#queue.size >= this.#most ? this.#giveWay(owner) : null
    if (last === undefined) {
      this.#refused++
      go({ reason: 'full', waitedMs: 0 })
      return null
    }
    const waiting: Waiting = {
      since,
      go,
      timer: clock.setTimer(ms, () => {
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

  /**
   * It is the turn of the next one.
   * @param may whose turn it can be; default: everybody's
   * @returns false when there is none
   */
  next(may?: (owner: string) => boolean): boolean {
    const next = this.#queue.shift(may)
    if (!next) return false
    next.timer.cancel()
    next.go(null)
    return true
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
