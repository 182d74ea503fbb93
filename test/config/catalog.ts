/** The built-in plugins with their names, options and slots, and without their code: what loading a configuration looks at. */
import type { DialectCapabilities } from '../../config/models.ts'
import { CAPABILITIES } from '../../core/dialect.ts'
import type { Plugin } from '../../core/plugin.ts'
import { plugins } from '../../plugins/index.ts'

export const catalog: ReadonlyMap<string, Plugin> = new Map(
  plugins.map(plugin => [plugin.name, { ...plugin, check: undefined, create: () => ({}) }]),
)

const all = new Set(CAPABILITIES)
export const dialectCapabilities: DialectCapabilities = {
  'openai-chat': all,
  'openai-responses': all,
  'anthropic-messages': all,
  gemini: new Set(CAPABILITIES.filter(c => c !== 'logprobs')),
}
