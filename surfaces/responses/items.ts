/**
 * Output items of Responses replies while they grow (wire.md C.2). Every item has `id` and `status`, because the
 * clients' accumulators need them.
 */
import type { WireLogprob } from '../envelope.ts'
import type { ItemType, Status } from './reply.ts'

interface ItemOf<T extends ItemType> {
  id: string
  type: T
  status: Status
}

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
export interface MessageItem extends ItemOf<'message'> {
  role: 'assistant'
  content: (TextContent | RefusalContent)[]
}
export interface ReasoningItem extends ItemOf<'reasoning'> {
  summary: { type: 'summary_text'; text: string }[]
  encrypted_content?: string
}
export interface FunctionCallItem extends ItemOf<'function_call'> {
  call_id: string
  name: string
  arguments: string
  namespace?: string
}
export interface CustomCallItem extends ItemOf<'custom_tool_call'> {
  call_id: string
  name: string
  input: string
  namespace?: string
}
export interface ToolSearchItem extends ItemOf<'tool_search_call'> {
  execution: 'client'
  call_id: string
  arguments: unknown
}
export interface WebSearchItem extends ItemOf<'web_search_call'> {
  action: { type: 'search'; query?: string; queries?: string[]; sources?: { type: 'url'; url: string }[] }
}
/** It is complete when it comes, and has no status. */
export interface CompactionItem {
  id: string
  type: 'compaction'
  encrypted_content: string
}
export type OutputItem =
  | CompactionItem
  | MessageItem
  | ReasoningItem
  | FunctionCallItem
  | CustomCallItem
  | ToolSearchItem
  | WebSearchItem

/** The prefix of item ids. */
export const ITEM = 'item_eba1_'
const SEARCH = 'hist_eba1_'

/**
 * A hosted search has one id in two forms: `item_eba1_…` on this surface; `hist_eba1_…` on Messages and inside the
 * gateway (wire.md B.7).
 */
export function searchItemId(searchId: string): string {
  return searchId.startsWith(SEARCH) ? ITEM + searchId.slice(SEARCH.length) : searchId
}
export function searchIdOf(itemId: string): string {
  return itemId.startsWith(ITEM) ? SEARCH + itemId.slice(ITEM.length) : itemId
}
