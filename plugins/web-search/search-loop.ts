/**
 * Runs the hosted searches of a call whose backend cannot search: it makes a call for each round, between
 * their replies and the sink of the whole.
 *
 *   start ──► round: the next layer ──► emit … end ──► searches done? ──► conclude: the call ends
 *               ▲                                          │
 *               └───── the conversation and its results ───┘
 *
 * The events of a round's reply pass
 *
 *   emit ──► the round's Sequencer ──► #ordered ──► ShownOrder (a running search blocks it) ──► sink
 *
 * Each round has its own Sequencer, since its usage and its finish are not the call's. The model's calls of the
 * search function are taken out and run. The client sees `search_start` and `search_end` in place of the call, and
 * later events wait behind them, so that the order stays. When a round is over and all its calls are searches, the next
 * round goes out with the results; the last round's finish ends the reply.
 *
 * A round with calls of the client's own tools is the last: its searches are run and shown, and the client answers the
 * other calls. The same loop continues a native search that its provider pauses.
 */
import {
  type Conversation,
  capped,
  formOf,
  type SearchResult,
  type SearchTool,
  type Turn,
} from '../../core/canon/conversation.ts'
import type { FinishEvent, FinishReason, StreamEvent } from '../../core/canon/events.ts'
import { ReplyRecorder } from '../../core/canon/recorder.ts'
import { Sequencer } from '../../core/engine/sequence.ts'
import {
  type Call,
  type CallControl,
  type CallSink,
  type Logger,
  Relay,
  type Send,
  SinkAround,
} from '../../core/plugin.ts'
import { resultsOf, type SearchErrorCode, type SearchProvider } from '../../core/ports/search.ts'
import type { Ticker, Ticking } from '../../core/tools/ticker.ts'
import { PromptCount, TokenCounter } from '../../meter/index.ts'
import { RoundsUsage } from '../shared/rounds-usage.ts'
import type { SearchPlan } from '../shared/slots.ts'
import { append, relaxed, resultOf, withoutSearch } from './function-form.ts'
import { Search } from './search.ts'
import { ShownOrder } from './shown-order.ts'

/**
 * reading    the call of a round runs
 * searching  the round is over, and its searches run: the loop's own clocks run
 * concluded  the reply has its end, or the call was aborted
 */
type State = 'reading' | 'searching' | 'concluded'

/** The longest query, in UTF-16 units. */
const MAX_QUERY = 1000
/** The most searches in one round; more are refused, whatever the client allows. */
const MAX_PER_ROUND = 16

export interface SearchLoopOptions {
  plan: SearchPlan
  provider: SearchProvider | undefined
  ticker: Ticker
  log: Logger
}

type SearchEnd = Extract<StreamEvent, { type: 'search_end' }>

class Round {
  readonly sequencer: Sequencer
  readonly recorder = new ReplyRecorder()
  readonly searches: Search[] = []
  /** The search call whose arguments are being read. */
  call: { id: string; args: string } | null = null
  /** How many calls of the client's tools the round has. */
  clientCalls = 0
  finish: FinishEvent | null = null
  /** Whether the provider reported the round's usage. */
  reported = false
  reasoning: TokenCounter | null = null
  /** The id, in this round, of the native search that the round before left unfinished. */
  resumed: string | null = null

  constructor(ordered: (event: StreamEvent) => void) {
    this.sequencer = new Sequencer(ordered)
  }

  get searching(): boolean {
    return this.searches.some(search => !search.done)
  }
}

export class SearchLoop extends SinkAround implements CallControl, Ticking {
  place = -1
  readonly #call: Call
  readonly #next: Send
  readonly #relay = new Relay()
  /** The conversation of the first round. */
  readonly #first: Conversation
  readonly #options: SearchLoopOptions
  readonly #tool: SearchTool
  /** The function's name upstream; null when the provider searches itself. */
  readonly #name: string | null
  /** The most searches of the request. */
  readonly #limit: number
  /** Bytes of results that the model may still get. Each round sends all of them again. */
  #resultBytes: number
  readonly #shown: ShownOrder
  readonly #usage = new RoundsUsage()
  #state: State = 'reading'
  /** The conversation of the current round. */
  #conversation: Conversation
  #round: Round
  /** Tokens of the prompt of the current round. */
  #promptTokens: number
  /** Rounds before the current one. */
  #earlierRounds = 0
  /** Searches that were run, by the gateway or by the provider. */
  #made = 0
  /** Calls that the client has been shown. */
  #calls = 0
  /**
   * The end of a native search in which the provider paused. It is kept back, because the next round may bring the real
   * end.
   */
  #unfinished: SearchEnd | null = null
  #paused = false
  #activityMono = 0

  constructor(call: Call, sink: CallSink, next: Send, options: SearchLoopOptions) {
    super(sink)
    const { plan } = options
    const first = call.sent
    this.#call = call
    this.#next = next
    this.#first = first
    this.#options = options
    this.#conversation = first
    this.#tool = plan.tool
    this.#name = plan.name
    this.#limit = Math.min(
      plan.tool.maxUses ?? Number.POSITIVE_INFINITY,
      first.maxSearches ?? Number.POSITIVE_INFINITY,
      plan.name === null ? Number.POSITIVE_INFINITY : plan.maxSearches,
    )
    this.#resultBytes = plan.maxResultBytes
    this.#promptTokens = call.input
    this.#round = new Round(this.#ordered)
    this.#shown = new ShownOrder(event => sink.emit(event))
    if (this.#name === null) return
    for (const turn of first.turns) {
      for (const part of turn.parts) if (part.type === 'search') this.#shown.knows(resultsOf(part))
    }
    call.facts.defer(() => this.#cancel())
  }

  start(): this {
    this.#send(this.#first)
    return this
  }

  #send(sent: Conversation): void {
    this.#relay.make(() => this.#next({ ...this.#call, sent, input: this.#promptTokens }, this))
  }

  // ---- a round's reply ----------------------------------------------------------------------------------------------

  override emit(event: StreamEvent): void {
    this.#round.sequencer.push(event)
  }

  /** The round's call is over. */
  override end(): void {
    if (this.closed) return
    const round = this.#round
    round.sequencer.end({ type: 'finish', reason: 'stop' })
    const { reason } = round.finish!
    if (!round.reported) this.#usage.addUnreported(round.reasoning?.total ?? 0)
    // A clock stopped the round, or it was only drained: running searches have no time or no reader left.
    if (reason === 'idle_timeout' || reason === 'ceiling_timeout' || this.clientGone) this.#cancel()
    if (round.searching) {
      this.#state = 'searching'
      this.#activityMono = this.#call.facts.clock.mono()
      this.#relay.to(null)
      this.#options.ticker.add(this)
      this.flush()
    }
    this.#advance()
  }

  readonly #ordered = (event: StreamEvent): void => {
    const round = this.#round
    switch (event.type) {
      case 'activity':
        this.sink.emit(event)
        return
      case 'usage':
        round.reported = true
        this.#usage.add(event.usage, this.#earlierRounds === 0)
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

  /** The client sees one search, even if its provider takes several rounds for it. */
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

  // ---- searches -----------------------------------------------------------------------------------------------------

  #called(callId: string, args: string): void {
    // No round may follow: this one ends the reply, and its search calls are not run.
    if (this.#earlierRounds >= this.#options.plan.maxTurns) return
    const search = new Search(callId, args)
    const refused = this.#refusal(search.query)
    this.#round.searches.push(search)
    if (refused === undefined) {
      this.#made++
      this.#run(search)
    } else {
      search.refuse(refused)
      if (refused === 'max_uses_exceeded' && !formOf(this.#conversation).showsRefusedSearches) return
    }
    this.#shown.search(search)
  }

  #refusal(query: string): SearchErrorCode | undefined {
    if (query === '') return 'invalid_tool_input'
    if (query.length > MAX_QUERY) return 'query_too_long'
    if (this.#isUsedUp || this.#round.searches.length >= MAX_PER_ROUND) return 'max_uses_exceeded'
    // The client has disconnected, so nobody would read the result.
    if (this.clientGone) return 'unavailable'
    return undefined
  }

  /** No further search is made for the request. */
  get #isUsedUp(): boolean {
    return this.#made >= this.#limit || this.#resultBytes < 0
  }

  #run(search: Search): void {
    const { provider, log } = this.#options
    const failed = (error: unknown) => log.warn({ request_id: this.#call.facts.id, err: error }, 'a web search failed')
    search.run(provider, this.#tool, this.#call.facts.clock, this.#kept, () => this.#searchEnded(), failed)
  }

  /** The results of a search that the model may still get, best first. */
  readonly #kept = (results: SearchResult[]): SearchResult[] => {
    const kept = []
    for (const result of results) {
      this.#resultBytes -= sizeOf(result)
      if (this.#resultBytes < 0) break
      kept.push(result)
    }
    return kept
  }

  #searchEnded(): void {
    if (this.closed || this.#state === 'concluded') return
    this.#activityMono = this.#call.facts.clock.mono()
    this.#shown.drain()
    this.flush()
    if (this.#state === 'searching') this.#advance()
  }

  #cancel(): void {
    for (const search of this.#round.searches) search.cancel()
    this.#options.ticker.delete(this)
  }

  // ---- towards the client -------------------------------------------------------------------------------------------

  #put(event: StreamEvent): void {
    this.#endUnfinished()
    this.#shown.event(event)
  }

  /** Ends the unfinished search, whose result did not come. */
  #endUnfinished(): void {
    const end = this.#unfinished
    this.#unfinished = null
    if (end) this.#shown.event(end)
  }

  // ---- from round to round ------------------------------------------------------------------------------------------

  /** Continues once the round is over and its searches have ended. */
  #advance(): void {
    if (this.#round.searching) return
    this.#options.ticker.delete(this)
    this.#shown.drain()
    const { finish, searches, clientCalls } = this.#round
    const { reason } = finish!
    const paused = reason === 'pause' || (searches.length > 0 && (reason === 'tool_calls' || reason === 'stop'))
    if (!paused || clientCalls > 0) {
      // A search call was left out, because no round may follow.
      const dropped = reason === 'tool_calls' && clientCalls === 0
      this.#conclude(dropped ? { type: 'finish', reason: 'pause' } : finish!)
    } else if (this.#earlierRounds >= this.#options.plan.maxTurns || this.clientGone) {
      this.#conclude({ type: 'finish', reason: 'pause' })
    } else this.#nextRound()
  }

  #nextRound(): void {
    const before = this.#conversation
    const round = this.#round
    const left = before.maxOutputTokens === undefined ? undefined : this.#outputLeft()
    if (left !== undefined && left < 1) return this.#conclude({ type: 'finish', reason: 'length' })
    const turns = [...before.turns]
    const said = turns.at(-1)
    // The provider has continued the search in which it had paused: this round has the whole search.
    if (round.resumed !== null && said) turns[turns.length - 1] = { ...said, parts: said.parts.slice(0, -1) }
    const spoken = round.recorder.turn()?.parts ?? []
    const found = round.searches.map(search => resultOf(search, this.#tool.path))
    append(turns, 'assistant', spoken)
    append(turns, 'tool', found)
    this.#earlierRounds++
    this.#promptTokens += tokensOf(before, spoken, found)
    this.#call.report.calledAgain(this.#promptTokens)
    const next: Conversation = { ...capped(before, left), turns, toolChoice: relaxed(before.toolChoice, this.#name) }
    if (this.#name === null) this.#lowerNativeLimits(next)
    else if (this.#mustAnswer()) next.toolChoice = withoutSearch(next, this.#name)
    this.#conversation = next
    this.#round = new Round(this.#ordered)
    this.#state = 'reading'
    this.#send(next)
  }

  /**
   * Output tokens that are left. The client's cap is one for all rounds; a round without a usage report takes nothing
   * from it.
   */
  #outputLeft(): number {
    return this.#first.maxOutputTokens! - this.#usage.output
  }

  /**
   * No further search would be run: the model has to answer with what it has, unless the client's API can say that the
   * reply paused.
   */
  #mustAnswer(): boolean {
    return this.#isUsedUp || (this.#earlierRounds >= this.#options.plan.maxTurns && !formOf(this.#conversation).pauses)
  }

  #lowerNativeLimits(next: Conversation): void {
    const less = (limit: number | undefined) => (limit === undefined ? undefined : Math.max(1, limit - this.#made))
    const { tools, maxSearches } = this.#first
    next.tools = tools.map(tool => (tool === this.#tool ? { ...tool, maxUses: less(tool.maxUses) } : tool))
    if (maxSearches !== undefined) next.maxSearches = less(maxSearches)
  }

  #conclude(finish: FinishEvent): void {
    if (this.#state === 'concluded') return
    this.#state = 'concluded'
    this.#cancel()
    const usage = this.#usage.report()
    if (usage) this.#put(usage)
    this.#put(finish)
    this.sink.end()
  }

  // ---- the call's control, and its clocks while only searches run ---------------------------------------------------

  pause(): void {
    this.#paused = true
    this.#relay.pause()
  }

  resume(): void {
    this.#paused = false
    this.#activityMono = this.#call.facts.clock.mono()
    this.#relay.resume()
  }

  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    const draining = this.#relay.abort(reason)
    // A round that is drained concludes by itself.
    if (draining === undefined) {
      this.#state = 'concluded'
      this.#cancel()
    }
    return draining
  }

  tick(now: number): void {
    if (this.#state !== 'searching' || this.#paused) return
    const { clocks, startedMono } = this.#call
    if (now - startedMono >= clocks.ceiling) this.#stop('ceiling_timeout')
    else if (now - this.#activityMono >= clocks.idle) this.#stop('idle_timeout')
  }

  #stop(reason: FinishReason): void {
    this.#cancel()
    this.#shown.drain()
    this.#conclude({ type: 'finish', reason })
  }
}

/** What a round adds to the prompt of the next one, in tokens. There are no files in it. */
function tokensOf(before: Conversation, spoken: Turn['parts'], found: Turn['parts']): number {
  const turns: Turn[] = []
  append(turns, 'assistant', spoken)
  append(turns, 'tool', found)
  const { output: _, ...rest } = before
  return new PromptCount({ ...rest, system: [], tools: [], turns }).now({ image_tokens: 0, document_tokens: 0 })
}

/** Bytes of the texts of a result. */
function sizeOf({ title, url, text, pageAge }: SearchResult): number {
  return Buffer.byteLength(`${title}${url}${text ?? ''}${pageAge ?? ''}`)
}
