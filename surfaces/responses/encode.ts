/**
 * Writes Responses replies (wire.md C.2, D.2, D.4): typed events for a stream, otherwise one Response object.
 *
 * At most one item is open at a time, and in it at most one part. An event that belongs to another item or part
 * closes the open ones first. Frames are concatenated, and only what the model wrote goes through JSON.stringify. A
 * buffered reply takes the same path and makes no frames.
 */

import type { GatewayError } from '../../core/canon/errors.ts'
import type { Citation, FinishEvent, FinishReason, StreamEvent, TokenLogprob, Usage } from '../../core/canon/events.ts'
import type { EncodeContext, Encoder, SentStream } from '../../core/ports/surface.ts'
import { appendAll } from '../../core/tools/append.ts'
import { parseExactly } from '../../core/tools/json.ts'
import { frameMembers, PLAIN_REFUSAL, type WireLogprob, wireLogprobs } from '../envelope.ts'
import { TextJoiner } from '../text.ts'
import {
  type CompactionItem,
  type CustomCallItem,
  type FunctionCallItem,
  type MessageItem,
  type OutputItem,
  type ReasoningItem,
  type RefusalContent,
  searchItemId,
  type TextContent,
  type ToolSearchItem,
  type WebSearchItem,
} from './items.ts'
import type { IncompleteReason, Status, Warning } from './reply.ts'
import { echoOf, IN_PROGRESS, type Progress, responseOf } from './response.ts'
import type { ResponsesBody } from './schema.ts'
import { ANNOTATION, EventLog, FAILURE, ITEM_DONE, KEEP_ALIVE, NEXT, ResponsesSentStream } from './sent-stream.ts'

/** wire.md F.6. A reason that is not listed here means that the reply is complete. */
const INCOMPLETE: Partial<Record<FinishReason, IncompleteReason>> = {
  length: 'max_output_tokens',
  context_full: 'max_output_tokens',
  content_filter: 'content_filter',
  idle_timeout: 'stream_idle_timeout',
  ceiling_timeout: 'stream_ceiling_timeout',
}

export class ResponsesEncoder implements Encoder {
  readonly #context: EncodeContext
  /** The form of frames: server-sent events, or one line of JSON each (WebSocket). */
  readonly #framing: 'sse' | 'lines'
  readonly #streaming: boolean
  readonly showsReasoning: boolean
  readonly #withEncrypted: boolean
  readonly #withSources: boolean
  readonly #withLogprobs: boolean
  /** JSON of the members that repeat the request, without braces. */
  #echo = ''
  #sequence = 0
  /** Only of a stream that is stored: it can be read again. */
  readonly #log: EventLog | undefined
  #sent: SentStream | undefined
  /** The members of the event `error`. */
  #failure = ''
  #started = false
  #ended = false
  #progress: Progress = IN_PROGRESS

  readonly #output: OutputItem[] = []
  /** JSON of the finished items, parallel to `#output`. Used only in streams. */
  readonly #done: string[] = []
  #open: OutputItem | undefined
  #part: TextContent | RefusalContent | undefined
  readonly #text = new TextJoiner()
  #logprobs: WireLogprob[] = []
  /** Citations without offsets apply to the whole part. They wait here for its end. */
  #citations: Citation[] = []
  /**
   * Index of the open summary part; -1 when none is open. `#summarySource` is the number of that part in the events.
   */
  #summary = -1
  #summarySource = -1
  #calls = 0
  #args = ''
  #visible = false

  constructor(context: EncodeContext, framing: 'sse' | 'lines' = 'sse') {
    this.#context = context
    this.#framing = framing
    const { conversation } = context
    const include = (context.body as ResponsesBody).include ?? []
    this.#streaming = conversation.stream
    this.showsReasoning = conversation.reasoning.summary !== undefined
    this.#withEncrypted = conversation.reasoning.includeEncrypted === true
    this.#withSources = include.includes('web_search_call.action.sources')
    this.#withLogprobs = conversation.sampling.logprobs
    if (this.#streaming && conversation.store !== false) this.#log = new EventLog()
  }

  start(): string {
    if (this.#started) throw outOfGrammar('start')
    this.#started = true
    if (!this.#streaming) return ''
    this.#echo = echoOf(this.#context)
    return this.#lifecycle('response.created', IN_PROGRESS) + this.#lifecycle('response.in_progress', IN_PROGRESS)
  }

  event(event: StreamEvent): string {
    if (this.#ended || (this.#streaming && !this.#started)) throw outOfGrammar(event.type)
    const inCall = this.#inCall()
    if (inCall && event.type !== 'tool_args' && event.type !== 'tool_end' && event.type !== 'activity')
      throw outOfGrammar(event.type)
    switch (event.type) {
      case 'text':
        return this.#onText(event.text, event.logprobs)
      case 'refusal':
        return this.#onRefusal(event.text)
      case 'citation':
        return this.#onCitation(event.citation)
      case 'break':
        return this.#closePart()
      case 'reasoning':
        return this.#onReasoning(event.text, event.part, event.id)
      case 'reasoning_end':
        return this.#onReasoningEnd(event.handle)
      case 'tool_call':
        return this.#onCall(event)
      case 'tool_args':
        if (!inCall || event.index !== this.#calls - 1) throw outOfGrammar(event.type)
        return this.#onArgs(this.#text.push(event.text))
      case 'tool_end':
        if (!inCall || event.index !== this.#calls - 1) throw outOfGrammar(event.type)
        return this.#onArgs(this.#text.flush()) + this.#endCall()
      case 'search_start':
        return this.#onSearchStart(event.id)
      case 'search_end':
        return this.#onSearchEnd(event)
      case 'compaction':
        return this.#onCompaction(event.id, event.sealed)
      default:
        return ''
    }
  }

  finish(finish: FinishEvent, usage: Usage): string {
    if (this.#ended || (this.#streaming && !this.#started)) throw outOfGrammar('finish')
    let out = ''
    if (finish.reason === 'refusal' && !this.#refused()) out += this.#onRefusal(finish.explanation || PLAIN_REFUSAL)
    // A call that is still open was cut off, whatever the provider reported.
    const reason = INCOMPLETE[finish.reason] ?? (this.#inCall() ? 'max_output_tokens' : undefined)
    out += reason === undefined ? this.#closeItem() : this.#cutItem()
    this.#ended = true
    this.#progress = {
      status: reason === undefined ? 'completed' : 'incomplete',
      completedAt: reason === undefined ? Math.floor(this.#context.now() / 1000) : null,
      error: null,
      incompleteReason: reason ?? null,
      usage,
      warning: this.#warning(finish, usage),
    }
    return out + this.#lifecycle(reason === undefined ? 'response.completed' : 'response.incomplete', this.#progress)
  }

  error(error: GatewayError, usage?: Usage): string {
    if (this.#ended) throw outOfGrammar('error')
    // A client that accumulates events needs response.created first: it has no response object before.
    let opening = this.#started ? '' : this.start()
    opening += this.#settlePart()
    this.#ended = true
    const { code, message, type, request_id, retry_after_seconds, ...rest } = frameMembers(
      error,
      this.#context.requestId,
    )
    if (this.#open && this.#open.type !== 'compaction') {
      this.#open.status = 'incomplete'
      if (this.#streaming && this.#done.length < this.#output.length) this.#done.push(JSON.stringify(this.#open))
    }
    this.#progress = {
      ...IN_PROGRESS,
      status: 'failed',
      // Some agents read this event alone.
      error: { code, message, type, param: error.param, request_id, ...rest },
      usage,
    }
    this.#failure = errorEvent(error, this.#context.requestId)
    return `${opening}${this.#frame('error', this.#failure, FAILURE)}${this.#lifecycle('response.failed', this.#progress)}`
  }

  keepAlive(): string {
    // A WebSocket has keep-alives (pings) of its own.
    if (this.#framing === 'lines') return ''
    // The official accumulator refuses any event before response.created (wire.md D).
    if (!this.#started) return ': keep-alive\n\n'
    this.#log?.event(KEEP_ALIVE)
    return `event: keepalive\ndata: {"type":"keepalive","sequence_number":${this.#sequence++}}\n\n`
  }

  body(): string {
    return responseOf(this.#context, this.#progress, this.outputItems(), echoOf(this.#context))
  }

  /** JSON of the items of a buffered reply, without brackets. */
  protected outputItems(): string {
    return JSON.stringify(this.#output).slice(1, -1)
  }
  protected get usage(): Usage | undefined {
    return this.#progress.usage
  }

  get sent(): SentStream | undefined {
    if (!this.#log || !this.#started) return undefined
    this.#sent ??= new ResponsesSentStream(
      this.#log,
      {
        output: this.#output,
        opening: () => responseOf(this.#context, IN_PROGRESS, '', this.#echo),
        failure: () => this.#failure,
        status: () => this.#progress.status,
        object: () => this.body(),
      },
      2 * this.#echo.length,
    )
    return this.#sent
  }

  // ---- messages -----------------------------------------------------------------------------------------------------

  #onText(delta: string, logprobs: readonly TokenLogprob[] | undefined): string {
    if (delta === '' && !logprobs?.length) return ''
    let out = ''
    let part = this.#part
    if (part?.type !== 'output_text') {
      out = this.#openPart((part = { type: 'output_text', text: '', annotations: [], logprobs: [] }))
    }
    if (this.#withLogprobs && logprobs) appendAll(this.#logprobs, wireLogprobs(logprobs))
    const text = this.#text.push(delta)
    return text === '' ? out : out + this.#sendText(part, text)
  }

  #sendText(part: TextContent, text: string): string {
    this.#visible = true
    part.text += text
    let logprobs = '[]'
    const count = this.#logprobs.length
    if (count > 0) {
      appendAll(part.logprobs, this.#logprobs)
      if (this.#streaming) logprobs = JSON.stringify(this.#logprobs)
      this.#logprobs = []
    }
    if (!this.#streaming) return ''
    this.#log?.delta(text.length, count, text.length + logprobs.length)
    return this.#unlogged(
      'response.output_text.delta',
      `${this.#inPart()},"delta":${JSON.stringify(text)},"logprobs":${logprobs}`,
    )
  }

  #onRefusal(delta: string): string {
    if (delta === '') return ''
    let out = ''
    let part = this.#part
    if (part?.type !== 'refusal') out = this.#openPart((part = { type: 'refusal', refusal: '' }))
    const text = this.#text.push(delta)
    return text === '' ? out : out + this.#sendRefusal(part, text)
  }

  #sendRefusal(part: RefusalContent, text: string): string {
    this.#visible = true
    part.refusal += text
    if (!this.#streaming) return ''
    return this.#delta('response.refusal.delta', this.#inPart(), text)
  }

  #onCitation(citation: Citation): string {
    const part = this.#part
    // Without an open text part there is no text that the citation could point to.
    if (part?.type !== 'output_text') return ''
    if (citation.start !== undefined && citation.end !== undefined)
      return this.#annotate(part, citation, citation.start, citation.end)
    this.#citations.push(citation)
    return ''
  }

  #annotate(part: TextContent, citation: Citation, start: number, end: number): string {
    const annotation = {
      type: 'url_citation' as const,
      start_index: start,
      end_index: end,
      url: citation.url,
      title: citation.title,
    }
    part.annotations.push(annotation)
    if (!this.#streaming) return ''
    const index = part.annotations.length - 1
    return this.#frame(
      'response.output_text.annotation.added',
      `${this.#inPart()},"annotation_index":${index},"annotation":${JSON.stringify(annotation)}`,
      ANNOTATION,
    )
  }

  #openPart(part: TextContent | RefusalContent): string {
    let out = this.#closePart()
    let message = this.#open
    if (message?.type !== 'message') {
      out += this.#closeItem()
      message = {
        id: this.#context.mintItemId(),
        type: 'message',
        status: 'in_progress',
        role: 'assistant',
        content: [],
      }
      out += this.#add(message)
    }
    message.content.push(part)
    this.#part = part
    if (!this.#streaming) return ''
    return out + this.#frame('response.content_part.added', `${this.#inPart()},"part":${JSON.stringify(part)}`)
  }

  /** Sends what waits for the end of the part: a lone surrogate half, and citations of the whole part. */
  #settlePart(): string {
    const part = this.#part
    if (!part) return ''
    const rest = this.#text.flush()
    if (part.type === 'refusal') return rest === '' ? '' : this.#sendRefusal(part, rest)
    let out = rest === '' && this.#logprobs.length === 0 ? '' : this.#sendText(part, rest)
    for (const citation of this.#citations) out += this.#annotate(part, citation, 0, part.text.length)
    this.#citations = []
    return out
  }

  #closePart(): string {
    const part = this.#part
    if (!part) return ''
    const rest = this.#settlePart()
    const at = this.#streaming ? this.#inPart() : ''
    this.#part = undefined
    if (!this.#streaming) return ''
    const text =
      part.type === 'output_text'
        ? this.#frame(
            'response.output_text.done',
            `${at},"text":${JSON.stringify(part.text)},"logprobs":${JSON.stringify(part.logprobs)}`,
          )
        : this.#frame('response.refusal.done', `${at},"refusal":${JSON.stringify(part.refusal)}`)
    return rest + text + this.#frame('response.content_part.done', `${at},"part":${JSON.stringify(part)}`)
  }

  #refused(): boolean {
    return this.#output.some(item => item.type === 'message' && item.content.some(part => part.type === 'refusal'))
  }

  // ---- reasoning ----------------------------------------------------------------------------------------------------

  #onReasoning(text: string, source: number, id: string | undefined): string {
    const [item, out] = this.#reasoningItem(id)
    // Summaries are sent only when the request has `reasoning.summary`.
    if (!this.showsReasoning || text === '') return out
    let opened = ''
    if (source !== this.#summarySource || this.#summary < 0) {
      opened = this.#closeSummary(item)
      this.#summary = item.summary.length
      this.#summarySource = source
      item.summary.push({ type: 'summary_text', text: '' })
      if (this.#streaming)
        opened += this.#frame(
          'response.reasoning_summary_part.added',
          `${this.#inSummary()},"part":{"type":"summary_text","text":""}`,
        )
    }
    const delta = this.#text.push(text)
    return delta === '' ? out + opened : out + opened + this.#sendSummary(item, delta)
  }

  #sendSummary(item: ReasoningItem, text: string): string {
    item.summary[this.#summary]!.text += text
    if (!this.#streaming) return ''
    return this.#delta('response.reasoning_summary_text.delta', this.#inSummary(), text)
  }

  #closeSummary(item: ReasoningItem): string {
    if (this.#summary < 0) return ''
    const rest = this.#text.flush()
    let out = rest === '' ? '' : this.#sendSummary(item, rest)
    if (this.#streaming) {
      const part = item.summary[this.#summary]!
      const at = this.#inSummary()
      out +=
        this.#frame('response.reasoning_summary_text.done', `${at},"text":${JSON.stringify(part.text)}`) +
        this.#frame('response.reasoning_summary_part.done', `${at},"part":${JSON.stringify(part)}`)
    }
    this.#summary = -1
    this.#summarySource = -1
    return out
  }

  #onReasoningEnd(handle: string | undefined): string {
    const [item, out] = this.#reasoningItem(handle)
    if (this.#withEncrypted && handle !== undefined) item.encrypted_content = handle
    return out + this.#closeItem()
  }

  /** @param id the handle under which private data is stored: clients replay the item with it */
  #reasoningItem(id: string | undefined): [ReasoningItem, string] {
    if (this.#open?.type === 'reasoning') return [this.#open, '']
    const out = this.#closeItem()
    const item: ReasoningItem = {
      id: id ?? this.#context.mintItemId(),
      type: 'reasoning',
      status: 'in_progress',
      summary: [],
    }
    return [item, out + this.#add(item)]
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  #inCall(): boolean {
    const type = this.#open?.type
    return type === 'function_call' || type === 'custom_tool_call' || type === 'tool_search_call'
  }

  #onCall(event: Extract<StreamEvent, { type: 'tool_call' }>): string {
    if (event.index !== this.#calls) throw outOfGrammar(event.type)
    this.#calls++
    this.#visible = true
    this.#args = ''
    const out = this.#closeItem()
    const { id: call_id, name, namespace } = event
    const id = this.#context.mintItemId()
    const status = 'in_progress'
    if (event.kind === 'custom') {
      const item: CustomCallItem = { id, type: 'custom_tool_call', status, call_id, name, input: '' }
      if (namespace !== undefined) item.namespace = namespace
      return out + this.#add(item)
    }
    if (namespace === undefined && this.#isToolSearch(name)) {
      const item: ToolSearchItem = { id, type: 'tool_search_call', status, execution: 'client', call_id, arguments: {} }
      // The item's arguments are an object, not text, so the item is added when they are complete.
      this.#open = item
      return out
    }
    const item: FunctionCallItem = { id, type: 'function_call', status, call_id, name, arguments: '' }
    if (namespace !== undefined) item.namespace = namespace
    return out + this.#add(item)
  }

  #isToolSearch(name: string): boolean {
    return this.#context.conversation.tools.some(
      t => t.type === 'function' && t.role === 'tool_search' && t.name === name,
    )
  }

  #onArgs(text: string): string {
    if (text === '') return ''
    const item = this.#open!
    if (item.type === 'function_call') item.arguments += text
    else if (item.type === 'custom_tool_call') item.input += text
    else this.#args += text
    if (!this.#streaming || item.type === 'tool_search_call') return ''
    const event =
      item.type === 'function_call' ? 'response.function_call_arguments.delta' : 'response.custom_tool_call_input.delta'
    return this.#delta(event, this.#inItem(), text)
  }

  #endCall(): string {
    const item = this.#open!
    if (item.type === 'tool_search_call') {
      item.arguments = parsed(this.#args)
      return this.#add(item) + this.#closeItem()
    }
    // The provider sent no arguments: the client gets an empty object (wire.md G 13).
    if (item.type === 'function_call' && item.arguments.trim() === '') item.arguments = '{}'
    if (!this.#streaming) return this.#closeItem()
    const whole =
      item.type === 'function_call'
        ? this.#frame(
            'response.function_call_arguments.done',
            `${this.#inItem()},"name":${JSON.stringify(item.name)},"arguments":${JSON.stringify(item.arguments)}`,
          )
        : this.#frame(
            'response.custom_tool_call_input.done',
            `${this.#inItem()},"input":${JSON.stringify((item as CustomCallItem).input)}`,
          )
    return whole + this.#closeItem()
  }

  // ---- hosted search ------------------------------------------------------------------------------------------------

  #onSearchStart(id: string): string {
    const out = this.#closeItem()
    const item: WebSearchItem = {
      id: searchItemId(id),
      type: 'web_search_call',
      status: 'in_progress',
      action: { type: 'search' },
    }
    const added = this.#add(item)
    if (!this.#streaming) return ''
    item.status = 'in_progress'
    return (
      out +
      added +
      this.#frame('response.web_search_call.in_progress', this.#inItem()) +
      this.#frame('response.web_search_call.searching', this.#inItem())
    )
  }

  #onSearchEnd(event: Extract<StreamEvent, { type: 'search_end' }>): string {
    const item = this.#open
    if (item?.type !== 'web_search_call') throw outOfGrammar(event.type)
    item.action = { type: 'search', query: event.query, queries: [event.query] }
    if (this.#withSources) item.action.sources = event.results.map(r => ({ type: 'url', url: r.url }))
    const completed = this.#streaming ? this.#frame('response.web_search_call.completed', this.#inItem()) : ''
    const closed = this.#closeItem(event.errorCode === undefined ? 'completed' : 'failed')
    if (event.beforeText && !this.#streaming) {
      const search = this.#output.pop()!
      const first = this.#output.findIndex(({ type }) => type === 'message')
      this.#output.splice(first < 0 ? this.#output.length : first, 0, search)
    }
    return completed + closed
  }

  // ---- compaction ---------------------------------------------------------------------------------------------------

  #onCompaction(id: string, sealed: string): string {
    const item: CompactionItem = { id, type: 'compaction', encrypted_content: sealed }
    return this.#closeItem() + this.#add(item) + this.#closeItem()
  }

  // ---- items and frames ---------------------------------------------------------------------------------------------

  #add(item: OutputItem): string {
    this.#open = item
    this.#output.push(item)
    if (!this.#streaming) return ''
    return this.#frame(
      'response.output_item.added',
      `"output_index":${this.#output.length - 1},"item":${JSON.stringify(item)}`,
    )
  }

  /** Ends the open item as complete. */
  #closeItem(status: Status = 'completed'): string {
    const item = this.#open
    if (!item) return ''
    let out = this.#closePart()
    if (item.type === 'reasoning') out += this.#closeSummary(item)
    this.#open = undefined
    if (item.type !== 'compaction') item.status = status
    if (!this.#streaming) return ''
    const json = JSON.stringify(item)
    this.#done.push(json)
    const members = `"output_index":${this.#output.length - 1},"item":${json}`
    return out + this.#frame('response.output_item.done', members, ITEM_DONE)
  }

  /**
   * Ends the open item of a reply that was cut off: the item keeps what it has, and the client must not run a call in
   * it (wire.md G 15).
   */
  #cutItem(): string {
    const item = this.#open
    if (!item) return ''
    if (item.type === 'tool_search_call') {
      // The item was never added, so there is nothing to close.
      this.#open = undefined
      return ''
    }
    const rest = this.#inCall() ? this.#onArgs(this.#text.flush()) : ''
    return rest + this.#closeItem('incomplete')
  }

  #frame(type: string, members: string, kind = NEXT): string {
    this.#log?.event(kind)
    return this.#unlogged(type, members)
  }

  #delta(type: string, at: string, text: string): string {
    this.#log?.delta(text.length)
    return this.#unlogged(type, `${at},"delta":${JSON.stringify(text)}`)
  }

  #unlogged(type: string, members: string): string {
    if (this.#framing === 'lines') return `{"type":"${type}","sequence_number":${this.#sequence++},${members}}\n`
    return `event: ${type}\ndata: {"type":"${type}","sequence_number":${this.#sequence++},${members}}\n\n`
  }

  #lifecycle(type: string, progress: Progress): string {
    if (!this.#streaming) return ''
    return this.#frame(type, `"response":${responseOf(this.#context, progress, this.#done.join(','), this.#echo)}`)
  }

  #inItem(): string {
    return `"item_id":"${this.#open!.id}","output_index":${this.#output.length - 1}`
  }
  #inPart(): string {
    return `${this.#inItem()},"content_index":${(this.#open as MessageItem).content.length - 1}`
  }
  #inSummary(): string {
    return `${this.#inItem()},"summary_index":${this.#summary}`
  }

  /** The object has one warning: the first one's code, and all messages. */
  #warning({ reason, warnings = [] }: FinishEvent, usage: Usage): Warning | undefined {
    const exhausted = reason === 'length' && !this.#visible && usage.reasoning > 0
    const all = exhausted ? [this.#exhausted(usage), ...warnings] : warnings
    return all.length === 0 ? undefined : { code: all[0]!.code, message: all.map(each => each.message).join(' ') }
  }

  #exhausted(usage: Usage): Warning {
    const cap = this.#context.conversation.maxOutputTokens
    const budget = cap === undefined ? 'the output budget' : `max_output_tokens (${cap})`
    return {
      code: 'reasoning_exhausted_budget',
      message: `Reasoning used ${usage.reasoning} tokens and all of ${budget}, so there is no visible output. Raise max_output_tokens, or lower reasoning.effort.`,
    }
  }
}

/** The members of the event `error`, without its number: JSON without braces. */
export function errorEvent(error: GatewayError, requestId: string): string {
  const { code, message, type, request_id, retry_after_seconds, ...rest } = frameMembers(error, requestId)
  const event: Record<string, unknown> = { code, message, param: error.param, request_id }
  if (retry_after_seconds !== undefined) event['retry_after_seconds'] = retry_after_seconds
  event['error'] = { type, code, message, request_id, ...rest }
  return JSON.stringify(event).slice(1, -1)
}

function parsed(args: string): unknown {
  try {
    const value = parseExactly(args)
    return typeof value === 'object' && value !== null ? value : { query: value }
  } catch {
    // The model wrote broken JSON: the client gets the text and can report it to the model.
    return args.trim() === '' ? {} : { query: args }
  }
}

function outOfGrammar(type: string): Error {
  return new Error(`responses encoder: '${type}' is out of the grammar of core/canon/events.ts here`)
}
