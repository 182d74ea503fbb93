/**
 * How deep JSON text nests, as it comes in pieces cut anywhere. Strings are passed over and nothing is checked: what is no JSON has some depth too.
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
      if (c === 0x22) {
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
    for (; i < text.length; i++) {
      const c = text.charCodeAt(i)
      if (this.#escaped) this.#escaped = false
      else if (c === 0x5c) this.#escaped = true
      else if (c === 0x22) {
        this.#inString = false
        return i + 1
      }
    }
    return i
  }
}
