/**
 * Depth and number of values of a JSON text, in one pass over its bytes and before anything is built from them: JSON.parse takes a
 * million levels, and what later walks the value would not.
 */
export class JsonShape {
  /** Deepest nesting seen. */
  deepest = 0
  /** Values, counted by what separates and opens them: never fewer than there are, at most one more a container. */
  nodes = 1
  /** Where strings of at least `LONG` bytes stand, their quotation marks included: known when all bytes come from one array. */
  readonly long: { from: number; to: number }[] = []
  #depth = 0
  #stringFrom = 0
  #inString = false
  #escaped = false

  /** Takes the next bytes of the text; a text may come in any pieces. */
  push(bytes: Uint8Array, from = 0, to = bytes.length): void {
    let i = this.#inString ? this.#stringEnd(bytes, from, to) : from
    while (i < to) {
      const c = bytes[i++]!
      if (c === 0x22) {
        this.#stringFrom = i - 1
        i = this.#stringEnd(bytes, i, to)
      } else if (c === 0x7b || c === 0x5b) {
        this.nodes++
        if (++this.#depth > this.deepest) this.deepest = this.#depth
      } else if (c === 0x7d || c === 0x5d) this.#depth--
      else if (c === 0x2c) this.nodes++
    }
  }

  /** Where the string goes on after `i` ends, behind its quotation mark; `to` when the end is not among these bytes. */
  #stringEnd(bytes: Uint8Array, i: number, to: number): number {
    let escaped = this.#escaped
    let near = Math.min(to, i + NEAR)
    for (;;) {
      for (; i < near; i++) {
        if (escaped) escaped = false
        else if (bytes[i] === 0x5c) escaped = true
        else if (bytes[i] === 0x22) {
          this.#inString = this.#escaped = false
          if (i + 1 - this.#stringFrom >= LONG) this.long.push({ from: this.#stringFrom, to: i + 1 })
          return i + 1
        }
      }
      if (escaped && i < to) {
        escaped = false
        i++
      }
      if (i === to) break
      // A mark behind an odd number of backslashes is escaped. They are looked at once: the next search begins behind the mark.
      const found = nextMark(bytes, i, to)
      const mark = found < 0 ? to : i + found
      let backslashes = mark
      while (backslashes > i && bytes[backslashes - 1] === 0x5c) backslashes--
      escaped = ((mark - backslashes) & 1) === 1
      i = mark
      near = Math.min(to, i + NEAR)
    }
    this.#inString = true
    this.#escaped = escaped
    return to
  }
}

const LONG = 16 * 1024
/** Bytes of a string that are looked at one by one: starting a native search costs as much, and most strings are shorter. */
const NEAR = 48

/** Where in `bytes[from, to)` the first quotation mark stands, or -1. */
function nextMark(bytes: Uint8Array, from: number, to: number): number {
  return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).indexOf(0x22)
}
