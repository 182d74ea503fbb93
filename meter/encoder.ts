/**
 * Byte-pair encoding of one piece. It tries the longest token first, with backtracking. Where backtracking is slow, it
 * uses merging (merge.ts). The time is linear in the length of the piece, for any bytes.
 */
import { createMerger, pairLookup } from './merge.ts'
import type { Tables } from './tables.ts'

/** At most this many bytes of a piece are encoded at once. */
const WINDOW = 4096
/** This many tokens at the end of a window are encoded again in the next window. */
const OVERLAP = 8
/** After this many windows in a row that do not fit to the one before, the piece is merged as a whole. */
const MAX_RETRIES = 64
/** After this many steps for each byte, backtracking is given up and merging takes over. Natural text takes 2. */
const BUDGET = 6

export interface PieceEncoder {
  /** Number of tokens of the piece `bytes[s, e)`, which must not be empty. Their ids are added to `ids`, if given. */
  encode(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined): number
  /** How many elementary steps all calls so far took: trie steps, pairs tested, merges. */
  readonly steps: number
}

export interface EncoderOptions {
  /** For tests: another WINDOW. */
  window?: number
  /** For tests: another OVERLAP. */
  overlap?: number
}

export function createEncoder(
  tables: Tables,
  { window = WINDOW, overlap = OVERLAP }: EncoderOptions = {},
): PieceEncoder {
  const { trie, childBit, halves, length: tokenLength } = tables
  const merged = pairLookup(tables)
  const merger = createMerger(tables, merged, window)
  let steps = 0
  const part = new Int32Array(window)
  const keptTokens = new Int32Array(window)
  const dead = new Uint8Array(window + 1)

  // The tokens that `match` found, shortest first, and where each ends.
  const foundToken = new Int32Array(256)
  const foundEnd = new Int32Array(256)

  /** Finds all tokens that begin at `p` and do not end behind `end`. @returns how many */
  function match(bytes: Uint8Array, p: number, end: number): number {
    let state = 0
    let i = p
    let high = -1
    let count = 0
    while (i < end) {
      const c = bytes[i]!
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

  /**
   * Whether byte-pair encoding of the joined bytes of two tokens gives exactly these two tokens. It undoes their merges
   * at the border, the latest merge first. At each level it checks whether the two parts at the border would have been
   * merged with each other before either became part of its token.
   */
  function adjoins(a: number, b: number): boolean {
    // A merge across the border with this rank or a higher one comes too late.
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

  /** Whether backtracking was given up for the present piece. */
  let stuck = false

  /**
   * Writes the tokens of `[s, e)`, at most `window` bytes, to `part`. It tries the longest token first, with
   * backtracking. Each prefix of a text has exactly one encoding in which every neighbouring pair adjoins. So a
   * position from which no token leads on is dead for the rest of the window, and each position becomes dead at most
   * once. (This is the algorithm of GitHub's rust-gems `bpe` crate.) Some runs, for example of `-`, make it try most
   * tokens at most positions. After `BUDGET` steps for each byte, merging takes over.
   * @returns how many tokens
   */
  function encodeWindow(bytes: Uint8Array, s: number, e: number): number {
    const allowed = steps + BUDGET * (e - s) + 64
    let found = match(bytes, s, e) - 1
    let n = 0
    let pos = s
    let dirty = false
    for (;;) {
      if (found < 0) {
        // No token can follow here: remove the last token, and try a shorter one in its place.
        dead[pos - s] = 1
        dirty = true
        const end = pos
        pos -= tokenLength[part[--n]!]!
        found = match(bytes, pos, end - 1) - 1
        continue
      }
      const end = foundEnd[found]!
      if (dead[end - s] === 0 && (n === 0 || adjoins(part[n - 1]!, foundToken[found]!))) {
        part[n++] = foundToken[found]!
        pos = end
        if (pos === e) break
        found = match(bytes, pos, e) - 1
        if (steps > allowed) break
      } else found--
    }
    if (dirty) dead.fill(0, 0, e - s + 1)
    if (pos === e) return n
    stuck = true
    return merger.encode(bytes, s, e, part)
  }

  /**
   * Encodes a piece longer than a window, window by window. So memory is bounded, and the working arrays stay in the
   * processor's cache. The bytes behind a window may change its last tokens, so the next window begins some tokens
   * before its end. The first token of a window must adjoin the last token kept. Then both encodings joined are the
   * encoding of the joined bytes, because that is the only one in which every pair adjoins. If it does not, the window
   * begins one token earlier. (This was only seen with tiny windows, in tests.)
   */
  function encodeLong(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined): number {
    let count = 0
    let at = s
    let kept = 0
    let retries = 0
    stuck = false
    for (;;) {
      const end = Math.min(at + window, e)
      // If backtracking was given up in one window of a piece, it would be in the others too.
      const n: number = stuck ? merger.encode(bytes, at, end, part) : encodeWindow(bytes, at, end)
      if (kept > 0 && !adjoins(keptTokens[kept - 1]!, part[0]!)) {
        if (kept === 1 || ++retries > MAX_RETRIES) return encodeWhole(bytes, s, e, ids, count)
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

  /** Merges the piece as a whole, when `encodeLong` fails. Takes 24 bytes of memory for each byte of the piece. */
  function encodeWhole(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined, taken: number): number {
    const out = new Int32Array(e - s)
    const n = createMerger(tables, merged, e - s).encode(bytes, s, e, out)
    if (ids) {
      ids.length -= taken
      for (let i = 0; i < n; i++) ids.push(out[i]!)
    }
    return n
  }

  function encode(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined): number {
    if (e - s > window) return encodeLong(bytes, s, e, ids)
    const n = encodeWindow(bytes, s, e)
    if (ids) for (let i = 0; i < n; i++) ids.push(part[i]!)
    return n
  }

  return {
    encode,
    get steps() {
      return steps + merger.steps
    },
  }
}
