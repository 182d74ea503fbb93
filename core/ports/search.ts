/**
 * The search port: web search that the gateway runs itself for backends without their own (decisions 34). It defines
 * what a search provider is, and where those of a configuration are registered. docs/web-search.md explains how to
 * write one.
 */
import type { Continuation, SearchPart, SearchResult } from '../canon/conversation.ts'

/** Answers one query. A plugin's search provider implements this. */
export interface SearchProvider {
  /** A search that takes longer has failed, ms. Absent: 10 s. */
  readonly timeoutMs?: number
  /**
   * @returns results, best first. The gateway itself removes results from domains that were not allowed.
   * @throws SearchFailed with a reason that the client may see; any other error is reported as `unavailable`
   */
  search(query: string, options: SearchOptions): Promise<SearchResult[]>
}

export interface SearchOptions {
  /** Further results are dropped. */
  maxResults: number
  /**
   * Domains such as `example.com`, which include their subdomains; a path may follow. Empty: any domain. At most one
   * of the two lists has entries.
   */
  allowedDomains: readonly string[]
  blockedDomains: readonly string[]
  /** The user's location as the client declared it; a hint. */
  userLocation?: Readonly<Record<string, unknown>>
  /** Aborted when the client disconnects, the exchange ends, or the search takes too long. */
  signal: AbortSignal
}

/** Why a search has no results: the error codes of the Messages API's `web_search_tool_result_error`. */
export type SearchErrorCode =
  | 'unavailable'
  | 'too_many_requests'
  | 'max_uses_exceeded'
  | 'invalid_tool_input'
  | 'query_too_long'

/** A search failed for a reason that the client may see. */
export class SearchFailed extends Error {
  readonly code: SearchErrorCode
  constructor(code: SearchErrorCode, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'SearchFailed'
    this.code = code
  }
}

/** The search providers that the plugins of one configuration register, by the name of the plugin. */
export class SearchProviders {
  /** Base URLs of the search servers that the gateway itself runs, by their names. */
  readonly builtIn: Readonly<Record<string, string>>
  readonly #byName = new Map<string, SearchProvider>()

  constructor(builtIn: Readonly<Record<string, string>> = {}) {
    this.builtIn = builtIn
  }

  /**
   * Called in a plugin's `create`.
   * @param name the plugin's own name, which the option `provider` of `web-search` then gives
   */
  register(name: string, provider: SearchProvider): void {
    this.#byName.set(name, provider)
  }

  get(name: string): SearchProvider | undefined {
    return this.#byName.get(name)
  }
}

/** Marks results that the gateway stored itself, in the place of a dialect's name. */
const GATEWAY_RESULTS = 'web_search'

/**
 * The results as the model saw them, to be stored under the search's id. A client sends back titles and URLs at most,
 * but the model should find what it read. This is private data, like a provider's own (TOOL-6).
 */
export function keepResults(results: readonly SearchResult[]): Continuation {
  return { dialect: GATEWAY_RESULTS, model: '', data: results }
}

/**
 * The results of a search in the history: as the model saw them where they are still stored, else as the client sent
 * them, without those that say nothing: they count nothing, and would still take a line each.
 */
export function resultsOf(search: SearchPart): readonly SearchResult[] {
  const { continuation } = search
  if (continuation?.dialect !== GATEWAY_RESULTS || !Array.isArray(continuation.data))
    return search.results.filter(({ title, url, text }) => title !== '' || url !== '' || text)
  return continuation.data as SearchResult[]
}
