import type { Exchange } from '../../core/plugin.ts'

/** Sends what a plugin makes piece by piece to the client of an exchange, at the pace at which the client reads. */
export class ClientPace {
  readonly #x: Exchange
  #slow = false
  #wake = (): void => {}

  constructor(x: Exchange) {
    this.#x = x
    x.control({
      pause: () => {
        this.#slow = true
      },
      resume: () => {
        this.#slow = false
        this.#wake()
      },
      abort: () => {
        this.#wake()
        return undefined
      },
    })
  }

  send(bytes: Uint8Array): void {
    this.#x.emit({ type: 'bytes', bytes })
    if (!this.#x.flush()) this.#slow = true
  }

  /**
   * Resolves when the client has read what was sent and `ready` is true, or when the client has left.
   * @param ready looked at when the client reads again, and at each `wake`
   */
  async until(ready = (): boolean => true): Promise<void> {
    while (!this.#x.closed && (this.#slow || !ready()))
      await new Promise<void>(resolve => {
        this.#wake = resolve
      })
  }

  /** What `until` waits for may be true now. */
  wake(): void {
    this.#wake()
  }
}
