/**
 * The requests that are sent to a backend while it is closed: how fast they may follow each other, and what those that
 * run say already.
 *
 * They go out once a second at first. A reply may take a minute, and a provider that is well again is not to be left out
 * for so long. So one that has got further than the faults did is a sign of health, though no proof: others may follow
 * it faster, until one of them fails.
 *
 * - It has run for longer than any fault took, and for a second at least: twice as many a second may go out, then four
 *   times as many, each time that it has run for as long again. A backend whose faults are silence gets no more than
 *   one a second.
 * - The head of a stream of 200 has come: all may go. Where faults came after such a head, it says nothing.
 */
export class Trials {
  /** How many run of those since the last fault. */
  #running = 0
  /** When the oldest of them was sent. */
  #since = 0
  #lastSent = Number.NEGATIVE_INFINITY
  /** One of them has had its head. */
  #ahead = false
  /** What the faults since the last success were like: the longest took so long, and one came after its head. */
  #longest = 0
  #late = false

  /** Whether the next one may be sent. */
  due(now: number): boolean {
    return now >= this.dueAt(now)
  }

  /** When the next one may be sent, as far as can be said now. @param last when the one before was */
  dueAt(now: number, last = this.#lastSent): number {
    return last + this.#every(now)
  }

  #every(now: number): number {
    if (this.#running === 0) return TRIAL_MS
    if (this.#ahead) return 0
    const times = Math.floor((now - this.#since) / Math.max(TRIAL_MS, this.#longest + 1))
    return times > MOST_DOUBLINGS ? 0 : TRIAL_MS / 2 ** times
  }

  /** Whether one runs that may still show that the backend is well. */
  get running(): boolean {
    return this.#running > 0
  }

  /** The backend was closed just now: the next one has to wait, as after one that was sent. */
  wait(now: number): void {
    this.#lastSent = now
  }

  sent(now: number): void {
    if (this.#running === 0) this.#since = now
    this.#running++
    this.#lastSent = now
  }

  // Each of these is told when the request was sent: one from before the trials says nothing about them.

  /** The head of a stream of 200 has come. */
  head(sent: number): void {
    if (this.#isOne(sent) && !this.#late) this.#ahead = true
  }

  /** One has ended, and says nothing about the backend. */
  neutral(sent: number): void {
    if (!this.#isOne(sent)) return
    this.#running--
    if (this.#running === 0) this.#ahead = false
  }

  /** @param late the fault came after the head of a stream of 200 */
  failed(now: number, sent: number, late: boolean): void {
    this.#longest = Math.max(this.#longest, now - sent)
    if (late) this.#late = true
    if (this.#isOne(sent)) this.#stop()
  }

  succeeded(): void {
    this.#stop()
    this.#longest = 0
    this.#late = false
  }

  #isOne(sent: number): boolean {
    return this.#running > 0 && sent >= this.#since
  }

  #stop(): void {
    this.#running = 0
    this.#ahead = false
  }
}

/** Milliseconds between two of them at first. */
export const TRIAL_MS = 1000
/** At more than a thousand a second, all may go. */
const MOST_DOUBLINGS = 10
