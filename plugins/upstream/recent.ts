/**
 * A map of bounded size that keeps what was used lately. It has two generations: when the younger one is full or old,
 * it becomes the older one, and what is still there of the older one is forgotten. So an entry that is used stays, and
 * one that is not goes after one to two times `keepMs`, or sooner when many other keys come.
 */
export class Recent<T> {
  readonly #make: () => T
  readonly #half: number
  readonly #keepMs: number
  #young = new Map<string, T>()
  #old = new Map<string, T>()
  /** When the younger generation began (monotonic milliseconds). */
  #since = 0
  /** Entries that were forgotten because there was no room for them. */
  forgotten = 0

  /** @param most the most entries that are kept, an even number */
  constructor(make: () => T, most: number, keepMs: number) {
    this.#make = make
    this.#half = most / 2
    this.#keepMs = keepMs
  }

  /** The entry if there is one. This does not count as use. */
  peek(key: string): T | undefined {
    return this.#young.get(key) ?? this.#old.get(key)
  }

  /** The entry, made if there is none. @param now monotonic milliseconds */
  of(key: string, now: number): T {
    if (now - this.#since >= this.#keepMs) this.#age(now)
    let entry = this.#young.get(key)
    if (entry === undefined) {
      entry = this.#old.get(key) ?? this.#make()
      this.#old.delete(key)
      if (this.#young.size >= this.#half) {
        this.forgotten += this.#old.size
        this.#age(now)
      }
      this.#young.set(key, entry)
    }
    return entry
  }

  get size(): number {
    return this.#young.size + this.#old.size
  }

  *values(): Iterable<T> {
    yield* this.#young.values()
    yield* this.#old.values()
  }

  *entries(): Iterable<[key: string, entry: T]> {
    yield* this.#young
    yield* this.#old
  }

  #age(now: number): void {
    this.#old = this.#young
    this.#young = new Map()
    this.#since = now
  }
}
