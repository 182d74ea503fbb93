/**
 * Timeouts of calls to Redis. All calls have the same timeout, so they expire in the order in which they began, and one
 * timer serves all of them.
 *
 * The time of a call begins when the event-loop turn that made it has ended, because the call is written then. A call
 * does not expire before its connection has been read once more: after a turn that took longer than the timeout, the
 * answers have arrived, but Node runs timers before it reads sockets.
 */
export interface Pending {
  readonly isSettled: boolean
  reject(error: Error): void
}

/** The queue is cut when this many ended calls are at its front. */
const CUT = 1024
const ENDED: Pending = { isSettled: true, reject() {} }

export class Deadlines {
  readonly #budget: number
  readonly #late: () => Error
  /** Calls from the oldest (at `#first`) to the newest. */
  #calls: (Pending | undefined)[] = []
  /**
   * When each call expires (performance.now()), parallel to `#calls`. Calls of this event-loop turn have no entry yet.
   */
  #dues: number[] = []
  #first = 0
  /** Whether `#endTurn` is scheduled. */
  #turn = false
  #timer: NodeJS.Timeout | undefined

  /**
   * @param budget the timeout of every call, ms
   * @param late makes the error with which an expired call rejects
   */
  constructor(budget: number, late: () => Error) {
    this.#budget = budget
    this.#late = late
  }

  add(call: Pending): void {
    this.#calls.push(call)
    if (this.#turn) return
    this.#turn = true
    setImmediate(this.#endTurn)
  }

  readonly #endTurn = (): void => {
    this.#turn = false
    const due = performance.now() + this.#budget
    while (this.#dues.length < this.#calls.length) this.#dues.push(due)
    if (this.#timer === undefined && this.#calls.length > 0) this.#schedule(this.#budget)
  }

  /**
   * Removes ended calls from the front of the queue. If they stayed until they expire, the garbage collector would have
   * to copy thousands of them.
   */
  drop(): void {
    const calls = this.#calls
    while (this.#first < calls.length && calls[this.#first]!.isSettled) calls[this.#first++] = undefined
    if (this.#first === calls.length) {
      calls.length = this.#dues.length = this.#first = 0
    } else if (this.#first >= CUT) {
      calls.splice(0, this.#first)
      this.#dues.splice(0, this.#first)
      this.#first = 0
    }
  }

  #schedule(ms: number): void {
    // The timer must not keep the process alive for calls that have ended. A running call keeps it alive by its socket.
    this.#timer = setTimeout(() => setImmediate(this.#expire), Math.ceil(ms)).unref()
  }

  readonly #expire = (): void => {
    this.#timer = undefined
    const now = performance.now()
    for (let i = this.#first; this.#dues[i]! <= now; i++) {
      const call = this.#calls[i]!
      this.#calls[i] = ENDED
      if (!call.isSettled) call.reject(this.#late())
    }
    this.drop()
    const due = this.#dues[this.#first]
    if (due !== undefined) this.#schedule(Math.max(1, due - now))
  }
}
