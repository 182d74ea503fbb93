/** POST /v1/chat/completions through the whole chain, from the official client. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import OpenAI from 'openai'
import { KEY, startGateway, stillClock, type TestGateway } from './harness.ts'

let t: TestGateway
before(async () => {
  t = await startGateway()
})
after(() => t.close())

const user = (content: string) => [{ role: 'user' as const, content }]

test('[GEN-1] buffered: text, usage, canonical model, request id', async () => {
  const { data, response, request_id } = await t
    .openai()
    .chat.completions.create({
      model: 'eb1-preview',
      messages: user('[[sim: text "Hello there."]] hi'),
      max_tokens: 100,
    })
    .withResponse()
  assert.equal(data.object, 'chat.completion')
  assert.equal(data.model, 'eb1-preview')
  assert.equal(data.choices[0]!.message.content, 'Hello there.')
  assert.equal(data.choices[0]!.finish_reason, 'stop')
  assert.match(data.id, /^chatcmpl-/)
  assert.equal(response.headers.get('x-request-id'), request_id)
  const usage = data.usage!
  assert.equal(usage.completion_tokens, 3)
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
})

test('[GEN-1] [CHAT-4] streamed: the accumulated message equals the buffered one', async () => {
  const messages = user('[[sim: text "One two three four five."]] count')
  const buffered = await t.openai().chat.completions.create({ model: 'eb1-preview', messages })
  const stream = t
    .openai()
    .chat.completions.stream({ model: 'eb1-preview', messages, stream_options: { include_usage: true } })
  const final = await stream.finalChatCompletion()
  assert.deepEqual(final.choices[0]!.message.content, buffered.choices[0]!.message.content)
  assert.equal(final.choices[0]!.finish_reason, buffered.choices[0]!.finish_reason)
  // The second time the upstream serves the prompt from its cache: the split may differ, the counts not (METER-1).
  const { prompt_tokens_details: _, ...counts } = buffered.usage!
  const { prompt_tokens_details: __, ...streamed } = final.usage!
  assert.deepEqual(streamed, counts)
})

test('[CHAT-4] without include_usage no chunk has usage; with it only the last, and [DONE] ends the stream', async () => {
  for (const include of [false, true]) {
    const response = await t.post('/v1/chat/completions', {
      model: 'eb1-preview',
      messages: user('hi'),
      stream: true,
      ...(include && { stream_options: { include_usage: true } }),
    })
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8')
    const text = await response.text()
    assert.ok(text.endsWith('data: [DONE]\n\n'))
    const chunks = text
      .split('\n\n')
      .filter(f => f.startsWith('data: {'))
      .map(f => JSON.parse(f.slice(6)))
    const withUsage = chunks.filter(c => c.usage)
    assert.equal(withUsage.length, include ? 1 : 0)
    assert.equal(
      chunks.every(c => include === 'usage' in c),
      true,
    )
    assert.equal(new Set(chunks.map(c => c.id)).size, 1)
  }
})

test('[TOOL-1] a tool call round trip: ids ours, declared names, the answer reaches the model', async () => {
  const tools = [
    {
      type: 'function' as const,
      function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
    },
  ]
  const first = await t.openai().chat.completions.create({
    model: 'eb1-preview',
    messages: user('[[sim: call get_weather {"city":"Oslo"}]] weather?'),
    tools,
  })
  const message = first.choices[0]!.message
  assert.equal(first.choices[0]!.finish_reason, 'tool_calls')
  const call = message.tool_calls![0]!
  assert.match(call.id, /^call_eba1_[A-Za-z0-9_-]+$/)
  assert.equal(call.type === 'function' && call.function.name, 'get_weather')
  assert.deepEqual(call.type === 'function' && JSON.parse(call.function.arguments), { city: 'Oslo' })
  const second = await t.openai().chat.completions.create({
    model: 'eb1-preview',
    messages: [...user('weather?'), message, { role: 'tool', tool_call_id: call.id, content: 'sunny, 21 degrees' }],
    tools,
  })
  assert.equal(second.choices[0]!.finish_reason, 'stop')
  const upstream = JSON.parse((t.simulator.requests.at(-1)!.body as unknown as string) ?? '{}')
  const sent = JSON.stringify(upstream)
  assert.doesNotMatch(sent, /call_eba1_/, 'public ids stay on this side')
  assert.match(sent, /sunny, 21 degrees/)
})

test('[TOOL-3] long and odd tool names come back as declared', async () => {
  const name = `järn.${'x'.repeat(80)}`
  const result = await t.openai().chat.completions.create({
    model: 'eb1-preview',
    messages: user('[[sim: call * {}]] go'),
    tools: [{ type: 'function', function: { name } }],
    tool_choice: { type: 'function', function: { name } },
  })
  const call = result.choices[0]!.message.tool_calls![0]!
  assert.equal(call.type === 'function' && call.function.name, name)
})

test('[AUTH-1] the three failures, as the official client sees them', async () => {
  const bad = t.openai({ apiKey: 'sk-wrong-key-000000' })
  await assert.rejects(bad.chat.completions.create({ model: 'eb1-preview', messages: user('x') }), (error: any) => {
    assert.ok(error instanceof OpenAI.AuthenticationError)
    assert.equal(error.code, 'invalid_api_key')
    assert.equal(error.type, 'authentication_error')
    assert.equal((error.error as any).details.key_hint, 'sk-***0000')
    assert.equal(error.headers.get('www-authenticate'), 'Bearer')
    assert.equal(error.headers.get('x-should-retry'), 'false')
    return true
  })
  const none = await fetch(`${t.url}/v1/models`)
  assert.equal(none.status, 401)
  assert.equal(((await none.json()) as any).error.code, 'missing_authorization')
  const basic = await t.post('/v1/chat/completions', {}, { authorization: 'Basic abc' })
  assert.equal(((await basic.json()) as any).error.code, 'bearer_scheme_required')
  const lower = await t.post(
    '/v1/chat/completions',
    { model: 'eb1-preview', messages: user('x') },
    { authorization: `bearer ${KEY}` },
  )
  assert.equal(lower.status, 200)
})

test('[AUTH-2] x-api-key alone is missing_authorization, and the message says what to do', async () => {
  const response = await fetch(`${t.url}/v1/messages`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': KEY },
    body: '{}',
  })
  assert.equal(response.status, 401)
  const body = (await response.json()) as any
  assert.equal(body.error.code, 'missing_authorization')
  assert.match(body.error.message, /authToken/)
})

test('[GEN-2] an unknown field, at any depth, is named', async () => {
  const cases: [unknown, string][] = [
    [{ model: 'eb1-preview', messages: user('x'), foo: 1 }, 'foo'],
    [
      { model: 'eb1-preview', messages: [{ role: 'user', content: [{ type: 'text', text: 'x', foo: 1 }] }] },
      'messages[0].content[0].foo',
    ],
    [{ model: 'eb1-preview', messages: user('x'), stream_options: { foo: true } }, 'stream_options.foo'],
  ]
  for (const [body, param] of cases) {
    const response = await t.post('/v1/chat/completions', body)
    const { error } = (await response.json()) as any
    assert.equal(response.status, 400)
    assert.equal(error.code, 'unknown_parameter')
    assert.equal(error.param, param)
    assert.equal(error.type, 'invalid_request_error')
    assert.equal(error.retryable, false)
  }
})

test('[GEN-3] response_format other than text is refused', async () => {
  const ok = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: user('x'),
    response_format: { type: 'text' },
  })
  assert.equal(ok.status, 200)
  const bad = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: user('x'),
    response_format: { type: 'json_object' },
  })
  assert.equal(bad.status, 400)
  assert.equal(((await bad.json()) as any).error.param, 'response_format')
})

test('[GEN-4] retired, unknown and wrong-method paths', async () => {
  const retired = await fetch(`${t.url}/v24b/v1/chat/completions`, { method: 'PUT' })
  assert.equal(retired.status, 410)
  assert.equal(((await retired.json()) as any).error.code, 'endpoint_retired')
  const unknown = await fetch(`${t.url}/v1/nothing`)
  assert.equal(unknown.status, 404)
  assert.equal(((await unknown.json()) as any).error.code, 'not_found')
  const method = await fetch(`${t.url}/v1/chat/completions`)
  assert.equal(method.status, 405)
  assert.match(method.headers.get('allow')!, /POST/)
})

test('[GEN-5] 415 for another content type, 413 for too large a body', async () => {
  const type = await t.post('/v1/chat/completions', 'x', { 'content-type': 'text/plain' })
  assert.equal(type.status, 415)
  assert.equal(((await type.json()) as any).error.code, 'unsupported_media_type')
})

test('[MOD-1] the model list, as the official client reads it', async () => {
  const ids: string[] = []
  for await (const m of t.openai().models.list()) ids.push(m.id)
  assert.deepEqual(ids, ['eb1-preview', 'eb1-efficient-preview', 'eb1-fast-preview', 'eb1-frontier-preview'])
})

test('[MOD-3] legacy ids work and the response names the canonical one', async () => {
  const result = await t.openai().chat.completions.create({ model: 'eb1-preview-delta', messages: user('x') })
  assert.equal(result.model, 'eb1-delta-preview')
})

test('[MOD-4] an unknown model names those the key can call', async () => {
  await assert.rejects(t.openai().chat.completions.create({ model: 'gpt-9', messages: user('x') }), (error: any) => {
    assert.ok(error instanceof OpenAI.NotFoundError)
    assert.equal(error.code, 'model_not_found')
    assert.match(error.message, /eb1-preview/)
    assert.equal(error.headers.get('x-should-retry'), 'false')
    return true
  })
})

test('[MOD-6] a prompt over the window', async () => {
  const small = await startGateway({
    models: '  tiny: { context_window: 50, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: m }] }',
  })
  try {
    const response = await small.post('/v1/chat/completions', {
      model: 'tiny',
      messages: user('word '.repeat(100)),
      max_tokens: 1,
    })
    const { error } = (await response.json()) as any
    assert.equal(response.status, 400)
    assert.equal(error.code, 'context_length_exceeded')
    const [, n, m] = /^prompt is too long: (\d+) tokens > (\d+) maximum$/.exec(error.message)!
    assert.ok(Number(n) > Number(m))
    assert.equal(error.details.context_window, 50)
  } finally {
    await small.close()
  }
})

test('[BILL-4] each admitted request ends in exactly one ledger row, with its bill', async () => {
  const before = (await t.ledger()).length
  const { data, request_id } = await t
    .openai()
    .chat.completions.create({ model: 'eb1-preview', messages: user('bill me') })
    .withResponse()
  const rows = await t.ledger()
  assert.equal(rows.length, before + 1)
  const row = rows.find(r => r.request_id === request_id)!
  assert.equal(row.outcome, 'completed')
  assert.equal(row.organization, 'acme')
  assert.equal(row.key_id, 'key_test')
  assert.equal(row.model, 'eb1-preview')
  assert.equal(row.price_book, 'test-1')
  assert.equal(row.input, data.usage!.prompt_tokens)
  assert.equal(row.output, data.usage!.completion_tokens)
  assert.equal(row.cost, row.cached === 0 ? row.input * 1250 + row.output * 10_000 : row.cost)
})

test('[GEN-7] no reply names a provider, an upstream model or an upstream id', async () => {
  const response = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: user('[[sim: text "ok"]] hi'),
    stream: true,
  })
  const text = (await response.text()) + JSON.stringify([...response.headers])
  assert.doesNotMatch(text, /sim-large|simulator|chatcmpl-sim|127\.0\.0\.1/)
})

test('[IDEM-1] the same key and body replays status, headers and bytes, and executes nothing', async () => {
  for (const stream of [false, true]) {
    const body = { model: 'eb1-preview', messages: user(`idem ${stream}`), stream }
    const headers = { 'idempotency-key': `k-${stream}` }
    const first = await t.post('/v1/chat/completions', body, headers)
    const bytes = await first.text()
    const executed = t.simulator.requests.length
    const rows = (await t.ledger()).length
    const second = await t.post('/v1/chat/completions', body, headers)
    assert.equal(second.status, first.status)
    assert.equal(await second.text(), bytes)
    assert.equal(second.headers.get('x-idempotent-replay'), 'true')
    assert.equal(second.headers.get('x-original-request-id'), first.headers.get('x-request-id'))
    assert.notEqual(second.headers.get('x-request-id'), first.headers.get('x-request-id'))
    assert.equal(second.headers.get('content-type'), first.headers.get('content-type'))
    assert.equal(t.simulator.requests.length, executed)
    assert.equal((await t.ledger()).length, rows)
  }
})

test('[IDEM-2] the same key with another body is a conflict', async () => {
  const headers = { 'idempotency-key': 'conflicting' }
  await (await t.post('/v1/chat/completions', { model: 'eb1-preview', messages: user('one') }, headers)).text()
  const other = await t.post('/v1/chat/completions', { model: 'eb1-preview', messages: user('two') }, headers)
  assert.equal(other.status, 409)
  assert.equal(other.headers.get('x-should-retry'), 'false')
  assert.equal(((await other.json()) as any).error.code, 'idempotency_key_conflict')
})

test('[TOOL-4] a result for an unknown call is refused before any model runs', async () => {
  const executed = t.simulator.requests.length
  const response = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: [...user('x'), { role: 'tool', tool_call_id: 'call_eba1_none', content: 'r' }],
  })
  const { error } = (await response.json()) as any
  assert.equal(response.status, 400)
  assert.equal(error.code, 'conversation_invariant')
  assert.equal(error.details.call_id, 'call_eba1_none')
  assert.equal(t.simulator.requests.length, executed)
})

test('[LIM-9] limits stand in headers; an unlimited account has none', async () => {
  const unlimited = await t.post('/v1/chat/completions', { model: 'eb1-preview', messages: user('x') })
  assert.deepEqual(
    [...unlimited.headers.keys()].filter(n => n.startsWith('x-ratelimit')),
    [],
  )
  const limited = await startGateway({ organization: '    limits: { requests_per_minute: 3, concurrent_requests: 2 }' })
  try {
    const ok = await limited.post('/v1/chat/completions', { model: 'eb1-preview', messages: user('x') })
    assert.equal(ok.headers.get('x-ratelimit-limit-requests'), '3')
    assert.equal(ok.headers.get('x-ratelimit-remaining-requests'), '2')
    assert.match(ok.headers.get('x-ratelimit-reset-requests')!, /^\d+(ms|s)$/)
    assert.equal(ok.headers.get('x-ratelimit-limit-concurrency'), '2')
    assert.equal(ok.headers.get('x-ratelimit-scope'), 'org')
  } finally {
    await limited.close()
  }
})

test('[LIM-5] [LIM-3] of many simultaneous requests exactly N pass; the denial is typed and says when to retry', async () => {
  const limited = await startGateway({
    organization: '    limits: { requests_per_minute: 5 }',
    gateway: { clock: stillClock() },
  })
  try {
    const replies = await Promise.all(
      Array.from({ length: 40 }, () =>
        limited.post('/v1/chat/completions', { model: 'eb1-preview', messages: user('x') }),
      ),
    )
    assert.equal(replies.filter(r => r.status === 200).length, 5)
    const denied = replies.find(r => r.status === 429)!
    const { error } = (await denied.json()) as any
    assert.equal(error.code, 'requests_limit_exceeded')
    assert.equal(error.type, 'rate_limit_error')
    assert.equal(error.details.dimension, 'requests')
    const ms = Number(denied.headers.get('retry-after-ms'))
    assert.equal(Number(denied.headers.get('retry-after')), Math.max(1, Math.ceil(ms / 1000)))
    assert.ok(Math.abs(error.details.retry_after_seconds * 1000 - ms) < 1e-6)
    await assert.rejects(
      limited.openai().chat.completions.create({ model: 'eb1-preview', messages: user('x') }),
      OpenAI.RateLimitError,
    )
  } finally {
    await limited.close()
  }
})

test('[AUTH-7] [ERR-6] [ERR-7] upstream failures keep their codes and nothing of the upstream', async () => {
  const cases: [string, number, string][] = [
    ['status 401', 502, 'upstream_auth_error'],
    ['status 500', 502, 'upstream_server_error'],
    ['status 503', 503, 'provider_unavailable'],
    ['status 429 retry-after 7', 429, 'capacity_exceeded'],
  ]
  for (const [directive, status, code] of cases) {
    const fresh = await startGateway()
    try {
      const response = await fresh.post('/v1/chat/completions', {
        model: 'eb1-preview',
        messages: user(`[[sim: ${directive}]] x`),
      })
      const { error } = (await response.json()) as any
      assert.equal(response.status, status, directive)
      assert.equal(error.code, code)
      assert.deepEqual(
        [...response.headers.keys()].filter(n => n.startsWith('x-ratelimit')),
        [],
      )
    } finally {
      await fresh.close()
    }
  }
})

test('[STR-6] [ERR-8] a stream that the upstream cuts ends in an error frame, without the usual terminator', async () => {
  const response = await t.post('/v1/chat/completions', {
    model: 'eb1-preview',
    messages: user('[[sim: cut 3]] tell me a long story'),
    stream: true,
  })
  const text = await response.text()
  assert.doesNotMatch(text, /\[DONE\]|"finish_reason":"/)
  const last = text.trimEnd().split('\n\n').at(-1)!
  assert.match(last, /^data: \{"error":\{.*"code":"upstream_server_error"/)
})
