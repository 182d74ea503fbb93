/**
 * JSON text that arrives in pieces cut at any character: where the plain part of a string ends, and how deep a value
 * nests.
 *
 * Each reader of strings decides itself what a malformed escape or a control character means. A reader that only
 * looks for the end of the string skips it. A reader that must know whether the text is JSON rejects it. A reader
 * that unwraps what a model wrote takes it as text.
 */

export const QUOTE = 0x22
export const BACKSLASH = 0x5c

/**
 * The offset, from `at` on, where the characters of a string that stand for themselves end: at a quotation mark, a
 * backslash, a control character (which JSON forbids in strings), or the end of the text.
 */
export function plainEnd(text: string, at: number): number {
  for (; at < text.length; at++) {
    const c = text.charCodeAt(at)
    if (c === QUOTE || c === BACKSLASH || c < 0x20) break
  }
  return at
}

/**
 * Measures how deep JSON text nests, piece by piece. It skips strings and validates nothing: malformed text gets a
 * depth too.
 */
export class JsonNesting {
  /** Deepest nesting so far. */
  deepest = 0
  /** True once the first object or array is closed; text after it is ignored. */
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

  /** Reads the open string from `i` on. @returns the offset behind its quotation mark, or the end of the text */
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
