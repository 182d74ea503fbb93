/** The request's body on node:http, which keeps what nobody has asked for. R numbers: docs/listeners.md. */
import type { Readable } from 'node:stream'
import type { Clock, Timer } from '../../core/clock.ts'
import type { BodyFault, BodyFlow, BodyLimits, BodySink } from '../../core/listener.ts'
import { LINGER_BYTES, LINGER_MS } from '../client-exchange.ts'
import type { NodeExchange } from './exchange.ts'

/**
 * unread     nobody has asked for it
 * reading    it is gathered for a reader who wants it whole
 * streaming  a sink gets each piece
 * read       its reader has it, or has been told why not; there may be none
 * lingering  what still comes is swallowed; when it has ended, or is too much, the answer's end follows (R12)
 */
type BodyState = 'unread' | 'reading' | 'streaming' | 'read' | 'lingering'

/**
 * How long a kept connection may take to finish an upload that was refused by its head; uWebSockets.js gives 8 to 12
 * s.
 */
const DISCARD_MS = 10_000

const empty = new Uint8Array(0)

export class NodeBody {
  readonly #exchange: NodeExchange
  #state: BodyState = 'unread'
  /** Of the deadline while reading, of the linger while lingering. */
  #timer: Timer | undefined

  constructor(exchange: NodeExchange) {
    this.#exchange = exchange
  }

  /** It has come to its reader, all of it. */
  get taken(): boolean {
    return this.#exchange.req.complete && this.#state !== 'unread'
  }

  /** The request announced a body, well framed or not, and its end has not been seen. */
  get uploading(): boolean {
    const { req, headers } = this.#exchange
    return (headers.has('content-length') || headers.has('transfer-encoding')) && !req.complete
  }

  // ---- its reader --------------------------------------------------------------------------------------------------

  /** As `Incoming.readBody`. */
  read(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
    this.claim('read')
    const exchange = this.#exchange
    if (exchange.settled) return
    if (!exchange.hasBody) return done(null, empty)
    const { req } = exchange
    const declared = exchange.headers.get('content-length')
    if (declared !== undefined && Number(declared) > limits.maxBytes) {
      exchange.closeAfterAnswer()
      return done('too_large', empty)
    }
    let chunks: Uint8Array[] = []
    let bytes = 0
    const stop = (): void => {
      this.#state = 'read'
      this.#timer?.cancel()
      req.off('data', take)
      req.off('end', finish)
    }
    const fault = (why: BodyFault): void => {
      stop()
      chunks = []
      exchange.closeAfterAnswer()
      req.pause()
      exchange.guard(() => done(why, empty))
    }
    const take = (chunk: Buffer): void => {
      bytes += chunk.byteLength
      if (bytes > limits.maxBytes) return fault('too_large')
      chunks.push(chunk)
    }
    const finish = (): void => {
      if (this.#state !== 'reading') return
      stop()
      exchange.guard(() => done(null, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, bytes)))
    }
    this.#state = 'reading'
    this.#continue()
    // GEN-6: our clock, which nothing that arrives moves.
    this.#timer = exchange.shared.clock.setTimer(limits.timeoutMs, () => fault('timeout'))
    req.on('data', take)
    req.on('end', finish)
  }

  /** As `Incoming.streamBody`. */
  stream(sink: BodySink): BodyFlow {
    this.claim('streaming')
    const exchange = this.#exchange
    const { req } = exchange
    if (!exchange.hasBody) {
      queueMicrotask(() => {
        if (!exchange.gone) exchange.guard(() => sink.end())
      })
      return { pause() {}, resume() {} }
    }
    this.#continue()
    req.on('data', (chunk: Buffer) => exchange.guard(() => sink.chunk(chunk)))
    req.on('end', () => exchange.guard(() => sink.end()))
    return { pause: () => void req.pause(), resume: () => void req.resume() }
  }

  /** Throws when it has been asked for already. */
  claim(state: 'read' | 'streaming'): void {
    if (this.#state !== 'unread') throw new Error('the body has been asked for already')
    this.#state = state
  }

  /** The client waits for a word before it uploads. On `uws` that word comes before the handler runs. */
  #continue(): void {
    if (this.#exchange.headers.has('expect')) this.#exchange.res.writeContinue()
  }

  // ---- its end -----------------------------------------------------------------------------------------------------

  /** Swallows the rest of the upload, then calls `then`, which ends the answer and with it the connection. */
  linger(then: () => void): void {
    if (!this.uploading) return then()
    const { req, res, shared } = this.#exchange
    const stop = (): void => {
      if (this.#state !== 'lingering') return
      this.#state = 'read'
      this.#timer?.cancel()
      then()
    }
    this.#state = 'lingering'
    this.#timer?.cancel()
    req.removeAllListeners('data')
    req.on('end', stop)
    shared.lingering.set(res, stop)
    this.#timer = swallow(req, shared.clock, stop)
  }

  /**
   * node:http discards the rest of a refused upload for as long as it lasts; the connection must not be held that way.
   */
  limitDiscard(): void {
    const { req, shared } = this.#exchange
    const { socket } = req
    const timer = shared.clock.setTimer(DISCARD_MS, () => {
      if (!req.complete) socket.destroy()
    })
    req.once('close', () => timer.cancel())
  }

  stopTimer(): void {
    this.#timer?.cancel()
  }
}

/**
 * R12: takes what a client still sends, and calls `stop` when that lasts too long or is too much: more than once, it
 * may be.
 */
export function swallow(from: Readable, clock: Clock, stop: () => void): Timer {
  let bytes = 0
  from.on('data', (chunk: Buffer) => {
    bytes += chunk.byteLength
    if (bytes > LINGER_BYTES) stop()
  })
  from.resume()
  return clock.setTimer(LINGER_MS, stop)
}
