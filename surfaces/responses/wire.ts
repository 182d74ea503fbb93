/** The body as the schema has proved it, for `parse`. Optional members may be null, which is absent. */
import type { Effort } from '../../core/conversation.ts'

export type Optional<T> = T | null | undefined

export interface ResponsesBody {
  model: string
  input?: Optional<string | Item[]>
  instructions?: Optional<string>
  previous_response_id?: Optional<string>
  store?: Optional<boolean>
  stream?: Optional<boolean>
  include?: Optional<string[]>
  max_output_tokens?: Optional<number>
  max_tool_calls?: Optional<number>
  temperature?: Optional<number>
  top_p?: Optional<number>
  top_logprobs?: Optional<number>
  parallel_tool_calls?: Optional<boolean>
  reasoning?: Optional<{
    effort?: Optional<Effort>
    summary?: Optional<'auto' | 'concise' | 'detailed'>
    generate_summary?: Optional<'auto' | 'concise' | 'detailed'>
  }>
  text?: Optional<{ verbosity?: Optional<'low' | 'medium' | 'high'> }>
  tools?: Optional<WireTool[]>
  tool_choice?: Optional<WireToolChoice>
  metadata?: Optional<Record<string, string>>
  user?: Optional<string>
  safety_identifier?: Optional<string>
  prompt_cache_key?: Optional<string>
  /** Over a WebSocket only. */
  generate?: Optional<boolean>
}

export type InputPart =
  | { type: 'input_text'; text: string }
  | {
      type: 'input_image'
      image_url?: Optional<string>
      detail?: Optional<'auto' | 'low' | 'high' | 'original'>
    }
  | {
      type: 'input_file'
      file_data?: Optional<string>
      file_url?: Optional<string>
      filename?: Optional<string>
    }
export type OutputPart = { type: 'output_text'; text: string } | { type: 'refusal'; refusal: string }
type ItemStatus = Optional<'in_progress' | 'completed' | 'incomplete'>

export interface MessageItem {
  type?: Optional<'message'>
  role: 'user' | 'assistant' | 'system' | 'developer'
  content: string | (InputPart | OutputPart)[]
}
interface CallBase {
  call_id: string
  name: string
  namespace?: Optional<string>
  status?: ItemStatus
}
export interface OutputItem {
  type: 'function_call_output' | 'custom_tool_call_output'
  call_id: string
  output: string | InputPart[]
}
export interface SearchCallItem {
  type: 'web_search_call'
  id?: Optional<string>
  action?: Optional<{
    query?: Optional<string>
    queries?: Optional<string[]>
    sources?: Optional<{ url?: Optional<string> }[]>
    url?: Optional<string>
    pattern?: Optional<string>
  }>
}
export interface ReasoningItem {
  type: 'reasoning'
  id?: Optional<string>
  summary: { text: string }[]
  encrypted_content?: Optional<string>
}
export type Item =
  | MessageItem
  | (CallBase & { type: 'function_call'; arguments: string })
  | (CallBase & { type: 'custom_tool_call'; input: string })
  | OutputItem
  | ReasoningItem
  | SearchCallItem
  | { type: 'tool_search_call'; call_id: string; arguments: unknown; status?: ItemStatus }
  | { type: 'tool_search_output'; call_id: string; tools: WireTool[] }
  | { type: 'additional_tools'; tools: WireTool[] }

export interface WireFunctionTool {
  type: 'function'
  name: string
  description?: Optional<string>
  parameters?: Optional<Record<string, unknown>>
  strict?: Optional<boolean>
}
export interface WireCustomTool {
  type: 'custom'
  name: string
  description?: Optional<string>
  format?: Optional<{ type: 'text' } | { type: 'grammar'; syntax: 'lark' | 'regex'; definition: string }>
}
export interface WireSearchTool {
  type: 'web_search' | 'web_search_2025_08_26' | 'web_search_preview' | 'web_search_preview_2025_03_11'
  search_context_size?: Optional<'low' | 'medium' | 'high'>
  user_location?: Optional<Record<string, unknown>>
  filters?: Optional<{ allowed_domains?: Optional<string[]> }>
  external_web_access?: Optional<boolean>
}
export type WireTool =
  | WireFunctionTool
  | WireCustomTool
  | WireSearchTool
  | { type: 'namespace'; name: string; tools: (WireFunctionTool | WireCustomTool)[] }
  | { type: 'tool_search'; description?: Optional<string>; parameters?: Optional<Record<string, unknown>> }

type NamedTool =
  | { type: 'function' | 'custom'; name: string; namespace?: Optional<string> }
  | { type: WireSearchTool['type'] }
export type WireToolChoice =
  | 'auto'
  | 'none'
  | 'required'
  | NamedTool
  | { type: 'allowed_tools'; mode: 'auto' | 'required'; tools: NamedTool[] }
