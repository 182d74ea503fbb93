import type { SharedKey, SharedState } from '../plugin.ts'

/** Makes the state that outlives a reload: pools, breakers, platform load. There is one for each process. */
export function createSharedState(): SharedState {
  const values = new Map<string | SharedKey<unknown>, unknown>()
  return {
    use<T>(key: string | SharedKey<T>, make: () => T): T {
      if (!values.has(key)) values.set(key, make())
      return values.get(key) as T
    },
  }
}

/**
 * A plugin's view of the state: its strings are keys of its own, so that it meets neither another plugin's state nor the
 * gateway's. A plugin that made the value of `platform` before `admission` did would otherwise set the platform's limit
 * aside, and nobody would be told.
 */
export function ownState(all: SharedState, plugin: string): SharedState {
  return { use: (key, make) => all.use(typeof key === 'string' ? `${plugin}/${key}` : key, make) }
}
