/** `token-estimate`: the prompt is counted once, exactly, and held against the window of model and account. */
import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import type { Part } from '../../core/canon/conversation.ts'
import { conversation, estimate } from '../../core/plugin.ts'
import { MeterBusy, PromptCount, SYNC_LIMIT } from '../../meter/index.ts'
import { identity, model } from '../../plugins/shared/slots.ts'
import { MemoryIncoming, plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { tokenEstimate } from '../../plugins/token-estimate.ts'
import { caller, gatewayOf, modelOf, text } from './kit.ts'

const asking = (...parts: Part[]) => plainConversation({ turns: [{ role: 'user', parts }] })
const count = (parts: Part[], { slots = [], ...more }: RunOptions<any> = {}) =>
  runPlugin(tokenEstimate, {
    gateway: gatewayOf(),
    slots: [[identity, caller()], [model, modelOf()], [conversation, asking(...parts)], ...slots],
    events: [text('hi')],
    // Large prompts are counted in a worker, which has to start.
    giveUpMs: 60_000,
    ...more,
  })
const counted = async (parts: Part[], more?: RunOptions<any>) => (await count(parts, more)).exchange.get(estimate).input

test('[METER-1] the count is known to the plugins below; a word more is a token more', async () => {
  const one = await counted([text('hello')])
  assert.ok(one >= 1)
  assert.equal(await counted([text('hello world')]), one + 1)
})

for (const [option, part] of [
  ['image_tokens', { type: 'image', source: { kind: 'url', url: 'https://e.x/a.png' }, path: 'p' }],
  ['document_tokens', { type: 'document', source: { kind: 'url', url: 'https://e.x/a.pdf' }, path: 'p' }],
] as const) {
  test(`[METER-3] ${option}: the least that one counts`, async () => {
    const bare = await counted([text('hello')])
    const some = await counted([text('hello'), part], { config: { [option]: 300 } })
    assert.equal(await counted([text('hello'), part], { config: { [option]: 310 } }), some + 10)
    assert.equal(some - bare, 300)
  })
}

test('[METER-1] a large prompt is counted off the event loop, to the same number', async () => {
  const words = (n: number) => text('hello '.repeat(n))
  const step = (await counted([words(200)])) - (await counted([words(100)]))
  const large = Math.ceil(SYNC_LIMIT / 6 / 100) * 100 + 100
  const inPool = mock.method(PromptCount.prototype, 'inPool')
  const roomy = { slots: [[model, modelOf({ context_window: 1e9 })]] } as const
  const total = await counted([words(large)], roomy)
  assert.equal(inPool.mock.callCount(), 1)
  inPool.mock.restore()
  assert.equal(total, (await counted([words(100)])) + (large / 100 - 1) * step)
})

// ---- the window -----------------------------------------------------------------------------------------------------

const WINDOWS: [whose: string, slots: readonly (readonly [any, unknown])[]][] = [
  ['the model', [[model, modelOf({ context_window: 50 })]]],
  ['the organization', [[identity, caller({ limits: { max_input_tokens: 50 } })]]],
  ['the key', [[identity, caller({ limits: { max_input_tokens: 70 } }, { limits: { max_input_tokens: 50 } })]]],
  ['the key, for this model', [[identity, caller({}, { model_limits: { 'test-model': { max_input_tokens: 50 } } })]]],
]
for (const [whose, slots] of WINDOWS) {
  test(`[MOD-2] [MOD-6] the window of ${whose}: a prompt of its size is taken, a larger one is 400`, async () => {
    const overhead = (await counted([text('x')])) - 1
    const words = (tokens: number) => text(` x${' x'.repeat(tokens - overhead - 1)}`)
    const fits = await count([words(50)], { slots })
    assert.deepEqual([fits.status, fits.exchange.get(estimate).input], [200, 50])
    const { status, json } = await count([words(51)], { slots })
    assert.deepEqual([status, json.error.code], [400, 'context_length_exceeded'])
    assert.equal(json.error.message, 'prompt is too long: 51 tokens > 50 maximum')
    assert.equal(json.error.details.context_window, 50)
  })
}

test('[CNT-1] in front of count-tokens no prompt is too long', async () => {
  const slots = [[model, modelOf({ context_window: 1 })]] as const
  const run = await count([text('a prompt of more than one token')], { slots, advisory: true })
  assert.equal(run.status, 200)
  assert.ok(run.exchange.get(estimate).input > 1)
})

// ---- failures -------------------------------------------------------------------------------------------------------

const large = text('x'.repeat(SYNC_LIMIT * 2))

test('too many large prompts at once: 503 route_capacity, to be retried', async () => {
  const inPool = mock.method(PromptCount.prototype, 'inPool', () => Promise.reject(new MeterBusy()))
  const { status, json } = await count([large])
  inPool.mock.restore()
  assert.deepEqual([status, json.error.code, json.error.retryable], [503, 'route_capacity', true])
})

test('a counter that breaks refuses the request: nothing goes on uncounted', async () => {
  const inPool = mock.method(PromptCount.prototype, 'inPool', () => Promise.reject(new Error('worker died')))
  const run = await count([large])
  inPool.mock.restore()
  assert.deepEqual([run.status, run.json.error.code], [500, 'internal_error'])
  assert.doesNotMatch(run.body, /worker died/)
})

test('a client that leaves while its prompt is counted: the work is called off', async () => {
  const client = new MemoryIncoming()
  let calledOff = false
  const inPool = mock.method(PromptCount.prototype, 'inPool', (_: unknown, gone: AbortSignal) => {
    gone.addEventListener('abort', () => (calledOff = true))
    client.abort()
    return Promise.reject(new Error('called off'))
  })
  const run = await count([large], { request: client })
  inPool.mock.restore()
  assert.deepEqual([run.settlement.outcome, calledOff], ['client_gone', true])
})
