/**
 * A circuit breaker over one kind of failures. It opens at a number of failures, in a row or in a sliding window, when
 * the failures in the window are also a share of the attempts in it: neither five failures among two hundred replies
 * open it, nor the only attempt of a quiet hour. (Those that end a long wait come one in a window, so a row counts
 * however long it takes.) It opens for a second. Then one trial decides, and each trial that fails doubles the time, up
 * to `open_for`: a fault that is over at once costs a second, and a backend that is dead gets few trials. Once the
 * circuit has closed again, it takes requests slowly, over another `open_for`.
 *
 * A heavily used backend that dies has many good replies in its window, and opens late. So failures in a row begin the
 * slow start as well: the backend then takes only a share of what another one could take, and where there is no other
 * one nothing is refused for it.
 */
export interface BreakerOptions {
  /** In a row, or in the window. */
  failures: number
  /** Share of the attempts in the window, in (0, 1]. */
  error_rate: number
  /** Milliseconds. */
  window: number
  open_for: number
}

export type CircuitState = 'closed' | 'open' | 'half-open'

/** How long it opens at first, milliseconds. */
const FIRST_OPEN_MS = 1000
/** The window is counted in this many slices. */
const BUCKETS = 10
/** The share of requests that a recovered backend gets at once; it grows to 1. */
const FIRST_SHARE = 0.1

/** All times are monotonic milliseconds. */
export class Circuit {
  /** The owner changes them in place when a new configuration is loaded. */
  readonly #options: Readonly<BreakerOptions>
  #inARow = 0
  #openUntil = 0
  /** How long it was opened for last; 0 while it is closed. */
  #openFor = 0
  /** When the backend recovered; 0 once it takes its full share. */
  #warmFrom = 0
  /** The one request that a half-open circuit lets through is running. */
  #trial = false
  readonly #failed = new Uint32Array(BUCKETS)
  readonly #total = new Uint32Array(BUCKETS)
  #bucketStart = 0
  #bucket = 0

  constructor(options: Readonly<BreakerOptions>) {
    this.#options = options
  }

  /** `half-open` lets one trial pass. */
  state(now: number): CircuitState {
    if (this.#openUntil === 0) return 'closed'
    return now < this.#openUntil ? 'open' : 'half-open'
  }

  /** Whether a request may be sent now; a half-open circuit lets one through at a time. */
  allows(now: number): boolean {
    return this.#openUntil === 0 || (now >= this.#openUntil && !this.#trial)
  }

  /** A request is sent. While the circuit is half-open, it is the trial. @returns true when it is */
  entered(now: number): boolean {
    if (this.state(now) !== 'half-open') return false
    this.#trial = true
    return true
  }

  /** Milliseconds until a request may be sent again, a trial at least; 0 when one may be now. */
  outFor(now: number): number {
    return Math.max(0, this.#openUntil - now)
  }

  /**
   * Whether a recovered backend already takes a request that another could take.
   * @param r uniform in [0, 1)
   */
  warm(now: number, r: number): boolean {
    if (this.#warmFrom === 0) return true
    const share = FIRST_SHARE + (1 - FIRST_SHARE) * ((now - this.#warmFrom) / this.#options.open_for)
    if (share >= 1) this.#warmFrom = 0
    return r < share
  }

  /** Begins the slow start. */
  startSlowly(now: number): void {
    this.#warmFrom = now
  }

  /** @returns true when it closed the circuit */
  succeeded(now: number): boolean {
    this.#roll(now)
    this.#total[this.#bucket]!++
    this.#inARow = 0
    this.#trial = false
    if (this.#openUntil !== 0) {
      this.#openUntil = this.#openFor = 0
      this.startSlowly(now)
      this.#failed.fill(0)
      this.#total.fill(0)
      return true
    }
    return false
  }

  /**
   * @param mayOpen false when the failure is counted but is no reason to open the circuit; a trial that fails always
   *   keeps it open
   * @returns true when it opened the circuit, which was closed
   */
  failed(now: number, mayOpen = true): boolean {
    this.#roll(now)
    this.#total[this.#bucket]!++
    this.#failed[this.#bucket]!++
    this.#inARow++
    const wasTrial = this.#trial
    this.#trial = false
    const { failures, error_rate, open_for } = this.#options
    if (this.#openUntil !== 0) {
      // Probes fail while it is open, and so does what was sent before it opened: only the trial shows something new.
      if (wasTrial) this.#open(now, Math.min(2 * this.#openFor, open_for))
      return false
    }
    if (!mayOpen) return false
    if (this.#inARow >= failures) this.startSlowly(now)
    const failed = sum(this.#failed)
    if (Math.max(failed, this.#inARow) < failures || failed < error_rate * sum(this.#total)) return false
    this.#open(now, Math.min(FIRST_OPEN_MS, open_for))
    return true
  }

  #open(now: number, ms: number): void {
    this.#openFor = ms
    this.#openUntil = now + ms
    this.#warmFrom = 0
  }

  /** The attempt says nothing about the backend's health (the client disconnected, the request was bad). */
  recordNeutral(): void {
    this.#trial = false
  }

  /** Share of failures in the window, 0 to 1. */
  get errorRate(): number {
    const total = sum(this.#total)
    return total === 0 ? 0 : sum(this.#failed) / total
  }

  #roll(now: number): void {
    const width = this.#options.window / BUCKETS
    if (now - this.#bucketStart >= this.#options.window + width) {
      this.#failed.fill(0)
      this.#total.fill(0)
      this.#bucketStart = now
      return
    }
    while (now - this.#bucketStart >= width) {
      this.#bucket = (this.#bucket + 1) % BUCKETS
      this.#failed[this.#bucket] = 0
      this.#total[this.#bucket] = 0
      this.#bucketStart += width
    }
  }
}

function sum(counts: Uint32Array): number {
  let total = 0
  for (const n of counts) total += n
  return total
}
