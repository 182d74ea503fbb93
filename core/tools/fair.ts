/**
 * Waiting that is fair between owners, which are organizations: each owner has a line of its own, and the lines take
 * turns. However long one owner's line is, another owner waits for at most one of its entries.
 */

import type { Clock } from './clock.ts'

/** A queue with one line for each owner. */
export class FairQueue<T> {
  /** In the order of their turns. No line is empty. */
  readonly #lines = new Map<string, Set<T>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** The owner with the longest line; undefined when nothing waits. */
  get longest(): string | undefined {
    let longest: string | undefined
    let most = 0
    for (const [owner, { size }] of this.#lines) {
      if (size <= most) continue
      most = size
      longest = owner
    }
    return longest
  }

  /** How many entries of this owner wait. */
  waitingOf(owner: string): number {
    return this.#lines.get(owner)?.size ?? 0
  }

  push(owner: string, item: T): void {
    const line = this.#lines.get(owner)
    if (line) line.add(item)
    else this.#lines.set(owner, new Set([item]))
    this.#size++
  }

  /** @param may whether it can be this owner's turn; default: always */
  shift(may?: (owner: string) => boolean): T | undefined {
    for (const [owner, line] of this.#lines) {
      if (may && !may(owner)) continue
      const [first] = line
      this.delete(owner, first!)
      // The owner's next turn comes after everyone else's.
      if (line.size > 0) {
        this.#lines.delete(owner)
        this.#lines.set(owner, line)
      }
      return first
    }
    return undefined
  }

  /** Removes and returns the newest entry of this owner. */
  pop(owner: string): T | undefined {
    const last = [...(this.#lines.get(owner) ?? [])].at(-1)
    if (last !== undefined) this.delete(owner, last)
    return last
  }

  /** @returns false when the entry does not wait */
  delete(owner: string, item: T): boolean {
    const line = this.#lines.get(owner)
    if (!line?.delete(item)) return false
    if (line.size === 0) this.#lines.delete(owner)
    this.#size--
    return true
  }
}

/** A number of places that callers wait for. */
export class FairGate {
  readonly #places: number
  readonly #each: number
  readonly #held = new Map<string, number>()
  readonly #waiting = new FairQueue<{ go: () => void; refuse: (reason: unknown) => void }>()
  #running = 0

  /** @param each the most places that one owner may hold; default: all */
  constructor(places: number, each = places) {
    this.#places = places
    this.#each = each
  }

  get running(): number {
    return this.#running
  }
  get waiting(): number {
    return this.#waiting.size
  }

  /**
   * Waits for a place.
   * @returns the function that gives the place back; call it once
   * @throws (rejects) the signal's reason when it is aborted first, or the reason of `refuseAll`
   */
  async enter(owner: string, signal?: AbortSignal): Promise<() => void> {
    signal?.throwIfAborted()
    if (this.#running < this.#places && this.#hasRoom(owner)) this.#take(owner)
    else {
      await new Promise<void>((resolve, reject) => {
        const abort = () => {
          if (this.#waiting.delete(owner, entry)) reject(signal!.reason)
        }
        const entry = {
          go: () => {
            signal?.removeEventListener('abort', abort)
            this.#take(owner)
            resolve()
          },
          refuse: (reason: unknown) => {
            signal?.removeEventListener('abort', abort)
            reject(reason)
          },
        }
        signal?.addEventListener('abort', abort, { once: true })
        this.#waiting.push(owner, entry)
      })
    }
    return () => this.#leave(owner)
  }

  /** Refuses all that wait. */
  refuseAll(reason: unknown): void {
    for (let entry = this.#waiting.shift(); entry; entry = this.#waiting.shift()) entry.refuse(reason)
  }

  readonly #hasRoom = (owner: string): boolean => (this.#held.get(owner) ?? 0) < this.#each

  #take(owner: string): void {
    this.#running++
    this.#held.set(owner, (this.#held.get(owner) ?? 0) + 1)
  }

  #leave(owner: string): void {
    this.#running--
    const held = this.#held.get(owner)! - 1
    if (held === 0) this.#held.delete(owner)
    else this.#held.set(owner, held)
    this.#waiting.shift(this.#hasRoom)?.go()
  }
}

/** A turn of the event loop up to this long needs no rest, ms. */
const SHORT_TURN_MS = 4
/** No rest is longer, ms: a process that was suspended meanwhile has not worked. */
const LONGEST_REST_MS = 100

/** Event-loop turns for long work on the event loop: one slice of work in each turn, owners by turns. */
export class FairTurns {
  readonly #waiting = new FairQueue<() => void>()
  readonly #rests: { readonly clock: Clock; readonly times: number } | undefined
  /** When the first slice of this event-loop turn began; it asks for the next as it begins. Only with rests. */
  #began: number | undefined
  #resting = false

  /** @param rests after a long turn all wait `times` as long as it took, so that others have the loop meanwhile */
  constructor(rests?: { readonly clock: Clock; readonly times: number }) {
    this.#rests = rests
  }

  /** Slices that wait for their turn. */
  get waiting(): number {
    return this.#waiting.size
  }

  /** Resolves at the beginning of an event-loop turn that is this caller's alone. */
  next(owner: string): Promise<void> {
    return new Promise(resolve => {
      this.#waiting.push(owner, resolve)
      if (this.#resting) return
      this.#began ??= this.#rests?.clock.mono()
      if (this.#waiting.size === 1) setImmediate(this.#run)
    })
  }

  readonly #run = (): void => {
    const began = this.#began
    this.#began = undefined
    if (began !== undefined) {
      const { clock, times } = this.#rests!
      const took = clock.mono() - began
      if (took > SHORT_TURN_MS) {
        this.#resting = true
        clock.setTimer(Math.min(took * times, LONGEST_REST_MS), this.#rested)
        return
      }
    }
    this.#waiting.shift()?.()
    if (this.#waiting.size > 0) setImmediate(this.#run)
  }

  readonly #rested = (): void => {
    this.#resting = false
    this.#run()
  }
}

/**
 * Event-loop turns for work that takes long in one piece. An owner has one of them at a time, and after it he rests for
 * `times` as long as the work took, up to `LONGEST_REST_MS`.
 */
export class RestingTurns {
  readonly #turns: FairTurns
  readonly #clock: Clock
  readonly #times: number
  readonly #gate = new FairGate(Number.POSITIVE_INFINITY, 1)

  constructor(turns: FairTurns, clock: Clock, times: number) {
    this.#turns = turns
    this.#clock = clock
    this.#times = times
  }

  /** Work that has its turn or waits for it, with its rest; and work that waits for other work of its owner. */
  get running(): number {
    return this.#gate.running
  }
  get waiting(): number {
    return this.#gate.waiting
  }

  /**
   * Resolves at the beginning of a turn that is this caller's alone.
   * @throws (rejects) the signal's reason when it is aborted first
   */
  async next(owner: string, signal?: AbortSignal): Promise<void> {
    const leave = await this.#gate.enter(owner, signal)
    await this.#turns.next(owner)
    const clock = this.#clock
    const began = clock.mono()
    const rest = () => void clock.setTimer(Math.min((clock.mono() - began) * this.#times, LONGEST_REST_MS), leave)
    // What Node's next tick runs comes after all that promises have queued: after the work.
    queueMicrotask(() => process.nextTick(rest))
  }
}
