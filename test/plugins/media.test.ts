/**
 * `media`: what it may fetch for a backend that takes bytes alone. test/plugins/media-fetch.test.ts shows how it
 * fetches.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Part } from '../../core/canon/conversation.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import type { Exchange } from '../../core/plugin.ts'
import { mediaGate, mediaPlugin } from '../../plugins/media/index.ts'
import { identity, mediaFetch } from '../../plugins/shared/slots.ts'
import { MemoryIncoming, plainConversation, type RunOptions, runPlugin } from '../../plugins/testing.ts'
import { eventually } from '../eventually.ts'
import { caller } from './kit.ts'

const image: Part = { type: 'image', source: { kind: 'url', url: 'https://files.example/a.png' }, path: 'image' }
const pdf: Part = { type: 'document', source: { kind: 'url', url: 'https://files.example/a.pdf' }, path: 'pdf' }
const elsewhere: Part = { type: 'image', source: { kind: 'url', url: 'https://other.example/a.png' }, path: 'other' }
const asked = (...parts: Part[]) => plainConversation({ turns: [{ role: 'user', parts }] })
const BOTH = new Set(['image', 'document'] as const)

async function service(fetch: string[] = [], lookup?: () => Promise<string[]>, more: RunOptions<any> = {}) {
  const run = await runPlugin(mediaPlugin(lookup && { lookup }), {
    ...more,
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

// One organization whose hosts are slow took all places, and every other organization was refused.
test('[REQ-1] one organization fetches for so many requests at a time, more wait, and another organization need not', async () => {
  let lookups = 0
  let answer!: () => void
  const resolved = new Promise<string[]>(resolve => {
    answer = () => resolve(['10.0.0.1'])
  })
  const lookup = () => {
    lookups++
    return resolved
  }
  const shared = createSharedState()
  const slow = await service(['files.example'], lookup, { shared, slots: [[identity, caller()]] })
  const { wanted } = slow.service.lacking(asked(image), BOTH)!
  const flood = Array.from({ length: 40 }, () => slow.service.fetch(slow.exchange, asked(image), wanted))
  await eventually(() => lookups === 16)
  assert.deepEqual([mediaGate(shared).running, mediaGate(shared).waiting], [16, 24])
  const other = { shared, slots: [[identity, caller({ id: 'other' })]] } as const
  const victim = await service(['files.example'], async () => ['10.0.0.1'], other)
  const served = await victim.service.fetch(victim.exchange, asked(image), wanted)
  assert.equal(served.refused?.kind === 'error' && served.refused.error.code, 'invalid_value')
  assert.equal(lookups, 16)
  answer()
  for (const { refused } of await Promise.all(flood))
    assert.equal(refused?.kind === 'error' && refused.error.code, 'invalid_value')
  assert.deepEqual([lookups, mediaGate(shared).running], [40, 0])
})

test('a client that leaves while its fetch waits gives up its place in the line', async () => {
  const shared = createSharedState()
  const leaves = await Promise.all(Array.from({ length: 16 }, () => mediaGate(shared).enter('@127.0.0.1')))
  const { service: media } = await service(['files.example'], undefined, { shared })
  const { wanted } = media.lacking(asked(image), BOTH)!
  const gone = new MemoryIncoming()
  const x = { incoming: gone, peek: () => undefined } as unknown as Exchange
  const left = media.fetch(x, asked(image), wanted)
  await eventually(() => mediaGate(shared).waiting === 1)
  gone.abort()
  assert.equal((await left).final, true)
  assert.equal(mediaGate(shared).waiting, 0)
  for (const leave of leaves) leave()
})
