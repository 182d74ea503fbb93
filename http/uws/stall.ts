import type { Timer } from '../../core/tools/clock.ts'
import type { UwsExchange } from './exchange.ts'

/** R10: closes the connection of a client that takes no byte for `stallTimeoutMs` while bytes wait for it. */
export class StallClock {
  readonly #exchange: UwsExchange
  #waiting = false
  /** When the client last took bytes, or when bytes began to wait (monotonic milliseconds). */
  #since = 0
  /** The timer also runs while nothing waits: a client that stalls once usually stalls again. */
  #timer: Timer | undefined

  constructor(exchange: UwsExchange) {
    this.#exchange = exchange
  }

  /** Bytes wait: the client's time starts now. */
  start(): void {
    const { clock, options } = this.#exchange.shared
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
    const { clock, options } = this.#exchange.shared
    this.#timer = clock.setTimer(ms, () => {
      this.#timer = undefined
      if (!this.#waiting || this.#exchange.over) return
      const left = options.stallTimeoutMs - (clock.mono() - this.#since)
      if (left > 0) this.#arm(left)
      else this.#exchange.abandon()
    })
  }
}
