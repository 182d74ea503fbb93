/** Options of one plugin; `parseOptions` is for test harnesses and tools, outside a configuration file. */
import type { Plugin } from '../core/plugin.ts'
import type { Schema } from '../core/vocabulary.ts'
import { validate } from './validate.ts'

/** The schema of a plugin that has no options. */
export const NO_OPTIONS: Schema = { type: 'object', additionalProperties: false, properties: {} }

/**
 * Options as `create` takes them: defaults filled, units converted. Whole numbers stand for milliseconds and bytes here, since code has no `60s`.
 * Throws with every fault when they do not fit the plugin's schema.
 */
export function parseOptions<C>(plugin: Plugin<C>, raw: unknown = {}): C {
  const schema = plugin.config ?? NO_OPTIONS
  const result = validate(schema, raw, { name: plugin.name, bareNumbers: true })
  if (result.problems) throw new Error(result.problems.map(p => p.message).join('\n'))
  return result.value as C
}
