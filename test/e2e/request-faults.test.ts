/**
 * A provider's 400 about the request itself. It was 502 upstream_server_error, which clients without an eye for
 * `x-should-retry` sent again and again: one agent nine times in 67 s.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText } from 'ai'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { bodyOf, PATHS, SURFACES, type SurfaceName } from './conversations.ts'
import { KEY, startGateway, type TestGateway } from './harness.ts'

const openai = (code: string | null, param: string | null, message = 'Secret words.') => ({
  error: { message, type: 'invalid_request_error', code, param },
})
const anthropic = (message: string, type = 'invalid_request_error') => ({ type: 'error', error: { type, message } })
const google = (message: string, details: unknown[] = [], status = 'INVALID_ARGUMENT') => ({
  error: { code: 400, message, status, details },
})
const violation = (field: string) => [{ fieldViolations: [{ field, description: 'Secret words.' }] }]

/** What the upstream answers next. */
let answer: { status: number; body: unknown } = { status: 400, body: {} }
/** What the upstream sends instead when it is set: a stream with status 200. */
let stream: string | null = null
/** Paths of the requests that it got. */
let got: string[] = []
const upstream = await startFakeUpstream(turn => {
  const { path } = turn.request
  got.push(path)
  if (path.startsWith('/good/')) {
    const choices = [{ index: 0, message: { role: 'assistant', content: 'fine' }, finish_reason: 'stop' }]
    return turn.answer(200, { choices })
  }
  return stream === null ? turn.answer(answer.status, JSON.stringify(answer.body)) : turn.stream(stream)
})

/** No message may name a dialect, so models have other names. */
const MODELS: Record<string, string> = {
  'openai-chat': 'model-c',
  'openai-responses': 'model-r',
  'anthropic-messages': 'model-m',
  gemini: 'model-g',
}

let t: TestGateway
before(async () => {
  const { url } = upstream
  const dialects = Object.keys(MODELS)
  const model = (name: string, ...backends: string[]) =>
    `  ${name}: { context_window: 400000, price: { input: 1, output: 1 }, backends: [${backends.map(provider => `{ provider: ${provider}, model: m }`).join(', ')}] }`
  t = await startGateway({
    providers: [
      ...dialects.map(name => `  ${name}: { dialect: ${name}, base_url: "${url}", api_key: k }`),
      `  good: { dialect: openai-chat, base_url: "${url}/good", api_key: k }`,
    ].join('\n'),
    models: [
      ...dialects.map(name => model(MODELS[name]!, name)),
      model('both', 'anthropic-messages', 'good'),
      model('worst', 'anthropic-messages', 'gemini', 'openai-chat'),
    ].join('\n'),
  })
})
after(async () => {
  await t.close()
  await upstream.close()
})

/** A request that uses every control that its surface has. */
function asking(surface: SurfaceName, model: string): Record<string, unknown> {
  const more: Record<SurfaceName, object> = {
    chat: { temperature: 0.5, max_completion_tokens: 900, stop: ['x'], reasoning_effort: 'low', seed: 1 },
    responses: { temperature: 0.5, max_output_tokens: 900, reasoning: { effort: 'low' } },
    messages: { temperature: 0.5, max_tokens: 900, stop_sequences: ['x'] },
  }
  const tools = [{ name: 'f', schema: { type: 'object', properties: {} } }]
  return bodyOf(surface, model, [{ user: 'a prompt' }], { tools, more: { ...more[surface] } })
}

async function answered(surface: SurfaceName, body: Record<string, unknown>) {
  got = []
  const response = await t.post(PATHS[surface], body)
  const text = await response.text()
  assert.doesNotMatch(text, /Secret|upstream\.example|anthropic|google|openai/i)
  return { status: response.status, headers: response.headers, error: JSON.parse(text).error }
}

const CONTENT: Record<SurfaceName, string> = { chat: 'messages', responses: 'input', messages: 'messages' }
const CAP: Record<SurfaceName, string> = {
  chat: 'max_completion_tokens',
  responses: 'max_output_tokens',
  messages: 'max_tokens',
}
const same = (param: string): Record<SurfaceName, string> => ({ chat: param, responses: param, messages: param })

/** The dialect, the provider's body, and the client's member. */
const BLAMED: [dialect: string, body: unknown, param: Record<SurfaceName, string>][] = [
  ['openai-chat', openai('unsupported_value', 'temperature'), same('temperature')],
  ['openai-chat', openai('unsupported_parameter', 'temperature'), same('temperature')],
  ['openai-chat', openai(null, 'messages.[1].content'), CONTENT],
  ['openai-chat', openai('invalid_image_url', null), CONTENT],
  ['openai-chat', openai('invalid_function_parameters', 'tools[0].function.parameters'), same('tools')],
  ['openai-chat', openai('integer_above_max_value', 'max_completion_tokens'), CAP],
  ['openai-responses', openai('invalid_value', 'input[0].content[1].image_url'), CONTENT],
  ['openai-responses', openai('integer_above_max_value', 'max_output_tokens'), CAP],
  ['anthropic-messages', anthropic('messages.0.content.1.image.source.base64: Secret words'), CONTENT],
  ['anthropic-messages', anthropic('tools.0.custom.input_schema: Secret words'), same('tools')],
  ['anthropic-messages', anthropic('max_tokens: 900 > 800, which is the maximum. Secret words'), CAP],
  ['anthropic-messages', anthropic('`temperature` and `top_p` cannot both be specified.'), same('temperature')],
  ['gemini', google('Secret words', violation('generation_config.temperature')), same('temperature')],
  ['gemini', google('Secret words', violation('contents[0].parts[1].inline_data')), CONTENT],
  ['gemini', google('* GenerateContentRequest.tools[0].function_declarations[0].name: Secret'), same('tools')],
  ['gemini', google('Unable to process input image. Secret'), CONTENT],
]
for (const [dialect, body, param] of BLAMED) {
  test(`[ERR-11] ${dialect}: ${JSON.stringify(body)} is 400 with the client’s member`, async () => {
    answer = { status: 400, body }
    for (const surface of SURFACES) {
      for (const stream of [false, true]) {
        const { status, headers, error } = await answered(surface, { ...asking(surface, MODELS[dialect]!), stream })
        assert.deepEqual(
          [status, error.type, error.code, error.param, error.retryable, headers.get('x-should-retry')],
          [400, 'invalid_request_error', 'invalid_value', param[surface], false, 'false'],
        )
        assert.equal(headers.get('retry-after'), null)
        assert.match(error.message, new RegExp(`'${param[surface]}'`))
        assert.equal(got.length, 1)
      }
    }
  })
}

// ---- the same errors as events of a reply ---------------------------------------------------------------------------

const sse = (...events: any[]): string =>
  events
    .map(event => `${event.type === undefined ? '' : `event: ${event.type}\n`}data: ${JSON.stringify(event)}\n\n`)
    .join('')
/** By dialect: the first events of a reply, which say 'Well' or nothing yet; and an error object as an event. */
const EVENTS: Record<string, { begin: string; well: string; error(body: any): string }> = {
  'openai-chat': {
    begin: '',
    well: sse({ choices: [{ index: 0, delta: { content: 'Well' } }] }),
    error: body => sse(body),
  },
  'openai-responses': {
    begin: sse({ type: 'response.created', response: { id: 'resp_1', status: 'in_progress' } }),
    well: sse({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'Well' }),
    // As the API documents the event: the members stand beside the type.
    error: ({ error: { code, param, message } }) =>
      sse({ type: 'error', code: code ?? 'invalid_value', param, message, sequence_number: 2 }),
  },
  'anthropic-messages': {
    begin: sse({ type: 'message_start', message: { id: 'msg_1', usage: { input_tokens: 1, output_tokens: 1 } } }),
    well: sse(
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Well' } },
    ),
    error: body => sse(body),
  },
  gemini: {
    begin: '',
    well: sse({ candidates: [{ index: 0, content: { role: 'model', parts: [{ text: 'Well' }] } }] }),
    error: body => sse(body),
  },
}

// An error event inside a reply of status 200 was never the client's fault: 502, or a `server_error` inside the stream,
// which clients send again.
for (const [dialect, body, param] of BLAMED) {
  test(`[ERR-11] ${dialect}: ${JSON.stringify(body)} as an event of a stream`, async () => {
    const { begin, well, error } = EVENTS[dialect]!
    try {
      for (const surface of SURFACES) {
        const ask = asking(surface, MODELS[dialect]!)
        stream = begin + error(body)
        for (const streamed of [false, true]) {
          const { status, headers, error } = await answered(surface, { ...ask, stream: streamed })
          assert.deepEqual(
            [status, error.type, error.code, error.param, error.retryable, headers.get('x-should-retry')],
            [400, 'invalid_request_error', 'invalid_value', param[surface], false, 'false'],
          )
        }
        // What has left stays, and the error is the last frame in place of an end.
        stream = begin + well + error(body)
        const response = await t.post(PATHS[surface], { ...ask, stream: true })
        assert.equal(response.status, 200)
        const text = await response.text()
        assert.match(text, /Well/)
        assert.doesNotMatch(text, /Secret|message_stop|response\.completed|"finish_reason":"/)
        const frames = text
          .split('\n')
          .filter(line => line.startsWith('data: {'))
          .map(line => JSON.parse(line.slice(6)))
        const { code, type, retryable, ...rest } = frames.find(frame => frame.error && !frame.response).error
        assert.deepEqual(
          [code, type, rest.param, retryable],
          ['invalid_value', 'invalid_request_error', param[surface], false],
        )
      }
    } finally {
      stream = null
    }
  })
}

test('[ERR-11] an event that faults the request: other backends are tried first, and none is marked down', async () => {
  const { begin, error } = EVENTS['anthropic-messages']!
  stream = begin + error(anthropic('messages.0: Secret words'))
  try {
    const body = bodyOf('chat', 'both', [{ user: 'x' }], { more: { max_completion_tokens: 900 } })
    got = []
    const response = await t.post('/v1/chat/completions', body)
    assert.equal(((await response.json()) as any).choices[0].message.content, 'fine')
    assert.deepEqual(
      got.map(path => path.startsWith('/good')),
      [false, true],
    )
    for (let i = 0; i < 30; i++) {
      const { status } = await answered('chat', asking('chat', 'model-m'))
      assert.deepEqual([status, got.length], [400, 1])
    }
  } finally {
    stream = null
  }
})

test('[ERR-11] an event about what the gateway wrote, or about the model, stays 502, not to be retried', async () => {
  const { begin, error } = EVENTS['openai-responses']!
  try {
    for (const fault of [openai('unknown_parameter', 'foo'), openai('invalid_value', 'model')]) {
      stream = begin + error(fault)
      const { status, headers, error: told } = await answered('chat', asking('chat', 'model-r'))
      assert.deepEqual(
        [status, told.code, told.param, headers.get('x-should-retry')],
        [502, 'upstream_server_error', null, 'false'],
      )
      assert.equal(got.length, 1)
    }
  } finally {
    stream = null
  }
})

// ---- what is no fault of the client ---------------------------------------------------------------------------------

/** Faults of the account, the model, the credential, the version, or of what the gateway itself wrote. */
const OURS: [dialect: string, status: number, body: unknown, what?: Record<string, unknown>][] = [
  ['openai-chat', 404, openai('model_not_found', 'model')],
  ['openai-chat', 400, openai('invalid_value', 'model')],
  ['openai-chat', 400, openai('unknown_parameter', 'foo')],
  ['openai-chat', 400, openai('unknown_parameter', 'messages[0].foo')],
  ['openai-chat', 400, openai('unsupported_parameter', 'max_completion_tokens')],
  ['openai-chat', 400, { error: 'Secret words' }],
  ['openai-chat', 400, openai('unsupported_value', 'temperature'), { temperature: undefined }],
  ['anthropic-messages', 400, anthropic('anthropic-version: Secret is not a valid version')],
  ['anthropic-messages', 400, anthropic('messages.0.content.0.foo: Extra inputs are not permitted')],
  ['anthropic-messages', 404, anthropic('model: m', 'not_found_error')],
  ['gemini', 400, google('Invalid JSON payload received. Unknown name "foo": Secret', violation('contents[0]'))],
  ['gemini', 400, google('Secret words')],
  ['gemini', 400, google('User location is not supported', [], 'FAILED_PRECONDITION')],
]
for (const [dialect, status, body, more] of OURS) {
  test(`[ERR-11] ${dialect}: ${status} ${JSON.stringify(body)} stays 502, not to be retried`, async () => {
    answer = { status, body }
    const { status: sent, headers, error } = await answered('chat', { ...asking('chat', MODELS[dialect]!), ...more })
    assert.deepEqual(
      [sent, error.code, error.param, error.retryable, headers.get('x-should-retry')],
      [502, 'upstream_server_error', null, false, 'false'],
    )
  })
}

// The cap was the gateway's: the client named none, so it cannot correct it.
test('[ERR-11] a cap that the gateway computed is not the client’s fault', async () => {
  answer = { status: 400, body: anthropic('max_tokens: 8192 > 4096, which is the maximum') }
  const { max_completion_tokens: _, ...body } = asking('chat', 'model-m')
  const { status, error } = await answered('chat', body)
  assert.deepEqual([status, error.retryable], [502, false])
})

test('[ERR-11] where every backend faults it, the last one’s fault is the answer', async () => {
  answer = { status: 400, body: anthropic('messages.0: Secret words') }
  // A seed would put the backends first that take one.
  const { seed: _, ...body } = asking('chat', 'worst')
  const { status } = await answered('chat', body)
  // For the others these words are no code of theirs.
  assert.deepEqual([status, got.length], [502, 2])
})

test('[ERR-11] other backends are tried first, and one that takes the request serves it', async () => {
  answer = { status: 400, body: anthropic('messages.0: Secret words') }
  got = []
  const body = bodyOf('chat', 'both', [{ user: 'x' }], { more: { max_completion_tokens: 900 } })
  const response = await t.post('/v1/chat/completions', body)
  assert.equal(((await response.json()) as any).choices[0].message.content, 'fine')
  assert.deepEqual(
    got.map(path => path.startsWith('/good')),
    [false, true],
  )
  // No breaker opens by it: the next request begins with the same backend.
  for (let i = 0; i < 30; i++) await (await t.post('/v1/chat/completions', body)).text()
  assert.equal(got.filter(path => !path.startsWith('/good')).length, 31)
})

// A provider's own refusal of a long prompt had no figures, no window and no `param`: who reads how much to leave out
// from the message, as the gateway's own refusal invites to, found nothing.
test('[MOD-6] a prompt that the provider finds too long is told with the provider’s figures, in our form', async () => {
  const said: Record<string, unknown> = {
    'openai-chat': openai(
      'context_length_exceeded',
      'messages',
      'maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens',
    ),
    'openai-responses': {
      error: {
        code: 400,
        type: 'exceed_context_size_error',
        message: 'request (2049 tokens) exceeds the available context size (2048 tokens)',
      },
    },
    'anthropic-messages': anthropic('prompt is too long: 2049 tokens > 2048 maximum', 'BadRequestError'),
    gemini: google('The input token count (2049) exceeds the maximum number of tokens allowed (2048).'),
  }
  for (const [dialect, model] of Object.entries(MODELS)) {
    answer = { status: 400, body: said[dialect] }
    for (const surface of SURFACES) {
      const response = await t.post(PATHS[surface], bodyOf(surface, model, [{ user: 'x' }]))
      const { error } = (await response.json()) as { error: Record<string, unknown> }
      const where = `${surface} on ${dialect}`
      assert.deepEqual([response.status, error['code']], [400, 'context_length_exceeded'], where)
      assert.equal(error['message'], 'prompt is too long: 2049 tokens > 2048 maximum', where)
      assert.equal((error['details'] as Record<string, unknown>)['context_window'], 2048, where)
      assert.equal(error['param'], surface === 'responses' ? 'input' : 'messages', where)
    }
  }
})

// ---- the retry loops of the official clients ------------------------------------------------------------------------

/** Each sends one request and lets its client retry as often as it likes. */
const LOOPS: Record<string, (model: string) => Promise<unknown>> = {
  'openai, chat': model =>
    t.openai({ maxRetries: 2 }).chat.completions.create({ model, messages: [{ role: 'user', content: 'x' }] }),
  'openai, responses': model => t.openai({ maxRetries: 2 }).responses.create({ model, input: 'x' }),
  anthropic: model =>
    t
      .anthropic({ maxRetries: 2 })
      .messages.create({ model, max_tokens: 900, messages: [{ role: 'user', content: 'x' }] }),
}
const AI_SDK: Record<string, (model: string) => Promise<unknown>> = {
  'AI SDK, openai': model =>
    generateText({ model: createOpenAI({ baseURL: `${t.url}/v1`, apiKey: KEY })(model), prompt: 'x', maxRetries: 2 }),
  'AI SDK, anthropic': model =>
    generateText({
      model: createAnthropic({ baseURL: `${t.url}/v1`, authToken: KEY })(model),
      prompt: 'x',
      maxRetries: 2,
    }),
}
/** What can never succeed, by what the provider says. */
const NEVER: [name: string, status: number, body: unknown][] = [
  ['a fault of the request', 400, openai(null, 'messages')],
  ['a prompt over the window', 400, openai('context_length_exceeded', 'messages')],
  ['a refusal by policy', 400, openai('invalid_prompt', null)],
]
/** What can never succeed either, but is no fault of the client: 5xx or 429 with `x-should-retry: false`. */
const OPERATORS: typeof NEVER = [
  ['an unknown model', 404, openai('model_not_found', 'model')],
  ['an account without credit', 429, openai('insufficient_quota', null)],
  // The operator has to act; both SDKs sent it twice more at once.
  ['a key that the provider refuses', 401, openai('invalid_api_key', null)],
]
for (const [name, status, body] of [...NEVER, ...OPERATORS]) {
  test(`[ERR-5] [ERR-11] ${name}: no official SDK sends it twice`, async () => {
    answer = { status, body }
    for (const [client, send] of Object.entries(LOOPS)) {
      got = []
      await assert.rejects(send('model-c'))
      assert.equal(got.length, 1, client)
    }
  })
}
for (const [name, status, body] of NEVER) {
  test(`[ERR-11] ${name}: nor does the AI SDK, which looks at the status alone`, async () => {
    answer = { status, body }
    for (const [client, send] of Object.entries(AI_SDK)) {
      got = []
      await assert.rejects(send('model-c'))
      assert.equal(got.length, 1, client)
    }
  })
}
