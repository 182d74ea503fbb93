/**
 * Arguments go through dialects and surfaces that hold them as objects, and a double holds 15 to 17 digits: an id of 18
 * has to come out as it went in.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Dialect } from '../../core/dialect.ts'
import { ZERO_USAGE } from '../../core/events.ts'
import { parseExactly } from '../../core/json.ts'
import { anthropicMessages } from '../../providers/anthropic-messages/index.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { messages } from '../../surfaces/messages/index.ts'
import { contextOf as encodeContextOf } from '../surfaces/messages-support.ts'
import { backendOf, contextOf, conversationOf, decodeBody, decodeFrames } from './dialect-kit.ts'

const ARGS = '{"id":175928847299117063,"in":[{"n":-9007199254740993}],"small":1,"text":"175928847299117063"}'
const REPLIES: [Dialect, string][] = [
  [
    anthropicMessages,
    `{"type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":${ARGS}},{"type":"text","text":"."}],"stop_reason":"tool_use"}`,
  ],
  [
    gemini,
    `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":${ARGS}}}]},"finishReason":"STOP"}]}`,
  ],
]

for (const [dialect, reply] of REPLIES) {
  test(`[TOOL-1] ${dialect.name}: the digits of a replayed call's numbers`, () => {
    const turns = [
      { role: 'user' as const, parts: [{ type: 'text' as const, text: 'x' }] },
      {
        role: 'assistant' as const,
        parts: [{ type: 'call' as const, id: 'c', kind: 'function' as const, name: 'f', input: ARGS, path: '' }],
      },
      {
        role: 'tool' as const,
        parts: [{ type: 'result' as const, callId: 'c', kind: 'function' as const, content: [], path: '' }],
      },
    ]
    const { body } = dialect.request(conversationOf({ turns }), backendOf(dialect), contextOf())
    assert.ok(body.includes(ARGS), body)
  })

  test(`[TOOL-1] ${dialect.name}: the digits of numbers in a whole call`, () => {
    const argsOf = (events: ReturnType<typeof decodeBody>) =>
      events.map(event => (event.type === 'tool_args' ? event.text : '')).join('')
    assert.equal(argsOf(decodeBody(dialect, {}, reply)), ARGS)
    if (dialect === gemini) assert.equal(argsOf(decodeFrames(dialect, {}, [{ event: '', data: reply }])), ARGS)
  })
}

test('[TOOL-1] a buffered Messages reply has the digits that its stream has', () => {
  const encoder = messages.encoder(encodeContextOf({}))
  encoder.start()
  encoder.event({ type: 'tool_call', index: 0, id: 'call_eba1_1', kind: 'function', name: 'f' })
  encoder.event({ type: 'tool_args', index: 0, text: ARGS })
  encoder.event({ type: 'tool_end', index: 0 })
  encoder.finish({ type: 'finish', reason: 'tool_calls' }, ZERO_USAGE)
  assert.ok(encoder.body().includes(`"input":${ARGS}`), encoder.body())
})

test('what a double holds is parsed as ever', () => {
  for (const text of [
    '{"a":1.5,"__proto__":{"b":[null,true,-0,1e400]}}',
    '{"a":9007199254740991,"b":"9007199254740993"}',
    '[0.12345678901234567]',
    '12345678901234567e3',
  ])
    assert.deepEqual(parseExactly(text), JSON.parse(text))
  assert.throws(() => parseExactly('{"a":12345678901234567'), SyntaxError)
})
