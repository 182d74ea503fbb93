import { JsonBytes } from './json-bytes.ts'

/** A JSON value in a text, with what `JsonBytes` finds when it reads that value alone. */
interface Span {
  from: number
  to: number
  nodes: number
  deepest: number
  respelled: number
  long: number
  value: unknown
}

/** A member of the object. `from` and `to` are those of its value. */
interface Member extends Span {
  name: string
  /**
   * Its elements, where the value is an array of objects. They are counted in place of it, and their places are counted
   * from its own, so that they are the same when it moves.
   */
  elements: readonly Span[] | undefined
}

/** How much of another text may be read anew. */
export interface AnewBounds {
  /** Bytes of one member, or of the new elements of one array. */
  bytes: number
  /** The deepest nesting at which a number may stand that JSON.stringify may write in another way. */
  respelled: number
}

/** What the members and the elements of an array of the object are nested in. */
const MEMBER_DEPTH = 1
const ELEMENT_DEPTH = 2

/**
 * A JSON object whose text is known, with the places of its members and of the objects in their arrays. The value of
 * another text that shares most of its bytes is made from it: what is in both is taken over, and only the rest is
 * parsed.
 *
 * Why the result is what JSON.parse makes of the other text: that text is cut into pieces, each of which is either the
 * same bytes as a piece of a text that JSON.parse has accepted, or is accepted by JSON.parse itself, and the cuts are at
 * brackets and commas outside of strings. JSON has one reading, so the pieces together are the reading of the whole.
 * Cuts stand beside ASCII characters, so that bytes that are no UTF-8 are decoded alike. Where the search for a cut was
 * misled, the piece does not parse, and the text is left to JSON.parse.
 */
export class JsonOutline {
  readonly bytes: Uint8Array
  readonly value: Record<string, unknown>
  /** As `JsonBytes` counts them. */
  readonly nodes: number
  /** As `JsonBytes` finds it. */
  readonly deepest: number
  /** As `JsonBytes` finds it, but 0 in place of 1. */
  readonly respelled: number
  /** Bytes in `JsonBytes.long`. */
  readonly longBytes: number
  /** Bytes of values that were taken over from the text before this one. */
  readonly shared: number
  /** Bytes of values of that text that were not. */
  readonly lost: number
  readonly #members: Member[]

  private constructor(bytes: Uint8Array, members: Member[], value: Record<string, unknown>, shared = 0, lost = 0) {
    this.bytes = bytes
    this.value = value
    this.shared = shared
    this.lost = lost
    this.#members = members
    let nodes = 2 + Math.max(0, members.length - 1)
    let deepest = 1
    let respelled = 0
    let long = 0
    const add = (span: Span, depth: number) => {
      nodes += span.nodes - 1
      long += span.long
      if (depth + span.deepest > deepest) deepest = depth + span.deepest
      if (span.respelled > 0 && depth + span.respelled > respelled) respelled = depth + span.respelled
    }
    for (const member of members) {
      const { elements } = member
      if (elements === undefined) {
        add(member, MEMBER_DEPTH)
        continue
      }
      nodes += Math.max(1, elements.length)
      if (deepest < ELEMENT_DEPTH) deepest = ELEMENT_DEPTH
      for (const element of elements) add(element, ELEMENT_DEPTH)
    }
    this.nodes = nodes
    this.deepest = deepest
    this.respelled = respelled
    this.longBytes = long
  }

  /**
   * @param value what JSON.parse has made of these bytes
   * @returns undefined for texts that are written in a rare way: names with escapes, names that occur twice
   */
  static of(bytes: Uint8Array, value: Record<string, unknown>): JsonOutline | undefined {
    const members: Member[] = []
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    let at = pastSpace(bytes, 0)
    if (bytes[at] !== BRACE) return undefined
    at = pastSpace(bytes, at + 1)
    while (bytes[at] !== BRACE_END) {
      if (members.length > 0) {
        if (bytes[at] !== COMMA) return undefined
        at = pastSpace(bytes, at + 1)
      }
      if (bytes[at] !== QUOTE) return undefined
      const end = text.indexOf(QUOTE, at + 1)
      const name = text.toString('utf8', at + 1, end)
      if (end < 0 || name.includes('\\') || !Object.hasOwn(value, name) || name === '__proto__') return undefined
      at = pastSpace(bytes, end + 1)
      if (bytes[at] !== COLON) return undefined
      const span = spanOf(bytes, pastSpace(bytes, at + 1), EVERYTHING)!
      span.value = value[name]
      const member = named(bytes, span, name)
      members.push(member)
      at = pastSpace(bytes, member.to)
    }
    // Of two members of one name, JSON.parse keeps the last.
    if (members.length !== Object.keys(value).length) return undefined
    return new JsonOutline(bytes, members, value)
  }

  /**
   * The same of another text, which shares with this one all names of the object, in their order.
   * @returns undefined where it is not so, and where too much would have to be read anew
   */
  next(bytes: Uint8Array, bounds: AnewBounds): JsonOutline | undefined {
    const old = this.bytes
    /** Where the text before and this one are compared from, and where they differ. */
    let delta = 0
    let same = commonLength(old, 0, bytes, 0)
    let shared = 0
    let lost = 0
    const value: Record<string, unknown> = { ...this.value }
    const members: Member[] = []
    for (const member of this.#members) {
      // The byte behind a value is in common too: `1` goes on in `12`.
      if (member.to < same) {
        members.push(delta === 0 ? member : { ...member, from: member.from + delta, to: member.to + delta })
        shared += member.to - member.from
        continue
      }
      if (member.from > same) return undefined
      const found =
        member.elements === undefined || member.from === same
          ? readMember(bytes, member, delta, bounds)
          : readArray(bytes, member, member.elements, same, delta, bounds)
      if (found === undefined) return undefined
      shared += found.shared
      lost += member.to - member.from - found.shared
      members.push(found.member)
      value[member.name] = found.member.value
      delta = found.member.to - member.to
      same = member.to + commonLength(old, member.to, bytes, found.member.to)
    }
    if (same !== old.length || old.length + delta !== bytes.length) return undefined
    return new JsonOutline(bytes, members, value, shared, lost)
  }
}

/** A member whose value is read anew. */
function readMember(bytes: Uint8Array, member: Member, delta: number, bounds: AnewBounds) {
  const span = spanOf(bytes, pastSpace(bytes, member.from + delta), bounds)
  if (span === undefined || exceeds(span, MEMBER_DEPTH, bounds)) return undefined
  try {
    span.value = JSON.parse(textOf(bytes, span.from, span.to))
  } catch {
    return undefined
  }
  return { member: named(bytes, span, member.name), shared: 0 }
}

/** A member whose value is an array that begins with elements that are known. @param same where the old text differs */
function readArray(
  bytes: Uint8Array,
  { name, from: oldFrom }: Member,
  old: readonly Span[],
  same: number,
  delta: number,
  bounds: AnewBounds,
) {
  const from = oldFrom + delta
  let known = old.length
  while (known > 0 && oldFrom + old[known - 1]!.to > same) known--
  const begun = known > 0 ? from + old[known - 1]!.to : from + 1
  const rest = objectsOf(bytes, begun, from, known === 0, bounds)
  if (rest === undefined) return undefined
  const { spans, end } = rest
  if (spans.length > 0) {
    if (spans.some(span => exceeds(span, ELEMENT_DEPTH, bounds))) return undefined
    let values: unknown[]
    try {
      values = JSON.parse(`[${textOf(bytes, from + spans[0]!.from, from + spans.at(-1)!.to)}]`)
    } catch {
      return undefined
    }
    for (let i = 0; i < spans.length; i++) spans[i]!.value = values[i]
  }
  const elements = [...old.slice(0, known), ...spans]
  const member: Member = { ...NOTHING, name, from, to: end, elements, value: elements.map(element => element.value) }
  return { member, shared: begun - from }
}

const NOTHING = { nodes: 0, deepest: 0, respelled: 0, long: 0 }

/** A member of its value. */
function named(bytes: Uint8Array, span: Span, name: string): Member {
  const elements = elementsOf(bytes, span)
  return { ...span, ...(elements && NOTHING), name, elements }
}

/** The elements of a value that is an array of objects. */
function elementsOf(bytes: Uint8Array, { from, value }: Span): readonly Span[] | undefined {
  if (!Array.isArray(value)) return undefined
  const found = objectsOf(bytes, from + 1, from, true, EVERYTHING)
  if (found === undefined) return undefined
  for (const [i, span] of found.spans.entries()) span.value = value[i]
  return found.spans
}

const EVERYTHING: AnewBounds = { bytes: Number.POSITIVE_INFINITY, respelled: Number.POSITIVE_INFINITY }

/**
 * The objects from `at` to the end of the array, without their values.
 * @param array where the array begins: places are counted from there
 * @param first whether the first object of the array is among them
 * @returns undefined where something else is in the array, or too much; `end` is behind the bracket
 */
function objectsOf(bytes: Uint8Array, at: number, array: number, first: boolean, bounds: AnewBounds) {
  const most = at + bounds.bytes
  const spans: Span[] = []
  for (let i = pastSpace(bytes, at); ; ) {
    if (bytes[i] === BRACKET_END) return { spans, end: i + 1 }
    if (!first) {
      if (bytes[i] !== COMMA) return undefined
      i = pastSpace(bytes, i + 1)
    }
    first = false
    if (bytes[i] !== BRACE || i >= most) return undefined
    const span = spanOf(bytes, i, { ...bounds, bytes: most - i })
    if (span === undefined) return undefined
    i = pastSpace(bytes, span.to)
    span.from -= array
    span.to -= array
    spans.push(span)
  }
}

/** The value that begins at `at`, without its value; undefined when it is longer than it may be. */
function spanOf(bytes: Uint8Array, at: number, bounds: AnewBounds): Span | undefined {
  const scan = new JsonBytes(bytes, at)
  if (!scan.readValue(at + bounds.bytes)) return undefined
  let long = 0
  for (const { from, to } of scan.long) long += to - from
  const { nodes, deepest, respelled } = scan
  return { from: at, to: scan.at, nodes, deepest, respelled, long, value: undefined }
}

function exceeds({ respelled }: Span, depth: number, bounds: AnewBounds): boolean {
  return respelled > 0 && depth + respelled > bounds.respelled
}

function textOf(bytes: Uint8Array, from: number, to: number): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset + from, to - from).toString('utf8')
}

/** Bytes that are compared at once. */
const BLOCK = 16 * 1024
/** A stretch of this many bytes is compared byte by byte. */
const NEAR = 32

/** How many bytes are the same from `a[i]` and from `b[j]` on. */
export function commonLength(a: Uint8Array, i: number, b: Uint8Array, j: number): number {
  const most = Math.min(a.length - i, b.length - j)
  const left = Buffer.from(a.buffer, a.byteOffset + i, most)
  const right = Buffer.from(b.buffer, b.byteOffset + j, most)
  let at = 0
  for (let step = BLOCK; at < most; ) {
    const to = Math.min(most, at + step)
    if (left.compare(right, at, to, at, to) === 0) at = to
    else if (step > NEAR) step >>= 1
    else {
      while (left[at] === right[at]) at++
      return at
    }
  }
  return most
}

/** The offset of the next byte that JSON does not skip. */
function pastSpace(bytes: Uint8Array, at: number): number {
  for (;;) {
    const c = bytes[at]
    if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) return at
    at++
  }
}

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const BRACKET_END = 0x5d
const BRACE = 0x7b
const BRACE_END = 0x7d
