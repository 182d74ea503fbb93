/** Seeded random numbers (mulberry32): the same seed gives the same ones, on every machine. */

/** @returns 32 random bits at each call, as an integer */
function bits(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return (t ^ (t >>> 14)) >>> 0
  }
}

/** @returns a number from 0 to below 1 at each call, as Math.random() does */
export function random(seed: number): () => number {
  const next = bits(seed)
  return () => next() / 2 ** 32
}

/** @returns an integer from 0 to below `below` at each call */
export function generator(seed: number): (below: number) => number {
  const next = bits(seed)
  return below => next() % below
}

/** Seeded random choices. The same seed gives the same cases in the same order. */
export class Random {
  /** An integer from 0 to below `n`. */
  readonly below: (n: number) => number

  constructor(seed: number) {
    this.below = generator(seed)
  }

  one<T>(of: readonly T[]): T {
    return of[this.below(of.length)]!
  }

  chance(share: number): boolean {
    return this.below(1_000_000) < share * 1_000_000
  }

  shuffled<T>(of: readonly T[]): T[] {
    const all = [...of]
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.below(i + 1)
      ;[all[i], all[j]] = [all[j]!, all[i]!]
    }
    return all
  }

  word(letters: number): string {
    let text = ''
    while (text.length < letters) text += 'abcdefghijklmnopqrstuvwxyz'[this.below(26)]
    return text
  }

  /** Prose-like text of about `bytes` bytes. No two calls give the same. */
  text(bytes: number): string {
    const words = Array.from({ length: 200 }, () => this.word(2 + this.below(8)))
    const parts: string[] = []
    for (let size = 0; size < bytes; size += parts.at(-1)!.length + 1) parts.push(words[this.below(200)]!)
    return parts.join(' ').slice(0, bytes)
  }
}
