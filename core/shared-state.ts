import type { SharedState } from './plugin.ts'

/** Makes the state that outlives a reload: pools, breakers, platform load. There is one for each process. */
export function createSharedState(): SharedState {
  const values = new Map<string, unknown>()
  return {
    use<T>(key: string, make: () => T): T {
      if (!values.has(key)) values.set(key, make())
      return values.get(key) as T
    },
  }
}
