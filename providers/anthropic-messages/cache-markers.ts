/** Prompt cache markers (`cache_control`). The API accepts at most four in a request. */
import type { JsonObject } from '../loose-json.ts'

const MOST = 4

/** Gives out the cache markers of one request. */
export class CacheMarkers {
  #left = MOST

  /** The member for a client's marker; undefined when there is no marker, or when four are used already. */
  marker(cache: { ttl?: string } | undefined): JsonObject | undefined {
    if (!cache || this.#left === 0) return undefined
    this.#left--
    // `ttl` is the only option of the published API; options such as `scope` are additions of some clients.
    return cache.ttl === '1h' || cache.ttl === '5m' ? { type: 'ephemeral', ttl: cache.ttl } : { type: 'ephemeral' }
  }
}
