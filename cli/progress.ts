/**
 * Shows the progress of long work: one line on a terminal, overwritten each time, with the rate and the time left. In a
 * pipe nothing is written.
 */

export interface ProgressStream {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string): unknown
}

/** Work that takes less than this, in milliseconds, shows no line. */
const FIRST_MS = 500
const EVERY_MS = 200

export class Progress {
  readonly #stream: ProgressStream
  readonly #unit: string
  readonly #mono: () => number
  readonly #began: number
  #shown = Number.NEGATIVE_INFINITY

  /**
   * @param unit what is counted, in the plural
   * @param mono monotonic milliseconds
   */
  constructor(stream: ProgressStream, unit: string, mono: () => number = () => performance.now()) {
    this.#stream = stream
    this.#unit = unit
    this.#mono = mono
    this.#began = mono()
  }

  /** Whether the line is shown. If it is not, a caller can leave out what it computes only for the line. */
  get watched(): boolean {
    return this.#stream.isTTY === true
  }

  /**
   * Shows the line, but not more often than every `EVERY_MS`.
   * @param share part of the work that is done, 0 to 1, where it is known
   * @param note what is being done now
   */
  show(done: number, share?: number, note?: string): void {
    if (!this.watched) return
    const now = this.#mono()
    const elapsed = now - this.#began
    if (elapsed < FIRST_MS || now - this.#shown < EVERY_MS) return
    this.#shown = now
    const parts = [`${done.toLocaleString('en')} ${this.#unit}`, rate(done / (elapsed / 1000))]
    if (share !== undefined) {
      parts.push(`${Math.floor(100 * Math.min(1, share))} %`)
      if (share > 0) parts.push(`${span((elapsed / 1000) * Math.max(0, 1 / share - 1))} left`)
    }
    if (note !== undefined) parts.push(note)
    this.#stream.write(`\r\x1b[K${parts.join(', ').slice(0, (this.#stream.columns || 80) - 1)}`)
  }

  /** Erases the line. */
  clear(): void {
    if (this.#shown === Number.NEGATIVE_INFINITY) return
    this.#shown = Number.NEGATIVE_INFINITY
    this.#stream.write('\r\x1b[K')
  }
}

/** `1,200/s`; rates below one a second are given per minute. */
function rate(perSecond: number): string {
  const [value, per] = perSecond >= 1 ? [perSecond, 's'] : [perSecond * 60, 'min']
  return `${value.toLocaleString('en', { maximumFractionDigits: value < 10 ? 1 : 0 })}/${per}`
}

function span(seconds: number): string {
  const whole = Math.ceil(seconds)
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`
}
