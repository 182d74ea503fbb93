/**
 * Writes the bodies of a conversation's requests. Such a body has long arrays (messages, tools) whose elements are mostly
 * those of the last one: of these the bytes that were written are sent again. An element is known by its value, compared
 * member by member, so nobody needs to say what may make a difference (the backend, its settings, names of tools): what
 * makes one shows in the value.
 */
import { wellFormed } from '../../core/tools/json.ts'
import type { Pieces } from './verbatim.ts'

/** Part of ECMAScript 2026 and of V8 since Node 21; TypeScript's library does not declare it yet. */
const { isRawJSON } = JSON as unknown as { isRawJSON(value: unknown): boolean }

/** Takes JSON that was written beforehand, and gives the string that stands for it in a body. */
export type Insert = (json: Pieces) => string

/** Writes bodies, and keeps the elements of the arrays of the last one. */
export class JsonAgain {
  readonly #arrays = new Map<string, WrittenArray>()

  /** Bytes of memory for what was written. */
  get bytes(): number {
    let bytes = 0
    for (const array of this.#arrays.values()) bytes += array.bytes
    return bytes
  }

  /**
   * @param body as a dialect made it. Its values must not be changed any more.
   * @returns the JSON, with what `insert` gave in place of arrays
   */
  write(body: object, insert: Insert): string {
    const inserted: Record<string, unknown> = { ...body }
    for (const [name, value] of Object.entries(body)) {
      if (!isArrayOfObjects(value)) continue
      let array = this.#arrays.get(name)
      if (!array) this.#arrays.set(name, (array = new WrittenArray()))
      inserted[name] = insert(array.write(value))
    }
    for (const name of this.#arrays.keys()) if (!(name in body)) this.#arrays.delete(name)
    return JSON.stringify(inserted)
  }
}

const isArrayOfObjects = (value: unknown): value is object[] =>
  Array.isArray(value) && value.length > 0 && value.every(each => typeof each === 'object' && each !== null)

/** Memory for what a conversation is going to have, beside what it has, as a part of that. */
const HEADROOM = 0.25

/** An array as it was written last. */
class WrittenArray {
  #elements: readonly object[] = []
  /** Where each element ends in `#memory`. */
  #ends: number[] = []
  /**
   * The bytes of the array without its closing bracket. What is written there stays, since it may still be sent: new
   * elements go behind it, and where others stand behind the first ones, the array goes to other memory.
   */
  #memory: Buffer = Buffer.alloc(0)
  #used = 0

  get bytes(): number {
    return this.#memory.length
  }

  write(elements: readonly object[]): Pieces {
    const old = this.#elements
    let same = 0
    while (same < old.length && same < elements.length && sameJson(old[same], elements[same])) same++
    const from = same === 0 ? 0 : this.#ends[same - 1]!
    const ends = this.#ends.slice(0, same)
    let text = ''
    let end = from
    for (let i = same; i < elements.length; i++) {
      const json = `${i === 0 ? '[' : ','}${wellFormed(JSON.stringify(elements[i]))}`
      text += json
      ends.push((end += Buffer.byteLength(json)))
    }
    this.#reserve(from, end)
    this.#memory.write(text, from)
    this.#elements = elements
    this.#ends = ends
    return [this.#memory.subarray(0, end), ']']
  }

  /** Makes room for the bytes from `from` to `end`, behind those that stay. */
  #reserve(from: number, end: number): void {
    const known = this.#memory
    if (end > from && (from < this.#used || end > known.length)) {
      this.#memory = Buffer.allocUnsafeSlow(Math.ceil(end * (1 + HEADROOM)))
      known.copy(this.#memory, 0, 0, from)
    }
    this.#used = Math.max(end, this.#memory === known ? this.#used : 0)
  }
}

/** Whether JSON.stringify writes two values alike. False for some that it does. */
export function sameJson(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a)) {
    if (!Array.isArray(b) || a.length !== b.length) return false
    for (let i = 0; i < a.length; i++) if (!sameJson(a[i], b[i])) return false
    return true
  }
  if (Array.isArray(b) || isRawJSON(a) !== isRawJSON(b)) return false
  const names = Object.keys(a)
  const others = Object.keys(b)
  if (names.length !== others.length) return false
  for (let i = 0; i < names.length; i++) {
    const name = names[i]!
    if (name !== others[i] || !sameJson((a as any)[name], (b as any)[name])) return false
  }
  return true
}
