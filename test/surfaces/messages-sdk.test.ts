import assert from 'node:assert/strict'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, before, test } from 'node:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import Anthropic from '@anthropic-ai/sdk'
import { generateText, jsonSchema, streamText, tool } from 'ai'
import fc from 'fast-check'
import { GatewayError, retryHeaders } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { contextOf, encode, errorOf, REQUEST_ID, type Reply } from './messages-support.ts'

/**
 * A stand-in for the gateway: checks the body with the surface and answers from `script`, the next entry for each
 * accepted request.
 */
let script: (Reply | GatewayError)[] = []
let requests: Record<string, unknown>[] = []
let server: ReturnType<typeof createServer>
let origin = ''

before(async () => {
  // Its hints about a model it does not know are no part of the test.
  Object.assign(globalThis, { AI_SDK_LOG_WARNINGS: false })
  server = createServer((request, response) => void answer(request, response))
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
after(() => {
  server.closeAllConnections()
  server.close()
})

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  const body = JSON.parse(Buffer.concat(chunks).toString())
  requests.push(body)
  try {
    if (request.url === '/v1/messages/count_tokens') {
      messages.parseLoosely!(body)
      send(response, 200, JSON.stringify({ input_tokens: 12 }))
      return
    }
    messages.validate(body, 'reject')
    messages.parse(body)
    const next = script.shift()
    assert.ok(next, 'more requests than the script has')
    if (next instanceof GatewayError) throw next
    const { frames, object } = encode({ ...next, body })
    if (body.stream !== true) {
      if (next.end.type === 'error') throw next.end.error
      send(response, 200, JSON.stringify(object))
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', 'request-id': REQUEST_ID })
    // Odd pieces, so that frames and characters are split on the way.
    const bytes = Buffer.from(frames.join(''))
    for (let i = 0; i < bytes.length; i += 7) response.write(bytes.subarray(i, i + 7))
    response.end()
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    send(response, error.status, messages.error(error, REQUEST_ID), retryHeaders(error))
  }
}

function send(response: ServerResponse, status: number, body: string, headers: Record<string, string> = {}): void {
  const ids = Object.fromEntries(messages.requestIdHeaders.map(name => [name, REQUEST_ID]))
  response.writeHead(status, { 'content-type': 'application/json', ...ids, ...headers }).end(body)
}

function play(...entries: (Reply | GatewayError)[]): void {
  script = entries
  requests = []
}

const client = () => new Anthropic({ authToken: 'k', apiKey: null, baseURL: origin, maxRetries: 0 })
const base = { model: 'eb1-preview', max_tokens: 4000, messages: [{ role: 'user' as const, content: 'Hi' }] }
const plain = (value: unknown): any => JSON.parse(JSON.stringify(value))

const RICH: Reply = {
  events: [
    { type: 'reasoning', text: 'Let me ', part: 0 },
    { type: 'reasoning', text: 'see. 😀', part: 0 },
    { type: 'reasoning_end' },
    { type: 'text', text: 'I look. ' },
    { type: 'search_start', id: 'hist_eba1_1' },
    {
      type: 'search_end',
      id: 'hist_eba1_1',
      query: 'node "22"',
      results: [{ title: 'N', url: 'https://n', handle: 'hist_eba1_r' }],
    },
    { type: 'text', text: 'Found é' },
    { type: 'citation', citation: { url: 'https://n', title: 'N', citedText: 'n' } },
    { type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'get_weather' },
    { type: 'tool_args', index: 0, text: '{"city":' },
    { type: 'tool_args', index: 0, text: '"Ålesund"}' },
    { type: 'tool_end', index: 0 },
    { type: 'tool_call', index: 1, id: 'call_eba1_2', kind: 'function', name: 'now' },
    { type: 'tool_end', index: 1 },
  ],
  end: { type: 'finish', reason: 'tool_calls' },
  usage: { input: 90, cached: 30, output: 22, reasoning: 5, searches: 1 },
}
const thinking = { type: 'enabled' as const, budget_tokens: 2000 }

test('[MSG-1] the official SDK reads the same message buffered and streamed', async () => {
  play(RICH, RICH)
  const buffered = await client().messages.create({ ...base, thinking })
  assert.equal(buffered._request_id, REQUEST_ID)
  const stream = client().messages.stream({ ...base, thinking })
  const seen: string[] = []
  stream.on('text', delta => seen.push(delta))
  stream.on('thinking', delta => seen.push(`(${delta})`))
  const streamed = plain(await stream.finalMessage())
  delete streamed.parsed_output
  assert.deepEqual(streamed, plain(buffered))
  assert.deepEqual(seen, ['(Let me )', '(see. 😀)', 'I look. ', 'Found é'])
  assert.deepEqual(
    buffered.content.map(block => block.type),
    ['thinking', 'text', 'server_tool_use', 'web_search_tool_result', 'text', 'tool_use', 'tool_use'],
  )
  assert.equal(buffered.usage.input_tokens + buffered.usage.cache_read_input_tokens!, 90)
})

test('a reply replayed verbatim is accepted: every member that goes out may come back', async () => {
  play(RICH, { events: [{ type: 'text', text: 'ok' }], end: { type: 'finish', reason: 'stop' } })
  const first = await client()
    .messages.stream({ ...base, thinking })
    .finalMessage()
  const results = first.content
    .filter(block => block.type === 'tool_use')
    .map(block => ({ type: 'tool_result' as const, tool_use_id: block.id, content: 'done' }))
  const second = await client().messages.create({
    ...base,
    // The whole message object, as people push it, and not only role and content.
    messages: [...base.messages, first as any, { role: 'user', content: results }],
    diagnostics: { previous_message_id: first.id },
  })
  assert.equal(second.content[0]?.type, 'text')
  const { turns } = messages.parse(requests[1])
  assert.deepEqual(
    turns[1]?.parts.map(part => part.type),
    ['text', 'search', 'text', 'call', 'call'],
  )
})

test('the beta namespace gets its context_management both ways', async () => {
  const reply: Reply = { events: [{ type: 'text', text: 'a' }], end: { type: 'finish', reason: 'stop' } }
  play(reply, reply)
  const params = { ...base, betas: ['context-management-2025-06-27' as const], context_management: { edits: [] } }
  const buffered = await client().beta.messages.create(params)
  const streamed = await client().beta.messages.stream(params).finalMessage()
  assert.deepEqual(buffered.context_management, { applied_edits: [] })
  assert.deepEqual(streamed.context_management, { applied_edits: [] })
})

test('the official tool runner goes on without threads and finishes its loop', async () => {
  const call: Reply = {
    events: [
      { type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'add' },
      { type: 'tool_args', index: 0, text: '{"a":1,"b":2}' },
      { type: 'tool_end', index: 0 },
    ],
    end: { type: 'finish', reason: 'tool_calls' },
  }
  for (const stream of [false, true]) {
    play(call, { events: [{ type: 'text', text: 'It is 3.' }], end: { type: 'finish', reason: 'stop' } })
    const inputs: unknown[] = []
    const runner = client().beta.messages.toolRunner({
      ...base,
      stream,
      tools: [
        {
          name: 'add',
          description: 'Adds.',
          input_schema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
          type: 'custom',
          parse: input => input,
          run: input => {
            inputs.push(input)
            return '3'
          },
        },
      ],
    })
    const last = await runner.runUntilDone()
    assert.deepEqual(inputs, [{ a: 1, b: 2 }])
    assert.deepEqual(plain(last.content), [{ type: 'text', text: 'It is 3.', citations: null }])
    assert.equal(script.length, 0)
  }
})

test('[ERR-1] the SDK raises its typed error with code, param, details and request id', async () => {
  const bad = await client()
    .messages.create({ ...base, messages: [{ role: 'user', content: [{ type: 'text', text: 'a', extra: 1 } as any] }] })
    .catch(error => error)
  assert.ok(bad instanceof Anthropic.BadRequestError)
  assert.equal(bad.type, 'invalid_request_error')
  assert.equal(bad.requestID, REQUEST_ID)
  assert.equal((bad.error as any).error.param, 'messages[0].content[0].extra')
  assert.equal((bad as any).errorCode, 'unknown_parameter')

  for (const [code, type] of [
    ['model_not_found', Anthropic.NotFoundError],
    ['invalid_api_key', Anthropic.AuthenticationError],
    ['model_not_available', Anthropic.PermissionDeniedError],
    ['tokens_limit_exceeded', Anthropic.RateLimitError],
    ['provider_unavailable', Anthropic.InternalServerError],
  ] as const) {
    play(errorOf(code))
    await assert.rejects(client().messages.create(base), type, code)
  }
})

test('[ERR-8] an error inside a stream is a typed error with its details; nothing follows it', async () => {
  play({
    events: [{ type: 'text', text: 'Hal' }],
    end: { type: 'error', error: errorOf('provider_unavailable', 5300) },
  })
  const stream = client().messages.stream(base)
  const texts: string[] = []
  stream.on('text', text => texts.push(text))
  const error = await stream.finalMessage().then(
    () => assert.fail('finished'),
    error => error,
  )
  assert.ok(error instanceof Anthropic.APIError)
  assert.equal(error.type, 'overloaded_error')
  assert.deepEqual((error as any).details, { error_code: 'provider_unavailable', retry_after_seconds: 5.3 })
  assert.equal((error.error as any).retry_after_seconds, 5.3)
  assert.equal(error.requestID, REQUEST_ID)
  assert.deepEqual(texts, ['Hal'])
})

test('[CNT-1] countTokens of the official SDK', async () => {
  const { max_tokens, ...body } = base
  assert.equal(max_tokens, 4000)
  assert.deepEqual(plain(await client().messages.countTokens(body)), { input_tokens: 12 })
})

test('the AI SDK reads reasoning, text, sources and calls, buffered and streamed, and sends what is accepted', async () => {
  const anthropic = createAnthropic({ baseURL: `${origin}/v1`, authToken: 'k' })
  const end: Reply = { events: [{ type: 'text', text: 'Done.' }], end: { type: 'finish', reason: 'stop' } }
  const options = {
    model: anthropic('eb1-preview'),
    maxRetries: 0,
    maxOutputTokens: 4000,
    prompt: 'Hi',
    providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 2000 } } },
    tools: {
      get_weather: tool({
        inputSchema: jsonSchema<{ city: string }>({ type: 'object', properties: { city: { type: 'string' } } }),
        execute: ({ city }) => `Rain in ${city}`,
      }),
      now: tool({ inputSchema: jsonSchema<object>({ type: 'object', properties: {} }), execute: () => 'noon' }),
    },
    stopWhen: ({ steps }: { steps: unknown[] }) => steps.length === 2,
  }
  for (const mode of ['buffered', 'streamed']) {
    play(RICH, end)
    const result = mode === 'buffered' ? await generateText(options) : streamText(options)
    const [first] = await result.steps
    assert.equal(await result.text, 'Done.', mode)
    assert.equal(first?.reasoningText, 'Let me see. 😀', mode)
    assert.deepEqual(
      first?.toolCalls.filter(call => !call.providerExecuted).map(call => call.input),
      [{ city: 'Ålesund' }, {}],
      mode,
    )
    assert.equal(script.length, 0, mode)
  }
})

// ---- any reply, cut anywhere ----------------------------------------------------------------------------------------

const character = fc.constantFrom('a', ' ', 'é', '"', '\\', '\n', '\r', '\u2028', '\u0000', '😀', '\ud83d', '\ude00')
const text = fc.string({ unit: character, maxLength: 6 })
const item: fc.Arbitrary<(index: number) => StreamEvent[]> = fc.oneof(
  fc.tuple(fc.array(text, { minLength: 1, maxLength: 4 }), fc.boolean()).map(([deltas, cited]) => () => [
    ...deltas.map((t): StreamEvent => ({ type: 'text', text: t })),
    ...(cited ? [{ type: 'citation', citation: { url: 'https://u', title: deltas[0]! } } as StreamEvent] : []),
  ]),
  text.map(t => () => [{ type: 'refusal', text: t } as StreamEvent]),
  fc
    .array(fc.tuple(text, fc.nat(2)), { maxLength: 4 })
    .map(parts => () => [
      ...parts.map(([t, part]): StreamEvent => ({ type: 'reasoning', text: t, part })),
      { type: 'reasoning_end' } as StreamEvent,
    ]),
  fc
    .tuple(fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 3 }), fc.nat(20), fc.boolean())
    .map(([input, at, custom]) => {
      const json = JSON.stringify(input)
      return (index: number): StreamEvent[] => [
        { type: 'tool_call', index, id: `call_eba1_${index}`, kind: custom ? 'custom' : 'function', name: 'f' },
        { type: 'tool_args', index, text: json.slice(0, at) },
        { type: 'activity' },
        { type: 'tool_args', index, text: json.slice(at) },
        { type: 'tool_end', index },
      ]
    }),
  fc.tuple(text, fc.boolean()).map(([query, failed]) => (index: number): StreamEvent[] => [
    { type: 'search_start', id: `hist_eba1_${index}` },
    { type: 'activity' },
    {
      type: 'search_end',
      id: `hist_eba1_${index}`,
      query,
      results: failed ? [] : [{ title: query, url: 'https://u' }],
      ...(failed && { errorCode: 'unavailable' }),
    },
  ]),
  fc.constant(() => [{ type: 'break' } as StreamEvent]),
)

/** Blocks one after the other with dense indexes, every one closed, one message_delta, one end. */
function checkSequence(sse: string, ends: 'message_stop' | 'error'): void {
  let open = -1
  let next = 0
  const seen: string[] = []
  for (const frame of sse.split('\n\n').slice(0, -1)) {
    const [, event, data] = /^event: (\w+)\ndata: (\{.*\})$/s.exec(frame) ?? assert.fail(`bad frame: ${frame}`)
    const value = JSON.parse(data!)
    assert.equal(value.type, event)
    if (event === 'content_block_start') {
      assert.equal(open, -1)
      assert.equal(value.index, next++)
      open = value.index
    } else if (event === 'content_block_delta') assert.equal(value.index, open)
    else if (event === 'content_block_stop') {
      assert.equal(value.index, open)
      open = -1
    } else {
      if (event !== 'message_start' && ends === 'message_stop') assert.equal(open, -1)
      seen.push(event!)
    }
  }
  assert.deepEqual(
    seen,
    ends === 'error' ? ['message_start', 'error'] : ['message_start', 'message_delta', 'message_stop'],
  )
}

test('[STR-6] any reply, cut anywhere: the official accumulator ends where the buffered object is, or raises a typed error', async () => {
  let sse = ''
  const local = new Anthropic({
    authToken: 'k',
    apiKey: null,
    baseURL: 'http://127.0.0.1:9',
    maxRetries: 0,
    fetch: async () => new Response(sse, { headers: { 'content-type': 'text/event-stream' } }),
  })
  const reply = fc.tuple(
    fc.array(item, { maxLength: 6 }),
    fc.nat(40),
    fc.constantFrom('stop', 'length', 'idle_timeout', 'error'),
    fc.boolean(),
  )
  await fc.assert(
    fc.asyncProperty(reply, async ([items, at, end, shown]) => {
      const whole = items.flatMap((make, i) => make(i))
      const events = whole.slice(0, at)
      const body = { thinking: shown ? { type: 'adaptive' } : { type: 'disabled' } }
      const failed = end === 'error'
      const last = failed
        ? { type: 'error' as const, error: errorOf('upstream_server_error') }
        : { type: 'finish' as const, reason: end as 'stop' }
      const { frames, object } = encode({ body, events, end: last })
      sse = frames.join('')
      checkSequence(sse, failed ? 'error' : 'message_stop')
      const stream = local.messages.stream(base)
      if (failed) {
        await assert.rejects(
          stream.finalMessage(),
          error => error instanceof Anthropic.APIError && error.type === 'api_error',
        )
        return
      }
      const { parsed_output, ...message } = plain(await stream.finalMessage())
      assert.equal(parsed_output, null)
      // A call or a search cut off in the middle is in the stream, but is nothing to run: the object leaves it out.
      const open = events.findLast(e => /^(tool|search)_/.test(e.type))
      if (open && open.type !== 'tool_end' && open.type !== 'search_end') message.content.pop()
      assert.deepEqual(message, plain(object))
      // And it can be sent back as it is.
      messages.validate({ ...base, messages: [...base.messages, object] }, 'reject')
    }),
    { numRuns: 400, seed: 11 },
  )
})

test('one text delta costs one frame and no serialising but of its text', () => {
  const encoder = messages.encoder(contextOf({}))
  encoder.start()
  encoder.event({ type: 'text', text: 'a' })
  assert.equal(
    encoder.event({ type: 'text', text: 'b"' }),
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b\\""}}\n\n',
  )
})
