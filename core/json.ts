/** JSON that somebody else wrote and that goes out again as part of something larger. */

/** Levels of nesting. JSON.parse takes any number of them, JSON.stringify only some thousands before it overflows the stack. */
const MOST_LEVELS = 512

/** Long enough that a double, which has 15 to 17 digits, may not hold it. Texts without are parsed as ever. */
const DIGITS = /\d{16}/
const WHOLE = /^-?\d+$/

/** Of ECMAScript 2026, in V8 since Node 21; TypeScript's library does not know it yet. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }

/** The value of a text. Throws an error when it is no JSON, or nested deeper than anybody could carry on. */
export function parseBounded(text: string): unknown {
  return bounded(JSON.parse(text), text)
}

/**
 * The same, good for `JSON.stringify`: a whole number that a double can't hold is an object that is written as it came. In the arguments of a tool it
 * names something, as a rule, and rounded something else.
 */
export function parseExactly(text: string): unknown {
  if (!DIGITS.test(text)) return parseBounded(text)
  return bounded(JSON.parse(text, exact as (name: string, value: unknown) => unknown), text)
}

function exact(_name: string, value: unknown, { source }: { source?: string }): unknown {
  return Number.isInteger(value) && !Number.isSafeInteger(value) && WHOLE.test(source!) ? rawJSON(source!) : value
}

function bounded(value: unknown, text: string): unknown {
  // A level is two characters at least.
  if (text.length > 2 * MOST_LEVELS && isDeeper(value, MOST_LEVELS)) throw new SyntaxError('nested too deep')
  return value
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (levels === 0) return true
  if (Array.isArray(value)) {
    for (const member of value) if (isDeeper(member, levels - 1)) return true
  } else for (const name in value) if (isDeeper((value as Record<string, unknown>)[name], levels - 1)) return true
  return false
}
