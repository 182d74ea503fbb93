/**
 * Walks JSON in an array of bytes, in slices, before anything is built from it. Nothing is checked: what is no JSON has
 * a shape too, and whoever parses it says what is wrong with it. One walker does one of two things:
 * - `readAll` tells depth and number of values, for bounds: JSON.parse takes a million levels, and what walks the value
 *   later would not.
 * - `readValue` tells where the value that begins here ends.
 */
export class JsonBytes {
  readonly bytes: Uint8Array
  /** The byte that is looked at next. Who reads value by value sets it to where a value begins. */
  at: number
  /** Deepest nesting seen. */
  deepest = 0
  /** Values, counted by what separates and opens them: never fewer than there are, at most one more a container. */
  nodes = 1
  /** Strings of at least `LONG` bytes, names of members too: `from` their first quotation mark to behind the last. */
  readonly long: { from: number; to: number }[] = []
  #depth = 0
  /** Where the string that is being read began; -1 outside of strings. */
  #string = -1

  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes
    this.at = at
  }

  /** Reads on, at most up to `limit`. */
  readAll(limit = this.bytes.length): void {
    this.#read(Math.min(limit, this.bytes.length), false)
  }

  /**
   * Reads on to the end of the value that begins at `at`. Then `at` is behind its last quotation mark or bracket; for a
   * number or a word it is on the comma or bracket that follows. The end of the bytes is an end too.
   * @returns false when `limit` came before: call it again
   */
  readValue(limit = this.bytes.length): boolean {
    return this.#read(Math.min(limit, this.bytes.length), true) || this.at === this.bytes.length
  }

  /** @returns true when `one` value was asked for, and `at` is at its end */
  #read(limit: number, one: boolean): boolean {
    const { bytes } = this
    if (this.#string !== -1 && this.#pastString(limit) && one && this.#depth === 0) return true
    let i = this.at
    while (i < limit) {
      const c = bytes[i++]!
      if (c === QUOTE) {
        this.#string = i - 1
        this.at = i
        if (this.#pastString(limit) && one && this.#depth === 0) return true
        i = this.at
      } else if (c === 0x7b || c === 0x5b) {
        this.nodes++
        if (++this.#depth > this.deepest) this.deepest = this.#depth
      } else if (c === 0x2c) {
        if (one && this.#depth === 0) return this.#stopOn(i - 1)
        this.nodes++
      } else if (c === 0x7d || c === 0x5d) {
        // It belongs to what is around a value that has no brackets.
        if (one && this.#depth === 0) return this.#stopOn(i - 1)
        this.#depth--
        if (one && this.#depth === 0) return this.#stopOn(i)
      }
    }
    this.at = i
    return false
  }

  #stopOn(at: number): true {
    this.at = at
    return true
  }

  /** Goes behind the end of the string that is being read; false when it does not end before `limit`. */
  #pastString(limit: number): boolean {
    const { bytes } = this
    let i = this.at
    while (i < limit) {
      const near = Math.min(limit, i + NEAR)
      while (i < near && bytes[i] !== QUOTE) i++
      if (i === near && i < limit) i = nextQuote(bytes, i, limit)
      if (i === limit) break
      // A mark behind an odd number of backslashes is escaped. The string's first mark stops the search for them.
      let before = i - 1
      while (bytes[before] === BACKSLASH) before--
      i++
      if (((i - before) & 1) === 1) continue
      if (i - this.#string >= LONG) this.long.push({ from: this.#string, to: i })
      this.#string = -1
      this.at = i
      return true
    }
    this.at = i
    return false
  }
}

/**
 * Where the next byte stands that is no blank. Vertical tabs and form feeds count as blanks here. JSON forbids them: a
 * text that has them is refused when it is parsed.
 */
export function pastBlanks(bytes: Uint8Array, at: number): number {
  while (bytes[at] === 0x20 || (bytes[at]! >= 0x09 && bytes[at]! <= 0x0d)) at++
  return at
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const LONG = 16 * 1024
/** Bytes of a string that are looked at one by one: a native search costs as much to start, and most are shorter. */
const NEAR = 48

/** Where the first quotation mark of `bytes[from, to)` stands; `to` when there is none. */
function nextQuote(bytes: Uint8Array, from: number, to: number): number {
  const found = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).indexOf(QUOTE)
  return found === -1 ? to : from + found
}
