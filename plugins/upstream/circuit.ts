/**
 * A circuit breaker over one kind of failures. It opens after a number of failures in a row, or at an error rate over a
 * sliding window. After `open_for` one trial decides. Once it has closed again, it takes requests slowly, over another
 * `open_for`.
 */
export interface BreakerOptions {
  failures: number
  error_rate: number
  /** Milliseconds. */
  window: number
  open_for: number
}

export type CircuitState = 'closed' | 'open' | 'half-open'

/** The error rate counts only from this many attempts in the window. */
const MIN_SAMPLES = 10
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
  lets(now: number): boolean {
    return this.#openUntil === 0 || (now >= this.#openUntil && !this.#trial)
  }

  /** A request is sent. While the circuit is half-open, it is the trial. */
  entered(now: number): void {
    if (this.state(now) === 'half-open') this.#trial = true
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
  recovers(now: number): void {
    this.#warmFrom = now
  }

  /** @returns true when it closed the circuit */
  succeeded(now: number): boolean {
    this.#roll(now)
    this.#total[this.#bucket]!++
    this.#inARow = 0
    this.#trial = false
    if (this.#openUntil !== 0) {
      this.#openUntil = 0
      this.recovers(now)
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
    const total = sum(this.#total)
    const enough =
      this.#inARow >= this.#options.failures ||
      (total >= MIN_SAMPLES && sum(this.#failed) / total >= this.#options.error_rate)
    if (wasTrial || (mayOpen && enough)) {
      const opened = this.#openUntil === 0
      this.#openUntil = now + this.#options.open_for
      this.#warmFrom = 0
      return opened
    }
    return false
  }

  /** The attempt says nothing about the backend's health (the client disconnected, the request was bad). */
  abstained(): void {
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
