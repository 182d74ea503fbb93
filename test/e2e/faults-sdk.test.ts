/**
 * What the official clients make of an upstream that fails on the wire: the class one would expect, never a reply that
 * looks whole.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { type Script, settle } from '../fake-upstream/server.ts'
import { startTable, type Table } from '../faults/table.ts'

let table: Table & { close(): Promise<void> }
before(async () => {
  table = await startTable()
})
after(() => table.close())

const half =
  (then: Script): Script =>
  async turn => {
    const { events } = await turn.open()
    for (const event of events.slice(0, 5)) await turn.chunk(event)
    await then(turn)
  }

/** Name, fault, class before the head, and its status. */
const WHOLE: [string, Script, keyof typeof OpenAI & string, number][] = [
  ['reset', turn => turn.reset(), 'InternalServerError', 502],
  [
    'garbage',
    async turn => {
      await turn.write('nonsense\r\n\r\n')
      await settle()
    },
    'InternalServerError',
    502,
  ],
  ['redirect', turn => turn.answer(302, '', { location: 'http://elsewhere.example/' }), 'InternalServerError', 502],
  ['HTML 503', turn => turn.answer(503, '<html>', { 'content-type': 'text/html' }), 'InternalServerError', 503],
  ['429', turn => turn.answer(429, '{}', { 'retry-after': '4' }), 'RateLimitError', 429],
  [
    '400 context',
    turn => turn.answer(400, '{"error":{"code":"context_length_exceeded","message":"x"}}'),
    'BadRequestError',
    400,
  ],
  ['401', turn => turn.answer(401, '{}'), 'InternalServerError', 502],
]
const CUT: [string, Script][] = [
  ['reset', half(turn => turn.reset())],
  ['FIN', half(turn => turn.fin())],
  ['an end without the terminal event', half(async turn => void (await turn.end()))],
  [
    'a malformed event',
    half(async turn => {
      await turn.chunk('data: {"a\n\n')
      await turn.end()
    }),
  ],
  [
    'an error object',
    half(async turn => {
      await turn.chunk('data: {"error":{"message":"x","type":"server_error"}}\n\n')
      await turn.end()
    }),
  ],
]

const text = 'tell me [[sim: tokens 12]]'
const messages = [{ role: 'user' as const, content: text }]
const SENDS: { name: string; sdk: typeof OpenAI | typeof Anthropic; send(stream: boolean): Promise<any> }[] = [
  {
    name: 'chat',
    sdk: OpenAI,
    send: stream =>
      table.t.openai().chat.completions.create({ model: 'eb1-preview', messages, stream, max_tokens: 5000 }),
  },
  {
    name: 'responses',
    sdk: OpenAI,
    send: stream =>
      table.t.openai().responses.create({ model: 'eb1-preview', input: text, stream, max_output_tokens: 5000 }),
  },
  {
    name: 'messages',
    sdk: Anthropic,
    send: stream => table.t.anthropic().messages.create({ model: 'eb1-preview', messages, stream, max_tokens: 5000 }),
  },
]

for (const { name, sdk, send } of SENDS) {
  test(`[ERR-6] ${name}: each fault before the head is the SDK's class for its status`, async () => {
    for (const [fault, script, kind, status] of WHOLE) {
      for (const stream of [false, true]) {
        table.clock.advance(60_000)
        table.upstream.script = script
        const error = await send(stream).then(
          () => assert.fail(`${fault}: no error`),
          thrown => thrown,
        )
        assert.ok(error instanceof (sdk as any)[kind], `${fault}: ${error?.constructor?.name}`)
        assert.equal(error.status, status, fault)
        assert.match(error.requestID, /^req_/)
      }
    }
  })

  test(`[ERR-8] [STR-6] ${name}: a stream that breaks off raises a typed error after what was delivered`, async () => {
    for (const [fault, script] of CUT) {
      table.clock.advance(60_000)
      table.upstream.script = script
      let events = 0
      const error = await (async () => {
        for await (const _ of await send(true)) events++
      })().then(
        () => assert.fail(`${fault}: the stream looks whole`),
        thrown => thrown,
      )
      assert.ok(events > 0, fault)
      assert.ok(error instanceof sdk.APIError, `${fault}: ${error?.constructor?.name}`)
      assert.match(JSON.stringify(error.error ?? error), /upstream_server_error/, fault)
    }
  })
}
