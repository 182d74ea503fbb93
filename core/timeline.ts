/** Where an exchange's time goes, plugin by plugin, for the dashboard. Sampled: two clock reads a hook are too dear for each exchange. */
import type { Link } from './chain.ts'
import type { Clock } from './clock.ts'

/**
 * What a plugin did within a sampled exchange. Hooks by their name; besides them `body` (waiting for the request's body; no plugin), `upstream`
 * (from the terminal to the first event of a reply) and `reply` (from there to the end).
 */
export interface TimelineEntry {
  plugin: string
  phase: string
  /** Milliseconds after the start, of the first call. */
  at: number
  /** Of all calls together; what a hook hands on to later ones is not counted as its own. */
  ms: number
  calls: number
}

/** One exchange in so many is sampled. */
const SAMPLE = 16
/** And as many in each second, so that on a quiet gateway whoever looks finds a timeline of each. */
const SAMPLED_A_SECOND = 50
let seen = 0
let second = 0
let inSecond = 0

export class Timeline {
  readonly entries: TimelineEntry[] = []
  readonly #clock: Clock
  readonly #start: number
  /** When the terminal was called, until the first event of its reply; and when that came. */
  #forwarded = 0
  #replied = 0

  private constructor(clock: Clock, start: number) {
    this.#clock = clock
    this.#start = start
  }

  /** A timeline for one exchange in some, null for the others. @param start monotonic milliseconds */
  static sample(clock: Clock, start: number): Timeline | null {
    const now = Math.floor(start / 1000)
    if (now !== second) {
      second = now
      inSecond = 0
    }
    return seen++ % SAMPLE === 0 || inSecond++ < SAMPLED_A_SECOND ? new Timeline(clock, start) : null
  }

  now(): number {
    return this.#clock.mono()
  }

  /** A call on the way down that began at `t0`. */
  request(link: Link, phase: string, t0: number): void {
    const ms = this.#clock.mono() - t0
    link.stats.sampledCalls++
    link.stats.sampledMs += ms
    this.entries.push({ plugin: link.id, phase, at: t0 - this.#start, ms, calls: 1 })
  }

  /** A call on the way back: all of one hook are one entry. @param others milliseconds of it that belong to later hooks */
  response(link: Link, phase: string, t0: number, others = 0): void {
    const ms = this.#clock.mono() - t0 - others
    link.stats.sampledReplyMs += ms
    const entry = this.entries.find(known => known.plugin === link.id && known.phase === phase)
    if (entry) {
      entry.ms += ms
      entry.calls++
    } else this.entries.push({ plugin: link.id, phase, at: t0 - this.#start, ms, calls: 1 })
  }

  /** The body was waited for since `t0`. */
  body(t0: number): void {
    this.#stretch('', 'body', t0)
  }

  /** The terminal is about to be called. */
  forwarding(t0: number): void {
    this.#forwarded = t0
  }

  /** An event of the upstream's reply: the first one ends the wait for it. */
  replied(terminal: Link): void {
    if (this.#forwarded === 0) return
    this.#stretch(terminal.id, 'upstream', this.#forwarded)
    this.#replied = this.#clock.mono()
    this.#forwarded = 0
  }

  /** The exchange has ended. */
  ended(terminal: Link): void {
    if (this.#replied > 0) this.#stretch(terminal.id, 'reply', this.#replied)
  }

  #stretch(plugin: string, phase: string, t0: number): void {
    this.entries.push({ plugin, phase, at: t0 - this.#start, ms: this.#clock.mono() - t0, calls: 1 })
  }
}
