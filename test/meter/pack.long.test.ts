import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { charClass } from '../../meter/classes.ts'
import { encode } from '../../meter/index.ts'
import { pack, tokenList } from '../../meter/pack.ts'
import { tables } from '../../meter/tables.ts'
import { tokenBytes } from '../../meter/vocabulary.ts'
import { data } from './reference.ts'

const file = readFileSync(new URL('../../meter/o200k_base.bin', import.meta.url))
const sameUnicode = tables().unicode === process.versions['unicode']

test("the packed file is what js-tiktoken's data packs to", () => {
  const fresh = Buffer.from(pack(data))
  if (!sameUnicode) {
    // Another Unicode version in this Node: its number and the classes at the end may differ, the vocabulary may not.
    const vocabulary = 16 + 7.5 * fresh.readUInt32LE(4) + 3.5 * fresh.readUInt32LE(8) + 256
    fresh.copy(file, 12, 12, 16)
    assert.ok(fresh.subarray(0, vocabulary).equals(file.subarray(0, vocabulary)))
  } else assert.ok(fresh.equals(file), 'run `node bin/sluice.mjs --run meter/pack.ts`')
})

test('[METER-2] every token has the bytes js-tiktoken gives it, and encodes to itself', () => {
  const list = tokenList(data)
  assert.equal(list.length, 199_998)
  const piece = new RegExp(data.pat_str, 'u')
  let checked = 0
  for (const [id, bytes] of list.entries()) {
    const own = Buffer.from(tokenBytes(id))
    if (own.toString('latin1') !== bytes) assert.fail(`token ${id}`)
    if (id % 16 !== 0) continue
    const text = own.toString()
    // Half characters are not text on their own, and some tokens are more than one piece.
    if (Buffer.from(text).equals(own) && piece.exec(text)?.[0] === text) {
      assert.deepEqual(encode(text), [id])
      checked++
    }
  }
  assert.ok(checked > 10_000)
})

test('the classes are those of the running Node, where both know the character', () => {
  const { classes } = tables()
  for (let cp = 0; cp < 0x110000; cp++) {
    const expected = charClass(cp)
    if (classes[cp] !== expected && (sameUnicode || !(classes[cp] === 0 || expected === 0)))
      assert.fail(`U+${cp.toString(16)}`)
  }
})
