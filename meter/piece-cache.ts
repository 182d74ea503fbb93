/**
 * Token counts of common pieces. Of fixed size, keyed by the piece's own bytes: a wrong hit cannot be made. A piece has four places side by side; it
 * comes to the last one, where the next newcomer replaces it, and moves one forward each time it is met again. So rubbish, however much, drives out
 * rubbish, and costs others few of their hits.
 *
 * What costs here is memory, a page more than a line: between two requests the processor forgets both. So an entry is no longer than its piece; count
 * and size go into its last byte. A piece that is not found costs more than a microsecond where other work has driven the tables out of the
 * processor's caches.
 */

/** Pieces of 2 to `SHORT` bytes are short, those of up to `LONG` bytes are long. Others are not kept. */
export const SHORT = 7
export const LONG = 15

export interface PieceCache {
  /**
   * Tokens of the short piece of `size` bytes at `p`; 0 when it is not known. That the caller tells short from long is for the compiler, which has no
   * room left for both in the loop that counts: known English prose takes a fifth less time (`npm run bench:meter`).
   * @param view has 16 bytes from `p` on; what is behind the piece does not matter
   */
  findShort(view: DataView, p: number, size: number): number
  /** The same for a long piece. */
  findLong(view: DataView, p: number, size: number): number
  /** Remembers a piece of either kind that is not known. `count`: 1 to `size`. */
  keep(view: DataView, p: number, size: number, count: number): void
}

/** Sets of short pieces, as a power of two, and half as many of long ones; a set takes 32 and 64 bytes: 512 KB in all. */
const SET_BITS = 13

/** What is kept of the words 0 and 1 of a short piece by its size, at `size` and `8 + size`. Words 2 and 3 of a long one likewise. */
const mask = Int32Array.of(0, 0xff, 0xffff, 0xffffff, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0xff, 0xffff, 0xffffff)

/** Moves the entry at `at` one place forward in its set. */
function forward(entries: Int32Array, at: number, words: number): void {
  for (let i = at; i < at + words; i++) {
    const word = entries[i]!
    entries[i] = entries[i - words]!
    entries[i - words] = word
  }
}

/** @param setBits the cache takes 64 bytes times 2 to this power; at least 1 */
export function createPieceCache(setBits = SET_BITS): PieceCache {
  const SHORT_SETS = 1 << setBits
  /** Two words each, for 2 to 7 bytes: bytes 0…3; bytes 4…6, the size from bit 24, the count from bit 29. 0: free. */
  const shorts = new Int32Array(4 * 2 * SHORT_SETS)
  const LONG_SETS = 1 << (setBits - 1)
  /** Four words each, for 8 to 15 bytes: bytes 0…11; bytes 12…14, the size from bit 24 (never 0), the count from bit 28. */
  const longs = new Int32Array(4 * 4 * LONG_SETS)

  /** Where the set of a short piece begins. */
  function shortSet(k0: number, k1: number): number {
    const hash = Math.imul(k0, 0x9e3779b1) ^ Math.imul(k1, 0x85ebca6b)
    return ((hash ^ (hash >>> 15)) & (SHORT_SETS - 1)) << 3
  }

  function longSet(k0: number, k1: number, k2: number, k3: number): number {
    const hash =
      Math.imul(k0, 0x9e3779b1) ^ Math.imul(k1, 0x85ebca6b) ^ Math.imul(k2, 0xc2b2ae35) ^ Math.imul(k3, 0x27d4eb2f)
    return ((hash ^ (hash >>> 15)) & (LONG_SETS - 1)) << 4
  }

  function findShort(view: DataView, p: number, size: number): number {
    const k0 = view.getInt32(p, true) & mask[size]!
    const k1 = (view.getInt32(p + 4, true) & mask[size + 8]!) | (size << 24)
    const set = shortSet(k0, k1)
    let at = set
    while (shorts[at] !== k0 || (shorts[at + 1]! ^ k1) << 3 !== 0) if ((at += 2) === set + 8) return 0
    const k = shorts[at + 1]!
    if (at > set) forward(shorts, at, 2)
    return k >>> 29
  }

  function findLong(view: DataView, p: number, size: number): number {
    const k0 = view.getInt32(p, true)
    const k1 = view.getInt32(p + 4, true)
    const k2 = view.getInt32(p + 8, true) & mask[size - 8]!
    const k3 = (view.getInt32(p + 12, true) & mask[size]!) | (size << 24)
    const set = longSet(k0, k1, k2, k3)
    let at = set
    while (longs[at] !== k0 || longs[at + 1] !== k1 || longs[at + 2] !== k2 || (longs[at + 3]! ^ k3) << 4 !== 0)
      if ((at += 4) === set + 16) return 0
    const k = longs[at + 3]!
    if (at > set) forward(longs, at, 4)
    return k >>> 28
  }

  return {
    findShort,
    findLong,
    keep(view, p, size, count) {
      const w0 = view.getInt32(p, true)
      const w1 = view.getInt32(p + 4, true)
      if (size <= SHORT) {
        const k0 = w0 & mask[size]!
        const k1 = (w1 & mask[size + 8]!) | (size << 24)
        const last = shortSet(k0, k1) + 6
        shorts[last] = k0
        shorts[last + 1] = k1 | (count << 29)
      } else {
        const k2 = view.getInt32(p + 8, true) & mask[size - 8]!
        const k3 = (view.getInt32(p + 12, true) & mask[size]!) | (size << 24)
        const last = longSet(w0, w1, k2, k3) + 12
        longs[last] = w0
        longs[last + 1] = w1
        longs[last + 2] = k2
        longs[last + 3] = k3 | (count << 28)
      }
    },
  }
}
