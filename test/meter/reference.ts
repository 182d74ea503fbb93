/**
 * Two independent tokenizers to test against. `oracle` is js-tiktoken itself, quadratic in a piece's length, so for
 * short inputs. `reference` is js-tiktoken's own pattern with a plain heap-based byte-pair merge over its own ranks,
 * for long ones; it shares nothing with meter/ and is itself tested against the oracle.
 */
import assert from 'node:assert/strict'
import { Tiktoken } from 'js-tiktoken/lite'
import data from 'js-tiktoken/ranks/o200k_base'
import { countTokens, encode } from '../../meter/index.ts'
import { tokenList } from '../../meter/pack.ts'

export { data }

const encoder = new Tiktoken(data)

export const oracle = (text: string): number[] => encoder.encode(text, [], [])

const ranks = new Map(tokenList(data).map((bytes, id) => [bytes, id]))

// One object for all calls: compiling the pattern takes longer than most texts here.
const pattern = new RegExp(data.pat_str, 'ug')

export function reference(text: string): number[] {
  const ids: number[] = []
  pattern.lastIndex = 0
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text))
    merge(Buffer.from(match[0]).toString('latin1'), ids)
  return ids
}

function merge(bytes: string, out: number[]): void {
  const n = bytes.length
  const next = Int32Array.from({ length: n }, (_, i) => i + 1)
  const before = Int32Array.from({ length: n }, (_, i) => i - 1)
  const alive = new Uint8Array(n).fill(1)
  const rankAt = (i: number): number | undefined =>
    next[i]! < n ? ranks.get(bytes.slice(i, next[next[i]!]!)) : undefined
  const heap = new Heap()
  const offer = (i: number) => {
    const rank = rankAt(i)
    // Lowest rank first, leftmost among equals.
    if (rank !== undefined) heap.push(rank * 2 ** 24 + i)
  }
  for (let i = 0; i < n; i++) offer(i)
  for (let entry = heap.pop(); entry !== undefined; entry = heap.pop()) {
    const i = entry % 2 ** 24
    // Stale: the part is gone, or has another neighbour by now.
    if (!alive[i] || rankAt(i) !== Math.floor(entry / 2 ** 24)) continue
    const j = next[i]!
    alive[j] = 0
    next[i] = next[j]!
    if (next[i]! < n) before[next[i]!] = i
    offer(i)
    if (before[i]! >= 0) offer(before[i]!)
  }
  for (let i = 0; i < n; i = next[i]!) out.push(ranks.get(bytes.slice(i, next[i]!))!)
}

class Heap {
  readonly #items: number[] = []

  push(item: number): void {
    const a = this.#items
    let i = a.push(item) - 1
    while (i > 0 && a[(i - 1) >> 1]! > item) {
      a[i] = a[(i - 1) >> 1]!
      i = (i - 1) >> 1
    }
    a[i] = item
  }

  pop(): number | undefined {
    const a = this.#items
    const top = a[0]
    const item = a.pop()
    if (a.length === 0 || item === undefined) return top
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= a.length) break
      if (child + 1 < a.length && a[child + 1]! < a[child]!) child++
      if (a[child]! >= item) break
      a[i] = a[child]!
      i = child
    }
    a[i] = item
    return top
  }
}

/** Asserts that the meter makes these tokens of the text, and counts as many. */
export function same(text: string, expected: number[]): void {
  const ids = encode(text)
  // Comparing strings: deepEqual of long arrays is slow, and its message no better.
  if (ids.join() !== expected.join()) assert.deepEqual(ids, expected, JSON.stringify(text.slice(0, 200)))
  assert.equal(countTokens(text), expected.length, JSON.stringify(text.slice(0, 200)))
}
