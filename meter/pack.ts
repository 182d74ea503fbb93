/**
 * Writes `o200k_base.bin`, the packed form of the o200k_base vocabulary and of the character classes that its splitter
 * needs. The vocabulary comes from the npm package js-tiktoken (`js-tiktoken/ranks/o200k_base`), the classes from the
 * running Node. Run it with `node bin/sluice.mjs --run meter/pack.ts` to take over a new version of either.
 * `test/meter/pack.long.test.ts` compares the file with its sources.
 *
 * Layout, little endian. T tokens (even), S trie slots (even):
 *
 *   size     content
 *   4        `SLM1`
 *   4        T
 *   4        S
 *   4        Unicode version of the classes, major and minor, 16 bits each
 *   2 T      low 16 bits of each token's left half
 *   2 T      low 16 bits of its right half
 *   2 T      low 16 bits of the trie slot where it ends
 *   2 S      low 16 bits of each trie slot's base
 *   T        high bits of the halves: left >> 16 | right >> 16 << 4
 *   T / 2    bits 16 to 19 of the slots where tokens end, two tokens a byte, the even one in the low half
 *   S / 2    bits 16 to 19 of the bases, likewise
 *   S        each trie slot's label
 *   256      the byte of each of the first 256 tokens
 *   rest     classes: pairs (class, run length as LEB128) over the code points from 0 to 0x10FFFF
 *
 * The halves of a token are the two tokens that byte-pair encoding merges last when it encodes the token's own bytes.
 * (Both halves of a one-byte token are the token itself.) No other pair is ever merged to this token. Reason: when two
 * neighbours are merged to a token inside a longer piece, no merge has crossed the borders of that token before. So the
 * merges inside it were chosen by the same rule, in the same order, as for the token alone.
 *
 * The trie is described in tables.ts. Free slots have the label 0xFF, a byte that does not occur in UTF-8.
 */
import { writeFileSync } from 'node:fs'
import { type Class, charClass } from './classes.ts'

/** The data of js-tiktoken: in each line a name, the first id, and the tokens from that id on in base64. */
export interface RankData {
  bpe_ranks: string
}

/** The bytes of each token as a Latin-1 string, by id. */
export function tokenList(data: RankData): string[] {
  const list: string[] = []
  for (const line of data.bpe_ranks.split('\n')) {
    if (line === '') continue
    const words = line.split(' ')
    let id = Number(words[1])
    for (let i = 2; i < words.length; i++) list[id++] = Buffer.from(words[i]!, 'base64').toString('latin1')
  }
  return list
}

/**
 * The two halves of a token: byte-pair encoding of its bytes, as js-tiktoken does it, stopped when two parts are left.
 * @param token the bytes of the token as a Latin-1 string, at least two
 * @throws Error when merges do not lead to the token
 */
export function canonicalSplit(token: string, ids: Map<string, number>): [number, number] {
  const parts = [...token]
  while (parts.length > 2) {
    let best = Number.POSITIVE_INFINITY
    let at = -1
    for (let i = 0; i + 1 < parts.length; i++) {
      const rank = ids.get(parts[i]! + parts[i + 1]!)
      if (rank !== undefined && rank < best) {
        best = rank
        at = i
      }
    }
    if (at < 0 || best >= ids.get(token)!) throw new Error(`token ${ids.get(token)} is not reached by merges`)
    parts.splice(at, 2, parts[at]! + parts[at + 1]!)
  }
  return [ids.get(parts[0]!)!, ids.get(parts[1]!)!]
}

/** The content of `o200k_base.bin`. */
export function pack(data: RankData): Uint8Array {
  const tokens = tokenList(data)
  const ids = new Map(tokens.map((t, id) => [t, id]))
  const total = tokens.length
  const trie = doubleArray(buildTrie(tokens), total)
  const slots = trie.base.length
  const [major, minor] = process.versions['unicode']!.split('.').map(Number)
  const head = Buffer.alloc(16)
  head.write('SLM1', 'latin1')
  head.writeUInt32LE(total, 4)
  head.writeUInt32LE(slots, 8)
  head.writeUInt16LE(major!, 12)
  head.writeUInt16LE(minor!, 14)
  const left = new Uint16Array(total)
  const right = new Uint16Array(total)
  const high = new Uint8Array(total)
  const bytes = new Uint8Array(256)
  for (let id = 0; id < total; id++) {
    const token = tokens[id]!
    if (id < 256 !== (token.length === 1)) throw new Error('the first 256 tokens are not the 256 bytes')
    if (id < 256) bytes[id] = token.charCodeAt(0)
    const [l, r] = id < 256 ? [id, id] : canonicalSplit(token, ids)
    left[id] = l
    right[id] = r
    high[id] = (l >> 16) | ((r >> 16) << 4)
  }
  return Buffer.concat([
    head,
    Buffer.from(left.buffer),
    Buffer.from(right.buffer),
    low(trie.end),
    low(trie.base),
    high,
    high4(trie.end),
    high4(trie.base),
    trie.label,
    bytes,
    packClasses(),
  ])
}

/** The low 16 bits of each value. */
const low = (values: Int32Array) => Buffer.from(Uint16Array.from(values).buffer)

/** Bits 16 to 19 of each value, two values in each byte. */
function high4(values: Int32Array): Uint8Array {
  const out = new Uint8Array(values.length / 2)
  for (let i = 0; i < values.length; i++) out[i >> 1]! |= (values[i]! >> 16) << ((i & 1) * 4)
  return out
}

interface Node {
  label: number
  token: number
  children: Node[]
}

/**
 * All nodes of the trie, in the order in which tokens of the vocabulary need them. The vocabulary is ordered by
 * frequency, so common nodes get neighbouring slots.
 */
function buildTrie(tokens: string[]): Node[] {
  const nodes: Node[] = [{ label: 0, token: -1, children: [] }]
  for (const [id, token] of tokens.entries()) {
    let node = nodes[0]!
    for (let i = 0; i < token.length; i++) {
      const c = token.charCodeAt(i)
      let child = node.children.find(k => k.label === c)
      if (!child) {
        child = { label: c, token: -1, children: [] }
        node.children.push(child)
        nodes.push(child)
      }
      node = child
    }
    node.token = id
  }
  return nodes
}

/**
 * Puts the nodes into slots, each at the first base that fits. Each base is used once and none is 0, so that the label
 * of a slot alone shows whose child it is.
 */
function doubleArray(nodes: Node[], total: number): { base: Int32Array; label: Uint8Array; end: Int32Array } {
  const room = nodes.length + 65536
  const base = new Int32Array(room)
  const label = new Uint8Array(room).fill(0xff)
  const taken = new Uint8Array(room)
  const used = new Uint8Array(room)
  used[0] = taken[0] = 1
  // For each slot, a free slot at or after it, with path compression.
  const free = Int32Array.from({ length: room + 1 }, (_, s) => (s === 0 ? 1 : s))
  const nextFree = (s: number): number => {
    while (free[s] !== s) s = free[s] = free[free[s]!]!
    return s
  }
  const slotOf = new Map<Node, number>([[nodes[0]!, 0]])
  // For each number of children, where the next search begins. Gaps before that were too small for such a node.
  const from = new Int32Array(257).fill(1)
  let last = 0
  for (const node of nodes) {
    const { children } = node
    if (children.length === 0) continue
    const c0 = children[0]!.label
    let slot = nextFree(from[children.length]!)
    let b = slot - c0
    while (b < 1 || used[b] || children.some(k => taken[b + k.label])) {
      slot = nextFree(slot + 1)
      b = slot - c0
    }
    from[children.length] = Math.max(from[children.length]!, slot - 2048)
    used[b] = 1
    base[slotOf.get(node)!] = b
    for (const k of children) {
      const s = b + k.label
      taken[s] = 1
      free[s] = s + 1
      label[s] = k.label
      slotOf.set(k, s)
      last = Math.max(last, s)
    }
  }
  // There is room behind the last slot, so that a step of a search cannot leave the array.
  const slots = (last + 256 + 1) & ~1
  const end = new Int32Array(total)
  for (const node of nodes) if (node.token >= 0) end[node.token] = slotOf.get(node)!
  return { end, base: base.subarray(0, slots), label: label.subarray(0, slots) }
}

function packClasses(): Uint8Array {
  const out: number[] = []
  let start = 0
  let current: Class = charClass(0)
  for (let cp = 1; cp <= 0x110000; cp++) {
    const next = cp < 0x110000 ? charClass(cp) : -1
    if (next === current) continue
    out.push(current)
    let run = cp - start
    for (; run > 127; run >>>= 7) out.push((run & 127) | 128)
    out.push(run)
    start = cp
    current = next as Class
  }
  return Uint8Array.from(out)
}

if (import.meta.main) {
  const { default: data } = await import('js-tiktoken/ranks/o200k_base')
  writeFileSync(new URL('o200k_base.bin', import.meta.url), pack(data))
}
