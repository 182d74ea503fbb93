/**
 * Finds where the pieces of o200k_base end. It splits like the vocabulary's regular expression, but in one pass over
 * UTF-8 bytes, with tables.
 *
 * The bytes must be valid UTF-8, followed by `PADDING` more bytes, the first of which is `SENTINEL`.
 */
import { END, LEAD, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER } from './classes.ts'
import type { Tables } from './tables.ts'

/** Number of bytes behind the text: for the sentinel, and because loads of whole words read beyond the text. */
export const PADDING = 16
/** The byte behind the text. It does not occur in UTF-8. */
export const SENTINEL = 0xff

export interface Splitter {
  /** End of the piece that begins at `p`. */
  end(bytes: Uint8Array, p: number): number
  /** The same, but faster for most pieces of natural text. `view` is of the same bytes. */
  endFast(bytes: Uint8Array, view: DataView, p: number): number
  /**
   * Where the third-last piece of `[from, to)` begins; -1 when there are fewer than three pieces. All pieces before it
   * stay the same, whatever text follows. Reason: where a piece ends depends on at most three characters behind it, or
   * on the end of a run (of capitals or of spaces), to which the next piece extends too.
   */
  lastThree(bytes: Uint8Array, from: number, to: number): number
  /** How many bytes were read more than once, in all calls so far. */
  readonly steps: number
}

/** Which of the four bytes of a 32-bit word are not lower-case ASCII letters: bit `i` is for byte `i`. */
function notLower(word: number): number {
  const low = word & 0x7f7f7f7f
  // The highest bit of each byte becomes 1 if the byte is below `a`, beyond `z`, or not ASCII. The multiplication
  // collects these four bits.
  const not = ~(low + 0x1f1f1f1f) | (low + 0x05050505) | word
  return Math.imul((not >>> 7) & 0x01010101, 0x10204080) >>> 28
}

export function createSplitter({ classes, bytes: byteClass }: Pick<Tables, 'classes' | 'bytes'>): Splitter {
  let steps = 0

  /** Class and length in bytes of the character whose lead byte is at `at`, as `class << 3 | length`. */
  function wide(bytes: Uint8Array, at: number): number {
    const b = bytes[at]!
    const b1 = bytes[at + 1]! & 63
    if (b < 0xe0) return (classes[((b & 31) << 6) | b1]! << 3) | 2
    const b2 = bytes[at + 2]! & 63
    if (b < 0xf0) return (classes[((b & 15) << 12) | (b1 << 6) | b2]! << 3) | 3
    return (classes[((b & 7) << 18) | (b1 << 12) | (b2 << 6) | (bytes[at + 3]! & 63)]! << 3) | 4
  }

  /**
   * Gives the same ends as o200k_base's pattern, but without trying its alternatives in turn:
   *
   *     1  [^\r\n\p{L}\p{N}]? [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]* [\p{Ll}\p{Lm}\p{Lo}\p{M}]+ ('s|'t|'re|'ve|'m|'ll|'d)?
   *     2  [^\r\n\p{L}\p{N}]? [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+ [\p{Ll}\p{Lm}\p{Lo}\p{M}]* ('s|'t|'re|'ve|'m|'ll|'d)?
   *     3  \p{N}{1,3}
   *     4   ?[^\s\p{L}\p{N}]+ [\r\n/]*
   *     5  \s*[\r\n]+
   *     6  \s+(?!\S)
   *     7  \s+
   *
   * A mark at `p` is taken as the first character of a word, although alternative 1 first tries it as the leading
   * character. When both ways match, they end at the same place. When only one matches, it is this one.
   */
  function end(bytes: Uint8Array, p: number): number {
    const c = bytes[p]!
    let k = byteClass[c]!
    let q = p + 1
    if (k === LEAD) {
      const w = wide(bytes, p)
      k = w >> 3
      q = p + (w & 7)
    }
    if (k === OTHER || k === SPACE) {
      // One such character may be the leading character of a word.
      let next = byteClass[bytes[q]!]!
      if (next === LEAD) next = wide(bytes, q) >> 3
      if (next >= UPPER && next <= MARK) return wordEnd(bytes, q)
      if (k === OTHER) return punctuationEnd(bytes, q)
      if (c === 0x20 && next === OTHER) return punctuationEnd(bytes, q)
      return spaceEnd(bytes, p)
    }
    if (k <= MARK) return wordEnd(bytes, p)
    if (k === NUMBER) return numberEnd(bytes, q)
    return spaceEnd(bytes, p)
  }

  /** Alternatives 1 and 2, behind the leading character. There is a letter or mark at `i`. */
  function wordEnd(bytes: Uint8Array, i: number): number {
    // The first half takes as many characters as it can. `both` is the end of the last character that could also be in
    // the second half.
    let both = -1
    for (;;) {
      let k = byteClass[bytes[i]!]!
      let size = 1
      if (k === LEAD) {
        const w = wide(bytes, i)
        k = w >> 3
        size = w & 7
      }
      if (k === UPPER) i += size
      else if (k === LETTER || k === MARK) both = i += size
      else if (k === LOWER) {
        i += size
        break
      } else {
        // The second half would be empty. Alternative 1 then gives characters back until one fits the second half. If
        // none fits, alternative 2 takes the whole run.
        if (both < 0) return contractionEnd(bytes, i)
        steps += i - both
        return contractionEnd(bytes, both)
      }
    }
    for (;;) {
      let k = byteClass[bytes[i]!]!
      if (k === LOWER) {
        i++
        continue
      }
      if (k !== LEAD) break
      const w = wide(bytes, i)
      k = w >> 3
      if (k < LOWER || k > MARK) break
      i += w & 7
    }
    return contractionEnd(bytes, i)
  }

  /** Behind a contraction ('s, 't, 're, 've, 'm, 'll, 'd, in either case) at `i`; `i` itself when there is none. */
  function contractionEnd(bytes: Uint8Array, i: number): number {
    if (bytes[i] !== 0x27) return i
    const a = bytes[i + 1]! | 0x20
    if (a === 0x73 || a === 0x74 || a === 0x6d || a === 0x64) return i + 2
    const b = bytes[i + 2]! | 0x20
    if (b === 0x65 ? a === 0x72 || a === 0x76 : b === 0x6c && a === 0x6c) return i + 3
    return i
  }

  /** Alternative 3, behind the first digit. */
  function numberEnd(bytes: Uint8Array, i: number): number {
    for (let more = 2; more > 0; more--) {
      const k = byteClass[bytes[i]!]!
      if (k === NUMBER) i++
      else if (k === LEAD) {
        const w = wide(bytes, i)
        if (w >> 3 !== NUMBER) break
        i += w & 7
      } else break
    }
    return i
  }

  /** Alternative 4, behind its space or its first character. */
  function punctuationEnd(bytes: Uint8Array, i: number): number {
    for (;;) {
      const k = byteClass[bytes[i]!]!
      if (k === OTHER) i++
      else if (k === LEAD) {
        const w = wide(bytes, i)
        const wk = w >> 3
        if (wk !== OTHER && wk !== MARK) break
        i += w & 7
      } else break
    }
    for (let c = bytes[i]!; c === 10 || c === 13 || c === 0x2f; c = bytes[i]!) i++
    return i
  }

  /** Alternatives 5, 6 and 7. */
  function spaceEnd(bytes: Uint8Array, p: number): number {
    let i = p
    let newline = -1
    let lastSize = 1
    for (;;) {
      const k = byteClass[bytes[i]!]!
      if (k === NEWLINE) {
        newline = ++i
        lastSize = 1
      } else if (k === SPACE) {
        i++
        lastSize = 1
      } else if (k === LEAD) {
        const w = wide(bytes, i)
        if (w >> 3 !== SPACE) break
        lastSize = w & 7
        i += lastSize
      } else {
        if (k === END && newline < 0) return i
        break
      }
    }
    if (newline >= 0) {
      steps += i - newline
      return newline
    }
    // The last space of a run belongs to the next piece, unless it is the only one.
    return i - lastSize > p ? i - lastSize : i
  }

  /**
   * For each first byte: the fewest bytes that one character and the lower-case letters behind it must have to be a
   * word. 255: `endFast` cannot tell.
   */
  const leastSize = new Uint8Array(256).fill(255)
  for (let b = 0; b < 0x80; b++) {
    const k = byteClass[b]!
    if (k === LOWER) leastSize[b] = 1
    else if (k === OTHER || k === SPACE || k === UPPER) leastSize[b] = 2
  }

  /**
   * Most pieces are one character and up to six lower-case letters. This function tests eight bytes at once. A loop
   * over the letters of a word would be slower, because the processor cannot predict where it ends. English prose takes
   * a fifth less time (`npm run bench:meter`).
   */
  function endFast(bytes: Uint8Array, view: DataView, p: number): number {
    // Bit `i` says that byte `i` is not a lower-case letter. The first byte does not matter, and bit 8 ends the search.
    const others = (notLower(view.getInt32(p, true)) & 14) | (notLower(view.getInt32(p + 4, true)) << 4) | 256
    let size = 31 - Math.clz32(others & -others)
    const least = leastSize[bytes[p]!]!
    if (size === 8 && least <= 2) while (byteClass[bytes[p + size]!] === LOWER) size++
    const behind = bytes[p + size]!
    // `end` decides when the piece is too short for its first byte, or when an apostrophe or a non-ASCII character
    // follows, which may belong to the piece.
    return size < least || behind >= 0x80 || behind === 0x27 ? end(bytes, p) : p + size
  }

  function lastThree(bytes: Uint8Array, from: number, to: number): number {
    let third = -1
    let second = -1
    let last = -1
    for (let p = from; p < to; p = end(bytes, p)) {
      third = second
      second = last
      last = p
    }
    return third
  }

  return {
    end,
    endFast,
    lastThree,
    get steps() {
      return steps
    },
  }
}
