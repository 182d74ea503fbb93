import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { JsonShape } from '../../core/json-bytes.ts'

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
function valuesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  return 1 + Object.values(value).reduce((sum: number, v) => sum + valuesOf(v), 0)
}
function shapeOf(bytes: Uint8Array, piece: number): JsonShape {
  const shape = new JsonShape()
  for (let at = 0; at < bytes.length; at += piece) shape.push(bytes, at, Math.min(at + piece, bytes.length))
  return shape
}

test('[REQ-2] depth and values of any JSON text, in any pieces', () => {
  fc.assert(
    fc.property(fc.jsonValue({ depthSize: 'medium' }), fc.integer({ min: 1, max: 9 }), (value, piece) => {
      const shape = shapeOf(Buffer.from(JSON.stringify(value)), piece)
      assert.equal(shape.deepest, depthOf(value))
      const values = valuesOf(value)
      assert.ok(shape.nodes >= values, `${shape.nodes} < ${values}`)
      assert.ok(shape.nodes <= 2 * values)
    }),
    { numRuns: 500 },
  )
})

// A long string is searched for its end, not read: what looks like JSON in it must stay text, and a mark behind backslashes in it.
test('[REQ-2] what a long string holds is not counted, in any pieces', () => {
  const text = fc
    .array(fc.constantFrom('\\', '\\\\\\', '"', '{', '[', ',', '}', 'é', 'word '.repeat(11), 'x'.repeat(200)), {
      maxLength: 40,
    })
    .map(parts => parts.join(''))
  fc.assert(
    fc.property(fc.array(text, { minLength: 1, maxLength: 4 }), fc.integer({ min: 1, max: 700 }), (texts, piece) => {
      // The view begins inside its buffer, as a body's may.
      const bytes = Buffer.from(`"""${JSON.stringify({ texts })}`).subarray(3)
      const { deepest, nodes } = shapeOf(bytes, piece)
      assert.deepEqual({ deepest, nodes }, { deepest: 2, nodes: 2 + texts.length })
    }),
    { numRuns: 1000 },
  )
})
