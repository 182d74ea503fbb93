/**
 * What the tests of the chat and responses surfaces share: contexts, canonical replies and a server that plays prepared
 * bytes to the official SDK.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import fc from 'fast-check'
import OpenAI from 'openai'
import { GatewayError } from '../../core/canon/errors.ts'
import type { FinishEvent, FinishReason, StreamEvent, Usage } from '../../core/canon/events.ts'
import type { EncodeContext, Encoder, Surface } from '../../core/ports/surface.ts'

export const USAGE: Usage = Object.freeze({
  input: 120,
  cached: 100,
  cacheWrite: 10,
  output: 30,
  reasoning: 12,
  searches: 1,
  estimated: false,
})

/** A checked and parsed body, and a context for its encoder. Ids count up from 0. */
export function contextFor(surface: Surface, body: Record<string, unknown>): EncodeContext {
  surface.validate(body, 'reject')
  const conversation = surface.parse(body)
  let next = 0
  return {
    requestId: 'req_test',
    created: 1_700_000_000,
    model: 'eb1-preview',
    body,
    conversation,
    promptTokens: 120,
    objectId: 'Abc123Abc123Abc123Abc123',
    mintItemId: () => `item_eba1_${String(next++).padStart(4, '0')}`,
    now: () => 1_700_000_005_000,
  }
}

export interface Reply {
  events: StreamEvent[]
  end: FinishEvent | GatewayError
}

/** The whole stream of a reply, and the object it leaves behind. */
export function encode(surface: Surface, body: Record<string, unknown>, reply: Reply, usage = USAGE) {
  const encoder = surface.encoder(contextFor(surface, body))
  const sse = drive(encoder, reply, usage)
  return { sse, object: JSON.parse(encoder.body()) }
}

export function drive(encoder: Encoder, reply: Reply, usage = USAGE): string {
  let sse = encoder.start()
  for (const event of reply.events) sse += encoder.event(event)
  return sse + (reply.end instanceof GatewayError ? encoder.error(reply.end) : encoder.finish(reply.end, usage))
}

/** JSON of the `data:` lines in order; `[DONE]` stays a string. */
export function frames(sse: string): any[] {
  assert.ok(sse === '' || sse.endsWith('\n\n'), 'every frame ends with a blank line')
  return sse
    .split('\n\n')
    .filter(f => f !== '' && !f.startsWith(':'))
    .map(frame => {
      const data = frame.split('\n').filter(l => l.startsWith('data: '))
      assert.equal(data.length, 1, 'one data line in a frame')
      const json = data[0]!.slice(6)
      if (json === '[DONE]') return json
      const parsed = JSON.parse(json)
      const name = frame.split('\n').find(l => l.startsWith('event: '))
      if (name !== undefined) assert.equal(name, `event: ${parsed.type}`)
      return parsed
    })
}

/** The official client, whose every request is answered with `sse`. No network. */
export function playing(sse: string): OpenAI {
  return new OpenAI({
    apiKey: 'sk-test',
    baseURL: 'http://gateway.invalid/v1',
    maxRetries: 0,
    fetch: async () =>
      new Response(sse, { status: 200, headers: { 'content-type': 'text/event-stream; charset=utf-8' } }),
  })
}

/** A loopback server that answers with what `reply` makes of the parsed request body, in pieces of odd sizes. */
export async function serving<T>(
  reply: (path: string, body: any) => { type: string; text: string; status?: number },
  use: (client: OpenAI) => Promise<T>,
): Promise<T> {
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8')
    request.on('data', piece => (text += piece))
    request.on('end', () => {
      const answer = reply(request.url ?? '', text === '' ? undefined : JSON.parse(text))
      response.writeHead(answer.status ?? 200, { 'content-type': answer.type, 'x-request-id': 'req_test' })
      const bytes = Buffer.from(answer.text, 'utf8')
      for (let at = 0, n = 1; at < bytes.length; at += n, n = (n * 7) % 97 || 1)
        response.write(bytes.subarray(at, at + n))
      response.end()
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  try {
    const { port } = server.address() as AddressInfo
    return await use(new OpenAI({ apiKey: 'sk-test', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 }))
  } finally {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
}

const HELPERS = new Set(['parsed', 'parsed_arguments', 'output_text', 'output_parsed'])
/** Drops what SDK helpers add to what they accumulate. */
export function bare(value: unknown): any {
  return JSON.parse(JSON.stringify(value, (key, v) => (HELPERS.has(key) ? undefined : v)))
}

/** Compares with a golden file; `UPDATE_GOLDEN=1` rewrites it. */
export function golden(path: string, actual: string): void {
  const url = new URL(`./golden/${path}`, import.meta.url)
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(url, actual)
  assert.equal(actual, readFileSync(url, 'utf8'), `golden/${path}`)
}

// ---- canonical replies, at random -----------------------------------------------------------------------------------

const FINISHES: FinishReason[] = [
  'stop',
  'stop_sequence',
  'tool_calls',
  'length',
  'context_full',
  'content_filter',
  'refusal',
  'pause',
  'idle_timeout',
  'ceiling_timeout',
]

/** Text as models stream it: any Unicode, halves of surrogate pairs at the cuts included. */
const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 12 })
const deltas = fc.array(
  fc.tuple(text, fc.nat(12)).map(([t, at]) => [t.slice(0, at), t.slice(at)]),
  { minLength: 1, maxLength: 3 },
)

const textItem = fc.tuple(deltas, fc.boolean(), fc.option(fc.nat(5))).map(([d, cited, start]): StreamEvent[] => [
  ...d.flat().map((t): StreamEvent => ({ type: 'text', text: t })),
  ...(cited
    ? [
        {
          type: 'citation' as const,
          citation: {
            url: 'https://example.com/',
            title: 'T',
            ...(start !== null && { start, end: start + 1 }),
          },
        },
      ]
    : []),
])
const refusalItem = deltas.map((d): StreamEvent[] => d.flat().map(t => ({ type: 'refusal', text: t })))
const reasoningItem = fc
  .tuple(fc.array(deltas, { maxLength: 3 }), fc.boolean())
  .map(([parts, handle]): StreamEvent[] => [
    ...parts.flatMap((d, part) => d.flat().map((t): StreamEvent => ({ type: 'reasoning', text: t, part }))),
    handle ? { type: 'reasoning_end', handle: 'item_eba1_handle' } : { type: 'reasoning_end' },
  ])
const callItem = (custom: boolean) =>
  fc
    .tuple(
      fc.oneof(
        fc.json({ maxDepth: 2 }).map(j => [j.slice(0, 3), j.slice(3)]),
        fc.constant([] as string[]),
      ),
      custom ? fc.constantFrom('function' as const, 'custom' as const) : fc.constant('function' as const),
      fc.constantFrom('get_weather', 'x', 'a name with ünïcode'),
      fc.boolean(),
    )
    .map(([args, kind, name, namespaced]): StreamEvent[] => [
      {
        type: 'tool_call',
        index: 0,
        id: 'call_eba1_',
        kind,
        name,
        ...(custom && namespaced && { namespace: 'mcp__files' }),
      },
      ...args.map((t): StreamEvent => ({ type: 'tool_args', index: 0, text: t })),
      { type: 'tool_end', index: 0 },
    ])
const searchItem = fc.boolean().map((failed): StreamEvent[] => [
  { type: 'search_start', id: 'hist_eba1_0' },
  {
    type: 'search_end',
    id: 'hist_eba1_0',
    query: 'weather "Oslo"',
    results: failed ? [] : [{ title: 'T', url: 'https://example.com/' }],
    ...(failed && { errorCode: 'unavailable' }),
  },
])
const small = fc.constantFrom<StreamEvent[]>([{ type: 'break' }], [{ type: 'activity' }])

/** Replies in the grammar of core/canon/events.ts, cut anywhere, ended in every way. */
export function replies(options: { custom: boolean }): fc.Arbitrary<Reply> {
  return fc
    .tuple(
      fc.array(fc.oneof(textItem, refusalItem, reasoningItem, callItem(options.custom), searchItem, small), {
        maxLength: 7,
      }),
      fc.nat(60),
      fc.oneof(
        fc.constantFrom(...FINISHES).map((reason): FinishEvent => ({ type: 'finish', reason })),
        fc
          .constantFrom('upstream_server_error' as const, 'provider_unavailable' as const)
          .map(code => new GatewayError(code, { message: 'The upstream failed.' })),
      ),
    )
    .map(([items, cut, end]) => {
      let calls = -1
      let searches = 0
      const events = items.flat().map(event => {
        if (event.type === 'tool_call') return { ...event, index: ++calls, id: `call_eba1_${calls}` }
        if (event.type === 'search_start') return { ...event, id: `hist_eba1_s${++searches}` }
        if (event.type === 'search_end') return { ...event, id: `hist_eba1_s${searches}` }
        return event.type === 'tool_args' || event.type === 'tool_end' ? { ...event, index: calls } : event
      })
      return { events: events.slice(0, Math.max(0, events.length - (cut < 30 ? 0 : cut - 30))), end }
    })
}
