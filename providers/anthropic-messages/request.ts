/** Makes `POST /messages` requests from a conversation (wire.md F.1 to F.5). */

import {
  type CallPart,
  type Conversation,
  type DocumentPart,
  formOf,
  type ImagePart,
  type Part,
  type ReasoningPart,
  type ResultPart,
  type SearchPart,
  workOf,
} from '../../core/canon/conversation.ts'
import type { Backend, OutboundContext, OutboundRequest } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'
import { adjacentResults, type Step } from '../adjacent-results.ts'
import { resultText, searchText, systemTag } from '../document-text.ts'
import { adjustments } from '../left-out.ts'
import { argumentsObject, isObject, type JsonObject, list, string } from '../loose-json.ts'
import { nextCall } from '../next-call.ts'
import { type Headers, OutboundHeaders } from '../outbound-headers.ts'
import { isPrefill } from '../requirements.ts'
import { ANTHROPIC_NAMES, aliasTools, type ToolNames } from '../tool-names.ts'
import { betaHeader } from './betas.ts'
import { CacheMarkers, markPrefixes } from './cache-markers.ts'
import { cacheMinimum, traitsOf } from './models.ts'
import { outputSchema } from './output-schema.ts'
import { marksCache } from './settings.ts'
import { planThinking, type ThinkingPlan } from './thinking.ts'
import { toolMembers } from './tools.ts'

export const NAME = 'anthropic-messages'
export const API_VERSION = '2023-06-01'
const HEADERS = new OutboundHeaders(apiKey => ({ 'x-api-key': apiKey }), { 'anthropic-version': API_VERSION })

/** What the decoder needs from the request. */
export interface RequestState {
  names: ToolNames
}

/** The private data of this dialect. */
export interface MessagesContinuation {
  /** Signed and redacted thinking, or one hosted search with its result, unchanged. */
  blocks: JsonObject[]
  /** For a call: how many of the blocks came before the text that precedes the call. */
  lead?: number
}

/**
 * The private data of a part that this dialect and model stored. Data of another dialect or model is dropped
 * completely (TOOL-6).
 */
function keptOf(part: ReasoningPart | CallPart | SearchPart, model: string): MessagesContinuation | undefined {
  const continuation = part.continuation
  if (continuation?.dialect !== NAME || continuation.model !== model) return undefined
  const data = continuation.data
  if (!isObject(data)) return undefined
  const lead = data['lead']
  return { blocks: list(data['blocks']).filter(isObject), lead: typeof lead === 'number' ? lead : 0 }
}

/**
 * The hosted search without a result at the end of a conversation: the provider paused there. When it is sent
 * unchanged, the provider continues it, and the reply begins with the result.
 */
export function pausedSearch(
  { turns }: Conversation,
  model: string,
): { part: SearchPart; call: JsonObject } | undefined {
  const last = turns.at(-1)
  const part = last?.role === 'assistant' ? last.parts.at(-1) : undefined
  if (part?.type !== 'search') return undefined
  const blocks = keptOf(part, model)?.blocks ?? []
  return blocks.length === 1 ? { part, call: blocks[0]! } : undefined
}

/** Makes the request for one attempt. The backend must fit the conversation (`unfit`). */
export function request(conversation: Conversation, backend: Backend, context: OutboundContext): OutboundRequest {
  const search = conversation.tools.some(tool => tool.type === 'web_search')
  const names = aliasTools(conversation.tools, ANTHROPIC_NAMES, search ? ['web_search'] : [])
  const traits = traitsOf(backend.model)
  const cache = new CacheMarkers()

  // In the order of the prompt: the first four markers are kept, the others dropped.
  const tools = toolMembers(conversation, backend, names, cache)
  const system: JsonObject[] = []
  for (const part of conversation.system) {
    if (part.meteredOnly || isBlank(part.text)) continue
    system.push({ type: 'text', text: part.text, cache_control: cache.marker(part.cache) })
  }
  const builder = new MessageBuilder(conversation, names, backend, context, cache, traits.midSystem)
  const plan = planThinking(conversation, backend, traits, builder.replayable)
  const messages = builder.build(plan.on)
  if (marksCache(backend) && !formOf(conversation).marksCache && !cache.used) {
    markPrefixes({ tools: list(tools['tools']) as JsonObject[], system, messages }, cacheMinimum(backend.model))
  }
  endTurn(messages, conversation)

  const body: JsonObject = {
    model: backend.model,
    max_tokens: plan.maxTokens,
    system: system.length > 0 ? system : undefined,
    messages,
    ...tools,
    stream: context.stream,
    thinking: plan.thinking,
    output_config: outputConfig(conversation, plan),
    ...samplingMembers(conversation, traits.sampling, plan),
  }
  const stops = nativeStops(conversation.sampling.stop)
  if (stops.length > 0) body['stop_sequences'] = stops

  const headers = HEADERS.of(backend, context.stream)
  const beta = betaHeader(headers['anthropic-beta'], context.previews ?? [])
  const state: RequestState = { names }
  return {
    method: 'POST',
    path: '/messages',
    headers: beta === undefined ? headers : withBeta(headers, beta),
    body: (context.json ?? JSON.stringify)(body),
    state,
    adjusted: adjustments(conversation, {
      temperature: body['temperature'],
      topP: body['top_p'],
      effort: plan.effort,
      insteadOfEffort: plan.thinking && `thinking ${plan.thinking['budget_tokens'] ?? plan.thinking['type']}`,
      searchHints: ['userLocation'],
      searchLimit: true,
    }),
  }
}

function outputConfig(conversation: Conversation, { effort }: ThinkingPlan): JsonObject | undefined {
  const { output } = conversation
  if (effort === undefined && !output) return undefined
  const format = output && { type: 'json_schema', schema: outputSchema(output.schema!, workOf(conversation)) }
  return { effort, format }
}

/**
 * Headers with betas, by the same headers without betas. Clients of one kind request the same features, so only the
 * last object is kept for each.
 */
const WITH_BETA = new WeakMap<Headers, Headers>()

function withBeta(headers: Headers, beta: string): Headers {
  let last = WITH_BETA.get(headers)
  if (last?.['anthropic-beta'] !== beta)
    WITH_BETA.set(headers, (last = Object.freeze({ ...headers, 'anthropic-beta': beta })))
  return last
}

/**
 * The stop strings that the API accepts. It refuses those that are only whitespace; the gateway matches them itself.
 */
export function nativeStops(stops: readonly string[]): string[] {
  return stops.filter(stop => !isBlank(stop))
}

function isBlank(text: string): boolean {
  return text.trim() === ''
}

function samplingMembers(
  conversation: Conversation,
  taken: 'free' | 'one' | 'refused',
  plan: ThinkingPlan,
): JsonObject {
  if (taken === 'refused') return {}
  const { temperature, topP, topK } = conversation.sampling
  if (plan.on) return topP !== undefined && topP >= 0.95 ? { top_p: topP } : {}
  const members: JsonObject = { top_k: topK !== undefined && topK > 0 ? topK : undefined }
  if (temperature !== undefined) members['temperature'] = Math.min(temperature, 1)
  if (topP !== undefined && (temperature === undefined || taken === 'free')) members['top_p'] = topP
  return members
}

interface Message {
  role: 'user' | 'assistant' | 'system'
  content: JsonObject[]
}

class MessageBuilder {
  readonly #names: ToolNames
  readonly #backend: Backend
  readonly #context: OutboundContext
  readonly #cache: CacheMarkers
  readonly #midSystem: boolean
  readonly #steps: Step[]
  /**
   * The index of the last user turn. After it comes the running tool loop, the only part whose thinking is sent back
   * (wire.md F.7).
   */
  readonly #loop: number
  readonly #paused: SearchPart | undefined
  readonly #messages: Message[] = []
  /**
   * Thinking blocks that were already added, by signature or data: a reasoning part and the call that it led to both
   * contain them.
   */
  readonly #sent = new Set<string>()
  #thinks = false

  constructor(
    conversation: Conversation,
    names: ToolNames,
    backend: Backend,
    context: OutboundContext,
    cache: CacheMarkers,
    midSystem: boolean,
  ) {
    this.#names = names
    this.#backend = backend
    this.#context = context
    this.#cache = cache
    this.#midSystem = midSystem
    this.#steps = adjacentResults(conversation.turns)
    this.#loop = conversation.turns.findLastIndex(turn => turn.role === 'user')
    this.#paused = pausedSearch(conversation, backend.model)?.part
  }

  /** True when the running tool loop begins with thinking that is still stored, or when there is no such loop. */
  get replayable(): boolean {
    const first = this.#steps.find(step => step.type === 'round' && step.index > this.#loop)
    if (first?.type !== 'round') return true
    return first.parts.some(
      part => (part.type === 'reasoning' || part.type === 'call') && this.#blocks(part).length > 0,
    )
  }

  build(thinks: boolean): Message[] {
    this.#thinks = thinks
    for (const step of this.#steps) {
      if (step.type === 'round') {
        this.#push('assistant', this.#assistant(step.parts, step.index))
        this.#push(
          'user',
          step.results.map(result => this.#result(result)),
        )
      } else if (step.turn.role === 'assistant') {
        this.#push('assistant', withoutThinkingAtEnd(this.#assistant(step.turn.parts, step.index)))
      } else if (step.turn.role === 'system') {
        this.#system(step.turn.parts)
      } else {
        this.#push('user', this.#user(step.turn.parts))
      }
    }
    if (this.#messages[0]?.role !== 'user') {
      this.#messages.unshift({ role: 'user', content: [{ type: 'text', text: '.' }] })
    }
    return this.#messages
  }

  #push(role: Message['role'], content: JsonObject[]): void {
    if (content.length === 0) return
    const last = this.#messages.at(-1)
    if (last && last.role === role) appendAll(last.content, content)
    else this.#messages.push({ role, content })
  }

  #system(parts: readonly Part[]): void {
    for (const part of parts) {
      if (part.type !== 'text' || part.meteredOnly || isBlank(part.text)) continue
      const text = this.#midSystem ? part.text : systemTag(part.text)
      const block = { type: 'text', text, cache_control: this.#cache.marker(part.cache) }
      this.#push(this.#midSystem ? 'system' : 'user', [block])
    }
  }

  #user(parts: readonly Part[]): JsonObject[] {
    const content = []
    for (const part of parts) {
      if (part.type === 'text') {
        if (part.meteredOnly || isBlank(part.text)) continue
        content.push({ type: 'text', text: part.text, cache_control: this.#cache.marker(part.cache) })
      } else if (part.type === 'image') content.push(imageBody(part, this.#cache.marker(part.cache)))
      else if (part.type === 'document') content.push(documentBody(part, this.#cache.marker(part.cache)))
    }
    return content
  }

  #assistant(parts: readonly Part[], index: number): JsonObject[] {
    const content: JsonObject[] = []
    const thinks = this.#thinks && index > this.#loop
    const callFrom = nextCall(parts)
    for (const [position, part] of parts.entries()) {
      switch (part.type) {
        case 'text':
        case 'refusal': {
          if (isBlank(part.text)) break
          const call = thinks ? callFrom(position) : undefined
          if (call) this.#think(content, this.#blocks(call).slice(0, this.#private(call)?.lead ?? 0))
          const cache_control = part.type === 'text' ? this.#cache.marker(part.cache) : undefined
          content.push({ type: 'text', text: part.text, cache_control })
          break
        }
        case 'reasoning':
          if (thinks) this.#think(content, this.#blocks(part))
          break
        case 'search': {
          const blocks = this.#private(part)?.blocks ?? []
          // The API refuses a search without a result, except at the end.
          if (blocks.length > 1 || (blocks.length === 1 && part === this.#paused)) appendAll(content, blocks)
          else content.push({ type: 'text', text: searchText(part) })
          break
        }
        case 'call':
          if (thinks) this.#think(content, this.#blocks(part))
          content.push({
            type: 'tool_use',
            id: this.#context.upstreamCallId(part.id),
            name: this.#names.toUpstream(part.name, part.namespace),
            input: argumentsObject(part, this.#context),
          })
          break
      }
    }
    return content
  }

  #think(content: JsonObject[], blocks: readonly JsonObject[]): void {
    for (const block of blocks) {
      const key = string(block['signature']) || string(block['data'])
      if (this.#sent.has(key)) continue
      this.#sent.add(key)
      content.push(block)
    }
  }

  /** Thinking that the API can verify, never with an empty signature (wire.md F.7). */
  #blocks(part: ReasoningPart | CallPart): JsonObject[] {
    const blocks = this.#private(part)?.blocks ?? []
    return blocks.filter(block => string(block['signature']) !== '' || string(block['data']) !== '')
  }

  #private(part: ReasoningPart | CallPart | SearchPart): MessagesContinuation | undefined {
    return keptOf(part, this.#backend.model)
  }

  #result(part: ResultPart): JsonObject {
    const cache = part.content.findLast(inner => inner.cache)?.cache
    const content =
      part.content.length <= 1 && part.content.every(inner => inner.type === 'text')
        ? resultText(part)
        : part.content
            .filter(inner => inner.type !== 'text' || !isBlank(inner.text))
            .map(inner => {
              if (inner.type === 'text') return { type: 'text', text: inner.text }
              return inner.type === 'image' ? imageBody(inner, undefined) : documentBody(inner, undefined)
            })
    return {
      type: 'tool_result',
      tool_use_id: this.#context.upstreamCallId(part.callId),
      content: content.length > 0 ? content : undefined,
      is_error: part.isError ? true : undefined,
      cache_control: this.#cache.marker(cache),
    }
  }
}

/**
 * Makes the end of the conversation fit: this API continues an assistant message at the end. Only Messages has that
 * meaning, and the text must then have no whitespace at its end. For other surfaces a user message is added.
 */
function endTurn(messages: Message[], conversation: Conversation): void {
  const last = messages.at(-1)!
  const block = last.content.at(-1)
  if (last.role !== 'assistant' || block?.['type'] !== 'text') return
  if (isPrefill(conversation)) block['text'] = (block['text'] as string).trimEnd()
  else messages.push({ role: 'user', content: [{ type: 'text', text: '.' }] })
}

/**
 * Removes thinking at the end, which remains when a limit cut off a reply there: the API refuses an assistant message
 * that ends in thinking.
 */
function withoutThinkingAtEnd(content: JsonObject[]): JsonObject[] {
  const last = content.findLastIndex(block => block['type'] !== 'thinking' && block['type'] !== 'redacted_thinking')
  return content.slice(0, last + 1)
}

function imageBody({ source }: ImagePart, cache_control: JsonObject | undefined): JsonObject {
  return {
    type: 'image',
    source:
      source.kind === 'url'
        ? { type: 'url', url: source.url }
        : { type: 'base64', media_type: source.mediaType, data: source.data },
    cache_control,
  }
}

function documentBody(part: DocumentPart, cache_control: JsonObject | undefined): JsonObject {
  const { source } = part
  let body: JsonObject
  if (source.kind === 'text') body = { type: 'text', media_type: 'text/plain', data: source.text }
  else if (source.kind === 'url') body = { type: 'url', url: source.url }
  else body = { type: 'base64', media_type: source.mediaType, data: source.data }
  return { type: 'document', source: body, title: part.title, context: part.context, cache_control }
}
