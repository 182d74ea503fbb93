/**
 * Shows the client a reply with searches in the order in which the model wrote it, although searches take their time.
 */
import type { SearchResult } from '../../core/canon/conversation.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { keepResults } from '../../core/ports/search.ts'
import { Citations } from './citations.ts'
import type { Search } from './search.ts'

/** The state is the queue: it is empty, or it begins with a running search whose start was shown. */
export class ShownOrder {
  readonly #emit: (event: StreamEvent) => void
  readonly #citations = new Citations()
  /** A running search, and everything that came after it. */
  #queue: (StreamEvent | Search)[] = []
  /** The last search whose start was shown. */
  #begun: Search | null = null

  constructor(emit: (event: StreamEvent) => void) {
    this.#emit = emit
  }

  /** Pages that the model knows already and may cite. */
  knows(results: readonly SearchResult[]): void {
    this.#citations.found(results)
  }

  event(event: StreamEvent): void {
    if (this.#queue.length === 0) this.#out(event)
    else this.#queue.push(event)
  }

  search(search: Search): void {
    this.#queue.push(search)
    this.drain()
  }

  /** Emits everything that is not behind a running search. */
  drain(): void {
    const queue = this.#queue
    let taken = 0
    for (; taken < queue.length; taken++) {
      const item = queue[taken]!
      if (!('callId' in item)) this.#out(item)
      else if (!this.#show(item)) break
    }
    this.#queue = queue.slice(taken)
  }

  /** @returns false while the search runs */
  #show(search: Search): boolean {
    if (this.#begun !== search) {
      this.#begun = search
      this.#out({ type: 'search_start', id: search.id })
    }
    if (!search.done) return false
    const { id, query, results, errorCode } = search
    // The client gets titles and URLs. The text of the pages is kept for the next turn, and neither metered nor
    // retained with the reply.
    const end: StreamEvent = { type: 'search_end', id, query, results: results.map(({ text: _, ...shown }) => shown) }
    if (errorCode !== undefined) end.errorCode = errorCode
    if (results.some(result => result.text !== undefined)) end.continuation = keepResults(results)
    this.#out(end)
    this.#citations.found(results)
    return true
  }

  #out(event: StreamEvent): void {
    this.#citations.before(event, this.#emit)
    this.#emit(event)
  }
}
