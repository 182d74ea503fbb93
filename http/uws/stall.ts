import type { Timer } from '../../core/tools/clock.ts'
import type { UwsShared } from './shared.ts'

/** What is watched. */
export interface Stallable {
  readonly shared: Pick<UwsShared, 'clock' | 'options'>
  /** True once the connection has nothing to do with it any more. */
  readonly over: boolean
  abandon(): void
}

/** R10: closes the connection of a client that takes no byte for `stallTimeoutMs` while bytes wait for it. */
export class StallClock {
  readonly #owner: Stallable
  #waiting = false
  /** When the client last took bytes, or when bytes began to wait (monotonic milliseconds). */
  #since = 0
  /** The timer also runs while nothing waits: a client that stalls once usually stalls again. */
  #timer: Timer | undefined

  constructor(owner: Stallable) {
    this.#owner = owner
  }

  /** Bytes wait: the client's time starts now. */
  start(): void {
    const { clock, options } = this.#owner.shared
    this.#waiting = true
    this.#since = clock.mono()
    if (this.#timer === undefined) this.#arm(options.stallTimeoutMs)
  }

  /** The client has taken all bytes. */
  rest(): void {
    this.#waiting = false
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  #arm(ms: number): void {
    const { clock, options } = this.#owner.shared
    this.#timer = clock.setTimer(ms, () => {
      this.#timer = undefined
      if (!this.#waiting || this.#owner.over) return
      const left = options.stallTimeoutMs - (clock.mono() - this.#since)
      if (left > 0) this.#arm(left)
      else this.#owner.abandon()
    })
  }
}
