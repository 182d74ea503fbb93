/** One exchange on node:http. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import type { Clock, Timer } from '../../core/clock.ts'
import { HeaderFields } from '../../core/header-fields.ts'
import type {
  BodyFault,
  BodyFlow,
  BodyLimits,
  BodySink,
  HeaderList,
  Incoming,
  ListenerOptions,
  OutgoingStream,
  RequestHandler,
} from '../../core/listener.ts'
import { withListener } from '../aborts.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { plainAddress, type TrustedPeers } from '../client-address.ts'
import {
  asksClose,
  declaresBody,
  endsConnection,
  isBodiless,
  judgeHead,
  type SafeHead,
  safeHead,
  statusLine,
  upgradeOf,
} from '../safe-header.ts'
import type { NodeTunnel } from './tunnel.ts'

/** What the exchanges of one listener share. */
export interface NodeShared {
  readonly options: ListenerOptions
  readonly handler: RequestHandler
  readonly clock: Clock
  readonly trusted: TrustedPeers
  draining: boolean
  /** Answers that are over for the gateway and not yet in the kernel. */
  unsent: number
  /** What ends those whose connection only waits for the rest of an upload. */
  readonly lingering: WeakMap<ServerResponse, () => void>
  /** The last of them is. */
  allSent(): void
}

/** R12, the same figures as on `uws`. */
const LINGER_MS = 5_000
const LINGER_BYTES = 64 * 1024 * 1024
/** How long a kept connection may take to finish an upload that was refused by its head; uWebSockets.js gives 8 to 12 s. */
const DISCARD_MS = 10_000
/** Bytes handed to node:http at a time. */
const PIECE_BYTES = 16 * 1024

const empty = new Uint8Array(0)

export class NodeExchange implements Incoming {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers = new HeaderFields()
  remoteAddress = ''
  hasBody = false
  upgrade: string | undefined = undefined

  readonly req: IncomingMessage
  readonly res: ServerResponse
  readonly shared: NodeShared
  /** The socket is closed. */
  gone = false

  readonly #tunnel: NodeTunnel | undefined

  #bodyAsked = false
  #answered = false
  #settled = false
  #handingOver = false
  #aborted = false
  #mustClose = false
  #stream: NodeStream | NodeTunnel | undefined
  #bodyTimer: Timer | undefined
  #lingerTimer: Timer | undefined
  #abortListener: (() => void) | undefined

  /** @param tunnel of a handshake that may be answered with 101 */
  constructor(req: IncomingMessage, res: ServerResponse, shared: NodeShared, tunnel?: NodeTunnel) {
    this.req = req
    this.res = res
    this.shared = shared
    this.#tunnel = tunnel
    this.method = req.method ?? ''
    const { path, query } = targetOf(req)
    this.path = path
    this.query = query
  }

  get tunnel(): boolean {
    return this.#tunnel !== undefined
  }

  begin(): void {
    const { req, res, headers, shared } = this
    res.on('close', () => this.#closed())
    // A reset shows as an error here, and as 'close' above.
    req.on('error', () => {})
    res.on('error', () => {})
    let fault = judgeHead(this.method, this.path, this.query, req.rawHeaders, headers)
    if (req.httpVersion !== '1.1') fault ??= 'http_version'
    if (fault !== null) {
      this.#mustClose = true
      const refusal = shared.options.refuse(fault)
      return this.respond(refusal.status, refusal.headers, refusal.body)
    }
    this.hasBody = declaresBody(headers)
    this.upgrade = upgradeOf(headers)
    if (this.upgrade !== undefined || asksClose(headers.get('connection'))) this.#mustClose = true
    this.remoteAddress = shared.trusted.clientOf(
      plainAddress(req.socket.remoteAddress ?? ''),
      headers.get('x-forwarded-for'),
    )
    shared.handler(this)
  }

  // ---- the request's body ---------------------------------------------------------------------------------------------

  readBody(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
    this.#claimBody()
    if (this.gone || this.#answered) return
    if (!this.hasBody) return done(null, empty)
    const { req } = this
    const declared = this.headers.get('content-length')
    if (declared !== undefined && Number(declared) > limits.maxBytes) {
      this.#mustClose = true
      return done('too_large', empty)
    }
    let chunks: Uint8Array[] = []
    let bytes = 0
    const stop = (): void => {
      this.#bodyTimer?.cancel()
      this.#bodyTimer = undefined
      req.off('data', take)
      req.off('end', finish)
    }
    const fault = (why: BodyFault): void => {
      stop()
      chunks = []
      this.#mustClose = true
      req.pause()
      this.#guard(() => done(why, empty))
    }
    const take = (chunk: Buffer): void => {
      bytes += chunk.byteLength
      if (bytes > limits.maxBytes) return fault('too_large')
      chunks.push(chunk)
    }
    const finish = (): void => {
      stop()
      this.#guard(() => done(null, chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, bytes)))
    }
    this.#continue()
    // GEN-6: our clock, which nothing that arrives moves.
    this.#bodyTimer = this.shared.clock.setTimer(limits.timeoutMs, () => fault('timeout'))
    req.on('data', take)
    req.on('end', finish)
  }

  streamBody(sink: BodySink): BodyFlow {
    this.#claimBody()
    const { req } = this
    if (this.#tunnel !== undefined && this.#stream === this.#tunnel) return this.#tunnel.read(sink)
    if (!this.hasBody) {
      queueMicrotask(() => {
        if (!this.gone) this.#guard(() => sink.end())
      })
      return { pause() {}, resume() {} }
    }
    this.#continue()
    req.on('data', (chunk: Buffer) => this.#guard(() => sink.chunk(chunk)))
    req.on('end', () => this.#guard(() => sink.end()))
    return { pause: () => void req.pause(), resume: () => void req.resume() }
  }

  #claimBody(): void {
    if (this.#bodyAsked) throw new Error('the body has been asked for already')
    this.#bodyAsked = true
  }

  /** The client waits for a word before it uploads. On `uws` that word comes before the handler runs. */
  #continue(): void {
    if (this.headers.has('expect')) this.res.writeContinue()
  }

  // ---- the answer -----------------------------------------------------------------------------------------------------

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.#answered || this.gone) return
    const head = safeHead(status, headers)
    this.#answered = true
    this.#settled = true
    this.#bodyTimer?.cancel()
    if (head.close || endsConnection(status, this)) this.#mustClose = true
    this.handOver()
    const { res } = this
    const bodiless = this.method === 'HEAD' || isBodiless(status)
    this.#writeHead(head, isBodiless(status) ? '' : String(Buffer.byteLength(body)))
    if (this.mustLinger) {
      // The answer leaves whole; only its end, with which node:http closes the socket, waits for the upload.
      if (bodiless || body.length === 0) res.flushHeaders()
      else res.write(body)
      return this.linger(() => res.end())
    }
    res.end(bodiless ? undefined : body)
    this.watchDelivery()
    if (this.#uploading) this.#limitDiscard()
  }

  stream(status: number, headers: HeaderList): OutgoingStream {
    if (this.#answered) throw new Error('the exchange has been answered already')
    if (status === 101 && this.#tunnel !== undefined) return this.#openTunnel(this.#tunnel, headers)
    const head = safeHead(status, headers)
    this.#answered = true
    if (head.close || endsConnection(status, this)) this.#mustClose = true
    const bodiless = this.method === 'HEAD' || isBodiless(status)
    if (!this.gone) this.#writeHead(head, bodiless ? head.length : '')
    this.#stream = new NodeStream(this, bodiless)
    return this.#stream
  }

  #openTunnel(tunnel: NodeTunnel, headers: HeaderList): OutgoingStream {
    const { lines } = safeHead(200, headers)
    this.#answered = true
    this.#stream = tunnel
    if (this.gone) {
      tunnel.dropped()
      return tunnel
    }
    const head = `HTTP/1.1 ${statusLine(101)}\r\nconnection: Upgrade\r\nupgrade: websocket`
    tunnel.open(`${head}${lines}\r\n\r\n`, {
      ended: () => {
        this.handOver()
        this.settle()
      },
      fail: error => this.fail(error),
    })
    return tunnel
  }

  /** @param length Content-Length; '' for none */
  #writeHead({ status, pairs }: SafeHead, length: string): void {
    const all = [...pairs]
    if (length !== '') all.push('content-length', length)
    if (this.#mustClose || this.shared.draining) {
      this.#mustClose = true
      all.push('connection', 'close')
    }
    this.res.writeHead(status, all)
  }

  get bodyTaken(): boolean {
    return this.req.complete && this.#bodyAsked
  }

  /** The request announced a body, well framed or not, and its end has not been seen. */
  get #uploading(): boolean {
    return (this.headers.has('content-length') || this.headers.has('transfer-encoding')) && !this.req.complete
  }

  /** R12: closing over unread bytes would reset the connection under the answer. */
  get mustLinger(): boolean {
    return this.#uploading && (this.#mustClose || !this.res.shouldKeepAlive)
  }

  /** Swallows the rest of the upload, then calls `then`, which ends the answer and with it the connection. */
  linger(then: () => void): void {
    const { req } = this
    if (!this.#uploading) return then()
    let over = false
    const stop = (): void => {
      if (over) return
      over = true
      this.#lingerTimer?.cancel()
      then()
    }
    req.removeAllListeners('data')
    req.on('end', stop)
    this.shared.lingering.set(this.res, stop)
    this.#lingerTimer = swallow(req, this.shared.clock, stop)
  }

  /** node:http discards the rest of a refused upload for as long as it lasts; the connection must not be held that way. */
  #limitDiscard(): void {
    const { req } = this
    const { socket } = req
    const timer = this.shared.clock.setTimer(DISCARD_MS, () => {
      if (!req.complete) socket.destroy()
    })
    req.once('close', () => timer.cancel())
  }

  /**
   * R10: while bytes wait for a client that takes none for `stallTimeoutMs`, the socket's own idle timer runs, which knows how much of a write
   * the kernel has taken.
   */
  watchDelivery(): void {
    const { socket } = this.req
    if (this.gone || this.res.writableFinished || socket.writableLength === 0) return
    socket.setTimeout(this.shared.options.stallTimeoutMs, onStall)
    // node:http sets its keep-alive timeout itself once the answer is out.
    this.res.once('finish', () => socket.off('timeout', onStall))
  }

  // ---- the end --------------------------------------------------------------------------------------------------------

  /** The gateway is done with the answer; what is left of it is counted until the response closes, which it does once the kernel has it. */
  handOver(): void {
    if (this.gone || this.#handingOver) return
    this.#handingOver = true
    this.shared.unsent++
  }

  /** The stream has handed over its last byte. */
  settle(): void {
    this.#settled = true
  }

  onAborted(listener: () => void): void {
    if (this.#aborted) return void listener()
    this.#abortListener = withListener(this.#abortListener, listener)
  }

  #closed(): void {
    // 'close' also follows a whole answer on a kept connection.
    if (this.res.writableFinished) this.#settled = true
    this.gone = true
    if (this.#handingOver && --this.shared.unsent === 0) this.shared.allSent()
    this.#bodyTimer?.cancel()
    this.#lingerTimer?.cancel()
    this.#stream?.dropped()
    if (this.#settled) return
    this.#settled = true
    this.#aborted = true
    const listener = this.#abortListener
    if (listener === undefined) return
    try {
      listener()
    } catch (error) {
      this.shared.options.onError?.(error)
    }
  }

  #guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.fail(error)
    }
  }

  /** An exception in the handler or a callback: 500 when nothing has been said yet, else the connection is cut. */
  fail(error: unknown): void {
    this.shared.options.onError?.(error)
    if (this.gone) return
    if (this.#stream !== undefined) return void this.req.socket.destroy()
    if (this.#answered) return
    this.#mustClose = true
    this.respond(500, [['content-type', 'application/json']], failureBody)
  }
}

/** The target of a request, cut at its query. */
export function targetOf({ url = '' }: IncomingMessage): { path: string; query: string } {
  const mark = url.indexOf('?')
  return mark < 0 ? { path: url, query: '' } : { path: url.slice(0, mark), query: url.slice(mark + 1) }
}

const failureBody = '{"error":{"message":"Internal error","type":"server_error","code":"internal_error","param":null}}'

/** R12: takes what a client still sends, and calls `stop` when that lasts too long or is too much: more than once, it may be. */
export function swallow(from: Readable, clock: Clock, stop: () => void): Timer {
  let bytes = 0
  from.on('data', (chunk: Buffer) => {
    bytes += chunk.byteLength
    if (bytes > LINGER_BYTES) stop()
  })
  from.resume()
  return clock.setTimer(LINGER_MS, stop)
}

/** R10, as a listener of a socket's 'timeout'. */
export function onStall(this: { destroy(): void }): void {
  this.destroy()
}

/** A streamed answer on node:http. */
class NodeStream implements OutgoingStream {
  readonly #exchange: NodeExchange
  readonly #bodiless: boolean
  #queue: (string | Uint8Array)[] = []
  #queued = 0
  /** Bytes written, and those of them that were while the client was blocked. */
  #written = 0
  #overrun = 0
  #blocked = false
  #owesDrain = false
  #closed = false
  #ending = false
  #cutting = false
  #drainListener: (() => void) | undefined

  constructor(exchange: NodeExchange, bodiless: boolean) {
    this.#exchange = exchange
    this.#bodiless = bodiless
    this.#closed = exchange.gone
    exchange.res.on('drain', () => this.#onDrain())
  }

  write(data: string | Uint8Array): void {
    if (this.#closed || this.#bodiless || data.length === 0) return
    const queue = this.#queue
    const last = queue.length - 1
    const before = queue[last]
    if (typeof data === 'string' && typeof before === 'string' && before.length + data.length <= PIECE_BYTES) {
      queue[last] = before + data
    } else queue.push(data)
    const bytes = typeof data === 'string' ? Buffer.byteLength(data) : data.byteLength
    this.#queued += bytes
    this.#written += bytes
    if (!this.#blocked) return
    this.#overrun += bytes
    if (overruns(this.#overrun, this.#written - this.#overrun)) this.#exchange.req.socket.destroy()
  }

  flush(): boolean {
    if (this.#closed) return false
    this.#pump()
    if (this.#blocked || this.#queued > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && !this.#closed
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    return this.#closed ? 0 : this.#queued + this.#exchange.res.writableLength
  }

  end(): void {
    if (this.#closed) return
    this.#closed = true
    this.#ending = true
    this.#exchange.handOver()
    this.#pump()
  }

  cut(): void {
    if (this.#closed) return
    this.#closed = true
    this.#cutting = true
    this.#exchange.handOver()
    this.#pump()
  }

  #pump(): void {
    const { res } = this.#exchange
    while (!this.#blocked && this.#queue.length > 0 && !this.#exchange.gone) {
      const piece = this.#take()
      if (!res.write(piece)) this.#block()
    }
    if (this.#blocked || this.#queue.length > 0 || this.#exchange.gone) return
    if (this.#ending) this.#finish()
    else if (this.#cutting) this.#cutNow()
  }

  #take(): string | Uint8Array {
    const queue = this.#queue
    let first = queue[0]!
    if (typeof first === 'string') {
      const bytes = queue.length === 1 ? this.#queued : Buffer.byteLength(first)
      if (bytes <= PIECE_BYTES) {
        queue.shift()
        this.#queued -= bytes
        return first
      }
      first = Buffer.from(first)
    }
    if (first.byteLength <= PIECE_BYTES) {
      queue.shift()
      this.#queued -= first.byteLength
      return first
    }
    queue[0] = first.subarray(PIECE_BYTES)
    this.#queued -= PIECE_BYTES
    return first.subarray(0, PIECE_BYTES)
  }

  #finish(): void {
    this.#ending = false
    const exchange = this.#exchange
    const end = (): void => {
      exchange.settle()
      exchange.res.end()
      exchange.watchDelivery()
    }
    if (exchange.mustLinger) exchange.linger(end)
    else end()
  }

  /** Without the terminator, once the kernel has what was written (STR-6). */
  #cutNow(): void {
    this.#cutting = false
    const exchange = this.#exchange
    exchange.settle()
    exchange.watchDelivery()
    const close = (): void => void exchange.req.socket.destroySoon()
    exchange.linger(close)
  }

  #block(): void {
    this.#blocked = true
    this.#overrun = 0
    this.#exchange.req.socket.setTimeout(this.#exchange.shared.options.stallTimeoutMs, onStall)
  }

  #onDrain(): void {
    this.#blocked = false
    const { socket } = this.#exchange.req
    socket.off('timeout', onStall)
    socket.setTimeout(0)
    this.#pump()
    if (!this.#owesDrain || this.#blocked || this.#queue.length > 0 || this.#closed) return
    this.#owesDrain = false
    try {
      this.#drainListener?.()
    } catch (error) {
      this.#exchange.fail(error)
    }
  }

  dropped(): void {
    this.#closed = true
    this.#queue = []
    this.#queued = 0
  }
}
