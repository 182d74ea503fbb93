/**
 * Citations for searches that the gateway ran. A model that was given pages as a tool's result cites them by writing their URLs: each such URL in the
 * text becomes a citation of that page. Nothing else does: none are invented.
 */
import type { SearchResult } from '../../core/conversation.ts'
import type { Citation, StreamEvent } from '../../core/events.ts'

export class Citations {
  readonly #pages = new Map<string, string>()
  /** The open text block. */
  #text = ''

  /** Pages that a later text may cite. */
  found(results: readonly SearchResult[]): void {
    for (const { url, title } of results) if (!this.#pages.has(url)) this.#pages.set(url, title)
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
    for (let start = text.indexOf('http'); start !== -1; start = text.indexOf('http', start + 4)) {
      const url = this.#pageAt(text, start)
      if (url === undefined) continue
      const end = start + url.length
      citations.push({ url, title: this.#pages.get(url)!, start, end, citedText: url })
    }
    return citations
  }

  /** The longest page URL that stands here and does not go on as another one. */
  #pageAt(text: string, start: number): string | undefined {
    let longest: string | undefined
    for (const url of this.#pages.keys()) {
      if (url.length > (longest?.length ?? 0) && text.startsWith(url, start) && endsHere(text, start + url.length))
        longest = url
    }
    return longest
  }
}

/** `https://a.example/1` is not cited by `https://a.example/10` or `https://a.example/1/more`, but by `(https://a.example/1).` it is. */
function endsHere(text: string, at: number): boolean {
  return !/^[\w%~-]|^[./?#&=:]{1,2}[\w%]/.test(text.slice(at, at + 3))
}
