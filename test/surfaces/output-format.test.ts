/** Schemas of structured output that a hostile or careless client sends. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { surfaces } from '../../surfaces/index.ts'
import { SCHEMA_BOUNDS } from '../../surfaces/output-format.ts'
import { accepted, refusal } from './request-kit.ts'

type Schema = Record<string, unknown>
const FORMS: Record<string, { body(schema: Schema, strict?: boolean): Schema; at: string }> = {
  chat: {
    body: (schema, strict) => ({
      model: 'm',
      messages: [{ role: 'user', content: 'x' }],
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema, ...(strict && { strict }) } },
    }),
    at: 'response_format.json_schema.schema',
  },
  responses: {
    body: (schema, strict) => ({
      model: 'm',
      input: 'x',
      text: { format: { type: 'json_schema', name: 'n', schema, ...(strict && { strict }) } },
    }),
    at: 'text.format.schema',
  },
  messages: {
    body: schema => ({
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: 'x' }],
      output_config: { format: { type: 'json_schema', schema } },
    }),
    at: 'output_config.format.schema',
  },
}
const nested = (levels: number): Schema =>
  levels === 0 ? { type: 'string' } : { type: 'object', properties: { a: nested(levels - 1) } }
const properties = (count: number, value: unknown): Schema => ({
  type: 'object',
  properties: Object.fromEntries(Array.from({ length: count }, (_, i) => [`p${i}`, value])),
})

const REFUSED: [what: string, schema: Schema, code: string][] = [
  ['an array', { type: 'array', items: {} }, 'invalid_value'],
  ['no type', {}, 'invalid_value'],
  ['a list of types', { type: ['object', 'null'] }, 'invalid_value'],
  ['too long', { type: 'object', description: 'x'.repeat(SCHEMA_BOUNDS.size) }, 'content_limit_exceeded'],
  ['too deep', nested(SCHEMA_BOUNDS.depth), 'content_limit_exceeded'],
  ['too many values', properties(SCHEMA_BOUNDS.nodes, true), 'content_limit_exceeded'],
  ['too many patterns', properties(SCHEMA_BOUNDS.patterns + 1, { pattern: 'a' }), 'content_limit_exceeded'],
  ['a long pattern', properties(1, { pattern: 'a'.repeat(SCHEMA_BOUNDS.pattern + 1) }), 'content_limit_exceeded'],
  [
    'a long pattern as a name',
    { type: 'object', patternProperties: { ['a'.repeat(SCHEMA_BOUNDS.pattern + 1)]: {} } },
    'content_limit_exceeded',
  ],
  ['a reference to the web', properties(1, { $ref: 'https://example.com/s.json' }), 'invalid_value'],
  ['a reference to a file', properties(1, { $ref: 'file:///etc/passwd' }), 'invalid_value'],
  ['a reference to nothing', properties(1, { $ref: '#/$defs/none' }), 'invalid_value'],
  ['a reference to a prototype', properties(1, { $ref: '#/__proto__' }), 'invalid_value'],
  ['a dynamic reference', properties(1, { $dynamicRef: '#x' }), 'invalid_value'],
  ['a reference deep in a union', { type: 'object', anyOf: [{ items: [{ $ref: 'x' }] }] }, 'invalid_value'],
]
const TAKEN: [what: string, schema: Schema][] = [
  ['an object', { type: 'object' }],
  ['a slow pattern, which is never run', properties(1, { type: 'string', pattern: '(a+)+$' })],
  ['a schema that contains itself', { type: 'object', properties: { next: { $ref: '#' } } }],
  ['a reference at the top', { $ref: '#/$defs/a', $defs: { a: { type: 'object' } } }],
  [
    'what looks like a reference and is a name',
    properties(1, {}) && { type: 'object', properties: { $ref: { type: 'string' } } },
  ],
  ['what looks like a reference and is a value', properties(1, { const: { $ref: 'x' } })],
  ['as much as an ordinary program has', properties(300, { type: 'string', description: 'x'.repeat(100) })],
]

for (const [name, { body, at }] of Object.entries(FORMS)) {
  const surface = surfaces[name]!
  describe(`${name}: the schema of structured output`, () => {
    for (const [what, schema, code] of REFUSED) {
      test(`[GEN-3] refused: ${what}`, () => {
        const error = refusal(surface, body(schema), true)
        assert.equal(error.code, code, error.message)
        assert.ok(error.param!.startsWith(at), String(error.param))
        assert.ok(error.message.length < 400)
      })
    }
    for (const [what, schema] of TAKEN) {
      test(`[GEN-3] taken: ${what}`, () => {
        assert.deepEqual(accepted(surface, body(schema)).output!.schema, schema)
      })
    }
    test('[GEN-3] a strict schema follows the rule, or is refused where the client calls it strict', () => {
      const open = properties(1, { type: 'string' })
      const closed = { ...open, required: ['p0'], additionalProperties: false }
      assert.equal(accepted(surface, body(closed, true)).output!.strict, true)
      if (name === 'messages') assert.equal(accepted(surface, body(open)).output!.strict, false)
      else {
        assert.match(refusal(surface, body(open, true), true).message, /strict schema/)
        assert.equal(accepted(surface, body(closed)).output!.strict, false)
      }
    })
  })
}
