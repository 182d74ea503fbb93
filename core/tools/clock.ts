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

/**
 * A difference up to this much between the wall clock and a SteadyClock is followed at once: NTP slews, leap seconds.
 */
const FOLLOWED_MS = 2000
/** A step of the wall clock that has stood for this long is no mistake, and is followed. */
const STANDS_MS = 30 * 60_000

/**
 * A wall clock without steps. When the clock below it steps (a wrong time server, an operator), `now` goes on with the
 * monotonic clock. A step that is taken back within 30 minutes leaves no trace: no bucket was refilled by it, no day
 * or month turned, nothing expired. One that stays so for this long is followed. A process that was suspended sees the
 * missed time as such a step.
 */
export class SteadyClock implements Clock {
  readonly #clock: Clock
  /** The present estimate of the wall clock minus the monotonic clock. */
  #offset: number
  /** The wall clock differs by another offset, since a time of the monotonic clock. */
  #step: { offset: number; since: number } | undefined

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.now() - clock.mono()
  }

  now(): number {
    const mono = this.#clock.mono()
    const wall = this.#clock.now()
    const offset = wall - mono
    const step = this.#step
    if (Math.abs(offset - this.#offset) <= FOLLOWED_MS) this.#step = undefined
    else if (step === undefined || Math.abs(offset - step.offset) > FOLLOWED_MS) this.#step = { offset, since: mono }
    else if (mono - step.since >= STANDS_MS) this.#step = undefined
    if (this.#step !== undefined) return Math.floor(mono + this.#offset)
    this.#offset = offset
    return wall
  }
  mono(): number {
    return this.#clock.mono()
  }
  setTimer(ms: number, fn: () => void): Timer {
    return this.#clock.setTimer(ms, fn)
  }
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
