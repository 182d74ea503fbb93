/** JSON text that comes in pieces: how deep it nests, and when its first object or array is closed. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { nestsDeeply, wellFormed } from '../../core/tools/json.ts'
import { JsonNesting, plainEnd } from '../../core/tools/json-text.ts'

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}

test('any value, cut anywhere: its depth, and closed with its last character and not before (300 cases)', () => {
  const tricky = fc.constantFrom('"', '\\', '\\"', '{', ']', '\\\\', '"}]')
  const { tree } = fc.letrec(tie => ({
    tree: fc.oneof({ maxDepth: 4 }, fc.dictionary(fc.oneof(tricky, fc.string()), tie('leaf')), fc.array(tie('leaf'))),
    leaf: fc.oneof({ maxDepth: 4 }, fc.jsonValue(), tricky, tie('tree')),
  }))
  fc.assert(
    fc.property(tree, fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (value, sizes) => {
      const text = JSON.stringify(value)
      const nesting = new JsonNesting()
      for (let at = 0, i = 0; at < text.length; i++) {
        assert.equal(nesting.closed, false, `${text.slice(0, at)} is not the whole of ${text}`)
        const size = sizes[i % sizes.length]!
        nesting.push(text.slice(at, at + size))
        at += size
      }
      assert.equal(nesting.closed, true, text)
      assert.equal(nesting.deepest, depthOf(value), text)
      nesting.push('[[[[[[[[[[[[[[')
      assert.equal(nesting.deepest, depthOf(value), 'what is behind the value does not count')
    }),
    { numRuns: 300, seed: 1 },
  )
})

test('the plain part of a string ends where JSON.stringify writes an escape, and nowhere else (1000 cases)', () => {
  const unit = fc.oneof(fc.constantFrom('"', '\\', '\n', '\u0000', '\u001f', ' ', '\u007f', 'é', '😀'), fc.string())
  fc.assert(
    fc.property(fc.string({ unit, maxLength: 30 }), fc.nat(30), (text, at) => {
      const end = plainEnd(text, Math.min(at, text.length))
      const plain = text.slice(Math.min(at, text.length), end).toWellFormed()
      assert.equal(JSON.stringify(plain), `"${plain}"`)
      if (end < text.length) assert.match(JSON.stringify(text[end]), /^"\\/)
    }),
    { numRuns: 1000 },
  )
})

test('text that is no JSON, cut anywhere: what is told of it does not depend on the pieces (3000 cases)', () => {
  const junk = fc.array(fc.constantFrom(...'"\\[]{},: \nx'), { maxLength: 40 }).map(parts => parts.join(''))
  const told = (pieces: Iterable<string>) => {
    const nesting = new JsonNesting()
    for (const piece of pieces) nesting.push(piece)
    return { deepest: nesting.deepest, closed: nesting.closed }
  }
  fc.assert(
    fc.property(junk, fc.nat(40), (text, at) => {
      assert.deepEqual(told(text), told([text]))
      assert.deepEqual(told([text.slice(0, at), '', text.slice(at)]), told([text]))
    }),
    { numRuns: 3000 },
  )
})

test('256 levels are carried on, 257 are not; brackets in a string are none', () => {
  const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
  assert.equal(nestsDeeply(nested(256)), false)
  assert.equal(nestsDeeply(nested(257)), true)
  assert.equal(nestsDeeply('['.repeat(257)), true, 'an end is not waited for')
  assert.equal(nestsDeeply(JSON.stringify({ text: `\\"${nested(300)}` })), false)
})

test('an unpaired half of a surrogate pair becomes U+FFFD, and nothing else changes', () => {
  const emoji = '😀'
  for (const [text, expected] of [
    [emoji, emoji],
    [emoji[0]!, '\ufffd'],
    [`a${emoji[1]}b`, 'a\ufffdb'],
    // Characters that only look like an escape.
    ['\\ud800', '\\ud800'],
    ['\\\\ud800', '\\\\ud800'],
  ] as const)
    assert.equal(JSON.parse(wellFormed(JSON.stringify(text))), expected)
})
