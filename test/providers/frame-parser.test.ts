import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { FrameParser } from '../../providers/frame-parser.ts'
import { parseObject } from '../../providers/loose-json.ts'

/** Each provider's deltas, `TEXT` and `N` to be filled in; spacing as some servers have it. */
const FRAMES = [
  '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":TEXT},"finish_reason":null}]}',
  '{"id": "c1", "choices": [{"index": 0, "delta": {"content": TEXT}, "logprobs": null, "finish_reason": null}], "usage": null}',
  '{"id":"c1","choices":[{"index":0,"delta":{"content":TEXT},"finish_reason":null}],"obfuscation":"PAD"}',
  '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":TEXT}}]}}]}',
  '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":TEXT}}',
  '{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":TEXT}}',
  '{"type":"response.output_text.delta","sequence_number":N,"item_id":"msg_1","output_index":0,"content_index":0,"delta":TEXT,"logprobs":[],"obfuscation":"PAD"}',
  '{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":TEXT,"sequence_number":N}',
  '{"content":TEXT,"content":"again"}',
  '{"content":TEXT,"c\\u006fntent":"again"}',
  '{"x\\"content":TEXT,"content":["no"]}',
  '{"content":{"content":TEXT},"text":3}',
  '{"choices":[{"delta":{"content":TEXT},"logprobs":{"content":[{"token":TEXT}]}}]}',
  '{"type":"response.output_text.delta","obfuscation":"PAD","delta":TEXT,"sequence_number":N}',
]

const text = fc.oneof(
  fc.string({ maxLength: 8 }),
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    '"',
    '\\',
    '\n',
    '😀',
    '\ud83d',
    '","content":"',
    '\u2028',
    'a long text that is more than a view',
  ),
)
/** As providers spell it: JSON.stringify's way, or with escapes for all that is not ASCII. */
const spelled = fc.tuple(text, fc.boolean()).map(([value, ascii]) => {
  const json = JSON.stringify(value)
  return ascii ? json.replace(/[^\x00-\x7f]/g, c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`) : json
})
const frame = (at: number) =>
  fc.tuple(spelled, fc.nat(), fc.string({ unit: fc.constantFrom('a', 'b', '0'), maxLength: 6 })).map(([json, n, pad]) =>
    FRAMES[at]!.replaceAll('TEXT', () => json)
      .replace('N', String(n))
      .replace('PAD', pad),
  )
/** Whatever a broken provider, or an attacker in its place, could make of it. */
const damaged = (json: fc.Arbitrary<string>) =>
  fc
    .tuple(json, fc.nat(), fc.constantFrom('', '"', '\\', '}', ',', '0', '\u0001', '\u0000', ' ', 'é'))
    .map(([data, at, put]) => {
      const place = at % (data.length + 1)
      return data.slice(0, place) + put + data.slice(place + (at % 3))
    })
const stream = fc
  .array(fc.nat({ max: FRAMES.length - 1 }), { minLength: 1, maxLength: 3 })
  .chain(kinds =>
    fc.array(
      fc.oneof(
        { weight: 8, arbitrary: fc.oneof(...kinds.map(frame)) },
        { weight: 2, arbitrary: damaged(fc.oneof(...kinds.map(frame))) },
      ),
      { minLength: 3, maxLength: 24 },
    ),
  )

/** Members that no decoder reads are free. */
const read = (value: unknown) =>
  JSON.stringify(value, (name, member) => (name === 'sequence_number' || name === 'obfuscation' ? undefined : member))

test('an event of a stream is read as JSON.parse reads it, whatever came before', () => {
  fc.assert(
    fc.property(stream, events => {
      const parser = new FrameParser(() => true)
      for (const data of events) assert.equal(read(parser.parse(data)), read(parseObject(data)), data)
    }),
    { numRuns: 3000 },
  )
})

test('the third event of a kind and those after it are told by what surrounds their text', () => {
  for (const shape of FRAMES.slice(0, 8)) {
    const parser = new FrameParser(() => true)
    const parsed = Array.from({ length: 6 }, (_, i) =>
      parser.parse(shape.replace('TEXT', `"w${i}"`).replace('N', String(i)).replace('PAD', 'x'.repeat(i))),
    )
    assert.equal(parsed[3], parsed[2], shape)
    assert.equal(parsed[5], parsed[2], shape)
    assert.match(JSON.stringify(parsed[5]), /"w5"/)
  }
})

test('what JSON forbids is no event, however well its surroundings fit', () => {
  const shape = FRAMES[7]!
  for (const [json, n] of [
    ['"a"', '007'],
    ['"a"', ''],
    ['"a"', '-'],
    ['"\u0001"', '7'],
    ['"\\x"', '7'],
    ['"\\u12"', '7'],
  ] as const) {
    const parser = new FrameParser(() => true)
    for (let i = 0; i < 4; i++) parser.parse(shape.replace('TEXT', `"w${i}"`).replace('N', String(i)))
    assert.equal(parser.parse(shape.replace('TEXT', () => json).replace('N', n)), undefined, `${json} ${n}`)
  }
})

test('an object that the decoder keeps is never given out again', () => {
  const parser = new FrameParser(fields => fields['kept'] !== true)
  const kept = ['a', 'b', 'c', 'd'].map(value => parser.parse(JSON.stringify({ kept: true, text: value })))
  assert.deepEqual(
    kept.map(fields => fields!['text']),
    ['a', 'b', 'c', 'd'],
  )
})
