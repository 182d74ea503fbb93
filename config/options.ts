/** Options of one plugin that do not come from a configuration file: for test harnesses and tools. */
import type { Plugin } from '../core/plugin.ts'
import type { Schema } from '../core/tools/vocabulary.ts'
import { validate } from './validate.ts'

/** The schema of a plugin that has no options. */
export const NO_OPTIONS: Schema = { type: 'object', additionalProperties: false, properties: {} }

/**
 * Options as `create` takes them: defaults filled, units converted. Durations and sizes may be whole numbers of
 * milliseconds and bytes here, because code has no `60s`.
 * @throws Error with every fault, when the options do not fit the plugin's schema
 */
export function parseOptions<C>(plugin: Plugin<C>, raw: unknown = {}): C {
  const schema = plugin.config ?? NO_OPTIONS
  const result = validate(schema, raw, { name: plugin.name, bareNumbers: true })
  if (result.problems) throw new Error(result.problems.map(p => p.message).join('\n'))
  return result.value as C
}
