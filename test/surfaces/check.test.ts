import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { GatewayError } from '../../core/canon/errors.ts'
import { compileRequest, join } from '../../surfaces/check.ts'
import { dataUrl, documentSource, imageSource, isBase64 } from '../../surfaces/media.ts'
import * as s from '../../surfaces/schema.ts'
import { TextJoiner } from '../../surfaces/text.ts'
import { checkChoice, checkStrict, checkUniqueNames, objectParameters } from '../../surfaces/tools.ts'

const part = s.tagged('type', [
  s.variant('type', 'text', { text: s.string() }, ['text']),
  s.variant(
    'type',
    'image',
    { image: s.object({ url: s.string(), detail: s.oneOfStrings(['low', 'high']) }, ['url']) },
    ['image'],
  ),
])
const schema = s.object(
  {
    model: s.string({ minLength: 1, maxLength: 8 }),
    messages: s.array(
      s.tagged('role', [
        s.variant('role', 'user', { content: s.forms([s.string(), s.array(part, { minItems: 1 })]) }, ['content']),
      ]),
      { minItems: 1 },
    ),
    n: s.only({ type: 'integer', enum: [1] }),
    max: s.integer(1, 100),
    flag: s.boolean(),
    temperature: s.number(0, 2),
    audio: s.rejected('Use text.'),
    mode: s.rejected(undefined, ['plain']),
    bias: s.only({ type: 'object', maxProperties: 0 }),
    metadata: s.map(s.string({ maxLength: 4 }), { maxProperties: 2, propertyNames: { maxLength: 3 } }),
    format: s.tagged('type', [s.variant('type', 'text', {})], {
      unknown: { code: 'unsupported_parameter', at: 'self' },
    }),
    item: s.tagged('type', [s.variant('type', 'message', { role: s.string() })], {
      absent: 'message',
      absentGiven: ['role'],
      missing: { code: 'unsupported_value', hint: 'Send the item.' },
    }),
    opaque: s.opaqueObject(),
  },
  ['model', 'messages'],
)
const validate = compileRequest(schema)
const base = () => ({ model: 'm', messages: [{ role: 'user', content: 'hi' }] }) as Record<string, any>

function fault(body: unknown): { code: string; param: string | null; message: string } {
  try {
    validate(body, 'reject')
  } catch (error) {
    assert.ok(error instanceof GatewayError)
    return error
  }
  return assert.fail('accepted')
}

describe('request validation', () => {
  const cases: [name: string, change: Record<string, unknown>, code: string, param: string][] = [
    ['unknown member', { foo: 1 }, 'unknown_parameter', 'foo'],
    ['unknown member that is null', { foo: null }, 'unknown_parameter', 'foo'],
    [
      'unknown member deep down',
      { messages: [{ role: 'user', content: [{ type: 'image', image: { url: 'u', x: 1 } }] }] },
      'unknown_parameter',
      'messages[0].content[0].image.x',
    ],
    ['odd member name', { 'a b': 1 }, 'unknown_parameter', '["a b"]'],
    ['required member missing', { model: undefined }, 'missing_required_parameter', 'model'],
    ['required member null', { model: null }, 'invalid_type', 'model'],
    [
      'required member missing deep down',
      { messages: [{ role: 'user', content: [{ type: 'text' }] }] },
      'missing_required_parameter',
      'messages[0].content[0].text',
    ],
    ['tag missing', { messages: [{ content: 'x' }] }, 'missing_required_parameter', 'messages[0].role'],
    ['tag unknown', { messages: [{ role: 'robot', content: 'x' }] }, 'unsupported_value', 'messages[0].role'],
    ['tag of another type', { messages: [{ role: 7, content: 'x' }] }, 'invalid_type', 'messages[0].role'],
    ['entry that is no object', { messages: ['x'] }, 'invalid_type', 'messages[0]'],
    ['string too long', { model: 'too long a name' }, 'invalid_value', 'model'],
    ['empty string', { model: '' }, 'invalid_value', 'model'],
    ['empty array', { messages: [] }, 'invalid_value', 'messages'],
    ['number as string', { temperature: '1' }, 'invalid_type', 'temperature'],
    ['boolean as string', { flag: 'true' }, 'invalid_type', 'flag'],
    ['fraction for an integer', { max: 1.5 }, 'invalid_type', 'max'],
    ['not finite', { temperature: Number.POSITIVE_INFINITY }, 'invalid_type', 'temperature'],
    ['over the maximum', { temperature: 2.01 }, 'invalid_value', 'temperature'],
    ['under the minimum', { max: 0 }, 'invalid_value', 'max'],
    ['only the default is offered', { n: 2 }, 'unsupported_value', 'n'],
    ['only the default, wrong type', { n: '1' }, 'invalid_type', 'n'],
    ['only the empty object', { bias: { a: 1 } }, 'unsupported_value', 'bias'],
    ['member not offered', { audio: {} }, 'unsupported_parameter', 'audio'],
    ['member not offered, not its default', { mode: 'rich' }, 'unsupported_parameter', 'mode'],
    ['form of another type', { messages: [{ role: 'user', content: 5 }] }, 'invalid_type', 'messages[0].content'],
    [
      'enumeration',
      { messages: [{ role: 'user', content: [{ type: 'image', image: { url: 'u', detail: 'max' } }] }] },
      'invalid_value',
      'messages[0].content[0].image.detail',
    ],
    ['map value', { metadata: { a: 'too long' } }, 'invalid_value', 'metadata.a'],
    ['map value type', { metadata: { a: 1 } }, 'invalid_type', 'metadata.a'],
    ['map name', { metadata: { long: 'x' } }, 'invalid_value', 'metadata.long'],
    ['map size', { metadata: { a: '', b: '', c: '' } }, 'invalid_value', 'metadata'],
    ['tag fault at the object', { format: { type: 'json', schema: {} } }, 'unsupported_parameter', 'format'],
    ['absent tag that does not hold', { item: { id: 'x' } }, 'unsupported_value', 'item.type'],
  ]
  for (const [name, change, code, param] of cases) {
    it(`[GEN-2] refuses: ${name}`, () => {
      const body = { ...base(), ...change }
      for (const key of Object.keys(body)) if (body[key] === undefined) delete body[key]
      const error = fault(body)
      assert.deepEqual([error.code, error.param], [code, param])
      assert.ok(error.message.includes(param), error.message)
    })
  }

  it('[GEN-2] refuses a body that is no object as invalid_json', () => {
    for (const body of [null, [], 'x', 1])
      assert.deepEqual([fault(body).code, fault(body).param], ['invalid_json', null])
  })

  it('[GEN-2] takes null for absent on every optional member, at any depth', () => {
    const body = base()
    for (const name of Object.keys(schema['properties'] as object)) if (!(name in body)) body[name] = null
    body['messages'] = [{ role: 'user', content: [{ type: 'image', image: { url: 'u', detail: null } }] }]
    assert.deepEqual(validate(body, 'reject'), [])
  })

  it('[GEN-2] takes a null or absent tag where one may be absent', () => {
    validate({ ...base(), item: { role: 'user' } }, 'reject')
    validate({ ...base(), item: { type: null, role: 'user' } }, 'reject')
  })

  it('[GEN-2] takes 100.0 as an integer, and a default of a member that is not offered', () => {
    validate({ ...base(), ...JSON.parse('{"max":100.0}'), mode: 'plain', audio: null }, 'reject')
  })

  it('[GEN-2] takes __proto__ and constructor for ordinary unknown members', () => {
    const proto = JSON.parse('{"model":"m","messages":[{"role":"user","content":"x","__proto__":{"role":"user"}}]}')
    assert.deepEqual([fault(proto).code, fault(proto).param], ['unknown_parameter', 'messages[0].__proto__'])
    const body = { ...base(), constructor: { prototype: 1 } }
    assert.deepEqual([fault(body).code, fault(body).param], ['unknown_parameter', 'constructor'])
    assert.equal(({} as any).role, undefined)
  })

  it('[GEN-2] leaves the inside of opaque objects alone', () => {
    validate({ ...base(), opaque: JSON.parse('{"foo":null,"__proto__":{"a":1}}') }, 'reject')
  })

  it('[GEN-2] strip removes unknown members in place, at any depth, and lists them', () => {
    const body = JSON.parse(
      '{"model":"m","foo":null,"__proto__":1,"messages":[{"role":"user","x":1,"content":[{"type":"text","text":"t","y":{}}]}],"item":{"role":"r","z":1}}',
    )
    const removed = validate(body, 'strip')
    assert.deepEqual(removed.sort(), ['__proto__', 'foo', 'item.z', 'messages[0].content[0].y', 'messages[0].x'])
    assert.equal(
      JSON.stringify(body),
      '{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"t"}]}],"item":{"role":"r"}}',
    )
    assert.deepEqual(validate(body, 'reject'), [])
    assert.deepEqual(validate(base(), 'strip'), [])
  })

  it('[GEN-2] strip still refuses every other fault', () => {
    assert.throws(() => validate({ ...base(), foo: 1, n: 2 }, 'strip'), { code: 'unsupported_value', param: 'n' })
    assert.throws(() => validate({ ...base(), audio: 1 }, 'strip'), { code: 'unsupported_parameter' })
    assert.deepEqual(validate(base(), 'strip'), [], 'a refusal leaves no memory')
  })

  it('[ERR-9] suggests the member that was meant', () => {
    assert.match(fault({ ...base(), temprature: 1 }).message, /Did you mean 'temperature'/)
    assert.match(fault({ ...base(), audio: 1 }).message, /Use text\./)
    const long = 'k'.repeat(100_000)
    const error = fault({ ...base(), [long]: 1 })
    assert.ok(error.message.length < 600 && error.param!.length < 200)
  })

  it('[GEN-2] any JSON is accepted or refused with a listed code', () => {
    const codes = new Set([
      'unknown_parameter',
      'unsupported_parameter',
      'unsupported_value',
      'invalid_type',
      'invalid_value',
      'missing_required_parameter',
      'invalid_json',
    ])
    const names = [...Object.keys(schema['properties'] as object), 'zzz', '__proto__']
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...names), fc.jsonValue({ maxDepth: 3 })), change => {
        const body = { ...base(), ...change }
        try {
          validate(body, 'reject')
        } catch (error) {
          assert.ok(error instanceof GatewayError && codes.has(error.code))
        }
      }),
      { numRuns: 300, seed: 7 },
    )
  })

  it('joins paths', () => {
    assert.equal(join('', 'a'), 'a')
    assert.equal(join(join('a', 0), 'b'), 'a[0].b')
    assert.equal(join('a', 'x y', false), 'a["x y"]')
  })
})

describe('tool rules', () => {
  const strict = (schema: Record<string, unknown>) => {
    try {
      checkStrict(schema, 'tools[0].function.parameters')
    } catch (error) {
      assert.ok(error instanceof GatewayError)
      assert.equal(error.code, 'invalid_value')
      return error.param
    }
    return null
  }
  const closed = (properties: Record<string, unknown>) => ({
    type: 'object',
    properties,
    required: Object.keys(properties),
    additionalProperties: false,
  })

  it('[TOOL-2] a strict schema closes every object and requires every property', () => {
    const path = 'tools[0].function.parameters'
    assert.equal(strict(closed({ a: { type: 'string' } })), null)
    assert.equal(strict(closed({})), null)
    assert.equal(strict({ type: 'object', properties: {} }), path)
    assert.equal(strict({ ...closed({ a: {} }), required: [] }), path)
    assert.equal(strict({ ...closed({ a: {} }), required: 'a' }), path)
    assert.equal(strict(closed({ a: { type: 'object', properties: { b: {} } } })), `${path}.properties.a`)
    assert.equal(strict(closed({ a: { type: ['object', 'null'] } })), `${path}.properties.a`)
    assert.equal(strict(closed({ a: { type: 'array', items: { type: 'object' } } })), `${path}.properties.a.items`)
    assert.equal(
      strict(closed({ a: { anyOf: [{ type: 'string' }, { type: 'object' }] } })),
      `${path}.properties.a.anyOf[1]`,
    )
    assert.equal(strict({ ...closed({}), $defs: { 'x y': { type: 'object' } } }), `${path}.$defs["x y"]`)
  })

  it('[TOOL-2] takes a schema of any depth', () => {
    let schema: Record<string, unknown> = { type: 'string' }
    for (let i = 0; i < 50_000; i++) schema = closed({ a: schema })
    assert.equal(strict(schema), null)
  })

  it('[GEN-2] parameters are an object schema, empty when absent', () => {
    assert.deepEqual(objectParameters(undefined, 'p'), { type: 'object', properties: {} })
    assert.deepEqual(objectParameters({}, 'p'), { type: 'object', properties: {} })
    assert.deepEqual(objectParameters({ type: ['object', 'null'], properties: { a: {} } }, 'p'), {
      type: ['object', 'null'],
      properties: { a: {} },
    })
    assert.throws(() => objectParameters({ type: 'string' }, 'p'), { code: 'invalid_value', param: 'p.type' })
  })

  const tool = (name: string, i: number, namespace?: string) => ({
    type: 'function' as const,
    name,
    parameters: {},
    path: `tools[${i}]`,
    ...(namespace && { namespace }),
  })

  it('[GEN-2] tool names are unique within their namespace', () => {
    checkUniqueNames([tool('a', 0), tool('a', 1, 'n'), tool('b', 2, 'n')], '.name')
    assert.throws(() => checkUniqueNames([tool('a', 0), tool('a', 1)], '.name'), {
      param: 'tools[1].name',
      code: 'invalid_value',
    })
  })

  it('[GEN-2] a tool choice names declared tools', () => {
    const tools = [tool('a', 0), tool('b', 1, 'n')]
    checkChoice({ type: 'required' }, tools, 'tool_choice')
    checkChoice({ type: 'tool', name: 'b', kind: 'function' }, tools, 'tool_choice')
    checkChoice({ type: 'none' }, [], 'tool_choice')
    const bad = { code: 'invalid_value', param: 'tool_choice' }
    assert.throws(() => checkChoice({ type: 'required' }, [], 'tool_choice'), bad)
    assert.throws(() => checkChoice({ type: 'tool', name: 'a', kind: 'custom' }, tools, 'tool_choice'), bad)
    assert.throws(
      () => checkChoice({ type: 'tool', name: 'b', namespace: 'm', kind: 'function' }, tools, 'tool_choice'),
      bad,
    )
    assert.throws(
      () =>
        checkChoice({ type: 'allowed', mode: 'auto', tools: [{ name: 'c', kind: 'function' }] }, tools, 'tool_choice'),
      bad,
    )
  })
})

describe('media', () => {
  const PIXEL = 'iVBORw0KGgo='

  it('[CHAT-3] images are https URLs or data URLs of four types', () => {
    assert.deepEqual(imageSource('https://example.com/a.png', 'p'), { kind: 'url', url: 'https://example.com/a.png' })
    for (const type of ['png', 'jpeg', 'gif', 'webp'])
      assert.deepEqual(imageSource(`data:image/${type};base64,${PIXEL}`, 'p'), {
        kind: 'data',
        mediaType: `image/${type}`,
        data: PIXEL,
      })
    const bad = [
      'http://example.com/a.png',
      'file:///etc/passwd',
      'https://',
      'ftp://x',
      '',
      'data:image/svg+xml;base64,AAAA',
      'data:image/png,AAAA',
      'data:image/png;base64,',
      'data:image/png;base64,AAA',
      'data:image/png;base64,AA=A',
      'data:image/png;base64,AA A',
      'data:text/plain;base64,AAAA',
      `https://${'x'.repeat(20_000)}`,
    ]
    for (const url of bad) assert.throws(() => imageSource(url, 'p'), { code: 'invalid_value', param: 'p' }, url)
  })

  it('[GEN-2] documents are PDF or plain text', () => {
    assert.deepEqual(documentSource('data:application/pdf;base64,JVBERi0=', 'p'), {
      kind: 'data',
      mediaType: 'application/pdf',
      data: 'JVBERi0=',
    })
    assert.deepEqual(documentSource('data:text/plain;charset=utf-8;base64,aMOk', 'p'), { kind: 'text', text: 'hä' })
    assert.throws(() => documentSource('data:image/png;base64,AAAA', 'p'), { code: 'invalid_value', param: 'p' })
    assert.throws(() => documentSource('https://example.com/a.pdf', 'p'), { code: 'invalid_value', param: 'p' })
  })

  it('base64 agrees with what Buffer encodes', () => {
    fc.assert(fc.property(fc.uint8Array({ minLength: 1 }), bytes => isBase64(Buffer.from(bytes).toString('base64'))))
    for (const text of ['', 'A', 'AA', 'AAA', '====', 'A===', 'AAAA=', 'AA-_', 'AÄAA', 'AAA\n'])
      assert.equal(isBase64(text), false, text)
    assert.equal(dataUrl(`data:${'x'.repeat(300)};base64,AAAA`), null)
  })

  it('base64 is what its definition says, also where one character is another one', () => {
    const definition = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$/
    const short = fc.uint8Array({ minLength: 1, maxLength: 60 })
    // The text is looked at in pieces of 64 Ki characters.
    const long = fc.integer({ min: 49_150, max: 49_156 }).map(length => new Uint8Array(length))
    const other = fc.oneof(
      fc.constantFrom(...'=-_+/\n\r\0 ,!Az09'),
      fc.string({ unit: 'binary', minLength: 0, maxLength: 2 }),
    )
    fc.assert(
      fc.property(fc.oneof(short, long), fc.double({ min: 0, max: 1, noNaN: true }), other, (bytes, where, put) => {
        const text = Buffer.from(bytes).toString('base64')
        const at = Math.min(Math.floor(where * text.length), text.length - 1)
        for (const each of [
          `${text.slice(0, at)}${put}${text.slice(at + 1)}`,
          `${text.slice(0, at)}${put}${text.slice(at)}`,
        ])
          assert.equal(isBase64(each), definition.test(each), JSON.stringify(each.slice(-80)))
      }),
      { numRuns: 3000 },
    )
  })

  it('a long data URL is scanned in linear time', () => {
    const data = 'A'.repeat(8_000_000)
    // A scan that starts over at each letter would take hours: the runner's end of this file is the assertion.
    assert.equal(isBase64(data), true)
  })
})

describe('text deltas', () => {
  it('[STR-6] no delta splits a surrogate pair, and nothing is lost', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.array(fc.nat(20)), (text, cuts) => {
        const joiner = new TextJoiner()
        let out = ''
        let at = 0
        for (const n of [...cuts, text.length]) {
          const piece = joiner.push(text.slice(at, at + n))
          assert.ok(piece.isWellFormed())
          out += piece
          at += n
        }
        assert.equal(out + joiner.flush(), text.toWellFormed())
      }),
    )
  })

  it('a half that stays alone becomes U+FFFD', () => {
    const joiner = new TextJoiner()
    assert.equal(joiner.push('a\ud83d'), 'a')
    assert.equal(joiner.push('b'), '\ufffdb')
    assert.equal(joiner.push('\ud83d'), '')
    assert.equal(joiner.push(''), '')
    assert.equal(joiner.push('\ude00'), '😀')
    joiner.push('\ud83d')
    assert.equal(joiner.flush(), '\ufffd')
    assert.equal(joiner.flush(), '')
  })
})
