/** The guard before a request is sent: what is larger than what was counted allows stays here (decision 73). */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Conversation, Part } from '../../core/canon/conversation.ts'
import { exceedsCounted } from '../../plugins/shared/sent-bound.ts'
import { plainConversation } from '../../plugins/testing.ts'
import { backend, text } from './kit.ts'

const REST = 64 * 1024
const of = (...parts: Part[]): Conversation => plainConversation({ turns: [{ role: 'user', parts }] })
const rewritten = { dialect: 'gemini', settings: { provider: {}, backend: { tool_schema: 'openapi' } } }
const over = (bytes: number, tokens: number, said: Conversation, counted = said, more: object = {}): boolean =>
  exceedsCounted({ body: 'x'.repeat(bytes), backend: backend(more), said }, counted, tokens, 1000)

test('a request may have 256 bytes for each token and each value, and 64 KiB', () => {
  const said = of(text('a'), text('b'))
  const values = 3
  assert.equal(over(REST + 256 * (10 + values), 10, said), false)
  assert.equal(over(REST + 256 * (10 + values) + 1, 10, said), true)
  assert.equal(over(REST + 256 * (11 + values), 11, said), false)
  // Schemas may be written out, to four times their size.
  assert.equal(over(REST + 1024 * 10 + 256 * values, 10, said, said, rewritten), false)
  assert.equal(over(REST + 1024 * 10 + 256 * values + 1, 10, said, said, rewritten), true)
})

test('media are as large as they are, private data as large as max_replay allows', () => {
  const image: Part = {
    type: 'image',
    source: { kind: 'data', mediaType: 'image/png', data: 'x'.repeat(100_000) },
    path: '',
  }
  const most = REST + 256 * 3
  assert.equal(over(most + 100_000, 1, of(image)), false)
  assert.equal(over(most + 100_001, 1, of(image)), true)
  const result: Part = { type: 'result', callId: 'c', kind: 'function', content: [image], path: '' }
  assert.equal(over(most + 256 + 100_000, 1, of(result)), false)
  assert.equal(over(most + 256 + 100_001, 1, of(result)), true)
  const reasoning: Part = { type: 'reasoning', summary: [], continuation: { dialect: 'd', model: 'm', data: {} } }
  assert.equal(over(most + 3000, 1, of(reasoning)), false)
  assert.equal(over(most + 3001, 1, of(reasoning)), true)
})

test('what the gateway adds after the count, such as results of its searches, is known by its size', () => {
  const counted = of(text('a'))
  const said = { ...counted, turns: [...counted.turns, { role: 'user' as const, parts: [text('x'.repeat(1000))] }] }
  const most = REST + 256 * 5
  assert.equal(over(most + 12_000, 1, said, counted), false)
  assert.equal(over(most + 12_001, 1, said, counted), true)
})

test('a body in pieces, and one of wide characters, is measured in bytes', () => {
  const said = of(text('a'))
  const measured = (body: string | (string | Uint8Array)[]) =>
    exceedsCounted({ body, backend: backend(), said }, said, 1, 1000)
  const most = REST + 256 * 3
  for (const [bytes, is] of [
    [most, false],
    [most + 3, true],
  ] as const) {
    assert.equal(measured('的'.repeat(Math.floor(bytes / 3)) + 'x'.repeat(bytes % 3)), is)
    assert.equal(measured(['x'.repeat(1000), new Uint8Array(bytes - 1000)]), is)
  }
})
