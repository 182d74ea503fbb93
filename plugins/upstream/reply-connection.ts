/**
 * The connection on which an attempt's reply comes: paused while nobody reads, given up, or kept for the next request.
 */
import type { Dispatcher } from 'undici'
import type { Clock, Timer } from '../../core/clock.ts'

/**
 * waiting  nothing of the request has left, and there may be no connection yet
 * reading  the request was sent, and its reply is read
 * tail     the provider has said its last word; what may follow it is dropped, so that the connection can be kept
 * ended    it has been read to its end, or has failed: the connection may be another's by now
 * aborted  it was given up
 */
type State = 'waiting' | 'reading' | 'tail' | 'ended' | 'aborted'

/** One for all: making an Error costs more than the abort. */
const ENDED = new Error('the exchange has ended')

/**
 * What may follow a provider's terminal event, and for how long, before the connection is given up: trailers, a last
 * chunk, pings.
 */
const MAX_TAIL = 1024
const TAIL_MS = 1000

export class ReplyConnection {
  #state: State = 'waiting'
  #controller: Dispatcher.DispatchController | null = null
  #paused = false
  #tailBytes = 0
  #tailTimer: Timer | undefined

  /** Bytes of the request may have left. */
  get used(): boolean {
    return this.#controller !== null
  }
  /** By the reader's wish, which holds for a connection that is yet to come, too. */
  get paused(): boolean {
    return this.#paused
  }

  begun(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    if (this.#state === 'aborted') return controller.abort(ENDED)
    this.#state = 'reading'
    if (this.#paused) controller.pause()
  }

  pause(): void {
    this.#paused = true
    this.stall()
  }

  resume(): void {
    this.#paused = false
    this.unstall()
  }

  /** Reads no more until `unstall` or `resume`. */
  stall(): void {
    if (this.#state === 'reading') this.#controller!.pause()
  }

  /** Reads on, unless the reader has paused. */
  unstall(): void {
    if (this.#state === 'reading' && !this.#paused) this.#controller!.resume()
  }

  /** The provider has said its last word. */
  whole(): void {
    if (this.#state === 'reading') this.#state = 'tail'
  }

  /** Bytes that nobody reads. A model that talks on behind its last word is cut off. */
  ignored(bytes: number): void {
    if (this.#state === 'tail' && (this.#tailBytes += bytes) > MAX_TAIL) this.abort()
  }

  /** The reply has been read to its end, or the connection has failed. */
  ended(): void {
    this.#state = 'ended'
    this.#tailTimer?.cancel()
  }

  /**
   * Nobody reads any more. What is whole ends by itself in a moment, and keeps its connection; what is not is given
   * up.
   */
  release(clock: Clock): void {
    if (this.#state !== 'tail') return this.abort()
    if (this.#paused) this.#controller!.resume()
    this.#tailTimer = clock.setTimer(TAIL_MS, () => this.abort())
  }

  abort(): void {
    this.#tailTimer?.cancel()
    if (this.#state === 'ended' || this.#state === 'aborted') return
    this.#state = 'aborted'
    if (this.#controller && !this.#controller.aborted) this.#controller.abort(ENDED)
  }
}
