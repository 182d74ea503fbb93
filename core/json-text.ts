/**
 * JSON text that arrives in pieces cut anywhere: how far the plain part of a string goes, and how deep a value nests.
 *
 * A reader of strings decides itself what a malformed escape or a control character means. One that only looks for the
 * end passes over it. One that must know whether the text is JSON says no. One that unwraps what a model wrote takes it
 * as text.
 */

export const QUOTE = 0x22
export const BACKSLASH = 0x5c

/**
 * Where the characters of a string that stand for themselves end, from `at` on: at a quotation mark, a backslash, a
 * control character (which JSON forbids there), or the end of the text.
 */
export function plainEnd(text: string, at: number): number {
  for (; at < text.length; at++) {
    const c = text.charCodeAt(at)
    if (c === QUOTE || c === BACKSLASH || c < 0x20) break
  }
  return at
}

/**
 * How deep JSON text nests, as it comes in pieces cut anywhere. Strings are passed over and nothing is checked: what is
 * no JSON has some depth too.
 */
export class JsonNesting {
  /** Deepest nesting so far. */
  deepest = 0
  /** The first object or array is closed; what comes behind it is not looked at. */
  closed = false
  #depth = 0
  #inString = false
  #escaped = false

  push(text: string): void {
    if (this.closed) return
    for (let i = this.#inString ? this.#stringEnd(text, 0) : 0; i < text.length; i++) {
      const c = text.charCodeAt(i)
      if (c === QUOTE) {
        this.#inString = true
        i = this.#stringEnd(text, i + 1) - 1
      } else if (c === 0x5b || c === 0x7b) {
        if (++this.#depth > this.deepest) this.deepest = this.#depth
      } else if ((c === 0x5d || c === 0x7d) && --this.#depth <= 0) {
        this.closed = true
        return
      }
    }
  }

  /** Where the open string goes on from `i`: behind its quotation mark, or the end of the text. */
  #stringEnd(text: string, i: number): number {
    while (i < text.length) {
      if (this.#escaped) {
        this.#escaped = false
        i++
      }
      i = plainEnd(text, i)
      if (i === text.length) break
      const c = text.charCodeAt(i++)
      if (c === BACKSLASH) this.#escaped = true
      else if (c === QUOTE) {
        this.#inString = false
        return i
      }
    }
    return text.length
  }
}
