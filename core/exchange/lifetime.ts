/** Whether an exchange is over, and its end: plugins are told, and what was acquired is given back, exactly once. */
import type { GatewayError } from '../errors.ts'
import type { Settlement } from '../plugin.ts'
import type { RunningExchange } from './index.ts'

/**
 * running   the client waits for a reply
 * draining  the client has left, and its upstream runs on for the sake of its usage report: nothing is sent any more
 * settled   over; whatever comes is ignored
 */
export type LifetimeState = 'running' | 'draining' | 'settled'

export class Lifetime {
  /** What the exchange answers or ends with, once it is known. */
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
  /** Stays true when the exchange is settled. */
  get clientGone(): boolean {
    return this.#clientGone
  }

  /** Only of a running exchange. */
  clientLeft(): void {
    this.#clientGone = true
    this.#state = 'draining'
  }

  /** There is nothing to drain. An exchange that was settled meanwhile stays so. */
  notDraining(): void {
    if (this.#state === 'draining') this.#state = 'running'
  }

  defer(release: () => void): void {
    // A hook that was still waiting when the client left has acquired too late: give back at once.
    if (this.settled) release()
    else this.#releases.push(release)
  }

  /**
   * Tells the plugins, then gives back what was acquired, last in first out. Called again it does nothing.
   * @param entered index of the last link that the request came to; those below the terminal see every reply
   */
  settle(x: RunningExchange, settlement: Settlement, entered: number): void {
    if (this.settled) return
    this.#state = 'settled'
    const { links, hooks } = x.chain.settles
    for (let i = 0; i < hooks.length; i++) {
      const link = links[i]!
      if (link.index > entered && link.index < x.chain.terminal) continue
      const t0 = x.timeline?.now() ?? 0
      try {
        hooks[i]!(x, settlement)
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
  }
}
