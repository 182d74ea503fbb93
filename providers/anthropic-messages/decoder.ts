/**
 * Decodes replies to `POST /messages` into events. A buffered message is read as the stream that would have made it,
 * so that both give the same events.
 */
import { type Continuation, formOf } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, FinishReason, ProviderUsage, StreamEvent } from '../../core/canon/events.ts'
import type { DecodeContext, Decoder } from '../../core/ports/dialect.ts'
import { keepNumbers } from '../../core/tools/json.ts'
import { CustomInputDecoder } from '../custom-input.ts'
import { cutShort, faultOf, unreadable } from '../faults.ts'
import { FrameParser } from '../frame-parser.ts'
import { count, isObject, type JsonObject, list, object, parseObject, string } from '../loose-json.ts'
import { type SearchEnd, SearchOrder } from '../search-order.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import { toldIn } from '../told.ts'
import { knownUsage, tierOf } from '../usage.ts'
import { kindOfAnthropicError } from './faults.ts'
import { type MessagesContinuation, NAME, pausedSearch, type RequestState } from './request.ts'

type Push = (event: StreamEvent) => void

interface Block {
  type: string
  /** The block as content_block_start sent it. */
  start: JsonObject
  joiner: SurrogateJoiner
  /** The thinking text or the input JSON, exactly as received. */
  raw: string
  signature: string
  /** For tool_use: the call's index in the reply. */
  call: number
  custom?: CustomInputDecoder
  /** Citations that arrived before the block's text. */
  citations: unknown[]
}

/** True for deltas of text. Their objects may be reused; the object of a citation is kept. */
function isDelta(fields: JsonObject): boolean {
  return isText(fields) || object(fields['delta'])['type'] === 'input_json_delta'
}

/** The input of a call is not: that of a custom tool is unwrapped. */
function isText(fields: JsonObject): boolean {
  const type = object(fields['delta'])['type']
  return type === 'text_delta' || type === 'thinking_delta'
}

/** Where a message and the start of a block have the arguments of a call. */
const INPUTS = ['content', '*', 'input']
const START_INPUT = ['content_block', 'input']

const REASONS: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ['end_turn', 'stop'],
  ['max_tokens', 'length'],
  ['stop_sequence', 'stop_sequence'],
  ['tool_use', 'tool_calls'],
  ['pause_turn', 'pause'],
  ['refusal', 'refusal'],
  ['model_context_window_exceeded', 'context_full'],
])

/** Decodes one reply of the Messages API. */
export class MessagesDecoder implements Decoder {
  readonly #context: DecodeContext
  readonly #state: RequestState
  readonly #frames = new FrameParser(isDelta, isText)
  readonly #searches: SearchOrder
  readonly #blocks = new Map<number, Block>()
  /** The server_tool_use blocks, by id. */
  readonly #serverCalls = new Map<string, JsonObject>()
  /** Thinking since the last call. It is stored with the next call and sent back with it. */
  #thinking: JsonObject[] = []
  /** How many blocks of `#thinking` came before the text that followed. */
  #lead = 0
  #calls = 0
  /**
   * A call whose block is closed, but which may be incomplete: a token limit also closes a block in the middle. Only
   * the next event says.
   */
  #closed: Block | null = null
  /** The index of the open text block; -1 when the last item was not text. */
  #textBlock = -1
  #usage: JsonObject = {}
  #finish: FinishEvent | null = null
  /** True after message_stop. */
  #stopped = false
  #over = false

  constructor(context: DecodeContext) {
    this.#context = context
    this.#state = context.state as RequestState
    this.#searches = new SearchOrder(() => context.mintSearchId())
    const paused = pausedSearch(context.conversation, context.backend.model)
    if (paused) this.#serverCalls.set(string(paused.call['id']), paused.call)
  }

  get done(): boolean {
    return this.#stopped || this.#over
  }

  frame(event: string, data: string, push: Push): void {
    if (this.done || data === '') return
    const fields = this.#frames.parse(data)
    if (!fields) return this.#fail(unreadable('event data is not a JSON object'), push)
    keepNumbers(fields, data, START_INPUT)
    this.#read(event, fields, push)
  }

  readonly #read = (event: string, fields: JsonObject, push: Push): void =>
    this.#event(string(fields['type']) || event, fields, push)

  deltas(text: string, at: number, push: Push): number {
    return this.#frames.run(text, at, push, this.#read)
  }

  body(text: string, push: Push): void {
    if (this.#over) return
    const message = parseObject(text)
    if (!message) return this.#fail(unreadable('body is not a JSON object'), push)
    if (message['type'] === 'error') return this.#fail(failureOf(message['error']), push)
    if (!Array.isArray(message['content']) || typeof message['stop_reason'] !== 'string') {
      return this.#fail(unreadable('body is not a message'), push)
    }
    keepNumbers(message, text, INPUTS)
    for (const [index, block] of message['content'].entries()) this.#wholeBlock(index, object(block), push)
    // In a buffered message it is not visible whether a limit cut off the last call. Without its raw input, such a
    // call gets no end.
    if (this.#closed) this.#closed.raw = ''
    this.#messageDelta({ delta: message, usage: message['usage'] }, push)
    this.#messageStop(push)
    this.end(push)
  }

  end(push: Push): void {
    if (this.#over) return
    if (!this.#stopped || !this.#finish) return this.#fail(cutShort(), push)
    this.#over = true
    push(this.#finish)
  }

  #fail(error: ReturnType<typeof faultOf>, push: Push): void {
    this.#over = true
    push({ type: 'error', error })
  }

  #event(type: string, fields: JsonObject, push: Push): void {
    switch (type) {
      case 'content_block_delta':
        return this.#delta(count(fields['index']) ?? 0, object(fields['delta']), push)
      case 'content_block_start':
        return this.#start(count(fields['index']) ?? 0, object(fields['content_block']), push)
      case 'content_block_stop':
        return this.#stop(count(fields['index']) ?? 0, push)
      case 'message_start':
        return this.#learnUsage(object(fields['message'])['usage'])
      case 'message_delta':
        return this.#messageDelta(fields, push)
      case 'message_stop':
        return this.#messageStop(push)
      case 'error':
        return this.#fail(failureOf(fields['error']), push)
      case 'ping':
        return
      default:
        push({ type: 'activity' })
    }
  }

  // ---- blocks -------------------------------------------------------------------------------------------------------

  #start(index: number, start: JsonObject, push: Push): void {
    this.#endCall(push)
    const type = string(start['type'])
    const block: Block = {
      type,
      start,
      joiner: new SurrogateJoiner(),
      raw: '',
      signature: string(start['signature']),
      call: -1,
      citations: [],
    }
    this.#blocks.set(index, block)
    switch (type) {
      case 'text':
        this.#text(index, block, string(start['text']), push)
        for (const citation of list(start['citations'])) this.#citation(index, block, citation, push)
        return
      case 'thinking':
        this.#other(push)
        if (start['thinking']) this.#think(block, string(start['thinking']), push)
        else push({ type: 'activity' })
        return
      case 'redacted_thinking':
        this.#other(push)
        return push({ type: 'activity' })
      case 'tool_use':
        return this.#startCall(block, push)
      case 'server_tool_use':
        this.#textBlock = -1
        if (start['name'] === 'web_search') this.#searches.start(string(start['id']), push)
        else push({ type: 'activity' })
        return
      case 'web_search_tool_result':
        this.#textBlock = -1
        return this.#searchResult(start, push)
      default:
        push({ type: 'activity' })
    }
  }

  #delta(index: number, delta: JsonObject, push: Push): void {
    const block = this.#blocks.get(index)
    if (!block) return
    switch (delta['type']) {
      case 'text_delta':
        if (block.type === 'text') this.#text(index, block, string(delta['text']), push)
        return
      case 'citations_delta':
        if (block.type === 'text') this.#citation(index, block, delta['citation'], push)
        return
      case 'thinking_delta':
        if (block.type === 'thinking') this.#think(block, string(delta['thinking']), push)
        return
      case 'signature_delta':
        block.signature = string(delta['signature'])
        return
      case 'input_json_delta':
        if (block.type === 'tool_use') this.#args(block, string(delta['partial_json']), push)
        else {
          block.raw += string(delta['partial_json'])
          push({ type: 'activity' })
        }
        return
      default:
        push({ type: 'activity' })
    }
  }

  #stop(index: number, push: Push): void {
    const block = this.#blocks.get(index)
    if (!block) return
    this.#blocks.delete(index)
    switch (block.type) {
      case 'thinking':
        return this.#endThinking({ type: 'thinking', thinking: block.raw, signature: block.signature }, push)
      case 'redacted_thinking':
        return this.#endThinking({ type: 'redacted_thinking', data: string(block.start['data']) }, push)
      case 'tool_use':
        // Servers that do not stream the input send all of it in content_block_start.
        if (block.raw === '') this.#wholeInput(block, push)
        this.#closed = block
        return
      case 'server_tool_use':
        return this.#serverCall(block)
    }
  }

  /** Reads a block of a buffered message as the events that would have made it. */
  #wholeBlock(index: number, block: JsonObject, push: Push): void {
    const { text, citations, thinking, signature, input, ...start } = block
    switch (block['type']) {
      case 'text':
        this.#start(index, start, push)
        this.#delta(index, { type: 'text_delta', text }, push)
        for (const citation of list(citations)) this.#delta(index, { type: 'citations_delta', citation }, push)
        break
      case 'thinking':
        this.#start(index, start, push)
        this.#delta(index, { type: 'thinking_delta', thinking }, push)
        this.#delta(index, { type: 'signature_delta', signature }, push)
        break
      default:
        this.#start(index, block, push)
    }
    this.#stop(index, push)
  }

  /** An item other than text begins. */
  #other(push: Push): void {
    this.#searches.settle(push)
    this.#textBlock = -1
  }

  // ---- text ---------------------------------------------------------------------------------------------------------

  #text(index: number, block: Block, delta: string, push: Push): void {
    const text = block.joiner.push(delta)
    if (text === '') return
    if (index !== this.#textBlock) {
      this.#searches.settle(push)
      if (this.#textBlock !== -1) push({ type: 'break' })
      this.#textBlock = index
      this.#lead = this.#thinking.length
    }
    push({ type: 'text', text })
    if (block.citations.length > 0) {
      for (const citation of block.citations.splice(0)) this.#citation(index, block, citation, push)
    }
  }

  #citation(index: number, block: Block, citation: unknown, push: Push): void {
    // A citation belongs to the open text block, so it waits for the first text of its block.
    if (index !== this.#textBlock) {
      block.citations.push(citation)
      return
    }
    const fields = object(citation)
    const url = string(fields['url'])
    if (fields['type'] !== 'web_search_result_location' || url === '') return
    const citedText = string(fields['cited_text'])
    push({
      type: 'citation',
      citation: { url, title: string(fields['title']), ...(citedText === '' ? undefined : { citedText }) },
    })
  }

  // ---- thinking -----------------------------------------------------------------------------------------------------

  #think(block: Block, delta: string, push: Push): void {
    block.raw += delta
    const text = block.joiner.push(delta)
    if (text !== '') push({ type: 'reasoning', text, part: 0 })
  }

  #endThinking(block: JsonObject, push: Push): void {
    this.#textBlock = -1
    // Thinking without a signature cannot be sent back (MSG-6).
    const usable = block['signature'] !== '' && block['data'] !== ''
    if (!usable) return push({ type: 'reasoning_end' })
    this.#thinking.push(block)
    push({ type: 'reasoning_end', continuation: this.#continuation({ blocks: [block] }) })
  }

  #continuation(data: MessagesContinuation): Continuation {
    return { dialect: NAME, model: this.#context.backend.model, data }
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  #startCall(block: Block, push: Push): void {
    this.#other(push)
    block.call = this.#calls++
    const { name, namespace, kind } = this.#state.names.fromUpstream(string(block.start['name']))
    if (kind === 'custom') block.custom = new CustomInputDecoder()
    const blocks = this.#thinking
    const lead = Math.min(this.#lead, blocks.length)
    this.#thinking = []
    this.#lead = 0
    push({
      type: 'tool_call',
      index: block.call,
      id: this.#context.mintCallId(),
      kind,
      name,
      ...(namespace === undefined ? undefined : { namespace }),
      ...(blocks.length === 0 ? undefined : { continuation: this.#continuation({ blocks, lead }) }),
    })
  }

  #args(block: Block, delta: string, push: Push): void {
    if (delta === '') return
    block.raw += delta
    const joined = block.joiner.push(delta)
    const text = block.custom ? block.custom.push(joined) : joined
    if (text !== '') push({ type: 'tool_args', index: block.call, text })
  }

  #wholeInput(block: Block, push: Push): void {
    const input = block.start['input']
    if (isObject(input) && Object.keys(input).length > 0) this.#args(block, JSON.stringify(input), push)
  }

  /** Ends the closed call, if there is one. */
  #endCall(push: Push): void {
    const block = this.#closed
    if (!block) return
    this.#closed = null
    const rest = block.custom?.end() ?? ''
    if (rest !== '') push({ type: 'tool_args', index: block.call, text: rest })
    push({ type: 'tool_end', index: block.call })
  }

  // ---- hosted search ------------------------------------------------------------------------------------------------

  #serverCall(block: Block): void {
    if (block.start['name'] !== 'web_search') return
    const { type, id, name } = block.start
    const input = parseObject(block.raw) ?? object(block.start['input'])
    const call: JsonObject = { type, id, name, input }
    this.#serverCalls.set(string(id), call)
    this.#searches.progress(string(id), {
      query: string(input['query']),
      results: [],
      continuation: this.#continuation({ blocks: [call] }),
    })
  }

  #searchResult(block: JsonObject, push: Push): void {
    const id = string(block['tool_use_id'])
    const { type, tool_use_id, content } = block
    const call = this.#serverCalls.get(id)
    const query = string(object(call?.['input'])['query'])
    const found: SearchEnd = { query: this.#searches.known(id)?.query || query, results: [] }
    if (call) found.continuation = this.#continuation({ blocks: [call, { type, tool_use_id, content }] })
    if (Array.isArray(content)) {
      for (const result of content.map(object)) {
        const pageAge = result['page_age']
        found.results.push({
          title: string(result['title']),
          url: string(result['url']),
          ...(typeof pageAge === 'string' || pageAge === null ? { pageAge } : undefined),
        })
      }
    } else found.errorCode = string(object(content)['error_code']) || 'unavailable'
    this.#searches.end(id, found, push)
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /**
   * The figures of message_delta replace those of message_start: they are cumulative, so adding them would count
   * twice.
   */
  #learnUsage(usage: unknown): void {
    for (const [member, value] of Object.entries(object(usage))) {
      if (value !== null && value !== undefined) this.#usage[member] = value
    }
  }

  /** The usage in `message_start` covers the whole prompt. */
  reported(): ProviderUsage | undefined {
    const all = this.#usage
    const input = count(all['input_tokens'])
    const cached = count(all['cache_read_input_tokens'])
    const cacheWrite = count(all['cache_creation_input_tokens'])
    if (input === undefined) return undefined
    return knownUsage({
      prompt: input + (cached ?? 0) + (cacheWrite ?? 0),
      cached,
      cacheWrite,
      cacheWriteHour: count(object(all['cache_creation'])['ephemeral_1h_input_tokens']),
      tier: tierOf(all['service_tier']),
    })
  }

  #reportUsage(push: Push): void {
    const all = this.#usage
    const usage = knownUsage({
      ...this.reported(),
      output: count(all['output_tokens']),
      reasoning: count(object(all['output_tokens_details'])['thinking_tokens']),
      searches: count(object(all['server_tool_use'])['web_search_requests']),
    })
    if (Object.keys(usage).length > 0) push({ type: 'usage', usage })
  }

  #messageDelta(fields: JsonObject, push: Push): void {
    const delta = object(fields['delta'])
    this.#learnUsage(fields['usage'])
    const stopReason = string(delta['stop_reason'])
    if (stopReason === '') return
    this.#reportUsage(push)
    const reason = REASONS.get(stopReason) ?? 'stop'
    const cut = reason === 'length' || reason === 'context_full' || reason === 'refusal'
    // The input is complete only when it is JSON. An empty input is not enough, because a limit may leave that too.
    if (cut && this.#closed && parseObject(this.#closed.raw) === undefined) this.#closed = null
    this.#endCall(push)
    this.#searches.settle(push, reason === 'pause')
    this.#finish = { type: 'finish', reason }
    if (reason === 'stop_sequence') this.#finish.stopSequence = string(delta['stop_sequence'])
    const explanation = string(object(delta['stop_details'])['explanation'])
    if (reason !== 'refusal' || explanation === '') return
    this.#finish.explanation = explanation
    if (!formOf(this.#context.conversation).explainsRefusal) push({ type: 'refusal', text: explanation })
  }

  #messageStop(push: Push): void {
    this.#endCall(push)
    this.#searches.settle(push)
    this.#stopped = true
  }
}

/** What an error object inside a reply of status 200 means. */
function failureOf(error: unknown): GatewayError {
  return faultOf(kindOfAnthropicError(error), null, toldIn(error))
}
