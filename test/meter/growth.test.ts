import assert from 'node:assert/strict'
import { test } from 'node:test'
import { adversarial } from '../../bench/meter-corpora.ts'
import { tables } from '../../meter/tables.ts'
import { createTokenizer } from '../../meter/tokenizer.ts'

/** Steps of merging and of looking again; looking once at each byte is linear by construction. */
function steps(text: string): number {
  const tokenizer = createTokenizer(tables())
  tokenizer.count(text)
  return tokenizer.steps
}

test('doubling an adversarial input at most doubles the steps, give or take a little', () => {
  for (const { name, make } of adversarial) {
    for (const size of [1 << 13, 1 << 15, 1 << 17]) {
      const once = steps(make(size))
      const twice = steps(make(2 * size))
      assert.ok(twice <= 2.1 * once + 500, `${name}: ${once} steps at ${size} bytes, ${twice} at ${2 * size}`)
    }
  }
})

test('no adversarial input takes more than a few dozen steps a byte', () => {
  for (const { name, make } of adversarial) {
    const size = 1 << 16
    const taken = steps(make(size)) / size
    assert.ok(taken < 24, `${name}: ${taken} steps a byte`)
  }
})

test('runs of tokens that are prefixes of each other stay linear too', () => {
  // Each token's text, repeated: the vocabulary's own worst cases for backtracking.
  const { length } = tables()
  const tokenizer = createTokenizer(tables())
  let worst = 0
  for (let id = 256; id < length.length; id += 37) {
    const text = textOf(id)
    const repeated = text.repeat(Math.ceil(2000 / text.length))
    const before = tokenizer.steps
    tokenizer.count(repeated)
    worst = Math.max(worst, (tokenizer.steps - before) / Buffer.byteLength(repeated))
  }
  assert.ok(worst < 64, `${worst} steps a byte`)
})

function textOf(id: number): string {
  const { halves, byteOf } = tables()
  const bytes = (token: number): number[] =>
    token < 256 ? [byteOf[token]!] : [...bytes(halves[2 * token]!), ...bytes(halves[2 * token + 1]!)]
  return Buffer.from(bytes(id)).toString()
}
