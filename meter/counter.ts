import { PADDING } from './splitter.ts'
import { tables } from './tables.ts'
import { createTokenizer, type Tokenizer } from './tokenizer.ts'

let own: Tokenizer | undefined

/** The tokenizer of this process. The first call loads its tables, which takes about 100 ms. */
export function tokenizer(): Tokenizer {
  return (own ??= createTokenizer(tables()))
}

/** Sets the tokenizer, instead of the one that `tokenizer` would make at its first call. */
export function useTokenizer(tokenizer: Tokenizer): void {
  own = tokenizer
}

/**
 * Number of o200k_base tokens of a text. Exact for any string, also with text that looks like a special token or with
 * lone surrogates. Takes linear time.
 */
export function countTokens(text: string): number {
  return tokenizer().count(text)
}

/** The o200k_base token ids of a text. */
export function encode(text: string): number[] {
  return tokenizer().encode(text)
}

/** Deltas gather until they have this many UTF-16 units; then they are split and counted. */
const BATCH = 512
/** A tail buffer of more than this many bytes is replaced by a smaller one when it is mostly empty. */
const KEPT = 1 << 14
const NOTHING = new Uint8Array(0)
const encoder = new TextEncoder()

/**
 * Counts a text that arrives in parts. `total` equals `countTokens` of all parts joined, wherever the text was cut,
 * even inside a surrogate pair.
 *
 * Pieces that no further text can change are counted and forgotten. The counter keeps the last three pieces (the tail),
 * and pending text: as much as the tail, at least `BATCH` units, and the last part. The tail is split again only when
 * it has doubled, so that a reply which is one endless piece takes linear time. `total` counts the tail each time, so
 * read it at the end and not after each delta.
 */
export class TokenCounter {
  #counted = 0
  /** Text that is not converted to bytes yet. */
  #pending = ''
  /** `#tail[0, #length)` is the UTF-8 of the last pieces, which further text may change. */
  #tail = NOTHING
  #length = 0
  /** When the pending text has this many units, it is converted and counted. */
  #due = BATCH

  push(text: string): void {
    // This is checked before the text is added, so that a text in one part is counted by `total` alone.
    if (this.#pending.length >= this.#due) this.#settle()
    this.#pending += text
  }

  /** Tokens of all text so far, as if it ended here. */
  get total(): number {
    if (this.#length === 0) return this.#counted + countTokens(this.#pending)
    this.#settle()
    let length = this.#length
    // The pending text is now empty or the first half of a surrogate pair. As the end of a text, that half is U+FFFD.
    if (this.#pending !== '') length += encoder.encodeInto(this.#pending, this.#tail.subarray(length)).written
    return this.#counted + tokenizer().countBytes(this.#tail, length)
  }

  #settle(): void {
    const text = this.#pending
    const last = text.charCodeAt(text.length - 1)
    const cut = last >= 0xd800 && last < 0xdc00
    const need = this.#length + 3 * text.length + PADDING
    if (this.#tail.length < need) {
      const grown = new Uint8Array(2 * need)
      grown.set(this.#tail.subarray(0, this.#length))
      this.#tail = grown
    }
    this.#pending = cut ? text.slice(-1) : ''
    const length =
      this.#length + encoder.encodeInto(cut ? text.slice(0, -1) : text, this.#tail.subarray(this.#length)).written
    const t = tokenizer()
    this.#counted += t.countSettled(this.#tail, length)
    const settled = t.settledLength
    this.#length = length - settled
    if (this.#tail.length > KEPT && this.#length * 8 < this.#tail.length)
      this.#tail = this.#tail.slice(settled, length + 4 * PADDING)
    else if (settled > 0) this.#tail.copyWithin(0, settled, length)
    this.#due = Math.max(BATCH, this.#length)
  }
}
