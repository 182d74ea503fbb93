import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { CustomInputDecoder, customDescription, wrapCustomInput } from '../../providers/custom-input.ts'
import { SurrogateJoiner } from '../../providers/surrogates.ts'

function unwrap(deltas: string[]): { text: string; outs: string[]; closed: boolean } {
  const decoder = new CustomInputDecoder()
  const outs = deltas.map(delta => decoder.push(delta))
  const { closed } = decoder
  outs.push(decoder.end())
  return { text: outs.join(''), outs, closed }
}

test('custom input: text comes out as it arrives, escapes and surrogate pairs in one piece', () => {
  const { outs, closed } = unwrap([
    '{"inp',
    'ut": "ab',
    'c\\',
    'n\\u00',
    'e9\\ud83d',
    '\\ude00 \\',
    '"x',
    '\\"',
    '"',
    '}',
  ])
  assert.deepEqual(outs, ['', 'ab', 'c', '\n', 'é', '😀 ', '"x', '"', '', '', ''])
  assert.equal(closed, true)
})

test('custom input: any string in any split is decoded, and no half of a pair goes out (property)', () => {
  const string = fc.string({
    unit: fc.oneof(
      fc.constantFrom('"', '\\', '\n', '\u{1f600}', '\u0000', '/', 'é', '\u2028'),
      fc.string({ unit: 'binary', minLength: 1, maxLength: 2 }),
    ),
    maxLength: 30,
  })
  const escapeAll = (text: string) =>
    `{ "input" :\n"${[...text].map(c => [...Array(c.length).keys()].map(i => `\\u${c.charCodeAt(i).toString(16).padStart(4, '0')}`).join('')).join('')}"}`
  fc.assert(
    fc.property(string, fc.boolean(), fc.array(fc.nat({ max: 300 }), { maxLength: 20 }), (text, escaped, cuts) => {
      const json = escaped ? escapeAll(text) : wrapCustomInput(text)
      const at = [0, ...cuts.map(cut => Math.min(cut, json.length)).sort((a, b) => a - b), json.length]
      const { text: out, outs } = unwrap(at.slice(1).map((end, i) => json.slice(at[i], end)))
      assert.equal(out, text)
      assert.equal(unwrap([...json]).text, text)
      for (const part of outs) if (text.isWellFormed()) assert.ok(part.isWellFormed())
    }),
    { numRuns: 500, seed: 5 },
  )
})

test('custom input: what JSON forbids in a string is text, in any split: a model that writes it means it', () => {
  for (const [json, meant] of [
    ['{"input":"a\n\tb\u0000"}', 'a\n\tb\u0000'],
    ['{"input":"\\d+\\.\\\\"}', 'd+.\\'],
    ['{"input":"\\uzzzz"}', 'uzzzz'],
  ] as const) {
    assert.equal(unwrap([json]).text, meant)
    assert.equal(unwrap([...json]).text, meant)
  }
})

test('custom input: arguments of another shape are judged whole at the end', () => {
  assert.equal(unwrap(['ls -l']).text, 'ls -l')
  assert.equal(unwrap(['{"other": 1, "inp', 'ut": "x"}']).text, 'x')
  assert.equal(unwrap(['"just a string"']).text, 'just a string')
  assert.equal(unwrap(['{"code": "x"}']).text, '{"code": "x"}')
  assert.equal(unwrap(['{}']).text, '')
  assert.equal(unwrap(['']).text, '')
  assert.equal(unwrap(['{"input ": "x"}']).text, '{"input ": "x"}')
  assert.equal(unwrap(['{"input": 7}']).text, '{"input": 7}')
})

test('custom input: cut off in the middle, what was decoded stays, and it is not closed', () => {
  assert.deepEqual(unwrap(['{"input": "abc\\u00']), { text: 'abc', outs: ['abc', ''], closed: false })
  assert.deepEqual(unwrap(['{"input": "\\ud83d']).text, '\ufffd')
})

test('custom input: the grammar is in the description', () => {
  const description = customDescription({
    type: 'custom',
    name: 'sql',
    description: 'Runs SQL.',
    grammar: { syntax: 'lark', definition: 'start: "SELECT"' },
    path: 'tools[0]',
  })
  assert.match(description, /^Runs SQL\.\n\n/)
  assert.match(description, /Lark grammar:\nstart: "SELECT"$/)
})

test('surrogates: a pair split over two deltas goes out whole (wire.md G 16)', () => {
  const joiner = new SurrogateJoiner()
  assert.equal(joiner.push('a\ud83d'), 'a')
  assert.equal(joiner.push(''), '')
  assert.equal(joiner.push('\ude00b'), '😀b')
  assert.equal(joiner.push('\ud83d'), '')
  assert.equal(joiner.end(), '\ufffd')
  assert.equal(joiner.end(), '')
})
