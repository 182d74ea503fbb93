/** Whether the engine takes writes, tried by a write, for /readyz: at most once a second, however many ask. */
import type { Clock } from '../core/clock.ts'

const FRESH_MS = 1000
/** A write that takes longer counts as failed. */
const LATE_MS = 5000

export class WriteProbe {
  readonly #clock: Clock
  readonly #write: () => Promise<unknown>
  #tried = Number.NEGATIVE_INFINITY
  #result: Promise<string | undefined> = Promise.resolve(undefined)
  #running = false

  /** @param write one small write; rejects with the reason when the engine takes none */
  constructor(clock: Clock, write: () => Promise<unknown>) {
    this.#clock = clock
    this.#write = write
  }

  /** @returns why the engine takes no write; undefined when it does */
  check(): Promise<string | undefined> {
    const now = this.#clock.mono()
    if (!this.#running && now - this.#tried >= FRESH_MS) {
      this.#tried = now
      this.#running = true
      const written = this.#write().then(
        () => undefined,
        (error: Error) => error.message,
      )
      written.finally(() => {
        this.#running = false
      })
      let timer: NodeJS.Timeout | undefined
      const late = new Promise<string>(resolve => {
        timer = setTimeout(() => resolve(`a write has not ended within ${LATE_MS / 1000} s`), LATE_MS).unref()
      })
      this.#result = Promise.race([written, late]).finally(() => clearTimeout(timer))
    }
    return this.#result
  }
}
