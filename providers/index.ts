/**
 * The dialects that upstreams may speak. Each is a folder here and an entry in the list below; all other lists of
 * dialects are made from it.
 */
import type { DialectTable } from '../core/dialect.ts'
import { anthropicMessages } from './anthropic-messages/index.ts'
import { gemini } from './gemini/index.ts'
import { openaiChat } from './openai-chat/index.ts'
import { openaiResponses } from './openai-responses/index.ts'

const all = [openaiChat, openaiResponses, anthropicMessages, gemini]

export const dialects: DialectTable = Object.fromEntries(all.map(dialect => [dialect.name, dialect]))
