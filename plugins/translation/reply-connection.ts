/**
 * The connection on which an attempt's reply arrives: paused while nobody reads, closed, or kept for the next request.
 */
import type { WireControl } from '../../core/plugin.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'

/**
 * waiting  nothing of the request was sent, and there may be no connection yet
 * reading  the request was sent, and its reply is read
 * tail     the reply is whole; what may follow it is dropped, so that the connection can be kept
 * ended    the reply was read to its end, or failed: the connection may carry another request by now
 * aborted  the connection was closed
 */
type State = 'waiting' | 'reading' | 'tail' | 'ended' | 'aborted'

/** One object for all aborts: making an Error costs more than the abort. */
const ENDED = new Error('the exchange has ended')

/**
 * Trailers, a last chunk or pings may follow a provider's last event: at most this many bytes, for at most this many
 * milliseconds. Then the connection is closed.
 */
const MAX_TAIL = 1024
const TAIL_MS = 1000

export class ReplyConnection {
  #state: State = 'waiting'
  #controller: WireControl | null = null
  #paused = false
  #tailBytes = 0
  #tailTimer: Timer | undefined

  /** Bytes of the request may have been sent. */
  get used(): boolean {
    return this.#controller !== null
  }
  /** The reader has paused. This holds for a connection that is not open yet, too. */
  get paused(): boolean {
    return this.#paused
  }

  begun(controller: WireControl): void {
    this.#controller = controller
    if (this.#state === 'aborted') return controller.abort(ENDED)
    this.#state = 'reading'
    if (this.#paused) controller.pause()
  }

  /** The request was lost with its connection before anybody had read it, and will be sent over another one. */
  lost(): void {
    if (this.#state !== 'reading') return
    this.#state = 'waiting'
    this.#controller = null
  }

  pause(): void {
    this.#paused = true
    this.stall()
  }

  resume(): void {
    this.#paused = false
    this.unstall()
  }

  /** Stops reading until `unstall` or `resume`. */
  stall(): void {
    if (this.#state === 'reading') this.#controller!.pause()
  }

  /** Continues to read, unless the reader has paused. */
  unstall(): void {
    if (this.#state === 'reading' && !this.#paused) this.#controller!.resume()
  }

  /** The reply is whole: the provider's last event has come. */
  whole(): void {
    if (this.#state === 'reading') this.#state = 'tail'
  }

  /** Counts bytes that nobody reads. A provider that sends too much after its last event is cut off. */
  ignored(bytes: number): void {
    if (this.#state === 'tail' && (this.#tailBytes += bytes) > MAX_TAIL) this.abort()
  }

  /** The reply has been read to its end, or the connection has failed. */
  ended(): void {
    this.#state = 'ended'
    this.#tailTimer?.cancel()
  }

  /**
   * Nobody reads any more. A whole reply ends by itself in a moment, and its connection is kept; any other connection
   * is closed.
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
