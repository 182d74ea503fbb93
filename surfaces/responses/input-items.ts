/**
 * The items of a request's input, made from the turns that were retained of it: what GET /v1/responses/{id}/input_items
 * lists. Turns are kept in canonical form, so some of what a client sent cannot be given back: neighbouring messages of
 * one role are one item, `developer` is `system`, empty texts are left out, and a search for tools is a call of
 * `tool_search`.
 */
import { createHash } from 'node:crypto'
import {
  type DocumentPart,
  dataUrlOf,
  type ImagePart,
  type Part,
  type TextPart,
  type Turn,
} from '../../core/canon/conversation.ts'
import { ITEM, searchItemId } from './items.ts'

/** What a list shows beside what it always shows: values of the parameter `include`. */
export type Include = ReadonlySet<string>

export interface InputItem {
  id: string
  type: string
  [member: string]: unknown
}

/**
 * @param id of the response. The items of one response have the same ids each time.
 * @param system system text before the first turn
 */
export function inputItems(
  id: string,
  system: readonly TextPart[],
  turns: readonly Turn[],
  include: Include,
): InputItem[] {
  const items: InputItem[] = []
  const ids = new Set<string>()
  const add = (type: string, members: Record<string, unknown>, own?: string) => {
    let itemId = own
    // A client may have sent one id twice, and a page could not be continued from that.
    if (!itemId || ids.has(itemId)) itemId = madeId(id, items.length)
    ids.add(itemId)
    items.push({ id: itemId, type, ...(type !== 'compaction' && { status: 'completed' }), ...members })
  }
  const addMessage = (role: Turn['role'], parts: readonly Part[]) => {
    if (parts.length > 0) add('message', { role, content: parts.map(part => contentOf(role, part, include)) })
  }
  addMessage('system', system)
  for (const { role, parts } of turns) {
    let from = 0
    for (const [at, part] of parts.entries()) {
      if (!isItem(part)) continue
      addMessage(role, parts.slice(from, at))
      from = at + 1
      const { type, own, ...members } = itemOf(part, include)
      add(type, members, own)
    }
    addMessage(role, parts.slice(from))
  }
  return items
}

type CapsulePart = TextPart & Required<Pick<TextPart, 'capsule'>>
type ItemPart = CapsulePart | Extract<Part, { type: 'call' | 'result' | 'reasoning' | 'search' }>

function isItem(part: Part): part is ItemPart {
  if (part.type === 'text') return part.capsule !== undefined
  return part.type === 'call' || part.type === 'result' || part.type === 'reasoning' || part.type === 'search'
}

/** @returns the item without its status; `own` is the id that it has already */
function itemOf(part: ItemPart, include: Include): { type: string; own?: string; [member: string]: unknown } {
  switch (part.type) {
    case 'text': {
      const { id: own, sealed: encrypted_content } = part.capsule
      return { type: 'compaction', ...(own !== undefined && { own }), encrypted_content }
    }
    case 'call': {
      const { id: call_id, kind, name, namespace, input } = part
      const rest = namespace === undefined ? {} : { namespace }
      return kind === 'function'
        ? { type: 'function_call', call_id, name, arguments: input, ...rest }
        : { type: 'custom_tool_call', call_id, name, input, ...rest }
    }
    case 'result': {
      const { callId: call_id, kind, content } = part
      const [first, ...more] = content
      const output =
        first === undefined
          ? ''
          : first.type === 'text' && more.length === 0
            ? first.text
            : content.map(item => inputContent(item, include))
      return { type: kind === 'function' ? 'function_call_output' : 'custom_tool_call_output', call_id, output }
    }
    case 'reasoning': {
      const { handle, summary } = part
      return {
        type: 'reasoning',
        ...(handle !== undefined && { own: handle }),
        summary: summary.map(text => ({ type: 'summary_text', text })),
        ...(handle !== undefined && include.has('reasoning.encrypted_content') && { encrypted_content: handle }),
      }
    }
    case 'search': {
      const sources = include.has('web_search_call.action.sources') && {
        sources: part.results.map(({ url }) => ({ type: 'url', url })),
      }
      const action = { type: 'search', query: part.query, queries: [part.query], ...sources }
      return { type: 'web_search_call', own: searchItemId(part.id), action }
    }
  }
}

function contentOf(role: Turn['role'], part: Part, include: Include) {
  if (part.type === 'refusal') return { type: 'refusal', refusal: part.text }
  if (part.type === 'text' && role === 'assistant')
    return { type: 'output_text', text: part.text, annotations: [], logprobs: [] }
  return inputContent(part as TextPart | ImagePart | DocumentPart, include)
}

function inputContent(part: TextPart | ImagePart | DocumentPart, include: Include) {
  switch (part.type) {
    case 'text':
      return { type: 'input_text', text: part.text }
    case 'image':
      return {
        type: 'input_image',
        detail: part.detail ?? 'auto',
        file_id: null,
        image_url: include.has('message.input_image.image_url') ? urlOf(part.source) : null,
      }
    case 'document': {
      const { source, title } = part
      const file = source.kind === 'url' ? { file_url: source.url } : { file_data: urlOf(source) }
      return { type: 'input_file', ...(title !== undefined && { filename: title }), ...file }
    }
  }
}

function urlOf(source: DocumentPart['source']): string {
  switch (source.kind) {
    case 'url':
      return source.url
    case 'data':
      return dataUrlOf(source)
    case 'text':
      return `data:text/plain;base64,${Buffer.from(source.text).toString('base64')}`
  }
}

function madeId(response: string, at: number): string {
  return ITEM + createHash('sha256').update(`${response} ${at}`).digest('hex').slice(0, 24)
}
