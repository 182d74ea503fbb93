import type { ErrorCode } from '../../core/errors.ts'

/**
 * Leaves a failing backend out. It opens after a number of failures in a row, or at an error rate over a sliding
 * window. After `open_for`, one trial request decides. A backend that recovers gets its share of requests slowly, over
 * another `open_for`. One that asked for a pause (Retry-After) is left out for that long.
 */
export interface BreakerOptions {
  failures: number
  error_rate: number
  /** Milliseconds. */
  window: number
  open_for: number
}

/** The error rate counts only from this many attempts in the window. */
const MIN_SAMPLES = 10
/** The window is counted in this many slices. */
const BUCKETS = 10
/**
 * The longest pause that a provider can ask for, as a multiple of `open_for`: a wrong value must not take a backend
 * away for days.
 */
const MAX_REST = 4
/** The share of requests that a recovered backend gets at once; it grows to 1. */
const FIRST_SHARE = 0.1

export class Breaker {
  #options: BreakerOptions
  #inARow = 0
  #openUntil = 0
  #restUntil = 0
  /** Code of the error with which the backend asked for the pause. */
  restsFor: ErrorCode | undefined
  /** When the backend recovered (monotonic milliseconds); 0 once it takes its full share. */
  #warmFrom = 0
  /** The one request that a half-open breaker lets through is running. */
  #trial = false
  #failed = new Uint32Array(BUCKETS)
  #total = new Uint32Array(BUCKETS)
  #bucketStart = 0
  #bucket = 0
  #failures = 0

  constructor(options: BreakerOptions) {
    this.#options = options
  }

  /** Takes the options of a new configuration; what is known about the backend stays. */
  configure(options: BreakerOptions): void {
    this.#options = options
  }

  /** `half-open` lets one trial pass. `now` is monotonic milliseconds. */
  state(now: number): 'closed' | 'open' | 'half-open' {
    if (now < this.#restUntil) return 'open'
    if (this.#openUntil === 0) return 'closed'
    return now < this.#openUntil ? 'open' : 'half-open'
  }

  /** Whether a request may be sent now; a half-open breaker lets one through at a time. */
  tryEnter(now: number): boolean {
    const state = this.state(now)
    if (state === 'closed') return true
    if (state === 'open' || this.#trial) return false
    this.#trial = true
    return true
  }

  /**
   * Keeps the backend out for as long as it asked, `MAX_REST` times `open_for` at most.
   * @returns true when this begins a pause, false when one was running already
   */
  rest(now: number, ms: number, code: ErrorCode): boolean {
    const begins = this.resting(now) === 0
    this.restsFor = code
    this.#restUntil = Math.max(this.#restUntil, now + Math.min(ms, MAX_REST * this.#options.open_for))
    return begins
  }

  /** Milliseconds that are left of the pause that the backend asked for; 0 when there is none. */
  resting(now: number): number {
    return Math.max(0, this.#restUntil - now)
  }

  /** Milliseconds until a request, or at least a trial, may be sent; 0 when one may be sent now. */
  outFor(now: number): number {
    return Math.max(0, this.#restUntil - now, this.#openUntil - now)
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

  /** @returns true when this success closed the breaker */
  succeeded(now: number): boolean {
    this.#roll(now)
    this.#total[this.#bucket]!++
    this.#inARow = 0
    this.#trial = false
    if (this.#openUntil !== 0) {
      this.#openUntil = 0
      this.#warmFrom = now
      this.#failed.fill(0)
      this.#total.fill(0)
      return true
    }
    return false
  }

  /** @returns true when this failure opened a closed breaker */
  failed(now: number): boolean {
    this.#roll(now)
    this.#total[this.#bucket]!++
    this.#failed[this.#bucket]!++
    this.#failures++
    this.#inARow++
    const wasTrial = this.#trial
    this.#trial = false
    const total = sum(this.#total)
    const rate = total === 0 ? 0 : sum(this.#failed) / total
    if (
      wasTrial ||
      this.#inARow >= this.#options.failures ||
      (total >= MIN_SAMPLES && rate >= this.#options.error_rate)
    ) {
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

  /** All failures so far, for metrics. */
  get failures(): number {
    return this.#failures
  }

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
