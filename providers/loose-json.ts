/** Reading JSON that a provider sent without trusting its shape: every accessor has an answer, none throws. */
import { parseBounded, parseExactly } from '../core/json.ts'

export type JsonObject = Record<string, unknown>

const EMPTY: JsonObject = Object.freeze({})
const NONE: readonly unknown[] = Object.freeze([])

/** A JSON object, or undefined when the text is none. */
export function parseObject(text: string, parse: (text: string) => unknown = parseBounded): JsonObject | undefined {
  try {
    const value = parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** The same, for arguments that are written again: their numbers stay what they are. */
export function parseArguments(text: string): JsonObject | undefined {
  return parseObject(text, parseExactly)
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
/** The value if it is an object, else an empty one. */
export function object(value: unknown): JsonObject {
  return isObject(value) ? value : EMPTY
}
/** The value if it is an array, else an empty one. */
export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : NONE
}
/** The value if it is a string, else ''. */
export function string(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
/** The value if it is a finite number of at least 0, else undefined: counts and indexes. */
export function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : undefined
}

/**
 * A call's arguments as the object that a dialect needs. Clients may replay text that is no JSON object, or none that could be carried (models emit such, B.1):
 * it is carried as `{"_raw": "…"}`, an empty text as `{}`.
 */
export function argumentsObject(text: string): JsonObject {
  if (text.trim() === '') return {}
  return parseArguments(text) ?? { _raw: text }
}
