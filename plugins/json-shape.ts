/**
 * Depth and number of values of a JSON text, in one pass over its bytes and before anything is built from them: JSON.parse takes a
 * million levels, and what later walks the value would not (reliability 3, rows 35 and 36).
 */
export class JsonShape {
  /** Deepest nesting seen. */
  deepest = 0
  /** Values, counted by what separates and opens them: never fewer than there are, at most one more a container. */
  nodes = 1
  #depth = 0
  #inString = false
  #escaped = false

  /** Takes the next bytes of the text; a text may come in any pieces. */
  push(bytes: Uint8Array, from = 0, to = bytes.length): void {
    let i = from
    while (i < to) {
      if (this.#inString) {
        for (; i < to; i++) {
          if (this.#escaped) {
            this.#escaped = false
            continue
          }
          const s = bytes[i]!
          if (s === 0x5c) this.#escaped = true
          else if (s === 0x22) {
            this.#inString = false
            i++
            break
          }
        }
        continue
      }
      const c = bytes[i++]!
      if (c === 0x22) this.#inString = true
      else if (c === 0x7b || c === 0x5b) {
        this.nodes++
        if (++this.#depth > this.deepest) this.deepest = this.#depth
      } else if (c === 0x7d || c === 0x5d) this.#depth--
      else if (c === 0x2c) this.nodes++
    }
  }
}
