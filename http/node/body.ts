/**
 * The body of a request on node:http, which buffers it until somebody reads it. Rule ids such as R12 are those of
 * docs/spec/listener.md.
 */
import type { Readable } from 'node:stream'
import type { BodyFault, BodyFlow, BodyLimits, BodySink } from '../../core/ports/listener.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { LINGER_BYTES, LINGER_MS } from '../client-exchange.ts'
import { CollectedBody } from '../collected-body.ts'
import type { NodeExchange } from './exchange.ts'

/**
 * The states of a body:
 * - `unread`: no code has asked for it
 * - `reading`: it is collected for a reader that wants it whole
 * - `streaming`: a sink gets each piece
 * - `read`: its reader has it, or was given a fault; or nobody reads it
 * - `lingering`: the rest is discarded; the response ends when the upload has ended or passed a limit (R12)
 */
type BodyState = 'unread' | 'reading' | 'streaming' | 'read' | 'lingering'

/**
 * The time in milliseconds that a connection which stays open may take to finish an upload that was refused by its
 * head. uWebSockets.js gives 8 to 12 s.
 */
const DISCARD_MS = 10_000

const empty = new Uint8Array(0)

export class NodeBody {
  readonly #exchange: NodeExchange
  #state: BodyState = 'unread'
  /** The timer of the body deadline while reading, of the linger while lingering. */
  #timer: Timer | undefined

  constructor(exchange: NodeExchange) {
    this.#exchange = exchange
  }

  /** True once the whole body has reached its reader. */
  get taken(): boolean {
    return this.#exchange.req.complete && this.#state !== 'unread'
  }

  /** True when the request declared a body, well framed or not, whose end has not arrived. */
  get uploading(): boolean {
    const { req, headers } = this.#exchange
    return (headers.has('content-length') || headers.has('transfer-encoding')) && !req.complete
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  /** See `Incoming.readBody`. */
  read(
    limits: BodyLimits,
    done: (fault: BodyFault | null, body: Uint8Array) => void,
    allow?: (bytes: number) => boolean,
  ): void {
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
    let first: Uint8Array | undefined
    let body: CollectedBody | undefined
    let bytes = 0
    const stop = (): void => {
      this.#state = 'read'
      this.#timer?.cancel()
      req.off('data', take)
      req.off('end', finish)
    }
    const fault = (why: BodyFault): void => {
      stop()
      first = body = undefined
      exchange.closeAfterAnswer()
      req.pause()
      exchange.guard(() => done(why, empty))
    }
    const take = (chunk: Buffer): void => {
      bytes += chunk.byteLength
      if (bytes > limits.maxBytes) return fault('too_large')
      if (allow?.(chunk.byteLength) === false) return fault('refused')
      if (first === undefined) {
        first = chunk
        return
      }
      if (body === undefined) {
        body = new CollectedBody(declared === undefined ? undefined : Number(declared), limits.maxBytes)
        body.add(first)
      }
      body.add(chunk)
    }
    const finish = (): void => {
      if (this.#state !== 'reading') return
      stop()
      exchange.guard(() => done(null, body?.bytes ?? first ?? empty))
    }
    this.#state = 'reading'
    this.#continue()
    // GEN-6: a fixed deadline, which arriving bytes do not extend.
    this.#timer = exchange.shared.clock.setTimer(limits.timeoutMs, () => fault('timeout'))
    req.on('data', take)
    req.on('end', finish)
  }

  /** See `Incoming.streamBody`. */
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

  /** Marks the body as asked for. @throws Error when it was asked for before */
  claim(state: 'read' | 'streaming'): void {
    if (this.#state !== 'unread') throw new Error('the body has been asked for already')
    this.#state = state
  }

  /** The client waits for `100 Continue` before it uploads. On `uws` it is sent before the handler runs. */
  #continue(): void {
    if (this.#exchange.headers.has('expect')) this.#exchange.res.writeContinue()
  }

  // ---- discarding ---------------------------------------------------------------------------------------------------

  /** Discards the rest of the upload, then calls `then`, which ends the response and with it the connection. */
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
    this.#timer = discardRest(req, shared.clock, stop)
  }

  /**
   * node:http discards the rest of a refused upload however long that takes. This limits the time, so that a client
   * cannot keep the connection busy.
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
 * R12: discards what a client still sends. Calls `stop` when that takes too long or is too much; perhaps more than
 * once.
 */
export function discardRest(from: Readable, clock: Clock, stop: () => void): Timer {
  let bytes = 0
  from.on('data', (chunk: Buffer) => {
    bytes += chunk.byteLength
    if (bytes > LINGER_BYTES) stop()
  })
  from.resume()
  return clock.setTimer(LINGER_MS, stop)
}
