import { PADDING } from './splitter.ts'
import { tables } from './tables.ts'
import { createTokenizer, type Tokenizer } from './tokenizer.ts'

let own: Tokenizer | undefined

/** The process's tokenizer; its tables are loaded at the first call (some 100 ms). */
export function tokenizer(): Tokenizer {
  return (own ??= createTokenizer(tables()))
}

/** Takes another tokenizer than the one that would be made at the first call. */
export function useTokenizer(tokenizer: Tokenizer): void {
  own = tokenizer
}

/** Tokens of a text in o200k_base. Exact on any string, special-token look-alikes and lone surrogates included; linear time. */
export function countTokens(text: string): number {
  return tokenizer().count(text)
}

/** The o200k_base token ids of a text. */
export function encode(text: string): number[] {
  return tokenizer().encode(text)
}

/** Deltas are gathered to this many UTF-16 units before they are looked at. */
const BATCH = 512
/** A larger tail buffer is let go once it is mostly empty. */
const KEPT = 1 << 14
const NOTHING = new Uint8Array(0)
const encoder = new TextEncoder()

/**
 * Counts a text that arrives in parts. `total` equals `countTokens` of all parts joined, wherever they were cut, inside a surrogate pair too.
 *
 * Pieces that no further text can change are counted and forgotten; kept are the last three, and text not yet looked at: as much again, at
 * least `BATCH`, and the last part. The tail is looked at again only when it has doubled, so a reply that is one endless piece stays linear. `total` costs a count of
 * the tail: ask at the end, not after each delta.
 */
export class TokenCounter {
  #counted = 0
  /** Text not yet turned into bytes. */
  #pending = ''
  /** `#tail[0, #length)`: UTF-8 of the pieces that are still open. */
  #tail = NOTHING
  #length = 0
  /** Pending units at which to look again. */
  #due = BATCH

  push(text: string): void {
    // Not after adding it: a text that comes whole, and nothing behind it, is counted at one go.
    if (this.#pending.length >= this.#due) this.#settle()
    this.#pending += text
  }

  /** Tokens of everything pushed so far, if the text ended here. */
  get total(): number {
    if (this.#length === 0) return this.#counted + countTokens(this.#pending)
    this.#settle()
    let length = this.#length
    // What is left is the first half of a surrogate pair; if the text ends here it is U+FFFD.
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
