/** Whether an exchange is over. At its end this notifies the plugins and releases what was acquired, exactly once. */
import type { GatewayError } from '../../canon/errors.ts'
import type { Settlement } from '../../plugin.ts'
import type { HookedExchange } from './hooked.ts'

/** What its end asks of an exchange. */
export interface LifetimeOwner extends HookedExchange {
  logError(error: unknown, what: string): void
}

/**
 * The states of an exchange:
 * - `running`: the client waits for a reply
 * - `draining`: the client has disconnected; the upstream runs on for its usage report, and nothing is sent any more
 * - `settled`: over; whatever arrives is ignored
 */
export type LifetimeState = 'running' | 'draining' | 'settled'

export class Lifetime {
  /** The error that the exchange answers or ends with, once it is known. */
  error: GatewayError | undefined
  #state: LifetimeState = 'running'
  #clientGone = false
  #releases: (() => void)[] = []

  get state(): LifetimeState {
    return this.#state
  }
  get settled(): boolean {
    return this.#state === 'settled'
  }
  /** Stays true after the exchange is settled. */
  get clientGone(): boolean {
    return this.#clientGone
  }

  /** The client has disconnected. Call it only while the exchange is running. */
  clientLeft(): void {
    this.#clientGone = true
    this.#state = 'draining'
  }

  /** The upstream has nothing to drain. An exchange that was settled meanwhile stays settled. */
  notDraining(): void {
    if (this.#state === 'draining') this.#state = 'running'
  }

  defer(release: () => void): void {
    // A hook that was still waiting when the exchange was settled has acquired something too late: release it at
    // once.
    if (this.settled) release()
    else this.#releases.push(release)
  }

  /**
   * Notifies the plugins, then runs the deferred releases, last registered first. A second call does nothing.
   * @returns a promise when plugins returned some: the last bytes of the reply wait for all of them
   * @param entered index of the furthest link that the request entered; links below the terminal are always notified
   */
  settle(x: LifetimeOwner, settlement: Settlement, entered: number): undefined | Promise<unknown> {
    if (this.settled) return undefined
    this.#state = 'settled'
    let written: undefined | Promise<unknown>
    const { links, hooks } = x.chain.settles
    for (let i = 0; i < hooks.length; i++) {
      const link = links[i]!
      if (link.index > entered && link.index < x.chain.terminal) continue
      const t0 = x.timeline?.now() ?? 0
      try {
        const promise = hooks[i]!(x, settlement)
        if (promise) written = written ? Promise.all([written, promise]) : promise
        x.timeline?.response(link, 'onSettle', t0)
      } catch (error) {
        x.hookFailed(link, error)
      }
    }
    const releases = this.#releases
    this.#releases = []
    for (let i = releases.length - 1; i >= 0; i--) {
      try {
        releases[i]!()
      } catch (error) {
        x.logError(error, 'a deferred release failed')
      }
    }
    return written
  }
}
