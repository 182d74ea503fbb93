/**
 * The dialects that upstreams may speak. Each is a folder here and an entry in the list below; all other lists of
 * dialects are made from it.
 */
import type { Backend, Dialect, DialectTable } from '../core/ports/dialect.ts'
import { anthropicMessages } from './anthropic-messages/index.ts'
import { gemini } from './gemini/index.ts'
import { openaiChat } from './openai-chat/index.ts'
import { openaiResponses } from './openai-responses/index.ts'
import { azureDeployments } from './variants/azure-deployments.ts'
import { bedrock } from './variants/bedrock.ts'
import { vertexAnthropic, vertexGemini } from './variants/vertex.ts'

const all = [openaiChat, openaiResponses, anthropicMessages, gemini]

/** Variants of dialects, by the name of the dialect and their own. */
const variants: Readonly<Record<string, Dialect['variants']>> = {
  [openaiChat.name]: { 'azure-deployments': azureDeployments(openaiChat) },
  [anthropicMessages.name]: { bedrock: bedrock(anthropicMessages), vertex: vertexAnthropic(anthropicMessages) },
  [gemini.name]: { vertex: vertexGemini(gemini) },
}

export const dialects: DialectTable = Object.fromEntries(
  all.map(dialect => [dialect.name, { ...dialect, variants: variants[dialect.name] }]),
)

/** The dialect that a backend speaks, in its variant. */
export function dialectOf({ dialect, variant }: Backend): Dialect {
  const found = dialects[dialect]!
  return variant === undefined ? found : found.variants![variant]!
}
