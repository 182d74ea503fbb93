/** What runs at a moment of a replay: the earliest end comes first. Ends of one millisecond come in the order of `add`. */
export class Running<T> {
  /** A binary heap. */
  readonly #items: { at: number; order: number; item: T }[] = []
  #added = 0

  get size(): number {
    return this.#items.length
  }

  /** When the next one ends; infinite when nothing runs. */
  get next(): number {
    return this.#items[0]?.at ?? Number.POSITIVE_INFINITY
  }

  add(at: number, item: T): void {
    const items = this.#items
    const added = { at, order: this.#added++, item }
    let i = items.push(added) - 1
    while (i > 0) {
      const above = (i - 1) >> 1
      if (isBefore(items[above]!, added)) break
      items[i] = items[above]!
      i = above
    }
    items[i] = added
  }

  /** Takes out the one that ends next. */
  take(): T | undefined {
    const items = this.#items
    const first = items[0]
    const last = items.pop()
    if (first === undefined || last === undefined || first === last) return first?.item
    let i = 0
    for (;;) {
      let below = 2 * i + 1
      if (below + 1 < items.length && isBefore(items[below + 1]!, items[below]!)) below++
      if (below >= items.length || isBefore(last, items[below]!)) break
      items[i] = items[below]!
      i = below
    }
    items[i] = last
    return first.item
  }
}

const isBefore = (a: { at: number; order: number }, b: { at: number; order: number }): boolean =>
  a.at < b.at || (a.at === b.at && a.order < b.order)
