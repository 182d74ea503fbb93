/** Puts the data of a prompt back into its reply, wherever the reply's text is cut. */
import type { Conversation, StreamEvent } from 'sluice'
import { KIND_LETTERS, TOKEN_LETTERS } from './find.ts'

type Part = Conversation['turns'][number]['parts'][number]

/** What one exchange has masked, by token, and the state of its reply. */
export interface Masked {
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
/** The longest beginning: `[`, a kind, `_` and the letters. */
const LONGEST = 1 + KIND_LETTERS + 1 + TOKEN_LETTERS

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

export function show(state: Masked, event: StreamEvent, push: (event: StreamEvent) => void): void {
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
    // Members of the first event other than its text (an id, log probabilities) go with the first text that is sent.
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

/** A part of the client's own prompt, as it sent it. */
function restored(state: Masked, part: Part): Part {
  if (part.type === 'text') return { ...part, text: restore(state, part.text, false) }
  if (part.type !== 'document') return part
  const { source, title, context } = part
  return {
    ...part,
    ...(source.kind === 'text' && { source: { kind: 'text', text: restore(state, source.text, false) } }),
    ...(title !== undefined && { title: restore(state, title, false) }),
    ...(context !== undefined && { context: restore(state, context, false) }),
  }
}

/** The events that hold their texts whole. */
function shown(state: Masked, event: StreamEvent): StreamEvent {
  if (event.type === 'search_end') return { ...event, query: restore(state, event.query, false) }
  if (event.type === 'compaction') {
    const kept = event.kept.map(turn => ({ ...turn, parts: turn.parts.map(part => restored(state, part)) }))
    return { ...event, summary: restore(state, event.summary, false), kept }
  }
  if (event.type !== 'finish') return event
  const { stopSequence, explanation } = event
  return {
    ...event,
    ...(stopSequence !== undefined && { stopSequence: restore(state, stopSequence, false) }),
    ...(explanation !== undefined && { explanation: restore(state, explanation, false) }),
  }
}
