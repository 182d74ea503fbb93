/** Output items of Responses replies as they grow (wire.md C.2). Every item has `id` and `status`: the clients' accumulators need them. */
import type { WireLogprob } from '../envelope.ts'

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete' | 'failed'

export interface Annotation {
  type: 'url_citation'
  start_index: number
  end_index: number
  url: string
  title: string
}
export interface TextContent {
  type: 'output_text'
  text: string
  annotations: Annotation[]
  logprobs: WireLogprob[]
}
export interface RefusalContent {
  type: 'refusal'
  refusal: string
}
export interface MessageItem {
  id: string
  type: 'message'
  status: ItemStatus
  role: 'assistant'
  content: (TextContent | RefusalContent)[]
}
export interface ReasoningItem {
  id: string
  type: 'reasoning'
  status: ItemStatus
  summary: { type: 'summary_text'; text: string }[]
  encrypted_content?: string
}
export interface FunctionCallItem {
  id: string
  type: 'function_call'
  status: ItemStatus
  call_id: string
  name: string
  arguments: string
  namespace?: string
}
export interface CustomCallItem {
  id: string
  type: 'custom_tool_call'
  status: ItemStatus
  call_id: string
  name: string
  input: string
  namespace?: string
}
export interface ToolSearchItem {
  id: string
  type: 'tool_search_call'
  status: ItemStatus
  execution: 'client'
  call_id: string
  arguments: unknown
}
export interface WebSearchItem {
  id: string
  type: 'web_search_call'
  status: ItemStatus
  action: { type: 'search'; query?: string; queries?: string[]; sources?: { type: 'url'; url: string }[] }
}
export type OutputItem =
  | MessageItem
  | ReasoningItem
  | FunctionCallItem
  | CustomCallItem
  | ToolSearchItem
  | WebSearchItem

const ITEM = 'item_eba1_'
const SEARCH = 'hist_eba1_'

/** A hosted search has one id in two forms: `item_eba1_…` on this surface, `hist_eba1_…` on Messages and in the gateway (wire.md B.7). */
export function searchItemId(searchId: string): string {
  return searchId.startsWith(SEARCH) ? ITEM + searchId.slice(SEARCH.length) : searchId
}
export function searchIdOf(itemId: string): string {
  return itemId.startsWith(ITEM) ? SEARCH + itemId.slice(ITEM.length) : itemId
}
