/**
 * What dialects are built of. It is public: files of dialects outside this repository import it as `sluice/dialect`.
 * docs/dialects.md says what each is for.
 */
import type { Dialect } from '../core/ports/dialect.ts'

/** Checks the types of a dialect. The file that exports it stands under `plugins:`, and has its name. */
export function defineDialect(dialect: Dialect): Dialect {
  return dialect
}

export type { CallPart, Conversation, Part, Tool, Turn } from '../core/canon/conversation.ts'
export type { FinishReason, ProviderUsage, StreamEvent } from '../core/canon/events.ts'
export type * from '../core/ports/dialect.ts'
export { FrameFault, FrameLimit } from '../core/ports/dialect.ts'
export { adjacentResults } from './adjacent-results.ts'
export { anthropicMessages } from './anthropic-messages/index.ts'
export { settingsOf } from './dialect-settings.ts'
export { documentLine, documentText, resultText, searchText } from './document-text.ts'
export { cutShort, type FaultKind, faultOf, kindOfStatus, retryAfterMs, unreadable } from './faults.ts'
export { gemini } from './gemini/index.ts'
export { JsonLines } from './json-lines.ts'
export { adjustments } from './left-out.ts'
export { argumentsObject, count, isObject, list, object, parseObject, string } from './loose-json.ts'
export { openaiChat } from './openai-chat/index.ts'
export { openaiResponses } from './openai-responses/index.ts'
export { OutboundHeaders } from './outbound-headers.ts'
export { allBut, commonUnfit, memberOf, schemaPath } from './requirements.ts'
export { StopDecoder } from './stop-matcher.ts'
export { aliasTools, OPENAI_NAMES } from './tool-names.ts'
export { knownUsage } from './usage.ts'
export { varied, without } from './variants/vary.ts'
