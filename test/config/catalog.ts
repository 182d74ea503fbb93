/**
 * The built-in plugins with their names, options and slots, and without their code: what loading a configuration looks
 * at.
 */
import type { DialectFacts } from '../../config/models.ts'
import type { Plugin } from '../../core/plugin.ts'
import { CAPABILITIES } from '../../core/ports/dialect.ts'
import { plugins } from '../../plugins/index.ts'
import { settings as messagesSettings } from '../../providers/anthropic-messages/settings.ts'
import { settings as geminiSettings } from '../../providers/gemini/settings.ts'
import { settings as chatSettings } from '../../providers/openai-chat/settings.ts'
import { openAiEmbeddings } from '../../providers/openai-embeddings.ts'

export const catalog: ReadonlyMap<string, Plugin> = new Map(
  plugins.map(plugin => [plugin.name, { ...plugin, check: undefined, create: () => ({}) }]),
)

const all = { capabilities: new Set(CAPABILITIES) }
export const dialects: DialectFacts = {
  'openai-chat': { ...all, keyless: true, embeddings: openAiEmbeddings, settings: chatSettings },
  'openai-responses': { ...all, embeddings: openAiEmbeddings },
  'anthropic-messages': { ...all, settings: messagesSettings },
  gemini: { capabilities: new Set(CAPABILITIES.filter(c => c !== 'logprobs')), settings: geminiSettings },
}
export const surfaces = ['responses', 'chat', 'messages']
