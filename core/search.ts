/**
 * Web search that the gateway runs itself, for backends without one of their own (decisions 34): what a search provider is, and where those of a
 * configuration are found. docs/web-search.md walks through writing one.
 */
import type { Continuation, SearchPart, SearchResult } from './conversation.ts'

/** Answers one query. A plugin's search provider implements this. */
export interface SearchProvider {
  /**
   * @returns results, best first. Those of other domains than asked for are left out by the gateway, whatever the provider does.
   * @throws SearchFailed for a reason that the client may be told; anything else that is thrown is told as `unavailable`
   */
  search(query: string, options: SearchOptions): Promise<SearchResult[]>
}

export interface SearchOptions {
  /** More are cut off. */
  maxResults: number
  /** Domains (`example.com`, subdomains included; a path may follow); empty: any. At most one of the two lists has entries. */
  allowedDomains: readonly string[]
  blockedDomains: readonly string[]
  /** Where the user is, as the client declared it: a hint. */
  userLocation?: Readonly<Record<string, unknown>>
  /** Aborted when the client leaves, the exchange ends or the search takes too long. */
  signal: AbortSignal
}

/** Why a search has no results: words of the Messages API's `web_search_tool_result_error`. */
export type SearchErrorCode =
  | 'unavailable'
  | 'too_many_requests'
  | 'max_uses_exceeded'
  | 'invalid_tool_input'
  | 'query_too_long'

export class SearchFailed extends Error {
  readonly code: SearchErrorCode
  constructor(code: SearchErrorCode, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'SearchFailed'
    this.code = code
  }
}

/** The search providers that the plugins of one configuration bring, each under its plugin's name. */
export class SearchProviders {
  /** Address of the simulated web, where it runs. */
  readonly simulator: string | undefined
  readonly #byName = new Map<string, SearchProvider>()

  constructor(simulator?: string) {
    this.simulator = simulator
  }

  /** Called in a plugin's `create`. @param name the plugin's own: what the option `provider` of `web-search` says */
  register(name: string, provider: SearchProvider): void {
    this.#byName.set(name, provider)
  }

  get(name: string): SearchProvider | undefined {
    return this.#byName.get(name)
  }
}

/** The built-in web of the simulator, by this name in the option `provider` of `web-search`. */
export const SIMULATED_SEARCH = 'simulator'

const KEPT = 'web_search'

/**
 * Results as the model saw them, kept under the search's id: what a client replays has titles and URLs at most, and the model should find what it
 * read. Private data like a provider's own (TOOL-6).
 */
export function keepResults(results: readonly SearchResult[]): Continuation {
  return { dialect: KEPT, model: '', data: results }
}

/** The results of a replayed search, whole where they are still kept. */
export function resultsOf(search: SearchPart): readonly SearchResult[] {
  const { continuation } = search
  if (continuation?.dialect !== KEPT || !Array.isArray(continuation.data)) return search.results
  return continuation.data as SearchResult[]
}
