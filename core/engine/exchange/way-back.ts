/**
 * The way of the reply through the response hooks: up through the plugins that the request passed, then out through
 * those below the terminal.
 */

import { asGatewayError, type GatewayError } from '../../canon/errors.ts'
import type { StreamEvent } from '../../canon/events.ts'
import type { Reply, ResponseHead } from '../../plugin.ts'
import type { HeaderList } from '../../ports/listener.ts'
import { HeaderFields } from '../../tools/header-fields.ts'
import type { EventStep, Link } from '../chain.ts'
import { Sequencer } from '../sequence.ts'
import type { Holds } from './holds.ts'
import type { HookedExchange } from './hooked.ts'

/** A head in the form that the listener takes. */
export interface SentHead extends ResponseHead {
  headers: HeaderFields
}

export class WayBack {
  readonly #x: HookedExchange
  readonly #holds: Holds
  readonly #sequencer: Sequencer
  /** The response hooks start above this link: the request passed the links above it. */
  #from: number
  /** Who makes the reply: the gateway, once it answers by itself (error, refusal, local terminal). */
  #origin: 'upstream' | 'gateway' = 'upstream'
  /** Whether the upstream may still send something. After it has ended, its events may still be held. */
  #upstream: 'open' | 'ended' = 'open'
  /**
   * The `push` functions of rewriting steps, by the index of the next step. They are made once, since most streams
   * need them for each event.
   */
  readonly #pushes: ((event: StreamEvent) => void)[] = []
  /** Number of events that rewriting steps have pushed. */
  #pushed = 0
  /** Index of the next hook to run for the end of the reply; infinite while the upstream has not ended. */
  #end = Number.POSITIVE_INFINITY

  constructor(x: HookedExchange, holds: Holds) {
    this.#x = x
    this.#holds = holds
    this.#from = x.chain.terminal
    this.#sequencer = new Sequencer(event => this.pass(event))
  }

  get from(): number {
    return this.#from
  }
  get origin(): 'upstream' | 'gateway' {
    return this.#origin
  }
  get upstreamEnded(): boolean {
    return this.#upstream === 'ended'
  }

  /**
   * The gateway answers by itself from now on.
   * @param from the lowest link that the request passed, or one below
   */
  replyHere(from: number): void {
    this.#from = Math.min(from, this.#x.chain.terminal)
    this.#origin = 'gateway'
  }

  // ---- events -------------------------------------------------------------------------------------------------------

  emit(event: StreamEvent): void {
    if (this.#upstream === 'open') this.#sequencer.push(event)
  }

  /**
   * The upstream has ended.
   * @param bytes true for a reply of bytes, which has no finish
   */
  end(bytes: boolean): void {
    const { ends } = this.#x.chain
    this.#end = ends.from[this.#from]!
    if (bytes) this.#lastPushes(Number.POSITIVE_INFINITY)
    else this.#sequencer.end({ type: 'finish', reason: 'stop' })
    this.#upstream = 'ended'
  }

  /** Passes the usage report of a cut reply, which has no finish with which it could be passed. */
  reportLate(): void {
    const report = this.#sequencer.takeReport()
    if (report) this.pass(report)
  }

  /** Passes an event through the response hooks, from step `i` on; then it leaves. */
  pass(event: StreamEvent, i = 0): void {
    const x = this.#x
    // Hooks see no event after their exchange was settled.
    if (x.closed) return
    if (x.timeline && this.#origin === 'upstream') x.timeline.replied(x.chain.links[x.chain.terminal]!)
    if (event.type === 'bytes') return this.#passBytes(event, 0)
    const phase = x.chain.events
    const finish = event.type === 'finish'
    for (i = Math.max(i, phase.from[this.#from]!); i < phase.hooks.length; i++) {
      if (finish && this.#lastPushes(i)) return
      const step = phase.hooks[i]!
      const t0 = x.timeline?.now() ?? 0
      const pushed = this.#pushed
      try {
        if (step.look) step.look(x, event)
        else {
          const next = i + 1
          if (x.timeline) this.#rewriteTimed(step, event, next, t0)
          else step.rewrite(x, event, (this.#pushes[next] ??= e => this.#push(e, next)))
          return
        }
      } catch (error) {
        if (this.#broken(step.link, error)) return
        // What a rewriting hook pushed before it threw replaces the event: to pass the event too would send its
        // content twice. A finish must still be passed.
        if (this.#pushed !== pushed && !finish) return
      }
      x.timeline?.response(step.link, 'onEvent', t0)
      if (x.closed) return
    }
    if (finish && this.#lastPushes(i)) return
    this.#holds.pass(event)
  }

  #push(event: StreamEvent, next: number): void {
    this.#pushed++
    this.pass(event, next)
  }

  #rewriteTimed(step: EventStep & { look?: undefined }, event: StreamEvent, next: number, t0: number): void {
    const { clock, timeline } = this.#x
    let others = 0
    step.rewrite(this.#x, event, e => {
      const left = clock.mono()
      this.#push(e, next)
      others += clock.mono() - left
    })
    timeline!.response(step.link, 'rewriteEvent', t0, others)
  }

  #passBytes(event: StreamEvent & { type: 'bytes' }, i: number): void {
    const x = this.#x
    const phase = x.chain.chunks
    for (i = Math.max(i, phase.from[this.#from]!); i < phase.hooks.length; i++) {
      const t0 = x.timeline?.now() ?? 0
      try {
        phase.hooks[i]!(x, event.bytes)
        x.timeline?.response(phase.links[i]!, 'onChunk', t0)
      } catch (error) {
        if (this.#broken(phase.links[i]!, error)) return
      }
    }
    this.#holds.pass(event)
  }

  /**
   * Runs the hooks for the end of the reply up to place `i` of the event hooks, which the finish has reached. A reply of
   * bytes has no finish, and its end is at every place at once.
   * @returns true when the exchange is over because of one
   */
  #lastPushes(i: number): boolean {
    const phase = this.#x.chain.ends
    while (this.#end < phase.hooks.length && phase.hooks[this.#end]!.at <= i) {
      const link = phase.links[this.#end]!
      const { run, next } = phase.hooks[this.#end++]!
      try {
        run(this.#x, event =>
          event.type === 'bytes' ? this.#passBytes(event, next.chunk) : this.pass(event, next.event),
        )
      } catch (error) {
        if (this.#broken(link, error)) return true
      }
      if (this.#x.closed) return true
    }
    return false
  }

  /** @returns true when the exchange was ended because of it */
  #broken(link: Link, error: unknown): boolean {
    this.#x.hookFailed(link, error)
    if (link.skipFailures) return false
    this.#x.fail(asGatewayError(error))
    return true
  }

  // ---- the head, and errors before it -------------------------------------------------------------------------------

  /** Makes the head of a reply and lets the response hooks change it. */
  head(status: number, headers: HeaderList): SentHead {
    const x = this.#x
    const fields = new HeaderFields()
    for (const [name, value] of headers) fields.add(name, value)
    fields.set('x-request-id', x.id)
    const head: SentHead = { status, headers: fields, origin: this.#origin }
    const phase = x.chain.head
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      const t0 = x.timeline?.now() ?? 0
      try {
        phase.hooks[i]!(x, head)
        x.timeline?.response(phase.links[i]!, 'onResponseHead', t0)
      } catch (error) {
        // The reply can no longer be denied here. An error of a head hook is counted, and the hook is skipped.
        x.hookFailed(phase.links[i]!, error)
      }
    }
    return head
  }

  /** @returns the reply that a plugin gives instead of this error, if one does */
  recover(error: GatewayError): undefined | Reply {
    const phase = this.#x.chain.errors
    for (let i = phase.from[this.#from]!; i < phase.hooks.length; i++) {
      try {
        const reply = phase.hooks[i]!(this.#x, error)
        if (reply) return reply
      } catch (thrown) {
        this.#x.hookFailed(phase.links[i]!, thrown)
      }
    }
    return undefined
  }
}
