/** The body as the schema has proved it, for `parse`. Optional members may be null, which is absent. */
import type { Effort } from '../../core/conversation.ts'

export type Optional<T> = T | null | undefined

export interface ChatBody {
  model: string
  messages: ChatMessage[]
  system?: Optional<string | TextContent[]>
  stream?: Optional<boolean>
  stream_options?: Optional<{ include_usage?: Optional<boolean> }>
  temperature?: Optional<number>
  top_p?: Optional<number>
  stop?: Optional<string | string[]>
  seed?: Optional<number>
  logprobs?: Optional<boolean>
  top_logprobs?: Optional<number>
  metadata?: Optional<Record<string, string>>
  max_tokens?: Optional<number>
  max_completion_tokens?: Optional<number>
  tools?: Optional<ChatTool[]>
  tool_choice?: Optional<ChatToolChoice>
  parallel_tool_calls?: Optional<boolean>
  reasoning_effort?: Optional<Effort>
  verbosity?: Optional<'low' | 'medium' | 'high'>
  prompt_cache_key?: Optional<string>
}

export interface TextContent {
  type: 'text'
  text: string
}
export type UserContent =
  | TextContent
  | { type: 'image_url'; image_url: { url: string; detail?: Optional<'auto' | 'low' | 'high' | 'original'> } }
  | { type: 'file'; file: { file_data: string; filename?: Optional<string> } }

export type ChatMessage =
  | { role: 'system' | 'developer'; content: string | TextContent[] }
  | { role: 'user'; content: string | UserContent[] }
  | {
      role: 'assistant'
      content?: Optional<string | (TextContent | { type: 'refusal'; refusal: string })[]>
      refusal?: Optional<string>
      tool_calls?: Optional<{ id: string; function: { name: string; arguments: string } }[]>
    }
  | { role: 'tool'; content: string | TextContent[]; tool_call_id: string }

export interface ChatTool {
  type: 'function'
  function: {
    name: string
    description?: Optional<string>
    parameters?: Optional<Record<string, unknown>>
    strict?: Optional<boolean>
  }
}
type Named = { type: 'function'; function: { name: string } }
export type ChatToolChoice =
  | 'auto'
  | 'none'
  | 'required'
  | Named
  | { type: 'allowed_tools'; allowed_tools: { mode: 'auto' | 'required'; tools: Named[] } }
