/** What layers of a call are built of, and how a chain puts them together. */
import { asGatewayError, type GatewayError } from '../canon/errors.ts'
import type { StreamEvent } from '../canon/events.ts'
import type {
  CallControl,
  CallFacts,
  CallFault,
  CallSink,
  Send,
  WireControl,
  WireCredentials,
  WireHandler,
  WireHeaders,
  WireRequest,
} from '../ports/call.ts'
import type { Slot } from '../tools/slot.ts'

/** A sink that passes everything on. A layer extends it, and overrides what it looks at or changes. */
export class SinkAround implements CallSink {
  protected readonly sink: CallSink
  constructor(sink: CallSink) {
    this.sink = sink
  }
  emit(event: StreamEvent): void {
    this.sink.emit(event)
  }
  flush(): boolean {
    return this.sink.flush()
  }
  sendHead(): void {
    this.sink.sendHead()
  }
  end(): void {
    this.sink.end()
  }
  fail(error: GatewayError, fault?: CallFault): void {
    this.sink.fail(error, fault)
  }
  get headSent(): boolean {
    return this.sink.headSent
  }
  get clientGone(): boolean {
    return this.sink.clientGone
  }
  get closed(): boolean {
    return this.sink.closed
  }
}

/** A handler of written requests that passes everything on. A layer extends it. */
export class HandlerAround implements WireHandler {
  protected readonly handler: WireHandler
  constructor(handler: WireHandler) {
    this.handler = handler
  }
  get over(): boolean {
    return this.handler.over
  }
  onRequestSent(request: WireRequest, credentials?: WireCredentials): void {
    this.handler.onRequestSent(request, credentials)
  }
  onRequestStart(control: WireControl): void {
    this.handler.onRequestStart(control)
  }
  onRequestLost(): void {
    this.handler.onRequestLost()
  }
  onResponseStart(control: WireControl, status: number, headers: WireHeaders): void {
    this.handler.onResponseStart(control, status, headers)
  }
  onResponseData(control: WireControl, chunk: Buffer): void {
    this.handler.onResponseData(control, chunk)
  }
  onResponseEnd(control: WireControl): void {
    this.handler.onResponseEnd(control)
  }
  onResponseError(control: WireControl | null, error: Error): void {
    this.handler.onResponseError(control, error)
  }
}

/**
 * The facts of an exchange for a call of a layer's own, which fills slots of its own. A layer extends it where its call
 * may see less, or runs on when the exchange has settled.
 */
export class FactsAround implements CallFacts {
  protected readonly facts: CallFacts
  readonly #own = new Map<Slot<any>, unknown>()
  constructor(facts: CallFacts) {
    this.facts = facts
  }
  /** Whether `peek` finds what the exchange has in this slot. */
  protected sees(_: Slot<any>): boolean {
    return true
  }
  get id(): string {
    return this.facts.id
  }
  get incoming(): CallFacts['incoming'] {
    return this.facts.incoming
  }
  get surface(): CallFacts['surface'] {
    return this.facts.surface
  }
  get clock(): CallFacts['clock'] {
    return this.facts.clock
  }
  get<T>(slot: Slot<T>): T {
    return this.#own.has(slot) ? (this.#own.get(slot) as T) : this.facts.get(slot)
  }
  peek<T>(slot: Slot<T>): T | undefined {
    if (this.#own.has(slot)) return this.#own.get(slot) as T
    return this.sees(slot) ? this.facts.peek(slot) : undefined
  }
  set<T>(slot: Slot<T>, value: T): void {
    this.#own.set(slot, value)
  }
  defer(release: () => void): void {
    this.facts.defer(release)
  }
}

/**
 * The control of a call that is made of several, one after the other: it relays to the one that runs. A call that
 * begins while the client reads nothing is paused at once, and one that begins after the end is cancelled.
 */
export class Relay implements CallControl {
  #inner: CallControl | null = null
  #count = 0
  #paused = false
  #ended: 'client_gone' | 'ended' | null = null

  /** From now on this control is paused, resumed and stopped; null while none runs. */
  to(inner: CallControl | null): void {
    this.#count++
    this.#inner = inner
    if (!inner) return
    if (this.#ended) inner.abort(this.#ended)
    else if (this.#paused) inner.pause()
  }

  /** Makes a call and relays to it, unless it has ended before it returned, and another one has begun. */
  make(call: () => CallControl): void {
    this.to(null)
    const count = this.#count
    const control = call()
    if (count === this.#count) this.to(control)
  }

  /**
   * Makes the call once the promise has resolved, unless nobody waits for its reply any more. Where the promise rejects,
   * or `call` throws, the call fails.
   */
  makeAfter<T>(promise: Promise<T>, sink: CallSink, call: (value: T) => CallControl): this {
    promise
      .then(value => {
        if (this.#ended === null && !sink.closed) this.make(() => call(value))
      })
      .catch(error => {
        if (this.#ended === null && !sink.closed) sink.fail(asGatewayError(error))
      })
    return this
  }

  pause(): void {
    this.#paused = true
    this.#inner?.pause()
  }
  resume(): void {
    this.#paused = false
    this.#inner?.resume()
  }
  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    const draining = this.#inner?.abort(reason)
    if (draining === undefined) this.#ended = reason
    return draining
  }
}

/** The layers around `innermost`, the first one outermost. */
export function around<F>(layers: readonly ((next: F) => F)[], innermost: F): F {
  return layers.reduceRight((next, layer) => layer(next), innermost)
}

/** What a terminal that calls no models gets in place of a `Send`. */
export const NO_CALLS: Send = () => {
  throw new Error('this terminal has no hook `call`, so it makes no calls')
}
