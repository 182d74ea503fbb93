/** The dialects that upstreams may speak. */
import type { Capability, DialectName, DialectTable } from '../core/dialect.ts'
import { anthropicMessages } from './anthropic-messages/index.ts'
import { gemini } from './gemini/index.ts'
import { openaiChat } from './openai-chat/index.ts'
import { openaiResponses } from './openai-responses/index.ts'

export const dialects = {
  'openai-chat': openaiChat,
  'openai-responses': openaiResponses,
  'anthropic-messages': anthropicMessages,
  gemini,
} satisfies DialectTable

/** All that each dialect can express: what `supports` in gateway.yaml narrows, and what it means when it is left out (decisions 33). */
export const dialectCapabilities: Readonly<Record<DialectName, ReadonlySet<Capability>>> = {
  'openai-chat': openaiChat.capabilities,
  'openai-responses': openaiResponses.capabilities,
  'anthropic-messages': anthropicMessages.capabilities,
  gemini: gemini.capabilities,
}
