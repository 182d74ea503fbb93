/**
 * Decodes `generateContent` replies into events. The chunks of a stream and a buffered reply have the same shape: a
 * buffered reply is read as a stream of one chunk.
 */

import type { Continuation } from '../../core/canon/conversation.ts'
import type { FinishReason, ProviderUsage, StreamEvent, TokenLogprob } from '../../core/canon/events.ts'
import type { DecodeContext, Decoder } from '../../core/ports/dialect.ts'
import { keepNumbers } from '../../core/tools/json.ts'
import { CustomInputDecoder } from '../custom-input.ts'
import { cutShort, faultOf, unreadable } from '../faults.ts'
import { utf8 } from '../logprobs.ts'
import { count, isObject, type JsonObject, list, object, parseObject, string } from '../loose-json.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import { toldIn } from '../told.ts'
import { knownUsage } from '../usage.ts'
import { errorOf, kindOfGoogleError } from './faults.ts'
import { citationsOf, searchOf } from './grounding.ts'
import { digestOf, type GeminiContinuation, NAME, type RequestState } from './request.ts'

type Push = (event: StreamEvent) => void

/** Where a chunk has the arguments of its calls. */
const ARGS = ['candidates', '*', 'content', 'parts', '*', 'functionCall', 'args']

/**
 * The finish reasons of the API (wire.md F.6). `IMAGE_…` is a content filter too. A reason that is neither here nor in
 * FAILURES is one of another server: an ordinary stop where there was output.
 */
const REASONS: ReadonlyMap<string, FinishReason> = new Map<string, FinishReason>([
  ['STOP', 'stop'],
  ['MAX_TOKENS', 'length'],
  ['SAFETY', 'content_filter'],
  ['RECITATION', 'content_filter'],
  ['LANGUAGE', 'content_filter'],
  ['BLOCKLIST', 'content_filter'],
  ['PROHIBITED_CONTENT', 'content_filter'],
  ['SPII', 'content_filter'],
])

const FAILURES: ReadonlySet<string> = new Set([
  'FINISH_REASON_UNSPECIFIED',
  'OTHER',
  'MALFORMED_FUNCTION_CALL',
  'UNEXPECTED_TOOL_CALL',
  'TOO_MANY_TOOL_CALLS',
  'MISSING_THOUGHT_SIGNATURE',
  'MALFORMED_RESPONSE',
  'NO_IMAGE',
])

/** The text of a refusal for a blocked prompt: the API gives none. */
const BLOCKED = 'This request was declined by the safety policy of the model.'

/** Decodes one reply of generateContent. */
export class GeminiDecoder implements Decoder {
  readonly #context: DecodeContext
  readonly #state: RequestState
  readonly #texts = new SurrogateJoiner()
  readonly #thoughts = new SurrogateJoiner()
  #calls = 0
  /** The text of the open block, for citations; null when the last item was not text. */
  #block: string | null = null
  /** True while a reasoning item is open. */
  #thinking = false
  #grounding: JsonObject | null = null
  #usage: JsonObject | null = null
  #reason = ''
  #blocked = false
  /** True after any text, thought or call. */
  #output = false
  #over = false

  constructor(context: DecodeContext) {
    this.#context = context
    this.#state = context.state as RequestState
  }

  /**
   * Nothing marks the last chunk: one with the usage may follow the one with the finish reason. So only an error ends
   * a reply early.
   */
  get done(): boolean {
    return this.#over
  }

  frame(_event: string, data: string, push: Push): void {
    if (this.#over || data === '') return
    const chunk = parseObject(data)
    if (chunk && !('error' in chunk)) {
      keepNumbers(chunk, data, ARGS)
      return this.#chunk(chunk, push)
    }
    const error = errorOf(data)
    this.#fail(
      error ? faultOf(kindOfGoogleError(error), null, toldIn(error)) : unreadable('event data is not a JSON object'),
      push,
    )
  }

  body(text: string, push: Push): void {
    if (text.trim() === '') this.#fail(unreadable('body is empty'), push)
    this.frame('', text, push)
    this.end(push)
  }

  end(push: Push): void {
    if (this.#over) return
    if (this.#reason === '' && !this.#blocked) return this.#fail(cutShort(), push)
    const reason = this.#finishReason()
    if (!reason) return this.#fail(faultOf('server', null, toldIn({ code: this.#reason })), push)
    this.#endThinking(push)
    this.#reportGrounding(push)
    this.#reportUsage(push)
    this.#over = true
    push({ type: 'finish', reason })
  }

  #fail(error: ReturnType<typeof faultOf>, push: Push): void {
    this.#over = true
    push({ type: 'error', error })
  }

  #chunk(chunk: JsonObject, push: Push): void {
    // The figures are cumulative: the last report replaces the others.
    if (isObject(chunk['usageMetadata'])) this.#usage = chunk['usageMetadata']
    const candidate = list(chunk['candidates'])[0]
    if (!isObject(candidate)) {
      if (string(object(chunk['promptFeedback'])['blockReason']) !== '' && !this.#blocked) {
        this.#blocked = true
        push({ type: 'refusal', text: BLOCKED })
      }
      return
    }
    let logprobs = logprobsOf(object(candidate['logprobsResult']))
    let shown = false
    for (const part of list(object(candidate['content'])['parts']).map(object)) {
      shown = this.#part(part, logprobs, push) || shown
      if (typeof part['text'] === 'string' && part['thought'] !== true) logprobs = undefined
    }
    if (shown) this.#output = true
    // A chunk without visible output still means that the model is working, unless it only ends the reply.
    if (!shown && typeof candidate['finishReason'] !== 'string') push({ type: 'activity' })
    if (isObject(candidate['groundingMetadata'])) this.#grounding = candidate['groundingMetadata']
    if (typeof candidate['finishReason'] === 'string') this.#reason = candidate['finishReason']
  }

  /** @returns true when the part made an event */
  #part(part: JsonObject, logprobs: TokenLogprob[] | undefined, push: Push): boolean {
    if (isObject(part['functionCall'])) {
      this.#call(part['functionCall'], string(part['thoughtSignature']), push)
      return true
    }
    if (typeof part['text'] !== 'string') return false
    if (part['thought'] === true) {
      const text = this.#thoughts.push(part['text'])
      if (text === '') return false
      this.#block = null
      this.#thinking = true
      push({ type: 'reasoning', text, part: 0 })
      return true
    }
    const text = this.#texts.push(part['text'])
    if (text === '' && !logprobs) return false
    this.#endThinking(push)
    this.#block = (this.#block ?? '') + text
    push(logprobs ? { type: 'text', text, logprobs } : { type: 'text', text })
    return true
  }

  #endThinking(push: Push): void {
    if (!this.#thinking) return
    this.#thinking = false
    push({ type: 'reasoning_end' })
  }

  /** A call arrives complete, in one part. */
  #call(call: JsonObject, signature: string, push: Push): void {
    this.#endThinking(push)
    this.#block = null
    const index = this.#calls++
    const { name, namespace, kind } = this.#state.names.fromUpstream(string(call['name']))
    const args = JSON.stringify(object(call['args']))
    push({
      type: 'tool_call',
      index,
      id: this.#context.mintCallId(),
      kind,
      name,
      ...(namespace === undefined ? undefined : { namespace }),
      ...(signature === '' ? undefined : { continuation: this.#continuation(signature, args) }),
    })
    let text = args
    if (kind === 'custom') {
      const input = new CustomInputDecoder()
      text = input.push(args) + input.end()
    }
    if (text !== '') push({ type: 'tool_args', index, text })
    push({ type: 'tool_end', index })
  }

  #continuation(signature: string, args: string): Continuation {
    const data: GeminiContinuation = { signature, args: digestOf(args) }
    return { dialect: NAME, model: this.#context.backend.model, data }
  }

  /** Undefined when the generation failed. */
  #finishReason(): FinishReason | undefined {
    if (this.#blocked) return 'refusal'
    let reason = REASONS.get(this.#reason) ?? (this.#reason.startsWith('IMAGE_') ? 'content_filter' : undefined)
    if (reason === undefined && this.#output && !FAILURES.has(this.#reason)) reason = 'stop'
    return reason === 'stop' && this.#calls > 0 ? 'tool_calls' : reason
  }

  /**
   * Grounding is reported at the end of a reply: first the citations, while their text is still the open block, then
   * the search.
   */
  #reportGrounding(push: Push): void {
    if (!this.#grounding) return
    if (this.#block !== null) {
      for (const citation of citationsOf(this.#grounding, this.#block)) push({ type: 'citation', citation })
    }
    const search = searchOf(this.#grounding)
    if (!search) return
    const id = this.#context.mintSearchId()
    push({ type: 'search_start', id })
    push({ type: 'search_end', id, ...search, beforeText: true })
  }

  /** The usage of each chunk covers the whole prompt. */
  reported(): ProviderUsage | undefined {
    const fields = this.#usage
    const prompt = fields === null ? undefined : count(fields['promptTokenCount'])
    if (fields === null || prompt === undefined) return undefined
    return knownUsage({
      prompt: prompt + (count(fields['toolUsePromptTokenCount']) ?? 0),
      cached: count(fields['cachedContentTokenCount']),
    })
  }

  #reportUsage(push: Push): void {
    const fields = this.#usage
    if (!fields) return
    const candidates = count(fields['candidatesTokenCount'])
    const thoughts = count(fields['thoughtsTokenCount'])
    const usage = knownUsage({
      ...this.reported(),
      // A reply that has only thoughts has no candidate count.
      output: candidates === undefined && thoughts === undefined ? undefined : (candidates ?? 0) + (thoughts ?? 0),
      reasoning: thoughts,
      searches: this.#grounding && searchOf(this.#grounding) ? 1 : undefined,
    })
    push({ type: 'usage', usage })
  }
}

function logprobsOf(result: JsonObject): TokenLogprob[] | undefined {
  const chosen = list(result['chosenCandidates'])
  if (chosen.length === 0) return undefined
  const tops = list(result['topCandidates'])
  return chosen.map((candidate, index) => ({
    ...tokenOf(object(candidate)),
    top: list(object(tops[index])['candidates']).map(top => tokenOf(object(top))),
  }))
}

function tokenOf(fields: JsonObject): Omit<TokenLogprob, 'top'> {
  const token = string(fields['token'])
  const logprob = typeof fields['logProbability'] === 'number' ? fields['logProbability'] : 0
  return { token, logprob, bytes: utf8(token) }
}
