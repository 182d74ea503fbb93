/**
 * `list.push(...more)` puts each entry of `more` on the stack: with some 125,000 entries it fails with a RangeError. One
 * piece of a reply with 140,000 log probabilities was answered with 500. How long such a list may get is seldom seen
 * where it is appended, so no part that serves requests writes it.
 */
import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { appendAll } from '../core/tools/append.ts'

const ROOMS = 'core,surfaces,providers,plugins,meter,stores,http,admin'
const SPREAD = /\.(?:push|unshift|splice)\((?:[^{[)\n]*, )?\.\.\.|fromCharCode\(\.\.\.|fromCodePoint\(\.\.\./

test('no list is spread into another one', () => {
  const found: string[] = []
  for (const file of globSync(`{${ROOMS}}/**/*.ts`, { cwd: dirname(import.meta.dirname) })) {
    const lines = readFileSync(join(dirname(import.meta.dirname), file), 'utf8').split('\n')
    for (const [i, line] of lines.entries()) if (SPREAD.test(line)) found.push(`${file}:${i + 1}: ${line.trim()}`)
  }
  assert.deepEqual(found, [], 'use appendAll of core/tools/append.ts')
})

test('a list of any length is appended, in order', () => {
  const list = [-1]
  appendAll(
    list,
    Array.from({ length: 400_000 }, (_, i) => i),
  )
  assert.equal(list.length, 400_001)
  assert.deepEqual([list[0], list[1], list.at(-1)], [-1, 0, 399_999])
})
