/**
 * The o200k_base tokenizer. It is exact for any input, and its time is linear in the length.
 *
 *   text ──► UTF-8 bytes ──► splitter: pieces ──► cache of pieces: counts ── unknown ones ──► encoder: tokens
 *
 * The text is first converted to UTF-8, so that all three parts work on one typed array and never slice a string. The
 * conversion is native code and handles gigabytes a second. Like any TextEncoder, it makes U+FFFD of lone surrogates.
 */
import { createEncoder, type EncoderOptions } from './encoder.ts'
import { createPieceCache, LONG, SHORT } from './piece-cache.ts'
import { createSplitter, PADDING, SENTINEL } from './splitter.ts'
import type { Tables } from './tables.ts'

/** The last three pieces of a text are nearly always within this many bytes of its end. */
const NEAR = 128
/** A buffer of more than this many bytes is not kept between calls. */
const KEPT = 1 << 20

export interface Tokenizer {
  /** Number of tokens of a text. */
  count(text: string): number
  /** The token ids of a text. */
  encode(text: string): number[]
  /**
   * Number of tokens of `bytes[from, from + length)`. This must be valid UTF-8, followed by `PADDING` more bytes, the
   * first of which is overwritten.
   */
  countBytes(bytes: Uint8Array, length: number, from?: number): number
  /**
   * Counts the tokens of those pieces of `bytes[0, length)` that stay the same whatever text follows. The bytes must
   * meet the same conditions as for `countBytes`.
   */
  countSettled(bytes: Uint8Array, length: number): number
  /** How many bytes the pieces took that the last `countSettled` counted; 0 when there were none. */
  readonly settledLength: number
  /**
   * How many elementary steps all calls so far took: bytes that the splitter read more than once, trie steps, pairs
   * tested. For tests that the time grows linearly.
   */
  readonly steps: number
}

const utf8 = new TextEncoder()

export function createTokenizer(tables: Tables, options?: EncoderOptions): Tokenizer {
  const splitter = createSplitter(tables)
  const cache = createPieceCache()
  const encoder = createEncoder(tables, options)
  // V8 inlines these functions into the loop below only when they are constants.
  const { end, endFast } = splitter
  const { findShort, findLong, keep } = cache
  let scratch = new Uint8Array(1 << 16)
  let scratchView = new DataView(scratch.buffer)
  let settledLength = 0
  /** The offset at which the last `countRange` stopped. */
  let reached = 0

  /** Number of tokens of the pieces that begin in `[from, to)`; the first begins at `from`. */
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

  /** A buffer for a text and its padding. It is kept for the next text unless it is larger than `KEPT`. */
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
        // The last bytes hold fewer than three pieces, because these are long. Some of them may be counted already, so
        // the count begins again.
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
