import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import * as judged from '../../providers/strict-arguments.ts'

const keepsTo = (schema: object, value: unknown) =>
  judged.keepsTo(schema as Record<string, unknown>, value, new Work(REQUEST_WORK))
const meets = (schema: object, value: unknown) =>
  judged.meets(schema as Record<string, unknown>, value, new Work(REQUEST_WORK))

test('[TOOL-2] a strict schema is judged as JSON Schema judges it (property)', () => {
  const ajv = new Ajv({ strict: false })
  const { node } = fc.letrec<{ node: object }>(tie => ({
    node: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<object>(
        { type: 'string' },
        { type: ['integer', 'null'] },
        { type: 'number' },
        { enum: ['a', 1, null] },
        { const: true },
        { $ref: '#/$defs/leaf' },
        {},
      ),
      fc.record({ type: fc.constant('array'), items: tie('node') }),
      fc.record({ anyOf: fc.array(tie('node'), { minLength: 1, maxLength: 2 }) }),
      fc.record({ allOf: fc.array(tie('node'), { minLength: 1, maxLength: 2 }) }),
      fc.record({
        type: fc.constant('object'),
        properties: fc.record({ a: tie('node'), b: tie('node') }),
        required: fc.constant(['a', 'b']),
        additionalProperties: fc.constant(false),
      }),
    ),
  }))
  const { value } = fc.letrec<{ value: unknown }>(tie => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<unknown>('a', 'x', 1, 1.5, true, null),
      fc.array(tie('value'), { maxLength: 2 }),
      fc.record({ a: tie('value'), b: tie('value') }),
      fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('value'), { maxKeys: 3 }),
    ),
  }))
  const $defs = { leaf: { type: 'object', properties: { a: {} }, required: ['a'], additionalProperties: false } }
  fc.assert(
    fc.property(node, fc.array(value, { minLength: 8, maxLength: 8 }), (p, values) => {
      const schema = { type: 'object', properties: { p }, required: ['p'], additionalProperties: false, $defs }
      const oracle = ajv.compile(schema)
      for (const each of values)
        assert.equal(keepsTo(schema, { p: each }), oracle({ p: each }), JSON.stringify([p, each]))
      for (const each of [{}, { p: 1, q: 2 }, []]) assert.equal(keepsTo(schema, each), oracle(each))
    }),
    { numRuns: 400 },
  )
})

test('what can’t be judged passes, and a schema of references to itself ends', () => {
  assert.ok(keepsTo({ $ref: 'https://example.com/x' }, {}))
  assert.ok(keepsTo({ $ref: '#/$defs/none' }, {}))
  assert.ok(keepsTo({ properties: { a: { enum: [{ x: 1 }] } } }, { a: 2 }))
  assert.ok(!keepsTo({ properties: { a: false } }, { a: 2 }))
  const loop = { anyOf: [{ $ref: '#/$defs/n' }, { $ref: '#/$defs/n' }] }
  keepsTo({ type: 'object', properties: { p: loop }, $defs: { n: { allOf: [loop, { type: 'string' }] } } }, { p: 1 })
})

test('[GEN-3] the schema of structured output is judged as JSON Schema judges it (property)', () => {
  const ajv = new Ajv2020({ strict: false })
  const bound = fc.integer({ min: -1, max: 3 })
  const size = fc.nat(3)
  const { node } = fc.letrec<{ node: object }>(tie => ({
    node: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<object>({ enum: ['a', 1, null] }, { $ref: '#/$defs/list' }, { const: 'x' }, {}),
      fc.record(
        { type: fc.constantFrom('string', 'number'), minLength: size, maxLength: size, minimum: bound, maximum: bound },
        { requiredKeys: ['type'] },
      ),
      fc.record(
        { exclusiveMinimum: bound, exclusiveMaximum: bound, multipleOf: fc.constantFrom(1, 2, 3) },
        { requiredKeys: [] },
      ),
      fc.record(
        {
          items: tie('node'),
          prefixItems: fc.array(tie('node'), { minLength: 1, maxLength: 2 }),
          minItems: size,
          maxItems: size,
        },
        { requiredKeys: ['items'] },
      ),
      fc.record({ anyOf: fc.array(tie('node'), { minLength: 1, maxLength: 2 }) }),
      fc.record({ allOf: fc.array(tie('node'), { minLength: 1, maxLength: 2 }) }),
      fc.record(
        {
          type: fc.constant('object'),
          properties: fc.record({ a: tie('node'), b: tie('node') }),
          required: fc.subarray(['a', 'b']),
          additionalProperties: fc.oneof(tie('node'), fc.boolean()),
          minProperties: size,
          maxProperties: size,
        },
        { requiredKeys: ['type'] },
      ),
    ),
  }))
  const { value } = fc.letrec<{ value: unknown }>(tie => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<unknown>('', 'a', 'x😀', 0, 1, 2, 1.5, -3, true, null),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b', 'c', '__proto__', 'toString'), tie('value'), { maxKeys: 3 }),
    ),
  }))
  const $defs = {
    list: { type: 'object', properties: { next: { $ref: '#/$defs/list' } }, additionalProperties: false },
  }
  fc.assert(
    fc.property(node, fc.array(value, { minLength: 8, maxLength: 8 }), (p, values) => {
      const schema = { type: 'object', properties: { p }, $defs }
      const oracle = ajv.compile(schema)
      for (const each of values)
        assert.equal(meets(schema, { p: each }), oracle({ p: each }), JSON.stringify([p, each]))
    }),
    { numRuns: 400 },
  )
})

test('[GEN-3] hostile schemas cost little, and never refuse what they cannot judge', () => {
  const wide = { anyOf: Array.from({ length: 20 }, () => ({ $ref: '#/$defs/n' })) }
  const schema = { type: 'object', properties: { p: wide }, $defs: { n: { allOf: [wide, { type: 'string' }] } } }
  meets(schema, { p: 1 })
  const many = { type: 'object', patternProperties: { '(a+)+$': { type: 'string' } }, additionalProperties: false }
  assert.ok(meets(many, { [`${'a'.repeat(100)}!`]: 1 }))
  assert.ok(meets({ type: 'object', not: {}, oneOf: [{}, {}] }, {}))
})

// ---- patterns -------------------------------------------------------------------------------------------------------

const patterned = (pattern: unknown) => ({ type: 'object', properties: { p: { type: 'string', pattern } } })
const fits = (pattern: string, p: unknown) => {
  const kept = keepsTo(patterned(pattern), { p })
  assert.equal(meets(patterned(pattern), { p }), kept)
  return kept
}

test('[TOOL-2] [GEN-3] a text is held against its pattern as ECMAScript reads it', () => {
  for (const [pattern, matching, other] of [
    ['^\\d{4}-\\d{2}$', ['2026-11'], ['2026-1', '2026-11 ', 'x2026-11', '2026-11\n']],
    ['b', ['abc'], ['ac', '']],
    ['^[A-Z]{2}|x$', ['AB!', 'lax'], ['ab']],
    ['^\\s$', ['\u00a0', '\u2003', '\ufeff', '\n', '\v'], ['x', '']],
    ['^[\\s\\d]+$', ['1\u00a02'], ['a']],
    ['^\\S$', ['x'], ['\u00a0']],
    ['^[^\\s]$', ['x'], ['\u2003']],
    ['^\\u0041\\u{1f600}$', ['A😀'], ['A', 'u0041']],
    ['^.$', ['😀', 'é'], ['ab']],
    ['^\\p{Lu}+$', ['ÄB'], ['äb']],
    ['^a\\/b\\.c$', ['a/b.c'], ['a/bxc']],
  ] as const) {
    for (const text of matching) assert.ok(fits(pattern, text), `${pattern} ${JSON.stringify(text)}`)
    for (const text of other) assert.ok(!fits(pattern, text), `${pattern} ${JSON.stringify(text)}`)
  }
  assert.ok(fits('^a$', 1) === false, 'the type is held as before')
  assert.ok(keepsTo({ properties: { p: { pattern: '^a$' } } }, { p: 1 }), 'a pattern is for texts alone')
})

test('[GEN-3] what RE2 and ECMAScript do not both know passes', () => {
  for (const pattern of [
    '^(?!a)b$',
    '(a)\\1',
    '(?<=a)b',
    '\\Aa',
    '(?i)a',
    '(?P<x>a)',
    '[',
    '(',
    'a{1001}',
    '[\\Sb]',
    '\\ud83d',
  ])
    for (const text of ['', 'a', 'zzz']) assert.ok(fits(pattern, text), pattern)
  assert.ok(fits('x'.repeat(1001), 'y'))
  assert.ok(keepsTo(patterned(1), { p: 'x' }))
})

test('[GEN-3] patterns of any shape never refuse what ECMAScript lets pass (property)', () => {
  const atom = fc.constantFrom(
    'a',
    'b',
    '.',
    '\\d',
    '\\w',
    '\\s',
    '\\S',
    '\\b',
    '[ab]',
    '[^a]',
    '[\\s1]',
    '\\u0061',
    '\\x62',
    'é',
  )
  const { node } = fc.letrec<{ node: string }>(tie => ({
    node: fc.oneof(
      { maxDepth: 3 },
      atom,
      fc.tuple(tie('node'), tie('node')).map(([a, b]) => a + b),
      fc.tuple(tie('node'), tie('node')).map(([a, b]) => `(?:${a}|${b})`),
      fc.tuple(tie('node'), fc.constantFrom('*', '+', '?', '{2}', '*?')).map(([a, q]) => `(${a})${q}`),
    ),
  }))
  const text = fc.string({ unit: fc.constantFrom('a', 'b', '1', ' ', '\u00a0', '\n', 'é', '😀'), maxLength: 6 })
  fc.assert(
    fc.property(node, fc.boolean(), fc.boolean(), text, (inner, start, end, value) => {
      const pattern = `${start ? '^' : ''}(?:${inner})${end ? '$' : ''}`
      assert.equal(fits(pattern, value), new RegExp(pattern, 'u').test(value), JSON.stringify([pattern, value]))
    }),
    { numRuns: 300 },
  )
})

test('[GEN-3] a pattern that would take a backtracking engine longer than the world has is done at once', () => {
  const text = `${'a'.repeat(5000)}!`
  for (const pattern of ['^(a+)+$', '^(a|a)*$', '^(a|aa)+$', '^(.*a){5}$', '^([a-z]+)*$'])
    assert.ok(!fits(pattern, text))
  // Together they are more work than one check may have: what is left passes.
  const patterns = Array.from({ length: 500 }, (_, i) => ({ pattern: `^(a+)+${i}$` }))
  const schema = { type: 'object', properties: { p: { anyOf: patterns } } }
  assert.ok(meets(schema, { p: 'a'.repeat(100_000) }))
})
