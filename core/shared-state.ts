import type { SharedState } from './plugin.ts'

/** What outlives a reload: pools, breakers, platform load. One for each process. */
export function createSharedState(): SharedState {
  const values = new Map<string, unknown>()
  return {
    use<T>(key: string, make: () => T): T {
      if (!values.has(key)) values.set(key, make())
      return values.get(key) as T
    },
  }
}
