/**
 * Citations for searches that the gateway ran. A model that got pages as a tool result cites them by writing their
 * URLs: each such URL in the text becomes a citation of that page. There are no other citations.
 */
import type { SearchResult } from '../../core/canon/conversation.ts'
import type { Citation, StreamEvent } from '../../core/canon/events.ts'

export class Citations {
  readonly #pages = new Map<string, string>()
  /** An index of the pages' URLs, made when a text is searched for them. */
  #urls: Prefixes | undefined
  /** The text of the open text block. */
  #text = ''

  /** Adds pages that later texts may cite. */
  found(results: readonly SearchResult[]): void {
    for (const { url, title } of results) if (!this.#pages.has(url)) this.#pages.set(url, title)
    this.#urls = undefined
  }

  /**
   * Called with each event before it leaves; pushes the citations of a text block before the event that ends the block.
   */
  before(event: StreamEvent, push: (event: StreamEvent) => void): void {
    if (this.#pages.size === 0) return
    if (event.type === 'text') this.#text += event.text
    else if (event.type !== 'activity' && event.type !== 'usage' && event.type !== 'citation') {
      if (this.#text !== '') for (const citation of this.#in(this.#text)) push({ type: 'citation', citation })
      this.#text = ''
    }
  }

  #in(text: string): Citation[] {
    const citations: Citation[] = []
    const urls = (this.#urls ??= new Prefixes([...this.#pages.keys()].filter(url => url.length <= MAX_URL)))
    for (let start = text.indexOf('http'); start !== -1; start = text.indexOf('http', start + 4)) {
      const url = urls.longestAt(text, start)
      if (url === undefined) continue
      const end = start + url.length
      citations.push({ url, title: this.#pages.get(url)!, start, end, citedText: url })
    }
    return citations
  }
}

/**
 * UTF-16 units. A model writes no longer URL, and the gateway's searches return none (`results.ts`), but a client may
 * replay one.
 */
const MAX_URL = 2048

/**
 * Finds which of many URLs begins at a place of a text. In the sorted list, all URLs that the text begins with stand
 * before the text, and each of them is a prefix of the last URL there. So one binary search finds that last URL, and a
 * walk over its prefixes finds the match. The cost grows with the prefixes of one URL, not with the number of pages.
 */
class Prefixes {
  readonly #urls: string[]
  /** For each URL, the index of the longest other URL that is its prefix, or -1. */
  readonly #shorter: Int32Array

  constructor(urls: string[]) {
    this.#urls = urls.sort()
    this.#shorter = new Int32Array(urls.length)
    for (let i = 0; i < urls.length; i++) {
      let before = i - 1
      while (before >= 0 && !urls[i]!.startsWith(urls[before]!)) before = this.#shorter[before]!
      this.#shorter[i] = before
    }
  }

  /** The longest URL that begins at `start` and does not continue as another URL. */
  longestAt(text: string, start: number): string | undefined {
    const here = text.slice(start, start + MAX_URL)
    let low = 0
    let high = this.#urls.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.#urls[middle]! <= here) low = middle + 1
      else high = middle
    }
    const last = this.#urls[low - 1]
    if (last === undefined) return undefined
    let common = 0
    while (common < last.length && last.charCodeAt(common) === here.charCodeAt(common)) common++
    for (let i = low - 1; i >= 0; i = this.#shorter[i]!) {
      const url = this.#urls[i]!
      if (url.length <= common && endsHere(text, start + url.length)) return url
    }
    return undefined
  }
}

/**
 * Whether a URL ends here: `https://a.example/10` and `https://a.example/1/more` do not cite `https://a.example/1`, but
 * `(https://a.example/1).` does.
 */
function endsHere(text: string, at: number): boolean {
  return !/^[\w%~-]|^[./?#&=:]{1,2}[\w%]/.test(text.slice(at, at + 3))
}
