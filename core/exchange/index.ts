/**
 * One request and its response, on its way through a chain. core/README.md draws this folder as one chart.
 *
 * Everything here is synchronous but a request hook that answers with a promise, the body's arrival, and what the upstream sends.
 * Whatever happens, `#settle` runs exactly once, and it is the only place where deferred releases run.
 */
import type { Chain, EventStep, Link } from '../chain.ts'
import type { Clock } from '../clock.ts'
import type { Placed } from '../collections.ts'
import { advertise, asGatewayError, GatewayError, retryHeaders } from '../errors.ts'
import { type FinishEvent, type StreamEvent, type Usage, ZERO_USAGE } from '../events.ts'
import { HeaderFields } from '../header-fields.ts'
import { itemId, searchId, token } from '../ids.ts'
import type { HeaderList, Incoming, OutgoingStream } from '../listener.ts'
import { outcomeOf, outcomeOfCut, outcomeOfFinish } from '../outcome.ts'
import type { Exchange, Logger, Reply, ResponseHead, SentTap, Settlement, Slot, UpstreamControl } from '../plugin.ts'
import { conversation, deny, emptySlots, estimate, request, requestBody, usage } from '../plugin.ts'
import { Sequencer } from '../sequence.ts'
import { type Outcome, StoreUnavailable } from '../store.ts'
import { type EncodeContext, type Encoder, errorBody, type Surface } from '../surface.ts'
import type { Ticker, Ticking } from '../ticker.ts'
import { Timeline } from '../timeline.ts'

/** What an exchange needs of the gateway around it. */
export interface ExchangeHost {
  readonly clock: Clock
  readonly log: Logger
  readonly ticker: Ticker
  readonly keepAliveMs: number
  random(): number
  /** Called once for each exchange, when it is settled. */
  onSettled(x: RunningExchange, settlement: Settlement): void
}

const SSE_HEADERS: HeaderList = [
  ['content-type', 'text/event-stream; charset=utf-8'],
  ['cache-control', 'no-cache, no-transform'],
  ['x-accel-buffering', 'no'],
]

const mint: EncodeContext['mint'] = prefix => (prefix === 'item_eba1_' ? itemId() : searchId())

const PHASE = { open: 0, headSent: 1, answered: 2 } as const
type Phase = (typeof PHASE)[keyof typeof PHASE]

/** A head as the listener takes it. */
interface SentHead extends ResponseHead {
  headers: HeaderFields
}

const text = new TextEncoder()

export class RunningExchange implements Exchange, Placed {
  /** Among the running. */
  place = -1
  readonly id: string
  readonly incoming: Incoming
  readonly surface: Surface | undefined
  readonly route: string
  readonly startedAt: number
  readonly clock: Clock
  readonly chain: Chain
  /** Filled for sampled exchanges only. */
  readonly timeline: Timeline | null

  #objectId: string | undefined
  readonly #host: ExchangeHost
  readonly #startMono: number
  readonly #values = emptySlots()
  readonly #sequencer: Sequencer
  #defers: (() => void)[] = []
  #taps: SentTap[] | null = null
  #control: UpstreamControl | null = null

  /** What a rewriting step pushes to, by the step behind it: made once, since most streams pass it for each event. */
  readonly #pushes: ((event: StreamEvent) => void)[] = []
  /** Events that rewriting steps have pushed. */
  #pushed = 0

  /** Index of the furthest link whose request hook was entered. */
  #entered = -1
  /** Response hooks start from this link: those above it were passed. */
  #from: number
  #holds = 0
  /** What waits behind a hold, in order. */
  #held: StreamEvent[] = []
  #phase: Phase = PHASE.open
  #encoder: Encoder | null = null
  #out: OutgoingStream | null = null
  #streaming = false
  /** The reply is the upstream's own bytes (proxy): no encoder, no events. */
  #bytesReply = false
  #dirty = false
  #ending = false
  #delivered = false
  #status = 0
  #firstByteMono: number | null = null
  #lastWriteMono = 0
  #keepAlive: KeepAlive | null = null
  #settled = false
  #clientGone = false
  #draining = false
  #error: GatewayError | undefined
  /** Set while the answer is the gateway's own (error, refusal, local terminal). */
  #origin: 'upstream' | 'gateway' = 'upstream'

  constructor(
    id: string,
    incoming: Incoming,
    chain: Chain,
    surface: Surface | undefined,
    route: string,
    host: ExchangeHost,
  ) {
    this.id = id
    this.incoming = incoming
    this.chain = chain
    this.surface = surface
    this.route = route
    this.clock = host.clock
    this.startedAt = host.clock.now()
    this.#host = host
    this.#startMono = host.clock.mono()
    this.#from = chain.terminal
    this.#sequencer = new Sequencer(event => this.#pass(event, 0))
    this.timeline = Timeline.sample(host.clock, this.#startMono)
  }

  // ---- the way down ---------------------------------------------------------------------------------------------------

  start(): void {
    this.incoming.onAborted(() => this.#onClientGone())
    this.#run(0)
  }

  #run(i: number): void {
    try {
      this.#runSteps(i)
    } catch (error) {
      this.#crashed(error)
    }
  }

  #runSteps(i: number): void {
    const steps = this.chain.steps
    for (; i < steps.length; i++) {
      if (this.#settled) return
      const step = steps[i]!
      if (step.kind === 'body') {
        const next = i + 1
        const t0 = this.timeline?.now() ?? 0
        this.incoming.readBody(this.chain.body!, (fault, body) => {
          if (this.#settled) return
          this.timeline?.body(t0)
          if (fault) this.#answer(bodyFault(fault, this.chain.body!), this.#entered + 1)
          else {
            this.set(requestBody, body)
            this.#run(next)
          }
        })
        return
      }
      const link = step.link
      this.#entered = link.index
      link.stats.calls++
      const t0 = this.timeline?.now() ?? 0
      let result: undefined | Reply | Promise<undefined | Reply>
      try {
        result = step.run(this)
      } catch (error) {
        result = this.#brokenRequest(link, error)
      }
      if (isPromise(result)) {
        const next = i + 1
        result.then(
          reply => {
            this.timeline?.request(link, 'onRequest', t0)
            this.#afterWait(reply, link, next)
          },
          error => this.#afterWait(this.#brokenRequest(link, error), link, next),
        )
        return
      }
      this.timeline?.request(link, 'onRequest', t0)
      if (result !== undefined) {
        const reply = this.#judged(result, link)
        if (reply) return this.#refused(reply, link)
      }
    }
    if (this.#settled) return
    this.#entered = this.chain.links.length
    const t0 = this.timeline?.now() ?? 0
    this.timeline?.forwarding(t0)
    const terminal = this.chain.links[this.chain.terminal]!
    terminal.stats.calls++
    try {
      this.chain.forward(this)
      this.timeline?.request(terminal, 'forward', t0)
    } catch (error) {
      terminal.stats.errors++
      this.#host.log.error({ request_id: this.id, plugin: terminal.id, err: error }, 'terminal failed')
      this.fail(asGatewayError(error))
    }
  }

  #afterWait(result: undefined | Reply, link: Link, next: number): void {
    if (this.#settled) return
    const reply = result === undefined ? undefined : this.#judged(result, link)
    if (!reply) return this.#run(next)
    try {
      this.#refused(reply, link)
    } catch (error) {
      this.#crashed(error)
    }
  }

  /** Types are not checked when a plugin runs: what is no Reply is a fault of its maker's. */
  #judged(result: Reply, link: Link): undefined | Reply {
    if (REPLY_KINDS.has(result?.kind)) return result
    return this.#brokenRequest(link, new TypeError(), 'onRequest returned neither undefined nor a Reply')
  }

  #refused(reply: Reply, link: Link): void {
    if (reply.kind === 'error') link.stats.refusals++
    this.#answer(reply, link.index)
  }

  /** A request hook that throws denies (fail closed), unless its entry says `on_failure: skip`. */
  #brokenRequest(link: Link, error: unknown, what = 'plugin failed'): undefined | Reply {
    if (error instanceof GatewayError) return { kind: 'error', error }
    link.stats.errors++
    this.#host.log[error instanceof StoreUnavailable ? 'warn' : 'error'](
      { request_id: this.id, plugin: link.id, err: error },
      what,
    )
    if (link.skipFailures) return undefined
    return { kind: 'error', error: asGatewayError(error) }
  }

  /** A fault that no hook's own handling caught: whatever state it leaves, the client gets an end, and the exchange is settled. */
  #crashed(cause: unknown): void {
    if (this.#settled) {
      this.#host.log.error({ request_id: this.id, err: cause }, 'an exchange failed after its end')
      return
    }
    if (this.#phase === PHASE.open) return this.#answerBare(cause, 'the reply cannot be made')
    this.#host.log.error({ request_id: this.id, err: cause }, 'the reply cannot be finished')
    this.#error ??= asGatewayError(cause)
    this.#out?.cut()
    this.#control?.abort('ended')
    this.#settle('gateway_error')
  }

  // ---- slots, releases, holds -----------------------------------------------------------------------------------------

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
    // A hook that was still waiting when the client left has acquired too late: give back at once.
    if (this.#settled) release()
    else this.#defers.push(release)
  }

  hold(): () => void {
    if (this.#holds++ === 0) this.#control?.pause()
    let released = false
    return () => {
      if (released) return
      released = true
      if (--this.#holds > 0 || this.#settled) return
      try {
        this.#releaseHeld()
      } catch (error) {
        this.#crashed(error)
      }
    }
  }

  #releaseHeld(): void {
    const held = this.#held
    this.#held = []
    for (let i = 0; i < held.length; i++) {
      if (this.#holds > 0) {
        this.#held = held.slice(i).concat(this.#held)
        return
      }
      this.#leave(held[i]!)
    }
    if (this.#ending) return this.#finishUp()
    if (this.flush()) this.#control?.resume()
  }

  onSent(tap: SentTap): void {
    this.#taps ??= []
    this.#taps.push(tap)
  }

  // ---- for terminals --------------------------------------------------------------------------------------------------

  get objectId(): string {
    this.#objectId ??= token(24)
    return this.#objectId
  }
  get closed(): boolean {
    return this.#settled
  }
  get clientGone(): boolean {
    return this.#clientGone
  }
  get headSent(): boolean {
    return this.#phase !== PHASE.open
  }
  get error(): GatewayError | undefined {
    return this.#error
  }

  control(upstream: UpstreamControl): void {
    this.#control = upstream
    if (this.#settled) upstream.abort('ended')
    else if (this.#holds > 0) upstream.pause()
  }

  emit(event: StreamEvent): void {
    if (this.#settled || this.#ending) return
    this.#sequencer.push(event)
  }

  flush(): boolean {
    if (!this.#dirty || !this.#out) return this.#holds === 0
    this.#dirty = false
    this.#lastWriteMono = this.clock.mono()
    return this.#out.flush() && this.#holds === 0
  }

  end(): void {
    if (this.#settled || this.#ending) return
    if (this.#bytesReply) this.#responseEnd()
    else this.#sequencer.end(() => this.#responseEnd(), { type: 'finish', reason: 'stop' })
    this.#ending = true
    if (this.#holds === 0) this.#finishUp()
  }

  /** All that the upstream sent has left: ends a bytes reply. Others end with their `finish`. */
  #finishUp(): void {
    if (this.#settled) return
    if (this.#draining) return this.#settle('client_gone')
    if (this.#bytesReply && this.#out) {
      this.flush()
      this.#out.end()
      this.#tapEnd(true)
      return this.#settle('completed')
    }
    this.#host.log.error({ request_id: this.id }, 'a plugin kept the finish event back, and took no hold')
    this.fail(asGatewayError(undefined))
  }

  fail(error: GatewayError): void {
    if (this.#settled) return
    if (this.#draining) {
      this.#error = error
      return this.#settle('client_gone')
    }
    if (this.#phase === PHASE.open) return this.#answer({ kind: 'error', error }, this.#from)
    this.#error = error
    advertise(error, () => this.#host.random())
    // What passed before the failure leaves before it: a hold only delays. Not the end: what it was held for has not come about.
    this.#holds = 0
    for (const event of this.#held.splice(0)) if (event.type !== 'finish') this.#leave(event)
    if (this.#settled) return
    if (this.#out) {
      // An error frame is the honest end, and it must arrive: a cut connection takes with it what a slow reader has not read, the frame first of
      // all (ERR-8). What has no frames can only be cut.
      const framed = this.#encoder !== null
      if (this.#encoder) this.#write(this.#encoder.error(error, this.peek(usage)?.usage))
      this.flush()
      if (framed) this.#out.end()
      else this.#out.cut()
      this.#tapEnd(framed)
    }
    this.#control?.abort('ended')
    this.#settle(this.#delivered ? outcomeOfCut(error) : outcomeOf(error))
  }

  reply(reply: Reply): void {
    if (this.#settled || this.#phase !== PHASE.open) return
    this.#answer(reply, this.#from)
  }

  respondHead(status: number, headers: HeaderList): void {
    if (this.#settled || this.#phase !== PHASE.open) return
    this.#bytesReply = true
    this.#openStream(this.#head(status, headers, 'upstream'))
  }

  sendHead(): void {
    if (this.#settled || this.#phase !== PHASE.open) return
    this.#beginStream()
    // A surface may have nothing to say yet, and a head needs a first byte to leave with.
    if (this.#out && !this.#dirty) this.#write(this.#encoder!.keepAlive())
    this.flush()
  }

  #beginStream(): void {
    if (!this.surface) return
    if (this.#encoder === null && !this.#openEncoder()) return
    if (!this.#streaming) return
    if (!this.#openStream(this.#head(200, SSE_HEADERS, this.#origin))) return
    this.#write(this.#encoder!.start())
    this.#keepAlive = new KeepAlive(this)
    this.#host.ticker.add(this.#keepAlive)
  }

  /** Drain deadline: what still runs ends with an honest frame (decisions 16). */
  expire(): void {
    // Nobody waits for the rest of a draining upstream, and it would not end by itself.
    if (this.#draining) this.#control?.abort('ended')
    this.fail(
      new GatewayError('route_unavailable', {
        message: 'A platform service is restarting and ended this request. Retry it.',
      }),
    )
  }

  /** STR-5. */
  keepAlive(now: number): void {
    if (!this.#encoder || !this.#out || this.#ending) return
    if (now - this.#lastWriteMono < this.#host.keepAliveMs || this.#out.buffered > 0) return
    this.#write(this.#encoder.keepAlive())
    this.flush()
  }

  // ---- the way back ---------------------------------------------------------------------------------------------------

  /** Passes an event through the response hooks from step `i` on; then it leaves. */
  #pass(event: StreamEvent, i: number): void {
    // Nothing is seen by hooks whose exchange has been settled.
    if (this.#settled) return
    if (this.timeline && this.#origin === 'upstream') this.timeline.replied(this.chain.links[this.chain.terminal]!)
    if (event.type === 'bytes') return this.#passBytes(event)
    const phase = this.chain.events
    for (i = Math.max(i, phase.from[this.#from]!); i < phase.hooks.length; i++) {
      const step = phase.hooks[i]!
      const t0 = this.timeline?.now() ?? 0
      const pushed = this.#pushed
      try {
        if (step.look) step.look(this, event)
        else {
          const next = i + 1
          if (this.timeline) this.#rewriteTimed(step, event, next, t0)
          else step.rewrite(this, event, (this.#pushes[next] ??= e => this.#push(e, next)))
          return
        }
      } catch (error) {
        if (this.#brokenResponse(step.link, error)) return
        // A rewriter that broke after it had pushed something in the event's place: both would say it twice. The end must still come.
        if (this.#pushed !== pushed && event.type !== 'finish') return
      }
      this.timeline?.response(step.link, 'onEvent', t0)
      if (this.#settled) return
    }
    if (this.#holds > 0) this.#held.push(event)
    else this.#leave(event)
  }

  #push(event: StreamEvent, next: number): void {
    this.#pushed++
    this.#pass(event, next)
  }

  #rewriteTimed(step: EventStep & { look?: undefined }, event: StreamEvent, next: number, t0: number): void {
    let others = 0
    step.rewrite(this, event, e => {
      const left = this.clock.mono()
      this.#push(e, next)
      others += this.clock.mono() - left
    })
    this.timeline!.response(step.link, 'rewriteEvent', t0, others)
  }

  #passBytes(event: StreamEvent & { type: 'bytes' }): void {
    const phase = this.chain.chunks
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      const t0 = this.timeline?.now() ?? 0
      try {
        phase.hooks[i]!(this, event.bytes)
        this.timeline?.response(phase.links[i]!, 'onChunk', t0)
      } catch (error) {
        if (this.#brokenResponse(phase.links[i]!, error)) return
      }
    }
    if (this.#holds > 0) this.#held.push(event)
    else this.#leave(event)
  }

  /** True when the exchange was ended because of it. */
  #brokenResponse(link: Link, error: unknown): boolean {
    link.stats.errors++
    this.#host.log.error({ request_id: this.id, plugin: link.id, err: error }, 'plugin failed')
    if (link.skipFailures) return false
    this.fail(asGatewayError(error))
    return true
  }

  #responseEnd(): void {
    const phase = this.chain.ends
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      try {
        phase.hooks[i]!(this, event => this.#pass(event, 0))
      } catch (error) {
        if (this.#brokenResponse(phase.links[i]!, error)) return
      }
    }
  }

  /** The last stop: an event becomes bytes. */
  #leave(event: StreamEvent): void {
    if (this.#settled || this.#draining) return
    switch (event.type) {
      case 'bytes':
        this.#writeBytes(event.bytes)
        return
      case 'usage':
        return
      case 'error':
        return this.fail(event.error)
    }
    if (!this.surface) return
    if (this.#phase === PHASE.open && this.#encoder === null) {
      if (!this.#openEncoder()) return
      if (this.#streaming) this.#beginStream()
      if (this.#settled) return
    }
    const encoder = this.#encoder!
    if (event.type === 'finish') return this.#leaveFinish(encoder, event)
    const out = encoder.event(event)
    if (!this.#streaming || out === '') return
    // What the surface does not show, reasoning on Chat, is not delivered: cut there, nothing is billed (BILL-3).
    this.#delivered = true
    this.#write(out)
  }

  #leaveFinish(encoder: Encoder, event: FinishEvent): void {
    // A refusal of the gateway's own uses nothing, whatever its text would count (decisions 9).
    const billed: Usage = this.#origin === 'gateway' ? ZERO_USAGE : (this.peek(usage)?.usage ?? ZERO_USAGE)
    const out = encoder.finish(event, billed)
    if (this.#streaming) {
      this.#write(out)
      this.flush()
      this.#out!.end()
      this.#tapEnd(true)
    } else {
      this.#delivered = true
      const head = this.#head(200, [['content-type', 'application/json']], this.#origin)
      this.#sendWhole(head, encoder.body())
    }
    this.#control?.abort('ended')
    this.#settle(outcomeOfFinish(event, this.#origin))
  }

  #openEncoder(): boolean {
    const surface = this.surface!
    const asked = this.peek(conversation)
    if (!asked) {
      this.fail(new GatewayError('internal_error', { message: 'A reply was made before the request was understood.' }))
      return false
    }
    const clock = this.clock
    const context: EncodeContext = {
      requestId: this.id,
      created: Math.floor(this.startedAt / 1000),
      model: asked.model,
      body: this.peek(request) ?? {},
      conversation: asked,
      promptTokens: this.#origin === 'gateway' ? 0 : (this.peek(estimate)?.input ?? 0),
      objectId: this.objectId,
      mint,
      now: () => clock.now(),
    }
    this.#encoder = surface.encoder(context)
    this.#streaming = asked.stream
    // A buffered reply has no head of its own to begin with, even where the terminal has asked for one (sendHead).
    if (!this.#streaming) this.#encoder.start()
    return true
  }

  // ---- replies of the gateway's own -----------------------------------------------------------------------------------

  /** @param from response hooks of the links above this one run, then those below the terminal */
  #answer(reply: Reply, from: number): void {
    if (this.#settled) return
    this.#from = Math.min(from, this.chain.terminal)
    this.#origin = 'gateway'
    if (reply.kind === 'error') {
      const other = this.#recover(reply.error)
      if (other) reply = other
    }
    switch (reply.kind) {
      case 'error':
        return this.#answerError(reply.error)
      case 'refusal':
        this.#pass({ type: 'refusal', text: reply.text }, 0)
        this.#pass({ type: 'finish', reason: 'refusal', explanation: reply.text }, 0)
        return
      case 'empty':
        return this.#pass({ type: 'finish', reason: 'stop' }, 0)
      case 'json': {
        const headers = Object.entries({ 'content-type': 'application/json', ...reply.headers })
        const head = this.#head(reply.status, headers, 'gateway')
        this.#sendWhole(head, typeof reply.body === 'string' ? reply.body : (JSON.stringify(reply.body) ?? ''))
        return this.#settle('completed')
      }
      case 'raw': {
        const head = this.#head(reply.status, reply.headers, 'gateway')
        if (reply.whole) this.#sendWhole(head, reply.body)
        else {
          if (!this.#openStream(head)) return
          this.#out!.write(reply.body)
          this.#out!.flush()
          this.#out!.cut()
        }
        return this.#settle('replayed')
      }
    }
  }

  #recover(error: GatewayError): undefined | Reply {
    const phase = this.chain.errors
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      try {
        const reply = phase.hooks[i]!(this, error)
        if (reply) return reply
      } catch (thrown) {
        phase.links[i]!.stats.errors++
        this.#host.log.error({ request_id: this.id, plugin: phase.links[i]!.id, err: thrown }, 'plugin failed')
      }
    }
    return undefined
  }

  #answerError(error: GatewayError): void {
    this.#error = error
    advertise(error, () => this.#host.random())
    const headers: [string, string][] = [['content-type', 'application/json']]
    for (const [name, value] of Object.entries(error.headers ?? {})) headers.push([name, value])
    for (const [name, value] of Object.entries(retryHeaders(error))) headers.push([name, value])
    const head = this.#head(error.status, headers, 'gateway')
    this.#sendWhole(head, errorBody(this.surface, error, this.id))
    this.#control?.abort('ended')
    this.#settle(outcomeOf(error))
  }

  #head(status: number, headers: HeaderList, origin: 'upstream' | 'gateway'): SentHead {
    const fields = new HeaderFields()
    for (const [name, value] of headers) fields.add(name, value)
    fields.set('x-request-id', this.id)
    const head: SentHead = { status, headers: fields, origin }
    const phase = this.chain.head
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      const t0 = this.timeline?.now() ?? 0
      try {
        phase.hooks[i]!(this, head)
        this.timeline?.response(phase.links[i]!, 'onResponseHead', t0)
      } catch (error) {
        // The reply is on its way: a broken head hook can no longer deny it, so it is counted and passed over.
        phase.links[i]!.stats.errors++
        this.#host.log.error({ request_id: this.id, plugin: phase.links[i]!.id, err: error }, 'plugin failed')
      }
    }
    return head
  }

  /** False when the head can't be sent, and the exchange has ended because of it. */
  #openStream({ status, headers }: SentHead): boolean {
    try {
      this.#out = this.incoming.stream(status, headers)
    } catch (error) {
      this.#badHead(error)
      return false
    }
    this.#phase = PHASE.headSent
    this.#status = status
    this.#lastWriteMono = this.clock.mono()
    this.#out.onDrain(() => {
      if (!this.#settled && this.#holds === 0) this.#control?.resume()
    })
    this.#tapHead(status, headers)
    return true
  }

  /** The listener takes no such head: a plugin's header, or a target's, would have broken it apart. Answered without them. */
  #badHead(cause: unknown): void {
    this.#answerBare(cause, 'the head of the reply cannot be sent')
  }

  /** An error without anything that a plugin has a hand in. */
  #answerBare(cause: unknown, what: string): void {
    this.#host.log.error({ request_id: this.id, err: cause }, what)
    const error = asGatewayError(cause)
    this.#error = error
    this.#phase = PHASE.answered
    this.#status = error.status
    this.#delivered = false
    this.#firstByteMono ??= this.clock.mono()
    const bare: HeaderList = [
      ['content-type', 'application/json'],
      ['x-request-id', this.id],
    ]
    this.incoming.respond(error.status, bare, errorBody(this.surface, error, this.id))
    this.#control?.abort('ended')
    this.#settle('gateway_error')
  }

  #sendWhole({ status, headers }: SentHead, body: string | Uint8Array): void {
    try {
      this.incoming.respond(status, headers, body)
    } catch (error) {
      return this.#badHead(error)
    }
    this.#phase = PHASE.answered
    this.#status = status
    this.#firstByteMono ??= this.clock.mono()
    if (this.#taps) {
      this.#tapHead(status, headers)
      this.#tapBytes(typeof body === 'string' ? text.encode(body) : body)
      this.#tapEnd(true)
    }
  }

  // ---- bytes ----------------------------------------------------------------------------------------------------------

  #write(frames: string): void {
    if (frames === '' || !this.#out) return
    this.#firstByteMono ??= this.clock.mono()
    this.#out.write(frames)
    this.#dirty = true
    if (this.#taps) this.#tapBytes(text.encode(frames))
  }

  #writeBytes(bytes: Uint8Array): void {
    if (!this.#out) return
    this.#firstByteMono ??= this.clock.mono()
    this.#delivered = true
    this.#out.write(bytes)
    this.#dirty = true
    this.#tapBytes(bytes)
  }

  #tapHead(status: number, headers: HeaderList): void {
    if (this.#taps) this.#tap(tap => tap.head(status, [...headers]))
  }
  #tapBytes(bytes: Uint8Array): void {
    if (this.#taps) this.#tap(tap => tap.bytes(bytes))
  }
  #tapEnd(whole: boolean): void {
    if (this.#taps) this.#tap(tap => tap.end(whole))
  }
  /** The bytes are with the client already: a tap that breaks hears no more, and harms nobody. */
  #tap(tell: (tap: SentTap) => void): void {
    for (const tap of this.#taps!) {
      try {
        tell(tap)
      } catch (error) {
        this.#taps = this.#taps!.filter(other => other !== tap)
        this.#host.log.error({ request_id: this.id, err: error }, 'a tap of what is sent failed')
      }
    }
  }

  // ---- the end --------------------------------------------------------------------------------------------------------

  #onClientGone(): void {
    if (this.#settled) return
    this.#clientGone = true
    // The control may answer 'draining', and then the upstream's own end settles the exchange. One that a slow reader held back may go on within this call:
    // nothing of that is for the client any more, who would hold it back again.
    this.#draining = true
    if (this.#control?.abort('client_gone') === 'draining') {
      if (this.#keepAlive) this.#host.ticker.delete(this.#keepAlive)
      return
    }
    this.#draining = false
    this.#settle('client_gone')
  }

  #settle(outcome: Outcome): void {
    if (this.#settled) return
    // A cut reply has no end that its report could come with.
    const report = this.#sequencer.takeReport()
    if (report) this.#pass(report, 0)
    if (this.#settled) return
    this.#settled = true
    if (this.#keepAlive) this.#host.ticker.delete(this.#keepAlive)
    const now = this.clock.mono()
    const settlement: Settlement = {
      outcome,
      delivered: this.#delivered,
      status: this.#status,
      error: this.#error,
      durationMs: now - this.#startMono,
      ttfbMs: this.#firstByteMono === null ? null : this.#firstByteMono - this.#startMono,
    }
    this.timeline?.ended(this.chain.links[this.chain.terminal]!)
    const phase = this.chain.settles
    for (let i = 0; i < phase.hooks.length; i++) {
      const link = phase.links[i]!
      if (link.index > this.#entered && link.index < this.chain.terminal) continue
      const t0 = this.timeline?.now() ?? 0
      try {
        phase.hooks[i]!(this, settlement)
        this.timeline?.response(link, 'onSettle', t0)
      } catch (error) {
        link.stats.errors++
        this.#host.log.error({ request_id: this.id, plugin: link.id, err: error }, 'plugin failed')
      }
    }
    const defers = this.#defers
    this.#defers = []
    for (let i = defers.length - 1; i >= 0; i--) {
      try {
        defers[i]!()
      } catch (error) {
        this.#host.log.error({ request_id: this.id, err: error }, 'a deferred release failed')
      }
    }
    this.#held = []
    this.#host.onSettled(this, settlement)
  }
}

const REPLY_KINDS: ReadonlySet<unknown> = new Set<Reply['kind']>(['error', 'json', 'raw', 'refusal', 'empty'])

function isPromise(result: undefined | Reply | Promise<undefined | Reply>): result is Promise<undefined | Reply> {
  return typeof (result as Promise<unknown> | undefined | null)?.then === 'function'
}

class KeepAlive implements Ticking {
  place = -1
  readonly #x: RunningExchange
  constructor(x: RunningExchange) {
    this.#x = x
  }
  tick(now: number): void {
    this.#x.keepAlive(now)
  }
}

function bodyFault(fault: 'too_large' | 'timeout', limits: { maxBytes: number; timeoutMs: number }): Reply {
  if (fault === 'too_large') {
    return deny('request_too_large', {
      message: `The request body is over the limit of ${limits.maxBytes} bytes (max_body). Send less.`,
    })
  }
  return deny('request_body_timeout', {
    message: `The request body was not whole ${limits.timeoutMs / 1000} s after the gateway began to read it (body_timeout). Send it again.`,
  })
}
