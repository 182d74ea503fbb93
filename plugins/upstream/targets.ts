/**
 * The backends that one chain calls, each with the state that the gateway shares about it: health, retries,
 * connections.
 */
import type { GatewayConfig } from '../../config/types.ts'
import type { SharedState } from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import type { Clock } from '../../core/tools/clock.ts'
import type { Breaker } from './breaker.ts'
import { type BackendState, type Backends, sharedBackends, sharedPools, sharedRetries } from './health.ts'
import type { UpstreamOptions } from './options.ts'
import type { Pools, ProviderPool } from './pools.ts'
import type { RetryBudget, RetryBudgets } from './retry-budget.ts'

/** A backend with its shared state, which a chain looks up once. */
export class Target {
  readonly backend: Backend
  readonly state: BackendState
  readonly breaker: Breaker
  readonly budget: RetryBudget
  readonly #open: (provider: string) => ProviderPool
  #pool: ProviderPool | undefined

  constructor(backend: Backend, state: BackendState, budget: RetryBudget, open: (provider: string) => ProviderPool) {
    this.backend = backend
    this.state = state
    this.breaker = state.breaker
    this.budget = budget
    this.#open = open
  }

  /** The connections to its provider; they are opened for the first request. */
  get pool(): ProviderPool {
    return (this.#pool ??= this.#open(this.backend.provider))
  }
}

export class Targets {
  readonly #providers: GatewayConfig['providers']
  readonly #options: Pick<UpstreamOptions, 'breaker' | 'connect_timeout'>
  readonly #clock: Clock
  readonly #backends: Backends
  readonly #pools: Pools
  readonly #budgets: RetryBudgets
  readonly #known = new Map<Backend, Target>()
  /** Pools that this chain has acquired, by provider. */
  readonly #opened = new Map<string, ProviderPool>()

  constructor(
    providers: GatewayConfig['providers'],
    options: Pick<UpstreamOptions, 'breaker' | 'connect_timeout'>,
    shared: SharedState,
    clock: Clock,
  ) {
    this.#providers = providers
    this.#clock = clock
    this.#options = options
    this.#backends = sharedBackends(shared)
    this.#pools = sharedPools(shared)
    this.#budgets = sharedRetries(shared)
  }

  of(backend: Backend): Target {
    let target = this.#known.get(backend)
    if (!target) {
      const state = this.#backends.of(backend.id, this.#options.breaker)
      target = new Target(backend, state, this.#budgets.of(backend.provider), this.#open)
      this.#known.set(backend, target)
    }
    return target
  }

  readonly #open = (provider: string): ProviderPool => {
    let pool = this.#opened.get(provider)
    if (!pool) {
      pool = this.#pools.acquire(this.#providers[provider]!, this.#options.connect_timeout, this.#clock)
      this.#opened.set(provider, pool)
    }
    return pool
  }

  /** Releases the connections. */
  async close(): Promise<void> {
    for (const pool of this.#opened.values()) await this.#pools.release(pool)
  }
}
