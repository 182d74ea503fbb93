/**
 * Long strings that go on as they came: the same value to whoever reads them, whatever their spelling, and nothing that
 * only looks like them.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { wellFormed } from '../../core/tools/json.ts'
import { JsonBytes } from '../../core/tools/json-bytes.ts'
import { parseJson } from '../../meter/index.ts'
import { joined, type Pieces, Verbatim } from '../../plugins/shared/verbatim.ts'

function read<T = unknown>(bytes: Buffer): { value: T; sent: Verbatim; shape: JsonBytes } {
  const shape = new JsonBytes(bytes)
  shape.readAll()
  const sent = new Verbatim()
  return { value: sent.parse(shape) as T, sent, shape }
}
const whole = (json: string | Pieces) => Buffer.from(joined(json))
const long = (text: string) => text.repeat(Math.ceil(40_000 / text.length))

/** A string's content in JSON, spelled in odd ways. */
const spelling = fc
  .array(
    fc.constantFrom(
      'word ',
      '\\n',
      '\\"',
      '\\\\',
      '\\/',
      '\\u0041',
      '\\u0000',
      '\\ud83d\\ude00',
      '\\ud83d',
      'é',
      '的',
      '😀',
      ',:{}[]',
    ),
    { minLength: 1, maxLength: 12 },
  )
  .map(parts => parts.join(''))

test('a body is read as JSON.parse reads it, and what is written of it has the same value (300 cases)', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(spelling, fc.boolean()), { minLength: 1, maxLength: 5 }), strings => {
      const texts = strings.map(([text, repeated]) => `"${repeated ? long(text) : text}"`)
      const json = `{ "a" : [ ${texts.join(' , ')} ], "__proto__": {"x": ${texts[0]}}, "d": 1, "d": ${texts.at(-1)}, ${texts[0]} : 2 }`
      const bytes = Buffer.from(json)
      const { value, sent } = read<{ a: string[] }>(bytes)
      assert.deepEqual(value, parseJson(bytes))
      assert.deepEqual(Object.keys(value), Object.keys(parseJson(bytes) as object))
      const body = { model: 'm', messages: value, first: value.a[0], '"': `${value.a[0]}!` }
      assert.equal(JSON.stringify(JSON.parse(whole(sent.pieces(sent.write(body))).toString())), JSON.stringify(body))
    }),
    { numRuns: 300 },
  )
})

test('a long string goes out in the bytes it came in, wherever it is put, and only while it is that string', () => {
  const spelled = `"${long('\\u0041 \\/ é')}"`
  const { value, sent } = read<{ a: string }>(Buffer.from(`{"a":${spelled}}`))
  const body = { b: [value.a], c: `${value.a}.`, d: value.a }
  const out = whole(sent.pieces(sent.write(body))).toString()
  assert.equal(out, `{"b":[${spelled}],"c":${JSON.stringify(`${value.a}.`)},"d":${spelled}}`)
})

test('a string of 16 KB is long, of any characters; a shorter one is written anew', () => {
  for (const [spelled, verbatim] of [
    [`"${'\\/ '.repeat(5462)}"`, true],
    [`"${'\\/ '.repeat(5400)}"`, false],
    [`"\\/${'的'.repeat(8200)}"`, true],
  ] as const) {
    const { value, sent } = read<{ a: string }>(Buffer.from(`{"a":${spelled}}`))
    assert.equal(
      whole(sent.pieces(sent.write(value)))
        .toString()
        .includes('\\/'),
      verbatim,
    )
  }
})

test('bytes that are no UTF-8 never go out: U+FFFD does, which is how they were read', () => {
  const bytes = Buffer.concat([Buffer.from(`{"a":"${long('x')}`), Buffer.of(0xff, 0xc3), Buffer.from('"}')])
  const { value, sent } = read<object>(bytes)
  assert.deepEqual(value, parseJson(bytes))
  assert.equal(sent.pieces(sent.write(value)), JSON.stringify(value))
})

test('half a surrogate pair never goes out: U+FFFD does, and what only looks like one stays (300 cases)', () => {
  assert.equal(wellFormed('{"a":"\\\\ud83d \\\\\\ud83d\\ude00"}'), '{"a":"\\\\ud83d \\\\\ufffd\ufffd"}')
  const text = fc
    .array(fc.constantFrom('\\', '\\u', 'd83d', '\ud83d', '\ude00', '\udfff', '😀', '"', '\n', 'a'), { maxLength: 12 })
    .map(parts => parts.join(''))
  fc.assert(
    fc.property(text, text, fc.boolean(), (a, b, repeated) => {
      const spelled = `{"a":${repeated ? `"${long(`${JSON.stringify(a).slice(1, -1)}.`)}"` : JSON.stringify(a)},"b":${JSON.stringify(b)}}`
      const { value, sent } = read<{ a: string; b: string }>(Buffer.from(spelled))
      const out = whole(sent.pieces(wellFormed(sent.write(value)))).toString()
      assert.deepEqual(JSON.parse(out), { a: value.a.toWellFormed(), b: value.b.toWellFormed() })
      assert.doesNotMatch(out.replaceAll('\\\\', '').replaceAll(/\\ud[89ab]..\\ud[c-f]../g, ''), /\\ud[89a-f]/)
    }),
    { numRuns: 300 },
  )
})

test('what is no JSON is a SyntaxError, in a long string and around it; a byte order mark is passed over', () => {
  const text = long('word ')
  for (const json of [
    `{"a":"${text}\n"}`,
    `{"a":"${text}\\x"}`,
    `{"a":"${text}"`,
    `{"a" "${text}"}`,
    `"${text}" "${text}"`,
    `{"a":"${text}`,
  ])
    assert.throws(() => read(Buffer.from(json)), SyntaxError)
  assert.deepEqual(read(Buffer.from(`\ufeff["${text}"]`)).value, [text])
})

test('it is worth it for long texts, not for many values', () => {
  const pays = (value: unknown) => Verbatim.pays(read(Buffer.from(JSON.stringify(value))).shape)
  assert.ok(pays({ messages: [{ content: long('text ') }] }))
  assert.ok(!pays({ messages: [{ content: 'text' }] }))
  assert.ok(
    !pays({ messages: [{ content: long('text ') }], tools: Array.from({ length: 1000 }, () => ({ name: 'x' })) }),
  )
})

test('of a body that another thread has parsed, long strings of plain ASCII go on as they came', () => {
  const strings = [long('abc+/='), long('\\n x'), long('é '), 'short', long(' ')]
  const bytes = Buffer.from(`{"a":[${strings.map(text => `"${text}"`).join(', ')}]}`)
  const { value, shape } = read<{ a: string[] }>(bytes)
  const sent = Verbatim.of(bytes, shape)
  // The value came as a message, and a dialect may put a string together anew.
  const copy = structuredClone(value)
  const body = { a: copy.a, b: `${copy.a[0]!.slice(0, 20)}${copy.a[0]!.slice(20)}`, c: `${copy.a[0]}!` }
  const out = sent.pieces(sent.write(body)) as Pieces
  assert.equal(whole(out).toString(), JSON.stringify(body))
  const asBytes = out.filter(piece => typeof piece !== 'string')
  assert.deepEqual(
    asBytes.map(piece => piece.length),
    [0, 4, 0].map(i => strings[i]!.length + 2),
  )
})

test('of a text of the same length that differs anywhere, nothing is sent as it came', () => {
  const text = 'a'.repeat(200_000)
  const bytes = Buffer.from(`["${text}"]`)
  const sent = Verbatim.of(bytes, read(bytes).shape)
  assert.notEqual(sent.write([text]), JSON.stringify([text]))
  for (const at of [0, 65_535, 65_536, 131_071, 199_999])
    for (const other of ['b', 'é', '\u0161', '\ud83d'])
      for (const piece of [other, other.repeat(2)]) {
        const value = text.slice(0, at) + piece + text.slice(at + piece.length)
        assert.equal(sent.write([value]), JSON.stringify([value]), `${at} ${piece}`)
      }
})

test('of many long strings, those go on as they came that stay near their place', () => {
  const strings = Array.from({ length: 40 }, (_, i) => `${long('x')}\\/${i}`)
  const { value, sent } = read<{ a: string[] }>(Buffer.from(`{"a":[${strings.map(text => `"${text}"`).join()}]}`))
  const written = (a: string[]) =>
    whole(sent.pieces(sent.write(a)))
      .toString()
      .split('\\/').length - 1
  const { a } = value
  assert.equal(written(a), 40)
  assert.equal(written([...a.slice(-3), ...a.slice(0, -3)]), 40, 'a system prompt from the end')
  assert.equal(written(a.filter((_, i) => i % 5 > 0)), 32, 'some are left out')
  assert.equal(written(a.map(text => `${text}.`)), 0)
})
