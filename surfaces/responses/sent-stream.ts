/**
 * A stream of Responses that can be read again (RESP-8): the reply itself, and a log that says how its text was cut
 * into events. From both the frames are made anew, byte for byte, from any event on. The log takes about one byte for
 * each event; a reader is a place in it, so any number of readers costs no copy of the stream.
 */

import type { SentStream, StreamReader } from '../../core/ports/surface.ts'
import { keepNumbers, nestsDeeply } from '../../core/tools/json.ts'
import type { MessageItem, OutputItem, TextContent } from './items.ts'
import type { Status } from './reply.ts'

/**
 * What the log says of an event: kinds that need no more words, and deltas. A delta without log probabilities is
 * `DELTA` plus the UTF-16 units of its text; one that has some is `DELTA_WITH_LOGPROBS`, with both numbers behind it.
 */
export const KEEP_ALIVE = 0
/** What comes next in the grammar of wire.md D.2, as the output shows. */
export const NEXT = 1
export const ITEM_DONE = 2
export const ANNOTATION = 3
export const FAILURE = 4
const DELTA_WITH_LOGPROBS = 5
const DELTA = 6

/** The events of a stream in order, as numbers of a variable length: seven bits in each byte, the lowest first. */
export class EventLog {
  #bytes: Uint8Array
  #length = 0
  #count = 0
  #units = 0

  constructor(bytes: Uint8Array = new Uint8Array(64)) {
    this.#bytes = bytes
  }

  /** @throws RangeError when it is not the text of a log */
  static parse(text: string): EventLog {
    const log = new EventLog(Buffer.from(text, 'base64url'))
    log.#length = log.#bytes.length
    for (let at = 0; at < log.#length; log.#count++) {
      const word = log.read(at)
      at = word.end
      if (word.value === DELTA_WITH_LOGPROBS) at = log.read(log.read(at).end).end
    }
    return log
  }

  /** The number of events. */
  get count(): number {
    return this.#count
  }
  get bytes(): number {
    return this.#length
  }
  /** UTF-16 units of what the deltas brought. */
  get units(): number {
    return this.#units
  }

  event(kind: number): void {
    this.#count++
    this.#push(kind)
  }

  /**
   * @param units of its text
   * @param logprobs how many it has
   * @param brought UTF-16 units of both
   */
  delta(units: number, logprobs = 0, brought = units): void {
    this.#units += brought
    if (logprobs === 0) return this.event(DELTA + units)
    this.event(DELTA_WITH_LOGPROBS)
    this.#push(units)
    this.#push(logprobs)
  }

  #push(value: number): void {
    if (this.#length + 5 > this.#bytes.length) {
      const larger = new Uint8Array(2 * this.#bytes.length)
      larger.set(this.#bytes)
      this.#bytes = larger
    }
    for (; value > 0x7f; value >>>= 7) this.#bytes[this.#length++] = 0x80 | (value & 0x7f)
    this.#bytes[this.#length++] = value
  }

  /** The number at this place, and where the next one begins. */
  read(at: number): { value: number; end: number } {
    let value = 0
    for (let shift = 0; ; shift += 7) {
      const byte = this.#bytes[at++]
      if (byte === undefined || shift > 28) throw new RangeError('a log of events is broken')
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) return { value, end: at }
    }
  }

  toString(): string {
    return Buffer.from(this.#bytes.buffer, this.#bytes.byteOffset, this.#length).toString('base64url')
  }
}

/** What the frames are made of: a reply that grows, or one that is finished. */
export interface StreamParts {
  readonly output: readonly OutputItem[]
  /** JSON of the Response object before its first item. */
  opening(): string
  /** The members of the event `error`, as JSON without braces. */
  failure(): string
  status(): Status
  /** JSON of the Response object as it is. */
  object(): string
}

export class ResponsesSentStream implements SentStream {
  readonly #log: EventLog
  readonly #parts: StreamParts
  /** Bytes of all but log and text. */
  readonly #rest: number

  constructor(log: EventLog, parts: StreamParts, rest: number) {
    this.#log = log
    this.#parts = parts
    this.#rest = rest
  }

  get count(): number {
    return this.#log.count
  }
  get size(): number {
    return this.#rest + this.#log.bytes + 2 * this.#log.units
  }
  events(): string {
    return this.#log.toString()
  }
  object(): string {
    return this.#parts.object()
  }
  read(after: number): StreamReader {
    return new Reader(this.#log, this.#parts, after)
  }
}

/**
 * The stream of a finished response.
 * @param object JSON text of the Response object
 * @param events what `events()` of the stream gave; undefined when there was no stream: it is then made as one whose
 * parts have one delta each
 */
export function streamOf(object: string, events: string | undefined): SentStream {
  const response = JSON.parse(object) as Record<string, unknown> & { output: OutputItem[]; status: Status }
  // Arguments of a search for tools are the one JSON in it that a model wrote.
  if (!nestsDeeply(object)) keepNumbers(response, object, ['output', '*', 'arguments'])
  const { output, status } = response
  const log = events ? EventLog.parse(events) : logOf(output)
  const { warning: _, ...begun } = response
  Object.assign(begun, { status: 'in_progress', completed_at: null, incomplete_details: null, output: [], usage: null })
  const opening = JSON.stringify(begun)
  return new ResponsesSentStream(
    log,
    { output, opening: () => opening, failure: () => '', status: () => status, object: () => object },
    2 * (object.length + opening.length),
  )
}

/** The log of a stream that would have sent each text in one piece. */
function logOf(output: readonly OutputItem[]): EventLog {
  const log = new EventLog()
  const frames = (count: number) => {
    for (let i = 0; i < count; i++) log.event(NEXT)
  }
  const text = (text: string, logprobs = 0) => {
    if (text !== '' || logprobs > 0) log.delta(text.length, logprobs)
  }
  frames(2)
  for (const item of output) {
    frames(1)
    switch (item.type) {
      case 'message':
        for (const part of item.content) {
          frames(1)
          if (part.type === 'refusal') text(part.refusal)
          else {
            text(part.text, part.logprobs.length)
            for (let i = 0; i < part.annotations.length; i++) log.event(ANNOTATION)
          }
          frames(2)
        }
        break
      case 'reasoning':
        for (const part of item.summary) {
          frames(1)
          text(part.text)
          frames(2)
        }
        break
      case 'function_call':
      case 'custom_tool_call':
        text(item.type === 'function_call' ? item.arguments : item.input)
        if (item.status !== 'incomplete') frames(1)
        break
      case 'web_search_call':
        frames(item.status === 'incomplete' ? 2 : 3)
        break
    }
    log.event(ITEM_DONE)
  }
  frames(1)
  return log
}

class Reader implements StreamReader {
  readonly #log: EventLog
  readonly #parts: StreamParts
  readonly #after: number
  #at = 0
  #sequence = 0
  /** Index of the item whose frames come next; -1 before the first, which the frames that open the stream precede. */
  #item = -1
  /** How many frames opened the stream; then how many frames of a search were there. 0: the item is not added yet. */
  #step = 0
  /** Index of the part whose frames come next, and how many of its frames were there. */
  #part = 0
  #partStep = 0
  /** Where the next delta begins in its text, the next log probability and the next annotation in their part. */
  #from = 0
  #logprob = 0
  #annotation = 0
  #failed = false

  constructor(log: EventLog, parts: StreamParts, after: number) {
    this.#log = log
    this.#parts = parts
    this.#after = after
  }

  get sequence(): number {
    return this.#sequence
  }

  next(visible: number): string | undefined {
    if (this.#sequence >= visible) return undefined
    const kind = this.#number()
    switch (kind) {
      case KEEP_ALIVE:
        return this.#frame('keepalive')
      case FAILURE:
        this.#failed = true
        return this.#frame('error', () => this.#parts.failure())
      case ANNOTATION:
        return this.#annotated()
      case NEXT:
        return this.#next()
      case ITEM_DONE:
        return this.#done()
      case DELTA_WITH_LOGPROBS: {
        const units = this.#number()
        return this.#delta(units, this.#number())
      }
      default:
        return this.#delta(kind - DELTA, 0)
    }
  }

  #number(): number {
    const { value, end } = this.#log.read(this.#at)
    this.#at = end
    return value
  }

  #next(): string {
    if (this.#item < 0) {
      const type = this.#step++ === 0 ? 'response.created' : 'response.in_progress'
      if (this.#step === 2) this.#nextItem()
      return this.#frame(type, () => `"response":${this.#parts.opening()}`)
    }
    const item = this.#failed ? undefined : this.#parts.output[this.#item]
    if (!item) return this.#frame(`response.${this.#parts.status()}`, () => `"response":${this.#parts.object()}`)
    if (this.#step === 0) {
      this.#step++
      return this.#frame(
        'response.output_item.added',
        () => `"output_index":${this.#item},"item":${JSON.stringify(asAdded(item))}`,
      )
    }
    return this.#inside(item)
  }

  /** The next frame between those that open and close an item, deltas and annotations apart. */
  #inside(item: OutputItem): string {
    switch (item.type) {
      case 'message':
      case 'reasoning':
        return this.#ofPart(item)
      case 'function_call':
      case 'custom_tool_call':
        return item.type === 'function_call'
          ? this.#frame(
              'response.function_call_arguments.done',
              () =>
                `${this.#inItem()},"name":${JSON.stringify(item.name)},"arguments":${JSON.stringify(item.arguments)}`,
            )
          : this.#frame(
              'response.custom_tool_call_input.done',
              () => `${this.#inItem()},"input":${JSON.stringify(item.input)}`,
            )
      default:
        return this.#frame(SEARCH_FRAMES[this.#step++ - 1]!, () => this.#inItem())
    }
  }

  #ofPart(item: PartedItem): string {
    const part = partsOf(item)[this.#part]!
    const at = this.#inPart()
    const { part: ofPart, text: ofText } = PART_FRAMES[part.type]
    switch (this.#partStep++) {
      case 0:
        return this.#frame(`${ofPart}.added`, () => `${at},"part":${JSON.stringify(EMPTY_PARTS[part.type])}`)
      case 1:
        return this.#frame(`${ofText}.done`, () => {
          if (part.type === 'refusal') return `${at},"refusal":${JSON.stringify(part.refusal)}`
          const text = `${at},"text":${JSON.stringify(part.text)}`
          return part.type === 'output_text' ? `${text},"logprobs":${JSON.stringify(part.logprobs)}` : text
        })
      default:
        this.#nextPart()
        return this.#frame(`${ofPart}.done`, () => `${at},"part":${JSON.stringify(part)}`)
    }
  }

  #done(): string {
    const index = this.#item
    this.#nextItem()
    return this.#frame(
      'response.output_item.done',
      () => `"output_index":${index},"item":${JSON.stringify(this.#parts.output[index])}`,
    )
  }

  #delta(units: number, logprobs: number): string {
    const from = this.#from
    const firstLogprob = this.#logprob
    this.#from += units
    this.#logprob += logprobs
    const item = this.#parts.output[this.#item]!
    const delta = (text: string) => `,"delta":${JSON.stringify(text.slice(from, from + units))}`
    switch (item.type) {
      case 'message':
      case 'reasoning': {
        const part = partsOf(item)[this.#part]!
        return this.#frame(`${PART_FRAMES[part.type].text}.delta`, () => {
          if (part.type === 'refusal') return this.#inPart() + delta(part.refusal)
          const text = this.#inPart() + delta(part.text)
          if (part.type !== 'output_text') return text
          return `${text},"logprobs":${JSON.stringify(part.logprobs.slice(firstLogprob, firstLogprob + logprobs))}`
        })
      }
      case 'custom_tool_call':
        return this.#frame('response.custom_tool_call_input.delta', () => this.#inItem() + delta(item.input))
      default:
        return this.#frame('response.function_call_arguments.delta', () =>
          item.type === 'function_call' ? this.#inItem() + delta(item.arguments) : '',
        )
    }
  }

  #annotated(): string {
    const index = this.#annotation++
    return this.#frame('response.output_text.annotation.added', () => {
      const { annotations } = (this.#parts.output[this.#item] as MessageItem).content[this.#part] as TextContent
      return `${this.#inPart()},"annotation_index":${index},"annotation":${JSON.stringify(annotations[index])}`
    })
  }

  #nextItem(): void {
    this.#item++
    this.#step = 0
    this.#part = -1
    this.#nextPart()
  }

  #nextPart(): void {
    this.#part++
    this.#partStep = this.#from = this.#logprob = this.#annotation = 0
  }

  /** @param members is called only for a frame that the reader wants */
  #frame(type: string, members?: () => string): string {
    const sequence = this.#sequence++
    if (sequence <= this.#after) return ''
    const more = members ? `,${members()}` : ''
    return `event: ${type}\ndata: {"type":"${type}","sequence_number":${sequence}${more}}\n\n`
  }

  #inItem(): string {
    return `"item_id":"${this.#parts.output[this.#item]!.id}","output_index":${this.#item}`
  }
  #inPart(): string {
    const member = this.#parts.output[this.#item]!.type === 'reasoning' ? 'summary_index' : 'content_index'
    return `${this.#inItem()},"${member}":${this.#part}`
  }
}

type PartedItem = Extract<OutputItem, { type: 'message' | 'reasoning' }>

const partsOf = (item: PartedItem) => (item.type === 'message' ? item.content : item.summary)

const SEARCH_FRAMES = [
  'response.web_search_call.in_progress',
  'response.web_search_call.searching',
  'response.web_search_call.completed',
]

/** The types of the frames of a part, and of its text, without their last words. */
const PART_FRAMES = {
  output_text: { part: 'response.content_part', text: 'response.output_text' },
  refusal: { part: 'response.content_part', text: 'response.refusal' },
  summary_text: { part: 'response.reasoning_summary_part', text: 'response.reasoning_summary_text' },
}

const EMPTY_PARTS = {
  output_text: { type: 'output_text', text: '', annotations: [], logprobs: [] },
  refusal: { type: 'refusal', refusal: '' },
  summary_text: { type: 'summary_text', text: '' },
}

/** An item as `response.output_item.added` has it. */
function asAdded(item: OutputItem): object {
  const status = 'in_progress'
  switch (item.type) {
    case 'message':
      return { ...item, status, content: [] }
    case 'reasoning': {
      const { encrypted_content: _, ...rest } = item
      return { ...rest, status, summary: [] }
    }
    case 'function_call':
      return { ...item, status, arguments: '' }
    case 'custom_tool_call':
      return { ...item, status, input: '' }
    case 'web_search_call':
      return { ...item, status, action: { type: 'search' } }
    case 'tool_search_call':
      return { ...item, status }
    // It is complete when it comes.
    case 'compaction':
      return item
  }
}
