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

/**
 * Dialects of files by their names and the number of the load that brought them: a request that began before a reload
 * ends with the dialect that it began with. They stay, as their modules do.
 */
const ofFiles = new Map<string, Dialect>()
const keyOf = (name: string, load: number) => `${name} ${load}`

/** Makes the dialects of files known to `dialectOf`. */
export function addDialects(found: ReadonlyMap<string, Dialect>, load: number): void {
  for (const [name, dialect] of found) ofFiles.set(keyOf(name, load), dialect)
}

/** The dialect that a backend or a provider speaks, in its variant. */
export function dialectOf({
  dialect,
  dialectLoad,
  variant,
}: Pick<Backend, 'dialect' | 'dialectLoad' | 'variant'>): Dialect {
  const found = dialectLoad === undefined ? dialects[dialect]! : ofFiles.get(keyOf(dialect, dialectLoad))!
  return variant === undefined ? found : found.variants![variant]!
}
