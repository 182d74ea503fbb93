/** The otel plugin against an OTLP/HTTP receiver. */
import assert from 'node:assert/strict'
import { describe, type TestContext, test } from 'node:test'
import { Ajv } from 'ajv'
import { ManualClock } from '../../core/tools/clock.ts'
import { Exporter, type ExporterOptions } from '../../plugins/otel/exporter.ts'
import type { Span } from '../../plugins/otel/span.ts'
import { eventually } from '../eventually.ts'
import { startFakeUpstream } from '../fake-upstream/server.ts'
import { defaultYaml, startGateway, type TestGateway } from './harness.ts'

interface Receiver {
  url: string
  posts: { path: string; headers: Record<string, unknown>; body: any }[]
  spans(): Span[]
  /** The text of everything that came. */
  text(): string
}

/**
 * `ExportTraceServiceRequest` in OTLP's JSON form (opentelemetry-proto 1.3), closed: members in lowerCamelCase, ids in
 * hex of their length and not all zeros, 64-bit numbers as text, enumerations as numbers.
 */
const closed = (required: Record<string, object>, optional: Record<string, object> = {}) => ({
  type: 'object',
  additionalProperties: false,
  required: Object.keys(required),
  properties: { ...required, ...optional },
})
const text = { type: 'string', minLength: 1 }
const whole64 = { type: 'string', pattern: '^-?\\d{1,19}$' }
const hex = (digits: number) => ({ type: 'string', pattern: `^(?!0+$)[0-9a-f]{${digits}}$` })
const one = (members: Record<string, object>) => ({
  oneOf: Object.entries(members).map(([name, schema]) => closed({ [name]: schema })),
})
const plain = { stringValue: { type: 'string' }, boolValue: { type: 'boolean' }, intValue: whole64 }
const scalar = { ...plain, doubleValue: { type: 'number' } }
const attributes = {
  type: 'array',
  items: closed({
    key: text,
    value: one({ ...scalar, arrayValue: closed({ values: { type: 'array', items: one(scalar) } }) }),
  }),
}
const isRequest = new Ajv({ allErrors: true, strict: false }).compile(
  closed({
    resourceSpans: {
      type: 'array',
      minItems: 1,
      items: closed({
        resource: closed({ attributes }),
        scopeSpans: {
          type: 'array',
          minItems: 1,
          items: closed({
            scope: closed({ name: text }, { version: text }),
            spans: {
              type: 'array',
              minItems: 1,
              items: closed(
                {
                  traceId: hex(32),
                  spanId: hex(16),
                  name: text,
                  kind: { enum: [2, 3] },
                  startTimeUnixNano: whole64,
                  endTimeUnixNano: whole64,
                },
                {
                  parentSpanId: hex(16),
                  attributes,
                  flags: { type: 'integer', minimum: 0 },
                  status: closed({ code: { enum: [0, 1, 2] } }, { message: text }),
                },
              ),
            },
          }),
        },
      }),
    },
  }),
)

/**
 * Checks each post against the shape that collectors ask for. `statuses`: what it answers, the last one for all that
 * follow.
 */
async function receiver(t: TestContext, statuses: number[] = [200]): Promise<Receiver> {
  const posts: Receiver['posts'] = []
  const wrong: string[] = []
  const server = await startFakeUpstream(turn => {
    const { method, path, headers } = turn.request
    const body = JSON.parse(turn.request.body)
    if (method !== 'POST' || path !== '/v1/traces') wrong.push(`${method} ${path}`)
    if (!isRequest(body)) wrong.push(JSON.stringify(isRequest.errors))
    posts.push({ path, headers, body })
    return turn.answer(statuses.length > 1 ? statuses.shift()! : statuses[0]!, {})
  })
  t.after(async () => {
    await server.close()
    assert.deepEqual(wrong, [])
  })
  return {
    url: server.url,
    posts,
    spans: () => posts.flatMap(post => post.body.resourceSpans[0].scopeSpans[0].spans),
    text: () => JSON.stringify(posts),
  }
}

async function traced(t: TestContext, to: string, options = '', models?: string): Promise<TestGateway> {
  const gateway = await startGateway({
    yaml: url =>
      defaultYaml(url, models === undefined ? {} : { models }).replace(
        'completions: [auth',
        `completions: [{ otel: { endpoint: "${to}"${options} } }, auth`,
      ),
  })
  t.after(() => gateway.close())
  return gateway
}

const PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
const ask = (content: string, more: object = {}) => ({
  model: 'eb1-preview',
  messages: [{ role: 'user', content }],
  ...more,
})

/** Attributes as plain values. */
function values(span: Span): Record<string, unknown> {
  return Object.fromEntries(
    span.attributes.map(({ key, value }: { key: string; value: any }) => [
      key,
      value.stringValue ??
        value.doubleValue ??
        value.boolValue ??
        (value.intValue === undefined
          ? value.arrayValue.values.map((v: any) => v.stringValue)
          : Number(value.intValue)),
    ]),
  )
}

describe('spans', () => {
  test('an exchange and its attempt, inside the trace of the client, and on to the provider', async t => {
    const to = await receiver(t)
    const g = await traced(t, to.url, ', service_name: edge, headers: { authorization: "Bearer collector" }')
    const response = await g.post(
      '/v1/chat/completions',
      ask('the secret word is xyzzy', { stream: true, max_tokens: 300, temperature: 0.5 }),
      { traceparent: PARENT, tracestate: 'vendor=1' },
    )
    await response.text()
    await g.gateway.close()

    assert.deepEqual([to.posts.length, to.posts[0]!.path], [1, '/v1/traces'])
    assert.equal(to.posts[0]!.headers['authorization'], 'Bearer collector')
    assert.equal(to.posts[0]!.headers['content-type'], 'application/json')
    assert.deepEqual(to.posts[0]!.body.resourceSpans[0].resource.attributes, [
      { key: 'service.name', value: { stringValue: 'edge' } },
    ])
    const [exchange, attempt] = to.spans() as [Span, Span]
    assert.equal(to.spans().length, 2)
    assert.equal(exchange.traceId, PARENT.slice(3, 35))
    assert.equal(exchange.parentSpanId, PARENT.slice(36, 52))
    assert.deepEqual([exchange.kind, exchange.name], [2, 'POST /v1/chat/completions'])
    assert.deepEqual([attempt.kind, attempt.name], [3, 'chat sim-large'])
    assert.deepEqual([attempt.traceId, attempt.parentSpanId], [exchange.traceId, exchange.spanId])
    assert.match(exchange.spanId, /^[0-9a-f]{16}$/)
    for (const span of [exchange, attempt]) {
      assert.match(span.startTimeUnixNano, /^\d{19}$/)
      assert.ok(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano))
      assert.equal(span.status, undefined)
    }
    assert.ok(BigInt(attempt.startTimeUnixNano) >= BigInt(exchange.startTimeUnixNano))

    const upstream = g.simulator.requests.at(-1)!.headers
    assert.equal(upstream['traceparent'], `00-${exchange.traceId}-${attempt.spanId}-01`)
    assert.equal(upstream['tracestate'], 'vendor=1')

    const whole = values(exchange)
    assert.equal(whole['gen_ai.request.model'], 'eb1-preview')
    assert.equal(whole['sluice.request_id'], response.headers.get('x-request-id'))
    assert.equal(whole['sluice.organization'], 'acme')
    assert.equal(whole['sluice.outcome'], 'completed')
    assert.equal(whole['http.response.status_code'], 200)
    assert.ok((whole['gen_ai.usage.input_tokens'] as number) > 0)
    assert.ok((whole['sluice.cost_usd'] as number) > 0)
    const call = values(attempt)
    assert.equal(call['gen_ai.operation.name'], 'chat')
    assert.equal(call['gen_ai.provider.name'], 'openai')
    assert.equal(call['gen_ai.request.model'], 'sim-large')
    assert.equal(call['gen_ai.request.max_tokens'], 300)
    assert.equal(call['gen_ai.request.temperature'], 0.5)
    assert.deepEqual(call['gen_ai.response.finish_reasons'], ['stop'])
    assert.equal(call['gen_ai.usage.output_tokens'], whole['gen_ai.usage.output_tokens'])
    assert.equal(call['server.address'], '127.0.0.1')
    assert.ok(!to.text().includes('xyzzy'), 'no prompt in a span')
    assert.ok(!to.text().includes('sk-test'), 'no key in a span')
  })

  test('every failed attempt has its span; a refusal has one span and is no fault of the server', async t => {
    const to = await receiver(t)
    const models =
      '  eb1-preview: { context_window: 400000, price: { input: 1, output: 1 }, backends: [{ provider: chat, model: one }, { provider: responses, model: two }] }'
    const g = await traced(t, to.url, '', models)
    const failed = await g.post('/v1/chat/completions', ask('[[sim: status 503]]'))
    assert.ok(failed.status >= 500)
    const refused = await g.post('/v1/chat/completions', ask('hi', { model: 'nope' }))
    assert.equal(refused.status, 404)
    await g.gateway.close()

    const servers = to.spans().filter(span => span.kind === 2)
    const calls = to.spans().filter(span => span.kind === 3)
    assert.equal(servers.length, 2)
    assert.equal(calls.length, 2)
    assert.deepEqual(calls.map(call => values(call)['gen_ai.request.model']).sort(), ['one', 'two'])
    assert.equal(new Set([...calls, servers[0]!].map(span => span.traceId)).size, 1)
    for (const call of calls) {
      assert.deepEqual(call.status, { code: 2 })
      assert.equal(typeof values(call)['error.type'], 'string')
    }
    assert.deepEqual(servers[0]!.status, { code: 2 })
    assert.equal(servers[1]!.status, undefined)
    assert.equal(values(servers[1]!)['error.type'], 'model_not_found')
    assert.notEqual(servers[0]!.traceId, servers[1]!.traceId)
  })

  test('sampling: the client’s flag decides, or the share does', async t => {
    const to = await receiver(t)
    const none = await traced(t, to.url, ', sample: 0')
    await (await none.post('/v1/chat/completions', ask('a'))).text()
    await (await none.post('/v1/chat/completions', ask('b'), { traceparent: PARENT.replace(/01$/, '00') })).text()
    const sent = none.simulator.requests.map(request => request.headers['traceparent'])
    assert.deepEqual(sent, [undefined, PARENT.replace(/01$/, '00')])
    await (await none.post('/v1/chat/completions', ask('c'), { traceparent: PARENT })).text()
    await none.gateway.close()
    assert.deepEqual(
      to.spans().map(span => span.traceId),
      [PARENT.slice(3, 35), PARENT.slice(3, 35)],
    )

    const strict = await receiver(t)
    const g = await traced(t, strict.url, ', sample: 0, follow_parent: false')
    await (await g.post('/v1/chat/completions', ask('d'), { traceparent: PARENT })).text()
    assert.equal(g.simulator.requests[0]!.headers['traceparent'], PARENT)
    await g.gateway.close()
    assert.deepEqual(strict.posts, [])
  })

  test('out of the chain it does nothing: no span, no post, and the trace of the client goes on as it came', async t => {
    const g = await startGateway()
    t.after(() => g.close())
    const sent: Record<string, string>[] = [{}, { traceparent: PARENT, tracestate: 'vendor=1' }]
    for (const headers of sent) await (await g.post('/v1/chat/completions', ask('a'), headers)).text()
    assert.deepEqual(
      g.simulator.requests.map(({ headers }) => [headers['traceparent'], headers['tracestate']]),
      [
        [undefined, undefined],
        [PARENT, 'vendor=1'],
      ],
    )
    const entries = Object.values(g.gateway.config.pipelines).flat()
    assert.ok(!entries.some(entry => entry.plugin === 'otel'), 'no pipeline has it until it is written there')
  })
})

describe('the exporter', () => {
  const span = (name: string): Span => ({
    traceId: '1'.repeat(32),
    spanId: '2'.repeat(16),
    name,
    kind: 2,
    startTimeUnixNano: '1',
    endTimeUnixNano: '2',
    attributes: [],
    flags: 1,
  })
  function exporter(to: Receiver, options: Partial<ExporterOptions> = {}) {
    const clock = new ManualClock()
    const lines: { fields: any; message: string }[] = []
    const write = (fields: object, message: string) => void lines.push({ fields, message })
    const log = { debug() {}, info: write, warn: write, error: write }
    const made = new Exporter({
      endpoint: to.url,
      headers: {},
      service_name: 'sluice',
      batch: 3,
      queue: 5,
      interval: 5000,
      timeout: 5000,
      clock,
      log,
      ...options,
    })
    return { made, clock, lines }
  }
  const names = (to: Receiver) => to.spans().map(s => s.name)

  test('posts a full batch at once and the rest after the interval; close posts what waits', async t => {
    const to = await receiver(t)
    const { made, clock } = exporter(to)
    for (const name of ['a', 'b', 'c', 'd']) made.add(span(name))
    await eventually(() => to.posts.length === 1)
    assert.deepEqual(names(to), ['a', 'b', 'c'])
    await eventually(() => clock.pending === 1)
    clock.advance(5000)
    await eventually(() => to.posts.length === 2)
    await eventually(() => clock.pending === 0)
    made.add(span('e'))
    await made.close()
    assert.deepEqual(names(to), ['a', 'b', 'c', 'd', 'e'])
  })

  test('a busy receiver is asked again after a pause, a refusal is final', async t => {
    const busy = await receiver(t, [503, 200])
    const { made, clock } = exporter(busy)
    for (const name of ['a', 'b', 'c']) made.add(span(name))
    await eventually(() => busy.posts.length === 1 && clock.pending === 1)
    clock.advance(30_000)
    await eventually(() => busy.posts.length === 2)
    assert.deepEqual(busy.posts[1]!.body, busy.posts[0]!.body)
    await made.close()

    const strict = await receiver(t, [400])
    const second = exporter(strict)
    for (const name of ['a', 'b', 'c']) second.made.add(span(name))
    await second.made.close()
    assert.equal(strict.posts.length, 1)
    assert.deepEqual(
      second.lines.map(line => line.message),
      ['the receiver of traces refused spans', 'spans dropped'],
    )
  })
})
