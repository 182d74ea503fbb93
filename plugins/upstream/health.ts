/**
 * The state of the upstreams, for metrics and the dashboard. It is put together when it is read, from plain counters.
 */
import type { LeftOut, SharedState } from '../../core/plugin.ts'
import { backendsKey, poolsKey, retriesKey } from '../shared/state.ts'
import { Breaker, type Scope } from './breaker.ts'
import type { BreakerOptions, CircuitState } from './circuit.ts'
import { Held } from './held.ts'
import { Pools } from './pools.ts'
import { RetryBudgets } from './retry-budget.ts'

export interface BackendHealth {
  /** `provider/model`. */
  id: string
  /** For all organizations; where only one uses it, for that one. */
  breaker: CircuitState
  /** Why it is left out, for all or for those of `closedTo`, and for how long still; undefined while it is not. */
  out: { scope: Scope; reason: LeftOut; forMs: number } | undefined
  /** Ids of the organizations to which it is closed because of what they met themselves. */
  closedTo: readonly string[]
  /** Share of failures in the breaker's window, 0 to 1. */
  errorRate: number
  /** Attempts that are running. */
  inFlight: number
  /** Requests that wait for its trial at the moment, and all that waited in vain so far. */
  held: number
  heldInVain: number
  /** All attempts so far. */
  attempts: number
  /** The attempts that count against the backend's health. */
  failures: number
  /** Failed attempts, by the code of their error. */
  failed: ReadonlyMap<string, number>
  /** Replies over a bound on their size. */
  oversized: number
  /** Requests that were not sent, because they were larger than what was counted allows. */
  oversizedRequests: number
  /** Organizations that the breaker forgot because it had too many. */
  forgotten: number
}

/** How busy one pool of connections to a provider is. */
export interface ProviderLoad {
  provider: string
  inFlight: number
  queued: number
  capacity: number
  /** Requests refused because the queue was full or the wait too long. */
  refused: number
}

export interface UpstreamHealth {
  backends: BackendHealth[]
  providers: ProviderLoad[]
  /** Attempts after the first of an exchange. */
  retries: number
}

/** Breakers and counters of the backends that were used so far; shared by all chains, kept across reloads. */
export class Backends {
  readonly #known = new Map<string, BackendState>()

  /** @param options of the newest configuration that uses the backend */
  of(id: string, options: BreakerOptions): BackendState {
    let found = this.#known.get(id)
    if (!found) this.#known.set(id, (found = new BackendState(options)))
    else found.breaker.configure(options)
    return found
  }

  /** Whether requests of an organization (its id) pass a backend over at the moment. */
  leavesOut(id: string, organization: string, now: number): boolean {
    return (this.#known.get(id)?.breaker.outFor(now, organization) ?? 0) > 0
  }

  /** A request to a backend was not sent, because it was larger than what was counted allows. */
  notSent(id: string): void {
    const state = this.#known.get(id)
    if (state) state.oversizedRequests++
  }

  health(now: number): BackendHealth[] {
    return [...this.#known].map(
      ([id, { breaker, held, inFlight, attempts, failed, oversized, oversizedRequests }]) => ({
        id,
        breaker: breaker.state(now),
        out: breaker.out(now),
        closedTo: breaker.closedTo(now),
        errorRate: breaker.errorRate,
        inFlight,
        held: held.size,
        heldInVain: held.inVain,
        attempts,
        failures: breaker.failures,
        failed,
        oversized,
        oversizedRequests,
        forgotten: breaker.forgotten,
      }),
    )
  }
}

export class BackendState {
  readonly breaker: Breaker
  readonly held: Held
  inFlight = 0
  attempts = 0
  oversized = 0
  oversizedRequests = 0
  readonly failed = new Map<string, number>()

  constructor(options: BreakerOptions) {
    this.breaker = new Breaker(options)
    this.held = new Held(this.breaker)
  }

  began(): void {
    this.inFlight++
    this.attempts++
  }

  ended(): void {
    this.inFlight--
  }

  failedWith(code: string): void {
    this.failed.set(code, (this.failed.get(code) ?? 0) + 1)
  }
}

/** These three are shared by all chains of a gateway, and made at their first use. */
export const sharedBackends = (shared: SharedState): Backends => shared.use(backendsKey, () => new Backends())
export const sharedPools = (shared: SharedState): Pools => shared.use(poolsKey, () => new Pools())
export const sharedRetries = (shared: SharedState): RetryBudgets => shared.use(retriesKey, () => new RetryBudgets())

/** @param now monotonic milliseconds */
export function upstreamHealth(shared: SharedState, now: number): UpstreamHealth {
  return {
    backends: sharedBackends(shared).health(now),
    providers: sharedPools(shared).load(),
    retries: sharedRetries(shared).taken,
  }
}
