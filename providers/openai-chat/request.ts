/** The Chat Completions request body (wire.md F.1 to F.5, column OC). */
import { type Conversation, type Effort, formOf, type OutputFormat, type Tool } from '../../core/canon/conversation.ts'
import type { Backend, OutboundContext, OutboundRequest } from '../../core/ports/dialect.ts'
import { CUSTOM_INPUT_SCHEMA, customDescription } from '../custom-input.ts'
import { settingsOf } from '../dialect-settings.ts'
import { effortToSend } from '../effort.ts'
import { fitEffort } from '../effort-levels.ts'
import { adjustments } from '../left-out.ts'
import { OutboundHeaders } from '../outbound-headers.ts'
import { namedSchemaOf } from '../structured-output.ts'
import { aliasTools, OPENAI_NAMES, type ToolNames } from '../tool-names.ts'
import { messagesOf } from './messages.ts'
import type { ChatSettings } from './settings.ts'

const HEADERS = new OutboundHeaders(apiKey => ({ authorization: `Bearer ${apiKey}` }))

/** What the decoder needs from the request. */
export interface ChatState {
  names: ToolNames
}

/**
 * Members are written in one fixed order and only when the client requested something, because servers of this
 * dialect know different members. `user`, metadata and client ids are never sent (wire.md A.2). `store` is left to
 * the provider's default, which is off for this API.
 */
export function chatRequest(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest {
  const names = aliasTools(conversation.tools, OPENAI_NAMES)
  const body: Record<string, unknown> = {
    model: backend.model,
    messages: messagesOf(conversation, names, context),
  }
  writeTools(conversation, backend, names, body)
  const { sampling } = conversation
  if (conversation.maxOutputTokens !== undefined)
    body[settingsOf<ChatSettings>(backend).backend.max_tokens_field] = conversation.maxOutputTokens
  if (sampling.temperature !== undefined) body['temperature'] = sampling.temperature
  if (sampling.topP !== undefined) body['top_p'] = sampling.topP
  if (sampling.seed !== undefined) body['seed'] = sampling.seed
  if (sampling.logprobs) {
    body['logprobs'] = true
    if (sampling.topLogprobs !== undefined) body['top_logprobs'] = sampling.topLogprobs
  }
  // Some surfaces tell the client which string matched, and this dialect does not report it: for these the gateway alone
  // matches. For the others it matches too, because some servers send the string, and some are not told (`omit`).
  if (sampling.stop.length > 0 && !formOf(conversation).namesStopString) body['stop'] = sampling.stop
  const effort = effortFor(conversation, backend)
  if (effort !== undefined) body['reasoning_effort'] = effort
  if (conversation.verbosity !== undefined) body['verbosity'] = conversation.verbosity
  if (conversation.output) body['response_format'] = responseFormat(conversation.output)
  if (context.cacheKey !== undefined) body['prompt_cache_key'] = context.cacheKey
  if (context.stream) {
    body['stream'] = true
    body['stream_options'] = { include_usage: true }
  }
  for (const member of settingsOf<ChatSettings>(backend).provider.omit ?? []) delete body[member]
  const state: ChatState = { names }
  return {
    method: 'POST',
    path: '/chat/completions',
    headers: HEADERS.of(backend, context.stream),
    body: (context.json ?? JSON.stringify)(body),
    state,
    adjusted: adjustments(conversation, {
      temperature: body['temperature'],
      topP: body['top_p'],
      seed: body['seed'],
      verbosity: body['verbosity'],
      effort: body['reasoning_effort'],
    }),
  }
}

function responseFormat(output: OutputFormat): Record<string, unknown> {
  if (!output.schema) return { type: 'json_object' }
  return { type: 'json_schema', json_schema: namedSchemaOf(output) }
}

/** The values that OpenAI documents for `reasoning_effort`. `ultra` exists only in the gateway. */
const LEVELS: readonly Effort[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']

/**
 * The effort for a backend. Servers accept different levels; `effort_ceiling` of a backend is its highest level. A
 * backend without reasoning gets no effort.
 */
function effortFor(conversation: Conversation, backend: Backend): string | undefined {
  if (!backend.supports.has('reasoning')) return undefined
  const effort = effortToSend(conversation)
  return effort === undefined ? undefined : fitEffort(effort, LEVELS, backend.effortCeiling)
}

function writeTools(
  conversation: Conversation,
  backend: Backend,
  names: ToolNames,
  body: Record<string, unknown>,
): void {
  const choice = conversation.toolChoice
  let declared = conversation.tools
  if (choice.type === 'allowed') {
    const allowed = new Set(choice.tools.map(tool => names.toUpstream(tool.name, tool.namespace)))
    declared = declared.filter(tool => tool.type !== 'web_search' && allowed.has(upstreamName(tool, names)))
  }
  const tools: unknown[] = []
  for (const tool of declared) {
    if (tool.type !== 'web_search') tools.push({ type: 'function', function: functionOf(tool, backend, names) })
  }
  if (tools.length === 0) return
  body['tools'] = tools
  if (choice.type === 'none') body['tool_choice'] = 'none'
  else if (choice.type === 'required' || (choice.type === 'allowed' && choice.mode === 'required'))
    body['tool_choice'] = 'required'
  else if (choice.type === 'tool') {
    body['tool_choice'] = { type: 'function', function: { name: names.toUpstream(choice.name, choice.namespace) } }
  }
  if (!conversation.parallelToolCalls) body['parallel_tool_calls'] = false
}

function upstreamName(tool: Exclude<Tool, { type: 'web_search' }>, names: ToolNames): string {
  return names.toUpstream(tool.name, tool.type === 'native' ? undefined : tool.namespace)
}

function functionOf(
  tool: Exclude<Tool, { type: 'web_search' }>,
  backend: Backend,
  names: ToolNames,
): Record<string, unknown> {
  const name = upstreamName(tool, names)
  if (tool.type === 'custom') return { name, description: customDescription(tool), parameters: CUSTOM_INPUT_SCHEMA }
  const declared: Record<string, unknown> = { name }
  if (tool.description) declared['description'] = tool.description
  declared['parameters'] = tool.parameters
  if (tool.type === 'function' && tool.strict && backend.supports.has('strict_tools')) declared['strict'] = true
  return declared
}
