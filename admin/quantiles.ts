/**
 * Quantiles of the last second for the dashboard. Each bucket is a twelfth of an octave wide (a factor of 2^(1/12)), so
 * a quantile is within 3 % of the true value. Prometheus gets the coarser buckets of distribution.ts.
 */
const PER_OCTAVE = 12
/** Upper bound of the first bucket: 10 µs. */
const LEAST_MS = 0.01
/** The last bucket begins near 6 hours. */
const BUCKETS = 31 * PER_OCTAVE

export class Quantiles {
  readonly #counts = new Uint32Array(BUCKETS)
  #total = 0

  observe(ms: number): void {
    const i = ms <= LEAST_MS ? 0 : Math.min(BUCKETS - 1, Math.floor(Math.log2(ms / LEAST_MS) * PER_OCTAVE))
    this.#counts[i]!++
    this.#total++
  }

  /** The quantiles `qs` (0 to 1, ascending) in milliseconds; null when nothing was observed. Resets the counts. */
  take<const Q extends readonly number[]>(qs: Q): { [K in keyof Q]: number | null } {
    const out: (number | null)[] = qs.map(() => null)
    if (this.#total > 0) {
      let seen = 0
      let next = 0
      for (let i = 0; i < BUCKETS && next < qs.length; i++) {
        seen += this.#counts[i]!
        while (next < qs.length && seen >= qs[next]! * this.#total) {
          out[next++] = LEAST_MS * 2 ** ((i + 0.5) / PER_OCTAVE)
        }
      }
      this.#counts.fill(0)
      this.#total = 0
    }
    return out as { [K in keyof Q]: number | null }
  }
}
