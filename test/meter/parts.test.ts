/** The tokenizer's parts, each alone: where pieces end, which tokens a piece has, what the cache of pieces knows. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { createEncoder } from '../../meter/encoder.ts'
import { createPieceCache, LONG, SHORT } from '../../meter/piece-cache.ts'
import { createSplitter, PADDING, SENTINEL } from '../../meter/splitter.ts'
import { tables } from '../../meter/tables.ts'
import { data, reference } from './reference.ts'

/** UTF-8 with room and sentinel behind, at an odd place of a larger array, as in memory that threads share. */
function placed(text: string, before = 0): { bytes: Uint8Array; view: DataView; from: number; to: number } {
  const utf8 = new TextEncoder().encode(text)
  // What stood there before must not matter.
  const bytes = new Uint8Array(before + utf8.length + PADDING).fill(0x61)
  bytes.set(utf8, before)
  bytes[before + utf8.length] = SENTINEL
  return { bytes, view: new DataView(bytes.buffer), from: before, to: before + utf8.length }
}

const word = fc.constantFrom(
  ...["'s", "'LL", "'", 'a', 'the', 'Straße', 'HTTP', 'iOS', 'é', '的', 'あ', '\u0301', '😀', '12', '1234'],
  ...[
    ' ',
    '  ',
    '\t',
    '\n',
    '\r\n',
    '\u00a0',
    '!',
    '...',
    '//',
    '/',
    '\0',
    'abcdefgh',
    ' abcdefghijklmnopq',
    'Aabcdefg',
  ],
)
const text = fc.array(word, { maxLength: 12 }).map(parts => parts.join(''))

test("[METER-2] pieces end where the vocabulary's pattern says, found either way (2,000 cases)", () => {
  const splitter = createSplitter(tables())
  fc.assert(
    fc.property(text, fc.integer({ min: 0, max: 5 }), (text, before) => {
      const { bytes, view, from, to } = placed(text, before)
      const ends: number[] = []
      for (let p = from; p < to; p = splitter.end(bytes, p)) {
        assert.equal(splitter.endFast(bytes, view, p), splitter.end(bytes, p), JSON.stringify(text))
        ends.push(splitter.end(bytes, p) - from)
      }
      let at = 0
      const expected = [...text.matchAll(new RegExp(data.pat_str, 'ug'))].map(
        ([piece]) => (at += Buffer.byteLength(piece)),
      )
      assert.deepEqual(ends, expected, JSON.stringify(text))
      const starts = [0, ...expected].slice(0, -1)
      const third = starts.at(-3)
      assert.equal(splitter.lastThree(bytes, from, to), third === undefined ? -1 : from + third)
    }),
    { numRuns: 2000, seed: 11 },
  )
})

test('[METER-2] a piece has the tokens of the reference, at any place and in windows of any size', () => {
  const encoders = [createEncoder(tables()), createEncoder(tables(), { window: 4, overlap: 1 })]
  const pieces = [' the', 'Donaudampfschifffahrt', '的'.repeat(40), '-'.repeat(300), 'aB'.repeat(99), ' '.repeat(65)]
  for (const piece of pieces) {
    const expected = reference(piece)
    for (const encoder of encoders) {
      const { bytes, from, to } = placed(piece, 3)
      const ids = [1]
      assert.equal(encoder.encode(bytes, from, to, ids), expected.length, piece)
      assert.deepEqual(ids, [1, ...expected])
      assert.equal(encoder.encode(bytes, from, to, undefined), expected.length)
    }
  }
})

test('the cache knows a piece by its bytes alone, and by all of them', () => {
  const cache = createPieceCache()
  const find = ({ view, from, to }: ReturnType<typeof placed>) =>
    to - from <= SHORT ? cache.findShort(view, from, to - from) : cache.findLong(view, from, to - from)
  for (let size = 2; size <= LONG; size++) {
    const piece = 'z'.repeat(size)
    const here = placed(piece)
    assert.equal(find(here), 0)
    cache.keep(here.view, here.from, size, Math.min(size, 7))
    assert.equal(find(placed(piece, 7)), Math.min(size, 7), 'whatever stands around it')
    for (let i = 0; i < size; i++) {
      const other = placed(`${piece.slice(0, i)}y${piece.slice(i + 1)}`)
      assert.equal(find(other), 0, `${size} bytes, another at ${i}`)
    }
    // A zero byte is part of a piece, not the room behind it.
    if (size < LONG) assert.equal(find(placed(`${piece}\0`)), 0)
  }
})

test('newcomers replace the last of a set: what is met again stays', () => {
  // Two sets of short pieces.
  const cache = createPieceCache(1)
  const known = (piece: string) => cache.findShort(placed(piece).view, 0, piece.length) === 1
  const keep = (piece: string) => cache.keep(placed(piece).view, 0, piece.length, 1)
  keep('friend')
  for (let i = 0; i < 3; i++) assert.ok(known('friend'))
  const newcomers = Array.from({ length: 100 }, (_, i) => `x${i}`)
  newcomers.forEach(keep)
  assert.ok(known('friend'))
  assert.equal(newcomers.filter(known).length, 2, 'each took the place of the one before in its set')
})
