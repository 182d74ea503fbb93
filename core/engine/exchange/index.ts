/**
 * One request and its response on their way through a chain. docs/architecture.md draws the way, core/README.md lists
 * the parts.
 *
 * Each part has its own state: how far the request came (way-down.ts), from which link the reply comes back
 * (way-back.ts), which events may not leave yet (holds.ts), what the client was sent (reply.ts), and whether all of
 * this is over (lifetime.ts). A part knows only the members of the exchange that it declares (`WayDownOwner`,
 * `HoldsOwner`, …). This file connects the parts. It is the object that plugins see, and it decides what an event, an
 * answer, a failure or a disconnected client means for each part.
 *
 * Everything here is synchronous except request hooks that return a promise, the arrival of the body, and what the
 * upstream sends. Whatever happens, the exchange is settled exactly once, and only then do deferred releases run.
 */

import { asGatewayError, GatewayError, retryHeaders, setRetryAfter } from '../../canon/errors.ts'
import type { FinishEvent, StreamEvent } from '../../canon/events.ts'
import type { Logger, Reply, SentTap, Settlement, Slot, StreamWatch, UpstreamControl } from '../../plugin.ts'
import { emptySlots } from '../../plugin.ts'
import type { HeaderList, Incoming } from '../../ports/listener.ts'
import type { Outcome } from '../../ports/store.ts'
import { errorBody, knownSurface, type SentStream, type Surface } from '../../ports/surface.ts'
import type { Clock } from '../../tools/clock.ts'
import type { Placed } from '../../tools/collections.ts'
import { token } from '../../tools/ids.ts'
import type { Chain, Link } from '../chain.ts'
import { outcomeOf, outcomeOfCut, outcomeOfFinish } from '../outcome.ts'
import { Timeline } from '../timeline.ts'
import { Holds, type HoldsOwner } from './holds.ts'
import { Lifetime, type LifetimeOwner } from './lifetime.ts'
import { ClientReply, type ReplyHost, type ReplyOwner } from './reply.ts'
import { WayBack } from './way-back.ts'
import { WayDown, type WayDownOwner } from './way-down.ts'

/** The gateway around an exchange. */
export interface ExchangeHost extends ReplyHost {
  readonly clock: Clock
  readonly log: Logger
  random(): number
  /** Called once for each exchange, when it is settled. */
  onSettled(x: RunningExchange, settlement: Settlement): void
}

export class RunningExchange implements Placed, WayDownOwner, HoldsOwner, ReplyOwner, LifetimeOwner {
  /** Index in the set of running exchanges; -1 while it is not in the set. */
  place = -1
  readonly id: string
  readonly incoming: Incoming
  surface: Surface | undefined
  readonly route: string
  readonly startedAt: number
  readonly clock: Clock
  readonly chain: Chain
  readonly host: ExchangeHost
  /** Null unless the exchange is sampled. */
  readonly timeline: Timeline | null

  readonly #callersForm: Surface | undefined
  readonly #startMono: number
  readonly #values = emptySlots()
  readonly #down: WayDown
  readonly #holds: Holds
  readonly #back: WayBack
  readonly #reply: ClientReply
  readonly #life = new Lifetime()
  #objectId: string | undefined
  #upstream: UpstreamControl | null = null
  /** A stream goes on when its client disconnects. */
  #runsOn = false
  /** The finish of a reply whose earlier bytes a slow client has not taken yet. */
  #finish: FinishEvent | null = null

  constructor(
    id: string,
    incoming: Incoming,
    chain: Chain,
    surface: Surface | undefined,
    route: string,
    host: ExchangeHost,
    callersForm?: Surface,
  ) {
    this.id = id
    this.incoming = incoming
    this.chain = chain
    this.surface = surface
    this.#callersForm = callersForm
    this.route = route
    this.clock = host.clock
    this.startedAt = host.clock.now()
    this.host = host
    this.#startMono = host.clock.mono()
    this.timeline = Timeline.sample(host.clock, this.#startMono)
    this.#down = new WayDown(this)
    this.#holds = new Holds(this)
    this.#back = new WayBack(this, this.#holds)
    this.#reply = new ClientReply(this, this.#back)
  }

  start(): void {
    this.incoming.onAborted(() => this.#onClientGone())
    this.#down.run(0)
  }

  // ---- for all plugins ----------------------------------------------------------------------------------------------

  get errorForm(): Surface | undefined {
    return knownSurface(this.surface) ?? this.#callersForm
  }
  get objectId(): string {
    this.#objectId ??= token(24)
    return this.#objectId
  }
  get closed(): boolean {
    return this.#life.settled
  }
  /** Whether the request has reached the terminal. */
  get forwarded(): boolean {
    return this.#down.entered >= this.chain.links.length
  }
  get clientGone(): boolean {
    return this.#life.clientGone
  }
  get headSent(): boolean {
    return this.#reply.headSent
  }
  get error(): GatewayError | undefined {
    return this.#life.error
  }

  get<T>(slot: Slot<T>): T {
    const value = this.#values[slot.index]
    if (value === undefined) throw new Error(`slot '${slot.name}' is empty`)
    return value as T
  }
  peek<T>(slot: Slot<T>): T | undefined {
    return this.#values[slot.index] as T | undefined
  }
  set<T>(slot: Slot<T>, value: T): void {
    this.#values[slot.index] = value
  }

  defer(release: () => void): void {
    this.#life.defer(release)
  }
  hold(): () => void {
    return this.#holds.take()
  }
  onSent(tap: SentTap): void {
    this.#reply.onSent(tap)
  }

  wholeReply(): string | undefined {
    return this.#reply.wholeReply()
  }
  get sentStream(): SentStream | undefined {
    return this.#reply.sentStream
  }
  runOn(watch: StreamWatch): () => void {
    this.#runsOn = true
    this.#reply.watch(watch)
    return () => {
      this.#runsOn = false
      if (this.#reply.clientLeft) this.#onClientGone()
    }
  }

  // ---- for terminals ------------------------------------------------------------------------------------------------

  control(upstream: UpstreamControl): void {
    this.#upstream = upstream
    if (this.closed) upstream.abort('ended')
    else if (this.#holds.any) upstream.pause()
  }

  sendHead(): void {
    if (!this.closed && !this.headSent) this.#reply.sendHead()
  }

  respondHead(status: number, headers: HeaderList): void {
    if (!this.closed && !this.headSent) this.#reply.openBytes(status, headers)
  }

  reply(reply: Reply): void {
    if (!this.closed && !this.headSent) this.answer(reply, this.#back.from)
  }

  emit(event: StreamEvent): void {
    if (!this.closed) this.#back.emit(event)
  }

  flush(): boolean {
    // A client that has disconnected holds no draining upstream back.
    return (this.clientGone || this.#reply.flush()) && !this.#holds.any
  }

  end(): void {
    if (this.closed || this.#back.upstreamEnded) return
    this.#back.end(this.#reply.isBytes)
    if (!this.#holds.any) this.#finishUp()
  }

  /**
   * The upstream has ended and all that it sent has left. Ends a reply of bytes; other replies have ended with their
   * `finish`.
   */
  #finishUp(): void {
    if (this.closed || this.#finish) return
    if (this.#life.state === 'draining') return this.#settle('client_gone')
    if (this.#reply.isBytes) {
      this.#reply.endBytes()
      return this.#settle('completed')
    }
    this.host.log.error({ request_id: this.id }, 'a plugin kept the finish event back, and took no hold')
    this.fail(asGatewayError(undefined))
  }

  fail(error: GatewayError): void {
    if (this.closed) return
    if (this.#life.state === 'draining') {
      this.#life.error = error
      return this.#settle('client_gone')
    }
    if (!this.headSent) return this.answer({ kind: 'error', error }, this.#back.from)
    this.#ownError(error)
    // Events from before the failure leave before the error: a hold only delays.
    this.#holds.giveUp()
    if (this.closed) return
    this.#reply.failStream(error)
    this.#upstream?.abort('ended')
    this.#settle(this.#reply.delivered ? outcomeOfCut(error) : outcomeOf(error))
  }

  // ---- events that have passed the response hooks -------------------------------------------------------------------

  /** An event has passed all response hooks and holds: it goes to the client. */
  leave(event: StreamEvent): void {
    if (this.#life.state !== 'running') return
    switch (event.type) {
      case 'bytes':
        return this.#reply.bytes(event.bytes)
      case 'usage':
        return
      case 'error':
        // Held events that came after the error are discarded.
        this.#holds.drop()
        return this.fail(event.error)
    }
    if (!this.surface) return
    if (event.type !== 'finish') return this.#reply.event(event)
    if (this.#reply.mayEnd()) return this.#complete(event)
    if (this.closed) return
    this.#finish = event
    this.#upstream?.abort('ended')
  }

  /** Ends a reply with its finish. */
  #complete(finish: FinishEvent): void {
    if (this.closed || !this.#reply.finish(finish)) return
    this.#upstream?.abort('ended')
    this.#settle(outcomeOfFinish(finish, this.#back.origin))
  }

  held(): void {
    this.#upstream?.pause()
  }

  released(): void {
    if (this.closed) return
    if (this.#back.upstreamEnded) return this.#finishUp()
    if (this.flush()) this.#upstream?.resume()
  }

  /** A slow client has read the bytes that waited for it. */
  drained(): void {
    if (this.closed) return
    if (!this.#finish) {
      if (!this.#holds.any) this.#upstream?.resume()
      return
    }
    try {
      this.#complete(this.#finish)
    } catch (error) {
      this.crashed(error)
    }
  }

  // ---- answers by the gateway itself --------------------------------------------------------------------------------

  /** @param from index of a link: the response hooks of the links above it run, then those below the terminal */
  answer(reply: Reply, from: number): void {
    if (this.closed) return
    this.#back.replyHere(from)
    if (reply.kind === 'error') reply = this.#back.recover(reply.error) ?? reply
    switch (reply.kind) {
      case 'error':
        return this.#answerError(reply.error)
      case 'refusal':
        this.#back.pass({ type: 'refusal', text: reply.text })
        this.#back.pass({ type: 'finish', reason: 'refusal', explanation: reply.text })
        return
      case 'empty':
        return this.#back.pass({ type: 'finish', reason: 'stop' })
      case 'json': {
        const headers = Object.entries({ 'content-type': 'application/json', ...reply.headers })
        const head = this.#back.head(reply.status, headers)
        this.#reply.whole(head, typeof reply.body === 'string' ? reply.body : (JSON.stringify(reply.body) ?? ''))
        return this.#settle('completed')
      }
      case 'raw': {
        const head = this.#back.head(reply.status, reply.headers)
        if (reply.whole) this.#reply.whole(head, reply.body)
        else if (!this.#reply.partial(head, reply.body)) return
        return this.#settle('replayed')
      }
    }
  }

  #answerError(error: GatewayError): void {
    this.#ownError(error)
    const headers: [string, string][] = [['content-type', 'application/json']]
    for (const [name, value] of Object.entries(error.headers ?? {})) headers.push([name, value])
    for (const [name, value] of Object.entries(retryHeaders(error))) headers.push([name, value])
    this.#reply.whole(this.#back.head(error.status, headers), errorBody(this.errorForm, error, this.id))
    this.#upstream?.abort('ended')
    this.#settle(outcomeOf(error))
  }

  #ownError(error: GatewayError): void {
    this.#life.error = error
    setRetryAfter(error, () => this.host.random())
  }

  /** Answers with an error and without running any response hook, because what the plugins made cannot be sent. */
  answerBare(cause: unknown, what: string): void {
    this.logError(cause, what)
    const error = asGatewayError(cause)
    this.#life.error = error
    this.#reply.bare(error)
    this.#upstream?.abort('ended')
    this.#settle('gateway_error')
  }

  // ---- unexpected errors --------------------------------------------------------------------------------------------

  /**
   * An error that nothing else caught. Whatever state it left behind, the client's reply is ended and the exchange
   * settled.
   */
  crashed(cause: unknown): void {
    if (this.closed) return this.logError(cause, 'an exchange failed after its end')
    if (!this.headSent) return this.answerBare(cause, 'the reply cannot be made')
    this.logError(cause, 'the reply cannot be finished')
    this.#life.error ??= asGatewayError(cause)
    this.#reply.cut()
    this.#upstream?.abort('ended')
    this.#settle('gateway_error')
  }

  /** Counts and logs an error of a plugin. */
  hookFailed(link: Link, error: unknown, what = 'plugin failed', level: 'warn' | 'error' = 'error'): void {
    link.stats.errors++
    this.host.log[level]({ request_id: this.id, plugin: link.id, err: error }, what)
  }

  logError(error: unknown, what: string): void {
    this.host.log.error({ request_id: this.id, err: error }, what)
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /** The drain deadline has passed: a running exchange ends with an error frame or an error reply. */
  expire(): void {
    // No client waits for the rest of a draining upstream, and it would not end by itself in time.
    if (this.#life.state === 'draining') this.#upstream?.abort('ended')
    this.fail(
      new GatewayError('route_unavailable', {
        message: 'A platform service is restarting and ended this request. Retry it.',
      }),
    )
  }

  #onClientGone(): void {
    if (this.closed) return
    if (this.#runsOn && this.#reply.goesOn()) return this.drained()
    // If the control returns 'draining', the end of the upstream settles the exchange. An upstream that was paused
    // for a slow client may resume within this call. `clientLeft` comes first, so that none of its events is written
    // for the client: the write would pause the upstream again.
    this.#life.clientLeft()
    if (this.#upstream?.abort('client_gone') === 'draining') return this.#reply.stopKeepAlive()
    this.#life.notDraining()
    this.#settle('client_gone')
  }

  #settle(outcome: Outcome): void {
    if (this.closed) return
    this.#back.reportLate()
    if (this.closed) return
    this.#reply.stopKeepAlive()
    const now = this.clock.mono()
    const { delivered, status, firstByteMono } = this.#reply
    const settlement: Settlement = {
      outcome,
      delivered,
      status,
      error: this.error,
      durationMs: now - this.#startMono,
      ttfbMs: firstByteMono === null ? null : firstByteMono - this.#startMono,
    }
    this.timeline?.ended(this.chain.links[this.chain.terminal]!)
    const written = this.#life.settle(this, settlement, this.#down.entered)
    this.#holds.drop()
    if (written === undefined || !this.#reply.waits) {
      written?.catch(error => this.logError(error, 'the outcome could not be written, and no reply waits for it'))
      this.#over(settlement)
    } else
      written.then(
        () => this.#over(settlement),
        error => this.#unwritten(error, settlement),
      )
  }

  #over(settlement: Settlement): void {
    try {
      this.#reply.handOver()
    } catch (error) {
      this.logError(error, 'the end of the reply cannot be sent')
      this.#reply.cut()
    }
    this.host.onSettled(this, settlement)
  }

  /** The outcome was not written: the client must not get a whole reply that the ledger may not know. */
  #unwritten(cause: unknown, settlement: Settlement): void {
    const error = asGatewayError(cause)
    this.logError(cause, 'the outcome could not be written, so the reply is not finished')
    this.#ownError(error)
    this.#reply.withdraw(error)
    this.host.onSettled(this, { ...settlement, outcome: 'gateway_error', status: this.#reply.status, error })
  }
}
