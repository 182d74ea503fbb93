/**
 * The way of the request: through the hooks of the plugins above the terminal, past the wait for the body, to the
 * terminal.
 */

import { asGatewayError, GatewayError, StoreUnavailable } from '../../canon/errors.ts'
import { bodyMeter, deny, type Reply, requestBody } from '../../plugin.ts'
import type { BodyFault } from '../../ports/listener.ts'
import type { Link, RequestStep } from '../chain.ts'
import type { HookedExchange } from './hooked.ts'

const REPLY_KINDS: ReadonlySet<unknown> = new Set<Reply['kind']>(['error', 'json', 'raw', 'refusal', 'empty'])

type HookStep = Exclude<RequestStep, { kind: 'body' }>

/** What the way down asks of its exchange. */
export interface WayDownOwner extends HookedExchange {
  /** The request goes no further. @param from index of a link: the reply comes back through the links above it */
  answer(reply: Reply, from: number): void
  /** Something threw that is no plugin's. */
  crashed(cause: unknown): void
}

export class WayDown {
  readonly #x: WayDownOwner
  /**
   * Index of the furthest link that was entered: -1 before the first; the number of links once the terminal was
   * called.
   */
  #entered = -1

  constructor(x: WayDownOwner) {
    this.#x = x
  }

  get entered(): number {
    return this.#entered
  }

  /** Runs the steps from `i` on, until one must wait for a plugin or for the body. */
  run(i: number): void {
    try {
      this.#steps(i)
    } catch (error) {
      this.#x.crashed(error)
    }
  }

  #steps(i: number): void {
    const x = this.#x
    const { steps } = x.chain
    for (; i < steps.length; i++) {
      if (x.closed) return
      const step = steps[i]!
      if (step.kind === 'body') return this.#awaitBody(i + 1)
      const link = step.link
      if (step.kind === 'hook') {
        this.#entered = link.index
        link.stats.calls++
      }
      const t0 = x.timeline?.now() ?? 0
      let result: undefined | Reply | Promise<undefined | Reply>
      try {
        result = step.run(x)
      } catch (error) {
        result = this.#broken(link, error)
      }
      if (isPromise(result)) return this.#awaitHook(result, step, t0, i + 1)
      x.timeline?.request(link, step.kind === 'hook' ? 'onRequest' : 'beforeBody', t0)
      if (result !== undefined) {
        const reply = this.#checked(result, link)
        if (reply) return this.#replyHere(reply, step)
      }
    }
    if (!x.closed) this.#forward()
  }

  #awaitBody(next: number): void {
    const x = this.#x
    const limits = x.chain.body!
    const t0 = x.timeline?.now() ?? 0
    const meter = x.peek(bodyMeter)
    let refusal: undefined | Reply
    x.incoming.readBody(
      limits,
      (fault, body) => {
        if (x.closed) return
        x.timeline?.body(t0)
        if (fault) return x.answer(refusal ?? bodyFault(fault, limits), this.#entered + 1)
        x.set(requestBody, body)
        this.run(next)
      },
      meter && (bytes => (refusal = meter(bytes)) === undefined),
    )
  }

  #awaitHook(result: Promise<undefined | Reply>, step: HookStep, t0: number, next: number): void {
    const { link, kind } = step
    result.then(
      reply => {
        this.#x.timeline?.request(link, kind === 'hook' ? 'onRequest' : 'beforeBody', t0)
        this.#afterWait(reply, step, next)
      },
      error => {
        // What waited or worked for a client that has left was asked to stop, and did.
        if (this.#x.closed && isAbort(error)) return
        this.#afterWait(this.#broken(link, error), step, next)
      },
    )
  }

  #afterWait(result: undefined | Reply, step: HookStep, next: number): void {
    if (this.#x.closed) return
    const reply = result === undefined ? undefined : this.#checked(result, step.link)
    if (!reply) return this.run(next)
    try {
      this.#replyHere(reply, step)
    } catch (error) {
      this.#x.crashed(error)
    }
  }

  #forward(): void {
    const x = this.#x
    const { chain } = x
    this.#entered = chain.links.length
    const t0 = x.timeline?.now() ?? 0
    x.timeline?.forwarding(t0)
    const terminal = chain.links[chain.terminal]!
    terminal.stats.calls++
    try {
      chain.forward(x)
      x.timeline?.request(terminal, 'forward', t0)
    } catch (error) {
      x.hookFailed(terminal, error, 'terminal failed')
      x.fail(asGatewayError(error))
    }
  }

  /** A plugin whose `beforeBody` refuses was not entered: the reply comes back from the place of the wait. */
  #replyHere(reply: Reply, { kind, link }: HookStep): void {
    if (reply.kind === 'error') link.stats.refusals++
    this.#x.answer(reply, kind === 'hook' ? link.index : this.#entered + 1)
  }

  /** Types are not checked when a plugin runs: a result that is no Reply is an error of the plugin. */
  #checked(result: Reply, link: Link): undefined | Reply {
    if (REPLY_KINDS.has(result?.kind)) return result
    return this.#broken(link, new TypeError(), 'onRequest returned neither undefined nor a Reply')
  }

  /** A request hook that throws denies the request (fail closed), unless its entry has `on_failure: skip`. */
  #broken(link: Link, error: unknown, what = 'plugin failed'): undefined | Reply {
    if (error instanceof GatewayError) return { kind: 'error', error }
    this.#x.hookFailed(link, error, what, error instanceof StoreUnavailable ? 'warn' : 'error')
    if (link.skipFailures) return undefined
    return { kind: 'error', error: asGatewayError(error) }
  }
}

function isPromise(result: undefined | Reply | Promise<undefined | Reply>): result is Promise<undefined | Reply> {
  return typeof (result as Promise<unknown> | undefined | null)?.then === 'function'
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError'
}

function bodyFault(fault: BodyFault, limits: { maxBytes: number; timeoutMs: number }): Reply {
  if (fault === 'too_large') {
    return deny('request_too_large', {
      message: `The request body is over the limit of ${limits.maxBytes} bytes (max_body). Send less.`,
    })
  }
  return deny('request_body_timeout', {
    message: `The request body was not complete ${limits.timeoutMs / 1000} s after the gateway began to read it (body_timeout). Send it again.`,
  })
}
