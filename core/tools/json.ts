/** Parsing of JSON that a client or a provider wrote and that the gateway writes again as part of something larger. */
import { BACKSLASH, JsonNesting, QUOTE } from './json-text.ts'

/**
 * Deepest nesting that is accepted, in levels. JSON.parse takes any depth, but JSON.stringify is recursive: beyond
 * some thousand levels the stack size would decide whether a request fails. The check of a request's body does not
 * look inside strings, such as the arguments of a call.
 */
export const MAX_NESTING = 256

/** A number of this many characters is not read to its end: a double holds 15 digits. */
const LONG_NUMBER = 16

/** Part of ECMAScript 2026 and of V8 since Node 21; TypeScript's library does not declare it yet. */
const { rawJSON, isRawJSON } = JSON as unknown as {
  rawJSON(text: string): object
  isRawJSON(value: unknown): boolean
}

/** The way from a JSON value to some values inside it: names of members, and `*` for each item of an array. */
export type JsonPath = readonly string[]

/** Whether a JSON text nests too deep to be parsed and written again. */
export function nestsDeeply(text: string): boolean {
  if (text.length <= MAX_NESTING) return false
  const nesting = new JsonNesting()
  nesting.push(text)
  return nesting.deepest > MAX_NESTING
}

/** Parses a JSON text. @throws SyntaxError when it is not JSON, or nests too deep */
export function parseBounded(text: string): unknown {
  const value: unknown = JSON.parse(text)
  // A level takes at least two characters, so a short text cannot be too deep. To walk the parsed value is faster
  // than to scan each character of the text.
  if (text.length > 2 * MAX_NESTING && isDeeper(value, MAX_NESTING)) throw tooDeep()
  return value
}

/**
 * Parses like `parseBounded`, and keeps the spelling of numbers: one that JSON.stringify would write in another way
 * (`175928847299117063`, `1.10`, `1e3`) becomes an object that JSON.stringify writes with its original characters. In
 * tool arguments a long number is usually an id, and a rounded id names something else.
 * @throws SyntaxError when the text is not JSON, or nests too deep
 */
export function parseExactly(text: string): unknown {
  if (nestsDeeply(text)) throw tooDeep()
  const value = spelled(text)
  return isRawJSON(value) ? JSON.parse(text) : value
}

/**
 * The one form in which JSON of a client goes to a provider, and in which it is counted: without white space outside of
 * strings, with the last of members of one name, escapes as JSON.stringify writes them, numbers as they came, and
 * U+FFFD for an unpaired half of a surrogate pair. The form of the form is the form itself, so that a prompt stays the
 * same from turn to turn. Linear in the length of the text.
 * @returns undefined for what is not JSON or nests too deep to be written again
 */
export function normalJson(text: string): string | undefined {
  if (nestsDeeply(text)) return undefined
  try {
    return wellFormed(JSON.stringify(spelled(text)))
  } catch {
    return undefined
  }
}

/** Half of a surrogate pair as JSON.stringify escapes it, not preceded by an odd number of backslashes. */
const LONE = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g

/**
 * A text of JSON.stringify with U+FFFD for each unpaired half of a surrogate pair, as it is counted. Clients cut texts
 * in the middle of an emoji, and providers refuse JSON with an unpaired half (wire.md 0.2 rule 7).
 */
export function wellFormed(json: string): string {
  return json.includes('\\ud') ? json.replace(LONE, '$1\ufffd') : json
}

/** The value of a JSON text, with an object in place of each number that JSON.stringify would write in another way. */
function spelled(text: string): unknown {
  return mayRespell(text) ? JSON.parse(text, exact as Reviver) : JSON.parse(text)
}

/**
 * Whether JSON.stringify may write one of the numbers of a JSON text in another way than it is written there. The
 * cases: more than 15 digits, a zero at the end of a fraction, an exponent, minus zero, and fractions that JavaScript
 * writes with an exponent. Strings are skipped. Each character is looked at once.
 */
function mayRespell(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c === QUOTE) i = closingQuote(text, i)
    else if (c === MINUS || (c >= ZERO && c <= NINE)) {
      const from = i
      let fraction = -1
      for (; i < text.length; i++) {
        const d = text.charCodeAt(i)
        if (d === DOT) fraction = i
        else if ((d | 0x20) === LETTER_E) return true
        else if (!(d >= ZERO && d <= NINE) && d !== MINUS) break
        if (i - from >= LONG_NUMBER) return true
      }
      if (fraction === -1 ? c === MINUS && text.charCodeAt(from + 1) === ZERO : text.charCodeAt(i - 1) === ZERO)
        return true
      // `0.000001` is written as it is, and `0.0000001` with an exponent.
      if (fraction !== -1 && text.startsWith('000000', fraction + 1)) return true
      i--
    }
  }
  return false
}

/**
 * The offset of the quotation mark that closes the string that opens at `open`; the end of the text when there is none.
 */
function closingQuote(text: string, open: number): number {
  for (let at = open + 1; ; at++) {
    at = text.indexOf('"', at)
    if (at === -1) return text.length
    // A quotation mark after an odd number of backslashes is escaped.
    let before = at - 1
    while (text.charCodeAt(before) === BACKSLASH) before--
    if (((at - before) & 1) === 1) return at
  }
}

/** Values in a JSON text, counted by commas and opening brackets as JsonBytes counts them; in one pass. */
export function jsonNodes(text: string): number {
  let nodes = 1
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c === QUOTE) i = closingQuote(text, i)
    else if (c === COMMA || c === BRACKET || c === BRACE) nodes++
  }
  return nodes
}

const MINUS = 0x2d
const DOT = 0x2e
const COMMA = 0x2c
const ZERO = 0x30
const NINE = 0x39
const BRACKET = 0x5b
const LETTER_E = 0x65
const BRACE = 0x7b

/**
 * Keeps the spelling of numbers, as `parseExactly` does, in the objects and arrays at `path`. All other numbers of the
 * value stay plain, since code reads them.
 * @param text the JSON text that was parsed to `value`
 */
export function keepNumbers(value: unknown, text: string, path: JsonPath): void {
  let found = false
  visit(value, path, 0, () => {
    found = true
  })
  if (found && mayRespell(text)) replaceAt(value, path, exactValues(text, path))
}

/** The objects and arrays at `path` in a JSON text, parsed by `parseExactly`. @throws SyntaxError */
export function exactValues(text: string, path: JsonPath): unknown[] {
  const found: unknown[] = []
  visit(parseExactly(text), path, 0, (holder, name) => found.push(holder[name]))
  return found
}

/** Puts the values that `exactValues` found in the text of `value` in their places. */
export function replaceAt(value: unknown, path: JsonPath, values: readonly unknown[]): void {
  let next = 0
  visit(value, path, 0, (holder, name) => {
    holder[name] = values[next++]
  })
}

type Reviver = (name: string, value: unknown) => unknown
type Holder = Record<string, unknown>

function exact(_name: string, value: unknown, { source }: { source?: string }): unknown {
  return typeof value === 'number' && String(value) !== source ? rawJSON(source!) : value
}

/** Calls `each` with the holder and the name of every object and array at `path`. */
function visit(value: unknown, path: JsonPath, at: number, each: (holder: Holder, name: string) => void): void {
  if (typeof value !== 'object' || value === null) return
  const step = path[at]!
  if (step === '*') {
    if (Array.isArray(value)) for (const item of value) visit(item, path, at + 1, each)
    return
  }
  const inner = (value as Holder)[step]
  if (at + 1 < path.length) visit(inner, path, at + 1, each)
  else if (typeof inner === 'object' && inner !== null && !isRawJSON(inner)) each(value as Holder, step)
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  if (Array.isArray(value)) {
    for (const member of value) if (isDeeper(member, levels - 1)) return true
  } else for (const name in value) if (isDeeper((value as Record<string, unknown>)[name], levels - 1)) return true
  return false
}

const tooDeep = () => new SyntaxError('nested too deep')
