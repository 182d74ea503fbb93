/**
 * A provider's reply fixture all the way to a client, without a network: bytes, SSE reader, decoder, sequencer, the
 * encoder of each surface, and the official client's accumulator (STR-6). The bytes are cut anywhere and split
 * anywhere.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import OpenAI from 'openai'
import type { Conversation, Tool } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, StreamEvent, Usage } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import type { Dialect } from '../../core/ports/dialect.ts'
import type { EncodeContext, Encoder } from '../../core/ports/surface.ts'
import { SseReader } from '../../providers/sse.ts'
import { wholeArguments } from '../../providers/whole-arguments.ts'
import { surfaces } from '../../surfaces/index.ts'
import { FORMS } from '../forms.ts'
import {
  backendOf,
  conversationOf,
  decodeBody,
  decoderFor,
  goldens,
  type ReplySetup,
} from '../providers/dialect-kit.ts'
import { bare } from '../surfaces/openai-kit.ts'

type SurfaceName = 'chat' | 'responses' | 'messages'
const SURFACES: readonly SurfaceName[] = ['chat', 'responses', 'messages']
const USAGE: Usage = Object.freeze({
  input: 120,
  cached: 100,
  cacheWrite: 10,
  output: 30,
  reasoning: 12,
  searches: 0,
  estimated: false,
})

const BODIES: Record<SurfaceName, any> = {
  chat: {
    model: 'm',
    messages: [{ role: 'user', content: 'x' }],
    stream: true,
    stream_options: { include_usage: true },
    logprobs: true,
  },
  responses: {
    model: 'm',
    input: 'x',
    stream: true,
    include: ['reasoning.encrypted_content', 'web_search_call.action.sources', 'message.output_text.logprobs'],
    reasoning: { summary: 'auto' },
  },
  messages: {
    model: 'm',
    max_tokens: 4000,
    messages: [{ role: 'user', content: 'x' }],
    stream: true,
    thinking: { type: 'adaptive' },
  },
}

/**
 * What a surface can declare: its clients get calls of no other tools. Searches and namespaces in a fixture are only
 * left out.
 */
function declarable(surface: SurfaceName, tool: Tool): boolean {
  if (surface === 'responses') return tool.type !== 'native'
  if (tool.type === 'function' && tool.namespace !== undefined) return false
  return surface === 'messages' || tool.type === 'function'
}

/** Replies with free-form calls are for the one surface that can declare such tools. */
function surfacesOf({ conversation }: ReplySetup): readonly SurfaceName[] {
  return conversation?.tools?.some(tool => tool.type === 'custom') ? ['responses'] : SURFACES
}

function asked(surface: SurfaceName, setup: ReplySetup): Conversation {
  const conversation = conversationOf(setup.conversation)
  conversation.surface = surface
  conversation.form = FORMS[surface]
  conversation.stream = true
  conversation.tools = conversation.tools.filter(tool => declarable(surface, tool))
  if (surface !== 'chat') conversation.reasoning = { ...conversation.reasoning, summary: 'auto' }
  if (surface === 'responses') conversation.reasoning.includeEncrypted = true
  return conversation
}

interface Reply {
  events: StreamEvent[]
  end: FinishEvent | GatewayError
}

/** As the exchange does it: an error ends everything, else the end passes what waited. */
function read(dialect: Dialect, setup: ReplySetup, conversation: Conversation, pieces: readonly Uint8Array[]): Reply {
  const decoder = wholeArguments(
    decoderFor(dialect, conversation, backendOf(dialect, setup.backend)),
    conversation,
    null,
  )
  const reader = new SseReader()
  const collector = new Collector()
  const frame = (event: string, data: string): void => {
    if (!collector.over && decoder.done !== true) decoder.frame(event, data, collector.push)
  }
  for (const piece of pieces) reader.push(piece, frame)
  if (decoder.done !== true) reader.end(frame)
  decoder.end(collector.push)
  return collector.reply()
}

class Collector {
  readonly #events: StreamEvent[] = []
  readonly #sequencer = new Sequencer(event => void this.#events.push(event))
  #error: GatewayError | undefined

  get over(): boolean {
    return this.#error !== undefined
  }
  readonly push = (event: StreamEvent): void => {
    if (this.#error) return
    if (event.type === 'error') this.#error = event.error
    else this.#sequencer.push(event)
  }
  reply(): Reply {
    const end = this.#error
    if (!end) this.#sequencer.end({ type: 'finish', reason: 'stop' })
    const events = this.#events.filter(event => event.type !== 'usage' && event.type !== 'finish')
    return { events, end: end ?? (this.#events.find(event => event.type === 'finish') as FinishEvent) }
  }
}

function encoderFor(surface: SurfaceName, conversation: Conversation): Encoder {
  let next = 0
  const context: EncodeContext = {
    requestId: 'req_test',
    created: 1_700_000_000,
    model: 'eb1-preview',
    body: BODIES[surface],
    conversation,
    promptTokens: USAGE.input,
    objectId: 'Abc123Abc123Abc123Abc123',
    mintItemId: () => `item_eba1_${String(next++).padStart(4, '0')}`,
    now: () => 1_700_000_005_000,
  }
  return surfaces[surface]!.encoder(context)
}

/** The SSE text and the object of a reply; private data is taken out as the `conversation` plugin does. */
function encode(
  surface: SurfaceName,
  conversation: Conversation,
  { events, end }: Reply,
): { sse: string; object: any } {
  const encoder = encoderFor(surface, conversation)
  let handles = 0
  let sse = encoder.start()
  for (const event of events) {
    const shown = { ...event } as any
    if (shown.continuation) {
      if (shown.type === 'reasoning_end') shown.handle = `item_eba1_h${handles++}`
      delete shown.continuation
    }
    sse += encoder.event(shown)
  }
  sse += end.type === 'finish' ? encoder.finish(end as FinishEvent, USAGE) : encoder.error(end as GatewayError, USAGE)
  return { sse, object: JSON.parse(encoder.body()) }
}

// ---- the official clients -------------------------------------------------------------------------------------------

const answer = (sse: string) => async () =>
  new Response(sse, { headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-request-id': 'req_test' } })
const openai = (sse: string): OpenAI =>
  new OpenAI({ apiKey: 'k', baseURL: 'http://gateway.invalid/v1', maxRetries: 0, fetch: answer(sse) })

function accumulate(surface: SurfaceName, sse: string): Promise<any> {
  switch (surface) {
    case 'chat':
      return openai(sse).chat.completions.stream(BODIES.chat).finalChatCompletion()
    case 'responses':
      return openai(sse).responses.stream(BODIES.responses).finalResponse()
    case 'messages': {
      const options = { authToken: 'k', apiKey: null, baseURL: 'http://gateway.invalid', maxRetries: 0 }
      return new Anthropic({ ...options, fetch: answer(sse) }).messages.stream(BODIES.messages).finalMessage()
    }
  }
}

/** What an accumulated and a buffered reply have in common; the rest are the client's own additions. */
function comparable(surface: SurfaceName, value: any, events: readonly StreamEvent[]): unknown {
  const plain = bare(value)
  if (surface === 'responses') return plain
  if (surface === 'chat') {
    const { choices, usage, model, service_tier } = plain
    const [{ message, finish_reason, logprobs }] = choices
    const { content, refusal, tool_calls } = message
    const calls = (tool_calls ?? []).map((call: any) => ({ id: call.id, type: call.type, function: call.function }))
    return {
      content,
      refusal: refusal ?? null,
      calls,
      finish_reason,
      logprobs: logprobs?.content ?? null,
      usage,
      model,
      service_tier,
    }
  }
  const { parsed_output: _, _request_id: __, ...message } = plain
  // A call or a search that was cut is in the stream, but is nothing to run: the object leaves it out.
  const open = events.findLast(e => /^(tool|search)_/.test(e.type))
  if (value.parsed_output !== undefined && open && open.type !== 'tool_end' && open.type !== 'search_end')
    message.content = message.content.slice(0, -1)
  return { ...message, content: message.content.map(({ parsed_output: _, ...block }: any) => block) }
}

async function check(surface: SurfaceName, conversation: Conversation, reply: Reply): Promise<void> {
  const { sse, object } = encode(surface, conversation, reply)
  if (reply.end.type !== 'finish') {
    const typed = surface === 'messages' ? Anthropic.APIError : OpenAI.APIError
    await assert.rejects(accumulate(surface, sse), (error: any) => {
      assert.ok(error instanceof typed, `${error}`)
      assert.equal(error.type, JSON.parse(surfaces[surface]!.error(reply.end as GatewayError, 'req_test')).error.type)
      return true
    })
    return
  }
  const accumulated = await accumulate(surface, sse)
  assert.deepEqual(comparable(surface, accumulated, reply.events), comparable(surface, object, []))
  // The same events without frames: the buffered object is this one.
  const buffered = encode(surface, { ...conversation, stream: false }, reply)
  assert.deepEqual(bare(buffered.object), bare(inPlace(surface, object, reply.events)))
}

/**
 * The object that a stream makes, as a reply that is not streamed has it: a search that the provider reported behind the
 * text that rests on it stands before that text.
 */
function inPlace(surface: SurfaceName, object: any, events: readonly StreamEvent[]): any {
  if (surface === 'chat' || !events.some(event => event.type === 'search_end' && event.beforeText)) return object
  const member = surface === 'responses' ? 'output' : 'content'
  const isSearch = ({ type }: { type: string }) =>
    type === 'web_search_call' || type === 'server_tool_use' || type === 'web_search_tool_result'
  const isText = ({ type }: { type: string }) => type === 'message' || type === 'text'
  const rest = object[member].filter((item: any) => !isSearch(item))
  const first = rest.findIndex(isText)
  return { ...object, [member]: rest.toSpliced(first < 0 ? rest.length : first, 0, ...object[member].filter(isSearch)) }
}

// ---- the tests ------------------------------------------------------------------------------------------------------

const key = ({ events, end }: Reply): string =>
  JSON.stringify(events) + (end.type === 'finish' ? JSON.stringify(end) : `error ${(end as GatewayError).code}`)

const bytewise = (bytes: Uint8Array): Uint8Array[] => Array.from(bytes, (_, at) => bytes.subarray(at, at + 1))

function split(bytes: Uint8Array, seed: number): Uint8Array[] {
  const pieces: Uint8Array[] = []
  let state = seed
  for (let at = 0; at < bytes.length; ) {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    const size = 1 + (state % 97)
    pieces.push(bytes.subarray(at, at + size))
    at += size
  }
  return pieces
}

export interface PairFixture {
  name: string
  setup: ReplySetup
  /** SSE text. */
  stream: string
  /** The same reply, buffered. */
  body?: string
}

/** Fixtures of `test/providers/golden/<dialect>/replies`. */
export function replyFixtures(dialect: Dialect): PairFixture[] {
  return goldens(`${dialect.name}/replies`).map(({ name, sections: [settings, stream, body] }) => ({
    name: name.replace('.txt', ''),
    setup: JSON.parse(settings!) as ReplySetup,
    stream: stream!,
    ...(body!.trim() !== '-' && { body: body! }),
  }))
}

export function testPairs(dialect: Dialect, fixtures = replyFixtures(dialect)): void {
  for (const { name, setup, stream, body } of fixtures) {
    const bytes = Buffer.from(`${stream.trimEnd()}\n\n`)
    describe(`${dialect.name} ${name}`, () => {
      for (const surface of surfacesOf(setup)) {
        const conversation = asked(surface, setup)
        const whole = read(dialect, setup, conversation, [bytes])

        test(`[STR-6] to ${surface}: whole, byte by byte, in pieces, with CRLF and comments: one reply, which the client accumulates`, async () => {
          await check(surface, conversation, whole)
          assert.equal(key(read(dialect, setup, conversation, bytewise(bytes))), key(whole))
          assert.equal(key(read(dialect, setup, conversation, split(bytes, 7))), key(whole))
          const noisy = `\ufeff: hello\r\n${bytes.toString().replaceAll('\n', '\r\n')}: bye\r\n\r\n`
          assert.equal(key(read(dialect, setup, conversation, split(Buffer.from(noisy), 11))), key(whole))
        })

        test(`[STR-6] to ${surface}: cut at any byte: accepted, or a typed error, and a cut is never a whole reply`, async () => {
          const seen = new Set<string>()
          const boundaries: number[] = []
          for (let at = bytes.indexOf('\n\n'); at !== -1; at = bytes.indexOf('\n\n', at + 2)) boundaries.push(at + 2)
          const anywhere = fc.sample(fc.nat(bytes.length), { numRuns: 20, seed: 20_261_121 })
          for (const at of [0, ...boundaries, ...anywhere]) {
            const reply = read(dialect, setup, conversation, split(bytes.subarray(0, at), at + 1))
            const id = key(reply)
            if (seen.has(id)) continue
            seen.add(id)
            if (reply.end.type === 'finish') assert.deepEqual(reply.end, whole.end, 'only what is whole finishes')
            await check(surface, conversation, reply)
          }
        })

        if (body !== undefined) {
          test(`[STR-6] to ${surface}: the provider's buffered reply makes the same object`, () => {
            const collector = new Collector()
            // The setup's own conversation: a body is read for the surface that asked.
            for (const event of decodeBody(dialect, { ...setup, conversation }, body)) collector.push(event)
            const buffered = encode(surface, { ...conversation, stream: false }, collector.reply()).object
            const streamed = inPlace(surface, encode(surface, conversation, whole).object, whole.events)
            assert.deepEqual(visible(surface, buffered), visible(surface, streamed))
          })
        }
      }
    })
  }
}

/** What a reply says, however it came: text, calls and how it ended. */
function visible(surface: SurfaceName, object: any): unknown {
  const plain = bare(object)
  const args = (text: string): unknown => {
    try {
      return JSON.parse(text)
    } catch {
      return text
    }
  }
  switch (surface) {
    case 'chat': {
      const [{ message, finish_reason }] = plain.choices
      const calls = (message.tool_calls ?? []).map((c: any) => [c.function.name, args(c.function.arguments)])
      return { content: message.content, refusal: message.refusal, calls, finish_reason }
    }
    case 'responses':
      return {
        status: plain.status,
        reason: plain.incomplete_details,
        output: plain.output.map((item: any) => [
          item.type,
          item.status,
          item.name,
          item.input,
          args(item.arguments ?? '""'),
          (item.content ?? item.summary ?? []).map((part: any) => [part.type, part.text ?? part.refusal]),
        ]),
      }
    case 'messages':
      return {
        stop: [plain.stop_reason, plain.stop_sequence],
        content: plain.content.map(({ id: _, tool_use_id: __, ...block }: any) => block),
      }
  }
}
