/**
 * `otel`: one span for the exchange, one for each attempt, posted in batches. Losing spans never touches an exchange.
 */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, mock, test } from 'node:test'
import { conversation, usage } from '../../core/plugin.ts'
import { otel } from '../../plugins/otel/index.ts'
import { callReport, candidates, identity, model } from '../../plugins/shared/slots.ts'
import {
  GatewayError,
  ManualClock,
  plainConversation,
  type RunOptions,
  runPlugin,
  type TestEvents,
} from '../../plugins/testing.ts'
import { backend, caller, modelOf, text } from './kit.ts'

/** What was posted to the receiver, which answers 200 unless a test says otherwise. */
let posts: { url: string; headers: Record<string, string>; spans: any[]; resource: any }[]
let receiver: () => Promise<Response>
beforeEach(() => {
  posts = []
  receiver = async () => new Response('{}')
  mock.method(
    globalThis,
    'fetch',
    (url: string, { headers, body }: { headers: Record<string, string>; body: string }) => {
      const [{ resource, scopeSpans }] = JSON.parse(body).resourceSpans
      posts.push({ url, headers, spans: scopeSpans[0].spans, resource })
      return receiver()
    },
  )
})
afterEach(() => mock.restoreAll())

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331'
const run = ({ config = {}, ...more }: RunOptions<any> = {}) =>
  runPlugin(otel, {
    config: { endpoint: 'http://traces.invalid:4318', ...config },
    events: [text('hi')],
    ...more,
    slots: [[identity, caller()], [model, modelOf()], ...(more.slots ?? [])],
  })
const spans = () => posts.flatMap(post => post.spans)
const attributesOf = (span: any) =>
  Object.fromEntries(span.attributes.map(({ key, value }: any) => [key, Object.values(value)[0]]))

test('an exchange is one SERVER span, with who called, what was asked, how it ended and what it cost', async () => {
  const clock = new ManualClock(1_780_000_000_000)
  await run({
    clock,
    slots: [
      [
        usage,
        {
          usage: { input: 100, cached: 0, cacheWrite: 0, output: 7, reasoning: 0, searches: 0, estimated: false },
          cost: 128_000,
          billed: true,
        },
      ],
      [callReport, { served: backend() }],
    ],
    events: [() => clock.advance(250), text('hi')],
  })
  const [span] = spans()
  assert.equal(spans().length, 2, 'the exchange and its attempt')
  assert.deepEqual(
    [span.name, span.kind, span.startTimeUnixNano, span.endTimeUnixNano, span.status],
    ['POST /v1/test', 2, '1780000000000000000', '1780000000250000000', undefined],
  )
  const found = attributesOf(span)
  assert.deepEqual(
    Object.fromEntries(
      [
        'http.response.status_code',
        'gen_ai.request.model',
        'gen_ai.usage.input_tokens',
        'gen_ai.usage.output_tokens',
      ].map(name => [name, found[name]]),
    ),
    {
      'http.response.status_code': '200',
      'gen_ai.request.model': 'test-model',
      'gen_ai.usage.input_tokens': '100',
      'gen_ai.usage.output_tokens': '7',
    },
  )
  assert.deepEqual(
    [
      found['sluice.organization'],
      found['sluice.key'],
      found['sluice.backend'],
      found['sluice.outcome'],
      found['sluice.cost_usd'],
    ],
    ['acme', 'key_ci', 'local/small', 'completed', 0.000128],
  )
})

test('each attempt at a backend is a CLIENT span below it; one that failed says how', async () => {
  const { requests } = await run({
    slots: [
      [candidates, [backend({ id: 'local/one', model: 'one' }), backend({ id: 'local/two', model: 'two' })]],
      [callReport, { served: backend() }],
    ],
    failures: [new GatewayError('upstream_server_error', { message: 'It failed.' })],
    events: [text('hi')],
  })
  const [exchange, first, second] = spans()
  assert.deepEqual([first.name, first.kind, second.name], ['chat one', 3, 'chat two'])
  for (const [i, span] of [first, second].entries()) {
    assert.deepEqual([span.traceId, span.parentSpanId], [exchange.traceId, exchange.spanId])
    assert.equal(
      requests[i]!.own['traceparent'],
      `00-${span.traceId}-${span.spanId}-01`,
      'the traceparent of the attempt',
    )
  }
  assert.deepEqual([first.status, attributesOf(first)['error.type']], [{ code: 2 }, 'upstream_server_error'])
  assert.equal(second.status, undefined)
})

test('never prompts, replies or headers', async () => {
  const asked = plainConversation({ turns: [{ role: 'user', parts: [text('secret question')] }] })
  await run({
    slots: [[conversation, asked]],
    request: { headers: { authorization: 'Bearer sk-secret', 'x-note': 'secret note' } },
    events: [text('secret answer')],
  })
  assert.equal(spans().length, 2)
  assert.doesNotMatch(JSON.stringify(posts), /secret/)
})

const ENDS: [how: string, error: GatewayError | undefined, events: TestEvents, failed: boolean][] = [
  ['a whole reply is no error', undefined, [text('hi')], false],
  [
    'what the client did wrong is no error of the server',
    new GatewayError('invalid_value', { message: 'x' }),
    [],
    false,
  ],
  ['what the gateway or an upstream did is', new GatewayError('upstream_server_error', { message: 'x' }), [], true],
  [
    'a failure after the head is',
    new GatewayError('upstream_server_error', { message: 'x' }),
    [text('hi'), x => void x.flush()],
    true,
  ],
]
for (const [how, error, events, failed] of ENDS) {
  test(`the status of the span: ${how}`, async () => {
    await run({ events: [...events, ...(error ? [{ type: 'error' as const, error }] : [])] })
    assert.deepEqual(spans()[0].status, failed ? { code: 2 } : undefined)
    assert.equal(attributesOf(spans()[0])['error.type'], error?.code)
  })
}

// ---- what is traced -------------------------------------------------------------------------------------------------

const SAMPLED: [what: string, config: object, traceparent: string | undefined, traced: boolean][] = [
  ['everything, by default', {}, undefined, true],
  ['nothing at sample: 0', { sample: 0 }, undefined, false],
  ['what the client’s trace samples, at sample: 0', { sample: 0 }, `${PARENT}-01`, true],
  ['not what the client’s trace leaves out', {}, `${PARENT}-00`, false],
  ['as sample says, with follow_parent: false', { follow_parent: false }, `${PARENT}-00`, true],
  ['as sample says, with a traceparent that is none', { sample: 0 }, 'junk', false],
]
for (const [what, config, traceparent, traced] of SAMPLED) {
  test(`traced is ${what}`, async () => {
    const { requests } = await run({ config, request: { headers: traceparent ? { traceparent } : {} } })
    assert.deepEqual([spans().length, requests[0]!.own['traceparent'] !== undefined], [traced ? 2 : 0, traced])
  })
}

test('the span is a child of the client’s', async () => {
  await run({ request: { headers: { traceparent: `${PARENT}-01` } } })
  const [span] = spans()
  assert.deepEqual([span.traceId, span.parentSpanId], [PARENT.slice(3, 35), PARENT.slice(36)])
})

// ---- the receiver ---------------------------------------------------------------------------------------------------

test('endpoint, headers and service_name: where and as what spans are posted', async () => {
  await run({ config: { endpoint: 'https://t.invalid/otlp/', headers: { 'x-tenant': 'blue' }, service_name: 'edge' } })
  const [post] = posts
  assert.equal(post!.url, 'https://t.invalid/otlp/v1/traces')
  assert.equal(post!.headers['x-tenant'], 'blue')
  assert.deepEqual(post!.resource.attributes, [{ key: 'service.name', value: { stringValue: 'edge' } }])
})

test('interval: what waits is posted when it is over, without another exchange', async () => {
  const clock = new ManualClock()
  let posted = -1
  const watching = {
    ...otel,
    async create(config: any, context: any) {
      const hooks = await otel.create(config, context)
      return {
        ...hooks,
        async close() {
          clock.advance(4999)
          const before = posts.length
          clock.advance(1)
          posted = posts.length - before
          await hooks.close!()
        },
      }
    },
  }
  await runPlugin(watching, { config: { endpoint: 'http://traces.invalid' } as never, clock, events: [text('hi')] })
  assert.deepEqual([posted, posts.length], [1, 1])
})

const failures = Array.from({ length: 3 }, () => new GatewayError('upstream_server_error', { message: 'It failed.' }))

test('batch: no post has more spans', async () => {
  await run({ config: { batch: 2 }, failures, events: [text('hi')] })
  assert.deepEqual(
    posts.map(post => post.spans.length),
    [2, 2, 1],
  )
})

test('queue: what is over it is dropped, counted and logged', async () => {
  const { log } = await run({ config: { queue: 2 }, failures, events: [text('hi')] })
  assert.equal(spans().length, 2)
  assert.deepEqual(log.find(({ message }) => message === 'spans dropped')?.fields.spans, 3)
})

for (const [how, answer] of Object.entries<() => Promise<Response>>({
  'is not there': () => Promise.reject(new TypeError('fetch failed')),
  'refuses them': async () => new Response('', { status: 400 }),
  'is overloaded when the gateway stops': async () => new Response('', { status: 503 }),
})) {
  test(`a receiver that ${how}: the client notices nothing, and the log counts what was lost`, async () => {
    receiver = answer
    const { status, body, log } = await run()
    assert.equal(status, 200)
    assert.match(body, /hi/)
    assert.equal(log.find(({ message }) => message === 'spans dropped')?.fields.spans, 2)
  })
}
