/**
 * Reads the JSON of a stream's events. Most events of a reply are the one before with another text in one place: once
 * two such have come, the rest is told by comparing what surrounds the text. The result is exactly that of `JSON.parse`;
 * what differs anywhere else is parsed.
 *
 * It is here for its speed alone: 2.6 to 5.5 times that of a parse, by the dialect, as `npm run bench:frames` shows. To
 * parse each event would make what an event costs the gateway a tenth to a quarter dearer (bench/README.md).
 */
import { BACKSLASH, plainEnd, QUOTE } from '../core/json-text.ts'
import { type JsonObject, parseObject } from './loose-json.ts'

/** Members that hold the text of a delta, in the dialects that have their deltas read here. */
const TEXT = /"(content|text|delta|thinking|partial_json|reasoning_content|arguments)": ?"/
/** Members that differ from event to event and that no decoder reads: OpenAI's counter and its padding. */
const UNREAD = /"sequence_number": ?(?=\d)|"obfuscation": ?"/g
/** Learning costs as much as some ten parses; a reply whose events differ all the time is not worth it. */
const MAX_LEARNT = 8
/** V8 makes a longer slice a view, which keeps the chunk it was cut from in memory. */
const MAX_COPIED = 12
const PROBE = '\u0000probe'

const DIGIT_0 = 0x30
const DIGIT_9 = 0x39

type Hole = 'text' | 'number' | 'string'

/** Events that differ in their holes only: `literals[0] hole[0] literals[1] …`. */
interface Template {
  readonly literals: readonly string[]
  readonly holes: readonly Hole[]
  /** An event parsed; the text of the next goes into `holder[member]`. */
  readonly fields: JsonObject
  readonly holder: JsonObject
  readonly member: string
}

export class FrameParser {
  readonly #isDelta: (fields: JsonObject) => boolean
  #template: Template | undefined
  /** What stood before the text of the last event that might become a template. */
  #before = ''
  #learnt = 0

  /** @param isDelta events whose object the decoder neither keeps nor changes: only they are given out again, with another text */
  constructor(isDelta: (fields: JsonObject) => boolean) {
    this.#isDelta = isDelta
  }

  /** The event's object, good until the next call; undefined when the text is no JSON object. */
  parse(data: string): JsonObject | undefined {
    const template = this.#template
    if (template !== undefined && fill(template, data)) return template.fields
    const fields = parseObject(data)
    if (fields !== undefined && this.#learnt < MAX_LEARNT && this.#isDelta(fields)) this.#learn(data)
    return fields
  }

  #learn(data: string): void {
    const found = TEXT.exec(data)
    if (found === null) return
    // Behind the text's quotation mark.
    const at = found.index + found[0].length
    const before = data.slice(0, at)
    // An event that comes once is not worth it: the first of a reply, the last of an item.
    if (before !== this.#before && (this.#before === '' || before.search(UNREAD) < 0)) {
      this.#before = copyOf(before)
      return
    }
    this.#learnt++
    this.#template = templateOf(data, found[1]!, at)
  }
}

/** Undefined when a hole is not what it seemed: the proof is a parse with other texts in the holes. */
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

/** The same text, without the chunk that it was cut from: a template lives as long as its stream. */
const copyOf = (text: string): string => JSON.parse(JSON.stringify(text)) as string

/** Puts the text of `data` into the template's object. False, and nothing changed, when it differs in more than the holes. */
function fill({ literals, holes, holder, member }: Template, data: string): boolean {
  const first = literals[0]!
  let at = first.length
  // A slice is a view, compared eight bytes at a time; `startsWith` takes one after the other.
  if (data.slice(0, at) !== first) return false
  let text = ''
  for (let i = 0; i < holes.length; i++) {
    const kind = holes[i]!
    // The literal behind a string begins with its closing quote: a string that stops at anything else does not fit.
    let end = kind === 'number' ? numberEnd(data, at) : plainEnd(data, at)
    const escaped = kind === 'text' && data.charCodeAt(end) === BACKSLASH
    if (escaped) end = stringEnd(data, end)
    const literal = literals[i + 1]!
    if (end === -1 || data.slice(end, end + literal.length) !== literal) return false
    if (kind === 'text') {
      if (end - at <= MAX_COPIED && !escaped) text = data.slice(at, end)
      else {
        try {
          text = JSON.parse(data.slice(at - 1, end + 1)) as string
        } catch {
          return false
        }
      }
    }
    at = end + literal.length
  }
  if (at !== data.length) return false
  holder[member] = text
  return true
}

/** Where the string that begins at `at`, behind its quote, ends: its closing quote. -1 when it has none, or holds what no JSON string may. */
function stringEnd(data: string, at: number): number {
  let i = plainEnd(data, at)
  while (data.charCodeAt(i) === BACKSLASH) i = plainEnd(data, i + 2)
  return data.charCodeAt(i) === QUOTE ? i : -1
}

/** End of a whole number without a leading zero; -1 when there is none. */
function numberEnd(data: string, at: number): number {
  let i = at
  while (i < data.length && data.charCodeAt(i) >= DIGIT_0 && data.charCodeAt(i) <= DIGIT_9) i++
  return i === at || (data.charCodeAt(at) === DIGIT_0 && i > at + 1) ? -1 : i
}
