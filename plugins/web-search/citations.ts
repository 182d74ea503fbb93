/**
 * Citations for searches that the gateway ran. A model that was given pages as a tool's result cites them by writing their URLs: each such URL in the
 * text becomes a citation of that page. Nothing else does: none are invented.
 */
import type { SearchResult } from '../../core/conversation.ts'
import type { Citation, StreamEvent } from '../../core/events.ts'

export class Citations {
  readonly #pages = new Map<string, string>()
  /** Their URLs, made when a text is to be looked through. */
  #urls: Prefixes | undefined
  /** The open text block. */
  #text = ''

  /** Pages that a later text may cite. */
  found(results: readonly SearchResult[]): void {
    for (const { url, title } of results) if (!this.#pages.has(url)) this.#pages.set(url, title)
    this.#urls = undefined
  }

  /** Called with each event before it leaves; pushes the citations of a text block in front of the event that ends it. */
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

/** Longer ones are none that a model writes; searches of ours find none (`results.ts`), but a client may replay some. */
const MAX_URL = 2048

/**
 * Finds which of many URLs stands at a place of a text. In a sorted list all URLs that begin a text stand before it, and each of them begins the last one that
 * does: so one search, and a walk from there over beginnings of beginnings, whose number is not the pages' but that of one URL's own.
 */
class Prefixes {
  readonly #urls: string[]
  /** By place: that of the longest other URL that this one begins with, or -1. */
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

  /** The longest URL that stands here and does not go on as another one. */
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

/** `https://a.example/1` is not cited by `https://a.example/10` or `https://a.example/1/more`, but by `(https://a.example/1).` it is. */
function endsHere(text: string, at: number): boolean {
  return !/^[\w%~-]|^[./?#&=:]{1,2}[\w%]/.test(text.slice(at, at + 3))
}
