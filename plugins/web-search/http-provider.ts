/**
 * Searches over HTTP, in the form that the simulator serves: `GET {base}/search?q=…` answers `{"results": [{"title",
 * "url", "text"}]}`. An operator whose search engine has such an endpoint, or who puts one in front of it, needs no
 * plugin.
 */
import type { Dispatcher } from 'undici'
import type { SearchResult } from '../../core/canon/conversation.ts'
import { SearchFailed, type SearchOptions, type SearchProvider } from '../../core/ports/search.ts'

/** The most bytes that are read of an answer; results are a few kilobytes. */
const MAX_BODY = 1024 * 1024

/** Where the searches are sent, and with which headers. */
export interface SearchEndpoint {
  dispatcher: Dispatcher
  /** Path of the base URL, without a trailing slash. */
  prefix: string
  origin: string
  /** Names in lower case. */
  headers: Record<string, string>
}

export class HttpSearch implements SearchProvider {
  readonly #endpoint: SearchEndpoint

  constructor(endpoint: SearchEndpoint) {
    this.#endpoint = endpoint
  }

  async search(
    query: string,
    { maxResults, allowedDomains, blockedDomains, signal }: SearchOptions,
  ): Promise<SearchResult[]> {
    const { dispatcher, origin, prefix, headers } = this.#endpoint
    const parameters = new URLSearchParams({ q: query, max_results: String(maxResults) })
    for (const domain of allowedDomains) parameters.append('allowed_domain', domain)
    for (const domain of blockedDomains) parameters.append('blocked_domain', domain)
    const { statusCode, body } = await dispatcher.request({
      origin,
      path: `${prefix}/search?${parameters}`,
      method: 'GET',
      headers: { accept: 'application/json', 'accept-encoding': 'identity', ...headers },
      signal,
    })
    if (statusCode !== 200) {
      // The body is read, up to the limit, so that the connection can be used again.
      await body.dump({ limit: MAX_BODY, signal })
      throw new SearchFailed(
        statusCode === 429 ? 'too_many_requests' : 'unavailable',
        `the search answered ${statusCode}`,
      )
    }
    const chunks: Buffer[] = []
    let size = 0
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > MAX_BODY) throw new SearchFailed('unavailable', 'the search answered beyond any bound')
      chunks.push(chunk)
    }
    const answer: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'))
    const results =
      typeof answer === 'object' && answer !== null ? (answer as Record<string, unknown>)['results'] : undefined
    if (!Array.isArray(results)) throw new SearchFailed('unavailable', 'the search answered without results')
    return results as SearchResult[]
  }
}
