import { JsonBytes, pastBlanks } from './json-bytes.ts'

/** A member of an object in a JSON text. */
export interface JsonMember {
  /** Undefined for a name of more than `LONGEST_NAME` bytes, and for one that is no JSON. */
  name: string | undefined
  /** The offset of its value, and the one behind it. */
  from: number
  to: number
}

/** The longest name that is read, in bytes as it is written, quotation marks included. */
const LONGEST_NAME = 128

/**
 * Finds the members of an object without parsing it, by the brackets of its values. Whether those are JSON is found
 * only when somebody parses them.
 * @param slice after at most this many bytes undefined is yielded, so that the caller can let others go first
 * @returns whether the text is an object as far as its members and their values go
 */
export function* jsonMembers(
  bytes: Buffer,
  slice = Number.POSITIVE_INFINITY,
): Generator<JsonMember | undefined, boolean> {
  let at = pastBlanks(bytes, 0)
  if (bytes[at] !== OPEN) return false
  at = pastBlanks(bytes, at + 1)
  const walk = new JsonBytes(bytes)
  let pause = slice
  const end = function* (from: number): Generator<undefined, number> {
    walk.at = from
    while (!walk.readValue(pause)) {
      pause = walk.at + slice
      yield
    }
    return walk.at
  }
  while (bytes[at] === QUOTE) {
    const behind = yield* end(at)
    const colon = pastBlanks(bytes, behind)
    if (bytes[colon] !== COLON) return false
    const from = pastBlanks(bytes, colon + 1)
    const to = yield* end(from)
    yield { name: behind - at > LONGEST_NAME ? undefined : nameOf(bytes, at, behind), from, to }
    at = pastBlanks(bytes, to)
    if (bytes[at] === CLOSE) return true
    if (bytes[at] !== COMMA) return false
    at = pastBlanks(bytes, at + 1)
  }
  return bytes[at] === CLOSE
}

function nameOf(bytes: Buffer, from: number, to: number): string | undefined {
  const written = bytes.toString('utf8', from + 1, to - 1)
  if (!written.includes('\\')) return written
  try {
    return JSON.parse(bytes.toString('utf8', from, to)) as string
  } catch {
    return undefined
  }
}

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN = 0x7b
const CLOSE = 0x7d
