/** Prompt cache markers (`cache_control`). The API takes at most four in a request. */
import type { JsonObject } from '../loose-json.ts'

const MOST = 4

export class CacheMarkers {
  #left = MOST

  /** The member for a client's marker; undefined for none, or when four are taken. */
  marker(cache: { ttl?: string } | undefined): JsonObject | undefined {
    if (!cache || this.#left === 0) return undefined
    this.#left--
    // The ttl is the one detail that the published API has; `scope` and the like are some clients' own.
    return cache.ttl === '1h' || cache.ttl === '5m' ? { type: 'ephemeral', ttl: cache.ttl } : { type: 'ephemeral' }
  }
}
