import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { adversarial } from '../../bench/meter-corpora.ts'
import { countTokens, TokenCounter } from '../../meter/index.ts'
import { tables } from '../../meter/tables.ts'
import { createTokenizer } from '../../meter/tokenizer.ts'

function stream(text: string, sizes: readonly number[]): TokenCounter {
  const counter = new TokenCounter()
  for (let at = 0, i = 0; at < text.length; i++) {
    const size = sizes[i % sizes.length]!
    counter.push(text.slice(at, at + size))
    at += size
  }
  return counter
}

const unit = fc.constantFrom(
  ..."aA \n\r\t1!'/s的あ\u0301\u00a0",
  '😀',
  '\ud83d',
  '\ude00',
  "'ll",
  'word',
  '   ',
  ' the',
  'ABC',
  '\r\n',
)
const text = fc
  .array(
    fc
      .tuple(unit, fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 400 })))
      .map(([c, n]) => c.repeat(n)),
    { maxLength: 40 },
  )
  .map(parts => parts.join(''))

test('any split of a text counts as the whole, inside surrogate pairs too (3,000 cases)', () => {
  fc.assert(
    fc.property(text, fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 8 }), (whole, sizes) => {
      assert.equal(stream(whole, sizes).total, countTokens(whole))
    }),
    { numRuns: 3000, seed: 7 },
  )
})

test('the total may be asked at any time, and asking changes nothing', () => {
  fc.assert(
    fc.property(text, fc.integer({ min: 1, max: 97 }), (whole, step) => {
      const counter = new TokenCounter()
      let at = 0
      for (let turn = 0; at < whole.length; turn++, at += step) {
        counter.push(whole.slice(at, at + step))
        if (turn % 7 === 3) assert.equal(counter.total, countTokens(whole.slice(0, at + step)))
      }
      assert.equal(counter.total, countTokens(whole))
      assert.equal(counter.total, countTokens(whole))
    }),
    { numRuns: 300, seed: 8 },
  )
})

test('every cut of a short text', () => {
  const whole = "I'm 😀\ud83d\ude00 here,  \n\n  don't 的的 ÀB\u0301c 12345 \r\n\tend  "
  for (let cut = 0; cut <= whole.length; cut++) {
    const counter = new TokenCounter()
    counter.push(whole.slice(0, cut))
    assert.equal(counter.total, countTokens(whole.slice(0, cut)))
    counter.push(whole.slice(cut))
    assert.equal(counter.total, countTokens(whole))
  }
})

test('adversarial inputs in deltas of four characters count as the whole', () => {
  for (const { name, make } of adversarial) {
    const whole = make(1 << 15)
    assert.equal(stream(whole, [4]).total, countTokens(whole), name)
  }
})

test('an empty counter is zero', () => {
  const counter = new TokenCounter()
  assert.equal(counter.total, 0)
  counter.push('')
  assert.equal(counter.total, 0)
})

test('what can still change is the last three pieces at most, whatever follows (2,000 cases)', () => {
  // The rule that lets the counter forget: settled pieces are pieces of every longer text.
  const tokenizer = createTokenizer(tables())
  const bytes = new Uint8Array(1 << 16)
  const settled = (s: string) => {
    const { written } = new TextEncoder().encodeInto(s, bytes)
    const count = tokenizer.countSettled(bytes, written)
    return { count, length: tokenizer.settledLength }
  }
  fc.assert(
    fc.property(text, text, (head, tail) => {
      // A head that ends inside a pair is not looked at by the counter either.
      fc.pre(head.length + tail.length < 16_000 && !/[\ud800-\udbff]$/.test(head))
      const { count, length } = settled(head)
      // The settled tokens are the first ones of the whole, and take just the settled bytes.
      let taken = 0
      for (const id of tokenizer.encode(head + tail).slice(0, count)) taken += tables().length[id]!
      assert.equal(taken, length)
    }),
    { numRuns: 2000, seed: 9 },
  )
})
