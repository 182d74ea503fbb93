/**
 * What the client is shown of a reply with searches: in the order of the model's words, although searches take their
 * time.
 */
import type { SearchResult } from '../../core/conversation.ts'
import type { StreamEvent } from '../../core/events.ts'
import { keepResults } from '../../core/search.ts'
import { Citations } from '../web-search/citations.ts'
import type { Search } from './search.ts'

/** Its state is the queue: empty, or headed by a search that runs and has been shown to begin. */
export class ShownOrder {
  readonly #emit: (event: StreamEvent) => void
  readonly #citations = new Citations()
  /** A search that runs, and what came after it. */
  #queue: (StreamEvent | Search)[] = []
  /** The search that was shown to begin last. */
  #begun: Search | null = null

  constructor(emit: (event: StreamEvent) => void) {
    this.#emit = emit
  }

  /** Pages that the model knows, and may cite. */
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

  /** Lets out what no search stands before any more. */
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

  /** False while it runs. */
  #show(search: Search): boolean {
    if (this.#begun !== search) {
      this.#begun = search
      this.#out({ type: 'search_start', id: search.id })
    }
    if (!search.done) return false
    const { id, query, results, errorCode } = search
    // Titles and URLs are the client's. What the pages said is kept for the next turn, and neither metered nor
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
