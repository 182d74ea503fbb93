import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { JsonShape } from '../../plugins/json-shape.ts'

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
function valuesOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1
  return 1 + Object.values(value).reduce((sum: number, v) => sum + valuesOf(v), 0)
}

test('[REQ-2] depth and values of any JSON text, in any pieces', () => {
  fc.assert(
    fc.property(fc.jsonValue({ depthSize: 'medium' }), fc.integer({ min: 1, max: 9 }), (value, piece) => {
      const bytes = Buffer.from(JSON.stringify(value))
      const shape = new JsonShape()
      for (let at = 0; at < bytes.length; at += piece) shape.push(bytes, at, Math.min(at + piece, bytes.length))
      assert.equal(shape.deepest, depthOf(value))
      const values = valuesOf(value)
      assert.ok(shape.nodes >= values, `${shape.nodes} < ${values}`)
      assert.ok(shape.nodes <= 2 * values)
    }),
    { numRuns: 500 },
  )
})
