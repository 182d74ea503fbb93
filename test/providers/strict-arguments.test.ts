import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Ajv } from 'ajv'
import fc from 'fast-check'
import { keepsTo } from '../../providers/strict-arguments.ts'

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
