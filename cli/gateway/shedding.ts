/** Sheds load before latency collapses: which new requests are refused at once. */
import type { GatewayConfig } from '../../config/types.ts'
import type { Tenants } from '../../core/engine/tenant.ts'
import type { Incoming } from '../../core/ports/listener.ts'
import { type Clock, systemClock } from '../../core/tools/clock.ts'
import { type LagProbe, OverloadGuard, TimerLag, YoungExchanges } from '../../http/overload.ts'

export interface SheddingOptions {
  tenants: Pick<Tenants, 'of'>
  random(): number
  /** By default the event loop's lag is measured. */
  lag?: LagProbe | undefined
  /** Times the reaction to that lag; by default the system's clock. */
  lagClock?: Clock | undefined
}

export class Shedding {
  readonly #tenants: Pick<Tenants, 'of'>
  readonly #guard: OverloadGuard
  readonly #young: YoungExchanges

  constructor({ tenants, random, lag, lagClock = systemClock }: SheddingOptions) {
    this.#tenants = tenants
    // The lag is that of the process, so it is measured with the system's clock, whichever clock the exchanges use.
    this.#guard = new OverloadGuard(lag ?? new TimerLag(systemClock), random, lagClock)
    this.#young = new YoungExchanges(lagClock)
  }

  /** Requests that were refused so far, by reason. */
  get shed(): Record<string, number> {
    return this.#guard.shed
  }

  /** How many exchanges may run while load is shed; 0 while it is not. */
  get limit(): number {
    return this.#guard.limit
  }

  /**
   * Whether a new request must be refused; if not, it counts as running.
   * @param running how many exchanges run
   */
  refuses(incoming: Incoming, running: number, platform: GatewayConfig['platform']): boolean {
    const tenant = this.#tenants.of(incoming)
    if (this.#guard.refuses(tenant, running, this.#young, platform)) return true
    this.#young.started(tenant)
    return false
  }

  /** An exchange has ended that ran for this many milliseconds. */
  ended(incoming: Incoming, durationMs: number): void {
    this.#young.ended(this.#tenants.of(incoming), durationMs)
  }

  close(): void {
    this.#guard.close()
  }
}
