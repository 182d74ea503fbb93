/**
 * Follows the text of one JSON object while it arrives, and reports when the text cannot become a JSON object any
 * more. core/tools/json-text.ts reads the plain part of strings. The rest is the grammar of JSON, one character at a
 * time; no other reader needs that. Counting brackets would not be enough: `{'a':1}` would pass.
 */
import { BACKSLASH, plainEnd, QUOTE } from '../core/tools/json-text.ts'

/** The states: what may come next. */
const NEXT = {
  /** The object has not begun; whitespace may come before it. */
  open: 0,
  keyOrEnd: 1,
  key: 2,
  colon: 3,
  value: 4,
  valueOrEnd: 5,
  commaOrEnd: 6,
  /** The object is closed. */
  nothing: 7,
  inString: 8,
  escape: 9,
  /** Digits of a `\u` escape. */
  hex: 10,
  /** The letters of true, false or null. */
  word: 11,
  /** After a minus. */
  digit: 12,
  /** After a leading zero. */
  afterZero: 13,
  integer: 14,
  /** After the point. */
  fractionDigit: 15,
  fraction: 16,
  /** After e. */
  exponentSign: 17,
  exponentDigit: 18,
  exponent: 19,
} as const
type Next = (typeof NEXT)[keyof typeof NEXT]

const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const WORDS: Readonly<Record<string, string>> = { t: 'rue', f: 'alse', n: 'ull' }

/** Checks text that arrives in pieces against the grammar of one JSON object. */
export class JsonObjectText {
  #next: Next = NEXT.open
  /** The open containers, outermost first: true for an object, false for an array. */
  readonly #inside: boolean[] = []
  /** True while the string that is being read is a key. */
  #isKey = false
  /** The missing letters of true, false or null. */
  #rest = ''
  #hexLeft = 0
  #broken = false

  /** True after the object's opening brace. */
  get started(): boolean {
    return this.#next !== NEXT.open
  }
  get whole(): boolean {
    return this.#next === NEXT.nothing && !this.#broken
  }

  /** Forgets all text. */
  reset(): void {
    this.#next = NEXT.open
    this.#inside.length = 0
    this.#broken = false
  }

  /** @returns false as soon as no further text could make it one object */
  push(text: string): boolean {
    for (let i = 0; i < text.length && !this.#broken; i++) {
      if (this.#next === NEXT.inString) {
        i = plainEnd(text, i)
        if (i === text.length) break
        const c = text.charCodeAt(i)
        if (c === QUOTE) this.#next = this.#isKey ? NEXT.colon : NEXT.commaOrEnd
        else if (c === BACKSLASH) this.#next = NEXT.escape
        else this.#broken = true
      } else if (!this.#step(text.charCodeAt(i), text[i]!)) this.#broken = true
    }
    return !this.#broken
  }

  #step(c: number, char: string): boolean {
    switch (this.#next) {
      case NEXT.escape:
        if (char === 'u') {
          this.#hexLeft = 4
          this.#next = NEXT.hex
          return true
        }
        this.#next = NEXT.inString
        return '"\\/bfnrt'.includes(char)
      case NEXT.hex:
        if (--this.#hexLeft === 0) this.#next = NEXT.inString
        return isDigit(c) || (c >= 0x41 && c <= 0x46) || (c >= 0x61 && c <= 0x66)
      case NEXT.word: {
        const right = this.#rest[0] === char
        this.#rest = this.#rest.slice(1)
        if (this.#rest === '') this.#next = NEXT.commaOrEnd
        return right
      }
      case NEXT.digit:
        this.#next = char === '0' ? NEXT.afterZero : NEXT.integer
        return isDigit(c)
      case NEXT.fractionDigit:
        this.#next = NEXT.fraction
        return isDigit(c)
      case NEXT.exponentSign:
        this.#next = isDigit(c) ? NEXT.exponent : NEXT.exponentDigit
        return isDigit(c) || char === '+' || char === '-'
      case NEXT.exponentDigit:
        this.#next = NEXT.exponent
        return isDigit(c)
      case NEXT.afterZero:
      case NEXT.integer:
      case NEXT.fraction:
      case NEXT.exponent:
        return this.#inNumber(c, char)
    }
    return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09 || this.#token(c, char)
  }

  /** Reads a character in a state in which the number may end. */
  #inNumber(c: number, char: string): boolean {
    const state = this.#next
    if (isDigit(c)) return state !== NEXT.afterZero
    if (char === '.' && (state === NEXT.afterZero || state === NEXT.integer)) {
      this.#next = NEXT.fractionDigit
      return true
    }
    if ((char === 'e' || char === 'E') && state !== NEXT.exponent) {
      this.#next = NEXT.exponentSign
      return true
    }
    this.#next = NEXT.commaOrEnd
    return this.#step(c, char)
  }

  #token(c: number, char: string): boolean {
    switch (this.#next) {
      case NEXT.open:
        return c === OPEN_BRACE && this.#begin(true)
      case NEXT.keyOrEnd:
        return c === CLOSE_BRACE ? this.#end() : this.#string(c, true)
      case NEXT.key:
        return this.#string(c, true)
      case NEXT.colon:
        this.#next = NEXT.value
        return char === ':'
      case NEXT.valueOrEnd:
        return c === CLOSE_BRACKET ? this.#end() : this.#value(c, char)
      case NEXT.value:
        return this.#value(c, char)
      case NEXT.commaOrEnd: {
        const object = this.#inside.at(-1)!
        if (c === (object ? CLOSE_BRACE : CLOSE_BRACKET)) return this.#end()
        this.#next = object ? NEXT.key : NEXT.value
        return char === ','
      }
    }
    return false
  }

  #value(c: number, char: string): boolean {
    if (c === QUOTE) return this.#string(c, false)
    if (c === OPEN_BRACE || c === OPEN_BRACKET) return this.#begin(c === OPEN_BRACE)
    if (isDigit(c)) this.#next = char === '0' ? NEXT.afterZero : NEXT.integer
    else if (char === '-') this.#next = NEXT.digit
    else {
      this.#rest = WORDS[char] ?? ''
      this.#next = NEXT.word
      return this.#rest !== ''
    }
    return true
  }

  #string(c: number, isKey: boolean): boolean {
    this.#isKey = isKey
    this.#next = NEXT.inString
    return c === QUOTE
  }

  #begin(object: boolean): boolean {
    this.#inside.push(object)
    this.#next = object ? NEXT.keyOrEnd : NEXT.valueOrEnd
    return true
  }

  #end(): boolean {
    this.#inside.pop()
    this.#next = this.#inside.length === 0 ? NEXT.nothing : NEXT.commaOrEnd
    return true
  }
}

function isDigit(c: number): boolean {
  return c >= 0x30 && c <= 0x39
}
