import type { Timer } from '../../core/clock.ts'
import type { UwsExchange } from './exchange.ts'

/** R10: closes the connection of a client for whom bytes wait, and who takes none for `stallTimeoutMs`. */
export class StallClock {
  readonly #exchange: UwsExchange
  #waiting = false
  /** Since when the client has taken nothing. */
  #since = 0
  /** It runs on while nothing waits, since clients that stall once do so again. */
  #timer: Timer | undefined

  constructor(exchange: UwsExchange) {
    this.#exchange = exchange
  }

  /** Bytes wait, and the client's time begins now. */
  start(): void {
    const { clock, options } = this.#exchange.shared
    this.#waiting = true
    this.#since = clock.mono()
    if (this.#timer === undefined) this.#arm(options.stallTimeoutMs)
  }

  /** The client has taken all there was. */
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
