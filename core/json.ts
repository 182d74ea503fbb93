/** JSON that somebody else wrote and that goes out again as part of something larger. */
import { JsonNesting } from './json-text.ts'

/**
 * Levels of nesting that are carried on. JSON.parse takes any number of them; writing JSON is recursive, so that beyond some thousands the stack would decide
 * what a request comes to. What is inside a string (a call's arguments) was not looked at when the body was.
 */
const MAX_NESTING = 256

/** Long enough that a double, which has 15 to 17 digits, may not hold it. Texts without are parsed as ever. */
const DIGITS = /\d{16}/
const WHOLE = /^-?\d+$/

/** Of ECMAScript 2026, in V8 since Node 21; TypeScript's library does not know it yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }

/** Whether a JSON text nests too deep to be made a value that is written again. */
export function nestsDeeply(text: string): boolean {
  if (text.length <= MAX_NESTING) return false
  const nesting = new JsonNesting()
  nesting.push(text)
  return nesting.deepest > MAX_NESTING
}

/** The value of a text. Throws an error when it is no JSON, or nests too deep. */
export function parseBounded(text: string): unknown {
  const value: unknown = JSON.parse(text)
  // A level is two characters at least. To walk a value is quicker than to look at each character of its text.
  if (text.length > 2 * MAX_NESTING && isDeeper(value, MAX_NESTING)) throw tooDeep()
  return value
}

/**
 * The same, good for `JSON.stringify`: a whole number that a double can't hold is an object that is written as it came. In the arguments of a tool it
 * names something, as a rule, and rounded something else.
 */
export function parseExactly(text: string): unknown {
  if (nestsDeeply(text)) throw tooDeep()
  return DIGITS.test(text) ? JSON.parse(text, exact as (name: string, value: unknown) => unknown) : JSON.parse(text)
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
