/**
 * The o200k_base tokenizer. Exact on any input, and linear in its length.
 *
 *   text ──► UTF-8 bytes ──► splitter: pieces ──► cache of pieces: counts ── unknown ones ──► encoder: tokens
 *
 * Text is turned into bytes first (native, gigabytes a second; lone surrogates become U+FFFD, as TextEncoder has them), so that all three work on one
 * typed array and never slice a string.
 */
import { createEncoder, type EncoderOptions } from './encoder.ts'
import { createPieceCache, LONG, SHORT } from './piece-cache.ts'
import { createSplitter, PADDING, SENTINEL } from './splitter.ts'
import type { Tables } from './tables.ts'

/** Bytes at the end of a text that nearly always hold three pieces. */
const NEAR = 128
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

const utf8 = new TextEncoder()

export function createTokenizer(tables: Tables, options?: EncoderOptions): Tokenizer {
  const splitter = createSplitter(tables)
  const cache = createPieceCache()
  const encoder = createEncoder(tables, options)
  // Constants of their own: the compiler puts such functions into the loop below.
  const { end, endFast } = splitter
  const { findShort, findLong, keep } = cache
  let scratch = new Uint8Array(1 << 16)
  let scratchView = new DataView(scratch.buffer)
  let settledLength = 0
  /** Where `countRange` stopped. */
  let reached = 0

  /** Tokens of the pieces from `from` on that begin before `to`. */
  function countRange(bytes: Uint8Array, from: number, to: number): number {
    const view = bytes === scratch ? scratchView : new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    let total = 0
    let p = from
    while (p < to) {
      const next = endFast(bytes, view, p)
      const size = next - p
      if (size === 1) total++
      else if (size > LONG) total += encoder.encode(bytes, p, next, undefined)
      else {
        let count = size <= SHORT ? findShort(view, p, size) : findLong(view, p, size)
        if (count === 0) {
          count = encoder.encode(bytes, p, next, undefined)
          keep(view, p, size, count)
        }
        total += count
      }
      p = next
    }
    reached = p
    return total
  }

  /** Room for a text. What is larger than `KEPT` is not kept for the sake of the next small text. */
  function roomFor(text: string): Uint8Array<ArrayBuffer> {
    const size = text.length * 3 + PADDING
    if (size <= scratch.length) return scratch
    if (size > KEPT) {
      const exact = new Uint8Array(Buffer.byteLength(text) + PADDING)
      if (exact.length > KEPT) return exact
      scratch = exact
    } else scratch = new Uint8Array(Math.min(KEPT, 2 * size))
    scratchView = new DataView(scratch.buffer)
    return scratch
  }

  return {
    count(text) {
      if (text === '') return 0
      const bytes = roomFor(text)
      const { written } = utf8.encodeInto(text, bytes)
      bytes[written] = SENTINEL
      return countRange(bytes, 0, written)
    },
    encode(text) {
      const ids: number[] = []
      const bytes = roomFor(text)
      const { written } = utf8.encodeInto(text, bytes)
      bytes[written] = SENTINEL
      for (let p = 0; p < written; ) {
        const next = end(bytes, p)
        encoder.encode(bytes, p, next, ids)
        p = next
      }
      return ids
    },
    countBytes(bytes, length, from = 0) {
      bytes[from + length] = SENTINEL
      return countRange(bytes, from, from + length)
    },
    countSettled(bytes, length) {
      bytes[length] = SENTINEL
      let total = 0
      let from = 0
      if (length > NEAR) {
        total = countRange(bytes, 0, length - NEAR)
        from = reached
      }
      let settled = splitter.lastThree(bytes, from, length)
      if (settled < 0 && from > 0) {
        // Long pieces: it has been counted already.
        total = 0
        from = 0
        settled = splitter.lastThree(bytes, 0, length)
      }
      settledLength = Math.max(0, settled)
      return total + countRange(bytes, from, settledLength)
    },
    get settledLength() {
      return settledLength
    },
    get steps() {
      return splitter.steps + encoder.steps
    },
  }
}
