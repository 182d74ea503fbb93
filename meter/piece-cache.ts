/**
 * A cache of fixed size for the token counts of common pieces. The key is the bytes of the piece itself, so a wrong hit
 * is impossible. The cache is 4-way set-associative. A new piece replaces the last entry of its set, and moves one
 * place forward with each hit. So rare pieces replace rare pieces, and even many of them cost the others few hits.
 *
 * The cost here is memory access, and a missing page costs more than a missing cache line: between two requests, other
 * work drives both out of the processor's caches. So an entry is only as long as the longest piece that it can hold,
 * and the count and the size are in its last byte. A piece that is not found costs more than a microsecond when other
 * work has driven the encoder's tables out of the processor's caches.
 */

/** Pieces of 2 to `SHORT` bytes are short; those of more, up to `LONG` bytes, are long. Others are not cached. */
export const SHORT = 7
export const LONG = 15

export interface PieceCache {
  /**
   * Number of tokens of the short piece of `size` bytes at `p`, or 0 when it is not cached. Short and long pieces have
   * different functions because V8 does not inline one function for both into the counting loop. With two, cached
   * English prose takes a fifth less time (`npm run bench:meter`).
   * @param view has at least 16 bytes from `p` on; bytes behind the piece are ignored
   */
  findShort(view: DataView, p: number, size: number): number
  /** The same for a long piece. */
  findLong(view: DataView, p: number, size: number): number
  /** Adds a short or long piece that is not cached. `count` is 1 to `size`. */
  keep(view: DataView, p: number, size: number, count: number): void
}

/**
 * There are 2 to this power sets for short pieces, and half as many for long ones. A set takes 32 bytes, or 64 for long
 * pieces: 512 KB in all.
 */
const SET_BITS = 13

/**
 * Masks of the bytes that belong to a piece. For a short piece, `mask[size]` is of word 0 and `mask[8 + size]` of word
 * 1. For a long piece, `mask[size - 8]` is of word 2 and `mask[size]` of word 3.
 */
const mask = Int32Array.of(0, 0xff, 0xffff, 0xffffff, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0xff, 0xffff, 0xffffff)

/** Moves the entry at `at` one place forward in its set. */
function forward(entries: Int32Array, at: number, words: number): void {
  for (let i = at; i < at + words; i++) {
    const word = entries[i]!
    entries[i] = entries[i - words]!
    entries[i - words] = word
  }
}

/** @param setBits the cache takes 64 bytes times 2 to this power; at least 1. For tests */
export function createPieceCache(setBits = SET_BITS): PieceCache {
  const SHORT_SETS = 1 << setBits
  /**
   * Entries of two words each, for pieces of 2 to 7 bytes. Word 0: bytes 0 to 3. Word 1: bytes 4 to 6, the size from
   * bit 24, the count from bit 29. A free entry is 0.
   */
  const shorts = new Int32Array(4 * 2 * SHORT_SETS)
  const LONG_SETS = 1 << (setBits - 1)
  /**
   * Entries of four words each, for pieces of 8 to 15 bytes. Words 0 to 2: bytes 0 to 11. Word 3: bytes 12 to 14, the
   * size from bit 24 (never 0), the count from bit 28.
   */
  const longs = new Int32Array(4 * 4 * LONG_SETS)

  /** The index of the first word of a short piece's set. */
  function shortSet(k0: number, k1: number): number {
    const hash = Math.imul(k0, 0x9e3779b1) ^ Math.imul(k1, 0x85ebca6b)
    return ((hash ^ (hash >>> 15)) & (SHORT_SETS - 1)) << 3
  }

  /** The index of the first word of a long piece's set. */
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
