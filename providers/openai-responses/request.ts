/**
 * Makes `POST /responses` requests from a conversation (wire.md F.1 to F.5). The upstream stores nothing
 * (`store: false`): reasoning is returned encrypted and is sent again unchanged.
 */

import { argumentsOf } from '../../core/canon/arguments.ts'
import {
  type CallPart,
  type Conversation,
  type DocumentPart,
  dataUrlOf,
  type ImagePart,
  type OutputFormat,
  type Part,
  type ReasoningPart,
  type ResultPart,
  type SearchPart,
  type SearchTool,
  type TextPart,
  type Tool,
  type ToolChoice,
} from '../../core/canon/conversation.ts'
import type { Backend, OutboundContext, OutboundRequest } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'
import { documentText, resultText, searchText, TOOL_ERROR } from '../document-text.ts'
import { effortToSend } from '../effort.ts'
import { fitEffort } from '../effort-levels.ts'
import { adjustments } from '../left-out.ts'
import { isObject, type JsonObject, list } from '../loose-json.ts'
import { nextCall } from '../next-call.ts'
import { OutboundHeaders } from '../outbound-headers.ts'
import { namedSchemaOf } from '../structured-output.ts'
import { aliasTools, OPENAI_NAMES, type ToolNames } from '../tool-names.ts'
import { traitsOf } from './models.ts'

const HEADERS = new OutboundHeaders(apiKey => ({ authorization: `Bearer ${apiKey}` }))

export const NAME = 'openai-responses'

/** What the decoder needs from the request. */
export interface RequestState {
  names: ToolNames
}

/** The private data of this dialect: the reasoning items that led to a call, or one hosted search. */
export interface ResponsesContinuation {
  /** `{type: 'reasoning', encrypted_content, summary}`, without ids. */
  reasoning?: JsonObject[]
  /** The `web_search_call` item, unchanged. */
  search?: JsonObject
}

/**
 * The smallest `max_output_tokens` that OpenAI and Azure accept. Some other servers of the API take less, but whether one
 * stands in front of OpenAI cannot be told, and a refusal is worse than a few tokens more.
 */
const MIN_OUTPUT_TOKENS = 16

/** Makes the request for one attempt. The backend must fit the conversation (`unfit`). */
export function request(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest {
  const names = aliasTools(conversation.tools, OPENAI_NAMES)
  const search = conversation.tools.find(tool => tool.type === 'web_search')
  const traits = traitsOf(backend.model)
  const reasons = traits.efforts.length > 0 && backend.supports.has('reasoning')
  const { sampling } = conversation

  const input = new InputBuilder(names, backend, context).build(conversation)
  const body: JsonObject = { model: backend.model, input, store: false, stream: context.stream }
  const instructions = conversation.system.filter(part => !part.meteredOnly).map(part => part.text)
  if (instructions.length > 0) {
    const text = instructions.join('\n\n')
    // The API refuses a request that has instructions but no input.
    if (input.length > 0) body['instructions'] = text
    else input.push({ type: 'message', role: 'developer', content: [{ type: 'input_text', text }] })
  }

  const include = []
  if (reasons) include.push('reasoning.encrypted_content')
  if (search) include.push('web_search_call.action.sources')
  if (sampling.logprobs) include.push('message.output_text.logprobs')
  if (include.length > 0) body['include'] = include

  const cap = capFor(conversation)
  if (cap !== undefined) body['max_output_tokens'] = cap
  const wish = effortToSend(conversation)
  const effort = reasons && wish !== undefined ? fitEffort(wish, traits.efforts, backend.effortCeiling) : undefined
  const summary = reasons ? conversation.reasoning.summary : undefined
  if (effort !== undefined || summary !== undefined) body['reasoning'] = { effort, summary }
  if (!traits.fixedSampling || effort === 'none') {
    body['temperature'] = sampling.temperature
    body['top_p'] = sampling.topP
  }
  if (sampling.logprobs) body['top_logprobs'] = sampling.topLogprobs
  const { verbosity, output } = conversation
  if (verbosity !== undefined || output) body['text'] = { verbosity, format: output && formatOf(output) }
  if (context.cacheKey !== undefined) body['prompt_cache_key'] = context.cacheKey

  if (conversation.tools.length > 0) {
    body['tools'] = conversation.tools.map(tool => toolBody(tool, names))
    body['tool_choice'] = choiceBody(conversation.toolChoice, names)
    body['parallel_tool_calls'] = conversation.parallelToolCalls
    if (search) body['max_tool_calls'] = least(search.maxUses, conversation.maxSearches)
  }

  const headers = HEADERS.of(backend, context.stream)
  const state: RequestState = { names }
  return {
    method: 'POST',
    path: '/responses',
    headers,
    body: (context.json ?? JSON.stringify)(body),
    state,
    adjusted: adjustments(conversation, {
      temperature: body['temperature'],
      topP: body['top_p'],
      verbosity: conversation.verbosity,
      cap,
      effort,
      searchHints: ['userLocation', 'contextSize'],
      searchLimit: true,
    }),
  }
}

function capFor({ maxOutputTokens: cap }: Conversation): number | undefined {
  return cap === undefined ? undefined : Math.max(cap, MIN_OUTPUT_TOKENS)
}

function formatOf(output: OutputFormat): JsonObject {
  return output.schema ? { type: 'json_schema', ...namedSchemaOf(output) } : { type: 'json_object' }
}

function least(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined ? b : b === undefined ? a : Math.min(a, b)
}

function toolBody(tool: Tool, names: ToolNames): JsonObject {
  switch (tool.type) {
    case 'function':
      return {
        type: 'function',
        name: names.toUpstream(tool.name, tool.namespace),
        description: tool.description,
        parameters: tool.parameters,
        strict: tool.strict === true,
      }
    case 'custom':
      return {
        type: 'custom',
        name: names.toUpstream(tool.name, tool.namespace),
        description: tool.description,
        format: tool.grammar
          ? { type: 'grammar', syntax: tool.grammar.syntax, definition: tool.grammar.definition }
          : undefined,
      }
    case 'native':
      return {
        type: 'function',
        name: names.toUpstream(tool.name),
        description: tool.description,
        parameters: tool.parameters,
        strict: false,
      }
    case 'web_search':
      return searchBody(tool)
  }
}

function searchBody(tool: SearchTool): JsonObject {
  return {
    type: 'web_search',
    search_context_size: tool.contextSize,
    user_location: tool.userLocation,
    filters:
      tool.allowedDomains && tool.allowedDomains.length > 0 ? { allowed_domains: tool.allowedDomains } : undefined,
  }
}

function choiceBody(choice: ToolChoice, names: ToolNames): unknown {
  switch (choice.type) {
    case 'tool':
      return chosen(choice, names)
    case 'allowed':
      return {
        type: 'allowed_tools',
        mode: choice.mode,
        tools: onceEach(choice.tools.map(tool => chosen(tool, names))),
      }
    default:
      return choice.type
  }
}

/** A client may name one tool a thousand times, and what it names is not counted. */
function onceEach(tools: readonly JsonObject[]): JsonObject[] {
  return [...new Map(tools.map(tool => [`${tool['type']} ${tool['name']}`, tool])).values()]
}

function chosen(
  tool: { name: string; namespace?: string; kind: 'function' | 'custom' | 'web_search' },
  names: ToolNames,
): JsonObject {
  if (tool.kind === 'web_search') return { type: 'web_search' }
  return { type: tool.kind, name: names.toUpstream(tool.name, tool.namespace) }
}

/**
 * Makes the flat list of items from turns. Item ids are left out, because the API checks their prefixes
 * (wire.md F.7).
 */
class InputBuilder {
  readonly #names: ToolNames
  readonly #backend: Backend
  readonly #context: OutboundContext
  readonly #items: JsonObject[] = []
  /**
   * The kind of each call, by public id. A result takes the kind of its call: the client may answer a custom call
   * through Chat Completions, which knows only functions.
   */
  readonly #kinds = new Map<string, CallPart['kind']>()
  /**
   * Reasoning items that were already added, by their encrypted content: the item itself and the call it led to both
   * contain it.
   */
  readonly #sent = new Set<string>()

  constructor(names: ToolNames, backend: Backend, context: OutboundContext) {
    this.#names = names
    this.#backend = backend
    this.#context = context
  }

  build(conversation: Conversation): JsonObject[] {
    for (const turn of conversation.turns) {
      switch (turn.role) {
        case 'user':
          this.#message('user', turn.parts)
          break
        case 'system':
          this.#message('developer', turn.parts)
          break
        case 'assistant':
          this.#assistant(turn.parts)
          break
        case 'tool':
          for (const part of turn.parts) if (part.type === 'result') this.#result(part)
          break
      }
    }
    return this.#items
  }

  #message(role: 'user' | 'developer', parts: readonly Part[]): void {
    const content = []
    for (const part of parts) {
      if (part.type === 'text') {
        if (!part.meteredOnly) content.push({ type: 'input_text', text: part.text })
      } else if (part.type === 'image') content.push(imageBody(part))
      else if (part.type === 'document') appendAll(content, documentBody(part))
    }
    if (content.length > 0) this.#items.push({ type: 'message', role, content })
  }

  #assistant(parts: readonly Part[]): void {
    let message: JsonObject[] | null = null
    const callFrom = nextCall(parts)
    for (const [position, part] of parts.entries()) {
      if (part.type === 'text' || part.type === 'refusal') {
        if (!message) {
          // Reasoning that led to this text must come before it. When the client replayed only calls, a later call in
          // this turn has it.
          const call = callFrom(position)
          if (call) this.#reasoning(call)
          message = []
          this.#items.push({ type: 'message', role: 'assistant', content: message })
        }
        if (part.type === 'text') message.push({ type: 'output_text', text: part.text, annotations: [] })
        else message.push({ type: 'refusal', refusal: part.text })
        continue
      }
      message = null
      if (part.type === 'reasoning') this.#reasoning(part)
      else if (part.type === 'call') this.#call(part)
      else if (part.type === 'search') this.#search(part)
    }
  }

  #call(part: CallPart): void {
    this.#reasoning(part)
    this.#kinds.set(part.id, part.kind)
    const call_id = this.#context.upstreamCallId(part.id)
    const name = this.#names.toUpstream(part.name, part.namespace)
    if (part.kind === 'custom') this.#items.push({ type: 'custom_tool_call', call_id, name, input: part.input })
    else {
      const text = this.#context.written?.(part, 'text') ?? (argumentsOf(part) || '{}')
      this.#items.push({ type: 'function_call', call_id, name, arguments: text })
    }
  }

  #reasoning(part: ReasoningPart | CallPart): void {
    for (const item of this.#private(part)?.reasoning ?? []) {
      const key = item['encrypted_content']
      if (typeof key !== 'string' || this.#sent.has(key)) continue
      this.#sent.add(key)
      this.#items.push(item)
    }
  }

  #search(part: SearchPart): void {
    const item = this.#private(part)?.search
    if (item) this.#items.push(item)
    else {
      const content = [{ type: 'output_text', text: searchText(part), annotations: [] }]
      this.#items.push({ type: 'message', role: 'assistant', content })
    }
  }

  /** Private data of another dialect or model is dropped completely (TOOL-6). */
  #private(part: ReasoningPart | CallPart | SearchPart): ResponsesContinuation | undefined {
    const continuation = part.continuation
    if (continuation?.dialect !== NAME || continuation.model !== this.#backend.model) return undefined
    const data = continuation.data
    if (!isObject(data)) return undefined
    const search = data['search']
    return { reasoning: list(data['reasoning']).filter(isObject), search: isObject(search) ? search : undefined }
  }

  #result(part: ResultPart): void {
    const custom = (this.#kinds.get(part.callId) ?? part.kind) === 'custom'
    this.#items.push({
      type: custom ? 'custom_tool_call_output' : 'function_call_output',
      call_id: this.#context.upstreamCallId(part.callId),
      output: outputBody(part),
    })
  }
}

/** A string when there is only one text; otherwise an array, so that part boundaries and media remain. */
function outputBody(part: ResultPart): string | JsonObject[] {
  const prefix = part.isError ? TOOL_ERROR : ''
  if (part.content.length <= 1 && part.content.every(isText)) return prefix + resultText(part)
  const output: JsonObject[] = prefix === '' ? [] : [{ type: 'input_text', text: prefix.trimEnd() }]
  for (const inner of part.content) {
    if (inner.type === 'text') output.push({ type: 'input_text', text: inner.text })
    else if (inner.type === 'image') output.push(imageBody(inner))
    else appendAll(output, documentBody(inner))
  }
  return output
}

function isText(part: TextPart | ImagePart | DocumentPart): boolean {
  return part.type === 'text' || (part.type === 'document' && part.source.kind === 'text')
}

function imageBody(part: ImagePart): JsonObject {
  const { source } = part
  const image_url = source.kind === 'url' ? source.url : dataUrlOf(source)
  return { type: 'input_image', image_url, detail: part.detail ?? 'auto' }
}

function documentBody(part: DocumentPart): JsonObject[] {
  const { source } = part
  if (source.kind === 'text') return [{ type: 'input_text', text: documentText(part, source.text) }]
  const context = part.context
    ? [{ type: 'input_text', text: documentText({ ...part, title: undefined }, '').trimEnd() }]
    : []
  if (source.kind === 'url') return [...context, { type: 'input_file', file_url: source.url }]
  return [
    ...context,
    {
      type: 'input_file',
      filename: part.title ?? 'document.pdf',
      file_data: dataUrlOf(source),
    },
  ]
}
