/** `runDialect` of `sluice/testing`: what it shows, and what it finds. The dialects of the build pass it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StreamEvent } from '../../core/canon/events.ts'
import { runDialect } from '../../plugins/testing.ts'
import { type Decoder, type Dialect, openaiChat, varied } from '../../providers/dialect.ts'
import { dialects } from '../../providers/index.ts'
import { toy } from '../registries/toy-dialect/index.ts'

test('it shows the request and the events of a reply', () => {
  const { unfit, request, events } = runDialect(toy, {
    conversation: { maxOutputTokens: 9 },
    frames: ['{"said":"one "}', '{"said":"two"}', '{"tokens":[3,4]}'],
  })
  assert.equal(unfit, null)
  assert.deepEqual(request!.body, { model: 'small', prompt: 'hello', most: 9, stream: true })
  assert.equal(request!.path, '/ask')
  assert.deepEqual(events, [
    { type: 'text', text: 'one ' },
    { type: 'text', text: 'two' },
    { type: 'usage', usage: { prompt: 3, output: 4 } },
    { type: 'finish', reason: 'stop' },
  ])
  assert.deepEqual(runDialect(toy, { body: '{"said":"x","tokens":[1,2]}' }).events[0], { type: 'text', text: 'x' })
  assert.deepEqual(runDialect(toy, { conversation: { sampling: { stop: [], logprobs: false, topK: 3 } } }), {
    unfit: { param: 'top_k', requirement: 'top-k sampling' },
    events: [],
  })
})

test('a setting has its default, or what the backend says', () => {
  const loud = { settings: { provider: {}, backend: { voice: 'loud' } } }
  assert.equal(runDialect(toy, { backend: loud }).request!.body.loud, true)
  assert.equal(runDialect(toy).request!.body.loud, undefined)
})

for (const dialect of Object.values(dialects))
  for (const [name, each] of [[dialect.name, dialect] as const, ...Object.entries(dialect.variants ?? {})])
    test(`${dialect.name}, ${name}: keeps what every dialect owes`, () => {
      const { unfit, request } = runDialect(each, {
        backend: { apiVersion: '1' },
        conversation: { maxOutputTokens: 9 },
      })
      assert.equal(unfit, null)
      assert.ok(request!.path.startsWith('/'))
    })

/** The toy with another decoder. */
const decoding = (decoder: Partial<Decoder>): Dialect => ({
  ...toy,
  decoder: () => ({
    ...{ frame() {}, body() {}, end: push => push({ type: 'error', error: toy.fault(500, {}, '') }) },
    ...decoder,
  }),
})

test('it finds what a dialect owes and does not keep', () => {
  const fails = (dialect: Dialect, expected: RegExp) => assert.throws(() => runDialect(dialect), expected)
  fails(
    { ...toy, request: (c, b, x) => toy.request({ ...c, turns: [] }, b, { ...x, json: () => JSON.stringify(c) }) },
    /meteredOnly/,
  )
  fails(
    {
      ...toy,
      request(conversation, backend, context) {
        ;(conversation.turns as unknown[]).push({ role: 'user', parts: [] })
        return toy.request(conversation, backend, context)
      },
    },
    /not extensible/,
  )
  fails(decoding({ end: push => push({ type: 'finish', reason: 'stop' }) }), /before it began/)
  fails(decoding({ frame: (_, data) => JSON.parse(data) }), /JSON/)
  fails(decoding({ end() {} }), /one end, and not none/)
  const counted = { type: 'usage', usage: { input: 3 } } as unknown as StreamEvent
  fails(decoding({ body: (_, push) => push(counted) }), /usage has no input; it has prompt, cached/)
  const error = { type: 'error' as const, error: toy.fault(500, {}, '') }
  fails(decoding({ frame: (_event, _data, push) => [error, error].forEach(push) }), /nothing follows an error/)
})

test('a dialect may be built on another one', () => {
  const mine = varied(
    openaiChat,
    { path: () => '/generate', body: ({ model: _, ...body }) => ({ ...body, details: true }) },
    { name: 'mine' },
  )
  const { request, events } = runDialect(mine, {
    frames: ['{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}', '[DONE]'],
  })
  assert.equal(request!.path, '/generate')
  assert.deepEqual([request!.body.details, request!.body.model], [true, undefined])
  assert.deepEqual(events[0], { type: 'text', text: 'hi' })
})
