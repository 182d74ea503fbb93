/**
 * Helpers for the tests of dialects: conversations and backends with defaults, golden files, and a check of the grammar
 * of events.
 */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import type { Conversation, Part, Turn } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import type { Backend, Decoder, Dialect, OutboundContext } from '../../core/ports/dialect.ts'
import { FORMS } from '../forms.ts'

export type ConversationInit = Partial<Omit<Conversation, 'sampling'>> & {
  sampling?: Partial<Conversation['sampling']>
}

export function conversationOf(init: ConversationInit = {}): Conversation {
  const { sampling, ...rest } = init
  return {
    surface: 'responses',
    form: FORMS[init.surface ?? 'responses'],
    requestedModel: 'eb1-preview',
    model: 'eb1-preview',
    stream: true,
    system: [],
    turns: [{ role: 'user', parts: [{ type: 'text', text: 'Hello' }] }],
    tools: [],
    toolChoice: { type: (init.tools?.length ?? 0) > 0 ? 'auto' : 'none' },
    parallelToolCalls: true,
    reasoning: {},
    ...rest,
    sampling: { stop: [], logprobs: false, ...sampling },
  }
}

export type BackendInit = Partial<Omit<Backend, 'supports' | 'nativeTools'>> & {
  supports?: Iterable<string>
  nativeTools?: Iterable<string>
}

export function backendOf(dialect: Dialect, init: BackendInit = {}): Backend {
  const { supports, nativeTools, ...rest } = init
  return {
    id: 'upstream/large',
    provider: 'upstream',
    dialect: dialect.name,
    baseUrl: 'https://upstream.example/v1',
    apiKey: 'test-key',
    headers: {},
    model: 'large-1',
    weight: 1,
    settings: { provider: {}, backend: { max_tokens_field: 'max_tokens' } },
    ...rest,
    supports: new Set(supports ?? dialect.capabilities) as Backend['supports'],
    nativeTools: new Set(nativeTools ?? []),
  }
}

export function contextOf(stream = true): OutboundContext {
  return { stream, upstreamCallId: id => `up_${id.replace(/[^A-Za-z0-9_-]/g, '_').slice(-30)}` }
}

/** The decoder that the dialect gives with its request for this conversation. */
export function decoderFor(dialect: Dialect, conversation: Conversation, backend = backendOf(dialect)): Decoder {
  let calls = 0
  let searches = 0
  return dialect.decoder({
    backend,
    conversation,
    state: dialect.request(conversation, backend, contextOf()).state,
    mintCallId: () => `call_eba1_${calls++}`,
    mintSearchId: () => `hist_eba1_${searches++}`,
  })
}

// ---- golden files ---------------------------------------------------------------------------------------------------

const GOLDEN = new URL('./golden/', import.meta.url)
const LINE = '\n----------\n'

export interface Golden {
  name: string
  sections: string[]
  /** Compares a text with the last section. With `UPDATE_GOLDEN=1` it writes the text there instead. */
  expect(actual: string): void
}

/**
 * The golden files of a folder. Lines of ten dashes divide a file into sections. The last section is the expected text.
 */
export function goldens(folder: string): Golden[] {
  const directory = new URL(folder + '/', GOLDEN)
  return readdirSync(directory)
    .sort()
    .map(name => {
      const file = new URL(name, directory)
      const text = readFileSync(file, 'utf8')
      const sections = text.split(LINE)
      return {
        name,
        sections: sections.slice(0, -1),
        expect(actual: string): void {
          if (process.env['UPDATE_GOLDEN']) writeFileSync(file, [...sections.slice(0, -1), actual].join(LINE) + '\n')
          else assert.equal(actual.trim(), sections.at(-1)!.trim())
        },
      }
    })
}

/** The frames of an SSE text, as the SSE reader gives them to a decoder. */
export function framesOf(text: string): { event: string; data: string }[] {
  return text
    .split('\n\n')
    .filter(block => block.trim() !== '')
    .map(block => {
      let event = ''
      const data = []
      for (const line of block.split('\n')) {
        if (line.startsWith('event: ')) event = line.slice(7)
        else if (line.startsWith('data: ')) data.push(line.slice(6))
      }
      return { event, data: data.join('\n') }
    })
}

export interface ReplySetup {
  conversation?: ConversationInit
  backend?: BackendInit
}

/** The events of a stream. When `frames` is given, the stream is cut after that many frames. */
export function decodeFrames(
  dialect: Dialect,
  setup: ReplySetup,
  frames: { event: string; data: string }[],
): StreamEvent[] {
  const conversation = conversationOf(setup.conversation)
  const decoder = decoderFor(dialect, conversation, backendOf(dialect, setup.backend))
  const events: StreamEvent[] = []
  const push = (event: StreamEvent) => events.push(event)
  for (const frame of frames) decoder.frame(frame.event, frame.data, push)
  decoder.end(push)
  return events
}

export function decodeBody(dialect: Dialect, setup: ReplySetup, body: string): StreamEvent[] {
  const conversation = conversationOf(setup.conversation)
  const decoder = decoderFor(dialect, conversation, backendOf(dialect, setup.backend))
  const events: StreamEvent[] = []
  decoder.body(body, event => events.push(event))
  return events
}

/** The events as text: one line of JSON for each event, and only the code of an error. */
export function printed(events: readonly StreamEvent[]): string {
  return events
    .map(event =>
      event.type === 'error'
        ? JSON.stringify({ type: 'error', code: event.error.code, retriable: event.error.retriable })
        : JSON.stringify(event),
    )
    .join('\n')
}

// ---- replay ---------------------------------------------------------------------------------------------------------

/**
 * The turns with which a client continues after a reply: the reply itself, with the private data that the store has
 * added again, and a result for every call.
 * @param all whether the client sends back reasoning and searches too (Responses, Messages), or only text and calls
 * (Chat)
 */
export function replayOf(events: readonly StreamEvent[], all: boolean): Turn[] {
  const parts: Part[] = []
  const results: Part[] = []
  for (const event of sequenced(events)) {
    const last = parts.at(-1)
    switch (event.type) {
      case 'text':
        if (last?.type === 'text') last.text += event.text
        else parts.push({ type: 'text', text: event.text })
        break
      case 'break':
        parts.push({ type: 'text', text: '' })
        break
      case 'reasoning_end':
        if (all) parts.push({ type: 'reasoning', summary: [], continuation: event.continuation })
        break
      case 'search_end': {
        const { id, query, results: found, continuation } = event
        if (all) parts.push({ type: 'search', id, query, results: found, continuation })
        break
      }
      case 'tool_call': {
        const { id, kind, name, namespace, continuation } = event
        parts.push({ type: 'call', id, kind, name, namespace, input: '', path: '', continuation })
        results.push({ type: 'result', callId: id, kind, content: [{ type: 'text', text: 'done' }], path: '' })
        break
      }
      case 'tool_args':
        if (last?.type === 'call') last.input += event.text
    }
  }
  const turns: Turn[] = [{ role: 'assistant', parts: parts.filter(part => part.type !== 'text' || part.text !== '') }]
  if (results.length > 0) turns.push({ role: 'tool', parts: results })
  return turns
}

/** The events of a reply fixture. */
export function replyEvents(dialect: Dialect, name: string): { setup: ReplySetup; events: StreamEvent[] } {
  const golden = goldens(`${dialect.name}/replies`).find(file => file.name === `${name}.txt`)!
  const setup = JSON.parse(golden.sections[0]!) as ReplySetup
  return { setup, events: decodeFrames(dialect, setup, framesOf(golden.sections[1]!)) }
}

/** The frames of a reply fixture. */
export function replyFrames(dialect: Dialect, name: string): { event: string; data: string }[] {
  return framesOf(goldens(`${dialect.name}/replies`).find(file => file.name === `${name}.txt`)!.sections[1]!)
}

/** The parsed body of the request that the dialect makes for the provider. */
export function bodyOf(dialect: Dialect, conversation: ConversationInit, backend?: BackendInit): any {
  return JSON.parse(dialect.request(conversationOf(conversation), backendOf(dialect, backend), contextOf()).body)
}

/** Why the dialect cannot serve the conversation; null when it can. */
export function unfitOf(dialect: Dialect, conversation: ConversationInit, backend?: BackendInit): string | null {
  return dialect.unfit(conversationOf(conversation), backendOf(dialect, backend))?.param ?? null
}

// ---- events ---------------------------------------------------------------------------------------------------------

/** The events after core has put them in sequence (core/engine/sequence.ts). */
export function sequenced(events: readonly StreamEvent[]): StreamEvent[] {
  const out: StreamEvent[] = []
  const sequencer = new Sequencer(event => out.push(event))
  for (const event of events) sequencer.push(event)
  if (!events.some(event => event.type === 'error')) sequencer.end({ type: 'finish', reason: 'stop' })
  return out
}

/**
 * The content of a reply in a form that is equal for a stream and a buffered reply: deltas are joined, arguments are
 * parsed, and signs of activity are left out.
 */
export function gist(events: readonly StreamEvent[]): unknown[] {
  const out: any[] = []
  for (const event of sequenced(events)) {
    if (event.type === 'activity') continue
    // A citation may arrive before or after the rest of its text.
    const last = event.type === 'text' ? out.findLast(earlier => earlier.type !== 'citation') : out.at(-1)
    if (event.type === 'text' && last?.type === 'text') {
      last.text += event.text
      if (event.logprobs) last.logprobs = [...(last.logprobs ?? []), ...event.logprobs]
    } else if (event.type === 'refusal' && last?.type === 'refusal') last.text += event.text
    else if (event.type === 'reasoning' && last?.type === 'reasoning' && last.part === event.part)
      last.text += event.text
    else if (event.type === 'tool_args' && last?.type === 'tool_args') last.text += event.text
    else if (event.type === 'error') out.push({ type: 'error', code: event.error.code })
    else out.push({ ...event })
  }
  for (const event of out) {
    if (event.type !== 'tool_args') continue
    try {
      event.text = JSON.parse(event.text)
    } catch {
      // This is the input of a custom tool, or of a call that was cut off.
    }
  }
  return out
}

/** Asserts that sequenced events follow the grammar of core/canon/events.ts. */
export function assertGrammar(events: readonly StreamEvent[]): void {
  let open: 'text' | 'reasoning' | 'call' | 'search' | '' = ''
  let calls = 0
  let searchId = ''
  let usage = false
  let over = false
  for (const event of events) {
    assert.equal(over, false, `nothing follows the end: ${event.type}`)
    switch (event.type) {
      case 'activity':
        break
      case 'text':
      case 'refusal':
        assert.ok(open !== 'call' && open !== 'search' && open !== 'reasoning', `${event.type} inside ${open}`)
        assert.ok(event.text !== '' || (event.type === 'text' && event.logprobs), 'no empty delta')
        open = 'text'
        break
      case 'citation':
        assert.equal(open, 'text', 'a citation belongs to a text')
        break
      case 'break':
        assert.equal(open, 'text', 'a break divides texts')
        break
      case 'reasoning':
        assert.ok(open !== 'call' && open !== 'search', `reasoning inside ${open}`)
        open = 'reasoning'
        break
      case 'reasoning_end':
        assert.ok(open !== 'call' && open !== 'search', `reasoning_end inside ${open}`)
        open = ''
        break
      case 'tool_call':
        assert.ok(open !== 'call' && open !== 'search' && open !== 'reasoning', `tool_call inside ${open}`)
        assert.equal(event.index, calls++, 'indexes are dense')
        assert.match(event.id, /^call_eba1_/)
        open = 'call'
        break
      case 'tool_args':
        assert.equal(open, 'call')
        assert.equal(event.index, calls - 1)
        assert.notEqual(event.text, '')
        break
      case 'tool_end':
        assert.equal(open, 'call')
        open = ''
        break
      case 'search_start':
        assert.ok(open !== 'call' && open !== 'search' && open !== 'reasoning', `search inside ${open}`)
        searchId = event.id
        open = 'search'
        break
      case 'search_end':
        assert.equal(open, 'search')
        assert.equal(event.id, searchId)
        open = ''
        break
      case 'usage':
        assert.equal(usage, false, 'one usage')
        usage = true
        break
      case 'finish':
        over = true
        assert.ok(open !== 'search' && open !== 'reasoning', `finish inside ${open}`)
        if (open === 'call')
          assert.ok(event.reason !== 'tool_calls' && event.reason !== 'stop', 'only a cut call is left open')
        break
      case 'error':
        over = true
        break
      case 'bytes':
        assert.fail('bytes from a decoder')
    }
  }
  assert.ok(over, 'the list has an end')
}
