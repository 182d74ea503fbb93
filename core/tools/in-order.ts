/**
 * Values that were made of keys, one after the other, and are wanted again in about that order: the schemas of tools and
 * the arguments of calls, from one turn of a conversation to the next. Keys are compared with `===`: strings by their
 * characters, which takes no time where both are one string, and objects by identity, so they must not be changed.
 */
export class InOrder<K, V> {
  #keys: K[] = []
  #values: V[] = []
  #nextKeys: K[] = []
  #nextValues: V[] = []
  #at = 0

  /** Begins from the first key again. What was not added since the last time is forgotten, if anything was. */
  begin(): void {
    if (this.#nextKeys.length > 0) {
      this.#keys = this.#nextKeys
      this.#values = this.#nextValues
      this.#nextKeys = []
      this.#nextValues = []
    }
    this.#at = 0
  }

  /** The value of the key that comes next; undefined where it is another key than last time. */
  find(key: K): V | undefined {
    const keys = this.#keys
    // One that is gone is passed over; for one that came in, the place stays.
    let at = this.#at
    if (keys[at] !== key) at++
    if (at >= keys.length || keys[at] !== key) return undefined
    this.#at = at + 1
    return this.#values[at]
  }

  /** For the next time. */
  add(key: K, value: V): void {
    this.#nextKeys.push(key)
    this.#nextValues.push(value)
  }
}
