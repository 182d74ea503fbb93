/** JSON that somebody else wrote and that goes out again as part of something larger. */

/** Levels of nesting. JSON.parse takes any number of them, JSON.stringify only some thousands before it overflows the stack. */
const MOST_LEVELS = 512

/** The value of a text. Throws a SyntaxError when it is no JSON, or nested deeper than anybody could carry on. */
export function parseBounded(text: string): unknown {
  const value: unknown = JSON.parse(text)
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
