/** When keys were last used, by the sums of the ledger; kept for a minute, since the sums are by the hour. */
import { lastUses, type Store } from '../core/ports/store.ts'

const KEPT_MS = 60_000
const MOST_KEPT = 1000

interface CachedUses {
  readonly at: number
  readonly keys: string
  readonly answer: Promise<ReadonlyMap<string, number>>
}
const caches = new WeakMap<Store, Map<string, CachedUses>>()

/**
 * By key: the beginning of the hour in which it was last used, Unix ms. Rejects with StoreUnavailable.
 * @param keys those that are looked for, also far back
 * @param now Unix ms
 */
export function lastUsesKept(
  store: Store,
  organization: string,
  keys: readonly string[],
  now: number,
): Promise<ReadonlyMap<string, number>> {
  let cache = caches.get(store)
  if (!cache) caches.set(store, (cache = new Map()))
  const kept = cache.get(organization)
  const wanted = keys.join('\n')
  if (kept && kept.keys === wanted && now - kept.at < KEPT_MS) return kept.answer
  const answer = lastUses(filter => store.usage(filter), organization, keys, now)
  answer.catch(() => cache.delete(organization))
  cache.delete(organization)
  if (cache.size >= MOST_KEPT) cache.delete(cache.keys().next().value!)
  cache.set(organization, { at: now, keys: wanted, answer })
  return answer
}
