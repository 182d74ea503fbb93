/**
 * A budget that is the same for every call needs one timer for all of them: they run out in the order in which they began. A call's time begins when the turn of the event
 * loop that made it has ended: it is written then. And it is not over before its connection has been read once more: after a turn longer than the budget the answers of
 * that time are all there, but timers come first.
 */
export interface Pending {
  readonly isSettled: boolean
  reject(error: Error): void
}

/** Calls that have been answered and still stand at the front of the queue, before it is cut. */
const CUT = 1024
const ENDED: Pending = { isSettled: true, reject() {} }

export class Deadlines {
  readonly #budget: number
  readonly #late: () => Error
  /** Oldest first, from `#first` on. The last ones have no due yet: they are of this turn. */
  #calls: (Pending | undefined)[] = []
  #dues: number[] = []
  #first = 0
  #turn = false
  #timer: NodeJS.Timeout | undefined

  /** `late` makes the error of a call whose budget has passed. */
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

  /** Lets go of calls that have ended: kept until their time is over, thousands of them would be copied about by the garbage collector. */
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
    // A call keeps its connection open, and that keeps the process; calls that have ended must not.
    this.#timer = setTimeout(() => setImmediate(this.#look), Math.ceil(ms)).unref()
  }

  readonly #look = (): void => {
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
