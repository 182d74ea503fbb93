/** `quote` and `x-max-cost`: what a request would cost, and that it costs no more. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { cost as billOf, exposure, type Price } from '../../core/canon/money.ts'
import { conversation, estimate } from '../../core/plugin.ts'
import { quote as quotePlugin } from '../../plugins/quote.ts'
import { identity, model } from '../../plugins/shared/slots.ts'
import { plainConversation, runPlugin } from '../../plugins/testing.ts'
import { startGateway, type TestGateway } from '../e2e/harness.ts'
import { eventually } from '../eventually.ts'
import { caller, gatewayOf, memoryStore, modelOf, platformOf } from './kit.ts'

const PRICES: Record<string, string> = {
  plain: 'price: { input: 1.25, output: 10.00 }',
  steps: 'price: { input: 0.37, output: 3.19, steps: [{ above: 40, input: 0.91, output: 7.77 }] }',
  caches: 'price: { input: 1.00, output: 2.00, cached: 0.10, cache_write: 1.25 }',
  free: 'price: { input: 0, output: 0 }',
}
let t: TestGateway
before(async () => {
  t = await startGateway({
    models: Object.entries(PRICES)
      .map(
        ([id, price], i) =>
          `  ${id}: { context_window: 400000, max_output_tokens: 128000, ${price}, backends: [{ provider: ${['chat', 'responses', 'messages'][i % 3]}, model: sim-large }] }`,
      )
      .join('\n'),
    organization: '    limits: { requests_per_minute: 1000000, tokens_per_day: 100000000, max_request_usd: 5.00 }',
  })
})
after(() => t.close())

type Surface = 'responses' | 'chat' | 'messages'
const PATHS: Record<Surface, string> = {
  responses: '/v1/responses',
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
}
/** A request whose reply is as long as it may be. */
function bodyOf(surface: Surface, model: string, words: number, cap: number | undefined): object {
  const content = `[[sim: tokens 3000]] ${'word '.repeat(words)}`
  const messages = [{ role: 'user', content }]
  switch (surface) {
    case 'responses':
      return { model, input: content, store: false, ...(cap && { max_output_tokens: cap }) }
    case 'chat':
      return { model, messages, ...(cap && { max_completion_tokens: cap }) }
    case 'messages':
      return { model, messages, max_tokens: cap ?? 4096 }
  }
}
const quoteAt = async (path: string, body: object | string, headers: Record<string, string> = {}) => {
  const response = await t.post(path, body, headers)
  const json = (await response.json()) as any
  return { status: response.status, json }
}
const quote = (surface: Surface, body: object, headers = {}) => quoteAt(`${PATHS[surface]}/quote`, body, headers)
const quoteOfAny = (body: string, headers = {}) => quoteAt('/v1/quote', body, headers)
const send = async (surface: Surface, body: object, headers = {}) => {
  const response = await t.post(PATHS[surface], body, headers)
  const json = (await response.json()) as any
  const id = response.headers.get('x-request-id')!
  const row = (await t.ledger()).find(({ request_id }) => request_id === id)
  return { status: response.status, json, row, adjusted: response.headers.get('x-adjusted') }
}
const nano = (usd: string) => Math.round(Number(usd) * 1e9)
const usd = (amount: number) => (amount / 1e9).toFixed(9)

test('a quote and the bill of the same request at its cap agree to the nano-dollar, on each API', async () => {
  let [reached, beyond] = [0, 0]
  for (const surface of ['responses', 'chat', 'messages'] as const)
    for (const model of ['plain', 'steps', 'free'])
      for (const [words, cap] of [
        [1, 50],
        [200, 57],
        [30, 80],
        [5, 33],
      ] as const) {
        const body = bodyOf(surface, model, words, cap)
        const { status, json } = await quote(surface, body)
        assert.equal(status, 200, JSON.stringify(json))
        assert.deepEqual([json.object, json.model, json.admitted, json.refusal], ['quote', model, true, null])
        assert.equal(json.max_output_tokens, cap)
        const { row } = await send(surface, body)
        assert.equal(row!.input, json.input_tokens)
        assert.ok(row!.cost <= nano(json.cost.most))
        // The provider's cap is in its own tokens, and what was in its cache costs less.
        if (row!.output < cap || row!.cached > 0) continue
        assert.equal(nano(json.cost.most), row!.cost, `${surface} ${model} ${words}`)
        reached++
        // o200k_base counts more than the cap, which the provider counts in its own tokens.
        if (row!.output > cap) beyond++
        const { row: named } = await send(surface, body, { 'x-max-cost': json.cost.most })
        assert.ok(named!.cost <= row!.cost)
      }
  assert.ok(reached >= 6 && beyond >= 1, `${reached} at the cap, ${beyond} beyond it`)
})

test('where writing to a cache costs more than reading anew, the most is as if all of the prompt were written', async () => {
  const { json } = await quote('messages', bodyOf('messages', 'caches', 30, 20))
  assert.equal(nano(json.cost.most), json.input_tokens * 1250 + 20 * 2000)
})

test('what the pipeline of completions serves is quoted: searches of the gateway, and files that it fetches', async () => {
  const other = await startGateway({
    plugins: { 'web-search': '{ provider: simulator }', media: '{ fetch: [localhost] }' },
  })
  try {
    const cases: [path: string, body: object][] = [
      ['/v1/responses', { model: 'eb1-preview', input: 'news', tools: [{ type: 'web_search' }], store: false }],
      [
        '/v1/messages',
        {
          model: 'eb1-preview',
          max_tokens: 20,
          messages: [{ role: 'user', content: 'news' }],
          tools: [{ type: 'web_search_20250305', name: 'web_search' }],
        },
      ],
    ]
    for (const [path, body] of cases) {
      const quoted = await other.post(`${path}/quote`, body)
      const json = (await quoted.json()) as any
      assert.deepEqual([quoted.status, json.admitted], [200, true], JSON.stringify(json))
      const sent = await other.post(path, body)
      assert.equal(sent.status, 200, await sent.text())
    }
    // A private address is not fetched from, and the model of this name takes no URLs.
    const picture = { type: 'image_url', image_url: { url: 'https://localhost/a.png' } }
    const body = {
      model: 'eb1-frontier-preview',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'what' }, picture] }],
    }
    const [quoted, sent] = await Promise.all(
      ['/quote', ''].map(async more => (await other.post(`/v1/chat/completions${more}`, body)).json() as any),
    )
    assert.match(quoted.error.message, /fetch/)
    assert.equal(quoted.error.message, sent.error.message)
  } finally {
    await other.close()
  }
})

test('a quote knows of limits that are lowered while the platform is under load', async () => {
  const other = await startGateway({
    organization: '    limits: { tokens_per_minute: 20000 }',
    extra: 'platform: { max_concurrent_requests: 10, scale_limits_above: 0.1 }',
  })
  const held = new AbortController()
  try {
    const running = Array.from({ length: 8 }, () =>
      fetch(`${other.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: 'Bearer sk-other-0001-secret' },
        body: JSON.stringify({
          model: 'eb1-preview',
          messages: [{ role: 'user', content: '[[sim: delay 120s]] hi' }],
        }),
        signal: held.signal,
      }).catch(() => {}),
    )
    await eventually(() => other.simulator.requests.length === 8)
    const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'hi' }], max_completion_tokens: 10_000 }
    const quoted = (await (await other.post('/v1/chat/completions/quote', body)).json()) as any
    const refused = await other.post('/v1/chat/completions', body)
    const { error } = (await refused.json()) as any
    assert.equal(refused.status, 429)
    assert.deepEqual([quoted.admitted, quoted.refusal.code], [false, error.code])
    assert.equal(quoted.refusal.message, error.message)
    held.abort()
    await Promise.all(running)
  } finally {
    held.abort()
    await other.close()
  }
})

test('/v1/quote answers as the path of the API whose request it got', async () => {
  const call = (input: string) =>
    `"messages":[{"role":"user","content":"go"},` +
    `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":${input}}]},` +
    `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"done"}]}]`
  const tools = '"tools":[{"name":"f","input_schema":{"type":"object"}}]'
  const version = { 'anthropic-version': '2023-06-01' }
  const long = 'word '.repeat(80_000)
  const cases: [Surface, string, Record<string, string>?][] = [
    ['responses', '{"model":"plain","input":"hi","max_output_tokens":9}'],
    ['responses', `{"model":"plain","input":"${long}","store":false}`],
    ['chat', '{"model":"plain","messages":[{"role":"user","content":"hi"}]}'],
    ['messages', '{"model":"plain","thinking":null,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'],
    ['messages', '{"model":"plain","system":"Be brief.","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'],
    ['messages', `{"model":"plain","max_tokens":9,${tools},${call('{"x":1.10,"y":-0}')}}`, version],
    // Nothing tells but that Chat refuses it.
    ['messages', `{"model":"plain","max_tokens":9,${tools},${call('{"x":1.10,"y":-0}')}}`],
    ['messages', `{"model":"plain","max_tokens":9,${call('{"x":1}')}}`],
    ['messages', `{"model":"plain","max_tokens":9,${tools},"messages":[{"role":"user","content":"${long}"}]}`],
    [
      'messages',
      '{"model":"plain","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hello"}}]}]}',
    ],
    // A member in front that takes several turns of the event loop to read, and one at the end that tells.
    [
      'messages',
      `{"messages":[{"role":"user","content":"${long}"}],"model":"plain","max_tokens":9,"stop_sequences":["END"]}`,
    ],
  ]
  for (const [surface, body, headers] of cases) {
    const [own, any] = await Promise.all([quoteAt(`${PATHS[surface]}/quote`, body, headers), quoteOfAny(body, headers)])
    assert.deepEqual(any, own, body.slice(0, 200))
    assert.equal(own.status, 200, JSON.stringify(own.json))
  }
  // The spelling of a number is part of what is counted.
  const [plain, spelled] = await Promise.all(
    ['{"x":1.1}', '{"x":1.1000000000000000000}'].map(input =>
      quoteOfAny(`{"model":"plain","max_tokens":9,${tools},${call(input)}}`, version),
    ),
  )
  assert.ok(spelled!.json.input_tokens > plain!.json.input_tokens)
})

test('what both Chat and Messages take is quoted alike by the two', async () => {
  const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }).filter(said => said.trim() !== '')
  const content = fc.oneof(
    text,
    fc.array(
      text.map(said => ({ type: 'text', text: said })),
      { minLength: 1, maxLength: 3 },
    ),
  )
  const message = fc.record({ role: fc.constantFrom('user', 'assistant'), content })
  let alike = 0
  await fc.assert(
    fc.asyncProperty(
      fc.array(message, { minLength: 1, maxLength: 5 }),
      fc.integer({ min: 1, max: 500 }),
      fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
      fc.boolean(),
      fc.option(content, { nil: undefined }),
      async (messages, max_tokens, temperature, stream, system) => {
        const body = { model: 'plain', messages, max_tokens, temperature, stream, system }
        const [chat, own] = await Promise.all([quote('chat', body), quote('messages', body)])
        if (own.status !== 200) return
        assert.deepEqual(chat, own)
        alike++
      },
    ),
    { numRuns: 100 },
  )
  assert.ok(alike > 50, String(alike))
})

test('/v1/quote refuses in the form of the API that the request is of', async () => {
  const version = { 'anthropic-version': '2023-06-01' }
  const cases: [body: string, headers: Record<string, string>, form: 'messages' | 'other', code: string][] = [
    ['{"model":"plain","max_tokens":0,"messages":[]}', version, 'messages', 'invalid_value'],
    ['{"model":"plain","system":"s","max_tokens":9}', {}, 'other', 'missing_required_parameter'],
    ['{"model":"plain","cache_control":null,"max_tokens":9,"messages":[]}', {}, 'messages', 'invalid_value'],
    ['{"model":"plain","input":[{"type":"no"}]}', {}, 'other', 'unsupported_value'],
    ['{}', {}, 'other', 'missing_required_parameter'],
    ['{"model":"plain","messages":[{"role":"user","content":[{"type":"no"}]}]}', {}, 'other', 'unsupported_value'],
    ['[1]', version, 'messages', 'invalid_json'],
    ['{"messages":', {}, 'other', 'invalid_json'],
    [
      '{"model":"plain","messages":[]}',
      { ...version, authorization: 'Bearer sk-unknown' },
      'messages',
      'invalid_api_key',
    ],
  ]
  for (const [body, headers, form, code] of cases) {
    const { status, json } = await quoteOfAny(body, headers)
    assert.ok(status >= 400 && status < 500, body)
    assert.equal(json.type, form === 'messages' ? 'error' : undefined, body)
    assert.equal(json.error.code, code, `${body}: ${JSON.stringify(json)}`)
  }
})

test('x-max-cost: the bill is never above it, and what cannot be had for it is refused with what it needs', async () => {
  const surfaces = fc.constantFrom<Surface>('responses', 'chat', 'messages')
  await fc.assert(
    fc.asyncProperty(
      surfaces,
      fc.constantFrom(...Object.keys(PRICES)),
      fc.integer({ min: 1, max: 300 }),
      fc.option(fc.integer({ min: 1, max: 400 }), { nil: undefined }),
      fc.integer({ min: 0, max: 3_000_000 }),
      async (surface, model, words, cap, bound) => {
        const headers = { 'x-max-cost': usd(bound) }
        const body = bodyOf(surface, model, words, cap)
        const quoted = await quote(surface, body, headers)
        const { status, json, row } = await send(surface, body, headers)
        assert.equal(quoted.status, 200)
        assert.equal(quoted.json.admitted, status === 200)
        if (status !== 200) {
          assert.equal(json.error.code, 'request_spend_cap_exceeded')
          assert.equal(quoted.json.refusal.code, json.error.code)
          const least = nano(json.error.details.least_usd)
          assert.ok(least > bound)
          const enough = await send(surface, body, { 'x-max-cost': usd(least) })
          assert.equal(enough.status, 200, 'what it said is enough')
          assert.ok(enough.row!.cost <= least)
          return
        }
        assert.ok(row!.cost <= bound || model === 'free', `${row!.cost} of ${bound}`)
        assert.ok(quoted.json.cost.most === null || nano(quoted.json.cost.most) <= bound || model === 'free')
      },
    ),
    { numRuns: 60 },
  )
})

test('a lowered cap goes to the provider and is named; one that needs none is sent as it is', async () => {
  const lowered = await send('chat', bodyOf('chat', 'plain', 1, 1000), { 'x-max-cost': '0.001' })
  const sent = (t.simulator.requests.at(-1) as any).json
  const cap = sent.max_completion_tokens ?? sent.max_tokens
  assert.ok(cap <= 100, String(cap))
  assert.match(lowered.adjusted!, new RegExp(`^max_completion_tokens=sent_as_${cap}$`))
  assert.ok(lowered.row!.cost <= 1_000_000)
  const plain = await send('chat', bodyOf('chat', 'plain', 1, 20), { 'x-max-cost': '4' })
  assert.equal(plain.adjusted, null)
  const unnamed = await send('chat', bodyOf('chat', 'plain', 1, undefined), { 'x-max-cost': '0.001' })
  assert.match(unnamed.adjusted!, /^max_output_tokens=sent_as_\d+$/)
})

test('the header has a form; limits of the account hold beside it', async () => {
  for (const value of ['-1', '1e3', '0.1234567891', 'free', '1,5', '']) {
    const { status, json } = await send('chat', bodyOf('chat', 'plain', 1, 10), { 'x-max-cost': value })
    assert.deepEqual([status, json.error?.code, json.error?.param], [400, 'bad_request', 'x-max-cost'], value)
  }
  const over = await quote('chat', bodyOf('chat', 'plain', 1, 120_000 * 10), { 'x-max-cost': '100' })
  assert.equal(over.json.admitted ?? over.status, over.status === 200 ? false : over.status)
})

test('a quote takes nothing but a count, sends nothing, and says which limit is in the way and for how long', async () => {
  const other = await startGateway({
    organization: '    limits: { requests_per_minute: 2, tokens_per_minute: 20000, daily_spend_usd: 1.00 }',
  })
  try {
    const ask = async (path: string, body: object) => {
      const response = await other.post(path, body)
      return { status: response.status, json: (await response.json()) as any }
    }
    const body = { model: 'eb1-preview', messages: [{ role: 'user', content: 'hi' }], max_completion_tokens: 10 }
    const path = '/v1/chat/completions'
    assert.equal((await ask(`${path}/quote`, body)).json.admitted, true)
    assert.equal(other.simulator.requests.length, 0)
    assert.equal((await ask(path, body)).status, 200)
    assert.equal((await ask(path, body)).status, 200)
    const refused = await ask(path, body)
    assert.equal(refused.status, 429)
    // The bucket of counts has as many as requests a minute.
    const quoted = await ask(`${path}/quote`, body)
    assert.equal(quoted.status, 200)
    assert.equal(quoted.json.admitted, false)
    assert.equal(quoted.json.refusal.code, refused.json.error.code)
    assert.ok(quoted.json.refusal.retry_after_seconds >= 1)
    assert.equal((await other.ledger()).length, 2)
    const third = await ask(`${path}/quote`, body)
    assert.deepEqual([third.status, third.json.error.code], [429, 'requests_limit_exceeded'])
  } finally {
    await other.close()
  }
  // A request that could never be admitted says so, and what it would cost is left out.
  const tooDear = await quote('chat', bodyOf('chat', 'plain', 1, 128_000), {})
  assert.equal(tooDear.json.admitted, true)
  const wrong = await quote('chat', { model: 'plain', messages: [] })
  assert.equal(wrong.status, 400, 'what the API refuses, a quote refuses alike')
  assert.equal((await quote('chat', bodyOf('chat', 'nobody', 1, 1))).status, 404)
})

test('the most of a quote is what the money of core says', () => {
  const price: Price = { input: 1_250_000, output: 10_000_000 }
  fc.assert(
    fc.property(fc.nat(1e6), fc.nat(1e6), (input, output) => {
      assert.equal(exposure(input, output, price), billOf({ input, cached: 0, output }, price))
    }),
  )
})

test('by itself: the answer of a model that costs something, and what nobody can be admitted for', async () => {
  const { organization, key } = caller({ limits: { max_request_usd: 1_000_000 } } as never)
  const store = await memoryStore()
  const said = (cap: number) =>
    runPlugin(quotePlugin, {
      gateway: gatewayOf({ platform: platformOf({}) }),
      store,
      slots: [
        [identity, { organization, key }],
        [model, modelOf()],
        [estimate, { input: 100 }],
        [conversation, plainConversation({ maxOutputTokens: cap })],
      ],
    } as never)
  const fine = (await said(10)).json
  assert.deepEqual([fine.object, fine.admitted, fine.input_tokens, fine.max_output_tokens], ['quote', true, 100, 10])
  const dear = (await said(100_000)).json
  assert.deepEqual([dear.admitted, dear.refusal.code, dear.cost.most], [false, 'request_spend_cap_exceeded', null])
  const bounded = await runPlugin(quotePlugin, {
    gateway: gatewayOf({ platform: platformOf({}) }),
    store,
    request: { headers: { 'x-max-cost': 'much' } },
    slots: [
      [identity, caller()],
      [model, modelOf()],
      [estimate, { input: 100 }],
      [conversation, plainConversation({})],
    ],
  } as never)
  assert.equal(bounded.json.refusal.code, 'bad_request')
})
