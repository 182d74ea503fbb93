/**
 * Decodes Chat Completions replies, buffered and streamed, into canonical events (wire.md F.6, F.8, G 9 to G 17).
 *
 * One state machine reads both: a buffered message is one large delta. `usage` and `finish` are pushed when they are
 * read, in any order; core/engine/sequence.ts keeps them until the end.
 */

import type { Citation, FinishReason, ProviderUsage, StreamEvent, TokenLogprob } from '../../core/canon/events.ts'
import type { DecodeContext, Decoder } from '../../core/ports/dialect.ts'
import { appendAll } from '../../core/tools/append.ts'
import { keepNumbers } from '../../core/tools/json.ts'
import { cutShort, faultOf, kindOfOpenAiError, unreadable } from '../faults.ts'
import { FrameParser } from '../frame-parser.ts'
import { openAiLogprobs } from '../logprobs.ts'
import { count, isObject, type JsonObject, object, parseObject } from '../loose-json.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import { toldIn } from '../told.ts'
import { tierOf } from '../usage.ts'
import { Calls } from './calls.ts'
import type { ChatState } from './request.ts'

type Push = (event: StreamEvent) => void

/** The provider's finish reasons. Reasons that mean an error are in FAILURES; an unknown reason is an ordinary stop. */
const REASONS: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ['stop', 'stop'],
  ['length', 'length'],
  ['max_tokens', 'length'],
  ['model_length', 'length'], // Mistral
  ['tool_calls', 'tool_calls'],
  ['function_call', 'tool_calls'],
  ['content_filter', 'content_filter'],
])
const FAILURES: ReadonlyMap<string, 'server' | 'unavailable'> = new Map([
  ['error', 'server'], // OpenRouter, Mistral
  ['insufficient_system_resource', 'unavailable'], // DeepSeek
] as const)

/** Where servers that wrap a native API put the arguments of calls as objects. */
const STREAMED = ['choices', '*', 'delta', 'tool_calls', '*', 'function', 'arguments']
const BUFFERED = ['choices', '*', 'message', 'tool_calls', '*', 'function', 'arguments']

/** Decodes one reply of Chat Completions. */
export class ChatDecoder implements Decoder {
  readonly #frames = new FrameParser(hasChoices, isText)
  readonly #calls: Calls
  readonly #text = new SurrogateJoiner()
  /**
   * The logprobs of tokens without text of their own: a part of a character, or the end token. They are sent with the
   * next text, or after the last.
   */
  #tokens: TokenLogprob[] = []
  /** True while a text block is open. */
  #inText = false
  readonly #reasoning = new SurrogateJoiner()
  /** True while a reasoning item is open. */
  #inReasoning = false
  #refused = false
  /** True after any model output, hidden or visible. */
  #output = false
  /** True after the first choice. The chunk of the first choice announces the role and is not activity. */
  #opened = false
  #reason: string | null = null
  /** True after `finish` or an error was pushed. The rest of the reply is ignored. */
  #over = false

  constructor(context: DecodeContext) {
    this.#calls = new Calls((context.state as ChatState).names, () => context.mintCallId())
  }

  /** True after `[DONE]` or an error. Servers that do not send [DONE] end the body instead. */
  get done(): boolean {
    return this.#over
  }

  frame(_event: string, data: string, push: Push): void {
    if (this.#over || data === '') return
    // Servers write [DONE] behind whatever they sent: llama-cpp-python also behind a stream that another request has
    // interrupted. Every server that ended a reply has sent a finish reason.
    if (data === '[DONE]') return this.end(push)
    const chunk = this.#frames.parse(data)
    if (chunk === undefined) {
      this.#fail({ type: 'error', error: unreadable('an event that is not JSON') }, push)
      return
    }
    keepNumbers(chunk, data, STREAMED)
    this.#chunk(chunk, 'delta', push)
  }

  deltas(text: string, at: number, push: Push): number {
    return this.#frames.run(text, at, push, (_, fields, pushDeltas) => this.#chunk(fields, 'delta', pushDeltas))
  }

  body(text: string, push: Push): void {
    if (this.#over) return
    const reply = parseObject(text)
    if (reply === undefined) this.#fail({ type: 'error', error: unreadable('a body that is not JSON') }, push)
    else {
      keepNumbers(reply, text, BUFFERED)
      this.#chunk(reply, 'message', push)
    }
    if (this.#over) return
    if (!this.#opened) this.#fail({ type: 'error', error: unreadable('a completion without choices') }, push)
    else this.#finish(push)
  }

  end(push: Push): void {
    if (this.#over) return
    // The reply is complete if the server sent a finish_reason.
    if (this.#reason === null) this.#fail({ type: 'error', error: cutShort() }, push)
    else this.#finish(push)
  }

  #chunk(chunk: JsonObject, member: 'delta' | 'message', push: Push): void {
    // `{"error": …}` inside a 200 (OpenAI, OpenRouter), or vLLM's flat `{"object": "error", …}`.
    const error = chunk['error'] ?? (chunk['object'] === 'error' ? chunk : undefined)
    if (error !== undefined && error !== null) {
      this.#fail({ type: 'error', error: faultOf(kindOfOpenAiError(error), null, toldIn(error)) }, push)
      return
    }
    const choice = firstChoice(chunk['choices'])
    if (choice) this.#choice(choice, member, push)
    const usage = this.#over ? undefined : usageOf(chunk['usage'])
    if (!usage) return
    const tier = tierOf(chunk['service_tier'])
    push({ type: 'usage', usage: tier === undefined ? usage : { ...usage, tier } })
  }

  #choice(choice: JsonObject, member: 'delta' | 'message', push: Push): void {
    const delta = choice[member]
    const seen = isObject(delta) ? this.#delta(delta, choice['logprobs'], member === 'message', push) : false
    const reason = choice['finish_reason']
    // Some servers send "" until the reply is complete.
    if (typeof reason === 'string' && reason !== '') this.#reason = reason
    else if (!seen && this.#opened) push({ type: 'activity' })
    this.#opened = true
    if (seen) this.#output = true
  }

  /**
   * @param whole the delta is a buffered message, in which each call is a separate one
   * @returns true when the delta contained model output
   */
  #delta(delta: JsonObject, logprobs: unknown, whole: boolean, push: Push): boolean {
    const reasoning = delta['reasoning_content'] ?? delta['reasoning']
    let seen = typeof reasoning === 'string' && this.#think(reasoning, push)
    const content = delta['content']
    if (typeof content === 'string') seen = this.#say(content, logprobs, push) || seen
    else if (Array.isArray(content)) for (const part of content) seen = this.#part(part, push) || seen
    const refusal = delta['refusal']
    if (typeof refusal === 'string' && refusal !== '') {
      this.#endReasoning(push)
      this.#refused = true
      this.#inText = false
      push({ type: 'refusal', text: refusal })
      seen = true
    }
    const annotations = delta['annotations']
    if (Array.isArray(annotations)) {
      for (const annotation of annotations) {
        const citation = citationOf(annotation)
        if (citation) push({ type: 'citation', citation })
      }
    }
    const calls = delta['tool_calls']
    if (Array.isArray(calls) && calls.length > 0) {
      this.#endBlocks(push)
      for (let i = 0; i < calls.length; i++) this.#calls.delta(calls[i], whole ? i : undefined, push)
      seen = true
    }
    return seen
  }

  /** Reads a content part, from servers that send lists: `text`, or Mistral's `thinking` with text parts inside. */
  #part(part: unknown, push: Push): boolean {
    if (!isObject(part)) return false
    if (part['type'] === 'text' && typeof part['text'] === 'string') return this.#say(part['text'], undefined, push)
    if (part['type'] !== 'thinking' || !Array.isArray(part['thinking'])) return false
    let seen = false
    for (const inner of part['thinking']) {
      if (isObject(inner) && typeof inner['text'] === 'string') seen = this.#think(inner['text'], push) || seen
    }
    return seen
  }

  #say(content: string, logprobs: unknown, push: Push): boolean {
    const tokens = isObject(logprobs) ? openAiLogprobs(logprobs['content']) : undefined
    if (content === '') {
      // During reasoning or calls, these tokens belong to those.
      if (tokens && !this.#inReasoning && this.#calls.count === 0) appendAll(this.#tokens, tokens)
      return false
    }
    this.#endReasoning(push)
    this.#inText = true
    const text = this.#text.push(content)
    if (tokens) push({ type: 'text', text, logprobs: [...this.#tokens.splice(0), ...tokens] })
    else if (text !== '') push({ type: 'text', text })
    return true
  }

  #think(text: string, push: Push): boolean {
    if (text === '') return false
    this.#inReasoning = true
    this.#inText = false
    const out = this.#reasoning.push(text)
    if (out !== '') push({ type: 'reasoning', text: out, part: 0 })
    return true
  }

  #endReasoning(push: Push): void {
    if (!this.#inReasoning) return
    this.#inReasoning = false
    const rest = this.#reasoning.end()
    if (rest !== '') push({ type: 'reasoning', text: rest, part: 0 })
    push({ type: 'reasoning_end' })
  }

  #endBlocks(push: Push): void {
    this.#endReasoning(push)
    const text = this.#text.end()
    const logprobs = this.#tokens.splice(0)
    if (this.#inText && logprobs.length > 0) push({ type: 'text', text, logprobs })
    else if (text !== '') push({ type: 'text', text })
    this.#inText = false
  }

  #finish(push: Push): void {
    const wireReason = this.#reason
    const failure = wireReason === null ? undefined : FAILURES.get(wireReason)
    if (failure) {
      this.#fail({ type: 'error', error: faultOf(failure, null, toldIn({ code: wireReason })) }, push)
      return
    }
    // Only a body comes here without a reason. One without any output has failed, and a proxy in between has hidden
    // that.
    if (wireReason === null && !this.#output) {
      this.#fail({ type: 'error', error: cutShort() }, push)
      return
    }
    this.#over = true
    this.#endBlocks(push)
    let reason = wireReason === null ? 'stop' : (REASONS.get(wireReason) ?? 'stop')
    const cut = reason === 'length' || reason === 'content_filter'
    this.#calls.end(cut, push)
    if (reason === 'stop' || reason === 'tool_calls') {
      if (this.#calls.count > 0) reason = 'tool_calls'
      else reason = this.#refused ? 'refusal' : 'stop'
    }
    push({ type: 'finish', reason })
  }

  #fail(event: StreamEvent, push: Push): void {
    this.#over = true
    push(event)
  }
}

function hasChoices(chunk: JsonObject): boolean {
  return Array.isArray(chunk['choices'])
}

/** Arguments are not: of a custom tool they are unwrapped, and as objects they are read again, for their numbers. */
function isText(chunk: JsonObject): boolean {
  return object(firstChoice(chunk['choices'])?.['delta'])['tool_calls'] === undefined
}

/** The choice with index 0: the gateway requests one reply, so other choices are ignored. */
function firstChoice(choices: unknown): JsonObject | undefined {
  if (!Array.isArray(choices)) return undefined
  const choice: unknown = choices[0]
  if (!isObject(choice)) return undefined
  const index = choice['index']
  return index === undefined || index === null || index === 0 ? choice : undefined
}

/** Normalises usage: `prompt` includes its cached part, `output` its reasoning. Invalid numbers are left out. */
export function usageOf(usage: unknown): ProviderUsage | undefined {
  if (!isObject(usage)) return undefined
  const promptDetails = object(usage['prompt_tokens_details'])
  const outputDetails = object(usage['completion_tokens_details'])
  const report: ProviderUsage = {}
  const prompt = count(usage['prompt_tokens'])
  // DeepSeek and Moonshot report cached tokens in members of their own.
  const cached =
    count(promptDetails['cached_tokens']) ?? count(usage['prompt_cache_hit_tokens']) ?? count(usage['cached_tokens'])
  const cacheWrite = count(promptDetails['cache_write_tokens'])
  const output = count(usage['completion_tokens'])
  const reasoning = count(outputDetails['reasoning_tokens'])
  if (prompt !== undefined) report.prompt = prompt
  if (cached !== undefined) report.cached = cached
  if (cacheWrite !== undefined) report.cacheWrite = cacheWrite
  if (output !== undefined) report.output = output
  if (reasoning !== undefined) report.reasoning = reasoning
  return report
}

function citationOf(annotation: unknown): Citation | undefined {
  if (!isObject(annotation)) return undefined
  const cited = annotation['url_citation']
  if (annotation['type'] !== 'url_citation' || !isObject(cited) || typeof cited['url'] !== 'string') return undefined
  const citation: Citation = { url: cited['url'], title: typeof cited['title'] === 'string' ? cited['title'] : '' }
  if (typeof cited['start_index'] === 'number') citation.start = cited['start_index']
  if (typeof cited['end_index'] === 'number') citation.end = cited['end_index']
  return citation
}
