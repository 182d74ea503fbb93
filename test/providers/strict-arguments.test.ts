import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { keepsTo, meets } from '../../providers/strict-arguments.ts'

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
      const oracle = new Ajv2020({ strict: false }).compile(schema)
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
  const slow = { type: 'object', properties: { p: { type: 'string', pattern: '(a+)+$' } } }
  assert.ok(meets(slow, { p: `${'a'.repeat(100)}!` }))
  const many = { type: 'object', patternProperties: { '(a+)+$': { type: 'string' } }, additionalProperties: false }
  assert.ok(meets(many, { [`${'a'.repeat(100)}!`]: 1 }))
  assert.ok(meets({ type: 'object', not: {}, oneOf: [{}, {}] }, {}))
})
