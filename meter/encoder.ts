/**
 * Byte-pair encoding of one piece: the longest token first, with backtracking, and merging (merge.ts) where backtracking is slow. Linear in the
 * piece's length on any bytes.
 */
import { createMerger, pairLookup } from './merge.ts'
import type { Tables } from './tables.ts'

/** Bytes of a piece that are encoded at once. */
const WINDOW = 4096
/** Tokens at a window's end that are left to the next one. */
const OVERLAP = 8
const MAX_RETRIES = 64
/** Steps a byte after which backtracking gives way to merging. Natural text takes 2. */
const BUDGET = 6

export interface PieceEncoder {
  /** Tokens of the piece `bytes[s, e)`, which is not empty; their ids are added to `ids`, if given. */
  encode(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined): number
  /** Elementary steps taken so far: trie steps, pairs tested, merges. */
  readonly steps: number
}

export interface EncoderOptions {
  /** For tests. */
  window?: number
  /** For tests. */
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

  // The tokens that begin where `match` looked, shortest first, and where they end.
  const foundToken = new Int32Array(256)
  const foundEnd = new Int32Array(256)

  /** Finds the tokens that begin at `p` and end within `end`; returns how many. */
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

  /** Set when backtracking was given up. */
  let stuck = false

  /**
   * Tokens of `[s, e)`, at most `window` bytes, left in `part`; returns how many. Longest token first, with backtracking: a prefix of a text has one
   * encoding in which each neighbouring pair adjoins, so a position that no token can leave is dead for good, and each dies at most once. (The algorithm
   * of GitHub's rust-gems `bpe` crate.) Some runs, of `-` for one, make it try most tokens at most positions: when it has taken `BUDGET` steps a byte, merging
   * takes over.
   */
  function encodeWindow(bytes: Uint8Array, s: number, e: number): number {
    const allowed = steps + BUDGET * (e - s) + 64
    let found = match(bytes, s, e) - 1
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
   * Encodes a piece longer than a window, window by window, so that memory stays bounded and the working arrays in the cache. A window's last tokens may come
   * out otherwise with what follows, so the next one begins some tokens before its end. Its first token must fit behind the last one kept: if it does, both
   * encodings joined are the encoding of the joined bytes, since that is the only one in which each pair adjoins. If it does not, the window begins a token
   * earlier. (Never seen but with tiny windows, where tests make it so.)
   */
  function encodeLong(bytes: Uint8Array, s: number, e: number, ids: number[] | undefined): number {
    let count = 0
    let at = s
    let kept = 0
    let retries = 0
    stuck = false
    for (;;) {
      const end = Math.min(at + window, e)
      // A piece that made backtracking give up once does so in each window.
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

  /** The last resort of `encodeLong`: merges the piece as a whole. Takes 24 bytes of memory a byte. */
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
