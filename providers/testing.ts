/** What `sluice/testing` has for dialects: one of them writes a request and reads a reply, without network. */
import assert from 'node:assert/strict'
import type { ProviderUsage, StreamEvent } from '../core/canon/events.ts'
import { Sequencer } from '../core/engine/sequence.ts'
import type { Conversation } from '../core/plugin.ts'
import { type Backend, CAPABILITIES, type Dialect, type OutboundRequest, type Unfit } from '../core/ports/dialect.ts'

/** A conversation with one user text; `over` replaces members of it. */
export function plainConversation(over: Partial<Conversation> = {}): Conversation {
  return {
    surface: 'chat',
    requestedModel: 'test-model',
    model: 'test-model',
    stream: true,
    system: [],
    turns: [{ role: 'user', parts: [{ type: 'text', text: 'hello' }] }],
    tools: [],
    toolChoice: { type: 'auto' },
    parallelToolCalls: true,
    sampling: { stop: [], logprobs: false },
    reasoning: {},
    ...over,
  }
}

/** A backend that supports everything; `over` replaces members of it. */
export function plainBackend(over: Partial<Backend> = {}): Backend {
  return {
    id: 'local/small',
    provider: 'local',
    dialect: 'openai-chat',
    // No server has this name, so a test that dispatches fails.
    baseUrl: 'http://backend.invalid/v1',
    headers: {},
    model: 'small',
    weight: 1,
    supports: new Set(CAPABILITIES),
    nativeTools: new Set(),
    settings: { provider: {}, backend: { max_tokens_field: 'max_tokens' } },
    ...over,
  }
}

export interface DialectOptions {
  /** Laid over `plainConversation`. */
  conversation?: Partial<Conversation>
  /** Laid over a backend that supports all that the dialect can express. */
  backend?: Partial<Backend>
  /** The frames of a streamed reply: the data of each, or its event name and data. Absent: nothing is read. */
  frames?: readonly (string | { event: string; data: string })[]
  /** A reply of one body. */
  body?: string
}

export interface DialectRun {
  /** Why the backend cannot serve the conversation; null when it can. Nothing is written then. */
  readonly unfit: Unfit | null
  /** The request, its body parsed; undefined when the backend is unfit. */
  readonly request?: Omit<OutboundRequest, 'body'> & { body: any }
  /** What was read of the reply, in the order in which the chain sees it. */
  readonly events: readonly StreamEvent[]
}

/**
 * Writes the request for a conversation and reads a reply to it.
 * @throws AssertionError also for what every dialect owes: it changes no conversation, sends no text that is only
 * counted, and reads without throwing, whatever comes; a reply that breaks off is an error, and nothing follows one
 */
export function runDialect(dialect: Dialect, options: DialectOptions = {}): DialectRun {
  const backend = backendOf(dialect, options.backend)
  const asked = kept(plainConversation(options.conversation))
  const unfit = dialect.unfit(asked, backend)
  if (unfit) return { unfit, events: [] }
  const request = dialect.request(asked, backend, context)
  sendsNoMetered(dialect, asked, backend)
  const read = (frames: DialectOptions['frames'], body?: string) =>
    readReply(dialect, asked, backend, request, frames, body)
  assert.equal(read([]).at(-1)?.type, 'error', 'a stream that ends before it began is an error')
  for (const garbage of GARBAGE) {
    read([garbage])
    assert.equal(read(undefined, garbage).at(-1)?.type, 'error', `a body that is ${garbage || 'empty'} is an error`)
  }
  const { frames, body } = options
  if (frames) for (let i = 1; i < frames.length; i++) read(frames.slice(0, i))
  const events = frames || body !== undefined ? read(frames, body) : []
  return { unfit: null, request: { ...request, body: JSON.parse(request.body) }, events: inOrder(events) }
}

const GARBAGE = ['', '{', '[]', 'null', '"text"', '{"error":null,"choices":[null],"candidates":7,"type":{}}']

const context = {
  stream: true,
  upstreamCallId: (id: string) => `up_${id.replace(/[^A-Za-z0-9_-]/g, '_').slice(-30)}`,
}

function backendOf(dialect: Dialect, over: Partial<Backend> = {}): Backend {
  const { name, capabilities, settings } = dialect
  const defaults = (of: 'provider' | 'backend') =>
    Object.fromEntries(Object.entries(settings?.[of] ?? {}).map(([key, schema]) => [key, schema['default']]))
  const set = { provider: defaults('provider'), backend: defaults('backend') }
  return plainBackend({ id: `local/${name}`, dialect: name, supports: capabilities, settings: set, ...over })
}

/** Text with `meteredOnly` is counted and never sent. */
function sendsNoMetered(dialect: Dialect, asked: Conversation, backend: Backend): void {
  const mark = 'counted-and-never-sent'
  const text = { type: 'text' as const, text: mark, meteredOnly: true as const }
  const turns = [{ role: 'user' as const, parts: [text, { type: 'text' as const, text: 'hello' }] }]
  const metered = kept({ ...asked, system: [text], turns, tools: [], toolChoice: { type: 'none' as const } })
  if (dialect.unfit(metered, backend)) return
  assert.ok(!dialect.request(metered, backend, context).body.includes(mark), 'text with meteredOnly is not sent')
}

function readReply(
  dialect: Dialect,
  asked: Conversation,
  backend: Backend,
  { state }: OutboundRequest,
  frames: DialectOptions['frames'],
  body: string | undefined,
): StreamEvent[] {
  let [calls, searches] = [0, 0]
  const decoder = dialect.decoder({
    ...{ backend, conversation: asked, state },
    mintCallId: () => `call_eba1_${calls++}`,
    mintSearchId: () => `hist_eba1_${searches++}`,
  })
  const events: StreamEvent[] = []
  const push = (event: StreamEvent) => {
    assert.notEqual(events.at(-1)?.type, 'error', `nothing follows an error, such as ${event.type}`)
    if (event.type === 'usage')
      for (const member of Object.keys(event.usage))
        assert.ok(Object.hasOwn(USAGE, member), `usage has no ${member}; it has ${Object.keys(USAGE).join(', ')}`)
    events.push(event)
  }
  if (body !== undefined) decoder.body(body, push)
  for (const frame of frames ?? []) {
    const { event, data } = typeof frame === 'string' ? { event: '', data: frame } : frame
    if (!decoder.done) decoder.frame(event, data, push)
  }
  if (events.at(-1)?.type !== 'error') decoder.end(push)
  const ends = events.filter(({ type }) => type === 'finish' || type === 'error').map(({ type }) => type)
  assert.equal(ends.length, 1, `a reply has one end, and not ${ends.join(', ') || 'none'}`)
  return events
}

/** The members of a usage report. */
const USAGE: Record<keyof ProviderUsage, true> = {
  ...{ prompt: true, cached: true, cacheWrite: true, cacheWriteHour: true },
  ...{ output: true, reasoning: true, searches: true, tier: true, rounds: true },
}

function inOrder(events: readonly StreamEvent[]): StreamEvent[] {
  const ordered: StreamEvent[] = []
  const sequencer = new Sequencer(event => ordered.push(event))
  for (const event of events) sequencer.push(event)
  if (sequencer.finish) sequencer.end(sequencer.finish)
  return ordered
}

/** The conversation, with members that cannot be changed; what is derived of it is kept on itself. */
function kept(conversation: Conversation): Conversation {
  for (const member of Object.values(conversation)) freeze(member)
  return conversation
}

export function freeze(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value)) return
  // A call keeps the form of its arguments beside them (core/canon/arguments.ts).
  if ((value as { type?: unknown }).type === 'call')
    for (const name of Object.keys(value)) Object.defineProperty(value, name, { writable: false, configurable: true })
  else Object.freeze(value)
  for (const inner of Object.values(value)) freeze(inner)
}
