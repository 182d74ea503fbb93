/**
 * Byte-pair encoding by merging, for what backtracking (encoder.ts) is slow on: runs whose tokens are prefixes of each other.
 *
 * Ranks are taken in ascending order, each once: a merge only makes pairs of higher rank, since a token's halves are older than it. So it needs a heap of the
 * ranks at hand, not of the pairs, and a list of places per rank: n steps and a little, where a heap of pairs takes n log n.
 */
import { FILTER_BITS, PAIR_BITS, pairHash, type Tables } from './tables.ts'

export interface Merger {
  /** Writes the tokens of `bytes[s, e)` to the front of `out`, which has room for one a byte; returns how many. */
  encode(bytes: Uint8Array, s: number, e: number, out: Int32Array): number
  readonly steps: number
}

/** A function that tells the token which a pair of tokens merges to, or -1. */
export function pairLookup({
  pairs,
  pairFilter,
}: Pick<Tables, 'pairs' | 'pairFilter'>): (a: number, b: number) => number {
  const pairMask = (1 << PAIR_BITS) - 1
  return (a, b) => {
    const h = pairHash(a, b)
    const f = pairFilter[h >>> (32 - FILTER_BITS)]!
    if (((f >>> h) & (f >>> (h >>> 5)) & 1) === 0) return -1
    const key = a | (b << 18)
    const high = b >>> 14
    for (let slot = h >>> (32 - PAIR_BITS); ; slot = (slot + 1) & pairMask) {
      const value = pairs[2 * slot + 1]!
      if (value === 0) return -1
      if (pairs[2 * slot] === key && (value & 15) === high) return value >> 4
    }
  }
}

/** `room`: the most bytes that `encode` is given at once. */
export function createMerger(tables: Tables, merged: (a: number, b: number) => number, room: number): Merger {
  const { halves, length, byteOf } = tables
  const tokenOf = new Int32Array(256)
  for (let id = 0; id < 256; id++) tokenOf[byteOf[id]!] = id

  let steps = 0
  // By place in the window: the part that begins there, its neighbours' places, and its neighbours in the list of its pair's rank.
  const token = new Int32Array(room)
  const next = new Int32Array(room)
  const before = new Int32Array(room)
  const after = new Int32Array(room)
  const front = new Int32Array(room)
  /** The rank a place is listed under, or -1. */
  const listed = new Int32Array(room)
  /** First place by rank, or -1. */
  const head = new Int32Array(length.length).fill(-1)
  const heap: number[] = []

  /** Lists the pair that begins at `i` under its rank. */
  function list(i: number, n: number): void {
    steps++
    const j = next[i]!
    const rank = j < n ? merged(token[i]!, token[j]!) : -1
    listed[i] = rank
    if (rank < 0) return
    const h = head[rank]!
    after[i] = h
    front[i] = -1
    if (h >= 0) front[h] = i
    else pushRank(rank)
    head[rank] = i
  }

  function unlist(i: number): void {
    const rank = listed[i]!
    if (rank < 0) return
    listed[i] = -1
    const a = after[i]!
    const f = front[i]!
    if (a >= 0) front[a] = f
    if (f >= 0) after[f] = a
    else head[rank] = a
  }

  /** A rank may be in the heap twice, when its list ran empty in between; the second time finds nothing. */
  function pushRank(rank: number): void {
    let i = heap.length
    heap.push(rank)
    while (i > 0) {
      const up = (i - 1) >> 1
      const above = heap[up]!
      if (above <= rank) break
      heap[i] = above
      i = up
    }
    heap[i] = rank
  }

  function popRank(): number {
    const top = heap[0]!
    const last = heap.pop()!
    const n = heap.length
    if (n === 0) return top
    let i = 0
    for (;;) {
      let child = 2 * i + 1
      if (child >= n) break
      if (child + 1 < n && heap[child + 1]! < heap[child]!) child++
      if (heap[child]! >= last) break
      heap[i] = heap[child]!
      i = child
    }
    heap[i] = last
    return top
  }

  function encode(bytes: Uint8Array, s: number, e: number, out: Int32Array): number {
    const n = e - s
    for (let i = 0; i < n; i++) {
      token[i] = tokenOf[bytes[s + i]!]!
      next[i] = i + 1
      before[i] = i - 1
    }
    // Listed from the right, so that each list runs from the left.
    for (let i = n - 1; i >= 0; i--) list(i, n)
    while (heap.length > 0) {
      const rank = popRank()
      const a = halves[2 * rank]!
      const b = halves[2 * rank + 1]!
      for (let i = head[rank]!; i >= 0; i = head[rank]!) {
        // In a run of equal parts the leftmost pair goes first, and the pairs overlap: take the whole run from its left end.
        if (a === b) while (before[i]! >= 0 && token[before[i]!] === a) i = before[i]!
        while (listed[i] === rank) {
          steps++
          const j = next[i]!
          unlist(i)
          unlist(j)
          token[i] = rank
          const k = next[j]!
          next[i] = k
          if (k < n) before[k] = i
          list(i, n)
          const left = before[i]!
          if (left >= 0) {
            unlist(left)
            list(left, n)
          }
          if (a !== b || k >= n) break
          i = k
        }
      }
    }
    let count = 0
    for (let i = 0; i < n; i = next[i]!) out[count++] = token[i]!
    return count
  }

  return {
    encode,
    get steps() {
      return steps
    },
  }
}
