/**
 * Arguments of replayed calls were sent as the client had written them and counted as compact JSON: a prompt in a
 * member that a later one of the same name hides, in white space, in escapes or in long numbers went to the model
 * whole, past window, limits and bill. One form is sent and counted now.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import fc from 'fast-check'
import { argumentsOf, keepArguments, largeArguments } from '../../core/canon/arguments.ts'
import type { CallPart, Conversation } from '../../core/canon/conversation.ts'
import { jsonNodes, normalJson } from '../../core/tools/json.ts'
import { JsonBytes } from '../../core/tools/json-bytes.ts'
import { createMeterPool } from '../../meter/index.ts'

const pool = createMeterPool({ workers: 1 })
after(() => pool.close())

const blank = fc.stringMatching(/^[ \t\r\n]{0,3}$/)
/** Every spelling of a number that JSON allows, with more digits than a double holds. */
const number = fc.oneof(
  fc.stringMatching(/^-?(0|[1-9]\d{0,40})(\.\d{1,40})?([eE][+-]?\d{1,3})?$/),
  fc.constantFrom('-0', '0.000001', '0.0000001', '1.10', '1E2', '123456789012345', '1234567890123456', '-0.0'),
)
/** What JSON.stringify writes for each escape, beside the escape. */
const escaped = fc.constantFrom(
  ['\\u0041', 'A'],
  ['\\/', '/'],
  ['\\n', '\\n'],
  ['\\u000a', '\\n'],
  ['\\u0001', '\\u0001'],
  ['\\"', '\\"'],
  ['\\\\', '\\\\'],
  ['\\ud83d\\ude00', '😀'],
  ['\\ud83d', '\ufffd'],
  ['\\\\ud83d', '\\\\ud83d'],
  ['1.10 -0 [', '1.10 -0 ['],
  ['  ', '  '],
) as fc.Arbitrary<[string, string]>
/** A JSON text as a client may spell it, beside its form. */
const spelled = fc.letrec<{ value: [string, string]; string: [string, string] }>(tie => ({
  string: fc
    .array(escaped, { maxLength: 4 })
    .map(parts => [0, 1].map(i => `"${parts.map(p => p[i]).join('')}"`)) as never,
  value: fc.oneof(
    { maxDepth: 3 },
    number.map((text): [string, string] => [text, text]),
    tie('string'),
    fc
      .tuple(blank, fc.array(tie('value'), { maxLength: 4 }))
      .map(([gap, items]): [string, string] => [
        `[${gap}${items.map(([text]) => text + gap).join(`,${gap}`)}]`,
        `[${items.map(([, text]) => text).join(',')}]`,
      ]),
    fc.tuple(blank, fc.array(tie('value'), { maxLength: 4 })).map(([gap, items]): [string, string] => {
      // Each member comes twice, and the second is the one that counts.
      const members = items.flatMap(([text], i) => [
        `"m${i}"${gap}:${gap}"hidden"${gap}`,
        `${gap}"\\u006d${i}":${text}`,
      ])
      return [`{${members.join(',')}${gap}}`, `{${items.map(([, text], i) => `"m${i}":${text}`).join(',')}}`]
    }),
  ),
})).value

test('the form has no white space, the last of two members, short escapes, and numbers as they came', () => {
  fc.assert(
    fc.property(spelled, ([text, form]) => {
      assert.equal(normalJson(text), form)
      // The prompt of a conversation must not change from turn to turn, or no provider finds it in its cache.
      assert.equal(normalJson(form), form)
    }),
    { numRuns: 500 },
  )
})

test('a thread gives the same form, and the form as a JSON string where it is long', async () => {
  const texts = ['{"a": 1.0}', '{"a":1}', '[1, 2]', 'no JSON', '', `{"a" : "${'\\u0041\\ud83d '.repeat(4000)}"}`]
  const made = await pool.normalise(texts)
  assert.deepEqual(
    made.map(({ text }, i) => text || texts[i]),
    texts.map(text => normalJson(text) ?? text),
  )
  assert.deepEqual(
    made.map(({ object }) => object),
    [true, true, false, false, false, true],
  )
  assert.deepEqual(
    made.map(({ quoted }) => quoted && JSON.parse(Buffer.from(quoted).toString('utf8'))),
    [undefined, undefined, undefined, undefined, undefined, normalJson(texts[5]!)],
  )
})

test('values of arguments are counted as those of a body are', () => {
  fc.assert(
    fc.property(spelled, ([text]) => {
      const shape = new JsonBytes(Buffer.from(text))
      shape.readAll()
      assert.equal(jsonNodes(text), shape.nodes)
    }),
  )
})

const call = (input: string, kind: CallPart['kind'] = 'function'): CallPart => ({
  type: 'call',
  id: 'c',
  kind,
  name: 'f',
  input,
  path: '',
})

test('the form of a call is that of its input, also when a plugin changes a copy; text stays as it came', () => {
  const first = call('{ "a": 1 }')
  assert.equal(argumentsOf(first), '{"a":1}')
  assert.equal(argumentsOf({ ...first, input: '{ "b": 2 }' }), '{"b":2}')
  for (const text of ['', '  ', '{"a": ', `{"a": ${'['.repeat(300)}${']'.repeat(300)}}`])
    assert.equal(argumentsOf(call(text)), text)
  assert.equal(argumentsOf(call('{ "a": 1 }', 'custom')), '{ "a": 1 }')
  keepArguments(first, 'made elsewhere')
  assert.equal(argumentsOf(first), 'made elsewhere')
})

test('large arguments are those of all calls together, and none twice', () => {
  const calls = Array.from({ length: 3 }, () => call(`{"a": "${'x'.repeat(30_000)}"}`))
  const conversation = { turns: [{ role: 'assistant', parts: calls }] } as unknown as Conversation
  assert.deepEqual(largeArguments({ ...conversation, turns: [{ role: 'assistant', parts: calls.slice(1) }] }), [])
  assert.deepEqual(largeArguments(conversation), calls)
  for (const each of calls) argumentsOf(each)
  assert.deepEqual(largeArguments(conversation), [])
})
