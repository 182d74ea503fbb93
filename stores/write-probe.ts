/** Whether the engine takes writes, tried by a write, for /readyz: at most once a second, however many ask. */
import type { Clock } from '../core/tools/clock.ts'

const FRESH_MS = 1000
/** A write that takes longer counts as failed. */
const LATE_MS = 5000

export class WriteProbe {
  readonly #clock: Clock
  readonly #write: () => Promise<unknown>
  #tried = Number.NEGATIVE_INFINITY
  readonly #waitMs: number
  /** The write under way. It never rejects. */
  #running: Promise<void> | undefined
  /** Why the last write that ended has failed. */
  #failure: string | undefined

  /**
   * @param write one small write; rejects with the reason when the engine takes none
   * @param waitMs how long `check` waits for it. For an engine whose disk may be slow without having failed
   */
  constructor(clock: Clock, write: () => Promise<unknown>, waitMs = LATE_MS) {
    this.#clock = clock
    this.#write = write
    this.#waitMs = waitMs
  }

  /**
   * Resolves within `waitMs`: while a write is under way longer than that, with the result of the write before.
   * @returns why the engine takes no write; undefined when it does
   */
  async check(): Promise<string | undefined> {
    if (!this.#running && this.#clock.mono() - this.#tried >= FRESH_MS) this.#try()
    if (this.#running) {
      let timer: NodeJS.Timeout | undefined
      const patience = new Promise<void>(resolve => {
        timer = setTimeout(resolve, this.#waitMs)
      })
      await Promise.race([this.#running, patience])
      clearTimeout(timer)
    }
    if (this.#running && this.#clock.mono() - this.#tried > LATE_MS)
      return `a write has not ended within ${LATE_MS / 1000} s`
    return this.#failure
  }

  #try(): void {
    this.#tried = this.#clock.mono()
    const ended = (failure?: string) => {
      this.#failure = failure
      this.#running = undefined
    }
    this.#running = this.#write().then(
      () => ended(),
      (error: Error) => ended(error.message),
    )
  }
}
