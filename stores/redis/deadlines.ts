/** A budget that is the same for every call needs one timer for all of them: they run out in the order in which they began. */
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
  /** Oldest first, from `#first` on. */
  #calls: (Pending | undefined)[] = []
  #dues: number[] = []
  #first = 0
  #timer: NodeJS.Timeout | undefined

  /** `late` makes the error of a call whose budget has passed. */
  constructor(budget: number, late: () => Error) {
    this.#budget = budget
    this.#late = late
  }

  add(call: Pending): void {
    this.#calls.push(call)
    this.#dues.push(performance.now() + this.#budget)
    if (this.#timer === undefined) this.#schedule(this.#budget)
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
    this.#timer = setTimeout(() => this.#look(), Math.ceil(ms)).unref()
  }

  #look(): void {
    this.#timer = undefined
    const now = performance.now()
    for (let i = this.#first; i < this.#calls.length && this.#dues[i]! <= now; i++) {
      const call = this.#calls[i]!
      this.#calls[i] = ENDED
      if (!call.isSettled) call.reject(this.#late())
    }
    this.drop()
    if (this.#calls.length) this.#schedule(Math.max(1, this.#dues[this.#first]! - now))
  }
}
