/** JSON in bytes, walked in slices of any size: what JSON.parse makes of it is the oracle. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { JsonBytes } from '../../core/tools/json-bytes.ts'

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
function valuesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  return 1 + Object.values(value).reduce((sum: number, v) => sum + valuesOf(v), 0)
}
/** Read to its end, at most `slice` bytes at a time. */
function shapeOf(bytes: Uint8Array, slice: number): JsonBytes {
  const shape = new JsonBytes(bytes)
  while (shape.at < bytes.length) shape.readAll(shape.at + slice)
  return shape
}
/** Where the value that begins at `from` ends, read at most `slice` bytes at a time. */
function endOf(bytes: Uint8Array, from: number, slice: number): number {
  const walk = new JsonBytes(bytes, from)
  for (;;) {
    const { at } = walk
    if (walk.readValue(at + slice)) return walk.at
    assert.equal(walk.at, at + slice, 'all that it may look at is looked at')
  }
}

/** A view that begins inside its buffer, as a body's may. */
const bytesOf = (json: string) => Buffer.from(`"""${json}`).subarray(3)

/** What only looks like JSON, around the length from which on a string is searched for its end and not read. */
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom('\\', '\\\\\\', '"', '{', '[', ',', '}', ']', 'é', '😀', '\ud83d', 'word '.repeat(11)),
      fc.constantFrom('x'.repeat(46), 'x'.repeat(47), 'x'.repeat(48), '\\'.repeat(49), 'x'.repeat(200)),
      fc.string({ unit: 'binary', maxLength: 3 }),
    ),
    { maxLength: 12 },
  )
  .map(parts => parts.join(''))
const { tree } = fc.letrec(tie => ({
  tree: fc.oneof(
    { maxDepth: 5 },
    text,
    fc.jsonValue({ maxDepth: 0 }),
    fc.array(tie('tree'), { maxLength: 4 }),
    fc.dictionary(text, tie('tree'), { maxKeys: 4 }),
  ),
}))

test('[REQ-2] depth and values of any JSON text, in any slices', () => {
  fc.assert(
    fc.property(fc.jsonValue({ depthSize: 'medium' }), fc.integer({ min: 1, max: 9 }), (value, slice) => {
      const shape = shapeOf(bytesOf(JSON.stringify(value)), slice)
      assert.equal(shape.deepest, depthOf(value))
      const values = valuesOf(value)
      assert.ok(shape.nodes >= values, `${shape.nodes} < ${values}`)
      assert.ok(shape.nodes <= 2 * values)
    }),
    { numRuns: 500 },
  )
})

// A long string is searched for its end, not read: what looks like JSON in it must stay text, and a mark behind
// backslashes must stay in it.
test('[REQ-2] what a long string holds is not counted, in any slices', () => {
  fc.assert(
    fc.property(fc.array(text, { minLength: 1, maxLength: 4 }), fc.integer({ min: 1, max: 700 }), (texts, slice) => {
      const { deepest, nodes } = shapeOf(bytesOf(JSON.stringify({ texts })), slice)
      assert.deepEqual({ deepest, nodes }, { deepest: 2, nodes: 2 + texts.length })
    }),
    { numRuns: 1000 },
  )
})

test('strings of 16 KB and more are told with their marks, in any slices; shorter ones are not', () => {
  const short = JSON.stringify('\\'.repeat(8190))
  const long = JSON.stringify('"'.repeat(8191))
  assert.deepEqual([short.length, long.length], [16_382, 16_384])
  const bytes = bytesOf(`{${long} : [${short},${long}], "a": "é${long.slice(1)}}`)
  for (const slice of [1, 7, 4096, bytes.length]) {
    const told = shapeOf(bytes, slice).long.map(({ from, to }) => JSON.parse(bytes.toString('utf8', from, to)))
    assert.deepEqual(told, [JSON.parse(long), JSON.parse(long), `é${JSON.parse(long)}`])
  }
})

test('a value ends where JSON.parse says, whatever is around it, cut at every byte', () => {
  const blank = fc.constantFrom('', ' ', '\n\t ', '\r\n')
  fc.assert(
    fc.property(tree, blank, fc.constantFrom(',', '}', ']', ''), text, (value, space, behind, other) => {
      const json = JSON.stringify(value, null, space.length)
      const bytes = bytesOf(`${other}${json}${space}${behind}${behind === '' ? '' : other}`)
      const from = Buffer.byteLength(other)
      // Blanks behind it are read with what has no end of its own.
      const whole = /^["[{]/.test(json) ? json : json + space
      for (const slice of [1, 2, 3, 50, bytes.length])
        assert.equal(endOf(bytes, from, slice), from + Buffer.byteLength(whole), `${slice}: ${bytes}`)
    }),
    { numRuns: 1000 },
  )
})

test('values are read one after the other by one walker', () => {
  fc.assert(
    fc.property(fc.array(tree, { minLength: 1, maxLength: 6 }), fc.integer({ min: 1, max: 60 }), (values, slice) => {
      const bytes = bytesOf(JSON.stringify(values))
      const walk = new JsonBytes(bytes)
      const read: unknown[] = []
      for (let at = 1; at < bytes.length; at = walk.at + 1) {
        walk.at = at
        while (!walk.readValue(walk.at + slice));
        read.push(JSON.parse(bytes.toString('utf8', at, walk.at)))
      }
      assert.deepEqual(read, JSON.parse(bytes.toString()))
    }),
    { numRuns: 500 },
  )
})

test('a million levels are walked, and a value of them is passed over', () => {
  const bytes = Buffer.from(`${'[{"":'.repeat(500_000)}1${'}]'.repeat(500_000)},2`)
  assert.equal(shapeOf(bytes, 65_536).deepest, 1_000_000)
  assert.equal(endOf(bytes, 0, 65_536), bytes.length - 2)
})

test('bytes that are no JSON: what is told of them does not depend on the slices, and every value ends', () => {
  const junk = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.array(fc.constantFrom(...'"\\[]{},: x'), { maxLength: 60 }).map(parts => Buffer.from(parts.join(''))),
  )
  const told = ({ at, deepest, nodes }: JsonBytes) => ({ at, deepest, nodes })
  fc.assert(
    fc.property(junk, fc.integer({ min: 1, max: 9 }), (bytes, slice) => {
      assert.deepEqual(told(shapeOf(bytes, slice)), told(shapeOf(bytes, bytes.length + 1)))
      const end = endOf(bytes, 0, slice)
      assert.equal(end, endOf(bytes, 0, bytes.length + 1))
      assert.ok(end <= bytes.length)
    }),
    { numRuns: 3000 },
  )
})
