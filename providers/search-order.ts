/**
 * Puts hosted searches into sequence. Providers may announce several before the first result; in the event grammar
 * (core/canon/events.ts) a search must end before anything else begins.
 */
import type { StreamEvent } from '../core/canon/events.ts'

/** The result of a search. */
export type SearchEnd = Omit<Extract<StreamEvent, { type: 'search_end' }>, 'type' | 'id'>

interface Entry {
  /** The provider's id. */
  key: string
  id: string
  /** What is known so far. It is used when the search never gets its result. */
  partial: SearchEnd
  started: boolean
  end?: SearchEnd
}

/** The hosted searches of one reply. */
export class SearchOrder {
  readonly #queue: Entry[] = []
  readonly #closed = new Set<string>()
  readonly #mint: () => string
  /** The number of searches that neither failed nor were left unfinished. */
  count = 0

  constructor(mint: () => string) {
    this.#mint = mint
  }

  start(key: string, push: (event: StreamEvent) => void): void {
    if (this.#closed.has(key) || this.#queue.some(entry => entry.key === key)) return
    const entry: Entry = { key, id: this.#mint(), partial: { query: '', results: [] }, started: false }
    this.#queue.push(entry)
    if (this.#queue.length === 1) this.#open(entry, push)
    else push({ type: 'activity' })
  }

  /** Updates what is known about a running search. */
  progress(key: string, partial: SearchEnd): void {
    const entry = this.#queue.find(waiting => waiting.key === key)
    if (entry) entry.partial = partial
  }

  /** What the last `progress` said. */
  known(key: string): SearchEnd | undefined {
    return this.#queue.find(waiting => waiting.key === key)?.partial
  }

  end(key: string, end: SearchEnd, push: (event: StreamEvent) => void): void {
    if (this.#closed.has(key)) return
    this.start(key, push)
    this.#queue.find(entry => entry.key === key)!.end = end
    while (this.#queue[0]?.end) this.#close(this.#queue[0], this.#queue[0].end, push)
  }

  /**
   * Another item begins, or the reply ends: searches that have no result now will get none.
   * @param paused the provider continues the searches in the next request
   */
  settle(push: (event: StreamEvent) => void, paused = false): void {
    while (this.#queue.length > 0) {
      const entry = this.#queue[0]!
      this.#close(entry, entry.end ?? (paused ? { ...entry.partial, unfinished: true } : entry.partial), push)
    }
  }

  #open(entry: Entry, push: (event: StreamEvent) => void): void {
    entry.started = true
    push({ type: 'search_start', id: entry.id })
  }

  #close(entry: Entry, end: SearchEnd, push: (event: StreamEvent) => void): void {
    if (!entry.started) this.#open(entry, push)
    push({ type: 'search_end', id: entry.id, ...end })
    this.#queue.shift()
    this.#closed.add(entry.key)
    if (end.errorCode === undefined && !end.unfinished) this.count++
    const next = this.#queue[0]
    if (next && !next.started) this.#open(next, push)
  }
}
