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
  #counts = new Uint32Array(BUCKETS)

  observe(ms: number): void {
    const i = ms <= LEAST_MS ? 0 : Math.min(BUCKETS - 1, Math.floor(Math.log2(ms / LEAST_MS) * PER_OCTAVE))
    this.#counts[i]!++
  }

  /** The count of each bucket. Resets the counts. */
  drain(): Uint32Array {
    const counts = this.#counts
    this.#counts = new Uint32Array(BUCKETS)
    return counts
  }

  /** The quantiles `qs` (0 to 1, ascending) in milliseconds; null when nothing was observed. Resets the counts. */
  take<const Q extends readonly number[]>(qs: Q): { [K in keyof Q]: number | null } {
    return quantilesOf(this.drain(), qs)
  }
}

/** The quantiles of the counts of `drain`, which may be a sum of several. */
export function quantilesOf<const Q extends readonly number[]>(
  counts: ArrayLike<number>,
  qs: Q,
): { [K in keyof Q]: number | null } {
  const out: (number | null)[] = qs.map(() => null)
  let total = 0
  for (let i = 0; i < BUCKETS; i++) total += counts[i] ?? 0
  let seen = 0
  let next = 0
  for (let i = 0; total > 0 && i < BUCKETS && next < qs.length; i++) {
    seen += counts[i] ?? 0
    while (next < qs.length && seen >= qs[next]! * total) out[next++] = LEAST_MS * 2 ** ((i + 0.5) / PER_OCTAVE)
  }
  return out as { [K in keyof Q]: number | null }
}
