/** `validation`: the body is read whole, within bounds, parsed once, and held against the surface's schema. */
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { longTurns } from '../../core/engine/loop-turn.ts'
import { request } from '../../core/plugin.ts'
import type { BodyFault, BodyLimits } from '../../core/ports/listener.ts'
import { MeterBusy, meterPool } from '../../meter/index.ts'
import { contentLimits, wouldRefuse } from '../../plugins/shared/slots.ts'
import { MemoryIncoming, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { validation } from '../../plugins/validation.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { gatewayOf, reading, text } from './kit.ts'

const user = { role: 'user', content: 'hi' }
const good = { model: 'test-model', messages: [user] }

const check = (body: unknown, more: RunOptions<any> = {}) =>
  runPlugin(validation, {
    surface: reading('chat'),
    gateway: gatewayOf(),
    request: { body: typeof body === 'string' ? body : JSON.stringify(body) },
    events: [text('hi')],
    // Large bodies are parsed in a worker, which has to start.
    giveUpMs: 60_000,
    ...more,
  })

test('[GEN-2] the parsed body and the caps on its content are known to the plugins below', async () => {
  const run = await check(good, { config: { max_images: 3, max_documents: 2, max_replay: 1000 } })
  assert.equal(run.status, 200)
  assert.deepEqual(run.exchange.get(request), good)
  assert.deepEqual(run.exchange.get(contentLimits), {
    images: 3,
    documents: 2,
    replayBytes: 1000,
    bodyBytes: 32 * 1024 * 1024,
    nodes: 100_000,
  })
})

const NO_OBJECT: [what: string, body: string, why?: RegExp][] = [
  ['nothing', '', /body is empty/],
  ['white space', '  \n '],
  ['half a JSON text', '{"model":"test-'],
  ['more than one JSON text', '{}{}'],
  ['a trailing comma', '{"model":"test-model",}'],
  ['no number', '{"temperature":NaN}'],
  ['an unfinished string that ends in a backslash', '{"a":"\\'],
  ['a list', '[]'],
  ['a string', '"x"'],
  ['null', 'null'],
]
for (const [what, body, why = /not a JSON object/] of NO_OBJECT) {
  test(`[GEN-5] a body that is ${what}: 400 invalid_json`, async () => {
    const run = await check(body)
    assert.deepEqual([run.status, run.json.error.code], [400, 'invalid_json'])
    assert.match(run.json.error.message, why)
    assert.doesNotMatch(run.body, /SyntaxError|JSON at position/)
  })
}

test('[GEN-3] what the schema refuses is refused with the name of the member', async () => {
  const { json } = await check({ ...good, n: 2 })
  assert.deepEqual([json.error.code, json.error.param], ['unsupported_value', 'n'])
})

// ---- bounds ---------------------------------------------------------------------------------------------------------

test('[GEN-5] max_body: a larger body is 413 request_too_large', async () => {
  const size = Buffer.byteLength(JSON.stringify(good))
  assert.equal((await check(good, { config: { max_body: size } })).status, 200)
  const over = await check(good, { config: { max_body: size - 1 } })
  assert.deepEqual([over.status, over.json.error.code], [413, 'request_too_large'])
})

test('[GEN-6] body_timeout: the listener is given the time, and a body that is late is 408', async () => {
  let given: BodyLimits | undefined
  class Dripping extends MemoryIncoming {
    override readBody(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
      given = limits
      done('timeout', new Uint8Array())
    }
  }
  const run = await check(good, { config: { body_timeout: 5000 }, request: new Dripping() })
  assert.deepEqual([run.status, run.json.error.code], [408, 'request_body_timeout'])
  assert.deepEqual(given, { maxBytes: 32 * 1024 * 1024, timeoutMs: 5000 })
})

for (const [option, body, edge, why] of [
  ['max_depth', good, 3, /nested 3 levels deep; the limit is 2 \(max_depth\)/],
  ['max_nodes', good, 6, /has 6 values; the limit is 5 \(max_nodes\)/],
] as const) {
  test(`[REQ-2] ${option}: a body at the bound is taken, one over it is content_limit_exceeded`, async () => {
    assert.equal((await check(body, { config: { [option]: edge } })).status, 200)
    const { json } = await check(body, { config: { [option]: edge - 1 } })
    assert.equal(json.error.code, 'content_limit_exceeded')
    assert.match(json.error.message, why)
  })
}

for (const [what, body] of [
  ['10,000 levels of lists', `{"a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`],
  ['10,000 levels of objects', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`],
  ['10,000 levels that never close', '['.repeat(10_000)],
  ['200,000 values', `{"messages":[${'1,'.repeat(200_000)}1]}`],
] as const) {
  test(`[REQ-2] what would cost much to parse is not parsed: ${what}`, async () => {
    const { status, json } = await check(body)
    assert.deepEqual([status, json.error.code], [400, 'content_limit_exceeded'])
  })
}

// ---- unknown fields -------------------------------------------------------------------------------------------------

const grown = { ...good, top_k: 4, messages: [{ ...user, tone: 'x' }] }

test('[GEN-2] unknown_fields: reject, as it is by default, refuses a body with an unknown field', async () => {
  const { status, json } = await check({ ...good, top_k: 4 })
  assert.deepEqual([status, json.error.code, json.error.param], [400, 'unknown_parameter', 'top_k'])
})

test('[GEN-2] unknown_fields: strip takes them out at any depth and names them in x-sluice-stripped', async () => {
  const run = await check(grown, { config: { unknown_fields: { chat: 'strip' } } })
  assert.equal(run.status, 200)
  assert.deepEqual(run.exchange.get(request), good)
  assert.deepEqual(run.headers.get('x-sluice-stripped')?.split(', ').sort(), ['messages[0].tone', 'top_k'])
  assert.equal(
    (await check(good, { config: { unknown_fields: { chat: 'strip' } } })).headers.has('x-sluice-stripped'),
    false,
  )
})

test('[GEN-2] each surface is set by itself', async () => {
  assert.equal((await check(grown, { config: { unknown_fields: { messages: 'strip' } } })).status, 400)
})

// A new Claude Code got 400 for `speed: fast` and a task budget, although nothing of the reply's content hangs on them.
test('[GEN-2] strip takes out wishes that are not offered, and keeps what is', async () => {
  const strip = { surface: reading('messages'), config: { unknown_fields: { messages: 'strip' as const } } }
  const plain = { model: 'test-model', max_tokens: 9, messages: [user] }
  const wishes = {
    speed: 'fast',
    service_tier: 'priority',
    fallbacks: [{ model: 'other' }],
    fallback_credit_token: 't',
    output_config: { effort: 'low', task_budget: { type: 'tokens', total: 4096 } },
  }
  const { status, exchange, headers } = await check({ ...plain, ...wishes }, strip)
  assert.equal(status, 200)
  assert.deepEqual(exchange.get(request), { ...plain, output_config: { effort: 'low' } })
  assert.deepEqual(
    headers.get('x-sluice-stripped')?.split(', ').sort(),
    ['fallback_credit_token', 'fallbacks', 'output_config.task_budget', 'service_tier', 'speed'].sort(),
  )
  const offered = { ...plain, speed: 'standard', fallbacks: [], service_tier: null, output_config: null }
  assert.equal((await check(offered, strip)).headers.has('x-sluice-stripped'), false)
  assert.equal((await check({ ...plain, speed: 'fast' }, { surface: reading('messages') })).json.error.param, 'speed')
  // What changes the content, or where it is processed, is refused all the same.
  for (const member of [{ container: 'c' }, { mcp_servers: [{}] }, { inference_geo: 'eu' }])
    assert.equal((await check({ ...plain, ...member }, strip)).json.error.param, Object.keys(member)[0])
})

test('[GEN-2] strip names the preview features that the surface does not know; reject passes them by', async () => {
  const plain = { model: 'test-model', max_tokens: 9, messages: [user] }
  const headers = { 'anthropic-beta': 'effort-2025-11-24, unheard-of-2030-01-01,,other-2031-01-01' }
  const run = (unknown_fields: object) =>
    check(plain, {
      surface: reading('messages'),
      config: { unknown_fields },
      request: { body: JSON.stringify(plain), headers },
    })
  assert.equal(
    (await run({ messages: 'strip' })).headers.get('x-sluice-stripped'),
    'anthropic-beta:unheard-of-2030-01-01, anthropic-beta:other-2031-01-01',
  )
  const { status, headers: plainly } = await run({})
  assert.deepEqual([status, plainly.has('x-sluice-stripped')], [200, false])
})

test('names that a client chose cannot break the header, nor fill it', async () => {
  const strip = { config: { unknown_fields: { chat: 'strip' as const } } }
  const odd = await check({ ...good, 'a\r\nset-cookie: b': 1 }, strip)
  assert.match(odd.headers.get('x-sluice-stripped')!, /^[\x21-\x7e]+$/)
  const many = Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`unknown_member_${i}`, 1]))
  const header = (await check({ ...good, ...many }, strip)).headers.get('x-sluice-stripped')!
  assert.ok(header.length < 2100)
  assert.match(header, /, and more: 500 in all$/)
})

// ---- large bodies ---------------------------------------------------------------------------------------------------

/** Over what is parsed on the spot: one long text, and many small values, which go to a worker. */
const LARGE = {
  'one long text': { ...good, messages: [{ role: 'user', content: 'x'.repeat(400_000) }] },
  'many values': { ...good, messages: Array.from({ length: 20_000 }, () => user) },
}
for (const [what, body] of Object.entries(LARGE)) {
  test(`a large body, ${what}, is judged as a small one`, async () => {
    const run = await check(body)
    assert.equal(run.status, 200)
    assert.deepEqual(run.exchange.get(request), body)
    assert.equal((await check({ ...body, top_k: 1 })).json.error.param, 'top_k')
    assert.equal((await check(JSON.stringify(body).slice(0, -1))).json.error.code, 'invalid_json')
    assert.equal((await check(body, { config: { max_nodes: 5 } })).json.error.code, 'content_limit_exceeded')
  })
}

// Its values take 20 ms of the event loop until the request is admitted, whatever its bytes.
test('a small body of many values waits for a turn of its own', async t => {
  const turns = t.mock.method(longTurns, 'next')
  const schema = (n: number) => ({ enum: Array.from({ length: n }, (_, i) => i) })
  const tools = (n: number) => [{ type: 'function', function: { name: 'f', parameters: schema(n) } }]
  const few = await check({ ...good, tools: tools(100) })
  assert.deepEqual([few.status, turns.mock.callCount()], [200, 0])
  const many = { ...good, tools: tools(4000) }
  const run = await check(many)
  assert.deepEqual([run.status, turns.mock.callCount()], [200, 1])
  assert.deepEqual(run.exchange.get(request), many)
})

test('too many large bodies at once: 503 route_capacity, to be retried', async t => {
  t.mock.method(meterPool(), 'parse', () => Promise.reject(new MeterBusy()))
  const { status, json } = await check(LARGE['many values'])
  assert.deepEqual([status, json.error.code, json.error.retryable], [503, 'route_capacity', true])
})

test('a client that leaves while a worker parses its body: the work is called off', async () => {
  const client = new MemoryIncoming({ body: JSON.stringify(LARGE['many values']) })
  let calledOff = false
  const parse = mock.method(meterPool(), 'parse', (_: Uint8Array, gone: AbortSignal) => {
    gone.addEventListener('abort', () => (calledOff = true))
    client.abort()
    return Promise.reject(new Error('called off'))
  })
  const run = await check('', { request: client })
  parse.mock.restore()
  assert.deepEqual([run.settlement.outcome, calledOff], ['client_gone', true])
})

// ---- count_tokens ---------------------------------------------------------------------------------------------------

test('[CNT-1] in front of count-tokens a body that would be refused goes on, with why; one that is no JSON does not', async () => {
  const run = await check({ ...good, top_k: 4 }, { advisory: true })
  assert.equal(run.status, 200)
  assert.match(run.exchange.get(wouldRefuse).message, /top_k/)
  assert.equal((await check('[', { advisory: true })).status, 400)
})

// `count_tokens` refused JSON that is no object, though it estimates any other body that Messages would refuse.
test('[CNT-1] where a surface reads JSON that is no object, it is counted; where it does not, it is refused', async () => {
  const counting = { ...reading('messages'), looseBody: messages.looseBody! }
  const run = await check([{ role: 'user', content: 'Hello' }], { advisory: true, surface: counting })
  assert.equal(run.status, 200)
  assert.deepEqual(run.exchange.get(request), { messages: [{ role: 'user', content: 'Hello' }] })
  assert.equal((run.exchange.get(wouldRefuse) as { code?: string }).code, 'invalid_json')
  assert.equal((await check([], { surface: counting })).status, 400)
  assert.equal((await check([], { advisory: true })).status, 400)
})
