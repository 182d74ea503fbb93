/**
 * `media`: what it may fetch for a backend that takes bytes alone. test/plugins/media-fetch.test.ts shows how it
 * fetches.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Part } from '../../core/conversation.ts'
import { mediaPlugin } from '../../plugins/media/index.ts'
import { mediaFetch } from '../../plugins/shared/slots.ts'
import { plainConversation, runPlugin } from '../../plugins/testing.ts'

const image: Part = { type: 'image', source: { kind: 'url', url: 'https://files.example/a.png' }, path: 'image' }
const pdf: Part = { type: 'document', source: { kind: 'url', url: 'https://files.example/a.pdf' }, path: 'pdf' }
const elsewhere: Part = { type: 'image', source: { kind: 'url', url: 'https://other.example/a.png' }, path: 'other' }
const asked = (...parts: Part[]) => plainConversation({ turns: [{ role: 'user', parts }] })
const BOTH = new Set(['image', 'document'] as const)

async function service(fetch: string[] = [], lookup?: () => Promise<string[]>) {
  const run = await runPlugin(mediaPlugin(lookup && { lookup }), {
    config: { fetch },
    events: [{ type: 'finish', reason: 'stop' }],
  })
  return { ...run, service: run.exchange.get(mediaFetch) }
}

test('[REQ-1] by default it fetches nothing', async () => {
  assert.equal((await service()).service.lacking(asked(image), BOTH), null)
})

test('[REQ-1] it names the files of the kinds that a backend takes as bytes, and shows the conversation with them in place', async () => {
  const { service: media } = await service(['files.example'])
  const lacking = media.lacking(asked(image, pdf), new Set(['document']))!
  assert.deepEqual(
    lacking.wanted.map(({ path }) => path),
    ['pdf'],
  )
  const kinds = lacking.whole.turns[0]!.parts.map(part => (part as { source: { kind: string } }).source.kind)
  assert.deepEqual(kinds, ['url', 'data'])
  assert.equal(media.lacking(asked(image, pdf), BOTH)!.wanted.length, 2)
})

test('[REQ-1] one file that may not be fetched, or none at all, and it offers nothing', async () => {
  const { service: media } = await service(['files.example'])
  assert.equal(media.lacking(asked(image, elsewhere), BOTH), null)
  assert.equal(media.lacking(asked({ type: 'text', text: 'hello' }), BOTH), null)
})

test('[REQ-1] a file that cannot be had is 400 with its place, and another backend may be asked', async () => {
  const { service: media, exchange, log } = await service(['files.example'], async () => ['10.0.0.1'])
  const { wanted } = media.lacking(asked(image), BOTH)!
  const fetched = await media.fetch(exchange, asked(image), wanted)
  assert.ok(fetched.refused?.kind === 'error')
  assert.equal(fetched.final, false)
  assert.deepEqual([fetched.refused.error.code, fetched.refused.error.param], ['invalid_value', 'image'])
  assert.equal(log.at(-1)?.message, 'media not fetched')
})

test('[REQ-1] only so many requests fetch at a time: one more is to come again', async () => {
  let answer!: () => void
  const resolved = new Promise<string[]>(resolve => {
    answer = () => resolve(['10.0.0.1'])
  })
  const { service: media, exchange } = await service(['files.example'], () => resolved)
  const { wanted } = media.lacking(asked(image), BOTH)!
  const running = Array.from({ length: 32 }, () => media.fetch(exchange, asked(image), wanted))
  const oneMore = await media.fetch(exchange, asked(image), wanted)
  assert.ok(oneMore.refused?.kind === 'error')
  assert.deepEqual([oneMore.refused.error.code, oneMore.final], ['route_capacity', true])
  answer()
  await Promise.all(running)
  const after = await media.fetch(exchange, asked(image), wanted)
  assert.equal(after.refused?.kind === 'error' && after.refused.error.code, 'invalid_value')
})
