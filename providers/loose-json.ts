/** Reads JSON from a provider without trusting its shape: every function returns a usable value, and none throws. */
import { argumentsOf } from '../core/canon/arguments.ts'
import type { CallPart } from '../core/canon/conversation.ts'
import type { OutboundContext } from '../core/ports/dialect.ts'
import { parseBounded, parseExactly } from '../core/tools/json.ts'

export type JsonObject = Record<string, unknown>

const EMPTY: JsonObject = Object.freeze({})
const NONE: readonly unknown[] = Object.freeze([])

/** Parses a JSON object; undefined when the text is not one. */
export function parseObject(text: string, parse: (text: string) => unknown = parseBounded): JsonObject | undefined {
  try {
    const value = parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Parses arguments that will be serialised again: their numbers keep their spelling. */
export function parseArguments(text: string): JsonObject | undefined {
  return parseObject(text, parseExactly)
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
/** The value when it is an object, else an empty object. */
export function object(value: unknown): JsonObject {
  return isObject(value) ? value : EMPTY
}
/** The value when it is an array, else an empty array. */
export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : NONE
}
/** The value when it is a string, else ''. */
export function string(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
/** The value when it is a finite number of at least 0 (a count or an index), else undefined. */
export function count(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : undefined
}

/**
 * A call's arguments, for a dialect that needs an object. Clients may replay text that is not a JSON object, because
 * models write such text (wire.md B.1): it becomes `{"_raw": "…"}`, and empty text becomes `{}`. The input of a custom
 * tool is the one member of the function that is sent for it.
 */
export function argumentsObject(call: CallPart, context: OutboundContext): JsonObject | string {
  if (call.kind === 'custom') return { input: call.input }
  const written = context.written?.(call, 'object')
  if (written !== undefined) return written
  const text = argumentsOf(call)
  if (text.trim() === '') return {}
  return parseArguments(text) ?? { _raw: text }
}
