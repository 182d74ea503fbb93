/**
 * Bounds on the checks of clients' schemas counted steps, and one step could cost as much as all others: 2^14 ways
 * through a schema to an `enum` of 60,000 entries took 6 s of the event loop for a reply of five calls. These tests
 * count what is really looked at, through proxies, and hold it against the units that were taken for it.
 */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { REQUEST_WORK, Work } from '../../core/canon/work.ts'
import { outputSchema } from '../../providers/anthropic-messages/output-schema.ts'
import { keepsTo, meets, textKeepsTo, textMeets } from '../../providers/strict-arguments.ts'

type JsonObject = Record<string, unknown>

/** What is looked at for a unit, at most: a schema takes 15 units, and some 25 of its members are asked for. */
const LOOKS = 2
/** Looks before anything was taken. */
const APART = 40

/** A budget that counts looks, and fails as soon as there were more of them than units were taken for. */
class WatchedWork extends Work {
  looks = 0
  taken = 0
  override take(units: number): boolean {
    // The members of a value are listed, and then taken for; everything else is taken for before.
    const paid = LOOKS * (this.taken + units) + APART
    assert.ok(this.looks <= paid, `${this.looks} looks for ${this.taken} and ${units} units`)
    const took = super.take(units)
    if (took) this.taken += units
    return took
  }
}

/** The same value, whose members and entries are counted when they are looked at. */
function watched<T>(value: T, work: WatchedWork): T {
  const known = new Map<object, object>()
  const wrap = (inner: any): any => {
    if (typeof inner !== 'object' || inner === null) return inner
    let proxy = known.get(inner)
    if (!proxy) {
      proxy = new Proxy(inner, {
        get: (target, key) => {
          work.looks++
          return wrap(Reflect.get(target, key))
        },
        has: (target, key) => {
          work.looks++
          return Reflect.has(target, key)
        },
        getOwnPropertyDescriptor: (target, key) => {
          work.looks++
          return Reflect.getOwnPropertyDescriptor(target, key)
        },
      })
      known.set(inner, proxy!)
    }
    return proxy
  }
  return wrap(value)
}

const many = (n: number, entry: (i: number) => unknown) => Array.from({ length: n }, (_, i) => entry(i))

/** Schemas, each of which costs much in one step or in many. `n` is how much. */
const SHAPES: Record<string, (n: number) => unknown> = {
  enum: n => ({ enum: many(n, i => i + 10_000_000) }),
  'enum of strings': n => ({ enum: many(n, i => `entry ${i}`) }),
  'enum with an object at its end': n => ({ enum: [...many(n, i => i), {}] }),
  'required that is no list of names': n => ({ required: many(n, i => i) }),
  required: n => ({ required: many(n, i => `r${i}`) }),
  'a long list of types': n => ({ type: many(n, () => 'null') }),
  'types that are no types': n => ({ type: many(n, () => [['string']]) }),
  'a union of nothing': n => ({ anyOf: many(n, () => false) }),
  'a union of oddities': n => ({ allOf: many(n, i => (i % 2 === 0 ? true : 1)) }),
  'many properties': n => ({ properties: Object.fromEntries(many(n, i => [`p${i}`, {}]) as [string, unknown][]) }),
  'a way that ends at once': n => ({ $ref: `#${'/x'.repeat(n)}` }),
  'a long way': n => ({ $ref: `#/$defs${'/x'.repeat(n)}` }),
  'first items': n => ({ prefixItems: many(n, () => ({ type: 'string' })) }),
  'bounds of objects': n => ({ minProperties: 0, maxProperties: n }),
  closed: () => ({ type: 'object', additionalProperties: false }),
  'further members': () => ({ additionalProperties: { type: ['number', 'string', 'object', 'array'] } }),
  items: () => ({ items: { type: ['number', 'string', 'object', 'array'] } }),
  'length of texts': n => ({ minLength: 1, maxLength: n }),
  'a large pattern': n => ({ pattern: '(){1000}'.repeat((n % 100) + 1) }),
  'a pattern': n => ({ pattern: `^(?:a?){0,${n % 900}}b$` }),
}
const VALUES: Record<string, (n: number) => unknown> = {
  number: n => n,
  text: n => 'ä'.repeat(n),
  'text of one': () => 'x',
  list: n => many(n, i => i),
  object: n => Object.fromEntries(many(n, i => [`m${i}`, i]) as [string, unknown][]),
  'object of objects': n => ({ a: { b: Object.fromEntries(many(n, i => [`m${i}`, 'x']) as [string, unknown][]) } }),
  null: () => null,
}
const named = (of: Record<string, (n: number) => unknown>) =>
  fc.tuple(fc.constantFrom(...Object.keys(of)), fc.integer({ min: 0, max: 3000 })).map(([name, n]) => of[name]!(n))

/** 2^ways ways to what `leaf` is, so that it is looked at as often as the budget allows. */
const hostile = fc
  .tuple(
    fc.nat(14),
    fc.array(named(SHAPES), { minLength: 1, maxLength: 4 }),
    fc.constantFrom('anyOf', 'oneOf', 'allOf'),
  )
  .map(([ways, leaves, union]) => {
    const x: JsonObject = {}
    // The longest way that there is.
    x['x'] = x
    const $defs: JsonObject = { x }
    for (let i = 0; i < ways; i++)
      $defs[`d${i}`] = { [union]: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] }
    $defs[`d${ways}`] = { allOf: [...leaves, { $ref: '#/$defs/again' }] }
    $defs['again'] = { items: { $ref: '#/$defs/d0' }, additionalProperties: { $ref: '#/$defs/d0' } }
    const p = { $ref: '#/$defs/d0' }
    return { type: 'object', properties: { p }, required: ['p'], additionalProperties: false, $defs } as JsonObject
  })

describe('a check of a schema takes units for all that it looks at', () => {
  test('whatever the schema and the value are (property)', () => {
    const budget = fc.constantFrom(1_000, 40_000, 200_000)
    fc.assert(
      fc.property(hostile, named(VALUES), budget, (schema, p, units) => {
        const value = { p }
        for (const check of [keepsTo, meets]) {
          const work = new WatchedWork(units)
          check(watched(schema, work), watched(value, work), work)
          assert.ok(work.taken <= units)
          // What was listed last may not have been taken for any more: it is a part of the value, that was read.
          assert.ok(work.looks <= LOOKS * work.taken + 3100 + APART, `${work.looks} looks, ${work.taken} units`)
        }
      }),
      { numRuns: 250, includeErrorInReport: true },
    )
  })

  test('all checks of a request draw on one budget, and what it does not suffice for passes', () => {
    const wrong = { type: 'object', properties: { p: { type: 'string' } } }
    const work = new Work(10_000)
    let found = 0
    while (!keepsTo(wrong, { p: 1 }, work)) found++
    assert.ok(found > 100 && found < 1000, `${found}`)
    assert.equal(work.left, 0)
    assert.equal(keepsTo(wrong, { p: 1 }, work), true)
    assert.equal(meets(wrong, { p: 1 }, work), true)
    assert.equal(textKeepsTo(wrong, '{"p":1}', work), true)
    assert.equal(textMeets(wrong, '{"p":1}', work), true)
    assert.equal(textKeepsTo(wrong, '{"p":1}', new Work(1_000)), false)
    assert.equal(textMeets(wrong, '{"p":1}', new Work(1_000)), false)
    // A text that is too long to be read for what is left is not read.
    assert.equal(textKeepsTo(wrong, `{"p":1${' '.repeat(1000)}}`, new Work(1_000)), true)
  })

  test('texts count by their characters: those that are compared, counted, or lead somewhere', () => {
    const spent = (schema: JsonObject, value: unknown) => {
      const work = new Work(REQUEST_WORK)
      meets(schema, value, work)
      return REQUEST_WORK - work.left
    }
    const long = 'x'.repeat(8000)
    assert.ok(spent({ enum: many(50, i => `${long}${10 + i}`) }, `${long}xx`) >= (50 * 8000) / 4)
    assert.ok(spent({ enum: many(50, i => `${long}${100 + i}`) }, `${long}xx`) < 8000, 'of another length')
    assert.ok(spent({ minLength: 5000 }, '😀'.repeat(4000)) >= 8000)
    assert.ok(spent({ minLength: 1, maxLength: 90_000 }, long) < 100, 'its length says it')
    assert.ok(spent({ $ref: `#/${long}` }, 1) >= 2000)
    assert.ok(spent({ required: many(50, i => `${long}${i}`) }, {}) >= 2000)
    assert.ok(spent({ required: many(50, i => i) }, {}) >= 50)
  })

  test('concatenated strings are compared like others', () => {
    // Each is a rope of two pieces until something looks at its characters.
    const joined = (i: number) => `${'p'.repeat(20)}${i + 100_000}`
    assert.ok(keepsTo({ enum: many(500, joined) }, joined(499), new Work(REQUEST_WORK)))
    assert.ok(!keepsTo({ enum: many(500, joined) }, joined(500), new Work(REQUEST_WORK)))
    assert.ok(keepsTo({ enum: ['', 'a'] }, '', new Work(REQUEST_WORK)))
  })

  test('no nesting and no reference overflows the stack: what is very deep passes', () => {
    let schema: JsonObject = { type: 'string' }
    let value: unknown = 1
    for (let i = 0; i < 20_000; i++) {
      schema = { properties: { a: schema }, items: schema, anyOf: [schema] }
      value = i % 2 === 0 ? { a: value } : [value]
    }
    for (const check of [keepsTo, meets]) {
      assert.equal(check(schema, value, new Work(REQUEST_WORK)), true)
      assert.equal(check({ anyOf: [{ $ref: '#' }] }, {}, new Work(REQUEST_WORK)), true)
      assert.equal(
        check({ type: many(5000, () => 0).reduce(inner => [inner], 'string') }, 1, new Work(REQUEST_WORK)),
        true,
      )
    }
    // 100 levels are not deep.
    let near: JsonObject = { type: 'string' }
    let wrong: unknown = 1
    for (let i = 0; i < 100; i++) {
      near = { type: 'object', properties: { a: { anyOf: [{ type: 'null' }, near] } } }
      wrong = { a: wrong }
    }
    assert.equal(keepsTo(near, wrong, new Work(REQUEST_WORK)), false)
  })
})

describe('a schema is rewritten for anthropic-messages', () => {
  const closed = (more: JsonObject) => ({
    type: 'object',
    properties: {},
    required: [],
    additionalProperties: false,
    ...more,
  })
  /** The chain of references of a client: each definition holds the reference to the next one in nested lists. */
  function chain(length: number, nested: number): JsonObject {
    const $defs: JsonObject = {}
    for (let i = 0; i < length; i++) {
      let inner: unknown = { $ref: `#/$defs/d${i + 1}` }
      for (let j = 0; j < nested; j++) inner = [inner]
      $defs[`d${i}`] = { anyOf: [{ type: 'null' }], examples: inner }
    }
    $defs[`d${length}`] = { type: 'null' }
    return closed({ properties: { a: { $ref: '#/$defs/d0' } }, required: ['a'], $defs })
  }

  test('a chain of references does not overflow the stack', () => {
    // 220 definitions with 40 nested lists each got 500 on the first request; optimised frames are smaller.
    assert.ok(outputSchema(chain(220, 40), new Work(REQUEST_WORK)))
    assert.ok(outputSchema(chain(20_000, 5), new Work(Number.MAX_SAFE_INTEGER)))
    let deep: JsonObject = { type: 'null' }
    for (let i = 0; i < 20_000; i++) deep = { anyOf: [deep] }
    assert.equal(outputSchema(deep, new Work(Number.MAX_SAFE_INTEGER)), null)
  })

  test('it takes units for all that it looks at, once for a request (property)', () => {
    const shape = fc.record({
      length: fc.nat(60),
      nested: fc.nat(12),
      words: fc.nat(200),
      units: fc.constantFrom(500, 1e6),
    })
    fc.assert(
      fc.property(shape, ({ length, nested, words, units }) => {
        const plain = chain(length, nested)
        ;(plain['properties'] as JsonObject)['b'] = { enum: many(words, i => `word ${i}`), type: 'string' }
        const work = new WatchedWork(units)
        const schema = watched(plain, work)
        const form = outputSchema(schema, work)
        const { looks } = work
        assert.ok(looks <= 3 * work.taken + 400, `${looks} looks, ${work.taken} units`)
        assert.equal(outputSchema(schema, work), form)
        assert.equal(work.looks, looks, 'made once')
      }),
      { numRuns: 200 },
    )
  })
})
