/** As exact.test.ts, over everything that is short enough to be tried without a gap. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tables } from '../../meter/tables.ts'
import { oracle, reference, same } from './reference.ts'

test('[METER-2] every code point once, lone surrogates too', () => {
  // The splitter's classes are pinned, while js-tiktoken asks the running Node: they agree where both know the
  // character.
  const sameUnicode = tables().unicode === process.versions['unicode']
  const known = (cp: number) => sameUnicode || !/^\p{Cn}/u.test(String.fromCodePoint(cp))
  let run = ''
  for (let cp = 0; cp < 0x110000; cp++) {
    if (known(cp)) run += String.fromCodePoint(cp)
    if (cp % 24 === 23) {
      same(run, reference(run))
      run = ''
    }
  }
  // The oracle itself, each character behind a space and before a letter, but for the private and unassigned planes.
  for (let cp = 0; cp < 0x32000; cp++) {
    if (known(cp)) run += ` ${String.fromCodePoint(cp)}a`
    if (cp % 2048 === 2047) {
      same(run, oracle(run))
      run = ''
    }
  }
})

test('[METER-2] the splitter equals the pattern on every short string over its classes', () => {
  const all = ['A', 'a', 's', 'あ', '\u0301', '1', ' ', '\t', '\u00a0', '\n', '\r', "'", '/', '!', '😀', 'ǅ']
  const few = ['A', 'a', 'あ', ' ', '\n', "'", '!']
  let count = 0
  const walk = (alphabet: string[], text: string, depth: number): void => {
    if (text !== '') {
      same(text, reference(text))
      count++
    }
    if (depth > 0) for (const c of alphabet) walk(alphabet, text + c, depth - 1)
  }
  walk(all, '', 4)
  walk(few, '', 6)
  assert.equal(count, (16 ** 5 - 1) / 15 + (7 ** 7 - 1) / 6 - 2)
})
