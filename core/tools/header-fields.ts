/**
 * The header fields of one head, in the order in which they arrived. It can be used as a Map, and is cheaper than a
 * Map for the some twenty names of a head: it searches one array from its start, while a Map hashes each name and is
 * rebuilt each time it grows.
 */
export class HeaderFields implements Map<string, string> {
  /** Name, value, name, value. */
  readonly #flat: string[] = []

  /** Name, value, name, value. This is the array itself, not a copy. */
  get flat(): readonly string[] {
    return this.#flat
  }
  get size(): number {
    return this.#flat.length / 2
  }
  get [Symbol.toStringTag](): string {
    return 'HeaderFields'
  }

  get(name: string): string | undefined {
    const at = this.#find(name)
    return at < 0 ? undefined : this.#flat[at + 1]
  }

  has(name: string): boolean {
    return this.#find(name) >= 0
  }

  /** Sets a field. When the name occurs more than once, the first field is changed. */
  set(name: string, value: string): this {
    const at = this.#find(name)
    if (at < 0) this.#flat.push(name, value)
    else this.#flat[at + 1] = value
    return this
  }

  /**
   * Adds a value to a field that may exist already. Values of one name are joined with ', ' (RFC 9110 section 5.3).
   * Lines of `cookie` are joined with '; ' (RFC 9113 section 8.2.3); those of `set-cookie` cannot be joined (RFC 6265
   * section 3).
   */
  add(name: string, value: string): void {
    const at = name === 'set-cookie' ? -1 : this.#find(name)
    if (at < 0) this.#flat.push(name, value)
    else this.#flat[at + 1] += name === 'cookie' ? `; ${value}` : `, ${value}`
  }

  /** Deletes every field of that name. */
  delete(name: string): boolean {
    const flat = this.#flat
    const before = flat.length
    for (let at = this.#find(name); at >= 0; at = this.#find(name)) flat.splice(at, 2)
    return flat.length < before
  }

  clear(): void {
    this.#flat.length = 0
  }

  forEach(each: (value: string, name: string, fields: Map<string, string>) => void, self?: unknown): void {
    for (let i = 0; i < this.#flat.length; i += 2) each.call(self, this.#flat[i + 1]!, this.#flat[i]!, this)
  }

  *entries(): Generator<[name: string, value: string], undefined> {
    for (let i = 0; i < this.#flat.length; i += 2) yield [this.#flat[i]!, this.#flat[i + 1]!]
  }
  *keys(): Generator<string, undefined> {
    for (let i = 0; i < this.#flat.length; i += 2) yield this.#flat[i]!
  }
  *values(): Generator<string, undefined> {
    for (let i = 0; i < this.#flat.length; i += 2) yield this.#flat[i + 1]!
  }
  [Symbol.iterator](): Generator<[name: string, value: string], undefined> {
    return this.entries()
  }

  /** Why these fields cannot be the head of a reply (see `HeaderList`); undefined when they can. */
  fault(): string | undefined {
    const flat = this.#flat
    for (let i = 0; i < flat.length; i += 2) {
      if (!TOKEN.test(flat[i]!)) return `not a header name: ${JSON.stringify(flat[i])}`
      if (!isFieldValue(flat[i + 1]!)) return `header ${flat[i]} has a value that would break the answer's head`
    }
    return undefined
  }

  #find(name: string): number {
    const flat = this.#flat
    for (let i = 0; i < flat.length; i += 2) if (flat[i] === name) return i
    return -1
  }
}

/** A field name (token of RFC 9110 section 5.6.2). */
export const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

/** Tab, printable ASCII and Latin-1: field-content and obs-text of RFC 9110 section 5.5. */
export function isFieldValue(value: string): boolean {
  return highestOf(value) >= 0
}

/** The highest character code of a field value; -1 when `isFieldValue` would refuse it. */
export function highestOf(value: string): number {
  let highest = 0
  for (let i = 0; i < value.length; i++) {
    const c = value.charCodeAt(i)
    if ((c < 0x20 && c !== 0x09) || c === 0x7f || c > 0xff) return -1
    if (c > highest) highest = c
  }
  return highest
}
