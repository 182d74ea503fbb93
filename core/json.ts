/** Parsing of JSON that a client or a provider wrote and that the gateway writes again as part of something larger. */
import { JsonNesting } from './json-text.ts'

/**
 * Deepest nesting that is accepted, in levels. JSON.parse takes any depth, but JSON.stringify is recursive: beyond
 * some thousand levels the stack size would decide whether a request fails. The check of a request's body does not
 * look inside strings, such as the arguments of a call.
 */
const MAX_NESTING = 256

/**
 * A text without 16 digits in a row is parsed as usual: a double holds at least 15 digits exactly, so only longer
 * numbers may lose digits.
 */
const LONG_NUMBER = /\d{16}/
const WHOLE = /^-?\d+$/

/** Part of ECMAScript 2026 and of V8 since Node 21; TypeScript's library does not declare it yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }

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
 * Parses like `parseBounded`, and keeps whole numbers that a double cannot hold: such a number becomes an object that
 * `JSON.stringify` writes with its original digits. In tool arguments such a number is usually an id, and a rounded
 * id names something else.
 * @throws SyntaxError when the text is not JSON, or nests too deep
 */
export function parseExactly(text: string): unknown {
  if (nestsDeeply(text)) throw tooDeep()
  return LONG_NUMBER.test(text)
    ? JSON.parse(text, exact as (name: string, value: unknown) => unknown)
    : JSON.parse(text)
}

function exact(_name: string, value: unknown, { source }: { source?: string }): unknown {
  return Number.isInteger(value) && !Number.isSafeInteger(value) && WHOLE.test(source!) ? rawJSON(source!) : value
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
