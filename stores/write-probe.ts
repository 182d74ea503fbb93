/**
 * Whether the engine takes writes, tried by a write, for /readyz: at most once a second, however many ask.
 *
 * A write that is refused, or finds no engine, counts at once. Where writes are only late the engine is slow, and counts
 * as gone after five seconds of it: a stall takes no gateway out of service that could answer as soon as it ends.
 */
import { StoreSlow } from '../core/canon/errors.ts'
import type { Clock } from '../core/tools/clock.ts'

const FRESH_MS = 1000
/** From here on an engine whose writes are late counts as gone. */
const LATE_MS = 5000

/** What the last write has shown. */
export interface Trouble {
  reason: string
  /** Writes are late, and have not been for long. */
  slow: boolean
}

export class WriteProbe {
  readonly #clock: Clock
  readonly #write: () => Promise<unknown>
  #tried = Number.NEGATIVE_INFINITY
  readonly #waitMs: number
  /** The write under way. It never rejects. */
  #running: Promise<void> | undefined
  /** Why the last write that ended has failed. */
  #failure: string | undefined
  /** When the first of the writes began that were late one after the other up to now (monotonic ms). */
  #lateSince: number | undefined

  /**
   * @param write one small write; rejects with the reason when the engine takes none, and with StoreSlow when it is late
   * @param waitMs how long `check` waits for it. For an engine whose disk may be slow without having failed
   */
  constructor(clock: Clock, write: () => Promise<unknown>, waitMs = LATE_MS) {
    this.#clock = clock
    this.#write = write
    this.#waitMs = waitMs
  }

  /**
   * Resolves within `waitMs`: while a write is under way longer than that, with the result of the write before.
   * @returns undefined when the engine takes writes
   */
  async check(): Promise<Trouble | undefined> {
    if (!this.#running && this.#clock.mono() - this.#tried >= FRESH_MS) this.#try()
    if (this.#running) {
      let timer: NodeJS.Timeout | undefined
      const patience = new Promise<void>(resolve => {
        timer = setTimeout(resolve, this.#waitMs)
      })
      await Promise.race([this.#running, patience])
      clearTimeout(timer)
    }
    const now = this.#clock.mono()
    if (this.#running && now - this.#tried > LATE_MS)
      return { reason: `a write has not ended within ${LATE_MS / 1000} s`, slow: false }
    if (this.#failure === undefined) return undefined
    return { reason: this.#failure, slow: this.#lateSince !== undefined && now - this.#lateSince <= LATE_MS }
  }

  #try(): void {
    const began = this.#clock.mono()
    this.#tried = began
    const ended = (error?: Error) => {
      this.#failure = error?.message
      this.#lateSince = error instanceof StoreSlow ? (this.#lateSince ?? began) : undefined
      this.#running = undefined
    }
    this.#running = this.#write().then(
      () => ended(),
      (error: Error) => ended(error),
    )
  }
}
