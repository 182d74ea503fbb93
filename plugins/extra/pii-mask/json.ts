/** JSON texts of any size, in slices: whether a text is JSON, and its strings decoded and encoded piece by piece. */
import type { Pace, Slices } from './find.ts'

/** UTF-16 units that are read between two looks at the pace. */
const STRIDE = 16_384
/** What a piece of a text takes beside its characters, in units of the pace. */
const OVERHEAD = 64

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a
const MINUS = 0x2d
const ZERO = 0x30

type State =
  /** A value must follow; or, at the beginning of an array, its end. */
  | 'value'
  | 'first value'
  /** A name must follow; or, at the beginning of an object, its end. */
  | 'name'
  | 'first name'
  | 'colon'
  /** A value has ended. */
  | 'after'
  | 'string'
  | 'escape'
  | 'hex'
  | 'word'
  | 'minus'
  | 'zero'
  | 'digits'
  | 'point'
  | 'fraction'
  | 'e'
  | 'sign'
  | 'exponent'

/** A number may end in these. */
const NUMBERS: ReadonlySet<State> = new Set<State>(['zero', 'digits', 'fraction', 'exponent'])
const WORDS = ['true', 'false', 'null']

const isDigit = (c: number): boolean => c >= ZERO && c <= 0x39
const isHex = (c: number): boolean => isDigit(c) || ((c | 0x20) >= 0x61 && (c | 0x20) <= 0x66)
const isBlank = (c: number): boolean => c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09

/** Whether JSON.parse would take the text. */
export function* isJson(text: string, pace: Pace): Slices<boolean> {
  const open = new OpenValues()
  let state: State = 'value'
  let isName = false
  /** Hexadecimal digits that must follow. */
  let hex = 0
  let word = ''
  let wordAt = 0
  /** The state behind a value that has ended at a comma, a bracket or a blank. */
  const closes = (c: number): State | null => {
    if (isBlank(c)) return 'after'
    if (c === COMMA && open.depth > 0) return open.isObject ? 'name' : 'value'
    if ((c === 0x7d && open.depth > 0 && open.isObject) || (c === 0x5d && open.depth > 0 && !open.isObject)) {
      open.pop()
      return 'after'
    }
    return null
  }
  const begins = (c: number): State | null => {
    if (c === QUOTE) {
      isName = false
      return 'string'
    }
    if (c === 0x7b || c === 0x5b) {
      open.push(c === 0x7b)
      return c === 0x7b ? 'first name' : 'first value'
    }
    if (c === MINUS) return 'minus'
    if (isDigit(c)) return c === ZERO ? 'zero' : 'digits'
    const found = WORDS.find(word => word.charCodeAt(0) === c)
    if (found === undefined) return null
    word = found
    wordAt = 1
    return 'word'
  }
  const next = (c: number): State | null => {
    switch (state) {
      case 'value':
        return isBlank(c) ? state : begins(c)
      case 'first value':
        return isBlank(c) ? state : c === 0x5d ? closes(c) : begins(c)
      case 'name':
      case 'first name':
        if (isBlank(c)) return state
        if (c === 0x7d && state === 'first name') return closes(c)
        isName = true
        return c === QUOTE ? 'string' : null
      case 'colon':
        return isBlank(c) ? state : c === COLON ? 'value' : null
      case 'after':
        return closes(c)
      case 'string':
        if (c === QUOTE) return isName ? 'colon' : 'after'
        return c === BACKSLASH ? 'escape' : c < 0x20 ? null : state
      case 'escape':
        hex = 4
        return c === 0x75 ? 'hex' : '"\\/bfnrt'.includes(String.fromCharCode(c)) ? 'string' : null
      case 'hex':
        return !isHex(c) ? null : --hex === 0 ? 'string' : state
      case 'word':
        if (word.charCodeAt(wordAt++) !== c) return null
        return wordAt === word.length ? 'after' : state
      case 'minus':
        return !isDigit(c) ? null : c === ZERO ? 'zero' : 'digits'
      case 'digits':
        if (isDigit(c)) return state
        return afterDigits(c)
      case 'zero':
        return afterDigits(c)
      case 'point':
        return isDigit(c) ? 'fraction' : null
      case 'fraction':
        return isDigit(c) ? state : (c | 0x20) === 0x65 ? 'e' : closes(c)
      case 'e':
        return c === 0x2b || c === MINUS ? 'sign' : isDigit(c) ? 'exponent' : null
      case 'sign':
        return isDigit(c) ? 'exponent' : null
      case 'exponent':
        return isDigit(c) ? state : closes(c)
    }
  }
  const afterDigits = (c: number) => (c === 0x2e ? 'point' : (c | 0x20) === 0x65 ? 'e' : closes(c))

  for (let from = 0; from < text.length; from += STRIDE) {
    const to = Math.min(text.length, from + STRIDE)
    for (let at = from; at < to; at++) {
      const c = text.charCodeAt(at)
      // Most characters are of strings.
      if (state === 'string' && c !== QUOTE && c !== BACKSLASH && c >= 0x20) continue
      const then = next(c)
      if (then === null) return false
      state = then
    }
    if (pace.spent(to - from)) yield
  }
  return open.depth === 0 && (state === 'after' || NUMBERS.has(state))
}

/** The open objects and arrays, a byte each: a text may nest as deep as it is long. */
class OpenValues {
  #kinds = new Uint8Array(64)
  depth = 0

  get isObject(): boolean {
    return this.#kinds[this.depth - 1] === 1
  }

  push(isObject: boolean): void {
    if (this.depth === this.#kinds.length) {
      const kinds = new Uint8Array(2 * this.depth)
      kinds.set(this.#kinds)
      this.#kinds = kinds
    }
    this.#kinds[this.depth++] = isObject ? 1 : 0
  }

  pop(): void {
    this.depth--
  }
}

/** Replaces a text by another one. It returns the same string when nothing is to be replaced. */
export type Rewrite = (text: string) => Slices<string>

/**
 * Rewrites a text that is JSON: the content of its strings, and what is between them. A string that does not change
 * stays byte for byte.
 */
export function* rewriteJson(text: string, inside: Rewrite, outside: Rewrite, pace: Pace): Slices<string> {
  const written: string[] = []
  let copied = 0
  const replace = (start: number, end: number, by: string) => {
    written.push(text.slice(copied, start), by)
    copied = end
  }
  for (let at = 0; at < text.length; ) {
    let quote = text.indexOf('"', at)
    if (quote === -1) quote = text.length
    if (quote > at) {
      const piece = text.slice(at, quote)
      const rewritten = yield* outside(piece)
      if (rewritten !== piece) replace(at, quote, rewritten)
    }
    if (quote === text.length) break
    const { value, end } = yield* decoded(text, quote + 1, pace)
    const rewritten = yield* inside(value)
    if (rewritten !== value) replace(quote, end, yield* encoded(rewritten, pace))
    at = end
  }
  return copied === 0 ? text : written.join('') + text.slice(copied)
}

/** The string whose content begins at `from`, and where it ends, behind its quotation mark. */
function* decoded(text: string, from: number, pace: Pace): Slices<{ value: string; end: number }> {
  const pieces: string[] = []
  let begin = from
  let escapes = false
  const flush = (end: number) => {
    const raw = text.slice(begin, end)
    pieces.push(escapes ? JSON.parse(`"${raw}"`) : raw)
    begin = end
    escapes = false
  }
  let at = from
  for (let c = text.charCodeAt(at); c !== QUOTE; c = text.charCodeAt(at)) {
    if (c === BACKSLASH) {
      escapes = true
      at += text.charCodeAt(at + 1) === 0x75 ? 6 : 2
    } else at++
    if (at - begin < STRIDE) continue
    flush(at)
    if (pace.spent(STRIDE)) yield
  }
  if (pace.spent(at - begin + OVERHEAD)) yield
  flush(at)
  return { value: pieces.length === 1 ? pieces[0]! : pieces.join(''), end: at + 1 }
}

function* encoded(text: string, pace: Pace): Slices<string> {
  const pieces: string[] = []
  for (let from = 0; from < text.length; ) {
    let to = Math.min(text.length, from + STRIDE)
    // Both halves of a character stay together: alone each would be written as an escape.
    if (to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to++
    pieces.push(JSON.stringify(text.slice(from, to)).slice(1, -1))
    if (pace.spent(to - from)) yield
    from = to
  }
  return `"${pieces.join('')}"`
}
