/** Reading members of a body that may or may not have passed the schema. */
import { fault } from '../check.ts'

export type Json = Record<string, unknown>

/** What one reading of a body carries along. */
export class Reading {
  /** The schema has accepted the body, and the rules beyond it are due. Otherwise nothing throws (count_tokens, decisions 2). */
  readonly strict: boolean
  #markers = 0

  constructor(strict: boolean) {
    this.strict = strict
  }

  /** The `cache_control` of a block, a tool or the body. @throws GatewayError invalid_value for one marker too many */
  cache(holder: Json, path: string): CacheMarker | undefined {
    const marker = holder['cache_control']
    if (!isObject(marker)) return undefined
    this.#markers++
    if (this.strict && this.#markers > MAX_CACHE_MARKERS)
      throw fault(
        'invalid_value',
        path === '' ? 'cache_control' : `${path}.cache_control`,
        w => `${w} is cache marker ${this.#markers}; a request may carry ${MAX_CACHE_MARKERS}. Remove some.`,
      )
    const ttl = stringOf(marker['ttl'])
    return ttl === undefined ? {} : { ttl }
  }
}

export interface CacheMarker {
  ttl?: string
}

/** Markers a request may carry, top level included: the official API's bound. */
const MAX_CACHE_MARKERS = 4

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
export const stringOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
export const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined)
export const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : NONE)
const NONE: unknown[] = []
export const given = (value: unknown): boolean => value !== undefined && value !== null
