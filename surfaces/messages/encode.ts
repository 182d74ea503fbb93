/**
 * Writes Messages replies from canonical events: SSE frames (wire.md D.3), or one object from the same calls
 * (wire.md C.3).
 *
 * At most one block is open at a time, block indexes have no gaps and begin at 0, and there is one `message_delta`.
 * Frames are concatenated; only the variable text is serialised.
 *
 * The object differs from the stream in two points, because nothing of it has been sent yet:
 * - a call or a search that never ended (cut off by a limit) is left out; in a stream its beginning has been sent;
 * - a call whose arguments are not a JSON object has the input `{"_raw": text}`; providers/whole-arguments.ts keeps
 *   such text out of streams.
 */
import type { Edited, SearchResult } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import {
  type Citation,
  type FinishEvent,
  type FinishReason,
  lessCompaction,
  type StreamEvent,
  type Usage,
} from '../../core/canon/events.ts'
import type { EncodeContext, Encoder } from '../../core/ports/surface.ts'
import { parseExactly } from '../../core/tools/json.ts'
import { TextJoiner } from '../text.ts'
import { errorBody } from './errors.ts'
import { showsThinking } from './parse.ts'
import { ID, type ReplyBlock, type StopReason } from './reply.ts'
import type { MessagesBody } from './schema.ts'

type Json = Record<string, unknown>

const STOP_REASONS: Readonly<Record<FinishReason, StopReason>> = {
  stop: 'end_turn',
  stop_sequence: 'stop_sequence',
  tool_calls: 'tool_use',
  length: 'max_tokens',
  context_full: 'model_context_window_exceeded',
  content_filter: 'refusal',
  refusal: 'refusal',
  pause: 'pause_turn',
  compaction: 'compaction',
  idle_timeout: 'max_tokens',
  ceiling_timeout: 'max_tokens',
}

/** The error codes that the published type allows in a search result. */
const SEARCH_ERRORS: ReadonlySet<string> = new Set([
  'invalid_tool_input',
  'unavailable',
  'max_uses_exceeded',
  'too_many_requests',
  'query_too_long',
  'request_too_large',
])

const DIRECT = { type: 'direct' }
const PING = 'event: ping\ndata: {"type":"ping"}\n\n'
const MESSAGE_STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n'

interface OpenBlock {
  kind: 'text' | 'thinking' | 'tool_use' | 'search'
  /** The block, in the form that the whole object contains. */
  block: ReplyBlock
  /** The beginning of a delta frame, up to its text. */
  head: string
  /** The text, thinking or arguments received so far. */
  text: string
  joiner: TextJoiner
  /**
   * For a call: its canonical index. For reasoning: the number of its current part. For text: 1 when it is a refusal,
   * else 0.
   */
  number: number
  /** The call is of a custom tool, which another surface declared: its raw text is written into a JSON member. */
  raw: boolean
}

type State = 'new' | 'open' | 'ended'

class MessagesEncoder implements Encoder {
  readonly #context: EncodeContext
  readonly showsReasoning: boolean
  readonly #content: ReplyBlock[] = []
  #state: State = 'new'
  #block: OpenBlock | undefined
  /** Index of the next block in the stream. */
  #index = 0
  #searched = false
  #refused = false
  #ending: { delta: Json; usage: Json } | undefined

  constructor(context: EncodeContext) {
    this.#context = context
    this.showsReasoning = showsThinking(context.body as MessagesBody)
  }

  start(): string {
    if (this.#state !== 'new') throw new Error(`messages encoder: start while ${this.#state}`)
    this.#state = 'open'
    return `event: message_start\ndata: {"type":"message_start","message":${JSON.stringify(this.#message([]))}}\n\n`
  }

  event(event: StreamEvent): string {
    this.#require()
    switch (event.type) {
      case 'text':
        return this.#text(event.text, 0)
      case 'tool_args':
        return this.#arguments(event.index, event.text)
      case 'reasoning':
        return this.showsReasoning ? this.#reasoning(event.text, event.part) : this.#close()
      case 'reasoning_end':
        return this.#close()
      case 'refusal':
        this.#refused = true
        return this.#text(event.text, 1)
      case 'citation':
        return this.#citation(event.citation)
      case 'break':
        return this.#close()
      case 'tool_call':
        return this.#call(event.index, event.id, event.name, event.kind === 'custom')
      case 'tool_end':
        this.#expectCall(event.index, event.type)
        return this.#close()
      case 'search_start':
        return this.#search(event.id)
      case 'search_end':
        return this.#searchEnd(event)
      case 'compaction':
        return this.#compaction(event.summary, event.sealed)
      case 'activity':
        return ''
      default:
        throw new Error(`messages encoder: ${event.type} is no event of a reply's content`)
    }
  }

  finish(finish: FinishEvent, usage: Usage): string {
    this.#require()
    const frames = this.#cut()
    this.#state = 'ended'
    const reason = this.#refused && finish.reason === 'stop' ? 'refusal' : STOP_REASONS[finish.reason]
    // What a compaction took is in the list of iterations alone, as the published type has it.
    const own = lessCompaction(usage)
    const paused = finish.reason === 'compaction'
    const details = { type: 'refusal', category: null, explanation: finish.explanation ?? null }
    const ending = {
      delta: {
        stop_reason: reason,
        stop_sequence: reason === 'stop_sequence' ? (finish.stopSequence ?? null) : null,
        stop_details: reason === 'refusal' ? details : null,
        container: null,
      },
      usage: {
        ...tokensOf(own),
        output_tokens_details: { thinking_tokens: own.reasoning },
        server_tool_use: own.searches > 0 ? { web_search_requests: own.searches, web_fetch_requests: 0 } : null,
        ...(usage.compaction && { iterations: iterationsOf(usage.compaction, paused ? null : own) }),
      },
    }
    this.#ending = ending
    const frame = { type: 'message_delta', ...ending, ...this.#contextManagement() }
    return `${frames}event: message_delta\ndata: ${JSON.stringify(frame)}\n\n${MESSAGE_STOP}`
  }

  error(error: GatewayError): string {
    this.#require()
    this.#state = 'ended'
    this.#block = undefined
    return `event: error\ndata: ${errorBody(error, this.#context.requestId, true)}\n\n`
  }

  keepAlive(): string {
    // A ping before message_start would be the first event of the stream; an SSE comment is not an event.
    return this.#state === 'open' ? PING : this.#state === 'new' ? ': keep-alive\n\n' : ''
  }

  body(): string {
    const message = this.#message(this.#content)
    const ending = this.#ending
    return JSON.stringify(
      ending ? { ...message, ...ending.delta, usage: { ...(message['usage'] as Json), ...ending.usage } } : message,
    )
  }

  // ---- blocks -------------------------------------------------------------------------------------------------------

  /** @param number 0 for text, 1 for a refusal: both are text blocks here, but separate ones */
  #text(text: string, number: number): string {
    const open = this.#block
    if (open?.kind === 'text' && open.number === number) return this.#delta(open, text)
    if (text === '') return ''
    const opened = this.#openText()
    this.#block!.number = number
    return opened + this.#delta(this.#block!, text)
  }

  #openText(): string {
    const block: ReplyBlock = { type: 'text', text: '', citations: this.#searched ? [] : null }
    return this.#open('text', block, '"text_delta","text":')
  }

  #citation(citation: Citation): string {
    const opened = this.#block?.kind === 'text' ? '' : this.#openText()
    const open = this.#block!
    const value = {
      type: 'web_search_result_location',
      url: citation.url,
      title: citation.title,
      cited_text: citation.citedText ?? '',
      encrypted_index: citation.handle ?? '',
    }
    ;((open.block['citations'] ??= []) as Json[]).push(value)
    const delta = `{"type":"citations_delta","citation":${JSON.stringify(value)}}`
    return `${opened}event: content_block_delta\ndata: {"type":"content_block_delta","index":${this.#index - 1},"delta":${delta}}\n\n`
  }

  #reasoning(text: string, part: number): string {
    if (text === '') return ''
    let open = this.#block
    let opened = ''
    if (open?.kind !== 'thinking') {
      opened = this.#open('thinking', { type: 'thinking', thinking: '', signature: '' }, '"thinking_delta","thinking":')
      open = this.#block!
      open.number = part
    }
    if (open.number === part) return opened + this.#delta(open, text)
    // One block contains the whole reasoning item, so that a client shows it as one. Its parts become paragraphs.
    open.number = part
    return this.#delta(open, `\n\n${text}`)
  }

  #call(index: number, id: string, name: string, custom: boolean): string {
    const block: ReplyBlock = { type: 'tool_use', id, name, input: {}, caller: DIRECT }
    const frames = this.#open('tool_use', block, '"input_json_delta","partial_json":')
    const open = this.#block!
    open.number = index
    if (!custom) return frames
    open.raw = true
    return frames + this.#delta(open, '{"input":"')
  }

  #arguments(index: number, text: string): string {
    const open = this.#expectCall(index, 'tool_args')
    return this.#delta(open, open.raw ? inString(text) : text)
  }

  #expectCall(index: number, event: string): OpenBlock {
    const open = this.#block
    if (open?.kind !== 'tool_use' || open.number !== index)
      throw new Error(`messages encoder: ${event} of call ${index}, which is not open`)
    return open
  }

  #search(id: string): string {
    this.#searched = true
    const block: ReplyBlock = { type: 'server_tool_use', id, name: 'web_search', input: {}, caller: DIRECT }
    return this.#open('search', block, '"input_json_delta","partial_json":')
  }

  #searchEnd({ id, query, results, errorCode, beforeText }: Extract<StreamEvent, { type: 'search_end' }>): string {
    const open = this.#block
    if (open?.kind !== 'search' || open.block['id'] !== id)
      throw new Error(`messages encoder: search_end of ${id}, which is not open`)
    const input = this.#delta(open, JSON.stringify({ query: query.toWellFormed() }))
    const content =
      errorCode === undefined
        ? results.map(resultBlock)
        : {
            type: 'web_search_tool_result_error',
            error_code: SEARCH_ERRORS.has(errorCode) ? errorCode : 'unavailable',
          }
    const block: ReplyBlock = { type: 'web_search_tool_result', tool_use_id: id, content, caller: DIRECT }
    const stopped = this.#close()
    const index = this.#index++
    this.#content.push(block)
    if (beforeText && !this.#context.conversation.stream) {
      const [use, result] = this.#content.splice(-2)
      const first = this.#content.findIndex(({ type }) => type === 'text')
      this.#content.splice(first < 0 ? this.#content.length : first, 0, use!, result!)
    }
    return `${input}${stopped}${blockStart(index, block)}${blockStop(index)}`
  }

  #compaction(content: string, encrypted_content: string): string {
    const stopped = this.#close()
    const index = this.#index++
    this.#content.push({ type: 'compaction', content, encrypted_content })
    const start = blockStart(index, { type: 'compaction', content: null, encrypted_content: null })
    const delta = { type: 'compaction_delta', content, encrypted_content }
    const frame = JSON.stringify({ type: 'content_block_delta', index, delta })
    return `${stopped}${start}event: content_block_delta\ndata: ${frame}\n\n${blockStop(index)}`
  }

  #open(kind: OpenBlock['kind'], block: ReplyBlock, delta: string): string {
    const stopped = this.#close()
    const index = this.#index++
    const head = `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":{"type":${delta}`
    this.#block = { kind, block, head, text: '', joiner: new TextJoiner(), number: 0, raw: false }
    return stopped + blockStart(index, block)
  }

  #delta(open: OpenBlock, delta: string): string {
    return this.#write(open, open.joiner.push(delta))
  }

  #write(open: OpenBlock, text: string): string {
    if (text === '') return ''
    open.text += text
    return `${open.head}${JSON.stringify(text)}}}\n\n`
  }

  /** Closes the open block as complete. */
  #close(): string {
    const open = this.#block
    if (!open) return ''
    const frames = this.#write(open, open.raw ? '"}' : open.joiner.flush())
    this.#block = undefined
    const { block, text } = open
    if (open.kind === 'text') block['text'] = text
    else if (open.kind === 'thinking') block['thinking'] = text
    else block['input'] = inputOf(text)
    this.#content.push(block)
    return frames + blockStop(this.#index - 1)
  }

  /** Closes the block that the end of the reply left open. */
  #cut(): string {
    const open = this.#block
    if (open?.kind === 'tool_use' || open?.kind === 'search') {
      this.#block = undefined
      return blockStop(this.#index - 1)
    }
    return this.#close()
  }

  #require(): void {
    if (this.#state !== 'open') throw new Error(`messages encoder: event while ${this.#state}`)
  }

  // ---- the message --------------------------------------------------------------------------------------------------

  #message(content: ReplyBlock[]): Json {
    const context = this.#context
    return {
      id: `${ID}${context.objectId}`,
      type: 'message',
      role: 'assistant',
      model: context.model,
      content,
      stop_reason: null,
      stop_sequence: null,
      stop_details: null,
      container: null,
      diagnostics: null,
      usage: {
        input_tokens: context.promptTokens,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens: 0,
        // message_delta cannot update it, so a value here would stay wrong for a client that reads the stream.
        cache_creation: null,
        output_tokens_details: null,
        server_tool_use: null,
        service_tier: 'standard',
        inference_geo: null,
        speed: null,
      },
      ...this.#contextManagement(),
    }
  }

  /** A client that requested edits learns which of them have cleared something. */
  #contextManagement(): Json | undefined {
    const { context_management: requested } = this.#context.body as MessagesBody
    const applied = this.#context.conversation.edited?.applied ?? []
    return requested == null ? undefined : { context_management: { applied_edits: applied.map(appliedEdit) } }
  }
}

export const encoder = (context: EncodeContext): Encoder => new MessagesEncoder(context)

function tokensOf(usage: Usage): Json {
  return {
    input_tokens: usage.input - usage.cached - usage.cacheWrite,
    cache_creation_input_tokens: usage.cacheWrite,
    cache_read_input_tokens: usage.cached,
    output_tokens: usage.output,
  }
}

/** The calls of a reply whose conversation was compacted. */
function iterationsOf(compaction: Usage, own: Usage | null): Json[] {
  const call = (type: string, usage: Usage) => ({ type, ...tokensOf(usage), cache_creation: null })
  return [call('compaction', compaction), ...(own ? [call('message', own)] : [])]
}

function appliedEdit({ type, cleared, tokens }: Edited['applied'][number]): Json {
  return type === 'clear_thinking'
    ? { type: 'clear_thinking_20251015', cleared_thinking_turns: cleared, cleared_input_tokens: tokens }
    : { type: 'clear_tool_uses_20250919', cleared_tool_uses: cleared, cleared_input_tokens: tokens }
}

function blockStart(index: number, block: ReplyBlock): string {
  return `event: content_block_start\ndata: {"type":"content_block_start","index":${index},"content_block":${JSON.stringify(block)}}\n\n`
}

function blockStop(index: number): string {
  return `event: content_block_stop\ndata: {"type":"content_block_stop","index":${index}}\n\n`
}

function resultBlock(result: SearchResult): Json {
  return {
    type: 'web_search_result',
    url: result.url,
    title: result.title,
    encrypted_content: result.handle ?? '',
    page_age: result.pageAge ?? null,
  }
}

/** Escapes text for the inside of a JSON string, without the quotes. */
const inString = (text: string): string => JSON.stringify(text).slice(1, -1)

/** The input of a complete call. An empty text means no arguments. */
function inputOf(text: string): unknown {
  if (text.trim() === '') return {}
  try {
    const value = parseExactly(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  } catch {
    // Not an object: the client still gets what the model wrote, as `_raw`.
  }
  return { _raw: text }
}
