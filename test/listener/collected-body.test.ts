/**
 * A body that arrives in pieces takes its size in memory, once. Before, its pieces and their sum were there together,
 * and the pieces until a collection of garbage: a body of 30 MiB took 60.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CollectedBody } from '../../http/collected-body.ts'

const MIB = 2 ** 20

for (const [what, size] of [
  ['of declared length', 12.5 * MIB],
  ['in chunks', undefined],
] as const) {
  test(`a body ${what} is whole, and takes no more memory than what was asked for last`, () => {
    const piece = Buffer.allocUnsafeSlow(MIB / 2)
    const before = process.memoryUsage().arrayBuffers
    const body = new CollectedBody(size, 32 * MIB)
    for (let i = 0; i < 25; i++) {
      body.add(piece.fill(i))
      // Whether garbage is collected or not: nothing of what was taken before is left.
      const taken = process.memoryUsage().arrayBuffers - before
      assert.ok(taken <= (size ?? 2 * Math.max(MIB, (i + 1) * piece.length)), `${i}: ${taken}`)
    }
    const { bytes } = body
    assert.equal(bytes.length, 12.5 * MIB)
    assert.ok(bytes.every((byte, at) => byte === Math.floor(at / piece.length)))
    // Memory that holds nothing else can go to another thread without a copy.
    if (size !== undefined) assert.equal(bytes.buffer.byteLength, bytes.byteLength)
  })
}

test('more than was announced, one piece, and nothing', () => {
  const body = new CollectedBody(10, 32)
  body.add(Buffer.from('123456'))
  body.add(Buffer.from('7890abcdef'))
  assert.equal(Buffer.from(body.bytes).toString(), '1234567890abcdef')
  assert.equal(new CollectedBody(0, 32).bytes.length, 0)
})
