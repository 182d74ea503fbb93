/**
 * The o200k_base tokenizer: splits UTF-8 bytes into pieces, and pieces into tokens. Exact on any input, and linear in its length.
 *
 * Text is turned into bytes first (native, gigabytes a second; lone surrogates become U+FFFD, as TextEncoder has them), so
 * that splitter, cache and merges work on one typed array and never slice a string.
 */
import { END, LEAD, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, SPACE, UPPER } from './classes.ts'
import { createMerger } from './merge.ts'
import { FILTER_BITS, PAIR_BITS, pairHash, type Tables } from './tables.ts'

/** Room behind the text: for the sentinel, and for whole-word loads to read over. */
export const PADDING = 16
/** Bytes of a piece that are encoded at once. */
const WINDOW = 4096
/** Tokens at a window's end that are left to the next one. */
const OVERLAP = 8
const MAX_RETRIES = 64
/** Steps a byte after which backtracking gives way to merging. Natural text takes 2. */
const BUDGET = 6
/** Bytes at the end of a text that nearly always hold three pieces. */
const NEAR = 128
/**
 * The cache of pieces has 2 to the power of this sets of short pieces, and half as many of long ones: 64 bytes each time, 512 KB. A piece that is not found costs
 * more than a microsecond where other work has driven the tables out of the processor's caches; with half the sets an English prompt of 1 KB has two more of them.
 */
const SET_BITS = 13
/** The largest buffer that is kept between calls. */
const KEPT = 1 << 20

export interface Tokenizer {
  /** Tokens in a text. */
  count(text: string): number
  /** The token ids of a text. */
  encode(text: string): number[]
  /** Tokens in `bytes[from, from + length)`: valid UTF-8, with `PADDING` bytes of room behind it, the first of which is overwritten. */
  countBytes(bytes: Uint8Array, length: number, from?: number): number
  /**
   * Counts the pieces of `bytes[0, length)` that stay as they are whatever text follows. `settledLength` then tells how many bytes they
   * take, 0 when there is none. Same needs as `countBytes`.
   */
  countSettled(bytes: Uint8Array, length: number): number
  readonly settledLength: number
  /** Elementary steps taken so far: bytes looked at more than once by the splitter, trie steps, pairs tested. For tests of growth. */
  readonly steps: number
}

const encoder = new TextEncoder()

/** Which of a word's four bytes are not lower-case ASCII letters: bit `i` for byte `i`. */
function notLower(word: number): number {
  const low = word & 0x7f7f7f7f
  // Per byte, in its highest bit: at least `a`, beyond `z`, beyond ASCII. Then the four bits are brought together.
  const not = ~(low + 0x1f1f1f1f) | (low + 0x05050505) | word
  return Math.imul((not >>> 7) & 0x01010101, 0x10204080) >>> 28
}

export interface TokenizerOptions {
  /** For tests. */
  window?: number
  /** For tests. */
  overlap?: number
}

export function createTokenizer(
  tables: Tables,
  { window = WINDOW, overlap = OVERLAP }: TokenizerOptions = {},
): Tokenizer {
  const { classes, bytes: byteClass, trie, childBit, halves, length: tokenLength, pairs, pairFilter } = tables
  const pairMask = (1 << PAIR_BITS) - 1
  let buf = new Uint8Array(1 << 16)
  let view = new DataView(buf.buffer)
  let steps = 0
  let settledLength = 0

  // ---- the splitter ----

  /** Class and length of the character at a lead byte, as `class << 3 | length`. */
  function wide(at: number): number {
    const b = buf[at]!
    const b1 = buf[at + 1]! & 63
    if (b < 0xe0) return (classes[((b & 31) << 6) | b1]! << 3) | 2
    const b2 = buf[at + 2]! & 63
    if (b < 0xf0) return (classes[((b & 15) << 12) | (b1 << 6) | b2]! << 3) | 3
    return (classes[((b & 7) << 18) | (b1 << 12) | (b2 << 6) | (buf[at + 3]! & 63)]! << 3) | 4
  }

  /**
   * End of the piece that begins at `p`. Does what o200k_base's pattern does, alternative by alternative, without trying them in turn:
   *
   *     1  [^\r\n\p{L}\p{N}]? [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]* [\p{Ll}\p{Lm}\p{Lo}\p{M}]+ ('s|'t|'re|'ve|'m|'ll|'d)?
   *     2  [^\r\n\p{L}\p{N}]? [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+ [\p{Ll}\p{Lm}\p{Lo}\p{M}]* ('s|'t|'re|'ve|'m|'ll|'d)?
   *     3  \p{N}{1,3}
   *     4   ?[^\s\p{L}\p{N}]+ [\r\n/]*
   *     5  \s*[\r\n]+
   *     6  \s+(?!\S)
   *     7  \s+
   *
   * A mark at `p` begins a word although alternative 1 would first try it as the leading character: where both ways match they end alike,
   * and where only one does it is this one.
   */
  function pieceEnd(p: number): number {
    const c = buf[p]!
    let k = byteClass[c]!
    let q = p + 1
    if (k === LEAD) {
      const w = wide(p)
      k = w >> 3
      q = p + (w & 7)
    }
    if (k === OTHER || k === SPACE) {
      // One such character may lead a word.
      let next = byteClass[buf[q]!]!
      if (next === LEAD) next = wide(q) >> 3
      if (next >= UPPER && next <= MARK) return wordEnd(q)
      if (k === OTHER) return punctuationEnd(q)
      if (c === 0x20 && next === OTHER) return punctuationEnd(q)
      return spaceEnd(p)
    }
    if (k <= MARK) return wordEnd(p)
    if (k === NUMBER) return numberEnd(q)
    return spaceEnd(p)
  }

  /** Alternatives 1 and 2 from behind the leading character. At least one letter or mark stands at `i`. */
  function wordEnd(i: number): number {
    // The first half takes all it can. `both` is where the last character ended that could stand in the second half too.
    let both = -1
    for (;;) {
      let k = byteClass[buf[i]!]!
      let size = 1
      if (k === LEAD) {
        const w = wide(i)
        k = w >> 3
        size = w & 7
      }
      if (k === UPPER) i += size
      else if (k === LETTER || k === MARK) both = i += size
      else if (k === LOWER) {
        i += size
        break
      } else {
        // Nothing for the second half here: alternative 1 gives characters back until one fits; if none does, alternative 2 takes the run.
        if (both < 0) return contractionEnd(i)
        steps += i - both
        return contractionEnd(both)
      }
    }
    for (;;) {
      let k = byteClass[buf[i]!]!
      if (k === LOWER) {
        i++
        continue
      }
      if (k !== LEAD) break
      const w = wide(i)
      k = w >> 3
      if (k < LOWER || k > MARK) break
      i += w & 7
    }
    return contractionEnd(i)
  }

  function contractionEnd(i: number): number {
    if (buf[i] !== 0x27) return i
    const a = buf[i + 1]! | 0x20
    if (a === 0x73 || a === 0x74 || a === 0x6d || a === 0x64) return i + 2
    const b = buf[i + 2]! | 0x20
    if (b === 0x65 ? a === 0x72 || a === 0x76 : b === 0x6c && a === 0x6c) return i + 3
    return i
  }

  /** Alternative 3 from behind the first digit. */
  function numberEnd(i: number): number {
    for (let more = 2; more > 0; more--) {
      const k = byteClass[buf[i]!]!
      if (k === NUMBER) i++
      else if (k === LEAD) {
        const w = wide(i)
        if (w >> 3 !== NUMBER) break
        i += w & 7
      } else break
    }
    return i
  }

  /** Alternative 4 from behind its first character or its space. */
  function punctuationEnd(i: number): number {
    for (;;) {
      const k = byteClass[buf[i]!]!
      if (k === OTHER) i++
      else if (k === LEAD) {
        const w = wide(i)
        const wk = w >> 3
        if (wk !== OTHER && wk !== MARK) break
        i += w & 7
      } else break
    }
    for (let c = buf[i]!; c === 10 || c === 13 || c === 0x2f; c = buf[i]!) i++
    return i
  }

  /** Alternatives 5, 6 and 7. */
  function spaceEnd(p: number): number {
    let i = p
    let newline = -1
    let lastSize = 1
    for (;;) {
      const k = byteClass[buf[i]!]!
      if (k === NEWLINE) {
        newline = ++i
        lastSize = 1
      } else if (k === SPACE) {
        i++
        lastSize = 1
      } else if (k === LEAD) {
        const w = wide(i)
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
    // The last space of a run goes with what follows, unless it is alone.
    return i - lastSize > p ? i - lastSize : i
  }

  // ---- byte-pair encoding ----

  const part = new Int32Array(window)
  const keptTokens = new Int32Array(window)
  const dead = new Uint8Array(window + 1)

  // The tokens that begin where `match` looked, shortest first, and where they end.
  const foundToken = new Int32Array(256)
  const foundEnd = new Int32Array(256)

  /** Finds the tokens that begin at `p` and end within `end`; returns how many. */
  function match(p: number, end: number): number {
    let state = 0
    let i = p
    let high = -1
    let count = 0
    while (i < end) {
      const c = buf[i]!
      if (((high >>> childBit[c]!) & 1) === 0) break
      state = (trie[2 * state]! >>> 8) + c
      if ((trie[2 * state]! & 255) !== c) break
      i++
      high = trie[2 * state + 1]!
      const t = high & 0x3ffff
      if (t !== 0) {
        foundToken[count] = t - 1
        foundEnd[count++] = i
      }
    }
    steps += i - p
    return count
  }

  /** The token that a pair of tokens merges to, or -1. */
  function merged(a: number, b: number): number {
    const h = pairHash(a, b)
    const f = pairFilter[h >>> (32 - FILTER_BITS)]!
    if (((f >>> h) & (f >>> (h >>> 5)) & 1) === 0) return -1
    const key = a | (b << 18)
    const high = b >>> 14
    for (let slot = h >>> (32 - PAIR_BITS); ; slot = (slot + 1) & pairMask) {
      const value = pairs[2 * slot + 1]!
      if (value === 0) return -1
      if (pairs[2 * slot] === key && (value & 15) === high) return value >> 4
    }
  }

  /**
   * Whether byte-pair encoding of the two tokens' joined bytes gives just these two. Takes both apart, latest merge first, from the border
   * outwards; at each level it asks whether the two parts at the border would have been merged before the parts themselves were.
   */
  function adjoins(a: number, b: number): boolean {
    // The rank from which on a merge across the border comes too late.
    let limit = 0x7fffffff
    for (;;) {
      steps++
      const across = merged(a, b)
      if (across >= 0 && across < limit) return false
      if (a > b) {
        limit = a
        a = halves[2 * a + 1]!
        if (a !== limit) continue
        limit = b + 1
        b = halves[2 * b]!
        if (b + 1 === limit) return true
      } else {
        limit = b + 1
        b = halves[2 * b]!
        if (b + 1 !== limit) continue
        limit = a
        a = halves[2 * a + 1]!
        if (a === limit) return true
      }
    }
  }

  const merger = createMerger(tables, merged, window)
  /** Set when backtracking was given up. */
  let stuck = false

  /**
   * Tokens of `[s, e)`, at most `WINDOW` bytes, left in `part`; returns how many. Longest token first, with backtracking: a prefix of a text has one
   * encoding in which each neighbouring pair adjoins, so a position that no token can leave is dead for good, and each dies at most once. (The algorithm
   * of GitHub's rust-gems `bpe` crate.) Some runs, of `-` for one, make it try most tokens at most positions: when it has taken `BUDGET` steps a byte, merging
   * takes over.
   */
  function encodeWindow(s: number, e: number): number {
    const allowed = steps + BUDGET * (e - s) + 64
    let found = match(s, e) - 1
    let n = 0
    let pos = s
    let dirty = false
    for (;;) {
      if (found < 0) {
        // Nothing can follow here: take the last token back, and look for a shorter one in its place.
        dead[pos - s] = 1
        dirty = true
        const end = pos
        pos -= tokenLength[part[--n]!]!
        found = match(pos, end - 1) - 1
        continue
      }
      const end = foundEnd[found]!
      if (dead[end - s] === 0 && (n === 0 || adjoins(part[n - 1]!, foundToken[found]!))) {
        part[n++] = foundToken[found]!
        pos = end
        if (pos === e) break
        found = match(pos, e) - 1
        if (steps > allowed) break
      } else found--
    }
    if (dirty) dead.fill(0, 0, e - s + 1)
    if (pos === e) return n
    stuck = true
    return merger.encode(buf, s, e, part)
  }

  /**
   * Encodes a piece longer than a window, window by window, so that memory stays bounded and the working arrays in the cache. A window's last tokens may come
   * out otherwise with what follows, so the next one begins some tokens before its end. Its first token must fit behind the last one kept: if it does, both
   * encodings joined are the encoding of the joined bytes, since that is the only one in which each pair adjoins. If it does not, the window begins a token
   * earlier. (Never seen but with tiny windows, where tests make it so.)
   */
  function encodeLong(s: number, e: number, ids: number[] | undefined): number {
    let count = 0
    let at = s
    let kept = 0
    let retries = 0
    stuck = false
    for (;;) {
      const end = Math.min(at + window, e)
      // A piece that made backtracking give up once does so in each window.
      const n: number = stuck ? merger.encode(buf, at, end, part) : encodeWindow(at, end)
      if (kept > 0 && !adjoins(keptTokens[kept - 1]!, part[0]!)) {
        if (kept === 1 || ++retries > MAX_RETRIES) return encodeWhole(s, e, ids, count)
        at -= tokenLength[keptTokens[--kept]!]!
        count--
        ids?.pop()
        continue
      }
      retries = 0
      kept = end === e ? n : Math.max(1, n - overlap)
      for (let i = 0; i < kept; i++) {
        keptTokens[i] = part[i]!
        at += tokenLength[part[i]!]!
        ids?.push(part[i]!)
      }
      count += kept
      if (end === e) return count
    }
  }

  /** The last resort of `encodeLong`: merges the piece as a whole. Takes 24 bytes of memory a byte. */
  function encodeWhole(s: number, e: number, ids: number[] | undefined, taken: number): number {
    const out = new Int32Array(e - s)
    const n = createMerger(tables, merged, e - s).encode(buf, s, e, out)
    if (ids) {
      ids.length -= taken
      for (let i = 0; i < n; i++) ids.push(out[i]!)
    }
    return n
  }

  /** Tokens of the piece `[s, e)`; their ids are added to `ids`, if given. */
  function encodePiece(s: number, e: number, ids: number[] | undefined): number {
    if (e - s > window) return encodeLong(s, e, ids)
    const n = encodeWindow(s, e)
    if (ids) for (let i = 0; i < n; i++) ids.push(part[i]!)
    return n
  }

  // ---- the cache of common pieces ----
  //
  // Of fixed size, keyed by the piece's own bytes: a wrong hit cannot be made. A piece has four places side by side; it comes to the last one, where the next
  // newcomer replaces it, and moves one forward each time it is met again. So rubbish, however much, drives out rubbish, and costs others few of their hits.
  //
  // What costs here is memory, a page more than a line: between two requests the processor forgets both. So an entry is no longer than its piece; count and size
  // go into its last byte.

  const SHORT_SETS = 1 << SET_BITS
  /** Two words each, for 2 to 7 bytes: bytes 0…3; bytes 4…6, the size from bit 24, the count from bit 29. 0: free. */
  const shorts = new Int32Array(4 * 2 * SHORT_SETS)
  const LONG_SETS = 1 << (SET_BITS - 1)
  /** Four words each, for 8 to 15 bytes: bytes 0…11; bytes 12…14, the size from bit 24 (never 0), the count from bit 28. */
  const longs = new Int32Array(4 * 4 * LONG_SETS)

  /** What is kept of the words 0 and 1 of a short piece by its size, at `size` and `8 + size`. Words 2 and 3 of a long one likewise. */
  const mask = Int32Array.of(0, 0xff, 0xffff, 0xffffff, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0xff, 0xffff, 0xffffff)
  /** By first byte: from how many bytes on a character and the lower-case letters behind it are a word. 255: never, not by this alone. */
  const leastSize = new Uint8Array(256).fill(255)
  for (let b = 0; b < 0x80; b++) {
    const k = byteClass[b]!
    if (k === LOWER) leastSize[b] = 1
    else if (k === OTHER || k === SPACE || k === UPPER) leastSize[b] = 2
  }

  /** Where `countRange` stopped. */
  let reached = 0

  /** Tokens of the pieces from `from` on that begin before `n`. */
  function countRange(from: number, n: number): number {
    const v = view
    let total = 0
    let p = from
    while (p < n) {
      const w0 = v.getInt32(p, true)
      const w1 = v.getInt32(p + 4, true)
      // Most pieces are one character and up to six lower-case letters. Found at one go, all bytes at a time, since where a loop over a word's letters ends
      // is what a processor cannot foresee. Bit `i` of `others`: byte `i` is not a lower-case letter; whether the first is one does not matter.
      const others = (notLower(w0) & 14) | (notLower(w1) << 4) | 256
      let size = 31 - Math.clz32(others & -others)
      const least = leastSize[buf[p]!]!
      if (size === 8 && least <= 2) while (byteClass[buf[p + size]!] === LOWER) size++
      const behind = buf[p + size]!
      // Too short for what it begins with, or followed by what may belong to it, an apostrophe or a letter beyond ASCII: more to it.
      if (size < least || behind >= 0x80 || behind === 0x27) size = pieceEnd(p) - p
      if (size <= 7) {
        if (size === 1) {
          total++
          p++
          continue
        }
        const k0 = w0 & mask[size]!
        const k1 = (w1 & mask[size + 8]!) | (size << 24)
        const hash = Math.imul(k0, 0x9e3779b1) ^ Math.imul(k1, 0x85ebca6b)
        const h = ((hash ^ (hash >>> 15)) & (SHORT_SETS - 1)) << 3
        let at = h
        while (shorts[at] !== k0 || (shorts[at + 1]! ^ k1) << 3 !== 0) if ((at += 2) === h + 8) break
        if (at < h + 8) {
          const k = shorts[at + 1]!
          total += k >>> 29
          if (at > h) {
            shorts[at] = shorts[at - 2]!
            shorts[at + 1] = shorts[at - 1]!
            shorts[at - 2] = k0
            shorts[at - 1] = k
          }
        } else {
          const count = encodePiece(p, p + size, undefined)
          shorts[h + 6] = k0
          shorts[h + 7] = k1 | (count << 29)
          total += count
        }
      } else if (size <= 15) {
        const k2 = v.getInt32(p + 8, true) & mask[size - 8]!
        const k3 = (v.getInt32(p + 12, true) & mask[size]!) | (size << 24)
        const hash =
          Math.imul(w0, 0x9e3779b1) ^ Math.imul(w1, 0x85ebca6b) ^ Math.imul(k2, 0xc2b2ae35) ^ Math.imul(k3, 0x27d4eb2f)
        const h = ((hash ^ (hash >>> 15)) & (LONG_SETS - 1)) << 4
        let at = h
        while (longs[at] !== w0 || longs[at + 1] !== w1 || longs[at + 2] !== k2 || (longs[at + 3]! ^ k3) << 4 !== 0)
          if ((at += 4) === h + 16) break
        if (at < h + 16) {
          const k = longs[at + 3]!
          total += k >>> 28
          if (at > h) {
            for (let i = at; i < at + 4; i++) longs[i] = longs[i - 4]!
            longs[at - 4] = w0
            longs[at - 3] = w1
            longs[at - 2] = k2
            longs[at - 1] = k
          }
        } else {
          const count = encodePiece(p, p + size, undefined)
          longs[h + 12] = w0
          longs[h + 13] = w1
          longs[h + 14] = k2
          longs[h + 15] = k3 | (count << 28)
          total += count
        }
      } else total += encodePiece(p, p + size, undefined)
      p += size
    }
    reached = p
    return total
  }

  /** Where the last but two of the pieces in `[from, n)` begins; -1 when there are fewer than three. */
  function thirdLast(from: number, n: number): number {
    let third = -1
    let second = -1
    let last = -1
    for (let p = from; p < n; p = pieceEnd(p)) {
      third = second
      second = last
      last = p
    }
    return third
  }

  // ---- entry points ----

  /** Uses `bytes` as the buffer; the sentinel goes behind `length`. */
  function use(bytes: Uint8Array, length: number): void {
    if (bytes !== buf) {
      buf = bytes as Uint8Array<ArrayBuffer>
      view = new DataView(buf.buffer, buf.byteOffset, buf.byteLength)
    }
    buf[length] = 0xff
  }

  let scratch = buf

  function write(text: string): number {
    if (text.length * 3 + PADDING > scratch.length) {
      const size = text.length * 3 + PADDING
      const bytes = new Uint8Array(size > KEPT ? Buffer.byteLength(text) + PADDING : Math.min(KEPT, 2 * size))
      if (bytes.length <= KEPT) scratch = bytes
      const n = encoder.encodeInto(text, bytes).written
      use(bytes, n)
      return n
    }
    const n = encoder.encodeInto(text, scratch).written
    use(scratch, n)
    return n
  }

  function release(): void {
    // A large buffer is not kept for the sake of the next small text.
    if (buf !== scratch) use(scratch, 0)
  }

  return {
    count(text) {
      if (text === '') return 0
      const total = countRange(0, write(text))
      release()
      return total
    },
    encode(text) {
      const ids: number[] = []
      const n = write(text)
      for (let p = 0; p < n; ) {
        const e = pieceEnd(p)
        encodePiece(p, e, ids)
        p = e
      }
      release()
      return ids
    },
    countBytes(bytes, length, from = 0) {
      use(bytes, from + length)
      const total = countRange(from, from + length)
      release()
      return total
    },
    countSettled(bytes, length) {
      use(bytes, length)
      let total = 0
      let from = 0
      if (length > NEAR) {
        total = countRange(0, length - NEAR)
        from = reached
      }
      // Where a piece ends depends on at most three characters behind it, or on the end of a run (of capitals, of spaces) that the next
      // piece reaches too. So all but the last three are final.
      let third = thirdLast(from, length)
      if (third < 0 && from > 0) {
        // Long pieces: it has been counted already.
        total = 0
        from = 0
        third = thirdLast(0, length)
      }
      settledLength = Math.max(0, third)
      total += countRange(from, settledLength)
      release()
      return total
    },
    get settledLength() {
      return settledLength
    },
    get steps() {
      return steps + merger.steps
    },
  }
}
