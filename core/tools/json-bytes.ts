/**
 * Scans JSON in an array of bytes, in slices, before anything is built from it. It validates nothing: it gives a
 * result for malformed text too, and the parser reports what is wrong. One scanner does one of two things:
 * - `readAll` finds the depth and the number of values, to bound them: JSON.parse takes a million levels, but the
 *   code that walks the value later does not.
 * - `readValue` finds where the value that begins at `at` ends.
 */
export class JsonBytes {
  readonly bytes: Uint8Array
  /** Offset of the next byte to read. Before `readValue` the caller sets it to where a value begins. */
  at: number
  /** Deepest nesting seen. */
  deepest = 0
  /**
   * Number of values, counted by commas and opening brackets: never fewer than there are, and at most one more for
   * each container.
   */
  nodes = 1
  /**
   * Strings of at least `LONG_BYTES` bytes, member names included. `from` is the offset of the opening quotation
   * mark; `to` is the offset behind the closing one.
   */
  readonly long: { from: number; to: number }[] = []
  /** The deepest nesting of a number that JSON.stringify may write in another way (`1.10`); 0: none. */
  respelled = 0
  #depth = 0
  /** Offset where the current string began; -1 outside of strings. */
  #string = -1

  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes
    this.at = at
  }

  /** Scans further, at most to `limit`. */
  readAll(limit = this.bytes.length): void {
    this.#read(Math.min(limit, this.bytes.length), false)
  }

  /**
   * Scans to the end of the value that begins at `at`. Then `at` is behind the value's last quotation mark or
   * bracket; for a number, `true`, `false` or `null` it is on the comma or bracket that follows. The end of the bytes
   * also ends the value.
   * @returns false when `limit` was reached first: call it again
   */
  readValue(limit = this.bytes.length): boolean {
    return this.#read(Math.min(limit, this.bytes.length), true) || this.at === this.bytes.length
  }

  /** @returns true when one value is wanted (`one`) and `at` is at its end */
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
        // A value without brackets ends here: this bracket closes the container around it.
        if (one && this.#depth === 0) return this.#stopOn(i - 1)
        this.#depth--
        if (one && this.#depth === 0) return this.#stopOn(i)
      } else if ((c === MINUS || (c >= ZERO && c <= NINE)) && this.#depth > this.respelled) {
        if (!inNumber(bytes[i - 2]!) && mayChange(bytes, i - 1)) this.respelled = this.#depth
      }
    }
    this.at = i
    return false
  }

  #stopOn(at: number): true {
    this.at = at
    return true
  }

  /**
   * Moves `at` behind the end of the current string.
   * @returns false when the string does not end before `limit`
   */
  #pastString(limit: number): boolean {
    const { bytes } = this
    let i = this.at
    while (i < limit) {
      const near = Math.min(limit, i + NEAR_BYTES)
      while (i < near && bytes[i] !== QUOTE) i++
      if (i === near && i < limit) i = nextQuote(bytes, i, limit)
      if (i === limit) break
      // A quotation mark after an odd number of backslashes is escaped. The count cannot run past the opening
      // quotation mark.
      let before = i - 1
      while (bytes[before] === BACKSLASH) before--
      i++
      if (((i - before) & 1) === 1) continue
      if (i - this.#string >= LONG_BYTES) this.long.push({ from: this.#string, to: i })
      this.#string = -1
      this.at = i
      return true
    }
    this.at = i
    return false
  }
}

/**
 * The offset of the next byte that is not a blank. Vertical tabs and form feeds count as blanks here; JSON forbids
 * them, and the parser refuses a text that has them.
 */
export function pastBlanks(bytes: Uint8Array, at: number): number {
  while (bytes[at] === 0x20 || (bytes[at]! >= 0x09 && bytes[at]! <= 0x0d)) at++
  return at
}

/** Whether a byte before a digit or a minus sign belongs to the same number. */
function inNumber(c: number): boolean {
  return (c >= ZERO && c <= NINE) || c === DOT || c === MINUS || c === PLUS || (c | 0x20) === LETTER_E
}

/**
 * Whether JSON.stringify may write the number that begins at `at` in another way than it is written there. A number of
 * 16 characters counts as one that may change: a double holds 15 digits.
 */
function mayChange(bytes: Uint8Array, at: number): boolean {
  let fraction = false
  for (let i = at; i < at + LONG_NUMBER; i++) {
    const c = bytes[i]!
    if (c === DOT) fraction = true
    else if ((c | 0x20) === LETTER_E) return true
    else if (!(c >= ZERO && c <= NINE) && c !== MINUS) {
      // A zero at the end of a fraction; minus zero; and a fraction that JavaScript writes with an exponent.
      if (fraction && bytes[i - 1] === ZERO) return true
      return bytes[at] === MINUS ? bytes[at + 1] === ZERO : fraction && i - at > TINY && bytes[at] === ZERO
    }
  }
  return true
}

const PLUS = 0x2b
const MINUS = 0x2d
const DOT = 0x2e
const ZERO = 0x30
const NINE = 0x39
const LETTER_E = 0x65
/** A number of this many characters is not read to its end. */
const LONG_NUMBER = 16
/** `0.000001` is written as it is, and a fraction with more zeros is longer. */
const TINY = 8
const QUOTE = 0x22
const BACKSLASH = 0x5c
/** A string of at least this many bytes is reported in `long`. */
const LONG_BYTES = 16 * 1024
/**
 * This many bytes of a string are compared one by one before the native search is called: most strings are shorter,
 * and calling the native search costs as much.
 */
const NEAR_BYTES = 48

/** The offset of the first quotation mark in `bytes[from, to)`; `to` when there is none. */
function nextQuote(bytes: Uint8Array, from: number, to: number): number {
  const found = Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).indexOf(QUOTE)
  return found === -1 ? to : from + found
}
