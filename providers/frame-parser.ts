/**
 * Reads the JSON of a stream's events. Most events of a reply equal the event before them, except for one text. After
 * two such events, the parser only compares the JSON around the text. The result is exactly that of `JSON.parse`; an
 * event that differs anywhere else is parsed.
 *
 * It exists only for speed: it is 2.6 to 5.5 times as fast as a parse, depending on the dialect
 * (`npm run bench:frames`). Parsing each event would make the gateway's work for an event a tenth to a quarter more
 * expensive (bench/README.md).
 */

import type { StreamEvent } from '../core/canon/events.ts'
import { withPieces } from '../core/canon/joined.ts'
import { BACKSLASH, plainEnd, QUOTE } from '../core/tools/json-text.ts'
import { type JsonObject, parseObject } from './loose-json.ts'

/** Members that contain the text of a delta, in the dialects that use this parser. */
const TEXT = /"(content|text|delta|thinking|partial_json|reasoning_content|arguments)": ?"/
/** Members that differ from event to event and that no decoder reads: OpenAI's counter and its padding. */
const UNREAD = /"sequence_number": ?(?=\d)|"obfuscation": ?"/g
/**
 * How many templates one reply may learn. Learning one costs about ten parses, which is not worth it for a reply
 * whose events keep changing.
 */
const MAX_LEARNT = 8
/**
 * The longest slice, in UTF-16 units, that V8 copies. A longer slice is a view, which keeps the whole chunk in
 * memory.
 */
const MAX_COPIED = 12
const PROBE = '\u0000probe'

const DIGIT_0 = 0x30
const DIGIT_9 = 0x39

type Hole = 'text' | 'number' | 'string'

/** Describes events that differ only in their holes: `literals[0] hole[0] literals[1] …`. */
interface Template {
  readonly literals: readonly string[]
  readonly holes: readonly Hole[]
  /** A parsed event. The text of the next event is written into `holder[member]`. */
  readonly fields: JsonObject
  readonly holder: JsonObject
  readonly member: string
}

type Push = (event: StreamEvent) => void

/** The lines of a frame before its JSON. */
const HEAD = /(?:event: ?([^\n]*)\n)?data: ?(?=\{)/y

/** Parses the events of one stream. */
export class FrameParser {
  readonly #isDelta: (fields: JsonObject) => boolean
  readonly #joins: (fields: JsonObject) => boolean
  #template: Template | undefined
  /** The JSON before the text of the last event that might become a template. */
  #before = ''
  #learnt = 0
  /** What stood before the JSON of the last run, and its event name. */
  #head = ''
  #event = ''

  /**
   * @param isDelta true for events whose object the decoder neither keeps nor changes: only such an object is
   *   returned again, with another text
   * @param joins true for those of which the decoder makes an event with their very text, so that several are one
   */
  constructor(isDelta: (fields: JsonObject) => boolean, joins: (fields: JsonObject) => boolean = () => false) {
    this.#isDelta = isDelta
    this.#joins = joins
  }

  /** The event's object, valid until the next call; undefined when the text is not a JSON object. */
  parse(data: string): JsonObject | undefined {
    const template = this.#template
    if (template !== undefined && fill(template, data, 0) === data.length) return template.fields
    const fields = parseObject(data)
    if (fields !== undefined && this.#learnt < MAX_LEARNT && this.#isDelta(fields)) this.#learn(data)
    return fields
  }

  /**
   * Reads the frames from `at` on that equal the last ones but for their text: all at once, without a call for each. A
   * stream with ten events a read then takes 0.85 of the CPU time on Chat, 0.9 to 1 on the others (bench/README.md).
   * @param text whole lines of server-sent events, each of which ends with LF
   * @param read is called with the `event:` name of these frames ('' if they have none) and the object of one with all
   *   their text. The event that it pushes leaves as the deltas of them, if it has this text and nothing else.
   * @returns where the next frame begins; `at` when the frame there is another one
   */
  run(text: string, at: number, push: Push, read: (event: string, fields: JsonObject, push: Push) => void): number {
    const template = this.#template
    if (template === undefined || !this.#joins(template.fields)) return at
    if (this.#head === '' || !text.startsWith(this.#head, at)) {
      HEAD.lastIndex = at
      const head = HEAD.exec(text)
      if (head === null) return at
      this.#head = copyOf(head[0])
      this.#event = copyOf(head[1] ?? '')
    }
    const { fields, holder, member } = template
    const head = this.#head
    const pieces: string[] = []
    let end = at
    do {
      const behind = fill(template, text, end + head.length)
      if (behind === -1 || text.charCodeAt(behind) !== LF || text.charCodeAt(behind + 1) !== LF) break
      const piece = holder[member] as string
      if (piece === '') break
      pieces.push(piece)
      end = behind + 2
    } while (text.slice(end, end + head.length) === head)
    if (pieces.length === 0) return at
    const all = pieces.join('')
    holder[member] = all
    read(this.#event, fields, pieces.length === 1 ? push : event => push(withPieces(event, pieces, all)))
    return end
  }

  #learn(data: string): void {
    const found = TEXT.exec(data)
    if (found === null) return
    // The index after the opening quote of the text.
    const at = found.index + found[0].length
    const before = data.slice(0, at)
    // An event that comes only once is not worth a template: the first of a reply, the last of an item.
    if (before !== this.#before && (this.#before === '' || before.search(UNREAD) < 0)) {
      this.#before = copyOf(before)
      return
    }
    this.#learnt++
    this.#template = templateOf(data, found[1]!, at)
  }
}

/**
 * Makes a template from an event. To prove that each hole is really the value of a member, the event is parsed with
 * other texts in its holes. Undefined when a hole is something else.
 */
function templateOf(data: string, member: string, at: number): Template | undefined {
  const holes: { kind: Hole; from: number; to: number }[] = [{ kind: 'text', from: at, to: stringEnd(data, at) }]
  for (const { 0: name, index } of data.matchAll(UNREAD)) {
    const from = index + name.length
    if (name.endsWith('"')) holes.push({ kind: 'string', from, to: stringEnd(data, from) })
    else holes.push({ kind: 'number', from, to: numberEnd(data, from) })
  }
  holes.sort((a, b) => a.from - b.from)
  const literals: string[] = []
  let other = ''
  let last = 0
  for (const { kind, from, to } of holes) {
    if (to === -1 || from < last) return undefined
    const literal = copyOf(data.slice(last, from))
    literals.push(literal)
    other += literal + (kind === 'number' ? '7' : kind === 'text' ? JSON.stringify(PROBE).slice(1, -1) : '')
    last = to
  }
  literals.push(copyOf(data.slice(last)))
  other += data.slice(last)
  let holder: JsonObject | undefined
  try {
    const fields: unknown = JSON.parse(other, function (this: JsonObject, name: string, value: unknown) {
      if (value === PROBE) holder = name === member ? this : undefined
      return value
    })
    if (holder === undefined) return undefined
    return { literals, holes: holes.map(hole => hole.kind), fields: fields as JsonObject, holder, member }
  } catch {
    return undefined
  }
}

/** A copy of the text that does not keep the chunk in memory: a template lives as long as its stream. */
const copyOf = (text: string): string => JSON.parse(JSON.stringify(text)) as string

const LF = 10

/**
 * Puts the text of the event that begins at `at` into the template's object.
 * @returns where the event ends; -1, and nothing is changed, when it differs outside the holes
 */
function fill({ literals, holes, holder, member }: Template, data: string, at: number): number {
  const first = literals[0]!
  // Comparing a slice is faster than `startsWith`: it compares eight bytes at a time instead of one.
  if (data.slice(at, at + first.length) !== first) return -1
  at += first.length
  let text = ''
  for (let i = 0; i < holes.length; i++) {
    const kind = holes[i]!
    // The literal after a string begins with the closing quote, so a string that stops at any other character does
    // not fit.
    let end = kind === 'number' ? numberEnd(data, at) : plainEnd(data, at)
    const escaped = kind === 'text' && data.charCodeAt(end) === BACKSLASH
    if (escaped) end = stringEnd(data, end)
    const literal = literals[i + 1]!
    if (end === -1 || data.slice(end, end + literal.length) !== literal) return -1
    if (kind === 'text') {
      if (end - at <= MAX_COPIED && !escaped) text = data.slice(at, end)
      else {
        try {
          text = JSON.parse(data.slice(at - 1, end + 1)) as string
        } catch {
          return -1
        }
      }
    }
    at = end + literal.length
  }
  holder[member] = text
  return at
}

/**
 * The index of the closing quote of a string whose text begins at `at`. -1 when there is none, or when the string
 * contains a character that JSON forbids.
 */
function stringEnd(data: string, at: number): number {
  let i = plainEnd(data, at)
  while (data.charCodeAt(i) === BACKSLASH) i = plainEnd(data, i + 2)
  return data.charCodeAt(i) === QUOTE ? i : -1
}

/** The end of an integer without a leading zero; -1 when there is none. */
function numberEnd(data: string, at: number): number {
  let i = at
  while (i < data.length && data.charCodeAt(i) >= DIGIT_0 && data.charCodeAt(i) <= DIGIT_9) i++
  return i === at || (data.charCodeAt(at) === DIGIT_0 && i > at + 1) ? -1 : i
}
