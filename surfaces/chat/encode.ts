/**
 * Writes Chat Completions replies (wire.md C.1, D.1, D.4): chunks for a stream, otherwise one object.
 *
 * This surface has no members for reasoning, citations and hosted searches, so they are not written (wire.md D.1,
 * F.8).
 */

import type { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, FinishReason, StreamEvent, TokenLogprob, Usage } from '../../core/canon/events.ts'
import type { EncodeContext, Encoder } from '../../core/ports/surface.ts'
import { appendAll } from '../../core/tools/append.ts'
import { frameMembers, PLAIN_REFUSAL, type WireLogprob, wireLogprobs } from '../envelope.ts'
import { TextJoiner } from '../text.ts'
import { type ChatFinish, ID, type ToolCall } from './reply.ts'
import type { ChatBody } from './schema.ts'

/**
 * wire.md F.6. `pause`: the gateway stopped at its own limit on searches; the text so far is complete, so it is a
 * `stop`.
 */
const FINISH: Record<FinishReason, ChatFinish> = {
  stop: 'stop',
  stop_sequence: 'stop',
  tool_calls: 'tool_calls',
  length: 'length',
  context_full: 'length',
  content_filter: 'content_filter',
  refusal: 'stop',
  pause: 'stop',
  compaction: 'stop',
  idle_timeout: 'length',
  ceiling_timeout: 'length',
}

export class ChatEncoder implements Encoder {
  readonly showsReasoning = false
  readonly #context: EncodeContext
  readonly #customCalls: boolean
  /** The text at the beginning of every frame. */
  readonly #head: string
  /** The text before and after the delta of a frame that contains only a delta. */
  readonly #beforeDelta: string
  readonly #behindDelta: string
  readonly #usageMember: boolean
  readonly #withLogprobs: boolean
  /** True when the client gets one whole object: no frames are made. */
  readonly #buffered: boolean
  #started = false
  #ended = false
  #content: string | null = null
  #refusal: string | null = null
  #logprobs: WireLogprob[] | null = null
  readonly #calls: ToolCall[] = []
  #open: ToolCall | undefined
  readonly #text = new TextJoiner()
  #mode: 'text' | 'refusal' | 'call' = 'text'
  #textLogprobs: WireLogprob[] = []
  #finish: ChatFinish | null = null
  #usage: Usage | undefined

  /**
   * @param customCalls whether calls of custom tools have a form of their own. Chat Completions itself offers no such
   *   tools; a model that makes such a call all the same calls a function.
   */
  constructor(context: EncodeContext, customCalls = false) {
    this.#context = context
    this.#customCalls = customCalls
    const body = context.body as ChatBody
    this.#buffered = !context.conversation.stream
    this.#usageMember = context.conversation.stream && body.stream_options?.include_usage === true
    this.#withLogprobs = context.conversation.sampling.logprobs
    const { objectId, created, model } = context
    this.#head = this.#buffered
      ? ''
      : `data: {"id":"${ID}${objectId}","object":"chat.completion.chunk","created":${created},"model":${JSON.stringify(model)},"service_tier":"default","choices":[`
    this.#beforeDelta = this.#buffered ? '' : `${this.#head}{"index":0,"delta":`
    this.#behindDelta = this.#buffered ? '' : `,"logprobs":null,"finish_reason":null${this.#tail}`
  }

  /** Nothing is sent before the first event: the first delta depends on what kind of output begins the reply. */
  start(): string {
    return ''
  }

  event(event: StreamEvent): string {
    this.#guard(event.type)
    switch (event.type) {
      case 'text':
        return this.#onText(event.text, event.logprobs)
      case 'refusal':
        return this.#onRefusal(event.text)
      case 'tool_call': {
        if (event.index !== this.#calls.length) throw outOfGrammar(event.type)
        const { id, name } = event
        const kind = this.#customCalls ? event.kind : 'function'
        const call: ToolCall =
          kind === 'custom'
            ? { id, type: kind, custom: { name, input: '' } }
            : { id, type: kind, function: { name, arguments: '' } }
        const out = this.#to('call') + this.#begin('"content":null,"refusal":null')
        this.#calls.push(call)
        this.#open = call
        const called =
          kind === 'custom'
            ? `"custom":{"name":${JSON.stringify(name)},"input":""}`
            : `"function":{"name":${JSON.stringify(name)},"arguments":""}`
        return `${out}${this.#delta(`{"tool_calls":[{"index":${event.index},"id":${JSON.stringify(id)},"type":"${kind}",${called}}]}`)}`
      }
      case 'tool_args':
        this.#sameCall(event.index, event.type)
        return this.#args(this.#text.push(event.text))
      case 'tool_end': {
        this.#sameCall(event.index, event.type)
        let out = this.#args(this.#text.flush())
        // The provider sent no arguments: the client gets an empty object (wire.md G 13).
        const call = this.#open!
        if (call.type === 'function' && call.function.arguments.trim() === '') out += this.#args('{}')
        this.#open = undefined
        return out
      }
      default:
        // Reasoning, citations, searches, breaks and activity have no frame here.
        return ''
    }
  }

  finish(finish: FinishEvent, usage: Usage): string {
    if (this.#ended) throw outOfGrammar('finish')
    let out = this.#open ? this.#args(this.#text.flush()) : this.#to('call')
    if (finish.reason === 'refusal' && this.#refusal === null)
      out += this.#onRefusal(finish.explanation || PLAIN_REFUSAL) + this.#to('call')
    out += this.#begin('"content":"","refusal":null')
    this.#ended = true
    this.#usage = usage
    this.#finish = this.#finishReason(finish.reason)
    if (this.#buffered) return ''
    out += this.#chunk('{}', 'null', `"${this.#finish}"`)
    if (this.#usageMember) out += `${this.#head}],"usage":${usageOf(usage)}}\n\n`
    return `${out}data: [DONE]\n\n`
  }

  error(error: GatewayError): string {
    if (this.#ended) throw outOfGrammar('error')
    this.#ended = true
    const members = frameMembers(error, this.#context.requestId)
    const { message, type, code, request_id, retryable } = members
    // The copies outside `error` are deprecated but still promised (ERR-8). There must be no `choices`: clients would
    // take the frame for a chunk (wire.md D.4).
    return `data: ${JSON.stringify({ error: members, message, type, code, request_id, retryable })}\n\n`
  }

  keepAlive(): string {
    return ': keep-alive\n\n'
  }

  /** The body is concatenated, as frames are: JSON.stringify of the whole object takes half as long again. */
  body(): string {
    const { objectId, created, model, body } = this.#context
    const calls = this.#calls.length > 0 ? `,"tool_calls":${JSON.stringify(this.#calls)}` : ''
    const content = this.#content ?? (this.#refusal === null && calls === '' ? '' : null)
    const logprobs = this.#logprobs ? `{"content":${JSON.stringify(this.#logprobs)},"refusal":null}` : 'null'
    const usage = this.#usage ? `,"usage":${usageOf(this.#usage)}` : ''
    const metadata = body['metadata'] == null ? '' : `,"metadata":${JSON.stringify(body['metadata'])}`
    return `{"id":"${ID}${objectId}","object":"chat.completion","created":${created},"model":${JSON.stringify(model)},"service_tier":"default","choices":[{"index":0,"message":{"role":"assistant","content":${JSON.stringify(content)},"refusal":${JSON.stringify(this.#refusal)},"annotations":[]${calls}},"logprobs":${logprobs},"finish_reason":${JSON.stringify(this.#finish)}}]${usage}${metadata}}`
  }

  #guard(type: string): void {
    if (this.#ended) throw outOfGrammar(type)
    if (this.#open && type !== 'tool_args' && type !== 'tool_end' && type !== 'activity') throw outOfGrammar(type)
  }

  #sameCall(index: number, type: string): void {
    if (!this.#open || index !== this.#calls.length - 1) throw outOfGrammar(type)
  }

  #onText(delta: string, logprobs: readonly TokenLogprob[] | undefined): string {
    const out = this.#to('text')
    if (this.#withLogprobs && logprobs) appendAll(this.#textLogprobs, wireLogprobs(logprobs))
    const text = this.#text.push(delta)
    return text === '' ? out : out + this.#sendText(text)
  }

  #sendText(text: string): string {
    const out = this.#begin('"content":"","refusal":null')
    this.#content = (this.#content ?? '') + text
    if (this.#buffered && this.#textLogprobs.length === 0) return ''
    const content = `{"content":${JSON.stringify(text)}}`
    if (this.#textLogprobs.length === 0) return out + this.#delta(content)
    this.#logprobs ??= []
    appendAll(this.#logprobs, this.#textLogprobs)
    const logprobs = `{"content":${JSON.stringify(this.#textLogprobs)},"refusal":null}`
    this.#textLogprobs = []
    return out + this.#chunk(content, logprobs, 'null')
  }

  #onRefusal(delta: string): string {
    const out = this.#to('refusal')
    const text = this.#text.push(delta)
    return text === '' ? out : out + this.#sendRefusal(text)
  }

  #sendRefusal(text: string): string {
    const out = this.#begin('"content":null,"refusal":""')
    this.#refusal = (this.#refusal ?? '') + text
    if (this.#buffered) return ''
    return `${out}${this.#delta(`{"refusal":${JSON.stringify(text)}}`)}`
  }

  /** Changes to another kind of output. First sends a surrogate half and logprobs that still wait. */
  #to(mode: 'text' | 'refusal' | 'call'): string {
    if (mode === this.#mode) return ''
    const rest = this.#text.flush()
    const out =
      rest === '' && this.#textLogprobs.length === 0
        ? ''
        : this.#mode === 'refusal'
          ? this.#sendRefusal(rest)
          : this.#sendText(rest)
    this.#mode = mode
    return out
  }

  #args(text: string): string {
    if (text === '') return ''
    const call = this.#open!
    if (call.type === 'custom') call.custom.input += text
    else call.function.arguments += text
    if (this.#buffered) return ''
    const member = call.type === 'custom' ? '"custom":{"input"' : '"function":{"arguments"'
    return this.#delta(`{"tool_calls":[{"index":${this.#calls.length - 1},${member}:${JSON.stringify(text)}}}]}`)
  }

  /** The first delta of the reply carries the role. */
  #begin(members: string): string {
    if (this.#started) return ''
    this.#started = true
    if (this.#buffered) return ''
    return this.#delta(`{"role":"assistant",${members}}`)
  }

  #delta(delta: string): string {
    return `${this.#beforeDelta}${delta}${this.#behindDelta}`
  }

  #chunk(delta: string, logprobs: string, finish: string): string {
    return `${this.#beforeDelta}${delta},"logprobs":${logprobs},"finish_reason":${finish}${this.#tail}`
  }

  get #tail(): string {
    return this.#usageMember ? '}],"usage":null}\n\n' : '}]}\n\n'
  }

  /**
   * The wire value for the end of the reply (wire.md F.6). When the reply has complete calls, a plain end becomes
   * `tool_calls`, whatever the provider reported. A call that is still open was cut off: the reason is then `length`,
   * so that the client runs no call.
   */
  #finishReason(reason: FinishReason): ChatFinish {
    const end = FINISH[reason]
    if (end !== 'stop' && end !== 'tool_calls') return end
    if (this.#open) return 'length'
    return this.#calls.length > 0 && reason !== 'refusal' ? 'tool_calls' : 'stop'
  }
}

function outOfGrammar(type: string): Error {
  return new Error(`chat encoder: '${type}' is out of the grammar of core/canon/events.ts here`)
}

/** The usage as JSON text. */
function usageOf({ input, output, reasoning, cached }: Usage): string {
  return `{"prompt_tokens":${input},"completion_tokens":${output},"total_tokens":${input + output},"completion_tokens_details":{"reasoning_tokens":${reasoning}},"prompt_tokens_details":{"cached_tokens":${cached}}}`
}
