/** Makes Chat Completions messages from turns (wire.md F.1, F.3). */

import { argumentsOf } from '../../core/canon/arguments.ts'
import {
  type CallPart,
  type Conversation,
  type DocumentPart,
  dataUrlOf,
  type ImagePart,
  type Part,
  type ResultPart,
} from '../../core/canon/conversation.ts'
import type { OutboundContext } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'
import { adjacentResults, type ToolRound } from '../adjacent-results.ts'
import { wrapCustomInput } from '../custom-input.ts'
import { documentLine, documentText, searchText, TOOL_ERROR } from '../document-text.ts'
import type { ToolNames } from '../tool-names.ts'

export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool'
  content: string | ContentPart[] | null
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[]
  tool_call_id?: string
}

export type ContentPart =
  | { type: 'text'; text: string }
  | { type: 'image_url'; image_url: { url: string; detail?: string } }
  | { type: 'file'; file: { filename: string; file_data: string } }

/** The `messages` of a request. */
export function messagesOf(conversation: Conversation, names: ToolNames, context: OutboundContext): Message[] {
  const messages: Message[] = []
  const system = systemText(conversation.system)
  if (system !== '') messages.push({ role: 'system', content: system })
  for (const step of adjacentResults(conversation.turns)) {
    if (step.type === 'round') {
      round(step, names, context, messages)
      continue
    }
    const { role, parts } = step.turn
    if (role === 'user') messages.push({ role, content: userContent(parts) })
    else if (role === 'assistant') messages.push({ role, content: assistantText(parts) })
    else if (role === 'system') {
      const text = systemText(parts)
      if (text !== '') messages.push({ role, content: text })
    }
  }
  return messages
}

function systemText(parts: readonly Part[]): string {
  let text = ''
  for (const part of parts) {
    if (part.type !== 'text' || part.meteredOnly) continue
    text += text === '' ? part.text : '\n\n' + part.text
  }
  return text
}

/** A string when the content is a single text, because every server accepts that form. */
function userContent(parts: readonly Part[]): string | ContentPart[] {
  const content: ContentPart[] = []
  for (const part of parts) {
    if (part.type === 'text') {
      if (!part.meteredOnly) content.push({ type: 'text', text: part.text })
    } else if (part.type === 'image') content.push(image(part))
    else if (part.type === 'document') appendAll(content, withContext(part, document(part)))
  }
  if (content.length === 0) return ''
  const only = content[0]!
  return content.length === 1 && only.type === 'text' ? only.text : content
}

/**
 * All text of an assistant turn, without separators (wire.md F.8). A refusal becomes text, which every server
 * accepts. Reasoning has no form in this dialect and is dropped, like private data of another provider (wire.md F.7).
 */
function assistantText(parts: readonly Part[]): string {
  let text = ''
  for (const part of parts) {
    if (part.type === 'text' || part.type === 'refusal') text += part.text
    else if (part.type === 'search') text += searchText(part) + '\n'
  }
  return text
}

/**
 * Adds an assistant message with calls, then the results, then one user message with everything in the results that
 * is not text.
 */
function round(step: ToolRound, names: ToolNames, context: OutboundContext, messages: Message[]): void {
  const text = assistantText(step.parts)
  messages.push({
    role: 'assistant',
    content: text === '' ? null : text,
    tool_calls: step.calls.map(call => ({
      id: context.upstreamCallId(call.id),
      type: 'function',
      function: { name: names.toUpstream(call.name, call.namespace), arguments: argumentsText(call, context) },
    })),
  })
  const media: ContentPart[] = []
  for (const result of step.results) {
    const id = context.upstreamCallId(result.callId)
    messages.push({ role: 'tool', tool_call_id: id, content: toolContent(result, id, media) })
  }
  if (media.length > 0) messages.push({ role: 'user', content: media })
}

/** Function arguments, JSON or not (wire.md B.1). */
function argumentsText(call: CallPart, context: OutboundContext): string {
  if (call.kind === 'custom') return wrapCustomInput(call.input)
  return context.written?.(call, 'text') ?? (argumentsOf(call) || '{}')
}

/**
 * A result's text, with a placeholder for each image and document. These are appended to `media`, after a label with
 * the call's id.
 */
function toolContent(result: ResultPart, id: string, media: ContentPart[]): string {
  const lines: string[] = []
  let labelled = false
  for (const part of result.content) {
    const form = part.type === 'text' ? part : part.type === 'image' ? image(part) : document(part)
    if (form.type === 'text') {
      lines.push(form.text)
      continue
    }
    lines.push(`[${part.type}: in the next user message]`)
    if (!labelled) media.push({ type: 'text', text: `Attached to the result of tool call ${id}:` })
    labelled = true
    appendAll(media, part.type === 'document' ? withContext(part, form) : [form])
  }
  return (result.isError ? TOOL_ERROR : '') + lines.join('\n')
}

function image(part: ImagePart): ContentPart {
  const { source } = part
  const url = source.kind === 'url' ? source.url : dataUrlOf(source)
  const detail = part.detail === 'original' ? 'high' : part.detail
  return { type: 'image_url', image_url: detail === undefined ? { url } : { url, detail } }
}

/** A `file` part has a file name but no member for the context, so the context comes before it as text. */
function withContext(part: DocumentPart, form: ContentPart): ContentPart[] {
  if (form.type !== 'file' || !part.context) return [form]
  return [{ type: 'text', text: documentLine({ ...part, title: undefined }) }, form]
}

/**
 * A PDF becomes a `file` part. Text documents, also base64 ones, become text with a title line. `unfit` refuses
 * documents by URL before this.
 */
function document(part: DocumentPart): ContentPart {
  const { source } = part
  if (source.kind === 'text') return { type: 'text', text: documentText(part, source.text) }
  if (source.kind === 'url') return { type: 'text', text: documentText(part, source.url) }
  if (source.mediaType.startsWith('text/')) {
    return { type: 'text', text: documentText(part, Buffer.from(source.data, 'base64').toString('utf8')) }
  }
  const filename = part.title ?? 'document.pdf'
  return { type: 'file', file: { filename, file_data: dataUrlOf(source) } }
}
