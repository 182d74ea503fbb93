/**
 * Decodes replies to `POST /responses` into events: the typed events of a stream, or the buffered response object.
 * Items that the stream did not announce are read from the response object at its end.
 */
import type { Continuation } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, StreamEvent } from '../../core/canon/events.ts'
import type { DecodeContext, Decoder } from '../../core/ports/dialect.ts'
import { cutShort, faultOf, kindOfOpenAiError, unreadable } from '../faults.ts'
import { FrameParser } from '../frame-parser.ts'
import { openAiLogprobs } from '../logprobs.ts'
import { count, isObject, type JsonObject, list, object, parseObject, string } from '../loose-json.ts'
import { SearchOrder } from '../search-order.ts'
import { SurrogateJoiner } from '../surrogates.ts'
import { toldIn } from '../told.ts'
import { knownUsage, tierOf } from '../usage.ts'
import { NAME, type RequestState, type ResponsesContinuation } from './request.ts'

type Push = (event: StreamEvent) => void

/** A content part: text or refusal. */
interface PartState {
  text: string
  /** UTF-16 units received, including a surrogate half that waits. */
  received: number
  joiner: SurrogateJoiner
  annotations: number
}

interface ItemState {
  kind: 'message' | 'reasoning' | 'call' | 'search' | 'other'
  done: boolean
  /** For a message: by content index. For reasoning: by summary index. For a call: part 0 is the arguments. */
  parts: Map<number, PartState>
  /** For a call: its index in the reply. */
  call: number
  /** For reasoning: a summary has arrived. Raw text is shown only when there is no summary. */
  summarised: boolean
}

/** More items than any reply has: each is kept until the reply ends. */
const MOST_ITEMS = 10_000
/** A longer id is not one. */
const LONGEST_ID = 512

/**
 * Frames of bookkeeping that repeat instructions and tools of the request are known by their beginning, in UTF-16 units
 * above this. To read those of an agent takes longer than all its other frames.
 */
const LONG_FRAME = 2048
const BOOKKEEPING = ['response.created', 'response.in_progress', 'response.queued'].map(type => `{"type":"${type}",`)
const isBookkeeping = (data: string) => BOOKKEEPING.some(beginning => data.startsWith(beginning))

/** The input of a call is not: that of a custom tool is unwrapped. */
const TEXTS: ReadonlySet<unknown> = new Set([
  'response.output_text.delta',
  'response.reasoning_summary_text.delta',
  'response.reasoning_text.delta',
])
const isText = (fields: JsonObject): boolean => TEXTS.has(fields['type'])

/** Decodes one reply of the Responses API. */
export class ResponsesDecoder implements Decoder {
  readonly #context: DecodeContext
  readonly #state: RequestState
  readonly #frames = new FrameParser(fields => typeof fields['delta'] === 'string', isText)
  readonly #searches: SearchOrder
  /** By `output_index`; items of servers that give none have negative numbers, in the order of their ids. */
  readonly #items = new Map<number, ItemState>()
  /** Where the item of an id is; null for an id that several items with an `output_index` have. */
  readonly #places = new Map<string, number | null>()
  #named = 0
  #calls = 0
  #refused = false
  /** Reasoning since the last call. It is stored with the next call and sent back with it. */
  #reasoning: JsonObject[] = []
  /** `output_index:content_index` of the open text block; '' when the last item was not text. */
  #textBlock = ''
  #finish: FinishEvent | null = null
  #over = false

  constructor(context: DecodeContext) {
    this.#context = context
    this.#state = context.state as RequestState
    this.#searches = new SearchOrder(() => context.mintSearchId())
  }

  get done(): boolean {
    return this.#finish !== null || this.#over
  }

  frame(event: string, data: string, push: Push): void {
    if (this.done || data === '' || data === '[DONE]') return
    if (data.length > LONG_FRAME && isBookkeeping(data)) return
    const fields = this.#frames.parse(data)
    if (!fields) return this.#fail(unreadable('event data is not a JSON object'), push)
    this.#read(event, fields, push)
  }

  readonly #read = (event: string, fields: JsonObject, push: Push): void =>
    this.#event(string(fields['type']) || event, fields, push)

  deltas(text: string, at: number, push: Push): number {
    return this.#frames.run(text, at, push, this.#read)
  }

  body(text: string, push: Push): void {
    if (this.#over) return
    const response = parseObject(text)
    if (!response) return this.#fail(unreadable('body is not a JSON object'), push)
    const status = response['status']
    if (status === 'completed' || status === 'incomplete' || status === 'failed' || status === 'cancelled') {
      this.#terminal(status, response, push)
    } else if (isObject(response['error'])) this.#fail(failureOf(response['error']), push)
    else this.#fail(unreadable('response has no status that is known'), push)
    this.end(push)
  }

  end(push: Push): void {
    if (this.#over) return
    if (!this.#finish) return this.#fail(cutShort(), push)
    this.#over = true
    push(this.#finish)
  }

  #fail(error: ReturnType<typeof faultOf>, push: Push): void {
    this.#over = true
    push({ type: 'error', error })
  }

  #event(type: string, fields: JsonObject, push: Push): void {
    if (this.#items.size > MOST_ITEMS || this.#places.size > MOST_ITEMS)
      return this.#fail(unreadable(`more than ${MOST_ITEMS} items`), push)
    const index = this.#placeOf(fields)
    switch (type) {
      case 'response.output_text.delta':
        return this.#text(index, fields, string(fields['delta']), push)
      case 'response.output_text.done':
        return this.#restOfText(index, fields, push)
      case 'response.refusal.delta':
        return this.#refusal(index, fields, string(fields['delta']), push)
      case 'response.refusal.done':
        return this.#refusal(index, fields, this.#missing(index, fields, 'refusal'), push)
      case 'response.output_text.annotation.added':
        return this.#annotation(index, count(fields['content_index']) ?? 0, fields['annotation'], push)
      case 'response.reasoning_summary_text.delta':
        return this.#summary(index, count(fields['summary_index']) ?? 0, string(fields['delta']), push)
      case 'response.reasoning_text.delta':
        return this.#rawReasoning(index, string(fields['delta']), push)
      case 'response.function_call_arguments.delta':
      case 'response.custom_tool_call_input.delta':
        return this.#args(index, string(fields['delta']), push)
      case 'response.function_call_arguments.done':
        return this.#restOfArgs(index, string(fields['arguments']), push)
      case 'response.custom_tool_call_input.done':
        return this.#restOfArgs(index, string(fields['input']), push)
      case 'response.output_item.added':
        return this.#added(index, object(fields['item']), push)
      case 'response.output_item.done':
        return this.#done(index, object(fields['item']), push)
      case 'response.completed':
      case 'response.incomplete':
      case 'response.failed':
      case 'response.cancelled': {
        const response = object(fields['response'])
        // Some servers end every stream with `response.completed`; the object says what it was.
        const told = string(response['status'])
        const worse = type === 'response.completed' && /^(incomplete|failed|cancelled)$/.test(told)
        return this.#terminal(worse ? told : type.slice('response.'.length), response, push)
      }
      case 'error':
        return this.#fail(failureOf(isObject(fields['error']) ? fields['error'] : fields), push)
      case 'response.created':
      case 'response.in_progress':
      case 'response.queued':
      case 'response.content_part.added':
      case 'response.content_part.done':
      case 'response.reasoning_summary_part.added':
      case 'response.reasoning_summary_part.done':
      case 'response.reasoning_summary_text.done':
      case 'response.reasoning_text.done':
      case 'keepalive':
        // Bookkeeping of the provider, no model output (decision 12).
        return
      default:
        // Events of hosted tools and parts, and unknown events: the model is working.
        if (type.startsWith('response.')) push({ type: 'activity' })
    }
  }

  // ---- items --------------------------------------------------------------------------------------------------------

  /**
   * Where the item of an event is. llama.cpp, and what passes its frames on, gives no `output_index`: there the id
   * shows items apart. Without either there is one item, as servers with one message send it.
   */
  #placeOf(fields: JsonObject): number {
    const id = idOf(string(fields['item_id']) || string(object(fields['item'])['id']))
    const index = count(fields['output_index'])
    if (index !== undefined) {
      if (id !== '') {
        const known = this.#places.get(id)
        if (known === undefined) this.#places.set(id, index)
        else if (known !== index) this.#places.set(id, null)
      }
      return index
    }
    if (id === '') return 0
    return this.#places.get(id) ?? this.#newPlace(id)
  }

  #newPlace(id: string): number {
    const place = -++this.#named
    this.#places.set(id, place)
    return place
  }

  /**
   * Where an item of the whole response is: by its id, else by its position. Some servers give other ids here than in
   * the stream; then it is the item that began in that position, if it is of the same kind.
   * @param places of the items of the stream, in the order in which they began
   */
  #placeInOutput(item: JsonObject, position: number, places: readonly number[]): number {
    const id = idOf(string(item['id']))
    const known = id === '' ? undefined : this.#places.get(id)
    if (known !== undefined && known !== null) return known
    if (this.#named === 0) return position
    const began = places[position]
    if (began !== undefined && this.#items.get(began)!.kind === kindOf(item)) return began
    return -++this.#named
  }

  #item(index: number, kind: ItemState['kind']): ItemState {
    let item = this.#items.get(index)
    if (!item) {
      item = { kind, done: false, parts: new Map(), call: -1, summarised: false }
      this.#items.set(index, item)
    }
    return item
  }

  #part(item: ItemState, index: number): PartState {
    let part = item.parts.get(index)
    if (!part) item.parts.set(index, (part = { text: '', received: 0, joiner: new SurrogateJoiner(), annotations: 0 }))
    return part
  }

  #added(place: number, item: JsonObject, push: Push): void {
    let index = place
    if (index < 0 && this.#items.has(index)) {
      // Deltas could not be told apart.
      if (!this.#items.get(index)!.done) return this.#fail(unreadable('two items with one id'), push)
      index = this.#newPlace(idOf(string(item['id'])))
    }
    const kind = kindOf(item)
    if (kind === 'call') return this.#startCall(index, item, push)
    this.#item(index, kind)
    if (kind !== 'search') return push({ type: 'activity' })
    this.#textBlock = ''
    this.#searches.start(String(index), push)
  }

  /** Ends an item. Its object is complete, so text that the deltas left out is added from it. */
  #done(index: number, item: JsonObject, push: Push): void {
    if (this.#items.get(index)?.done) return
    switch (item['type']) {
      case 'message':
        this.#wholeMessage(index, item, push)
        break
      case 'reasoning':
        this.#endReasoning(index, item, push)
        break
      case 'function_call':
      case 'custom_tool_call': {
        this.#startCall(index, item, push)
        const call = this.#items.get(index)!
        this.#restOfArgs(index, string(item[item['type'] === 'function_call' ? 'arguments' : 'input']), push)
        // A call that the token limit cut off gets no `tool_end`, so that no client runs it (wire.md F.6).
        if (item['status'] !== 'incomplete') push({ type: 'tool_end', index: call.call })
        break
      }
      case 'web_search_call':
        this.#item(index, 'search')
        this.#textBlock = ''
        this.#searches.end(String(index), searchEnd(item, this.#continuation({ search: item })), push)
        break
      default:
        this.#item(index, 'other')
        push({ type: 'activity' })
    }
    this.#items.get(index)!.done = true
  }

  #wholeMessage(index: number, item: JsonObject, push: Push): void {
    for (const [position, value] of list(item['content']).entries()) {
      const content = object(value)
      const fields = { ...content, content_index: position }
      if (content['type'] === 'output_text') {
        this.#restOfText(index, fields, push)
        const part = this.#part(this.#item(index, 'message'), position)
        const annotations = list(content['annotations'])
        for (let i = part.annotations; i < annotations.length; i++)
          this.#annotation(index, position, annotations[i], push)
      } else if (content['type'] === 'refusal') {
        this.#refusal(index, fields, this.#missing(index, fields, 'refusal'), push)
      }
    }
    this.#item(index, 'message')
  }

  // ---- text ---------------------------------------------------------------------------------------------------------

  /** The text of a `done` event that no delta has brought. */
  #missing(index: number, fields: JsonObject, member: string): string {
    const received = this.#items.get(index)?.parts.get(count(fields['content_index']) ?? 0)?.received ?? 0
    return string(fields[member]).slice(received)
  }

  #restOfText(index: number, fields: JsonObject, push: Push): void {
    const rest = this.#missing(index, fields, 'text')
    // A `done` has the logprobs of the whole text. They are new only when no delta came before.
    const all = rest === fields['text']
    this.#text(index, all ? fields : { content_index: fields['content_index'] }, rest, push)
  }

  #text(index: number, fields: JsonObject, delta: string, push: Push): void {
    const content = count(fields['content_index']) ?? 0
    const logprobs = openAiLogprobs(fields['logprobs'])
    if (delta === '') return
    const part = this.#part(this.#item(index, 'message'), content)
    part.received += delta.length
    const text = part.joiner.push(delta)
    if (text === '' && !logprobs) return
    this.#openText(`${index}:${content}`, push)
    part.text += text
    push(logprobs ? { type: 'text', text, logprobs } : { type: 'text', text })
  }

  #openText(block: string, push: Push): void {
    if (block === this.#textBlock) return
    this.#searches.settle(push)
    if (this.#textBlock !== '') push({ type: 'break' })
    this.#textBlock = block
  }

  #refusal(index: number, fields: JsonObject, delta: string, push: Push): void {
    if (delta === '') return
    const part = this.#part(this.#item(index, 'message'), count(fields['content_index']) ?? 0)
    part.received += delta.length
    const text = part.joiner.push(delta)
    if (text === '') return
    this.#other(push)
    this.#refused = true
    push({ type: 'refusal', text })
  }

  #annotation(index: number, content: number, annotation: unknown, push: Push): void {
    const fields = object(annotation)
    const part = this.#part(this.#item(index, 'message'), content)
    part.annotations++
    // A citation belongs to the open text block; one that comes later is dropped.
    if (fields['type'] !== 'url_citation' || this.#textBlock !== `${index}:${content}`) return
    const url = plainUrl(string(fields['url']))
    if (url === '') return
    const start = utf16Offset(part.text, count(fields['start_index']))
    const end = utf16Offset(part.text, count(fields['end_index']))
    const known = start !== undefined && end !== undefined && start <= end
    push({
      type: 'citation',
      citation: known
        ? { url, title: string(fields['title']), start, end, citedText: part.text.slice(start, end) }
        : { url, title: string(fields['title']) },
    })
  }

  /** An item other than text begins. */
  #other(push: Push): void {
    this.#searches.settle(push)
    this.#textBlock = ''
  }

  // ---- reasoning ----------------------------------------------------------------------------------------------------

  #summary(index: number, summary: number, delta: string, push: Push): void {
    if (delta === '') return
    const item = this.#item(index, 'reasoning')
    item.summarised = true
    const part = this.#part(item, summary)
    part.received += delta.length
    const text = part.joiner.push(delta)
    if (text === '') return
    this.#other(push)
    push({ type: 'reasoning', text, part: summary })
  }

  /** Open models show their raw reasoning; it is passed on as a summary (wire.md F.8). */
  #rawReasoning(index: number, delta: string, push: Push): void {
    const item = this.#item(index, 'reasoning')
    if (item.summarised) return push({ type: 'activity' })
    const text = this.#part(item, 0).joiner.push(delta)
    if (text === '') return
    this.#other(push)
    push({ type: 'reasoning', text, part: 0 })
  }

  #endReasoning(index: number, item: JsonObject, push: Push): void {
    const state = this.#item(index, 'reasoning')
    const summary = list(item['summary'])
    for (const [position, entry] of summary.entries()) {
      const text = string(object(entry)['text'])
      this.#summary(index, position, text.slice(state.parts.get(position)?.received ?? 0), push)
    }
    const rawSeen = state.parts.size > 0
    if (!state.summarised && !rawSeen) {
      for (const entry of list(item['content'])) this.#rawReasoning(index, string(object(entry)['text']), push)
    }
    this.#other(push)
    const encrypted = string(item['encrypted_content'])
    if (encrypted === '') return push({ type: 'reasoning_end' })
    const kept: JsonObject = { type: 'reasoning', encrypted_content: encrypted, summary }
    this.#reasoning.push(kept)
    push({ type: 'reasoning_end', continuation: this.#continuation({ reasoning: [kept] }) })
  }

  #continuation(data: ResponsesContinuation): Continuation {
    return { dialect: NAME, model: this.#context.backend.model, data }
  }

  // ---- calls --------------------------------------------------------------------------------------------------------

  #startCall(index: number, item: JsonObject, push: Push): void {
    const state = this.#item(index, 'call')
    if (state.call !== -1) return
    state.kind = 'call'
    state.call = this.#calls++
    this.#other(push)
    const { name, namespace } = this.#state.names.fromUpstream(string(item['name']))
    const continuation =
      this.#reasoning.length === 0 ? undefined : this.#continuation({ reasoning: this.#reasoning.splice(0) })
    push({
      type: 'tool_call',
      index: state.call,
      id: this.#context.mintCallId(),
      kind: item['type'] === 'custom_tool_call' ? 'custom' : 'function',
      name,
      ...(namespace === undefined ? undefined : { namespace }),
      ...(continuation ? { continuation } : undefined),
    })
  }

  #args(index: number, delta: string, push: Push): void {
    const state = this.#items.get(index)
    if (state?.kind !== 'call' || state.done || delta === '') return
    const part = this.#part(state, 0)
    part.received += delta.length
    const text = part.joiner.push(delta)
    if (text !== '') push({ type: 'tool_args', index: state.call, text })
  }

  #restOfArgs(index: number, whole: string, push: Push): void {
    const received = this.#items.get(index)?.parts.get(0)?.received ?? 0
    this.#args(index, whole.slice(received), push)
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  #terminal(status: string, response: JsonObject, push: Push): void {
    if (status === 'failed' || status === 'cancelled') {
      return this.#fail(failureOf(response['error']), push)
    }
    const output = list(response['output']).slice(0, MOST_ITEMS).map(object)
    const taken = new Set<number>()
    const began = [...this.#items.keys()]
    const places = output.map((item, position) => {
      let place = this.#placeInOutput(item, position, began)
      // An item that only the whole response has, with the id of another.
      if (taken.has(place)) place = this.#named === 0 ? position : -++this.#named
      taken.add(place)
      return place
    })
    for (const [position, item] of output.entries()) this.#done(places[position]!, item, push)
    this.#searches.settle(push)
    this.#usage(response, push)
    this.#finish = { type: 'finish', reason: this.#reason(status, response) }
  }

  #reason(status: string, response: JsonObject): FinishEvent['reason'] {
    if (status === 'incomplete') {
      return object(response['incomplete_details'])['reason'] === 'content_filter' ? 'content_filter' : 'length'
    }
    if (this.#calls > 0) return 'tool_calls'
    return this.#refused ? 'refusal' : 'stop'
  }

  #usage(response: JsonObject, push: Push): void {
    const fields = response['usage']
    if (!isObject(fields)) return
    const input = object(fields['input_tokens_details'])
    const usage = knownUsage({
      prompt: count(fields['input_tokens']),
      cached: count(input['cached_tokens']),
      cacheWrite: count(input['cache_write_tokens']),
      output: count(fields['output_tokens']),
      reasoning: count(object(fields['output_tokens_details'])['reasoning_tokens']),
      searches: this.#searches.count > 0 ? this.#searches.count : undefined,
      tier: tierOf(response['service_tier']),
    })
    push({ type: 'usage', usage })
  }
}

function searchEnd(item: JsonObject, continuation: Continuation) {
  const action = object(item['action'])
  const queries = list(action['queries'])
    .map(string)
    .filter(query => query !== '')
  const url = string(action['url'])
  const urls = list(action['sources']).map(source => plainUrl(string(object(source)['url'])))
  if (urls.length === 0 && url !== '') urls.push(url)
  const end = {
    // Opening a page, or finding a word in it, counts as a step of the same search.
    query: string(action['query']) || queries.join('; ') || string(action['pattern']) || url,
    results: urls.filter(u => u !== '').map(u => ({ title: u, url: u })),
    continuation,
  }
  return item['status'] === 'failed' ? { ...end, errorCode: 'unavailable' } : end
}

/** Removes the query parameter by which the provider marks every link (GEN-7). */
function plainUrl(url: string): string {
  return url.replace('?utm_source=openai&', '?').replace(/[?&]utm_source=openai(?=$|[&#])/, '')
}

/** Converts an offset: the provider counts code points, the contract UTF-16 units (wire.md C.2). */
function utf16Offset(text: string, characters: number | undefined): number | undefined {
  if (characters === undefined) return undefined
  let units = 0
  for (let left = characters; left > 0 && units < text.length; left--) {
    units += (text.charCodeAt(units) & 0xfc00) === 0xd800 ? 2 : 1
  }
  return Math.min(units, text.length)
}

/** What an error object inside a reply of status 200 means. */
function failureOf(error: unknown): GatewayError {
  return faultOf(kindOfOpenAiError(error), null, toldIn(error))
}

function idOf(id: string): string {
  return id.length > LONGEST_ID ? '' : id
}

function kindOf({ type }: JsonObject): ItemState['kind'] {
  switch (type) {
    case 'message':
    case 'reasoning':
      return type
    case 'function_call':
    case 'custom_tool_call':
      return 'call'
    case 'web_search_call':
      return 'search'
    default:
      return 'other'
  }
}
