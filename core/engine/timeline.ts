/**
 * The time that each plugin takes of an exchange, for the dashboard. It is measured for sampled exchanges only: two
 * clock reads for each hook are too expensive for every exchange.
 */

import type { Clock } from '../tools/clock.ts'
import type { Link } from './chain.ts'

/**
 * The time of one plugin in one phase of a sampled exchange. A phase is the name of a hook, or `body` (waiting for
 * the request's body; no plugin), `upstream` (from the call of the terminal to the first event of the reply) or
 * `reply` (from there to the end).
 */
export interface TimelineEntry {
  plugin: string
  phase: string
  /** When the first call began, in milliseconds after the start of the exchange. */
  at: number
  /**
   * Milliseconds of all calls together. Time in the hooks that a hook calls by pushing events does not count as its
   * own.
   */
  ms: number
  calls: number
}

/** One exchange in this many is sampled, however many there are. */
const SAMPLE = 16
/**
 * In addition, the first exchanges of each second are sampled, up to this many: on a gateway with little traffic the
 * dashboard has a timeline of every exchange.
 */
const SAMPLED_A_SECOND = 50
/** Exchanges so far; the current second of the monotonic clock; exchanges that count against its `SAMPLED_A_SECOND`. */
let seen = 0
let second = 0
let inSecond = 0

export class Timeline {
  readonly entries: TimelineEntry[] = []
  readonly #clock: Clock
  readonly #start: number
  /**
   * Monotonic milliseconds. `#forwarded`: when the terminal was called; 0 again after the first event of the reply.
   * `#replied`: when that event arrived.
   */
  #forwarded = 0
  #replied = 0

  private constructor(clock: Clock, start: number) {
    this.#clock = clock
    this.#start = start
  }

  /**
   * A timeline if this exchange is sampled, else null.
   * @param start monotonic milliseconds
   */
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

  /** Records a call on the way down that began at `t0`. */
  request(link: Link, phase: string, t0: number): void {
    const ms = this.#clock.mono() - t0
    link.stats.sampledCalls++
    link.stats.sampledMs += ms
    this.entries.push({ plugin: link.id, phase, at: t0 - this.#start, ms, calls: 1 })
  }

  /**
   * Records a call on the way back. All calls of one hook are one entry.
   * @param others milliseconds of the call that belong to later hooks
   */
  response(link: Link, phase: string, t0: number, others = 0): void {
    const ms = this.#clock.mono() - t0 - others
    link.stats.sampledReplyMs += ms
    const entry = this.entries.find(known => known.plugin === link.id && known.phase === phase)
    if (entry) {
      entry.ms += ms
      entry.calls++
    } else this.entries.push({ plugin: link.id, phase, at: t0 - this.#start, ms, calls: 1 })
  }

  /** Records the wait for the body, which began at `t0`. */
  body(t0: number): void {
    this.#stretch('', 'body', t0)
  }

  /** The terminal is about to be called. */
  forwarding(t0: number): void {
    this.#forwarded = t0
  }

  /** Called with each event of the upstream's reply; the first one ends the wait for it. */
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
