/**
 * Runs the hosted searches of an exchange whose backend has none: it sends the exchange's requests, one a round, and stands between their replies
 * and the exchange.
 *
 *   start ──► round: attempts.send ──► emit … end ──► searches done? ──► conclude: the exchange ends
 *               ▲                                          │
 *               └───── the conversation and its results ───┘
 *
 * The events of a round's reply pass
 *
 *   emit ──► the round's Sequencer ──► #ordered ──► queue (a running search blocks it) ──► citations ──► exchange
 *
 * Each round has a Sequencer of its own, since its usage and its finish are not the exchange's. The model's calls of the search function are taken
 * out and run; the client sees `search_start` and `search_end` where the call stood, and what came after waits behind them, so that the order
 * stays. When the round is over and all that the model called for are searches, the next round goes out with the results; the last one gives the
 * reply its end.
 *
 * A round with calls of the client's own ends the turn: its searches are run and shown, and the client answers the rest. The same loop continues a
 * native search that its provider pauses.
 */
import type { Timer } from '../../core/clock.ts'
import { type Conversation, formOf, type SearchTool } from '../../core/conversation.ts'
import type { FinishEvent, FinishReason, ProviderUsage, StreamEvent } from '../../core/events.ts'
import { searchId } from '../../core/ids.ts'
import type { Exchange, Logger, UpstreamControl } from '../../core/plugin.ts'
import { ReplyRecorder } from '../../core/recorder.ts'
import { keepResults, resultsOf, type SearchErrorCode, SearchFailed, type SearchProvider } from '../../core/search.ts'
import { Sequencer } from '../../core/sequence.ts'
import type { Ticker, Ticking } from '../../core/ticker.ts'
import { TokenCounter } from '../../meter/index.ts'
import type { SearchPlan } from '../shared/slots.ts'
import { Citations } from '../web-search/citations.ts'
import { append, relaxed, resultOf, type ToldSearch, withoutSearch } from '../web-search/function-form.ts'
import { mostResults, usableResults } from '../web-search/results.ts'
import type { AttemptSink } from './attempt.ts'
import type { Attempts } from './attempts.ts'

/** A search that takes longer has failed. */
const SEARCH_MS = 10_000
/** UTF-16 units of a query. */
const MAX_QUERY = 1000
/** Searches in one round; more are refused, whatever the client allows. */
const MAX_PER_ROUND = 16

export interface SearchLoopOptions {
  plan: SearchPlan
  provider: SearchProvider | undefined
  ticker: Ticker
  log: Logger
}

type SearchEnd = Extract<StreamEvent, { type: 'search_end' }>

/** One search of the model's. */
interface Search extends ToldSearch {
  /** Public id. */
  id: string
  /** Whether the client sees it. */
  shown: boolean
  begun: boolean
  done: boolean
  /** Stops it while it runs. */
  cancel(): void
}

class Round {
  readonly sequencer: Sequencer
  readonly recorder = new ReplyRecorder()
  readonly searches: Search[] = []
  /** The search call that is being read. */
  call: { id: string; args: string } | null = null
  /** Calls of the client's tools. */
  clientCalls = 0
  finish: FinishEvent | null = null
  /** Whether its provider told what it used. */
  reported = false
  reasoning: TokenCounter | null = null
  /** Id, in this round, of the native search that the round before left unfinished. */
  resumed: string | null = null

  constructor(ordered: (event: StreamEvent) => void) {
    this.sequencer = new Sequencer(ordered)
  }
}

export class SearchLoop implements AttemptSink, UpstreamControl, Ticking {
  place = -1
  readonly #x: Exchange
  /** What the first round asks. */
  readonly #first: Conversation
  readonly #attempts: Pick<Attempts, 'send' | 'clocks' | 'startedMono'>
  readonly #options: SearchLoopOptions
  readonly #tool: SearchTool
  /** The function's name upstream; null: native. */
  readonly #name: string | null
  /** Most searches of the request. */
  readonly #limit: number
  readonly #citations = new Citations()
  /** What the round at hand asks. */
  #conversation: Conversation
  #round: Round
  /** Rounds that were followed by another. */
  #turns = 0
  #made = 0
  #running = 0
  /** Calls that the client was shown. */
  #calls = 0
  #usage: ProviderUsage | null = null
  /** Reasoning, by its deltas, of rounds whose provider told nothing: a clock stopped them, or it never does. */
  #unreported = 0
  /** End of a native search that its provider paused in the middle of: it waits for the real one, out of the next round. */
  #unfinished: SearchEnd | null = null
  /** What waits behind a search that runs. */
  #queue: (StreamEvent | Search)[] = []
  #concluded = false
  #paused = false
  #activityMono = 0

  /** @param first what the first round asks */
  constructor(
    x: Exchange,
    first: Conversation,
    attempts: Pick<Attempts, 'send' | 'clocks' | 'startedMono'>,
    options: SearchLoopOptions,
  ) {
    const { plan } = options
    this.#x = x
    this.#first = first
    this.#attempts = attempts
    this.#options = options
    this.#conversation = first
    this.#tool = plan.tool
    this.#name = plan.name
    this.#limit = Math.min(plan.tool.maxUses ?? Number.POSITIVE_INFINITY, first.maxSearches ?? Number.POSITIVE_INFINITY)
    this.#round = new Round(this.#ordered)
    if (this.#name === null) return
    for (const turn of first.turns) {
      for (const part of turn.parts) if (part.type === 'search') this.#citations.found(resultsOf(part))
    }
    x.defer(() => this.#cancel())
  }

  start(): void {
    this.#attempts.send(this.#first, this)
  }

  // ---- a round's reply --------------------------------------------------------------------------------------------------

  emit(event: StreamEvent): void {
    this.#round.sequencer.push(event)
  }

  /** The round's request is over. */
  end(): void {
    if (this.#x.closed) return
    const round = this.#round
    round.sequencer.end(nothing, { type: 'finish', reason: 'stop' })
    const { reason } = round.finish!
    if (!round.reported) this.#unreported += round.reasoning?.total ?? 0
    // Stopped by a clock, or only drained: what runs has no time, or no reader, left.
    if (reason === 'idle_timeout' || reason === 'ceiling_timeout' || this.#x.clientGone) this.#cancel()
    if (this.#running > 0) {
      this.#activityMono = this.#x.clock.mono()
      this.#paused = false
      this.#x.control(this)
      this.#options.ticker.add(this)
      this.#x.flush()
    }
    this.#advance()
  }

  readonly #ordered = (event: StreamEvent): void => {
    const round = this.#round
    switch (event.type) {
      case 'activity':
        this.#x.emit(event)
        return
      case 'usage':
        round.reported = true
        this.#usage = added(this.#usage, event.usage, this.#turns === 0)
        return
      case 'reasoning':
        round.reasoning ??= new TokenCounter()
        round.reasoning.push(event.text)
        break
      case 'finish':
        round.finish = event
        return
      case 'tool_call':
        round.recorder.push(event)
        if (event.kind === 'function' && event.name === this.#name && event.namespace === undefined) {
          round.call = { id: event.id, args: '' }
          return
        }
        round.clientCalls++
        this.#put({ ...event, index: this.#calls++ })
        return
      case 'tool_args':
        round.recorder.push(event)
        if (round.call) round.call.args += event.text
        else this.#put({ ...event, index: this.#calls - 1 })
        return
      case 'tool_end': {
        round.recorder.push(event)
        const { call } = round
        round.call = null
        if (call) this.#called(call.id, call.args)
        else this.#put({ ...event, index: this.#calls - 1 })
        return
      }
      case 'search_start':
        if (!this.#unfinished) break
        round.resumed = event.id
        round.recorder.push(event)
        return
      case 'search_end':
        if (this.#name === null) return this.#nativeEnd(event)
        break
    }
    round.recorder.push(event)
    this.#put(event)
  }

  /** The client sees one search, however many rounds its provider takes for it. */
  #nativeEnd(event: SearchEnd): void {
    const round = this.#round
    round.recorder.push(event)
    const shown = event.id === round.resumed && this.#unfinished ? { ...event, id: this.#unfinished.id } : event
    this.#unfinished = null
    if (event.unfinished) {
      this.#unfinished = shown
      return
    }
    this.#made++
    this.#put(shown)
  }

  // ---- searches ---------------------------------------------------------------------------------------------------------

  #called(callId: string, args: string): void {
    // The cap is reached: the round ends the reply, and nothing more is run.
    if (this.#turns >= this.#options.plan.maxTurns) return
    const query = queryOf(args)
    const search: Search = {
      callId,
      id: searchId(),
      query,
      args,
      results: [],
      shown: true,
      begun: false,
      done: false,
      cancel: nothing,
    }
    const refused = this.#refusal(query)
    this.#round.searches.push(search)
    if (refused !== undefined) {
      search.done = true
      search.errorCode = refused
      search.shown = refused !== 'max_uses_exceeded' || formOf(this.#conversation).showsRefusedSearches === true
    } else {
      this.#made++
      this.#run(search)
    }
    this.#queue.push(search)
    this.#drain()
  }

  #refusal(query: string): SearchErrorCode | undefined {
    if (query === '') return 'invalid_tool_input'
    if (query.length > MAX_QUERY) return 'query_too_long'
    if (this.#made >= this.#limit || this.#round.searches.length >= MAX_PER_ROUND) return 'max_uses_exceeded'
    // Nobody is there to read it.
    if (this.#x.clientGone) return 'unavailable'
    return undefined
  }

  #run(search: Search): void {
    const { provider, log } = this.#options
    const controller = new AbortController()
    const settle = (results: Search['results'], errorCode?: SearchErrorCode) => {
      if (search.done) return
      search.done = true
      search.results = results
      search.errorCode = errorCode
      timer.cancel()
      this.#running--
    }
    const failed = (error: unknown) => {
      if (search.done) return
      log.warn({ request_id: this.#x.id, err: error }, 'a web search failed')
      settle([], error instanceof SearchFailed ? error.code : 'unavailable')
      controller.abort()
      this.#resumed()
    }
    const timer: Timer = this.#x.clock.setTimer(SEARCH_MS, () =>
      failed(new SearchFailed('unavailable', `no answer within ${SEARCH_MS / 1000} s`)),
    )
    search.cancel = () => {
      if (search.done) return
      settle([], 'unavailable')
      controller.abort()
    }
    this.#running++
    const ask = async () => {
      if (!provider) throw new SearchFailed('unavailable', 'there is no search provider')
      return provider.search(search.query, {
        maxResults: mostResults(this.#tool),
        allowedDomains: this.#tool.allowedDomains ?? [],
        blockedDomains: this.#tool.blockedDomains ?? [],
        userLocation: this.#tool.userLocation,
        signal: controller.signal,
      })
    }
    ask().then(found => {
      if (search.done) return
      settle(usableResults(found, this.#tool))
      this.#resumed()
    }, failed)
  }

  /** A search has ended by itself. */
  #resumed(): void {
    if (this.#x.closed || this.#concluded) return
    this.#activityMono = this.#x.clock.mono()
    this.#drain()
    this.#x.flush()
    if (this.#round.finish) this.#advance()
  }

  #cancel(): void {
    for (const search of this.#round.searches) search.cancel()
    this.#options.ticker.delete(this)
  }

  // ---- towards the client -----------------------------------------------------------------------------------------------

  #put(event: StreamEvent): void {
    this.#endUnfinished()
    if (this.#queue.length === 0) this.#out(event)
    else this.#queue.push(event)
  }

  /** Its result did not come. */
  #endUnfinished(): void {
    const end = this.#unfinished
    this.#unfinished = null
    if (end) this.#out(end)
  }

  /** Lets out what is no longer held up by a search. */
  #drain(): void {
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
    if (!search.begun) {
      search.begun = true
      if (search.shown) this.#out({ type: 'search_start', id: search.id })
    }
    if (!search.done) return false
    const { id, query, results, errorCode } = search
    if (!search.shown) return true
    // Titles and URLs are the client's. What the pages said is kept for the next turn, and neither metered nor retained with the reply.
    const end: StreamEvent = { type: 'search_end', id, query, results: results.map(({ text: _, ...shown }) => shown) }
    if (errorCode !== undefined) end.errorCode = errorCode
    if (results.some(result => result.text !== undefined)) end.continuation = keepResults(results)
    this.#out(end)
    this.#citations.found(results)
    return true
  }

  #out(event: StreamEvent): void {
    this.#citations.before(event, citation => this.#x.emit(citation))
    this.#x.emit(event)
  }

  // ---- from round to round ----------------------------------------------------------------------------------------------

  /** Goes on once the round is over and its searches have ended. */
  #advance(): void {
    if (this.#running > 0) return
    this.#options.ticker.delete(this)
    this.#drain()
    const { finish, searches, clientCalls } = this.#round
    const { reason } = finish!
    const paused = reason === 'pause' || (searches.length > 0 && (reason === 'tool_calls' || reason === 'stop'))
    if (!paused || clientCalls > 0) {
      // A search that was called when no round may follow was left out.
      const dropped = reason === 'tool_calls' && clientCalls === 0
      this.#conclude(dropped ? { type: 'finish', reason: 'pause' } : finish!)
    } else if (this.#turns >= this.#options.plan.maxTurns || this.#x.clientGone) {
      this.#conclude({ type: 'finish', reason: 'pause' })
    } else this.#next()
  }

  #next(): void {
    const before = this.#conversation
    const round = this.#round
    const left = before.maxOutputTokens === undefined ? undefined : this.#outputLeft()
    if (left !== undefined && left < 1) return this.#conclude({ type: 'finish', reason: 'length' })
    const turns = [...before.turns]
    const said = turns.at(-1)
    // The provider has gone on with the search that it had paused in: it is whole in this round's.
    if (round.resumed !== null && said) turns[turns.length - 1] = { ...said, parts: said.parts.slice(0, -1) }
    append(turns, 'assistant', round.recorder.turn()?.parts ?? [])
    append(
      turns,
      'tool',
      round.searches.map(search => resultOf(search, this.#tool.path)),
    )
    this.#turns++
    const next: Conversation = { ...before, turns, toolChoice: relaxed(before.toolChoice, this.#name) }
    if (left !== undefined) next.maxOutputTokens = left
    if (this.#name === null) this.#lowerNativeLimits(next)
    else if (this.#mustAnswer()) next.toolChoice = withoutSearch(next, this.#name)
    this.#conversation = next
    this.#round = new Round(this.#ordered)
    this.#attempts.send(next, this)
  }

  /** The client's cap is one for all rounds; a provider that reports no usage leaves each its own. */
  #outputLeft(): number {
    return this.#first.maxOutputTokens! - (this.#usage?.output ?? 0)
  }

  /** No search would be run any more: the model has to answer with what it has, unless the reply can say that it paused. */
  #mustAnswer(): boolean {
    return (
      this.#made >= this.#limit || (this.#turns >= this.#options.plan.maxTurns && !formOf(this.#conversation).pauses)
    )
  }

  #lowerNativeLimits(next: Conversation): void {
    const less = (limit: number | undefined) => (limit === undefined ? undefined : Math.max(1, limit - this.#made))
    const { tools, maxSearches } = this.#first
    next.tools = tools.map(tool => (tool === this.#tool ? { ...tool, maxUses: less(tool.maxUses) } : tool))
    if (maxSearches !== undefined) next.maxSearches = less(maxSearches)
  }

  #conclude(finish: FinishEvent): void {
    if (this.#concluded) return
    this.#concluded = true
    this.#cancel()
    this.#endUnfinished()
    if (this.#usage) this.#out(this.#reported(this.#usage))
    this.#out(finish)
    this.#x.end()
  }

  /** Where some rounds were reported, the others' reasoning is added: the report of the whole is taken at its word (METER-4). */
  #reported(usage: ProviderUsage): StreamEvent {
    if (this.#unreported === 0) return { type: 'usage', usage }
    const reasoning = (usage.reasoning ?? 0) + this.#unreported
    return { type: 'usage', usage: { ...usage, reasoning }, estimated: true }
  }

  // ---- the exchange's control and clocks, while only searches run ---------------------------------------------------------

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    this.#activityMono = this.#x.clock.mono()
  }

  abort(): undefined {
    this.#concluded = true
    this.#cancel()
    return undefined
  }

  tick(now: number): void {
    if (this.#concluded || this.#paused) return
    const { clocks, startedMono } = this.#attempts
    if (now - startedMono >= clocks.ceiling) this.#stop('ceiling_timeout')
    else if (now - this.#activityMono >= clocks.idle) this.#stop('idle_timeout')
  }

  #stop(reason: FinishReason): void {
    this.#cancel()
    this.#drain()
    this.#conclude({ type: 'finish', reason })
  }
}

/** The prompt is the client's, once: its cache figures are those of the first round. Output is that of all rounds. */
function added(sum: ProviderUsage | null, round: ProviderUsage, first: boolean): ProviderUsage {
  if (first || sum === null)
    return first ? round : { output: round.output, reasoning: round.reasoning, searches: round.searches }
  const plus = (a: number | undefined, b: number | undefined) => (a === undefined ? b : a + (b ?? 0))
  return {
    ...sum,
    output: plus(sum.output, round.output),
    reasoning: plus(sum.reasoning, round.reasoning),
    searches: plus(sum.searches, round.searches),
  }
}

/** The query of a call; '' when there is none. Models do not always keep to the schema. */
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

function nothing(): void {}
