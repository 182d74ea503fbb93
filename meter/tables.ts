/**
 * The tables of the tokenizer, built from `o200k_base.bin` (see pack.ts). They are in shared memory, so that the
 * threads of a pool use them without building their own.
 */
import { readFileSync } from 'node:fs'
import { END, LEAD, OTHER } from './classes.ts'

/*
 * The layout in memory matters more here than the number of instructions: a cache line that is not in the second-level
 * cache costs as much as a hundred steps. So data that is read together is stored together, and the two large tables
 * have filters, which answer most unsuccessful look-ups.
 */
export interface Tables {
  /** The class of each code point (classes.ts). */
  classes: Uint8Array
  /** The class of each byte: for ASCII that of the code point, for 0xC2…0xF4 LEAD, for 0xFF END, otherwise OTHER. */
  bytes: Uint8Array
  /**
   * All tokens as a double-array trie. Each state is a slot of two words. Word `2s` of slot `s` is `label | base << 8`.
   * Word `2s + 1` has `token + 1` in its low 18 bits (0: no token ends here), and above them a filter of its children's
   * labels (`childBit`). The step by byte `c` from state `s` goes to slot `base(s) + c`. The step exists if the label
   * of that slot is `c`: each base belongs to one state only, so the label alone shows whose child the slot is. State 0
   * is the root.
   */
  trie: Int32Array
  /**
   * For each byte: which bit (18 to 31) of a state's second word says that the state may have a child with this label.
   */
  childBit: Uint8Array
  /**
   * Words `2t` and `2t + 1`: the two tokens from which token `t` is merged. For a one-byte token, both are the token
   * itself.
   */
  halves: Int32Array
  /** The length of each token in bytes. */
  length: Uint8Array
  /** The byte of each of the first 256 tokens. */
  byteOf: Uint8Array
  /**
   * The token to which each pair of tokens is merged: a hash table with linear probing. Slot `i` has two words. Word
   * `2i` is the low 32 bits of `left | right << 18`. Word `2i + 1` is `right >>> 14 | merged << 4`, or 0 in a free
   * slot.
   */
  pairs: Int32Array
  /**
   * A blocked Bloom filter of the keys of `pairs`: two bits in the word that `pairHash` selects. It lets through 3 % of
   * the pairs that are not in the table.
   */
  pairFilter: Int32Array
  /** The Unicode version of `classes`, e.g. `16.0`. */
  unicode: string
}

/** `pairs` has 2 to this power slots. */
export const PAIR_BITS = 19
/** `pairFilter` has 2 to this power words. */
export const FILTER_BITS = 16

/**
 * The hash of a pair. Its upper PAIR_BITS bits are the first slot to try, its upper FILTER_BITS bits the word of the
 * filter. The two lowest groups of five bits select two bits of that word.
 */
export function pairHash(left: number, right: number): number {
  const h = Math.imul(left, 0x9e3779b1) + Math.imul(right, 0x85ebca6b)
  return Math.imul(h ^ (h >>> 15), 0x2c1b3c6d)
}

const sharedInts = (n: number) => new Int32Array(new SharedArrayBuffer(n * 4))
const sharedBytes = (n: number) => new Uint8Array(new SharedArrayBuffer(n))

/**
 * Builds the tables from the bytes of `o200k_base.bin`.
 * @throws Error when the file is of another format
 */
export function buildTables(file: Uint8Array): Tables {
  // The file is copied because the views below need aligned offsets.
  const buffer = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer
  const head = new DataView(buffer)
  if (head.getUint32(0) !== 0x534c4d31) throw new Error('o200k_base.bin is not a packed vocabulary')
  const total = head.getUint32(4, true)
  const slots = head.getUint32(8, true)
  let at = 16
  const words = (n: number) => new Uint16Array(buffer, (at += 2 * n) - 2 * n, n)
  const octets = (n: number) => new Uint8Array(buffer, (at += n) - n, n)
  const planes = { left: words(total), right: words(total), end: words(total), base: words(slots) }
  const { halves, length } = readHalves(planes.left, planes.right, octets(total))
  const endHigh = octets(total / 2)
  const baseHigh = octets(slots / 2)
  const trie = readTrie(planes.base, baseHigh, octets(slots))
  const childBit = sharedBytes(256)
  for (let b = 0; b < 256; b++) childBit[b] = 18 + (b % 14)
  markTokens(trie, planes.end, endHigh, childBit)
  const byteOf = sharedBytes(256)
  byteOf.set(octets(256))
  const classes = readClasses(new Uint8Array(buffer, at))
  const bytes = sharedBytes(256)
  for (let b = 0; b < 256; b++)
    bytes[b] = b < 0x80 ? classes[b]! : b >= 0xc2 && b <= 0xf4 ? LEAD : b === 0xff ? END : OTHER
  const unicode = `${head.getUint16(12, true)}.${head.getUint16(14, true)}`
  return { classes, bytes, trie, childBit, halves, length, byteOf, ...buildPairs(halves), unicode }
}

function readHalves(left: Uint16Array, right: Uint16Array, high: Uint8Array): Pick<Tables, 'halves' | 'length'> {
  const total = high.length
  const halves = sharedInts(2 * total)
  const length = sharedBytes(total)
  for (let id = 0; id < total; id++) {
    const l = left[id]! | ((high[id]! & 15) << 16)
    const r = right[id]! | ((high[id]! >> 4) << 16)
    halves[2 * id] = l
    halves[2 * id + 1] = r
    length[id] = id < 256 ? 1 : length[l]! + length[r]!
  }
  return { halves, length }
}

function readTrie(base: Uint16Array, high: Uint8Array, label: Uint8Array): Int32Array {
  const trie = sharedInts(2 * label.length)
  for (let s = 0; s < label.length; s++) {
    const top = (high[s >> 1]! >> ((s & 1) * 4)) & 15
    trie[2 * s] = label[s]! | (base[s]! << 8) | (top << 24)
  }
  return trie
}

/** Writes into each slot the filter of its children's labels, and the id of the token that ends there. */
function markTokens(trie: Int32Array, end: Uint16Array, high: Uint8Array, childBit: Uint8Array): void {
  const slots = trie.length >> 1
  const stateByBase = new Int32Array(slots)
  for (let s = 0; s < slots; s++) stateByBase[trie[2 * s]! >>> 8] = s
  for (let s = 1; s < slots; s++) {
    const label = trie[2 * s]! & 255
    if (label !== 0xff) trie[2 * stateByBase[s - label]! + 1]! |= 1 << childBit[label]!
  }
  for (let id = 0; id < end.length; id++) {
    const s = end[id]! | (((high[id >> 1]! >> ((id & 1) * 4)) & 15) << 16)
    trie[2 * s + 1]! |= id + 1
  }
}

function readClasses(packed: Uint8Array): Uint8Array {
  const classes = sharedBytes(0x110000)
  for (let at = 0, cp = 0; at < packed.length; ) {
    const value = packed[at++]!
    let run = 0
    let shift = 0
    let byte: number
    do {
      byte = packed[at++]!
      run |= (byte & 127) << shift
      shift += 7
    } while (byte > 127)
    classes.fill(value, cp, cp + run)
    cp += run
  }
  return classes
}

function buildPairs(halves: Int32Array): Pick<Tables, 'pairs' | 'pairFilter'> {
  const mask = (1 << PAIR_BITS) - 1
  const pairs = sharedInts(2 << PAIR_BITS)
  const pairFilter = sharedInts(1 << FILTER_BITS)
  const total = halves.length >> 1
  for (let id = 256; id < total; id++) {
    const l = halves[2 * id]!
    const r = halves[2 * id + 1]!
    const h = pairHash(l, r)
    pairFilter[h >>> (32 - FILTER_BITS)]! |= (1 << h) | (1 << (h >>> 5))
    let slot = h >>> (32 - PAIR_BITS)
    while (pairs[2 * slot + 1] !== 0) slot = (slot + 1) & mask
    pairs[2 * slot] = l | (r << 18)
    pairs[2 * slot + 1] = (r >>> 14) | (id << 4)
  }
  return { pairs, pairFilter }
}

let own: Tables | undefined

/** The tables of this process. The first call builds them. */
export function tables(): Tables {
  return (own ??= buildTables(readFileSync(new URL('o200k_base.bin', import.meta.url))))
}

/** Sets the tables to those that another thread has built. */
export function useTables(shared: Tables): void {
  own = shared
}
