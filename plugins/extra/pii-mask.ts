/**
 * Replaces personal data in prompts by tokens such as `[EMAIL_QWHDKXZB]` before a provider sees them, and replaces the
 * tokens in the reply by the data again: in text, reasoning, refusals, citations and the arguments of tool calls.
 *
 *   - conversation
 *   - pii-mask: { patterns: { EMPLOYEE: 'E-\d{6}' } }    # below conversation, above token-estimate
 *   - token-estimate
 *
 * A token is made from the data and the gateway's secret, so that equal data have equal tokens in all turns and in all
 * requests, and a provider cannot compute one. Only data of this request's own prompt are put back into its reply.
 */
import { createHmac } from 'node:crypto'
import { type Conversation, conversation, definePlugin, type StreamEvent, slot } from 'sluice'

interface Options {
  mask: ('email' | 'card' | 'phone' | 'iban')[]
  patterns: Record<string, string>
  unmask: boolean
}

type Part = Conversation['turns'][number]['parts'][number]
/** Where data stand in a text: from `start` to before `end`. */
interface Span {
  kind: string
  start: number
  end: number
}
/** Finds the data of one kind. Its time grows with the length of the text, and no faster. */
type Finder = (text: string) => Iterable<Span>

/** What one exchange has masked, by token, and the state of its reply. */
interface Masked {
  data: Map<string, string>
  /** The text of the reply is JSON: what is put back must not end a string of it. */
  json: boolean
  /** The arguments of the open call are not JSON. */
  custom: boolean
  open: Open | null
}
/** A run of events that make one text: its end may be the beginning of a token. */
interface Open {
  key: string
  kept: string
  /** The event without a text that is kept whole: members of it, such as an id, go with the next one. */
  waiting: StreamEvent | null
  /** Citations that wait for the text before them. */
  citations: (StreamEvent & { type: 'citation' })[]
  /** UTF-16 units of the text block as the provider wrote it, and where it has grown. */
  length: number
  grown: { at: number; token: number; data: number }[]
}

const TOKEN = /\[[A-Z]{1,12}_[A-Z]{8}\]/g
/** The end of a text that may be the beginning of a token. */
const BEGINNING = /\[(?:[A-Z]{0,12}|[A-Z]{1,12}_[A-Z]{0,8})$/
/** The longest beginning: `[`, a kind, `_` and eight letters. */
const LONGEST = 1 + 12 + 1 + 8

const masked = slot<Masked>('pii-mask.masked')

export default definePlugin<Options>({
  name: 'pii-mask',
  summary: 'Masks mail addresses, card numbers, phone numbers and IBANs in prompts, and unmasks them in replies.',
  config: {
    type: 'object',
    additionalProperties: false,
    properties: {
      mask: {
        type: 'array',
        items: { type: 'string', enum: ['email', 'card', 'phone', 'iban'] },
        uniqueItems: true,
        default: ['email', 'card', 'phone', 'iban'],
        description: 'The kinds of data that are masked.',
      },
      patterns: {
        type: 'object',
        propertyNames: { pattern: '^[A-Z]{1,12}$' },
        additionalProperties: { type: 'string', minLength: 1, maxLength: 1000 },
        default: {},
        description: 'Regular expressions (RE2) of other data, by the word that their tokens begin with.',
      },
      unmask: { type: 'boolean', default: true, description: 'Put the data back into replies.' },
    },
  },
  rewrites: [conversation],
  mayProvide: [masked],
  aboveTerminal: true,
  async create({ mask, patterns, unmask }, { secret }) {
    const finders = [
      ...(await patternFinders(patterns)),
      ...KINDS.filter(kind => mask.includes(kind)).map(kind => FINDERS[kind]),
    ]
    const key = createHmac('sha256', secret).update('pii-mask').digest()
    const tokenOf = (kind: string, data: string): string => {
      const digest = createHmac('sha256', key).update(`${kind}\n${data}`).digest()
      const letters = Array.from({ length: 8 }, (_, i) => String.fromCharCode(65 + (digest.readUInt16BE(2 * i) % 26)))
      return `[${kind}_${letters.join('')}]`
    }
    return {
      onRequest(x) {
        const data = new Map<string, string>()
        const hide = (text: string, quote = '') =>
          replaceSpans(text, finders, (kind, found) => {
            const token = tokenOf(kind, found)
            data.set(token, found)
            return quote + token + quote
          })
        const asked = x.get(conversation)
        const hidden = hideIn(asked, hide)
        if (data.size === 0) return undefined
        x.set(conversation, hidden)
        if (unmask) x.set(masked, { data, json: asked.output !== undefined, custom: false, open: null })
        return undefined
      },
      rewriteEvent(x, event, push) {
        const state = x.peek(masked)
        if (state) show(state, event, push)
        else push(event)
        return undefined
      },
    }
  },
})

// ---- finding --------------------------------------------------------------------------------------------------------

const FINDERS: Record<Options['mask'][number], Finder> = {
  // The local part is read backwards from each @, so that a long text without one costs nothing.
  *email(text) {
    const domain = /(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z][A-Za-z0-9-]{0,61}[A-Za-z0-9]/y
    let after = 0
    for (let at = text.indexOf('@'); at !== -1; at = text.indexOf('@', at + 1)) {
      let start = at
      while (start > after && at - start < 64 && /[\p{L}\p{N}._%+-]/u.test(text[start - 1]!)) start--
      domain.lastIndex = at + 1
      if (start === at || !domain.test(text)) continue
      after = domain.lastIndex
      yield { kind: 'EMAIL', start, end: after }
    }
  },
  // 13 to 19 digits in groups that begin and end as the text's groups do, with a right check digit.
  *card(text) {
    for (const { index, 0: run } of text.matchAll(/\d(?:[ -]?\d)*/g)) {
      const places = [...run.matchAll(/\d/g)].map(digit => digit.index)
      for (let first = 0; first + 13 <= places.length; first++) {
        if (places[first - 1] === places[first]! - 1 || !/[2-6]/.test(run[places[first]!]!)) continue
        for (let count = Math.min(19, places.length - first); count >= 13; count--) {
          const last = first + count - 1
          if (places[last + 1] === places[last]! + 1) continue
          if (!luhn(places.slice(first, last + 1).map(place => Number(run[place])))) continue
          yield { kind: 'CARD', start: index + places[first]!, end: index + places[last]! + 1 }
          first = last
          break
        }
      }
    }
  },
  // International numbers of 8 to 15 digits, and those of North America in their usual groups.
  *phone(text) {
    const form =
      /(?<![\w+])(?:(?:\+|00)[1-9](?:[ .()/-]{0,2}\d){7,14}|(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4})(?!\d)/g
    for (const { index, 0: found } of text.matchAll(form)) {
      yield { kind: 'PHONE', start: index, end: index + found.length }
    }
  },
  *iban(text) {
    for (const { index } of text.matchAll(/(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?= ?[A-Za-z0-9])/g)) {
      const country = text.slice(index, index + 2).toUpperCase()
      const length = IBAN_LENGTHS.get(country)
      if (length === undefined) continue
      const form = new RegExp(`(?:[A-Za-z0-9] ?){${length - 1}}[A-Za-z0-9](?![A-Za-z0-9])`, 'y')
      form.lastIndex = index
      if (!form.test(text)) continue
      const number = text.slice(index, form.lastIndex).replaceAll(' ', '').toUpperCase()
      if (mod97(number.slice(4) + number.slice(0, 4)) === 1) yield { kind: 'IBAN', start: index, end: form.lastIndex }
    }
  },
}

/** The first of two that find the same has it: the digits of an IBAN may look like a phone number. */
const KINDS = ['iban', 'email', 'card', 'phone'] as const

/** Length of an IBAN by country (ISO 13616 registry). */
const IBAN_LENGTHS = new Map(
  (
    'AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ' +
    'ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 ' +
    'LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 ' +
    'PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30'
  )
    .split(' ')
    .map(entry => [entry.slice(0, 2), Number(entry.slice(2))]),
)

function luhn(digits: readonly number[]): boolean {
  const sum = digits.reduceRight((sum, digit, i) => {
    const doubled = (digits.length - i) % 2 === 0 ? digit * 2 : digit
    return sum + (doubled > 9 ? doubled - 9 : doubled)
  }, 0)
  return sum % 10 === 0
}

/** The remainder by 97, with A = 10 … Z = 35. */
function mod97(text: string): number {
  let rest = 0
  for (const character of text) {
    const value = Number.parseInt(character, 36)
    rest = (rest * (value > 9 ? 100 : 10) + value) % 97
  }
  return rest
}

/** Finders of configured patterns. RE2 runs in linear time, whatever the pattern and the text are. */
async function patternFinders(patterns: Options['patterns']): Promise<Finder[]> {
  const entries = Object.entries(patterns)
  if (entries.length === 0) return []
  const { RE2JS } = await import('re2js')
  return entries.map(([kind, pattern]): Finder => {
    const compiled = RE2JS.compile(pattern)
    return function* (text) {
      const matcher = compiled.matcher(text)
      while (matcher.find())
        if (matcher.end() > matcher.start()) yield { kind, start: matcher.start(), end: matcher.end() }
    }
  })
}

/** Replaces what the finders find. Where two overlap, the earlier finder's holds; tokens are left as they are. */
function replaceSpans(
  text: string,
  finders: readonly Finder[],
  replace: (kind: string, found: string) => string,
): string {
  const spans: Span[] = []
  for (const find of finders) for (const span of find(text)) spans.push(span)
  if (spans.length === 0) return text
  const tokens = [...text.matchAll(TOKEN)].map(({ index, 0: token }) => ({ start: index, end: index + token.length }))
  const taken = new Uint8Array(text.length)
  for (const { start, end } of tokens) taken.fill(1, start, end)
  const chosen: Span[] = []
  for (const span of spans) {
    if (taken.subarray(span.start, span.end).includes(1)) continue
    taken.fill(1, span.start, span.end)
    chosen.push(span)
  }
  let written = ''
  let at = 0
  for (const { kind, start, end } of chosen.sort((a, b) => a.start - b.start)) {
    written += text.slice(at, start) + replace(kind, text.slice(start, end))
    at = end
  }
  return written + text.slice(at)
}

// ---- the prompt -----------------------------------------------------------------------------------------------------

type Hide = (text: string, quote?: string) => string

/** Every text of the conversation that users and tools write. Images and PDF files are not read. */
function hideIn(asked: Conversation, hide: Hide): Conversation {
  return {
    ...asked,
    system: asked.system.map(part => hidePart(part, hide)),
    turns: asked.turns.map(turn => ({ ...turn, parts: turn.parts.map(part => hidePart(part, hide)) })),
    sampling: { ...asked.sampling, stop: asked.sampling.stop.map(text => hide(text)) },
  }
}

/** The part with its texts masked; the same object when there is nothing to mask. */
function hidePart<P extends Part>(part: P, hide: Hide): P
function hidePart(part: Part, hide: Hide): Part {
  switch (part.type) {
    case 'text':
    case 'refusal': {
      const text = hide(part.text)
      return text === part.text ? part : { ...part, text }
    }
    case 'document': {
      const { source, title, context } = part
      return {
        ...part,
        ...(source.kind === 'text' && { source: { ...source, text: hide(source.text) } }),
        ...(title !== undefined && { title: hide(title) }),
        ...(context !== undefined && { context: hide(context) }),
      }
    }
    case 'call': {
      const input = part.kind === 'function' ? hideJson(part.input, hide) : hide(part.input)
      return input === part.input ? part : { ...part, input }
    }
    case 'result':
      return { ...part, content: part.content.map(content => hidePart(content, hide)) }
    case 'reasoning':
      return { ...part, summary: part.summary.map(text => hide(text)) }
    case 'search':
      return {
        ...part,
        query: hide(part.query),
        results: part.results.map(result => ({
          ...result,
          title: hide(result.title),
          ...(result.text !== undefined && { text: hide(result.text) }),
        })),
      }
    case 'image':
      return part
  }
}

/** Masks within the strings of a JSON text, whose other bytes stay; a card number outside of them becomes a string. */
function hideJson(text: string, hide: Hide): string {
  try {
    JSON.parse(text)
  } catch {
    return hide(text)
  }
  return text.replace(/"(?:[^"\\]|\\.)*"|[^"]+/g, piece => {
    if (piece[0] !== '"') return hide(piece, '"')
    const value = JSON.parse(piece) as string
    const hidden = hide(value)
    return hidden === value ? piece : JSON.stringify(hidden)
  })
}

// ---- the reply ------------------------------------------------------------------------------------------------------

/** Puts the data back for tokens. `json`: into JSON text, as the inside of a string. */
function restore(
  state: Masked,
  text: string,
  json: boolean,
  each?: (at: number, token: string, data: string) => void,
): string {
  return text.replace(TOKEN, (token, at: number) => {
    const data = state.data.get(token)
    if (data === undefined) return token
    const written = json ? JSON.stringify(data).slice(1, -1) : data
    each?.(at, token, written)
    return written
  })
}

/** The run of text that an event belongs to; null for an event without a text. */
function runOf(event: StreamEvent): string | null {
  if (event.type === 'text' || event.type === 'refusal') return event.type
  if (event.type === 'reasoning') return `reasoning ${event.part}`
  if (event.type === 'tool_args') return `call ${event.index}`
  return null
}

function show(state: Masked, event: StreamEvent, push: (event: StreamEvent) => void): void {
  // These may stand within a text.
  if (event.type === 'activity' || event.type === 'usage') return push(event)
  if (event.type === 'citation') {
    const { open } = state
    if (open?.key === 'text') {
      open.citations.push(event)
      if (open.kept === '') tellCitations(state, open, push)
      return
    }
    return push(shownCitation(state, null, event))
  }
  const key = runOf(event)
  if (state.open && state.open.key !== key) {
    const { open } = state
    state.open = null
    if (open.kept !== '') push({ ...open.waiting, text: open.kept } as StreamEvent)
    tellCitations(state, open, push)
  }
  if (event.type === 'tool_call') state.custom = event.kind === 'custom'
  if (key === null) return push(shown(state, event))
  const open = (state.open ??= { key, kept: '', waiting: null, citations: [], length: 0, grown: [] })
  showText(state, open, event as StreamEvent & { text: string }, push)
}

function showText(
  state: Masked,
  open: Open,
  event: StreamEvent & { text: string },
  push: (event: StreamEvent) => void,
): void {
  // Nothing here can be of a token: the event goes on with its log probabilities.
  if (open.kept === '' && !event.text.includes('[')) {
    open.length += event.text.length
    return push(event)
  }
  const text = open.kept + event.text
  const from = Math.max(0, text.length - LONGEST)
  const beginning = BEGINNING.exec(text.slice(from))
  const end = beginning ? from + beginning.index : text.length
  const json = event.type === 'tool_args' ? !state.custom : event.type === 'text' && state.json
  const ready = restore(state, text.slice(0, end), json, (at, token, data) =>
    open.grown.push({ at: open.length + at, token: token.length, data: data.length }),
  )
  open.length += end
  open.kept = text.slice(end)
  // Without log probabilities: they are those of the text that the model wrote.
  const { logprobs, ...rest } = { logprobs: undefined, ...open.waiting, ...event }
  open.waiting = null
  if (ready !== '') push({ ...rest, text: ready } as StreamEvent)
  if (open.kept !== '') {
    // What the first event of a run says beside its text goes with the first text that is sent.
    open.waiting = ready === '' ? (rest as StreamEvent) : withoutId(rest as StreamEvent)
  } else tellCitations(state, open, push)
}

function withoutId(event: StreamEvent): StreamEvent {
  if (event.type !== 'reasoning') return event
  const { id, ...rest } = event
  return rest
}

function tellCitations(state: Masked, open: Open, push: (event: StreamEvent) => void): void {
  for (const event of open.citations.splice(0)) push(shownCitation(state, open, event))
}

/** A citation with its offsets in the text as the client has it. */
function shownCitation(state: Masked, open: Open | null, event: StreamEvent & { type: 'citation' }): StreamEvent {
  const { citation } = event
  const moved = (offset: number, isEnd: boolean): number => {
    let by = 0
    for (const { at, token, data } of open?.grown ?? []) {
      if (at + token <= offset) by += data - token
      // An offset within a token: the start goes to where the data begin, the end to where they end.
      else if (at < offset) return at + by + (isEnd ? data : 0)
    }
    return offset + by
  }
  const { start, end, citedText, title } = citation
  return {
    type: 'citation',
    citation: {
      ...citation,
      title: restore(state, title, false),
      ...(start !== undefined && { start: moved(start, false) }),
      ...(end !== undefined && { end: moved(end, true) }),
      ...(citedText !== undefined && { citedText: restore(state, citedText, false) }),
    },
  }
}

/** The events that hold their texts whole. */
function shown(state: Masked, event: StreamEvent): StreamEvent {
  if (event.type === 'search_end') return { ...event, query: restore(state, event.query, false) }
  if (event.type !== 'finish') return event
  const { stopSequence, explanation } = event
  return {
    ...event,
    ...(stopSequence !== undefined && { stopSequence: restore(state, stopSequence, false) }),
    ...(explanation !== undefined && { explanation: restore(state, explanation, false) }),
  }
}
