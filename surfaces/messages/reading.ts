/** The state of reading one body. */
import type { TextPart } from '../../core/canon/conversation.ts'
import { fault } from '../check.ts'
import { isObject, stringOf } from '../unchecked.ts'
import type { Marked } from './schema.ts'

export type CacheMarker = NonNullable<TextPart['cache']>

/** How strictly one body is read, and the cache markers found so far. */
export class Reading {
  /**
   * True: the schema has accepted the body, and the rules beyond the schema are checked too. False: nothing throws
   * (count_tokens, decision 2).
   */
  readonly strict: boolean
  #markers = 0

  constructor(strict: boolean) {
    this.strict = strict
  }

  /**
   * The `cache_control` of a block, a tool or the body. @throws GatewayError invalid_value when there are too many
   * markers
   */
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

/** The most cache markers in one request, the top-level one included: the limit of the official API. */
const MAX_CACHE_MARKERS = 4
