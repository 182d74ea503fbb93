import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { type Conversation, type Turn, TurnList } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import type { Backend, Capability, DecodeContext } from '../../core/ports/dialect.ts'
import { openaiChat } from '../../providers/openai-chat/index.ts'
import { SseReader } from '../../providers/sse.ts'
import { FORMS } from '../forms.ts'

/** Golden files: input, a line of dashes, what must come out. */
const GOLDEN = new URL('./golden/openai-chat/', import.meta.url)
function* golden(folder: string): Generator<{ name: string; input: string; expected: string }> {
  for (const name of readdirSync(new URL(`${folder}/`, GOLDEN)).sort()) {
    const file = new URL(`${folder}/${name}`, GOLDEN)
    const [input, expected] = readFileSync(file, 'utf8').split('\n----------\n')
    yield { name, input: input!, expected: expected!.trim() }
  }
}

const conversation = (
  over: Partial<Conversation> & { system?: Conversation['system']; turns?: Turn[] } = {},
): Conversation => ({
  surface: 'chat',
  form: FORMS[over.surface ?? 'chat'],
  requestedModel: 'eb1-preview',
  model: 'eb1-preview',
  stream: false,
  system: [],
  turns: [{ role: 'user', parts: [{ type: 'text', text: 'Hi' }] }],
  tools: [],
  toolChoice: { type: 'auto' },
  parallelToolCalls: true,
  ...over,
  sampling: { stop: [], logprobs: false, ...over.sampling },
  reasoning: { ...over.reasoning },
})

const backend = (over: Partial<Omit<Backend, 'supports'>> & { supports?: Capability[] } = {}): Backend => ({
  id: 'p/m',
  provider: 'p',
  dialect: 'openai-chat',
  baseUrl: 'http://127.0.0.1:1',
  headers: {},
  model: 'up-large',
  weight: 1,
  nativeTools: new Set(),
  settings: { provider: {}, backend: { max_tokens_field: 'max_completion_tokens' } },
  ...over,
  supports: new Set(over.supports ?? openaiChat.capabilities),
})

const context = (over: object = {}) => ({
  stream: false,
  upstreamCallId: (id: string) => id.replace('call_eba1_', 'call_'),
  ...over,
})

function decodeContext(of: Conversation = conversation()): DecodeContext {
  let calls = 0
  const on = backend()
  const { state } = openaiChat.request(of, on, context())
  return {
    backend: on,
    conversation: of,
    state,
    mintCallId: () => `call_eba1_${++calls}`,
    mintSearchId: () => 'hist_eba1_1',
  }
}

/** Errors compare by what a client sees. */
const plain = (event: StreamEvent): unknown =>
  event.type === 'error'
    ? { type: 'error', code: event.error.code, retriable: event.error.retriable, horizonMs: event.error.horizonMs }
    : event

function decodeStream(chunks: readonly Uint8Array[], ctx: DecodeContext): unknown[] {
  const out: unknown[] = []
  const push = (event: StreamEvent) => void out.push(plain(event))
  const decoder = openaiChat.decoder(ctx)
  const reader = new SseReader()
  for (const chunk of chunks) reader.push(chunk, (event, data) => decoder.frame(event, data, push))
  reader.end((event, data) => decoder.frame(event, data, push))
  decoder.end(push)
  return out
}
function decodeBody(body: unknown, ctx = decodeContext()): unknown[] {
  const out: unknown[] = []
  const push = (event: StreamEvent) => void out.push(plain(event))
  const decoder = openaiChat.decoder(ctx)
  decoder.body(typeof body === 'string' ? body : JSON.stringify(body), push)
  decoder.end(push)
  return out
}

interface RequestCase {
  conversation: Partial<Conversation>
  backend?: Parameters<typeof backend>[0]
  context?: object
}
for (const { name, input, expected } of golden('request')) {
  test(`openai-chat request: ${name}`, () => {
    const given = JSON.parse(input) as RequestCase
    const request = openaiChat.request(conversation(given.conversation), backend(given.backend), context(given.context))
    assert.equal(request.method, 'POST')
    assert.equal(request.path, '/chat/completions')
    assert.deepEqual(JSON.parse(request.body), JSON.parse(expected))
  })
}

/** A first line `tools: [...]` or `stop: [...]` says what the request declared. The rest is the stream, verbatim. */
function readStream(input: string): { of: Conversation; stream: string } {
  const over: Partial<Conversation> = {}
  let stream = input
  for (
    let found: RegExpExecArray | null;
    (found = /^(tools|stop): (.*)\n/.exec(stream));
    stream = stream.slice(found[0].length)
  ) {
    if (found[1] === 'tools') over.tools = JSON.parse(found[2]!)
    else Object.assign(over, { surface: 'messages', sampling: { stop: JSON.parse(found[2]!), logprobs: false } })
  }
  return { of: conversation(over), stream: stream + '\n\n' }
}

for (const { name, input, expected } of golden('decode')) {
  test(`openai-chat decode: ${name}, whole, byte by byte, and cut at random places`, () => {
    const { of, stream } = readStream(input)
    const bytes = Buffer.from(stream, 'utf8')
    const events = expected === '' ? [] : expected.split('\n').map(line => JSON.parse(line))
    assert.deepEqual(decodeStream([bytes], decodeContext(of)), events)
    assert.deepEqual(
      decodeStream(
        [...bytes].map(byte => Buffer.from([byte])),
        decodeContext(of),
      ),
      events,
    )
    const crlf = Buffer.from(stream.replaceAll('\n', '\r\n'))
    assert.deepEqual(decodeStream([crlf], decodeContext(of)), events)
    // A cut stream never looks finished: what came before the cut, then an error, exactly one; or all of it.
    let seed = 42
    for (let i = 0; i < 40; i++) {
      seed = (seed * 1103515245 + 12345) % 2147483648
      const cut = decodeStream([bytes.subarray(0, seed % bytes.length)], decodeContext(of)) as StreamEvent[]
      const ends = cut.filter(event => event.type === 'finish' || event.type === 'error')
      assert.equal(ends.length, 1, 'one end')
      if (ends[0]!.type === 'finish')
        assert.deepEqual(
          ends[0],
          events.find(event => event.type === 'finish'),
        )
    }
  })
}

test('[STR-6] openai-chat: after core has put the events in order, every fixture obeys the grammar', () => {
  for (const { name, input } of golden('decode')) {
    const { of, stream } = readStream(input)
    const out: StreamEvent[] = []
    const sequencer = new Sequencer(event => void out.push(event))
    const decoder = openaiChat.decoder(decodeContext(of))
    const reader = new SseReader()
    const push = (event: StreamEvent) => sequencer.push(event)
    reader.push(Buffer.from(stream), (event, data) => decoder.frame(event, data, push))
    decoder.end(push)
    if (!out.some(event => event.type === 'error')) sequencer.end({ type: 'finish', reason: 'stop' })
    let open: number | null = null
    for (const event of out) {
      if (event.type === 'tool_call') {
        assert.equal(open, null, `${name}: one call at a time`)
        open = event.index
      } else if (event.type === 'tool_args' || event.type === 'tool_end') {
        assert.equal(event.index, open, name)
        if (event.type === 'tool_end') open = null
      }
    }
    const last = out.at(-1)!
    assert.ok(last.type === 'finish' || last.type === 'error', name)
  }
})

// ---- buffered bodies ------------------------------------------------------------------------------------------------

const reply = (message: object, over: object = {}) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'up',
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content: null, refusal: null, ...message },
      logprobs: null,
      finish_reason: 'stop',
    },
  ],
  usage: {
    prompt_tokens: 9,
    completion_tokens: 12,
    total_tokens: 21,
    prompt_tokens_details: { cached_tokens: 4 },
    completion_tokens_details: { reasoning_tokens: 5 },
  },
  ...over,
})
const USAGE = { type: 'usage', usage: { prompt: 9, cached: 4, output: 12, reasoning: 5 } }

test('openai-chat body: text, reasoning, refusal', () => {
  assert.deepEqual(decodeBody(reply({ content: 'Hello.', reasoning_content: 'Hm.' })), [
    { type: 'reasoning', text: 'Hm.', part: 0 },
    { type: 'reasoning_end' },
    { type: 'text', text: 'Hello.' },
    USAGE,
    { type: 'finish', reason: 'stop' },
  ])
  assert.deepEqual(decodeBody(reply({ refusal: 'No.' })), [
    { type: 'refusal', text: 'No.' },
    USAGE,
    { type: 'finish', reason: 'refusal' },
  ])
  assert.deepEqual(decodeBody(reply({ content: '' })), [USAGE, { type: 'finish', reason: 'stop' }])
})

test('openai-chat body: calls without ids and indexes are calls of their own (wire.md G 11, G 13, G 14)', () => {
  const call = (name: string, args: unknown, id?: string) => ({
    id,
    type: 'function',
    function: { name, arguments: args },
  })
  assert.deepEqual(
    decodeBody(reply({ tool_calls: [call('f', '', 'same'), call('f', { a: 1 }, 'same'), call('g', '{}')] })),
    [
      { type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'f' },
      { type: 'tool_call', index: 1, id: 'call_eba1_2', kind: 'function', name: 'f' },
      { type: 'tool_args', index: 1, text: '{"a":1}' },
      { type: 'tool_call', index: 2, id: 'call_eba1_3', kind: 'function', name: 'g' },
      { type: 'tool_args', index: 2, text: '{}' },
      USAGE,
      { type: 'tool_args', index: 0, text: '{}' },
      { type: 'tool_end', index: 0 },
      { type: 'tool_end', index: 1 },
      { type: 'tool_end', index: 2 },
      { type: 'finish', reason: 'tool_calls' },
    ],
  )
})

test('[METER-4] openai-chat: reasoning is what the provider reports, not clamped to the output', () => {
  const usage = { prompt_tokens: 1, completion_tokens: 3, completion_tokens_details: { reasoning_tokens: 500 } }
  assert.deepEqual(decodeBody(reply({ content: 'x' }, { usage }))[1], {
    type: 'usage',
    usage: { prompt: 1, output: 3, reasoning: 500 },
  })
})

test('[METER-5] openai-chat: cached tokens from every place where servers put them; numbers that can’t be are left out', () => {
  const usageOf = (usage: object) => (decodeBody(reply({ content: 'x' }, { usage }))[1] as { usage: object }).usage
  assert.deepEqual(usageOf({ prompt_tokens: 10, prompt_cache_hit_tokens: 6 }), { prompt: 10, cached: 6 })
  assert.deepEqual(usageOf({ prompt_tokens: 10, cached_tokens: 3 }), { prompt: 10, cached: 3 })
  assert.deepEqual(usageOf({ prompt_tokens: 10, prompt_tokens_details: { cached_tokens: 3, cache_write_tokens: 2 } }), {
    prompt: 10,
    cached: 3,
    cacheWrite: 2,
  })
  assert.deepEqual(
    usageOf({ prompt_tokens: -7, completion_tokens: '5', completion_tokens_details: null, prompt_tokens_details: 1 }),
    {},
  )
})

test('openai-chat: the service tier that served is part of the report; what is no word is left out', () => {
  const tierOf = (service_tier: unknown) => {
    const events = decodeBody(reply({ content: 'x' }, { usage: { prompt_tokens: 1 }, service_tier }))
    return (events[1] as { usage: { tier?: string } }).usage.tier
  }
  assert.deepEqual(['priority', 'two words', 7, null, 'x'.repeat(33)].map(tierOf), [
    'priority',
    undefined,
    undefined,
    undefined,
    undefined,
  ])
})

test('openai-chat body: what can’t be read is an error, never an exception', () => {
  for (const body of [
    '',
    '<html>',
    '[]',
    'null',
    '7',
    '{"choices":[]}',
    '{}',
    '{"choices":[null]}',
    '{"choices":[{"index":1,"message":{"content":"x"},"finish_reason":"stop"}]}',
  ]) {
    assert.deepEqual(
      decodeBody(body),
      [{ type: 'error', code: 'upstream_server_error', retriable: true, horizonMs: null }],
      body,
    )
  }
  for (const message of [
    { content: 7 },
    { content: [null, 7, { type: 'text' }] },
    { tool_calls: [null, 7, { function: 7 }] },
    { annotations: [null, {}] },
  ]) {
    const events = decodeBody(reply(message)) as StreamEvent[]
    assert.equal(events.at(-1)!.type, 'finish')
  }
})

test('openai-chat body: an error object inside a 200', () => {
  const long = { error: { message: 'Maximum context length exceeded.', type: 'BadRequestError', code: null } }
  assert.deepEqual(decodeBody(long), [
    { type: 'error', code: 'context_length_exceeded', retriable: false, horizonMs: null },
  ])
  assert.deepEqual(decodeBody({ error: { message: 'secret text', code: 429 } }), [
    { type: 'error', code: 'capacity_exceeded', retriable: true, horizonMs: 2000 },
  ])
  assert.deepEqual(decodeBody({ object: 'error', message: 'x', code: 503 }), [
    { type: 'error', code: 'provider_unavailable', retriable: true, horizonMs: 5000 },
  ])
})

test('[TOOL-3] openai-chat: a call by alias comes back with the declared name and namespace', () => {
  const declared = {
    type: 'function',
    name: 'файл.прочитать',
    namespace: 'fs',
    parameters: {},
    path: 'tools[0]',
  } as const
  const of = conversation({
    tools: [declared],
    toolChoice: { type: 'tool', name: declared.name, namespace: 'fs', kind: 'function' },
  })
  const body = JSON.parse(openaiChat.request(of, backend(), context()).body)
  const alias = body.tools[0].function.name
  assert.match(alias, /^[A-Za-z0-9_-]{1,64}$/)
  assert.equal(body.tool_choice.function.name, alias)
  const events = decodeBody(
    reply({ tool_calls: [{ id: 'x', function: { name: alias, arguments: '{}' } }] }),
    decodeContext(of),
  )
  assert.deepEqual(events[0], {
    type: 'tool_call',
    index: 0,
    id: 'call_eba1_1',
    kind: 'function',
    name: declared.name,
    namespace: 'fs',
  })
})

// ---- what a backend can't carry -------------------------------------------------------------------------------------

const text = { type: 'text', text: 'Hi' } as const
const png = {
  type: 'image',
  source: { kind: 'data', mediaType: 'image/png', data: 'AA==' },
  path: 'messages[0].content[1].image_url.url',
} as const
const fn = { type: 'function', name: 'f', parameters: {}, path: 'tools[0]' } as const
const user = (...parts: Turn['parts']): Turn[] => [{ role: 'user', parts }]
const all = [...openaiChat.capabilities]
const without = (...gone: Capability[]) => backend({ supports: all.filter(capability => !gone.includes(capability)) })

const unfits: [name: string, of: Partial<Conversation>, on: Backend, param: string | null][] = [
  ['plain text', {}, backend({ supports: [] }), null],
  ['images', { turns: user(text, png) }, without('images'), png.path],
  [
    'images in results',
    {
      turns: [
        ...user(text),
        { role: 'assistant', parts: [{ type: 'call', id: 'c', kind: 'function', name: 'f', input: '', path: '' }] },
        { role: 'tool', parts: [{ type: 'result', callId: 'c', kind: 'function', content: [png], path: '' }] },
      ],
    },
    without('images'),
    png.path,
  ],
  ['images, supported', { turns: user(text, png) }, backend(), null],
  [
    'documents by URL',
    {
      turns: user({
        type: 'document',
        source: { kind: 'url', url: 'https://x/y.pdf' },
        path: 'input[0].content[0].file_url',
      }),
    },
    backend(),
    'input[0].content[0].file_url',
  ],
  [
    'text documents are text',
    { turns: user({ type: 'document', source: { kind: 'text', text: 'x' }, path: 'p' }) },
    without('documents'),
    null,
  ],
  ['tools', { tools: [fn] }, without('tools'), 'tools[0]'],
  ['strict tools', { tools: [{ ...fn, strict: true }] }, without('strict_tools'), 'tools[0].function.strict'],
  [
    'custom tools',
    { surface: 'responses', tools: [{ type: 'custom', name: 'c', path: 'tools[0]' }] },
    without('custom_tools'),
    'tools[0]',
  ],
  ['single calls', { tools: [fn], parallelToolCalls: false }, without('single_tool_call'), 'parallel_tool_calls'],
  [
    'single calls on Messages',
    { surface: 'messages', tools: [fn], parallelToolCalls: false },
    without('single_tool_call'),
    'tool_choice.disable_parallel_tool_use',
  ],
  ['single calls without tools', { parallelToolCalls: false }, without('single_tool_call'), null],
  ['forced tools', { tools: [fn], toolChoice: { type: 'required' } }, without('forced_tool_choice'), 'tool_choice'],
  [
    'allowed tools, required',
    { tools: [fn], toolChoice: { type: 'allowed', mode: 'required', tools: [{ name: 'f', kind: 'function' }] } },
    without('forced_tool_choice'),
    'tool_choice',
  ],
  ['hosted search', { tools: [{ type: 'web_search', path: 'tools[0]' }] }, backend(), 'tools[0]'],
  ['logprobs', { sampling: { stop: [], logprobs: true } }, without('logprobs'), 'logprobs'],
  ['top_k', { surface: 'messages', sampling: { stop: [], logprobs: false, topK: 5 } }, backend(), 'top_k'],
  ['top_k of 0', { surface: 'messages', sampling: { stop: [], logprobs: false, topK: 0 } }, backend(), null],
  [
    'prefill',
    { surface: 'messages', turns: [...user(text), { role: 'assistant', parts: [text] }] },
    without('prefill'),
    'messages',
  ],
  ['effort', { reasoning: { effort: 'high' } }, without('reasoning'), 'reasoning_effort'],
  ['effort none', { reasoning: { effort: 'none' } }, without('reasoning'), null],
  [
    'more output than the backend has',
    { maxOutputTokens: 5000, maxOutputField: 'max_tokens' },
    backend({ maxOutputTokens: 4096 }),
    'max_tokens',
  ],
  [
    'many stop strings are matched here',
    { surface: 'messages', sampling: { stop: ['1', '2', '3', '4', '5'], logprobs: false } },
    backend(),
    null,
  ],
]
for (const [name, of, on, param] of unfits) {
  test(`openai-chat unfit: ${name}`, () => assert.equal(openaiChat.unfit(conversation(of), on)?.param ?? null, param))
}

// `transformers serve` sends the stop string along, and with `omit: [stop]` the string was neither sent nor matched.
test('openai-chat: a stop string is sent, and matched here too, also where it is left out', () => {
  for (const omit of [[], ['stop']]) {
    const of = conversation({ sampling: { stop: ['three'], logprobs: false } })
    const to = backend({ settings: { provider: { omit }, backend: { max_tokens_field: 'max_tokens' } } })
    const { body, state } = openaiChat.request(of, to, context())
    assert.deepEqual(JSON.parse(body).stop, omit.length > 0 ? undefined : ['three'])
    const decoder = openaiChat.decoder({ ...decodeContext(of), state })
    const events: StreamEvent[] = []
    decoder.body(JSON.stringify(reply({ content: 'one, two, three, four' })), event => void events.push(event))
    assert.deepEqual(
      events.filter(({ type }) => type === 'text' || type === 'finish'),
      [
        { type: 'text', text: 'one, two, ' },
        { type: 'finish', reason: 'stop_sequence', stopSequence: 'three' },
      ],
    )
  }
})

test('[TOOL-5] openai-chat: a backend without single-call mode is unfit for parallel_tool_calls: false', () => {
  const of = conversation({ tools: [fn], parallelToolCalls: false })
  assert.equal(openaiChat.unfit(of, without('single_tool_call'))?.param, 'parallel_tool_calls')
  assert.equal(openaiChat.unfit(of, backend()), null)
  assert.equal(JSON.parse(openaiChat.request(of, backend(), context()).body).parallel_tool_calls, false)
})

// ---- requests: what must not go out ---------------------------------------------------------------------------------

test('openai-chat request: the credential, the operator’s headers, and nothing of the client’s own ids', () => {
  const of = conversation({ cacheKey: 'client-key', previousResponseId: 'resp_1' })
  const request = openaiChat.request(
    of,
    backend({ apiKey: 'sk-1', headers: { 'X-Team': 'gateway' } }),
    context({ stream: true, cacheKey: 'derived' }),
  )
  assert.deepEqual(request.headers, {
    'content-type': 'application/json',
    accept: 'text/event-stream',
    'accept-encoding': 'identity',
    authorization: 'Bearer sk-1',
    'x-team': 'gateway',
  })
  const body = JSON.parse(request.body)
  assert.equal(body.prompt_cache_key, 'derived')
  assert.deepEqual(body.stream_options, { include_usage: true })
  assert.ok(!/client-key|resp_1|eb1-preview/.test(request.body))
  assert.equal(openaiChat.request(of, backend(), context()).headers['authorization'], undefined)
})

test('openai-chat request: the client’s part order is kept when turns are merged', () => {
  const list = new TurnList()
  list.push('user', [{ type: 'text', text: 'a' }])
  list.push('user', [{ type: 'text', text: 'b' }])
  const body = JSON.parse(openaiChat.request(conversation({ turns: list.turns }), backend(), context()).body)
  assert.deepEqual(
    body.messages[0].content.map((part: { text: string }) => part.text),
    ['a', 'b'],
  )
})

// ---- faults ---------------------------------------------------------------------------------------------------------

const fault = (status: number, body: unknown = '', headers: Record<string, string> = {}): GatewayError =>
  openaiChat.fault(status, headers, typeof body === 'string' ? body : JSON.stringify(body))

const faults: [
  name: string,
  status: number,
  body: unknown,
  code: string,
  retriable: boolean,
  horizonMs: number | null,
  headers?: Record<string, string>,
][] = [
  [
    '401',
    401,
    {
      error: {
        message: 'Incorrect API key provided: sk-secret',
        type: 'invalid_request_error',
        code: 'invalid_api_key',
      },
    },
    'upstream_auth_error',
    false,
    null,
  ],
  ['403', 403, '', 'upstream_auth_error', false, null],
  ['403 as a policy refusal', 403, { error: { code: 'content_policy_violation' } }, 'invalid_value', false, null],
  [
    '429 by quota',
    429,
    { error: { type: 'insufficient_quota', code: 'insufficient_quota' } },
    'insufficient_quota',
    false,
    null,
    { 'retry-after': '20' },
  ],
  ['402', 402, { error: { message: 'Insufficient Balance' } }, 'insufficient_quota', false, null],
  ['429 without Retry-After', 429, { error: { code: 'rate_limit_exceeded' } }, 'capacity_exceeded', true, 2000],
  [
    '429 with Retry-After',
    429,
    { error: { code: 'rate_limit_exceeded' } },
    'capacity_exceeded',
    true,
    7000,
    { 'retry-after': '7' },
  ],
  [
    '429 with retry-after-ms',
    429,
    '',
    'capacity_exceeded',
    true,
    1500,
    { 'retry-after-ms': '1500', 'retry-after': '2' },
  ],
  [
    '429 with a date',
    429,
    '',
    'capacity_exceeded',
    true,
    30_000,
    { 'retry-after': 'Sat, 21 Nov 2026 10:00:30 GMT', date: 'Sat, 21 Nov 2026 10:00:00 GMT' },
  ],
  ['429 with nonsense', 429, '', 'capacity_exceeded', true, 2000, { 'retry-after': 'soon' }],
  ['429 with a negative wait', 429, '', 'capacity_exceeded', true, 2000, { 'retry-after': '-5' }],
  ['500', 500, { error: { message: 'boom', type: 'server_error' } }, 'upstream_server_error', true, null],
  ['502 as HTML', 502, '<html>nginx</html>', 'upstream_server_error', true, null],
  ['502 with Retry-After', 502, '', 'upstream_server_error', true, 3000, { 'retry-after': '3' }],
  [
    '500 that speaks of context',
    500,
    { error: { message: 'context window exploded', code: 'context_length_exceeded' } },
    'upstream_server_error',
    true,
    null,
  ],
  ['503', 503, '', 'provider_unavailable', true, 5000],
  ['503 with a long wait', 503, '', 'provider_unavailable', true, 12_000, { 'retry-after': '600' }],
  ['529', 529, '', 'provider_unavailable', true, 5000],
  ['408', 408, '', 'gateway_timeout', true, 5000],
  ['504', 504, '', 'gateway_timeout', true, 5000],
  ['400 by context code', 400, { error: { code: 'context_length_exceeded' } }, 'context_length_exceeded', false, null],
  [
    '400 by context text (vLLM)',
    400,
    {
      object: 'error',
      message: "This model's maximum context length is 4096 tokens.",
      type: 'BadRequestError',
      code: 400,
    },
    'context_length_exceeded',
    false,
    null,
  ],
  [
    '400 by policy (Azure)',
    400,
    { error: { code: 'content_filter', innererror: { code: 'ResponsibleAIPolicyViolation' } } },
    'invalid_value',
    false,
    null,
  ],
  [
    '400 otherwise',
    400,
    { error: { message: 'Unknown parameter', code: 'unknown_parameter' } },
    'upstream_server_error',
    false,
    null,
  ],
  ['404', 404, { error: { code: 'model_not_found' } }, 'upstream_server_error', false, null],
  ['422', 422, { detail: [] }, 'upstream_server_error', false, null],
  ['a list around the object', 429, [{ error: { code: 'insufficient_quota' } }], 'insufficient_quota', false, null],
]
for (const [name, status, body, code, retriable, horizonMs, headers] of faults) {
  test(`openai-chat fault: ${name}`, () => {
    const error = fault(status, body, headers)
    assert.deepEqual(
      { code: error.code, retriable: error.retriable, horizonMs: error.horizonMs },
      { code, retriable, horizonMs },
    )
  })
}

test('[AUTH-7] openai-chat: an upstream 401 or 403 is 502 upstream_auth_error', () => {
  for (const status of [401, 403]) {
    const error = fault(status, { error: { message: 'bad key' } })
    assert.deepEqual([error.status, error.code], [502, 'upstream_auth_error'])
  }
})

test('[ERR-6] openai-chat: 502 carries a wait only if the upstream sent one; 503 and 504 always do', () => {
  assert.deepEqual([fault(500).status, fault(500).horizonMs], [502, null])
  assert.equal(fault(500, '', { 'retry-after': '4' }).horizonMs, 4000)
  for (const seconds of ['0', '1', '9', '15', '900']) {
    const { horizonMs } = fault(503, '', { 'retry-after': seconds })
    // Advertised up to a quarter longer (ERR-4), so that it stays within 5 to 15 s.
    assert.ok(horizonMs! >= 5000 && horizonMs! * 1.25 <= 15_000)
  }
  assert.equal(fault(504).horizonMs, 5000)
})

test('[ERR-7] openai-chat: an upstream 429 is told apart by its code', () => {
  const quota = fault(
    429,
    { error: { code: 'insufficient_quota' } },
    { 'x-ratelimit-remaining-requests': '0', 'retry-after': '9' },
  )
  assert.deepEqual(
    [quota.status, quota.code, quota.retriable, quota.horizonMs],
    [429, 'insufficient_quota', false, null],
  )
  const shared = fault(429, { error: { code: 'rate_limit_exceeded' } }, { 'x-ratelimit-remaining-requests': '0' })
  assert.deepEqual([shared.status, shared.code, shared.headers], [429, 'capacity_exceeded', undefined])
})

test('[GEN-7] openai-chat: no error repeats what the provider wrote', () => {
  for (const [, status, body, , , , headers] of faults) {
    const { message, details } = fault(status, body, headers)
    assert.ok(!/sk-|nginx|4096|Balance|boom|OpenAI|Azure/.test(message + JSON.stringify(details ?? {})), message)
  }
  const [event] = decodeBody({ error: { message: 'secret gpt text', type: 'server_error' } }) as { type: string }[]
  assert.equal(event!.type, 'error')
})

test('openai-chat: a reply of very many calls takes its reader no more than their number', () => {
  const call = (i: number) => ({ index: i, id: `c${i}`, function: { name: 'f', arguments: '{}' } })
  const calls = Array.from({ length: 120_000 }, (_, i) => call(i))
  const message = { choices: [{ index: 0, message: { tool_calls: calls }, finish_reason: 'tool_calls' }] }
  // Three events each, and the end; looked for one behind the other they took half a minute.
  assert.equal(decodeBody(message).length, 3 * calls.length + 1)
  // A delta goes to the latest call of its index, or of its id where there is none.
  const deltas = [
    { index: 0, id: 'a', function: { name: 'f', arguments: '{"n":' } },
    { index: 1, id: 'b', function: { name: 'f', arguments: '{"n":' } },
    { index: 0, function: { arguments: '0}' } },
    { id: 'b', function: { arguments: '1}' } },
    { index: 1, id: 'c', function: { name: 'f', arguments: '{"n":' } },
    { index: 1, function: { arguments: '2}' } },
  ]
  const chunk = { choices: [{ index: 0, delta: { tool_calls: deltas }, finish_reason: 'tool_calls' }] }
  const texts = ['', '', '']
  for (const event of decodeStream(
    [Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`)],
    decodeContext(),
  ) as StreamEvent[])
    if (event.type === 'tool_args') texts[event.index] += event.text
  assert.deepEqual(texts, ['{"n":0}', '{"n":1}', '{"n":2}'])
})
