/** The source of time. It is passed as an argument, so that tests can control it. Durations are in milliseconds. */
export interface Clock {
  /** Wall clock, in Unix milliseconds. */
  now(): number
  /** Monotonic clock in milliseconds, for durations. Its zero is arbitrary. */
  mono(): number
  setTimer(ms: number, fn: () => void): Timer
}
export interface Timer {
  cancel(): void
}

/** Node fires a longer timer at once. Longer times (an option may say 30d) are therefore cut to this, 24.8 days. */
const LONGEST_TIMER_MS = 2 ** 31 - 1

/** The clock of the system. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => Date.now(),
  mono: () => performance.now(),
  setTimer(ms, fn) {
    const t = setTimeout(fn, Math.min(ms, LONGEST_TIMER_MS))
    t.unref?.()
    return { cancel: () => clearTimeout(t) }
  },
}

/** A clock for tests: time passes only in `advance`. */
export class ManualClock implements Clock {
  #now: number
  #timers = new Set<{ at: number; fn: () => void }>()

  constructor(startMs = 1_700_000_000_000) {
    this.#now = startMs
  }
  now(): number {
    return this.#now
  }
  mono(): number {
    return this.#now
  }
  setTimer(ms: number, fn: () => void): Timer {
    const entry = { at: this.#now + ms, fn }
    this.#timers.add(entry)
    return { cancel: () => void this.#timers.delete(entry) }
  }
  /** Moves time forward by `ms` and fires the timers that become due, in order. */
  advance(ms: number): void {
    const end = this.#now + ms
    for (;;) {
      let next: { at: number; fn: () => void } | undefined
      for (const t of this.#timers) if (t.at <= end && (!next || t.at < next.at)) next = t
      if (!next) break
      this.#timers.delete(next)
      this.#now = Math.max(this.#now, next.at)
      next.fn()
    }
    this.#now = end
  }
  get pending(): number {
    return this.#timers.size
  }
}
