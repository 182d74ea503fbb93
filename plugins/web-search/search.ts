/** One search that the model called for, and that the gateway runs. */

import type { SearchPart, SearchTool } from '../../core/canon/conversation.ts'
import { type SearchErrorCode, SearchFailed, type SearchProvider } from '../../core/ports/search.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { searchId } from '../../core/tools/ids.ts'
import type { AnsweredSearch } from './function-form.ts'
import { mostResults, usableResults } from './results.ts'

/**
 * called   no provider has been called yet
 * running  the provider was called, and has `SEARCH_MS` to answer
 * done     it has results, or an error code
 */
type State = 'called' | 'running' | 'done'

/** Milliseconds. A search that takes longer has failed, unless its provider says otherwise. */
const SEARCH_MS = 10_000

export class Search implements AnsweredSearch {
  /** The id that the client sees. */
  readonly id = searchId()
  readonly callId: string
  readonly query: string
  readonly args: string
  results: SearchPart['results'] = []
  errorCode?: SearchErrorCode
  #state: State = 'called'
  #stop!: () => void

  /** @param args the call's arguments, as the model wrote them */
  constructor(callId: string, args: string) {
    this.callId = callId
    this.query = queryOf(args)
    this.args = args
  }

  get done(): boolean {
    return this.#state === 'done'
  }

  refuse(code: SearchErrorCode): void {
    this.#end([], code)
  }

  /**
   * @param kept takes from the results what the model may get
   * @param ended called when the search has ended by itself, not when it is cancelled
   * @param failed called before `ended`, with the reason why there are no results
   */
  run(
    provider: SearchProvider | undefined,
    tool: SearchTool,
    clock: Clock,
    kept: (results: SearchPart['results']) => SearchPart['results'],
    ended: () => void,
    failed: (error: unknown) => void,
  ): void {
    this.#state = 'running'
    const controller = new AbortController()
    const fail = (error: unknown): void => {
      if (this.done) return
      failed(error)
      this.#end([], error instanceof SearchFailed ? error.code : 'unavailable')
      this.#stop()
      ended()
    }
    const patience = provider?.timeoutMs ?? SEARCH_MS
    const timer = clock.setTimer(patience, () =>
      fail(new SearchFailed('unavailable', `no answer within ${patience / 1000} s`)),
    )
    this.#stop = () => {
      timer.cancel()
      controller.abort()
    }
    const ask = async () => {
      if (!provider) throw new SearchFailed('unavailable', 'there is no search provider')
      return provider.search(this.query, {
        maxResults: mostResults(tool),
        allowedDomains: tool.allowedDomains ?? [],
        blockedDomains: tool.blockedDomains ?? [],
        userLocation: tool.userLocation,
        signal: controller.signal,
      })
    }
    ask().then(found => {
      if (this.done) return
      this.#end(kept(usableResults(found, tool)))
      timer.cancel()
      ended()
    }, fail)
  }

  cancel(): void {
    if (this.#state !== 'running') return
    this.#end([], 'unavailable')
    this.#stop()
  }

  #end(results: SearchPart['results'], errorCode?: SearchErrorCode): void {
    this.#state = 'done'
    this.results = results
    this.errorCode = errorCode
  }
}

/** The query of a call; '' when there is none. Models do not always follow the schema. */
function queryOf(args: string): string {
  let value: unknown
  try {
    value = JSON.parse(args)
  } catch {
    return ''
  }
  if (typeof value === 'object' && value !== null) {
    const { query, q } = value as Record<string, unknown>
    value = query ?? q
  }
  return typeof value === 'string' ? value.trim() : ''
}
