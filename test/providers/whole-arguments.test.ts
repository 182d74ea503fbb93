/** Call arguments that are no JSON, as models write them, towards readers that parse before anybody looks. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import type { Conversation } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import type { Decoder } from '../../core/ports/dialect.ts'
import { JsonObjectText } from '../../providers/object-text.ts'
import { wholeArguments } from '../../providers/whole-arguments.ts'
import { conversationOf } from './dialect-kit.ts'

const isObject = (text: string): boolean => {
  try {
    const value = JSON.parse(text)
    return typeof value === 'object' && value !== null && !Array.isArray(value)
  } catch {
    return false
  }
}

const BROKEN = [
  "{'a':1}",
  '{"a":1}}',
  '{"a":1}{"a":1}',
  '{"a":1} </call>',
  '[1]',
  '"x"',
  'null',
  '5',
  'nonsense',
  '{"a":"line\nbreak"}',
  '{"a":"\\d"}',
  '{"a":"\\u12g4"}',
  '{a:1}',
  '{"a":1,}',
  '{"a" 1}',
  '{"a":NaN}',
  '{"a":01}',
  '{"a":1.}',
  '{"a":-}',
  '{"a":1e}',
  '{"a":tru}',
  '{"a":[1,]}',
  '{"a":[1}',
  '{"a":',
  '{"a":"x',
]

describe('the text of one JSON object', () => {
  test('whole exactly when JSON.parse takes it, in any split (property)', () => {
    const object = fc.dictionary(fc.string(), fc.jsonValue()).map(value => JSON.stringify(value))
    const spaced = object.map(text => ` \n${JSON.stringify(JSON.parse(text), null, 2)}\t`)
    const damaged = fc
      .tuple(
        object,
        fc.nat(),
        fc.constantFrom('', '"', '\\', '{', ']', ',', ':', '-', '.', 'e', '0', 'n', ' ', '\u0001'),
      )
      .map(([text, at, c]) => text.slice(0, at % text.length) + c + text.slice((at % text.length) + (at % 2)))
    const any = fc.oneof(object, spaced, damaged, fc.constantFrom(...BROKEN), fc.string())
    fc.assert(
      fc.property(any, fc.array(fc.nat(20)), (text, sizes) => {
        const json = new JsonObjectText()
        let valid = true
        let rest = text
        for (const size of [...sizes, text.length]) {
          valid = json.push(rest.slice(0, size)) && valid
          rest = rest.slice(size)
        }
        assert.equal(json.whole, isObject(text), text)
        if (json.whole) assert.ok(valid)
      }),
      { numRuns: 3000 },
    )
  })

  test('every beginning of an object is one, and says so', () => {
    const text = JSON.stringify({ a: ['x\\"\u00e9', -1.5e-7, 0, 10, true, false, null, {}, []], 'k"': { b: '\u0001' } })
    for (let i = 0; i <= text.length; i++) assert.ok(new JsonObjectText().push(text.slice(0, i)), text.slice(0, i))
  })
})

// ---- the decoder ----------------------------------------------------------------------------------------------------

/** A decoder whose frames are events. */
const plain: Decoder = {
  frame: (_, data, push) => push(JSON.parse(data)),
  body: (text, push) => push(JSON.parse(text)),
  end: () => undefined,
}

function watched(setup: Partial<Conversation>, events: StreamEvent[], own: string | null = null): StreamEvent[] {
  const tools = [
    { type: 'function', name: 'f', parameters: {}, path: 'tools[0]' },
    { type: 'function', name: 'strict', parameters: {}, strict: true, path: 'tools[1]' },
  ] as const
  const asked = conversationOf({ surface: 'messages', stream: true, tools: [...tools], ...setup })
  const decoder = wholeArguments(plain, asked, own)
  const out: StreamEvent[] = []
  for (const event of events) if (decoder.done !== true) decoder.frame('', JSON.stringify(event), e => void out.push(e))
  return out
}

const call = (pieces: string[], name = 'f', index = 0): StreamEvent[] => [
  { type: 'tool_call', index, id: `call_eba1_${index}`, kind: 'function', name },
  ...pieces.map(text => ({ type: 'tool_args', index, text }) as const),
  { type: 'tool_end', index },
]
const finish = { type: 'finish', reason: 'tool_calls' } as const
const argsOf = (events: StreamEvent[]): string =>
  events.map(event => (event.type === 'tool_args' ? event.text : '')).join('')
const errorOf = (events: StreamEvent[]) => events.find(event => event.type === 'error')?.error

test('what is JSON goes as it comes, piece by piece', () => {
  const events = [...call(['', ' {"a"', ':"b', '"}', ' ']), ...call([], 'f', 1), finish]
  const shown = (all: StreamEvent[]): StreamEvent[] =>
    all.filter(event => event.type !== 'activity' && (event.type !== 'tool_args' || event.text.trim() !== ''))
  assert.deepEqual(shown(watched({}, events)), shown(events))
  // What is held back is the model at work all the same.
  const held = watched({}, [...call(['non', 'sense']), finish]).map(event => event.type)
  assert.deepEqual(held, ['tool_call', 'activity', 'activity', 'tool_args', 'tool_end', 'finish'])
})

test('what is none is wrapped while nothing of it was streamed, and fails the reply afterwards', () => {
  for (const text of BROKEN) {
    // A whole prefix of an object was streamed with the piece, and only the end shows that it is none.
    const cut = text === '{"a":' || text === '{"a":"x'
    const whole = watched({}, [...call([text]), finish])
    if (cut) assert.equal(errorOf(whole)?.code, 'upstream_server_error')
    else assert.deepEqual(JSON.parse(argsOf(whole)), { _raw: text }, text)
    assert.equal(whole.at(-1)!.type, cut ? 'error' : 'finish')

    const pieces = watched({}, [...call([...text]), { type: 'text', text: 'x' }, finish])
    if (!text.startsWith('{')) assert.deepEqual(JSON.parse(argsOf(pieces)), { _raw: text }, text)
    else {
      const error = errorOf(pieces)!
      assert.equal(error.code, 'upstream_server_error', text)
      assert.ok(error.retriable)
      assert.equal(pieces.at(-1)!.type, 'error', 'nothing after it')
      // What went out is the beginning of an object: a client's parser takes it until the error comes.
      assert.ok(new JsonObjectText().push(argsOf(pieces)))
    }
  }
})

test('calls side by side are told apart', () => {
  const [start0, , end0] = call(['x'], 'f', 0)
  const [start1, , end1] = call(['x'], 'f', 1)
  const args = (index: number, text: string): StreamEvent => ({ type: 'tool_args', index, text })
  const out = watched({}, [
    start0!,
    start1!,
    args(0, '{"a"'),
    args(1, '[1'),
    args(0, ':1}'),
    args(1, ']'),
    end0!,
    end1!,
    finish,
  ])
  assert.equal(argsOf(out.filter(event => 'index' in event && event.index === 0)), '{"a":1}')
  assert.equal(argsOf(out.filter(event => 'index' in event && event.index === 1)), '{"_raw":"[1]"}')
})

test('a call that a limit cut is nobody’s fault; one that its provider never ended is judged at the end', () => {
  const open = call(['{"a":"x']).slice(0, 2)
  assert.deepEqual(watched({}, [...open, { type: 'finish', reason: 'length' }]).at(-1), {
    type: 'finish',
    reason: 'length',
  })
  assert.equal(errorOf(watched({}, [...open, finish]))?.code, 'upstream_server_error')
  const raw = watched({}, [...call(['nonsense']).slice(0, 2), finish])
  assert.equal(argsOf(raw), '{"_raw":"nonsense"}')
})

test('who parses by itself gets the text as it is, but for strict tools; nobody else is watched', () => {
  for (const surface of ['chat', 'responses'] as const) {
    assert.equal(argsOf(watched({ surface }, [...call(["{'a"]), finish])), "{'a")
    assert.equal(errorOf(watched({ surface }, [...call(["{'a"], 'strict'), finish]))?.code, 'upstream_server_error')
    assert.equal(
      errorOf(watched({ surface, stream: false }, [...call(['5'], 'strict'), finish]))?.code,
      'upstream_server_error',
    )
    assert.equal(argsOf(watched({ surface }, [...call(['{"a":1}'], 'strict'), finish])), '{"a":1}')
  }
  // A buffered Messages reply wraps what is broken when it is whole (surfaces/messages/encode.ts).
  assert.equal(argsOf(watched({ stream: false }, [...call(["{'a"]), finish])), "{'a")
  assert.equal(argsOf(watched({}, [...call(["{'q"], 'web_search'), finish], 'web_search')), "{'q")
  const custom = call(['free text']).map(event =>
    event.type === 'tool_call' ? { ...event, kind: 'custom' as const } : event,
  )
  assert.equal(argsOf(watched({}, [...custom, finish])), 'free text')
})

test('[TOOL-2] a strict tool’s call that does not keep to its schema fails the reply, on every surface', () => {
  const parameters = {
    type: 'object',
    properties: { a: { type: 'string' } },
    required: ['a'],
    additionalProperties: false,
  }
  const tools = [{ type: 'function', name: 'strict', parameters, strict: true, path: 'tools[0]' }] as const
  for (const surface of ['chat', 'responses', 'messages'] as const) {
    for (const stream of [false, true]) {
      const ended = (text: string[]) =>
        watched({ surface, stream, tools: [...tools] }, [...call(text, 'strict'), finish]).at(-1)!
      assert.deepEqual(ended(['{"a":', '"x"}']), finish)
      for (const text of ['{"a":1}', '{"a":"x","b":1}', '{}', '', '{"b":"x"}'])
        assert.match(errorOf([ended([text])])!.message, /of the tool 'strict' do not match the schema/, text)
    }
  }
})

test('the SDK’s own parser takes every beginning of an object', async () => {
  const text = '{"a":"\\ud83d\\ude00\\n","b":[1,-2.5e-1,true,{"c":null}]}'
  const frame = (data: { type: string }) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
  for (let i = 0; i <= text.length; i++) {
    const sse = [
      { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [], usage: {} } },
      { type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 't', name: 'f', input: {} } },
      { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: text.slice(0, i) } },
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'max_tokens' }, usage: {} },
      { type: 'message_stop' },
    ].map(frame)
    const headers = { 'content-type': 'text/event-stream' }
    const client = new Anthropic({ apiKey: 'k', fetch: async () => new Response(sse.join(''), { headers }) })
    const message = await client.messages.stream({ model: 'm', max_tokens: 1, messages: [] }).finalMessage()
    assert.equal(message.content.length, 1)
  }
})
