/**
 * Arguments go through dialects and surfaces that hold them as objects, and JavaScript writes some numbers in another
 * way than they stood there: an id of 18 digits lost digits, and a price of 1.10 became 1.1. A tool then gets something
 * else than the model wrote.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ZERO_USAGE } from '../../core/canon/events.ts'
import { request } from '../../core/plugin.ts'
import type { Dialect } from '../../core/ports/dialect.ts'
import { parseExactly } from '../../core/tools/json.ts'
import { JsonBytes } from '../../core/tools/json-bytes.ts'
import { runPlugin } from '../../plugins/testing.ts'
import { validation } from '../../plugins/validation.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { openaiChat } from '../../providers/openai-chat/index.ts'
import { openaiResponses } from '../../providers/openai-responses/index.ts'
import { surfaces } from '../../surfaces/index.ts'
import { gatewayOf, reading } from '../plugins/kit.ts'
import { contextOf as encodeContextOf } from '../surfaces/messages-support.ts'
import { backendOf, contextOf, conversationOf, decodeBody, decodeFrames } from './dialect-kit.ts'

/** Every spelling of a number that JSON allows. */
const number = fc.oneof(
  fc.stringMatching(/^-?(0|[1-9]\d{0,24})(\.\d{1,24})?([eE][+-]?\d{1,3})?$/),
  fc.constantFrom('175928847299117063', '-9007199254740993', '1.10', '0.0000001', '-0', '1e400', '100.0', '1E2', '0'),
)
const args = fc
  .tuple(number, number, number)
  .map(([a, b, c]) => `{"id":${a},"in":[{"n":${b}},${c}],"text":"1.10 175928847299117063"}`)

/** Replies that have the arguments as an object. */
const REPLIES: [what: string, dialect: Dialect, stream: boolean, reply: (args: string) => string[]][] = [
  [
    'buffered',
    anthropicMessages,
    false,
    args => [
      `{"type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":${args}}],"stop_reason":"tool_use","usage":{"input_tokens":1.0}}`,
    ],
  ],
  [
    'at the start of a block',
    anthropicMessages,
    true,
    args => [
      '{"type":"message_start","message":{"usage":{"input_tokens":1}}}',
      `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":${args}}}`,
      '{"type":"content_block_stop","index":0}',
      '{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}',
      '{"type":"message_stop"}',
    ],
  ],
  ...[false, true].map((stream): (typeof REPLIES)[number] => [
    stream ? 'streamed' : 'buffered',
    gemini,
    stream,
    args => [
      `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":${args}}}]},"finishReason":"STOP"}]}`,
    ],
  ]),
  ...[false, true].map((stream): (typeof REPLIES)[number] => [
    stream ? 'streamed' : 'buffered',
    openaiChat,
    stream,
    args => [
      `{"choices":[{"index":0,"${stream ? 'delta' : 'message'}":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":${args}}}]},"finish_reason":"tool_calls"}]}`,
    ],
  ]),
]

for (const [what, dialect, stream, reply] of REPLIES) {
  test(`[TOOL-1] ${dialect.name}, ${what}: numbers of a call that is an object keep their spelling`, () => {
    fc.assert(
      fc.property(args, text => {
        const frames = reply(text)
        const events = stream
          ? decodeFrames(
              dialect,
              {},
              frames.map(data => ({ event: '', data })),
            )
          : decodeBody(dialect, {}, frames[0]!)
        assert.equal(events.map(event => (event.type === 'tool_args' ? event.text : '')).join(''), text)
      }),
    )
  })
}

for (const dialect of [anthropicMessages, gemini, openaiChat, openaiResponses]) {
  test(`[TOOL-1] ${dialect.name}: numbers of a replayed call keep their spelling`, () => {
    fc.assert(
      fc.property(args, text => {
        const { body } = dialect.request(conversationOf({ turns: turnsOf(text) }), backendOf(dialect), contextOf())
        const sent = dialect === anthropicMessages || dialect === gemini ? text : JSON.stringify(text)
        assert.ok(body.includes(sent), body)
      }),
    )
  })
}

function turnsOf(input: string) {
  return [
    { role: 'user' as const, parts: [{ type: 'text' as const, text: 'x' }] },
    {
      role: 'assistant' as const,
      parts: [{ type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input, path: '' }],
    },
    {
      role: 'tool' as const,
      parts: [{ type: 'result' as const, callId: 'c', kind: 'function' as const, content: [], path: '' }],
    },
  ]
}

test('[TOOL-1] a buffered Messages reply spells numbers as its stream does', () => {
  fc.assert(
    fc.property(args, text => {
      const encoder = surfaces['messages']!.encoder(encodeContextOf({}))
      encoder.start()
      encoder.event({ type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'f' })
      encoder.event({ type: 'tool_args', index: 0, text })
      encoder.event({ type: 'tool_end', index: 0 })
      encoder.finish({ type: 'finish', reason: 'tool_calls' }, ZERO_USAGE)
      assert.ok(encoder.body().includes(`"input":${text}`), encoder.body())
    }),
  )
})

// ---- requests -------------------------------------------------------------------------------------------------------

const messagesBody = (input: string, hint: string, max = '100') =>
  `{"model":"test-model","max_tokens":${max},"temperature":1.0,"messages":[{"role":"user","content":${hint}},` +
  `{"role":"assistant","content":[{"type":"text","text":"."},{"type":"tool_use","id":"t","name":"f","input":${input}}]},` +
  '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1.10"}]}]}'

/** The input of the call as the conversation has it, after the plugin that parses bodies. */
async function inputOf(body: string): Promise<string> {
  const run = await runPlugin(validation, {
    surface: reading('messages'),
    gateway: gatewayOf(),
    request: { body },
    events: [{ type: 'text', text: 'hi' }],
    // Large bodies are parsed in a worker, which has to start.
    giveUpMs: 60_000,
  })
  assert.equal(run.status, 200, run.body)
  const parsed = run.exchange.get(request)
  assert.equal((parsed as { temperature: unknown }).temperature, 1)
  const call = surfaces['messages']!.parse(parsed)
    .turns.flatMap(turn => turn.parts)
    .find(part => part.type === 'call')
  return call!.input
}

test('[TOOL-1] a Messages request: numbers in the input of a replayed call keep their spelling', async () => {
  await fc.assert(
    fc.asyncProperty(args, async text => assert.equal(await inputOf(messagesBody(text, '"x"')), text)),
    { numRuns: 50 },
  )
})

const BLOCK = '{"type":"text","text":"1.10"}'
for (const [what, hint] of [
  ['with a long text', `"${'long '.repeat(20_000)}"`],
  ['that a thread parses, of many values', `[${Array(20_000).fill(BLOCK).join(',')}]`],
  ['of many values, and short', `[${Array(4000).fill(BLOCK).join(',')}]`],
] as const) {
  test(`[TOOL-1] a Messages request ${what}: numbers in the input of a call keep their spelling`, async () => {
    const text = '{"id":175928847299117063,"price":1.10}'
    assert.equal(await inputOf(messagesBody(text, hint)), text)
  })
}

test('the scan of a body tells every number that JavaScript spells in another way, at its depth', () => {
  fc.assert(
    fc.property(number, fc.integer({ min: 1, max: 9 }), (text, slice) => {
      const bytes = Buffer.from(`{"top":1.0,"list":[[7,${text}],"1.10",{"n":${text}}]}`)
      const shape = new JsonBytes(bytes)
      while (shape.at < bytes.length) shape.readAll(shape.at + slice)
      if (JSON.stringify(JSON.parse(text)) !== text) assert.equal(shape.respelled, 3)
    }),
    { numRuns: 2000 },
  )
  for (const text of ['1', '-1', '0', '10', '1.5', '100.25', '0.7', '0.000001', '123456789012345', '"1.10"', 'true'])
    assert.equal(shapeOf(`{"list":[${text}],"temperature":1.0}`), 1, text)
  assert.equal(shapeOf('{"list":[1.5]}'), 0)
})

function shapeOf(text: string): number {
  const shape = new JsonBytes(Buffer.from(text))
  shape.readAll()
  return shape.respelled
}

test('what JSON.stringify writes as it stands is parsed as ever, as is a number alone', () => {
  for (const text of [
    '{"a":1.5,"__proto__":{"b":[null,true,0]}}',
    '{"a":9007199254740991,"b":"9007199254740993"}',
    '1.10',
  ])
    assert.deepEqual(parseExactly(text), JSON.parse(text))
  assert.throws(() => parseExactly('{"a":12345678901234567'), SyntaxError)
})
