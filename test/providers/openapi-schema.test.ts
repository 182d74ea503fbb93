import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Ajv } from 'ajv'
import fc from 'fast-check'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { gemini } from '../../providers/gemini/index.ts'
import { convertAll, openApiSchema } from '../../providers/gemini/openapi-schema.ts'
import { backendOf, bodyOf, conversationOf, unfitOf } from './dialect-kit.ts'

const converted = (properties: object, more: object = {}): any => {
  const found = openApiSchema(
    { type: 'object', properties: properties as never, ...more },
    new Work(REQUEST_WORK),
  ) as any
  assert.ok(found.schema, found.lacks)
  return found.schema.properties
}
const lacks = (property: object, more: object = {}): string | undefined =>
  (openApiSchema({ type: 'object', properties: { p: property }, ...more }, new Work(REQUEST_WORK)) as any).lacks

describe('what the subset says in its own words', () => {
  const cases: [string, object, object, object?][] = [
    ['types', { type: 'string', minLength: 1 }, { type: 'STRING', minLength: 1 }],
    ['null beside a type', { type: ['integer', 'null'], minimum: 0 }, { type: 'INTEGER', nullable: true, minimum: 0 }],
    ['several types', { type: ['string', 'number'] }, { anyOf: [{ type: 'STRING' }, { type: 'NUMBER' }] }],
    ['null alone', { type: 'null' }, { type: 'NULL' }],
    ['const', { const: 'a' }, { type: 'STRING', enum: ['a'] }],
    ['enum with null', { enum: ['a', 'b', null] }, { type: 'STRING', enum: ['a', 'b'], nullable: true }],
    ['enum of numbers', { type: 'integer', enum: [1, 2] }, { type: 'INTEGER', enum: ['1', '2'] }],
    [
      'oneOf',
      { oneOf: [{ type: 'string' }, { type: 'boolean' }] },
      { anyOf: [{ type: 'STRING' }, { type: 'BOOLEAN' }] },
    ],
    [
      'an optional as pydantic writes it',
      { anyOf: [{ $ref: '#/$defs/Unit' }, { type: 'null' }], default: null, description: 'Unit' },
      { default: null, description: 'Unit', nullable: true, type: 'STRING', enum: ['c', 'f'] },
      { $defs: { Unit: { type: 'string', enum: ['c', 'f'] } } },
    ],
    [
      'allOf around one reference',
      { allOf: [{ $ref: '#/definitions/a~1b' }], description: 'near' },
      { description: 'near', type: 'OBJECT', properties: { x: { type: 'NUMBER' } }, required: ['x'] },
      {
        definitions: {
          'a/b': { type: 'object', description: 'far', properties: { x: { type: 'number' } }, required: ['x'] },
        },
      },
    ],
    ['bounds of whole numbers', { type: 'integer', exclusiveMinimum: 0 }, { minimum: 1, type: 'INTEGER' }],
    [
      'what wire.md lists goes, and annotations go',
      {
        $schema: 'x',
        $id: 'y',
        type: 'object',
        additionalProperties: { type: 'string' },
        patternProperties: { '^x': {} },
        propertyNames: { pattern: 'a' },
        readOnly: true,
        writeOnly: false,
        $comment: 'c',
        examples: [1],
        'x-own': 1,
      },
      { type: 'OBJECT' },
    ],
    [
      'lists',
      { type: 'array', items: { type: 'string' }, uniqueItems: true, contains: {}, minItems: 1 },
      { type: 'ARRAY', items: { type: 'STRING' }, minItems: 1 },
    ],
  ]
  for (const [name, property, expected, more] of cases) {
    test(name, () => assert.deepEqual(converted({ p: property }, more).p, expected))
  }

  test('a property that is called like a keyword stays', () => {
    const properties = Object.fromEntries(
      ['$schema', '$ref', 'const', 'oneOf', 'additionalProperties', 'not', '__proto__', 'constructor', 'type'].map(
        name => [name, { type: 'string' }],
      ),
    )
    Object.defineProperty(properties, '__proto__', { value: { type: 'string' }, enumerable: true })
    assert.deepEqual(Object.keys(converted(properties)).sort(), Object.keys(properties).sort())
  })
})

describe('what it can’t say is named', () => {
  const cases: [string, object, object?][] = [
    ['the keyword not', { not: { type: 'string' } }],
    ['the keyword if', { if: {}, else: {} }],
    ['the keyword multipleOf', { type: 'number', multipleOf: 5 }],
    ['the keyword prefixItems', { type: 'array', prefixItems: [{ type: 'string' }] }],
    ['a list of item schemas', { type: 'array', items: [{ type: 'string' }] }],
    ['the keyword exclusiveMinimum', { type: 'number', exclusiveMinimum: 0 }],
    ['a schema that allows nothing', { type: 'array', items: false }],
    [
      'a schema that contains itself',
      { $ref: '#/$defs/n' },
      { $defs: { n: { properties: { n: { $ref: '#/$defs/n' } } } } },
    ],
    ['a schema that contains itself', { $ref: '#' }],
    ['a $ref to elsewhere', { $ref: 'https://example.com/s.json' }],
    ['a $ref to nothing', { $ref: '#/$defs/none' }],
    ['a $ref to nothing', { $ref: '#/constructor/prototype' }],
    ['an enum of values that are not of one simple type', { enum: [1, 'a'] }],
    ['an enum of values that are not of one simple type', { const: { a: 1 } }],
    ['several types at once, with limits', { type: ['string', 'number'], minLength: 2 }],
    ['two schemas at once that differ in type', { type: 'string', allOf: [{ type: 'number' }] }],
    ['two unions at once', { anyOf: [{}], oneOf: [{}] }],
    ['a union at its top', {}, { oneOf: [{ required: ['a'] }, { required: ['b'] }] }],
  ]
  for (const [name, property, more] of cases) test(name, () => assert.equal(lacks(property, more), name))

  test('references that double with each level end in bounded time', () => {
    const $defs: Record<string, unknown> = { d0: { type: 'string' } }
    for (let i = 1; i < 60; i++) {
      const half = { $ref: `#/$defs/d${i - 1}` }
      $defs[`d${i}`] = { type: 'object', properties: { a: half, b: half } }
    }
    assert.equal(lacks({ $ref: '#/$defs/d59' }, { $defs }), 'so many nested definitions')
    let deep: object = { type: 'string' }
    for (let i = 0; i < 50_000; i++) deep = { type: 'array', items: deep }
    assert.equal(lacks(deep), 'so many nested definitions')
  })

  test('[REQ-1] neither thousands of schemas that hold together nor a long one that thousands refer to grow without bound', () => {
    const allOf = Array.from({ length: 16_000 }, (_, i) => ({ properties: { [`a${i}`]: { type: 'string' } } }))
    assert.equal(lacks({ allOf }), 'so many schemas at once')
    const e = { enum: Array.from({ length: 40_000 }, (_, i) => `a${i}`) }
    const properties = Object.fromEntries(Array.from({ length: 4000 }, (_, i) => [`p${i}`, { $ref: '#/$defs/e' }]))
    assert.equal(lacks({ type: 'object', properties }, { $defs: { e } }), 'so many nested definitions')
    const few = { type: 'object', properties: { a: { $ref: '#/$defs/e' }, b: { $ref: '#/$defs/e' } } }
    assert.ok('schema' in openApiSchema({ type: 'object', properties: { few }, $defs: { e } }, new Work(REQUEST_WORK)))
  })
})

/** A function whose text stands behind references: `times` of them, in a schema of some `text` characters. */
const referring = (times: number, text: number) => ({
  type: 'object',
  properties: Object.fromEntries(Array.from({ length: times }, (_, i) => [`p${i}`, { $ref: '#/$defs/d' }])),
  $defs: { d: { type: 'string', description: 'x'.repeat(text) } },
})

// The bounds held for one function, not for the 128 of a request: 540 KB of schemas became 462 MB for the provider, in
// 5.8 s of the event loop, and a text that stood once in what was counted stood a hundred times in what was sent.
test('[METER-1] what is written for all functions of a request is at most a fixed multiple of what was counted', () => {
  const written = (all: object[]) =>
    all.reduce((sum, one) => sum + JSON.stringify(openApiSchema(one as never, new Work(REQUEST_WORK))).length, 0)
  const sent = (all: object[]) => all.reduce((sum, one) => sum + JSON.stringify(one).length, 0)
  for (const [times, text] of [
    [3, 50_000],
    [6, 2000],
    [1, 10],
  ] as const) {
    const fits = Array.from({ length: 4 }, () => referring(times, text))
    assert.equal(convertAll(fits, new Work(REQUEST_WORK)), null)
    assert.ok(written(fits) <= 5 * sent(fits) + 64 * 1024)
    // A second look finds what the first has made.
    assert.equal(convertAll(fits, new Work(1)), null)
  }
  for (const count of [1, 40, 128]) {
    const grows = Array.from({ length: count }, () => referring(100, 4000))
    const found = convertAll(grows, new Work(REQUEST_WORK))
    assert.equal(found?.lacks, 'so many nested definitions')
  }
  // Each function alone would fit; what some of them leave over, others may use, and together they do not fit.
  const each = () => referring(12, 3000)
  assert.ok('schema' in openApiSchema(each(), new Work(REQUEST_WORK)))
  assert.equal(
    convertAll(Array.from({ length: 128 }, each), new Work(REQUEST_WORK))?.lacks,
    'so many nested definitions',
  )
})

test('[REQ-1] a request with schemas that grow makes the backend unfit, at the function that is too much', () => {
  const tools = Array.from({ length: 40 }, (_, i) => ({
    type: 'function' as const,
    name: `f${i}`,
    parameters: referring(100, 4000),
    path: `tools[${i}]`,
  }))
  const conversation = conversationOf({ tools })
  const unfit = gemini.unfit(conversation, {
    ...backendOf(gemini),
    settings: { provider: {}, backend: { tool_schema: 'openapi' } },
  })
  assert.deepEqual(unfit, {
    param: 'tools[2].parameters',
    requirement: 'a tool schema with so many nested definitions',
  })
  assert.equal(gemini.unfit(conversation, backendOf(gemini)), null)
})

// To refuse took 40 to 90 ms of the event loop: each of these shapes was worked on until a bound on its result.
test('work that one conversion does is paid before it is done, whatever the shape', () => {
  const many = (of: (i: number) => unknown) => Array.from({ length: 20_000 }, (_, i) => of(i))
  const wide = Object.fromEntries(many(i => [`member number ${i}`, {}]) as [string, unknown][])
  const shapes: [string, object][] = [
    ['a list of values behind each reference', { ...referring(2000, 1), $defs: { d: { enum: many(i => `v${i}`) } } }],
    ['a wide object behind each reference', { ...referring(2000, 1), $defs: { d: { properties: wide } } }],
    ['merges that grow', { allOf: many(i => ({ properties: { [`a${i}`]: {} } })) }],
    ['merges of one wide object', { allOf: many(() => ({ $ref: '#/$defs/d' })), $defs: { d: { properties: wide } } }],
    [
      'long references',
      { allOf: many(() => ({ $ref: `#/$defs/${'x'.repeat(5000)}` })), $defs: { ['x'.repeat(5000)]: {} } },
    ],
    ['defaults that are compared', { allOf: many(() => ({ $ref: '#/$defs/d' })), $defs: { d: { format: wide } } }],
    ['required names', { ...referring(2000, 1), $defs: { d: { required: many(i => `r${i}`) } } }],
    ['types', { ...referring(2000, 1), $defs: { d: { type: many(() => 'null') } } }],
  ]
  for (const [name, schema] of shapes) {
    const work = new Work(REQUEST_WORK)
    const found = openApiSchema({ type: 'object', ...schema } as never, work)
    assert.match((found as { lacks?: string }).lacks ?? '', /so many/, name)
  }
})

/** The subset back as JSON Schema, so that both can judge values. */
function jsonSchemaOf(schema: any): any {
  const { type, nullable, properties, items, anyOf, enum: values, ...rest } = schema
  const out: any = { ...rest }
  if (type !== undefined) out.type = type.toLowerCase()
  if (properties) out.properties = Object.fromEntries(Object.entries(properties).map(([k, v]) => [k, jsonSchemaOf(v)]))
  if (items) out.items = jsonSchemaOf(items)
  if (anyOf) out.anyOf = anyOf.map(jsonSchemaOf)
  if (values) out.enum = type === 'STRING' ? values : values.map((value: string) => JSON.parse(value))
  return nullable ? { anyOf: [out, { type: 'null' }] } : out
}

test('whatever is carried allows the same values (property)', () => {
  const ajv = new Ajv({ strict: false })
  const leaf = fc.constantFrom(
    { type: 'string' },
    { type: ['string', 'null'] },
    { type: 'integer', exclusiveMinimum: 1, maximum: 3 },
    { enum: ['a', null] },
    { const: 2 },
    { type: ['boolean', 'integer'] },
    { $ref: '#/$defs/leaf' },
    { allOf: [{ $ref: '#/$defs/leaf' }], description: 'd' },
    { anyOf: [{ $ref: '#/$defs/leaf' }, { type: 'null' }] },
  )
  const { node } = fc.letrec<{ node: object }>(tie => ({
    node: fc.oneof(
      { maxDepth: 3 },
      leaf,
      fc.record({ type: fc.constant('array'), items: tie('node'), maxItems: fc.constant(2) }),
      fc.record({ anyOf: fc.array(tie('node'), { minLength: 1, maxLength: 3 }) }),
      fc.record({
        type: fc.constant('object'),
        properties: fc.record({ a: tie('node'), b: tie('node') }),
        required: fc.subarray(['a', 'b']),
      }),
    ),
  }))
  const { value } = fc.letrec<{ value: unknown }>(tie => ({
    value: fc.oneof(
      { maxDepth: 2 },
      fc.constantFrom<unknown>('a', 'b', 1, 2, 3, 4, true, null),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b'), tie('value')),
    ),
  }))
  const $defs = { leaf: { type: 'string', enum: ['a', 'b'] } }
  fc.assert(
    fc.property(node, fc.array(value, { minLength: 8, maxLength: 8 }), (p, values) => {
      const whole = { type: 'object', properties: { p }, $defs }
      const found = openApiSchema(whole, new Work(REQUEST_WORK))
      if (!('schema' in found)) return
      const before = ajv.compile(whole)
      const after = ajv.compile(jsonSchemaOf(found.schema))
      for (const each of values) {
        assert.equal(after({ p: each }), before({ p: each }), JSON.stringify([p, each, found.schema]))
      }
    }),
    { numRuns: 400 },
  )
})

test('[REQ-1] a backend that takes only `parameters` gets them, and is unfit for what they can’t say, with the place', () => {
  const of = (parameters: Record<string, unknown>, name = 'f') =>
    ({ type: 'function', name, parameters, path: 'tools[1]' }) as const
  const backend = { settings: { provider: {}, backend: { tool_schema: 'openapi' } } }
  const fit = of({ $schema: 's', type: 'object', properties: { a: { const: 'x' } }, required: ['a'] })
  const custom = { type: 'custom', name: 'patch', path: 'tools[2]' } as const
  const body = bodyOf(gemini, { tools: [fit, of({ type: 'object', properties: {} }, 'none'), custom] }, backend)
  assert.deepEqual(body.tools[0].functionDeclarations, [
    {
      name: 'f',
      parameters: { type: 'OBJECT', properties: { a: { type: 'STRING', enum: ['x'] } }, required: ['a'] },
    },
    { name: 'none' },
    {
      name: 'patch',
      description: 'Put the whole input of this tool, as plain text, into the string `input`.',
      parameters: { type: 'OBJECT', properties: { input: { type: 'STRING' } }, required: ['input'] },
    },
  ])
  const recursive = of({ type: 'object', properties: { child: { $ref: '#' } } })
  assert.equal(unfitOf(gemini, { surface: 'chat', tools: [recursive] }, backend), 'tools[1].function.parameters')
  assert.equal(unfitOf(gemini, { surface: 'responses', tools: [recursive] }, backend), 'tools[1].parameters')
  assert.equal(unfitOf(gemini, { surface: 'messages', tools: [recursive] }, backend), 'tools[1].input_schema')
  assert.equal(unfitOf(gemini, { surface: 'chat', tools: [recursive] }), null, 'JSON Schema goes as it is')
})
