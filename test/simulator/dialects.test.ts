import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Conversation, Part, Turn } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { dialects } from '../../providers/index.ts'
import type { Simulator } from '../../providers/simulator/server.ts'
import { SseReader } from '../../providers/sse.ts'
import { plainConversation } from '../../providers/testing.ts'
import { FORMS } from '../forms.ts'
import { NAMES, type Name, withSimulator } from './harness.ts'

const conversation = (prompt: string, over: Partial<Conversation> = {}): Conversation =>
  plainConversation({
    form: FORMS[over.surface ?? 'chat'],
    requestedModel: 'm',
    model: 'm',
    turns: [{ role: 'user', parts: [{ type: 'text', text: prompt }] }],
    ...over,
  })

const backend = (simulator: Simulator, dialect: Name): Backend => ({
  id: 'p/sim',
  provider: 'p',
  dialect,
  baseUrl: simulator.url,
  headers: {},
  model: 'sim',
  weight: 1,
  supports: dialects[dialect]!.capabilities,
  nativeTools: new Set(),
  settings: { provider: {}, backend: { max_tokens_field: 'max_completion_tokens' } },
})

/** One exchange, as the gateway runs it: request, transport, reader, decoder, order. */
async function exchange(simulator: Simulator, name: Name, of: Conversation, stream: boolean): Promise<StreamEvent[]> {
  const dialect = dialects[name]!
  const on = backend(simulator, name)
  const upstreamCallId = (id: string) => id.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 40)
  const request = dialect.request(of, on, { stream, upstreamCallId })
  const response = await fetch(on.baseUrl + request.path, request)
  const out: StreamEvent[] = []
  if (!response.ok)
    return [
      {
        type: 'error',
        error: dialect.fault(response.status, Object.fromEntries(response.headers), await response.text()),
      },
    ]
  let calls = 0
  const mintCallId = () => `call_eba1_${++calls}`
  const decoder = dialect.decoder({
    backend: on,
    conversation: of,
    state: request.state,
    mintCallId,
    mintSearchId: () => '',
  })
  const sequencer = new Sequencer(event => void out.push(event))
  const push = (event: StreamEvent) => sequencer.push(event)
  if (stream) {
    const reader = new SseReader()
    for await (const chunk of response.body!) reader.push(chunk, (event, data) => decoder.frame(event, data, push))
    reader.end((event, data) => decoder.frame(event, data, push))
  } else decoder.body(await response.text(), push)
  decoder.end(push)
  if (!out.some(event => event.type === 'error')) sequencer.end({ type: 'finish', reason: 'stop' })
  return out
}

/** Deltas joined: what a buffered reply is compared by. */
function joined(events: readonly StreamEvent[]): unknown[] {
  const out: any[] = []
  for (const event of events) {
    const last = out.at(-1)
    // No arguments and empty ones are the same to every surface (wire.md G 13).
    if (event.type === 'activity' || (event.type === 'tool_args' && event.text === '{}')) continue
    if ((event.type === 'text' || event.type === 'refusal' || event.type === 'reasoning') && last?.type === event.type)
      last.text += event.text
    else if (event.type === 'tool_args' && last?.type === 'tool_args' && last.index === event.index)
      last.text += event.text
    else out.push(event.type === 'usage' ? { type: 'usage' } : { ...event })
  }
  return out
}

const fn = (name: string) =>
  ({ type: 'function', name, parameters: { type: 'object', properties: {} }, path: 'tools[0]' }) as const

interface Case {
  name: string
  prompt: string
  over?: Partial<Conversation>
  not?: Name[]
}
const cases: Case[] = [
  { name: 'text', prompt: 'Hello 😀' },
  { name: 'reasoning', prompt: 'x [[sim: reason 2]]', over: { reasoning: { effort: 'low', summary: 'auto' } } },
  // Gemini blocks a prompt without a text.
  { name: 'a refusal', prompt: '[[sim: refuse "No way."]]' },
  { name: 'length', prompt: '[[sim: tokens 50]]', over: { maxOutputTokens: 20 } },
  { name: 'reasoning that ate the budget', prompt: '[[sim: hidden 50]]', over: { maxOutputTokens: 20 } },
  {
    name: 'parallel calls',
    prompt: '[[sim: text "Calling."; call a.b {"x":1}; call f {"y":[2]}; chunk 2]]',
    over: { tools: [fn('a.b'), fn('f')] },
  },
  { name: 'a call without arguments', prompt: '[[sim: call f]]', over: { tools: [fn('f')] } },
  {
    name: 'a custom tool',
    prompt: '[[sim: call sql "SELECT \\"é😀\\"\\n"; chunk 1]]',
    over: { tools: [{ type: 'custom', name: 'sql', path: 'tools[0]' }] },
  },
  {
    name: 'a stop string',
    prompt: '[[sim: text "one STOP two"]]',
    over: { surface: 'messages', sampling: { stop: ['STOP'], logprobs: false } },
  },
  {
    name: 'logprobs',
    prompt: '[[sim: text "one"]]',
    over: { sampling: { stop: [], logprobs: true, topLogprobs: 2 } },
    not: ['anthropic-messages'],
  },
  {
    name: 'a search',
    prompt: '[[sim: search "cats"]]',
    over: { tools: [{ type: 'web_search', path: 'tools[0]' }] },
    not: ['openai-chat'],
  },
]
const FRAMING = ['', 'quirk crlf', 'quirk cr', 'quirk comments; quirk bom', 'split 3', 'quirk gzip']
const COMPATIBLE = ['quirk no-done', 'quirk index-0', 'quirk no-index', 'quirk empty-names', 'quirk stop-with-calls']

for (const dialect of NAMES) {
  for (const { name, prompt, over, not } of cases) {
    if (not?.includes(dialect)) continue
    test(`${dialect} over the wire: ${name}, buffered and streamed alike, however it is framed`, () =>
      withSimulator(async simulator => {
        const expected = joined(await exchange(simulator, dialect, conversation(prompt, over), false))
        assert.equal((expected.at(-1) as StreamEvent).type, 'finish', JSON.stringify(expected))
        for (const quirk of dialect === 'openai-chat' ? [...FRAMING, ...COMPATIBLE] : FRAMING) {
          const asked = quirk === '' ? prompt : `${prompt}[[sim: ${quirk}]]`
          const streamed = joined(await exchange(simulator, dialect, conversation(asked, over), true))
          assert.deepEqual(withoutPrivate(streamed), withoutPrivate(expected), quirk)
        }
      }))
  }

  test(`[TOOL-6] ${dialect} over the wire: a tool loop of two rounds returns what the provider signed`, () =>
    withSimulator(async simulator => {
      const tools = [fn('f')]
      const prompt = '[[sim: reason 1; call f {"a":1}; call f {"a":2}; next call f {"a":3}]]'
      const turns: Turn[] = [{ role: 'user', parts: [{ type: 'text', text: prompt }] }]
      const over = { turns, tools, reasoning: { effort: 'medium', summary: 'auto' } } as const
      for (const count of [2, 1]) {
        const events = await exchange(simulator, dialect, conversation('', over), true)
        const parts = replay(events, count)
        const calls = parts.filter(part => part.type === 'call')
        assert.equal(calls.length, count, JSON.stringify(events))
        turns.push({ role: 'assistant', parts })
        turns.push({
          role: 'tool',
          parts: calls.map(call => ({
            type: 'result',
            callId: call.id,
            kind: 'function',
            content: [{ type: 'text', text: `r ${call.input}` }],
            path: '',
          })),
        })
      }
      const last = joined(await exchange(simulator, dialect, conversation('', over), true)) as any[]
      assert.match(last.find(event => event.type === 'text').text, /The tool answered: r \{"a":3\}\./)
      const replayed = simulator.requests.at(-1)!.body
      if (dialect === 'anthropic-messages') assert.match(replayed, /"signature":"[^"]/)
      if (dialect === 'openai-responses') assert.match(replayed, /"encrypted_content":"gAAAA/)
      if (dialect === 'gemini') assert.match(replayed, /"thoughtSignature":"(?!skip_)/)
    }))

  test(`[GEN-7] ${dialect} over the wire: each fault has its code, streamed and buffered, and none of the provider’s text`, () =>
    withSimulator(async simulator => {
      const faults: [string, string][] = [
        // The other two have no code of their own for a prompt that policy refuses.
        ...(dialect.startsWith('openai') ? [['error policy', 'invalid_value'] as [string, string]] : []),
        ['error server', 'upstream_server_error'],
        ['error overloaded', 'provider_unavailable'],
        ['error rate', 'capacity_exceeded'],
        ['error quota', 'insufficient_quota'],
        ['error context', 'context_length_exceeded'],
        ['error auth', 'upstream_auth_error'],
        ['error timeout', 'gateway_timeout'],
        ['status 401', 'upstream_auth_error'],
        ['status 500 html', 'upstream_server_error'],
        ['malformed json', 'upstream_server_error'],
        ['malformed event; end 2', 'upstream_server_error'],
      ]
      for (const [directive, code] of faults) {
        for (const stream of [true, false]) {
          // A buffered body that is cut in its middle is the transport's fault, not the dialect's.
          if (!stream && directive.includes('end')) continue
          const last = (await exchange(simulator, dialect, conversation(`x [[sim: ${directive}]]`), stream)).at(-1)!
          const name = `${directive}, ${stream ? 'streamed' : 'buffered'}`
          assert.equal(last.type === 'error' && last.error.code, code, name)
          if (last.type === 'error') assert.doesNotMatch(last.error.message, /simulat|credit|Overloaded|html/i, name)
        }
      }
    }))
}

/** Continuation data and handles are the provider's own: the same reply may be signed in two ways. */
function withoutPrivate(events: unknown[]): unknown[] {
  return events.map(event => {
    const { continuation, handle, ...rest } = event as Record<string, unknown>
    return rest
  })
}

/** The assistant turn that a client would replay, with what the gateway kept for it. */
function replay(events: readonly StreamEvent[], round: number): Part[] {
  const parts: Part[] = []
  for (const event of events) {
    if (event.type === 'reasoning_end') parts.push({ type: 'reasoning', summary: [], continuation: event.continuation })
    else if (event.type === 'text') parts.push({ type: 'text', text: event.text })
    else if (event.type === 'tool_call') {
      const input = events.map(e => (e.type === 'tool_args' && e.index === event.index ? e.text : '')).join('')
      const { name, continuation } = event
      const id = `call_eba1_${round}_${event.index}`
      parts.push({ type: 'call', id, kind: 'function', name, input, path: '', continuation })
    }
  }
  return parts
}
