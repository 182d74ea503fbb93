/**
 * Byte-pair encoding by merging. It is used where backtracking (encoder.ts) is slow: for runs whose tokens are prefixes
 * of each other.
 *
 * Ranks are processed in ascending order, each once. This is possible because a merge only makes pairs of a higher
 * rank: the halves of a token have lower ranks than the token. So a heap of the present ranks suffices, with a list of
 * places for each rank. This takes little more than n steps; a heap of pairs would take n log n.
 */
import { FILTER_BITS, PAIR_BITS, pairHash, type Tables } from './tables.ts'

export interface Merger {
  /**
   * Writes the tokens of `bytes[s, e)` to the front of `out`, which has room for one token for each byte. @returns how
   * many
   */
  encode(bytes: Uint8Array, s: number, e: number, out: Int32Array): number
  /** How many elementary steps all calls so far took. */
  readonly steps: number
}

/** Returns a function that gives the token to which a pair of tokens is merged, or -1. */
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

/** @param room the most bytes that `encode` can take at once */
export function createMerger(tables: Tables, merged: (a: number, b: number) => number, room: number): Merger {
  const { halves, length, byteOf } = tables
  const tokenOf = new Int32Array(256)
  for (let id = 0; id < 256; id++) tokenOf[byteOf[id]!] = id

  let steps = 0
  // For each place in the window: the token that begins there, the places of the neighbouring tokens (`next`,
  // `before`), and its neighbours in the list of places whose pair has the same rank (`after`, `front`).
  const token = new Int32Array(room)
  const next = new Int32Array(room)
  const before = new Int32Array(room)
  const after = new Int32Array(room)
  const front = new Int32Array(room)
  /** For each place: the rank under which it is listed, or -1. */
  const listed = new Int32Array(room)
  /** For each rank: the first place of its list, or -1. */
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

  /**
   * Adds a rank to the heap. A rank is there twice when its list became empty in between; its list is then empty later.
   */
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
    // Places are listed from right to left. Each is put in front, so each list is in order from left to right.
    for (let i = n - 1; i >= 0; i--) list(i, n)
    while (heap.length > 0) {
      const rank = popRank()
      const a = halves[2 * rank]!
      const b = halves[2 * rank + 1]!
      for (let i = head[rank]!; i >= 0; i = head[rank]!) {
        // In a run of equal tokens the pairs overlap, and the leftmost pair is merged first. So the whole run is merged
        // from its left end.
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
