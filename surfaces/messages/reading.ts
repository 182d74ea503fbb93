/** What one reading of a body carries along. */
import type { TextPart } from '../../core/conversation.ts'
import { fault } from '../check.ts'
import { isObject, stringOf } from '../unchecked.ts'
import type { Marked } from './schema.ts'

export type CacheMarker = NonNullable<TextPart['cache']>

export class Reading {
  /** The schema has accepted the body, and the rules beyond it are due. Otherwise nothing throws (count_tokens, decisions 2). */
  readonly strict: boolean
  #markers = 0

  constructor(strict: boolean) {
    this.strict = strict
  }

  /** The `cache_control` of a block, a tool or the body. @throws GatewayError invalid_value for one marker too many */
  cache(holder: Marked, path: string): CacheMarker | undefined {
    const marker = holder.cache_control
    if (!isObject(marker)) return undefined
    this.#markers++
    if (this.strict && this.#markers > MAX_CACHE_MARKERS)
      throw fault(
        'invalid_value',
        path === '' ? 'cache_control' : `${path}.cache_control`,
        w => `${w} is cache marker ${this.#markers}; a request may carry ${MAX_CACHE_MARKERS}. Remove some.`,
      )
    const ttl = stringOf(marker.ttl)
    return ttl === undefined ? {} : { ttl }
  }
}

/** Markers a request may carry, top level included: the official API's bound. */
const MAX_CACHE_MARKERS = 4
