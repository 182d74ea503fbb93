/**
 * The attempts of one exchange: which backend is called, what a failure means for its health, and whether another is
 * tried. An exchange sends one request; with a search loop of the gateway it sends one for each round.
 */
import type { Conversation } from '../../core/canon/conversation.ts'
import { asGatewayError, ERRORS, type ErrorCode, type ErrorSpec, GatewayError } from '../../core/canon/errors.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import type { Exchange, PluginContext, UpstreamControl } from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import type { Ticker } from '../../core/tools/ticker.ts'
import { isBlamed } from '../../providers/blame.ts'
import { unavailableMs } from '../../providers/faults.ts'
import {
  candidates,
  failedAttempts,
  identity,
  outbound,
  promptTaken,
  servedBy,
  trace,
  unsent,
} from '../shared/slots.ts'
import {
  Attempt,
  type AttemptCall,
  type AttemptFault,
  type AttemptOwner,
  type AttemptSink,
} from '../translation/attempt.ts'
import type { Cause, Refusal, Scope } from './breaker.ts'
import { type Failed, noteFailure, upstreamFields } from './failed-attempts.ts'
import type { UpstreamOptions } from './options.ts'
import type { Clocks } from './stream-limits.ts'
import type { Target, Targets } from './targets.ts'
import { traceHeaders } from './trace-headers.ts'

/**
 * Pause in milliseconds before the same backend is tried again. It doubles with each failure, and up to half of it is
 * random.
 */
const BACKOFF_MS = 100
/** The header that marks a request as safe to run twice: it may be retried even when a backend may have acted. */
const SAFE_HEADER = 'x-retry-safe'

const NO_BACKEND: Refusal = { waitMs: Number.POSITIVE_INFINITY, cause: 'fault' }

/** What the exchanges of a chain share. */
export interface AttemptContext extends Pick<PluginContext, 'clock' | 'log' | 'random'> {
  readonly options: Pick<UpstreamOptions, 'attempts' | 'retry_budget' | 'max_reply'>
  readonly targets: Targets
  readonly ticker: Ticker
}

export class Attempts implements AttemptOwner {
  readonly clocks: Clocks
  /** When the exchange's first attempt began, monotonic milliseconds: all attempts share the ceiling. */
  readonly startedMono: number
  readonly #x: Exchange
  readonly #context: AttemptContext
  /** Id of the organization that the breakers and the queues count for. */
  readonly #organization: string
  #untried: Backend[] = []
  #conversation: Conversation | undefined
  #sink!: AttemptSink
  /** Target of the attempt that runs, or that waits for a connection. */
  #target!: Target
  #made = 0
  #failures = 0
  /** Failure of the attempt before. */
  #last: AttemptFault | null = null
  /** The breaker has been notified of what the current attempt says about the backend's health. */
  #judged = false

  constructor(x: Exchange, clocks: Clocks, context: AttemptContext) {
    this.#x = x
    this.clocks = clocks
    this.#context = context
    this.#organization = x.peek(identity)?.organization.id ?? ''
    this.startedMono = context.clock.mono()
  }

  /**
   * Sends a request. The backend that answered the previous request of this exchange goes first, since it has seen the
   * conversation.
   *
   * @param conversation what the request says; undefined for the exchange's own conversation
   * @param sink takes the reply's events and its end. A failure ends the exchange itself.
   */
  send(conversation: Conversation | undefined, sink: AttemptSink): void {
    const all = this.#x.get(candidates)
    const before = this.#x.peek(servedBy)
    this.#untried = before ? [before, ...all.filter(backend => backend !== before)] : [...all]
    this.#conversation = conversation
    this.#sink = sink
    this.#next()
  }

  #next(): void {
    const now = this.#context.clock.mono()
    const i = this.#choose(now)
    if (i === -1) return this.#x.fail(this.#last?.error ?? this.#unavailable(now))
    const target = this.#context.targets.of(this.#untried.splice(i, 1)[0]!)
    this.#target = target
    if (target.pool.gate.enter()) this.#attempt(target)
    else this.#wait(target)
  }

  /**
   * Index of the first backend that may be tried, -1 when none may. A backend that has just recovered takes only a
   * share of the requests that another can take. One that only a probe may try comes last.
   */
  #choose(now: number): number {
    const { targets, random } = this.#context
    const organization = this.#organization
    let cold = -1
    for (let i = 0; i < this.#untried.length; i++) {
      const { breaker } = targets.of(this.#untried[i]!)
      if (!breaker.warm(now, organization, random())) {
        if (cold === -1) cold = i
      } else if (breaker.tryEnter(now, organization)) return i
    }
    if (cold !== -1 && targets.of(this.#untried[cold]!).breaker.tryEnter(now, organization)) return cold
    return this.#untried.findIndex(backend => targets.of(backend).breaker.tryProbe(now, organization))
  }

  /**
   * No backend can be tried. The client is told when the first one can, and why that one is out: only where it had no
   * capacity is it a rate limit, anything else is an outage.
   */
  #unavailable(now: number): GatewayError {
    const breakers = this.#x.get(candidates).map(backend => this.#context.targets.of(backend).breaker)
    // Another one may have been busy.
    const out = breakers.filter(breaker => !breaker.lets(now, this.#organization))
    const { waitMs, cause } = out
      .map(breaker => breaker.refusal(now, this.#organization))
      .reduce((least, each) => (each.waitMs < least.waitMs ? each : least), NO_BACKEND)
    switch (cause) {
      case 'capacity':
        return new GatewayError('capacity_exceeded', {
          message: 'The shared capacity of this model is exhausted. Retry after the advertised time.',
          horizonMs: waitMs,
        })
      case 'timeout':
        return new GatewayError('gateway_timeout', {
          message:
            'The upstream of this model did not answer in time, and is left alone. Retry after the advertised time.',
          horizonMs: waitMs,
        })
      case 'fault':
        return new GatewayError('provider_unavailable', {
          message: 'No upstream of this model is available. Retry after the advertised time.',
          horizonMs: unavailableMs(waitMs),
        })
    }
  }

  /** All connections are busy: waits for one. */
  #wait(target: Target): void {
    const { breaker, pool } = target
    const giveUp = pool.gate.wait(this.#context.clock, this.#organization, refused => {
      if (refused) {
        breaker.abstained(this.#organization)
        this.#busy(refused.waitedMs)
      } else if (this.#x.closed) {
        breaker.abstained(this.#organization)
        pool.gate.leave()
      } else this.#attempt(target)
    })
    if (giveUp === null) return
    this.#x.control(
      whileWaiting(() => {
        giveUp()
        breaker.abstained(this.#organization)
      }),
    )
  }

  #busy(waitedMs: number): void {
    if (this.#untried.length > 0) return this.#next()
    this.#x.fail(
      new GatewayError('route_capacity', {
        message: 'All connections to this model are busy. Retry shortly.',
        horizonMs: Math.max(2000, waitedMs),
      }),
    )
  }

  #attempt({ backend, breaker, state, budget, pool }: Target): void {
    this.#made++
    if (this.#made === 1) budget.counted(this.#context.clock.mono())
    let call: AttemptCall
    try {
      const sent = this.#x.get(outbound)(backend, this.#conversation)
      call = {
        backend,
        outbound: sent,
        own: traceHeaders(this.#x, backend, sent.request.headers),
        clocks: this.clocks,
        exchangeMono: this.startedMono,
        begun: this.#x.peek(servedBy) !== undefined,
        maxReply: this.#context.options.max_reply,
      }
    } catch (error) {
      breaker.abstained(this.#organization)
      pool.gate.leave()
      return this.#broken(error)
    }
    const attempt = new Attempt(call, this.#context.clock, this, this.#sink)
    this.#judged = false
    this.#x.control(attempt)
    this.#context.ticker.add(attempt)
    state.began()
    try {
      attempt.start(pool)
    } catch (error) {
      this.#broken(error)
    }
  }

  /**
   * The request could not be written. The caller may be a timer, or another exchange that just freed a connection:
   * neither could answer this client, so the error is not thrown.
   */
  #broken(error: unknown): void {
    this.#context.log.error({ request_id: this.#x.id, err: error }, 'terminal failed')
    this.#x.fail(asGatewayError(error))
  }

  // ---- calls from the attempt ---------------------------------------------------------------------------------------

  answered(attempt: Attempt): void {
    this.#judged = true
    const now = this.#context.clock.mono()
    this.#back(this.#target.breaker.succeeded(now, this.#organization, attempt.startedMono))
    this.#x.set(servedBy, attempt.backend)
    this.#x.peek(unsent)?.()
  }

  silent(attempt: Attempt, tooLong: boolean): void {
    this.#judged = tooLong
    const now = this.#context.clock.mono()
    if (tooLong) {
      const { breaker } = this.#target
      this.#back(breaker.reached(now) ? 'all' : null)
      this.#leftOut('failures', breaker.failed(now, this.#organization, 'organization'), 'gateway_timeout', now)
    }
    this.#x.set(servedBy, attempt.backend)
  }

  failed(failed: Failed, error: GatewayError, headers: Readonly<Record<string, string>>): void {
    noteFailure(this.#x, failed, error, headers)
  }

  oversized(): void {
    this.#target.state.oversized++
  }

  over(attempt: Attempt, fault: AttemptFault | null): void {
    if (attempt.promptTaken) this.#x.set(promptTaken, true)
    if (fault) this.#judge(attempt, fault)
    this.#context.ticker.delete(attempt)
    const target = this.#target
    target.state.ended()
    // The client disconnected before there was an answer. A trial without an end would keep the backend out for ever.
    if (!this.#judged) target.breaker.abstained(this.#organization)
    target.pool.gate.leave()
    if (!fault || this.#x.closed) return
    this.#last = fault
    if (this.#x.headSent) return this.#x.fail(fault.error)
    const instead = this.#retry(target, fault)
    if (instead !== null) this.#x.fail(instead)
  }

  /** What a failure says about the backend's health, and whether others are to leave it alone. */
  #judge(attempt: Attempt, fault: AttemptFault): void {
    this.#judged = true
    this.#x.peek(trace)?.failed(fault.error.code)
    this.#failures++
    const { breaker, state } = this.#target
    state.failedWith(fault.error.code)
    const now = this.#context.clock.mono()
    const { code } = fault.error
    if (fault.counts !== 'all' && !fault.unreached) this.#back(breaker.reached(now) ? 'all' : null)
    let closed: Scope | null = null
    if (fault.counts === 'nobody') breaker.abstained(this.#organization)
    else closed = breaker.failed(now, this.#organization, fault.counts)
    // A request that the provider faults says nothing about others, whatever header goes with the answer.
    const mayPause = fault.counts === 'organization' || code === 'capacity_exceeded'
    const pause = mayPause ? (fault.restMs ?? pauseAskedIn(fault.error)) : null
    const paused = pause === null ? null : breaker.rest(now, this.#organization, pause, causeOf(code))
    this.#context.log.warn(
      {
        request_id: this.#x.id,
        backend: attempt.backend.id,
        code: fault.error.code,
        attempt: this.#made,
        ...upstreamFields(this.#x.get(failedAttempts).at(-1)!),
        ...(fault.error.cause instanceof UpstreamFault ? {} : { err: fault.error.cause }),
      },
      'attempt failed',
    )
    if (closed === 'all' || (closed && paused !== 'all')) this.#leftOut('failures', closed, code, now)
    else this.#leftOut('pause', paused, code, now)
  }

  /** @param scope for whom the backend is left out from now on; null when nothing changed */
  #leftOut(reason: 'failures' | 'pause', scope: Scope | null, code: ErrorCode, now: number): void {
    if (scope === null) return
    const { backend, breaker } = this.#target
    this.#context.log.warn(
      {
        backend: backend.id,
        ...this.#forWhom(scope),
        reason,
        for_ms: Math.round(breaker.outFor(now, this.#organization)),
        error_rate: Math.round(breaker.errorRate * 1000) / 1000,
        code,
      },
      'backend left out',
    )
  }

  /** @param scope for whom the backend is tried again from now on; null when nothing changed */
  #back(scope: Scope | null): void {
    if (scope === null) return
    this.#context.log.info({ backend: this.#target.backend.id, ...this.#forWhom(scope) }, 'backend back')
  }

  /** The field of a log line that names the organization; a line without it is about all of them. */
  #forWhom(scope: Scope): { organization?: string } {
    return scope === 'all' ? {} : { organization: this.#organization }
  }

  // ---- retries ------------------------------------------------------------------------------------------------------

  /**
   * Tries once more where that can do no harm.
   * @returns the error for the client when it cannot or may not; null when it does
   */
  #retry(target: Target, fault: AttemptFault): GatewayError | null {
    const { options, targets, clock } = this.#context
    if (this.#failures >= options.attempts) return fault.error
    const safe = this.#x.incoming.headers.get(SAFE_HEADER) === 'true'
    if (!fault.retriable && !(fault.mayHaveActed && safe)) return fault.error
    const now = clock.mono()
    const elsewhere = this.#untried.some(other => targets.of(other).breaker.lets(now, this.#organization))
    // A backend that has answered gets no second request from the same exchange.
    const same = fault.neverSent || fault.mayHaveActed
    if (!elsewhere && !same) return fault.error
    if (!target.budget.take(now, options.retry_budget)) return isBlamed(fault.error) ? notAsked(fault) : fault.error
    if (elsewhere) this.#next()
    else this.#later(target)
    return null
  }

  /** Tries the same backend again after a pause. */
  #later(target: Target): void {
    const { clock, random } = this.#context
    const pause = BACKOFF_MS * 2 ** (this.#failures - 1) * (1 - random() / 2)
    const timer = clock.setTimer(pause, () => {
      if (this.#x.closed) return
      this.#untried.unshift(target.backend)
      this.#next()
    })
    this.#x.control(whileWaiting(() => timer.cancel()))
  }
}

/**
 * One backend refused the request as the client wrote it, and another may take it, but others have used up the budget
 * of retries. That is not the client's fault, and a moment later the other backend can be asked, so the client is not
 * told to change its request. Where the other backends are out, or `attempts` are used up, it is: nobody can say that a
 * retry would find one that takes the request.
 */
function notAsked({ error }: AttemptFault): GatewayError {
  return new GatewayError('route_capacity', {
    message:
      'Another upstream of this model might take this request, and cannot be asked at the moment. Retry shortly.',
    cause: error.cause,
  })
}

/** Why a backend is left out that asked for a pause with this error. */
function causeOf(code: ErrorCode): Cause {
  return code === 'capacity_exceeded' ? 'capacity' : code === 'gateway_timeout' ? 'timeout' : 'fault'
}

/** The exchange's control while no attempt runs. */
function whileWaiting(giveUp: () => void): UpstreamControl {
  return {
    pause() {},
    resume() {},
    abort() {
      giveUp()
      return undefined
    },
  }
}

/**
 * For how long the provider itself asked not to be called, milliseconds; null when it did not. The error table's
 * default wait does not count.
 */
function pauseAskedIn({ code, horizonMs }: GatewayError): number | null {
  const spec: ErrorSpec = ERRORS[code]
  return horizonMs === null || horizonMs === spec.horizonMs ? null : horizonMs
}
