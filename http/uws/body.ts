/**
 * The request's body on uWebSockets.js: what has arrived waits for a reader, goes to one, or is swallowed. R numbers:
 * docs/spec/listener.md.
 */

import type { Timer } from '../../core/clock.ts'
import type { BodyFault, BodyFlow, BodyLimits, BodySink } from '../../core/listener.ts'
import { LINGER_BYTES, LINGER_MS } from '../client-exchange.ts'
import type { UwsExchange } from './exchange.ts'
import { defer, enterTurn, inTurn } from './turn.ts'

/**
 * none       the request has no body
 * unread     it has one, and no onData is registered: uWebSockets.js discards it (R12)
 * kept       nobody has asked yet, and what arrives waits for a reader (R2)
 * reading    it is gathered for a reader who wants it whole
 * streaming  a sink gets each piece
 * discarded  nobody wants what still arrives
 * lingering  as discarded; when it has ended, or when there is too much of it, the answer's end follows (R12)
 */
type BodyState = 'none' | 'unread' | 'kept' | 'reading' | 'streaming' | 'discarded' | 'lingering'

type BodyReader = (fault: BodyFault | null, body: Uint8Array) => void

/** R2: bytes kept for a reader that has not asked yet, before the socket is paused; one read (512 KB) may top it. */
const KEPT_BYTES = 256 * 1024
/**
 * Bytes that may still arrive after a sink has said pause: a blocked write makes uSockets poll for reading again, and
 * its read loop does not look at the pause before the kernel's buffers are empty (up to 33 MB of `tcp_rmem`, and a
 * local sender's own on top).
 */
const PAUSED_BYTES = 64 * 1024 * 1024

const empty = new Uint8Array(0)

export class UwsBody {
  readonly #exchange: UwsExchange
  #state: BodyState = 'none'
  #ended = true
  #paused = false
  #kept: Uint8Array[] = []
  /** Arrived in all, arrived although its reader has paused it, and arrived while lingering. */
  #bytes = 0
  #pausedBytes = 0
  #lingered = 0
  #maxBytes = 0
  #timeoutMs = 0
  #done: BodyReader | undefined
  #sink: BodySink | undefined
  #sinkPaused = false
  #afterLinger: (() => void) | undefined
  /** Of the deadline while reading, of the linger while lingering. */
  #timer: Timer | undefined

  constructor(exchange: UwsExchange) {
    this.#exchange = exchange
  }

  /** The last byte has been seen, or there is none to come. */
  get ended(): boolean {
    return this.#ended
  }
  /** Its reading is paused by its reader. */
  get paused(): boolean {
    return this.#paused
  }
  /** It has come to its reader, all of it. */
  get taken(): boolean {
    return this.#ended && (this.#done !== undefined || this.#sink !== undefined)
  }
  /** Nobody listens: uWebSockets.js discards it. */
  get unread(): boolean {
    return this.#state === 'unread'
  }
  /** onData waits for more: ending the answer now would leak the socket, or reset it under the answer (R12). */
  get open(): boolean {
    return !this.#ended && this.#state !== 'unread'
  }

  // ---- its beginning ------------------------------------------------------------------------------------------------

  /** The head announces one. */
  announced(): void {
    this.#state = 'unread'
    this.#ended = false
  }

  /** Keeps what arrives for a reader who has not asked yet. */
  keep(): void {
    this.#register('kept')
  }

  /** Swallows what arrives. */
  discard(): void {
    this.#register('discarded')
  }

  #register(state: BodyState): void {
    this.#state = state
    this.#ended = false
    this.#exchange.res.onData((chunk, last) => {
      enterTurn()
      try {
        this.#onChunk(chunk, last)
      } catch (error) {
        this.#exchange.fail(error)
      }
    })
    this.#watchLater()
  }

  // ---- its reader ---------------------------------------------------------------------------------------------------

  /** As `Incoming.readBody`. */
  read(limits: BodyLimits, done: BodyReader): void {
    this.#claim()
    if (this.#exchange.settled) return
    if (this.#state === 'none') return done(null, empty)
    this.#maxBytes = limits.maxBytes
    this.#timeoutMs = limits.timeoutMs
    this.#done = done
    const declared = this.#exchange.headers.get('content-length')
    if (declared !== undefined && Number(declared) > limits.maxBytes) {
      if (this.#state === 'unread') this.discard()
      return this.#fault('too_large')
    }
    if (this.#state === 'unread') return this.#register('reading')
    this.#state = 'reading'
    if (this.#bytes > limits.maxBytes) return this.#fault('too_large')
    if (this.#ended) return this.#finish()
    this.#resume()
    this.#watchLater()
  }

  /** As `Incoming.streamBody`. */
  stream(sink: BodySink): BodyFlow {
    this.#claim()
    this.#sink = sink
    if (this.#exchange.settled) {
      // Nothing will come.
    } else if (this.#state === 'unread') this.#register('streaming')
    else if (this.#state === 'none' || this.#state === 'kept') {
      const none = this.#state === 'none'
      if (!none) this.#state = 'streaming'
      queueMicrotask(() => this.#handOver(none))
    }
    return {
      pause: () => {
        this.#sinkPaused = true
        if (this.#state === 'streaming') this.#pause()
      },
      resume: () => {
        this.#sinkPaused = false
        this.#resume()
      },
    }
  }

  #claim(): void {
    if (this.#done !== undefined || this.#sink !== undefined) throw new Error('the body has been asked for already')
  }

  /** Gives a sink what had arrived before it was there. */
  #handOver(none: boolean): void {
    if (this.#exchange.gone) return
    try {
      const kept = this.#kept
      this.#kept = []
      for (const chunk of kept) this.#sink!.chunk(chunk)
      if (none || this.#ended) this.#sink!.end()
      else if (!this.#sinkPaused) this.#resume()
    } catch (error) {
      this.#exchange.fail(error)
    }
  }

  #pause(): void {
    if (this.#paused || this.#ended || this.#exchange.over) return
    this.#paused = true
    this.#pausedBytes = 0
    this.#exchange.res.pause()
  }

  #resume(): void {
    if (!this.#paused || this.#exchange.over) return
    this.#paused = false
    // uWebSockets.js arms its 10 s timer here; the tick takes over from now on (R11).
    this.#exchange.res.resume()
    this.#exchange.startTicking()
  }

  // ---- what arrives -------------------------------------------------------------------------------------------------

  #onChunk(chunk: ArrayBuffer, last: boolean): void {
    // R12: these go on after the answer was ended; by then there is nothing to do but forget them.
    if (this.#exchange.over) return
    if (last) this.#ended = true
    const bytes = chunk.byteLength
    this.#bytes += bytes
    switch (this.#state) {
      case 'kept':
        if (bytes > 0) this.#kept.push(copyOf(chunk))
        // A paused socket does not see its client leave; so it is paused only when there is much to keep.
        if (!last && this.#bytes > KEPT_BYTES) this.#pause()
        break
      case 'reading':
        // R11: the cap counts what arrives, whatever Content-Length said.
        if (this.#bytes > this.#maxBytes) return this.#fault('too_large')
        if (last) this.#finish(chunk)
        else if (bytes > 0) this.#kept.push(copyOf(chunk))
        break
      case 'streaming':
        if (bytes > 0) {
          if (this.#kept.length > 0) this.#kept.push(copyOf(chunk))
          else this.#sink!.chunk(copyOf(chunk))
        }
        if (this.#paused && !last) this.#pausedAnyway(bytes)
        else if (last && this.#kept.length === 0) this.#sink!.end()
        break
      case 'lingering':
        this.#lingered += bytes
        if (last || this.#lingered > LINGER_BYTES) defer(this.#exchange)
    }
    if (last) this.#exchange.bodyEnded()
  }

  /** A blocked write made uSockets poll for reading although the body is paused. */
  #pausedAnyway(bytes: number): void {
    this.#pausedBytes += bytes
    if (this.#pausedBytes > PAUSED_BYTES) return this.#exchange.abandon()
    if (!this.#exchange.blocked) this.#exchange.res.pause()
  }

  /** @param rest what has just arrived; of several pieces it is copied once, to where it belongs */
  #finish(rest?: ArrayBuffer): void {
    this.#stopTimer()
    const kept = this.#kept
    this.#kept = []
    if (rest !== undefined && rest.byteLength > 0) kept.push(kept.length === 0 ? copyOf(rest) : new Uint8Array(rest))
    this.#done!(null, kept.length === 1 ? kept[0]! : kept.length === 0 ? empty : Buffer.concat(kept, this.#bytes))
  }

  #fault(fault: BodyFault): void {
    this.#stopTimer()
    this.#kept = []
    this.#state = 'discarded'
    this.#exchange.closeAfterAnswer()
    this.#resume()
    this.#done!(fault, empty)
  }

  // ---- its clocks ---------------------------------------------------------------------------------------------------

  /**
   * Starts the clocks of a body that is not there yet. Most bodies come with their head and are whole when the turn
   * ends, so that they need neither timer nor tick.
   */
  #watchLater(): void {
    if (inTurn()) defer(this.#exchange)
    else this.watch()
  }

  /** The turn is over. */
  watch(): void {
    if (this.#ended || this.#exchange.over) return
    this.#exchange.startTicking()
    if (this.#state !== 'reading' || this.#timer !== undefined) return
    // R11: our clock, from the moment of asking; nothing that arrives moves it.
    this.#timer = this.#exchange.shared.clock.setTimer(this.#timeoutMs, () => {
      this.#timer = undefined
      if (this.#state !== 'reading' || this.#ended || this.#exchange.gone) return
      try {
        this.#fault('timeout')
      } catch (error) {
        this.#exchange.fail(error)
      }
    })
  }

  #stopTimer(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  // ---- its end ------------------------------------------------------------------------------------------------------

  /** Swallows the rest of the upload, then calls `then`, which closes or ends. */
  linger(then: () => void): void {
    if (this.#ended) return then()
    this.#state = 'lingering'
    this.#kept = []
    this.#lingered = 0
    this.#afterLinger = then
    this.#resume()
    this.#exchange.startTicking()
    this.#stopTimer()
    this.#timer = this.#exchange.shared.clock.setTimer(LINGER_MS, () => {
      if (!this.#exchange.gone) this.#stopLingering()
    })
  }

  get lingers(): boolean {
    return this.#state === 'lingering'
  }

  /** The turn is over: the linger may be, too. */
  endLinger(): void {
    if (this.#ended || this.#lingered > LINGER_BYTES) this.#stopLingering()
  }

  #stopLingering(): void {
    const then = this.#afterLinger!
    this.#afterLinger = undefined
    this.#state = 'discarded'
    this.#stopTimer()
    if (this.#ended) then()
    else this.#exchange.abandon()
  }

  /** The exchange is over. */
  clear(): void {
    this.#stopTimer()
    this.#kept = []
  }
}

/** uWebSockets.js takes the memory of a chunk back when the callback returns. */
function copyOf(chunk: ArrayBuffer): Uint8Array {
  const copy = Buffer.allocUnsafe(chunk.byteLength)
  copy.set(new Uint8Array(chunk))
  return copy
}
