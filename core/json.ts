/** Parsing of JSON that a client or a provider wrote and that the gateway writes again as part of something larger. */
import { JsonNesting } from './json-text.ts'

/**
 * Deepest nesting that is accepted, in levels. JSON.parse takes any depth, but JSON.stringify is recursive: beyond
 * some thousand levels the stack size would decide whether a request fails. The check of a request's body does not
 * look inside strings, such as the arguments of a call.
 */
const MAX_NESTING = 256

/**
 * A text without a match is parsed as usual: JSON.stringify writes each of its numbers as it stands. A number may match
 * that is written as it stands, too. The cases: more than 15 digits, a zero at the end of a fraction, an exponent,
 * minus zero, and fractions that JavaScript writes with an exponent.
 */
const RESPELLED = /[\d.]{16}|\.\d*0(?!\d)|\d[eE][-+]?\d|-0|0\.0{6}/

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
  if (!RESPELLED.test(text)) return JSON.parse(text)
  const value: unknown = JSON.parse(text, exact as Reviver)
  return isRawJSON(value) ? JSON.parse(text) : value
}

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
  if (found && RESPELLED.test(text)) replaceAt(value, path, exactValues(text, path))
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
