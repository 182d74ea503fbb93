/** What plugins keep in the store (`context.values`). */
import { createHash } from 'node:crypto'
import type { PluginContext, PluginValues } from '../plugin.ts'
import { Sealer } from '../tools/sealer.ts'

/** Owns what belongs to no organization. No organization has this id. */
const GATEWAY = '*'
/** The most bytes of a value. */
export const LARGEST_VALUE = 1 << 20
/** The most characters of a key. */
const LARGEST_KEY = 4096
/** In milliseconds: a year. */
const LONGEST = 366 * 86_400_000

type Services = Pick<PluginContext, 'store' | 'clock' | 'secret'>

/** The values of one plugin. All its instances share them; other plugins do not meet them. */
export function valuesOf(plugin: string, { store, clock, secret }: Services): PluginValues {
  const sealer = new Sealer(secret, `sluice value of ${plugin}`)
  return {
    async get(organization, key) {
      const owner = organization ?? GATEWAY
      const sealed = await store.pluginValues.get(owner, 'value', idOf(plugin, key), clock.now())
      return sealed && sealer.openBytes(owner, sealed)
    },
    async put(organization, key, value, ttlMs) {
      const owner = organization ?? GATEWAY
      if (value.length > LARGEST_VALUE)
        throw new RangeError(`the value has ${value.length} bytes; a value may have ${LARGEST_VALUE}`)
      if (!(ttlMs >= 1 && ttlMs <= LONGEST))
        throw new RangeError(`ttlMs is ${ttlMs}; it is milliseconds, from 1 to ${LONGEST} (a year)`)
      const sealed = sealer.sealBytes(owner, value)
      await store.pluginValues.put(owner, 'value', idOf(plugin, key), sealed, Math.floor(ttlMs), clock.now())
    },
    async delete(organization, key) {
      await store.pluginValues.delete(organization ?? GATEWAY, 'value', idOf(plugin, key))
    },
  }
}

/** Of one length whatever the key has, and without its text, which may be a client's. */
function idOf(plugin: string, key: string): string {
  if (key.length > LARGEST_KEY)
    throw new RangeError(`the key has ${key.length} characters; a key may have ${LARGEST_KEY}`)
  return createHash('sha256').update(`${plugin}\0${key}`).digest('base64url')
}
