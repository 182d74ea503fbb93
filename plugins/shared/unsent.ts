/**
 * The bytes of admitted requests that no provider has taken and answered yet. `concurrent_requests` bounds how many
 * requests there are and not their size: twenty with 20 MiB of images each, at a provider that is slow to answer, held
 * 1.3 GB. Beyond the bounds a request waits for its turn at admission.
 */
import type { GatewayConfig } from '../../config/types.ts'
import { type Budget, gauge, type Refusal, refusal, setting } from '../../core/engine/budget.ts'
import type { Reply, SharedState } from '../../core/plugin.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { FairQueue } from '../../core/tools/fair.ts'
import { refusedMetric } from './preparation.ts'
import { unsentKey } from './state.ts'

/** The bounds of bytes: `platform.preparation` of gateway.yaml. */
type UnsentBounds = Pick<
  GatewayConfig['platform']['preparation'],
  'unsent_bytes' | 'organization_unsent_bytes' | 'unsent_wait'
>

const WAITED = {
  code: 'route_capacity',
  message: () =>
    'Too many bytes of requests wait for providers to take them (platform.preparation.unsent_bytes). Retry shortly.',
} as const satisfies Refusal

export const unsentBudget: Budget = {
  name: 'unsent',
  bound: 'bytes of admitted requests that no provider has taken and answered yet',
  owner: 'tenant',
  each: setting('platform.preparation.organization_unsent_bytes'),
  all: setting('platform.preparation.unsent_bytes'),
  over: 'nothing: the next waits before admission, for `unsent_wait`; then 503 `route_capacity`',
  seen: '`sluice_unsent_waiting`, `sluice_preparation_refused_total{bound="unsent"}`',
  metrics: [
    gauge(
      'sluice_unsent_bytes',
      'Bytes of admitted requests that no provider has taken and answered yet.',
      ({ shared }) => unsentOf(shared).bytes,
    ),
    gauge(
      'sluice_unsent_waiting',
      'Requests that wait before admission until fewer bytes are unsent.',
      ({ shared }) => unsentOf(shared).waiting,
    ),
    refusedMetric(({ shared }) => ({ unsent: unsentOf(shared).refused })),
  ],
}

/**
 * The bytes of one request. They are given back when a backend has answered, so that no other is tried, and when every
 * connection has taken the last of what was written to it: a provider may answer before it has read.
 */
export class UnsentRequest {
  readonly #release: () => void
  #answered = false
  #writing = 0

  /** @param release gives the bytes back; further calls do nothing */
  constructor(release: () => void) {
    this.#release = release
  }

  /** A backend has answered. */
  answered(): void {
    this.#answered = true
    this.#check()
  }

  /** A connection begins to write the request. @returns what is called when it has taken the last byte, or is lost */
  writing(): () => void {
    this.#writing++
    return () => {
      this.#writing--
      this.#check()
    }
  }

  #check(): void {
    if (this.#answered && this.#writing === 0) this.#release()
  }
}

/** The ledger of a process. All chains share it; it outlives a reload. */
export class Unsent {
  /** Requests so far that waited in vain. */
  refused = 0
  #bytes = 0
  readonly #held = new Map<string, number>()
  readonly #waiting = new FairQueue<() => void>()
  #bounds: UnsentBounds | undefined

  get bytes(): number {
    return this.#bytes
  }
  get waiting(): number {
    return this.#waiting.size
  }

  /**
   * Holds the bytes of a request, at once where there is room, else in its turn.
   * @param signal is aborted when the client disconnects; the request then holds nothing
   * @returns the function that gives them back (further calls of it do nothing); the refusal after `unsent_wait`; or a
   * promise of one of them
   */
  enter(
    owner: string,
    bytes: number,
    bounds: UnsentBounds,
    clock: Clock,
    signal: () => AbortSignal,
  ): (() => void) | Promise<(() => void) | Reply> {
    this.#bounds = bounds
    if (this.#waiting.waitingOf(owner) === 0 && this.#hasRoom(owner)) return this.#hold(owner, bytes)
    return new Promise(resolve => {
      const disconnected = signal()
      const go = () => {
        timer.cancel()
        disconnected.removeEventListener('abort', leave)
        resolve(this.#hold(owner, bytes))
      }
      const leave = () => {
        if (!this.#waiting.delete(owner, go)) return
        timer.cancel()
        resolve(busy())
      }
      const timer = clock.setTimer(bounds.unsent_wait, () => {
        this.refused++
        leave()
      })
      disconnected.addEventListener('abort', leave, { once: true })
      this.#waiting.push(owner, go)
    })
  }

  /**
   * Whoever holds nothing may always send one request, and whoever holds less than his share of the process's bytes is
   * bounded by his own bound alone. The request that passes a bound is not counted against it.
   */
  readonly #hasRoom = (owner: string): boolean => {
    const own = this.#held.get(owner) ?? 0
    const { unsent_bytes, organization_unsent_bytes } = this.#bounds!
    if (own === 0) return true
    return own < organization_unsent_bytes && (this.#bytes < unsent_bytes || own < unsent_bytes / this.#held.size)
  }

  #hold(owner: string, bytes: number): () => void {
    this.#bytes += bytes
    this.#held.set(owner, (this.#held.get(owner) ?? 0) + bytes)
    let held = true
    return () => {
      if (!held) return
      held = false
      this.#bytes -= bytes
      const own = (this.#held.get(owner) ?? 0) - bytes
      if (own === 0) this.#held.delete(owner)
      else this.#held.set(owner, own)
      for (let go = this.#next(); go; go = this.#next()) go()
    }
  }

  #next(): (() => void) | undefined {
    return this.#waiting.shift(this.#hasRoom)
  }
}

/** The process's ledger. */
export function unsentOf(shared: SharedState): Unsent {
  return shared.use(unsentKey, () => new Unsent())
}

function busy(): Reply {
  return { kind: 'error', error: refusal(WAITED) }
}
