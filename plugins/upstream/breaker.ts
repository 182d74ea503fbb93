/**
 * Leaves a failing backend out, for whom it fails. One tenant can provoke faults and rate limits of a provider, so they
 * must not take the backend from others:
 *
 * - Failures to connect close the backend to all organizations: no request can cause them.
 * - Other faults (5xx, silence, a malformed reply) close it to the organization that met them. They close it to all
 *   when two organizations or more met them in the window and no request of anybody succeeded in it.
 * - A provider's Retry-After pauses the backend for the organization that met it, and for all once a second one meets
 *   it while the pause of the first lasts. When a request of another organization succeeds that began after a pause
 *   did, the provider is well, and what the organization of that pause provokes during the next minutes pauses the
 *   backend for it alone. So a tenant with two organizations gains nothing.
 *
 * Whoever finds no other backend may probe this one, once a second: what is over is then noticed at once, and a backend
 * that is dead gets no more than the probes. Probes that get further than the faults did may follow each other faster
 * (trials.ts), and others are held until they are answered (held.ts). An organization has probes of its own while the
 * backend is closed to it alone. While it is closed to all, all share them. An organization whose probes fail waits
 * twice as long for each next one, as far as others are to have their turn: one probe a second is open to everybody, so
 * that a second never goes by without, and one more to those that do not wait.
 *
 * All state is in memory, for one process: each worker learns by itself, and after a restart all is closed. Times are
 * monotonic milliseconds.
 */
import type { Budget } from '../../core/engine/budget.ts'
import type { LeftOut } from '../../core/plugin.ts'
import { type BreakerOptions, Circuit, type CircuitState } from './circuit.ts'
import { Recent } from './recent.ts'
import { TRIAL_MS, Trials } from './trials.ts'

/** For whom something holds. */
export type Scope = 'all' | 'organization'

/** Why a backend is left out: the provider had a fault, was too slow, or had no capacity. */
export type Cause = 'fault' | 'timeout' | 'capacity'

/** What is answered to a client whose request a backend does not accept now. `waitMs` may be 0. */
export interface Refusal {
  waitMs: number
  cause: Cause
}

/**
 * The longest pause that a provider can ask for, as a multiple of `open_for`: a wrong value must not take a backend
 * away for days.
 */
const MAX_REST = 4
/** The wait of an organization whose probes fail is doubled at most this often: 64 s. */
const MAX_DOUBLINGS = 6
/**
 * The most organizations that one backend's breaker remembers, about 600 bytes each. The half that called last is always
 * among them. Forgetting one opens the backend to it again, which harms nobody else.
 */
export const MAX_ORGANIZATIONS = 1024

export const rememberedBudget: Budget = {
  name: 'breaker_organizations',
  bound: 'organizations that a breaker remembers',
  owner: 'process',
  all: `${MAX_ORGANIZATIONS / 2} to ${MAX_ORGANIZATIONS.toLocaleString('en-US')}`,
  over: 'nothing: those seen longest ago are forgotten',
  seen: '`sluice_backend_forgotten_organizations_total`',
}
/** An organization that sends nothing is forgotten after 10 to 20 minutes. */
const KEEP_MS = 600_000

/** What a backend's breaker knows about one organization. */
class Own extends Circuit {
  pausedUntil = 0
  pausedSince = 0
  /** When the pause would end that the provider asked for: it may be longer than the one that is kept. */
  askedUntil = 0
  /** Why the provider asked for it. */
  cause: Cause = 'capacity'
  /** What is sent while the backend is closed to this organization. */
  readonly trials = new Trials()
  /** Faults, pauses and probes since its last success. */
  misses = 0
  /** Until this time it leaves probes to others. */
  probeAfter = 0
  /** Why the backend was last left out for it alone. */
  reason: LeftOut | undefined
  /** When another organization was served during a pause that this one had provoked. */
  disprovedAt = Number.NEGATIVE_INFINITY
}

export class Breaker {
  readonly #options: BreakerOptions
  /** Failures to connect. */
  readonly #reach: Circuit
  /** Failures of all organizations and of every kind, for the error rate; opens as the rule for all says. */
  readonly #all: Circuit
  readonly #own: Recent<Own>
  #failures = 0
  /** The pause for all. */
  #pausedUntil = 0
  #pausedSince = 0
  #cause: Cause = 'capacity'
  /** Why the backend was last left out for all. */
  #reason: LeftOut | undefined
  /** The organization that met the last pause which may become one for all. */
  #lastPaused: Own | null = null
  /** What is sent while it is closed to all: by anybody, and when it was last by somebody that need not wait. */
  readonly #trials = new Trials()
  #earlySent = Number.NEGATIVE_INFINITY
  #succeededAt = Number.NEGATIVE_INFINITY
  /** The organization that met the last fault, when that was, and when another one met its last fault. */
  #faultOf = ''
  #faultAt = Number.NEGATIVE_INFINITY
  #otherFaultAt = Number.NEGATIVE_INFINITY
  /** The organization that called last, and when another one called before it. */
  #caller: string | undefined
  #otherCalledAt = Number.NEGATIVE_INFINITY

  constructor(options: BreakerOptions) {
    this.#options = { ...options }
    this.#reach = new Circuit(this.#options)
    this.#all = new Circuit(this.#options)
    this.#own = new Recent(() => new Own(this.#options), MAX_ORGANIZATIONS, KEEP_MS)
  }

  /** Takes the options of a new configuration; what is known about the backend stays. */
  configure(options: BreakerOptions): void {
    Object.assign(this.#options, options)
  }

  // ---- before a request ---------------------------------------------------------------------------------------------

  /** Whether a request of this organization may be sent now, other than as a probe. */
  allows(now: number, organization: string): boolean {
    const own = this.#own.peek(organization)
    return (
      this.paused(now, organization) === 0 &&
      this.#all.allows(now) &&
      this.#reach.allows(now) &&
      own?.allows(now) !== false
    )
  }

  /** Sends a request if `allows` says so. */
  tryEnter(now: number, organization: string): boolean {
    if (organization !== this.#caller) {
      if (this.#caller !== undefined) this.#otherCalledAt = now
      this.#caller = organization
    }
    if (!this.#mayEnter(now, organization)) return false
    this.#entered(now, organization)
    return true
  }

  #mayEnter(now: number, organization: string): boolean {
    if (!this.allows(now, organization)) return false
    const own = this.#own.peek(organization)
    const trial = this.#all.state(now) !== 'closed' || this.#reach.state(now) !== 'closed'
    return !(trial && own && this.#mustYield(now, own))
  }

  /** Sends a request as a probe, when `tryEnter` refused it here and no other backend takes it. */
  tryProbe(now: number, organization: string): boolean {
    if (!this.#mayProbe(now, this.#own.peek(organization))) return false
    const own = this.#own.of(organization, now)
    const yields = this.#mustYield(now, own)
    this.#yields(now, own)
    this.#entered(now, organization, yields)
    return true
  }

  #mayProbe(now: number, own: Own | undefined): boolean {
    if (own && shut(own, now) && !own.trials.due(now)) return false
    return !this.#shutToAll(now) || now >= this.#dueToAll(now, own)
  }

  /** When the next probe of this organization may be sent, while the backend is closed to all. */
  #dueToAll(now: number, own: Own | undefined): number {
    return this.#trials.dueAt(now, own && this.#mustYield(now, own) ? undefined : this.#earlySent)
  }

  /** Whether a request that is sent now is no trial for all. */
  #shutToAll(now: number): boolean {
    return now < this.#pausedUntil || !this.#all.allows(now) || !this.#reach.allows(now)
  }

  /** Whether `tryEnter` or `tryProbe` would send a request. */
  admits(now: number, organization: string): boolean {
    return this.#mayEnter(now, organization) || this.#mayProbe(now, this.#own.peek(organization))
  }

  /** Whether a trial runs that may open the backend to this organization, to which it is closed. */
  awaits(now: number, organization: string): boolean {
    const own = this.#own.peek(organization)
    const alone = own !== undefined && shut(own, now)
    const toAll = this.#shutToAll(now)
    return (alone || toAll) && !(alone && !own.trials.running) && !(toAll && !this.#trials.running)
  }

  /** The next trial for all has to wait. */
  #waitAll(now: number): void {
    this.#trials.wait(now)
    this.#earlySent = now
  }

  #entered(now: number, organization: string, yields = false): void {
    const own = this.#own.peek(organization)
    const reach = this.#reach.entered(now)
    if (this.#all.entered(now) || reach || this.#shutToAll(now)) {
      this.#trials.sent(now)
      if (!yields) this.#earlySent = now
    }
    if (own && (own.entered(now) || shut(own, now))) own.trials.sent(now)
  }

  /** Whether a backend that recovered already takes a request that another could take. @param r uniform in [0, 1) */
  warm(now: number, organization: string, r: number): boolean {
    const own = this.#own.peek(organization)
    return this.#reach.warm(now, r) && this.#all.warm(now, r) && own?.warm(now, r) !== false
  }

  /** Milliseconds that are left of a pause that the provider asked for; 0 when there is none for this organization. */
  paused(now: number, organization: string): number {
    return Math.max(0, this.#pausedUntil - now, (this.#own.peek(organization)?.pausedUntil ?? 0) - now)
  }

  /** Milliseconds until this organization may send a request again, other than as a probe; 0 when it may now. */
  outFor(now: number, organization: string): number {
    const own = this.#own.peek(organization)?.outFor(now) ?? 0
    return Math.max(this.paused(now, organization), this.#reach.outFor(now), this.#all.outFor(now), own)
  }

  /**
   * What is answered to an organization whose request was refused. When it met the faults or the pause itself, it is
   * the time that is left of them, as its first client heard. What others met says less: there the next probe may be
   * its own.
   */
  refusal(now: number, organization: string): Refusal {
    const own = this.#own.peek(organization)
    if (own && now < own.pausedUntil)
      return { waitMs: Math.max(own.askedUntil - now, own.outFor(now)), cause: own.cause }
    if (own && !own.allows(now)) return { waitMs: own.outFor(now), cause: 'fault' }
    const cause = now < this.#pausedUntil ? this.#cause : 'fault'
    return { waitMs: Math.max(0, Math.min(this.#trials.dueAt(now) - now, this.outFor(now, organization))), cause }
  }

  /** Why it is left out for this organization; undefined when it is not. */
  reason(now: number, organization: string): { scope: Scope; reason: LeftOut } | undefined {
    const own = this.#own.peek(organization)
    if (own?.reason && (now < own.pausedUntil || !own.allows(now))) return { scope: 'organization', reason: own.reason }
    return this.#reason && { scope: 'all', reason: this.#reason }
  }

  // ---- after it -----------------------------------------------------------------------------------------------------

  /**
   * @param began when the attempt began: one that began before a pause says nothing about it
   * @returns for whom this opened the backend again; null when it was open
   */
  succeeded(now: number, organization: string, began: number): Scope | null {
    const own = this.#own.of(organization, now)
    own.misses = own.probeAfter = 0
    own.trials.succeeded()
    this.#trials.succeeded()
    this.#succeededAt = now
    const reachable = this.#reach.succeeded(now)
    let all = this.#all.succeeded(now) || reachable
    let mine = own.succeeded(now)
    const last = this.#lastPaused
    if (last && last !== own) disproves(last, now, began)
    if (now < this.#pausedUntil && began > this.#pausedSince) {
      this.#pausedUntil = 0
      this.#all.startSlowly(now)
      for (const other of this.#own.values()) if (other !== own) disproves(other, now, began)
      all = true
    }
    if (now < own.pausedUntil && began > own.pausedSince) {
      own.pausedUntil = 0
      mine = true
    }
    return all ? 'all' : mine ? 'organization' : null
  }

  /** The head of a stream of 200 has come. @param sent when the request was */
  headCame(organization: string, sent: number): void {
    this.#trials.head(sent)
    this.#own.peek(organization)?.trials.head(sent)
  }

  /** A reply of whatever kind has begun. @returns true when that opened the backend again, to all */
  reached(now: number): boolean {
    return this.#reach.succeeded(now)
  }

  /**
   * @param counts `all` for a failure to connect
   * @param sent when the request was sent
   * @param late the head of a stream of 200 had come
   * @returns for whom this closed the backend; null when it changed nothing
   */
  failed(now: number, organization: string, counts: Scope, sent = now, late = false): Scope | null {
    this.#failures++
    this.#trials.failed(now, sent, late)
    this.#own.peek(organization)?.trials.failed(now, sent, late)
    if (counts === 'all') {
      this.#own.peek(organization)?.recordNeutral()
      this.#all.failed(now, false)
      if (!this.#reach.failed(now)) return null
      this.#waitAll(now)
      return 'all'
    }
    if (organization !== this.#faultOf) {
      this.#otherFaultAt = this.#faultAt
      this.#faultOf = organization
    }
    this.#faultAt = now
    const { window } = this.#options
    const own = this.#own.of(organization, now)
    this.#yields(now, own)
    const mine = own.failed(now)
    if (mine) own.trials.wait(now)
    if (this.#all.failed(now, now - this.#otherFaultAt < window && now - this.#succeededAt >= window)) {
      this.#waitAll(now)
      return 'all'
    }
    return mine ? 'organization' : null
  }

  /** Keeps why it is left out from now on. @param scope as `failed` or `pause` said */
  leftOut(now: number, organization: string, scope: Scope, reason: LeftOut): void {
    if (scope === 'all') this.#reason = reason
    else this.#own.of(organization, now).reason = reason
  }

  /**
   * The attempt says nothing about the backend's health (the client disconnected, the request was bad).
   * @param sent when the request was sent
   */
  recordNeutral(organization: string, sent = Number.POSITIVE_INFINITY): void {
    const own = this.#own.peek(organization)
    this.#trials.neutral(sent)
    own?.trials.neutral(sent)
    this.#reach.recordNeutral()
    this.#all.recordNeutral()
    own?.recordNeutral()
  }

  /**
   * The provider asked for a pause, with an answer to this organization. It lasts `MAX_REST` times `open_for` at most.
   * @returns for whom a pause begins; null when one was running already
   */
  pause(now: number, organization: string, ms: number, cause: Cause): Scope | null {
    const most = MAX_REST * this.#options.open_for
    const own = this.#own.of(organization, now)
    const begins = this.paused(now, organization) === 0
    if (now >= own.pausedUntil) {
      own.pausedSince = now
      own.askedUntil = 0
      own.trials.wait(now)
    }
    own.pausedUntil = Math.max(own.pausedUntil, now + Math.min(ms, most))
    own.askedUntil = Math.max(own.askedUntil, now + ms)
    own.cause = cause
    if (begins) this.#yields(now, own)
    const mine = begins ? 'organization' : null
    if (now - own.disprovedAt < most) return mine
    if (now < this.#pausedUntil) {
      this.#pausedUntil = Math.max(this.#pausedUntil, own.pausedUntil)
      return null
    }
    const other = this.#lastPaused
    this.#lastPaused = own
    if (!other || other === own || now >= other.pausedUntil || now - other.disprovedAt < most) return mine
    this.#pausedUntil = Math.min(own.pausedUntil, other.pausedUntil)
    this.#pausedSince = now
    this.#cause = cause
    this.#waitAll(now)
    return 'all'
  }

  /** Lets other organizations probe first, where there are any. */
  #yields(now: number, own: Own): void {
    own.misses = Math.min(own.misses + 1, MAX_DOUBLINGS)
    own.probeAfter = now + TRIAL_MS * 2 ** own.misses
  }

  /** Whether it leaves this probe to others. Where nobody else calls, nobody has to be let through first. */
  #mustYield(now: number, own: Own): boolean {
    return now < own.probeAfter && this.#severalCall(now)
  }

  #severalCall(now: number): boolean {
    return now - this.#otherCalledAt < this.#options.window
  }

  // ---- for metrics, the dashboard and the log -----------------------------------------------------------------------

  /**
   * What holds for all organizations. Where only one calls, what holds for that one. A pause counts as `open`.
   */
  state(now: number): CircuitState {
    const caller = this.#caller
    const own = caller === undefined || this.#severalCall(now) ? undefined : this.#own.peek(caller)
    if (now < Math.max(this.#pausedUntil, own?.pausedUntil ?? 0)) return 'open'
    const states = [this.#reach.state(now), this.#all.state(now), own?.state(now)]
    return states.includes('open') ? 'open' : states.includes('half-open') ? 'half-open' : 'closed'
  }

  /**
   * Why it is left out and for how long still, for whom `state` means; where that is nobody, for those of `closedTo`.
   * Undefined while it is not.
   */
  out(now: number): { scope: Scope; reason: LeftOut; forMs: number } | undefined {
    if (this.state(now) === 'closed') return this.#outForSome(now)
    const caller = this.#severalCall(now) ? '' : (this.#caller ?? '')
    const forMs = this.outFor(now, caller)
    const own = this.#own.peek(caller)
    if (own?.reason && (now < own.pausedUntil || own.state(now) !== 'closed'))
      return { scope: 'organization', reason: own.reason, forMs }
    return this.#reason && { scope: 'all', reason: this.#reason, forMs }
  }

  /** Why it is left out for the first of those of `closedTo`, and for how long for the last of them. */
  #outForSome(now: number): { scope: Scope; reason: LeftOut; forMs: number } | undefined {
    let first: LeftOut | undefined
    let forMs = 0
    for (const own of this.#own.values()) {
      if (!isClosed(own, now)) continue
      forMs = Math.max(forMs, own.pausedUntil - now, own.outFor(now))
      if (own.reason && (!first || own.reason.since < first.since)) first = own.reason
    }
    return first && { scope: 'organization', reason: first, forMs }
  }

  /** The organizations that it is closed to at the moment because of their own faults and pauses. */
  closedTo(now: number): string[] {
    return [...this.#own.entries()].filter(([, own]) => isClosed(own, now)).map(([organization]) => organization)
  }

  /** All failures so far, those of no account left out. */
  get failures(): number {
    return this.#failures
  }

  /** Organizations that were forgotten so far because there were too many. */
  get forgotten(): number {
    return this.#own.forgotten
  }

  /** Share of failures in the window, of all organizations, 0 to 1. */
  get errorRate(): number {
    return this.#all.errorRate
  }
}

/** Whether it is closed to this organization because of what it met itself. */
const isClosed = (own: Own, now: number) => own.state(now) === 'open' || now < own.pausedUntil

/** Whether a request that is sent now is no trial for this organization alone, to which the backend is closed. */
function shut(own: Own, now: number): boolean {
  return now < own.pausedUntil || !own.allows(now)
}

/** A request that began at `began` was served: a pause of another organization that runs since before is its own. */
function disproves(paused: Own, now: number, began: number): void {
  if (now < paused.pausedUntil && began > paused.pausedSince) paused.disprovedAt = now
}
