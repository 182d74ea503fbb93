/**
 * The attempts of one call: which backend is asked, what a failure means for its health, and whether another is tried.
 */
import { asGatewayError, ERRORS, type ErrorCode, type ErrorSpec, GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import {
  type Call,
  type CallControl,
  type CallFault,
  type CallSink,
  type PluginContext,
  Relay,
  type SendAttempt,
  SinkAround,
  tenantOf,
} from '../../core/plugin.ts'
import type { LeftOut } from '../../core/ports/call.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { isBlamed } from '../../providers/blame.ts'
import { unavailableMs } from '../../providers/faults.ts'
import { upstreamFields } from '../shared/call-report.ts'
import { type Consequence, FAULTS } from '../shared/fault-table.ts'
import { unsent } from '../shared/slots.ts'
import type { Cause, Refusal, Scope } from './breaker.ts'
import { HELD_MS } from './held.ts'
import type { UpstreamOptions } from './options.ts'
import type { Target, Targets } from './targets.ts'

/**
 * Pause in milliseconds before the same backend is tried again. It doubles with each failure, and up to half of it is
 * random.
 */
const BACKOFF_MS = 100
/** The header that marks a request as safe to run twice: it may be retried even when a backend may have acted. */
const SAFE_HEADER = 'x-retry-safe'

/**
 * The wait of who was refused beside a trial, in milliseconds: with the random share no more than a second, in which the
 * trial may be answered.
 */
const BESIDE_TRIAL_MS = 800

const NO_BACKEND: Refusal = { waitMs: Number.POSITIVE_INFINITY, cause: 'fault' }

/** What the calls of a chain share. */
export interface AttemptContext extends Pick<PluginContext, 'clock' | 'log' | 'random'> {
  readonly options: Pick<UpstreamOptions, 'attempts' | 'retry_budget'>
  readonly targets: Targets
}

export class Attempts implements CallControl {
  readonly #call: Call
  readonly #sink: CallSink
  readonly #context: AttemptContext
  readonly #send: SendAttempt
  /** Who the breakers and the queues count for. */
  readonly #tenant: string
  readonly #relay = new Relay()
  #untried: Backend[]
  /** The attempt that runs; null while the call waits for a connection, or for the next attempt. */
  #running: AttemptSink | null = null
  #made = 0
  #failures = 0
  /** The error of the attempt before. */
  #last: GatewayError | null = null
  /** Until when the call may be held for a trial; null until it was. */
  #heldUntil: number | null = null

  constructor(call: Call, sink: CallSink, context: AttemptContext, send: SendAttempt) {
    this.#call = call
    this.#sink = sink
    this.#context = context
    this.#send = send
    this.#tenant = tenantOf(call.facts)
    // The backend that answered the exchange's earlier request has seen the conversation.
    const { candidates, report } = call
    this.#untried = report.served
      ? [report.served, ...candidates.filter(backend => backend !== report.served)]
      : [...candidates]
  }

  start(): this {
    this.#next()
    return this
  }

  #next(): void {
    const now = this.#context.clock.mono()
    const i = this.#choose(now)
    if (i !== 0) this.#notePassedOver(i === -1 ? this.#untried : this.#untried.slice(0, i), now)
    if (i === -1) return this.#findNone(now)
    const target = this.#context.targets.of(this.#untried.splice(i, 1)[0]!)
    if (target.pool.gate.enter()) this.#attempt(target)
    else this.#wait(target)
  }

  /**
   * Index of the first backend that may be tried, -1 when none may. A backend that has just recovered takes only a
   * share of the requests that another can take. One that only a probe may try comes last.
   */
  #choose(now: number): number {
    const { targets, random } = this.#context
    const tenant = this.#tenant
    let cold = -1
    for (let i = 0; i < this.#untried.length; i++) {
      const { breaker } = targets.of(this.#untried[i]!)
      if (!breaker.warm(now, tenant, random())) {
        if (cold === -1) cold = i
      } else if (breaker.tryEnter(now, tenant)) return i
    }
    if (cold !== -1 && targets.of(this.#untried[cold]!).breaker.tryEnter(now, tenant)) return cold
    return this.#untried.findIndex(backend => targets.of(backend).breaker.tryProbe(now, tenant))
  }

  /** Reports why these backends are not asked. One that is not warm yet is left to others, and not left out. */
  #notePassedOver(backends: readonly Backend[], now: number): void {
    const { facts, report } = this.#call
    for (const backend of backends) {
      const { breaker } = this.#context.targets.of(backend)
      const found = breaker.allows(now, this.#tenant) ? undefined : breaker.reason(now, this.#tenant)
      if (!found) continue
      const until = facts.clock.now() + breaker.outFor(now, this.#tenant)
      report.passed({ ...found.reason, backend: backend.id, scope: found.scope, until })
    }
  }

  /** No backend can be tried now. Where a trial may show that one can, the call waits for that. */
  #findNone(now: number): void {
    if (this.#last) return this.#sink.fail(this.#last)
    const { targets, clock } = this.#context
    const trying = this.#untried.find(backend => targets.of(backend).breaker.awaits(now, this.#tenant))
    if (!trying) return this.#sink.fail(this.#unavailable(now))
    const { state } = targets.of(trying)
    this.#heldUntil ??= now + Math.min(HELD_MS, this.#call.clocks.headWait)
    const giveUp = state.held.wait(clock, this.#tenant, this.#heldUntil - now, refused => {
      if (this.#sink.closed) return
      if (refused) this.#sink.fail(this.#unavailable(clock.mono()))
      else this.#next()
    })
    if (giveUp) this.#relay.to(whileWaiting(giveUp))
  }

  /**
   * No backend can be tried. The client learns when the first one can, and why that one is out: only where it had no
   * capacity is it a rate limit, anything else is an outage.
   */
  #unavailable(now: number): GatewayError {
    const breakers = this.#call.candidates.map(backend => this.#context.targets.of(backend).breaker)
    // Another one may have been busy.
    const out = breakers.filter(breaker => !breaker.allows(now, this.#tenant))
    const beside = out.some(breaker => breaker.awaits(now, this.#tenant))
    const { waitMs, cause } = out
      .map(breaker => breaker.refusal(now, this.#tenant))
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
          horizonMs: beside ? BESIDE_TRIAL_MS : unavailableMs(waitMs),
        })
    }
  }

  /** All connections are busy: waits for one. */
  #wait(target: Target): void {
    const { pool } = target
    const giveUp = pool.gate.wait(this.#context.clock, this.#tenant, refused => {
      if (refused) {
        this.#neutral(target)
        this.#busy(refused.waitedMs)
      } else if (this.#sink.closed) {
        this.#neutral(target)
        pool.gate.leave()
      } else this.#attempt(target)
    })
    if (giveUp === null) return
    this.#relay.to(
      whileWaiting(() => {
        giveUp()
        this.#neutral(target)
      }),
    )
  }

  /** The request says nothing about the backend. @param sent when it was; default: it never was */
  #neutral({ breaker, state }: Target, sent?: number): void {
    breaker.recordNeutral(this.#tenant, sent)
    state.held.told(this.#context.clock.mono(), false)
  }

  #busy(waitedMs: number): void {
    if (this.#untried.length > 0) return this.#next()
    this.#sink.fail(
      new GatewayError('route_capacity', {
        message: 'All connections to this model are busy. Retry shortly.',
        horizonMs: Math.max(2000, waitedMs),
      }),
    )
  }

  #attempt(target: Target): void {
    const { backend, state, budget } = target
    this.#made++
    if (this.#made === 1) budget.counted(this.#context.clock.mono())
    const attempt = new AttemptSink(target, this.#context.clock.mono(), this.#sink, this)
    this.#running = attempt
    state.began()
    try {
      this.#relay.make(() => this.#send({ ...this.#call, backend, headCame: attempt.headCame }, attempt))
    } catch (error) {
      // The caller may be a timer, or another exchange that just freed a connection: neither could answer this client,
      // so the error is not thrown.
      this.#context.log.error({ request_id: this.#call.facts.id, err: error }, 'terminal failed')
      attempt.fail(asGatewayError(error))
    }
  }

  // ---- calls from the attempt ---------------------------------------------------------------------------------------

  /** The first event has come: this backend serves the exchange. */
  answered({ target, startedMono }: AttemptSink): void {
    const now = this.#context.clock.mono()
    this.#back(target, target.breaker.succeeded(now, this.#tenant, startedMono))
    this.#call.report.answered(target.backend)
    this.#call.facts.peek(unsent)?.answered()
    target.state.held.told(now, true)
  }

  /** The head of a stream of 200 has come: a sign that this backend is well, for those that are held. */
  begins({ target, startedMono }: AttemptSink): void {
    target.breaker.headCame(this.#tenant, startedMono)
    target.state.held.told(this.#context.clock.mono(), true)
  }

  /**
   * A clock ended the attempt before its first event: the client gets an ordinary end, but the backend has not answered.
   * @param tooLong the backend was silent for as long as the idle limit allows
   * @returns whether that says something about the backend's health
   */
  silent({ target, startedMono, late }: AttemptSink, tooLong: boolean): boolean {
    if (tooLong) {
      const now = this.#context.clock.mono()
      const { breaker, state } = target
      this.#back(target, breaker.reached(now) ? 'all' : null)
      const closed = breaker.failed(now, this.#tenant, 'organization', startedMono, late)
      this.#leftOut(target, 'failures', closed, { code: 'gateway_timeout' }, now)
      state.held.told(now, false)
    }
    this.#call.report.answered(target.backend)
    return tooLong
  }

  /**
   * The attempt has ended: with an error if it failed, and with a fault if that says whether to try another backend.
   */
  ended(attempt: AttemptSink, error?: GatewayError, fault?: CallFault): void {
    const { target } = attempt
    this.#running = null
    if (fault?.oversized) target.state.oversized++
    const unseen = fault && !attempt.begun ? fault : undefined
    if (error && unseen) this.#recordFault(attempt, error, unseen)
    target.state.ended()
    // The client disconnected before there was an answer. A trial without an end would keep the backend out for ever.
    if (!attempt.recorded) this.#neutral(target, attempt.startedMono)
    target.pool.gate.leave()
    if (!error || this.#sink.closed) return
    this.#last = error
    if (!unseen || this.#sink.headSent) return this.#sink.fail(error, fault)
    const instead = this.#retry(target, error, FAULTS[unseen.kind])
    if (instead !== null) this.#sink.fail(instead)
  }

  /** What a failure says about the backend's health, and whether others are to leave it alone. */
  #recordFault(attempt: AttemptSink, error: GatewayError, fault: CallFault): void {
    attempt.recorded = true
    this.#failures++
    const { target } = attempt
    const { breaker, state } = target
    const { code } = error
    const { counts, reached } = FAULTS[fault.kind]
    state.failedWith(code)
    const now = this.#context.clock.mono()
    if (reached) this.#back(target, breaker.reached(now) ? 'all' : null)
    let closed: Scope | null = null
    if (counts === 'nobody') breaker.recordNeutral(this.#tenant, attempt.startedMono)
    else closed = breaker.failed(now, this.#tenant, counts, attempt.startedMono, attempt.late)
    // A request that the provider faults says nothing about others, whatever header goes with the answer.
    const mayPause = counts === 'organization' || code === 'capacity_exceeded'
    const pause = mayPause ? (fault.restMs ?? pauseAskedIn(error)) : null
    const paused = pause === null ? null : breaker.pause(now, this.#tenant, pause, causeOf(code))
    const failed = this.#call.report.failed.at(-1)!
    this.#context.log.warn(
      {
        request_id: this.#call.facts.id,
        backend: target.backend.id,
        code,
        attempt: this.#made,
        ...upstreamFields(failed),
        ...(error.cause instanceof UpstreamFault ? {} : { err: error.cause }),
      },
      'attempt failed',
    )
    const last = { code, how: failed.why ?? (failed.status > 0 ? `status ${failed.status}` : undefined) }
    if (closed === 'all' || (closed && paused !== 'all')) this.#leftOut(target, 'failures', closed, last, now)
    else this.#leftOut(target, 'pause', paused, last, now)
    state.held.told(now, false)
  }

  /** @param scope for whom the backend is left out from now on; null when nothing changed */
  #leftOut(
    { backend, breaker }: Target,
    reason: 'failures' | 'pause',
    scope: Scope | null,
    { code, how }: Pick<LeftOut, 'code' | 'how'>,
    now: number,
  ): void {
    if (scope === null) return
    const { id: requestId, clock } = this.#call.facts
    breaker.leftOut(now, this.#tenant, scope, { why: reason, code, how, requestId, since: clock.now() })
    this.#context.log.warn(
      {
        request_id: requestId,
        backend: backend.id,
        ...this.#forWhom(scope),
        reason,
        for_ms: Math.round(breaker.outFor(now, this.#tenant)),
        error_rate: Math.round(breaker.errorRate * 1000) / 1000,
        code,
      },
      'backend left out',
    )
  }

  /** @param scope for whom the backend is tried again from now on; null when nothing changed */
  #back({ backend }: Target, scope: Scope | null): void {
    if (scope === null) return
    this.#context.log.info({ backend: backend.id, ...this.#forWhom(scope) }, 'backend back')
  }

  /** The field of a log line that names the organization, or the address of a client without one; else all are meant. */
  #forWhom(scope: Scope): { organization?: string } {
    return scope === 'all' ? {} : { organization: this.#tenant }
  }

  // ---- retries ------------------------------------------------------------------------------------------------------

  /**
   * Tries once more where that can do no harm.
   * @returns the error for the client when it cannot or may not; null when it does
   */
  #retry(target: Target, error: GatewayError, { elsewhere, again }: Consequence): GatewayError | null {
    const { options, targets, clock } = this.#context
    if (this.#failures >= options.attempts) return error
    const safe = again === 'if_safe' && this.#call.facts.incoming.headers.get(SAFE_HEADER) === 'true'
    if (!elsewhere && !safe) return error
    const now = clock.mono()
    const another = this.#untried.some(other => targets.of(other).breaker.allows(now, this.#tenant))
    if (!another) this.#notePassedOver(this.#untried, now)
    if (!another && again !== 'yes' && !safe) return error
    if (!target.budget.take(now, options.retry_budget)) return isBlamed(error) ? notAsked(error) : error
    if (another) this.#next()
    else this.#later(target)
    return null
  }

  /** Tries the same backend again after a pause. */
  #later(target: Target): void {
    const { clock, random } = this.#context
    const pause = BACKOFF_MS * 2 ** (this.#failures - 1) * (1 - random() / 2)
    const timer = clock.setTimer(pause, () => {
      if (this.#sink.closed) return
      this.#untried.unshift(target.backend)
      this.#next()
    })
    this.#relay.to(whileWaiting(() => timer.cancel()))
  }

  // ---- the call's control -------------------------------------------------------------------------------------------

  pause(): void {
    this.#relay.pause()
  }
  resume(): void {
    this.#relay.resume()
  }
  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    const draining = this.#relay.abort(reason)
    if (draining === undefined) this.#running?.left()
    return draining
  }
}

/** One attempt, from the backend's place in the queue until its end: the sink of everything below. */
class AttemptSink extends SinkAround {
  readonly target: Target
  readonly startedMono: number
  /** The breaker has been notified of what the attempt says about the backend's health. */
  recorded = false
  over = false
  /** An event has been passed on: another backend can't take its place. */
  begun = false
  /** The head of a stream of 200 has come. */
  late = false
  #answered = false
  readonly #owner: Attempts

  constructor(target: Target, startedMono: number, sink: CallSink, owner: Attempts) {
    super(sink)
    this.target = target
    this.startedMono = startedMono
    this.#owner = owner
  }

  readonly headCame = (): void => {
    if (this.over || this.late) return
    this.late = true
    this.#owner.begins(this)
  }

  override emit(event: StreamEvent): void {
    if (this.over) return
    if (!this.#answered) this.#begin(event)
    this.sink.emit(event)
  }

  #begin(event: StreamEvent): void {
    this.begun = true
    // This comes before the end of an attempt that a clock has stopped; the end says what it was.
    if (event.type === 'usage' && event.cut) return
    this.#answered = true
    const reason = event.type === 'finish' ? event.reason : null
    if (reason === 'idle_timeout' || reason === 'ceiling_timeout') {
      this.recorded = this.#owner.silent(this, reason === 'idle_timeout')
    } else {
      this.recorded = true
      this.#owner.answered(this)
    }
  }

  override end(): void {
    if (!this.#leave()) return
    this.#owner.ended(this)
    this.sink.end()
  }

  override fail(error: GatewayError, fault?: CallFault): void {
    // What fails after the end, in the gateway itself, must end the exchange all the same.
    if (!this.#leave()) return this.sink.fail(error)
    this.#owner.ended(this, error, fault)
  }

  /** The client has left, or the exchange ended otherwise. */
  left(): void {
    if (this.#leave()) this.#owner.ended(this)
  }

  #leave(): boolean {
    if (this.over) return false
    this.over = true
    return true
  }
}

/**
 * One backend refused the request as the client wrote it, and another may take it, but others have used up the budget
 * of retries. That is not the client's fault, and a moment later the other backend can be asked, so the client is not
 * told to change its request. Where the other backends are out, or `attempts` are used up, it is: nobody can say that a
 * retry would find one that takes the request.
 */
function notAsked({ cause }: GatewayError): GatewayError {
  return new GatewayError('route_capacity', {
    message:
      'Another upstream of this model might take this request, and cannot be asked at the moment. Retry shortly.',
    cause,
  })
}

/** Why a backend is left out that asked for a pause with this error. */
function causeOf(code: ErrorCode): Cause {
  return code === 'capacity_exceeded' ? 'capacity' : code === 'gateway_timeout' ? 'timeout' : 'fault'
}

/** The control of a call while no attempt runs. */
function whileWaiting(giveUp: () => void): CallControl {
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
