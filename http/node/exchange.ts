/**
 * One exchange on node:http: its head, whole responses, and its end. body.ts has the request's body, stream.ts
 * streamed responses, tunnel.ts what follows a 101. Rule ids such as R12 are those of docs/spec/listener.md.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
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
} from '../../core/ports/listener.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { HeaderFields } from '../../core/tools/header-fields.ts'
import { plainAddress, type TrustedPeers } from '../client-address.ts'
import { ClientExchange, failureBody, failureHeaders } from '../client-exchange.ts'
import {
  asksClose,
  checkHead,
  declaresBody,
  endsConnection,
  headerWords,
  isBodiless,
  type SafeHead,
  safeHead,
  statusLine,
  upgradeOf,
} from '../safe-header.ts'
import { NodeBody } from './body.ts'
import { NodeStream, onStall } from './stream.ts'
import type { NodeTunnel } from './tunnel.ts'

/** State that the exchanges of one listener share. */
export interface NodeShared {
  readonly options: ListenerOptions
  readonly handler: RequestHandler
  readonly clock: Clock
  readonly trusted: TrustedPeers
  draining: boolean
  /** Each connection closes after its next response. */
  retiring: boolean
  /** Number of responses that the gateway has finished and the kernel has not taken whole. */
  unsent: number
  /** By response: a function that ends a linger, for responses that wait only for the rest of an upload. */
  readonly lingering: WeakMap<ServerResponse, () => void>
  /** Called when `unsent` becomes 0. */
  allSent(): void
}

export class NodeExchange extends ClientExchange implements Incoming {
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
  readonly body: NodeBody

  readonly #tunnel: NodeTunnel | undefined
  /** The streamed response, or the tunnel of a 101. */
  #stream: NodeStream | NodeTunnel | undefined
  /** True when the connection closes after this response. */
  #lastAnswer = false
  /** True while this response is counted in the listener's `unsent`. */
  #handingOver = false

  /** @param tunnel given for a handshake that may be answered with 101 */
  constructor(req: IncomingMessage, res: ServerResponse, shared: NodeShared, tunnel?: NodeTunnel) {
    super()
    this.req = req
    this.res = res
    this.shared = shared
    this.#tunnel = tunnel
    this.body = new NodeBody(this)
    this.method = req.method ?? ''
    const { path, query } = targetOf(req)
    this.path = path
    this.query = query
  }

  get tunnel(): 'bytes' | undefined {
    return this.#tunnel && 'bytes'
  }

  begin(): void {
    const { req, res, headers, shared } = this
    res.on('close', () => this.#closed())
    // A connection reset is reported as an error here and as 'close' above; the latter is enough.
    req.on('error', () => {})
    res.on('error', () => {})
    let fault = checkHead(this.method, this.path, this.query, req.rawHeaders, headers)
    if (req.httpVersion !== '1.1') fault ??= { reason: 'http_version' }
    if (fault !== null) {
      this.#lastAnswer = true
      const refusal = shared.options.refuse(fault.reason, headerWords(fault))
      return this.respond(refusal.status, refusal.headers, refusal.body)
    }
    this.hasBody = declaresBody(headers)
    this.upgrade = upgradeOf(headers)
    if (this.upgrade !== undefined || asksClose(headers.get('connection'))) this.#lastAnswer = true
    this.remoteAddress = shared.trusted.clientOf(
      plainAddress(req.socket.remoteAddress ?? ''),
      headers.get('x-forwarded-for'),
    )
    shared.handler(this)
  }

  // ---- the request's body -------------------------------------------------------------------------------------------

  readBody(
    limits: BodyLimits,
    done: (fault: BodyFault | null, body: Uint8Array) => void,
    take?: (bytes: number) => boolean,
  ): void {
    this.body.read(limits, done, take)
  }

  streamBody(sink: BodySink): BodyFlow {
    const tunnel = this.#tunnel
    if (tunnel === undefined || this.#stream !== tunnel) return this.body.stream(sink)
    this.body.claim('streaming')
    return tunnel.read(sink)
  }

  get bodyTaken(): boolean {
    return this.body.taken
  }

  // ---- the response -------------------------------------------------------------------------------------------------

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.state !== 'open') return
    const head = safeHead(status, headers)
    this.state = 'answered'
    this.body.stopTimer()
    if (head.close || endsConnection(status, this)) this.#lastAnswer = true
    this.handOver()
    const { res } = this
    const bodiless = this.method === 'HEAD' || isBodiless(status)
    // Node writes a head together with text, and then in the encoding of the text.
    if (head.latin1 && typeof body === 'string') body = Buffer.from(body)
    this.#writeHead(head, isBodiless(status) ? '' : String(Buffer.byteLength(body)))
    if (this.mustLinger) {
      // The whole response is sent now. Only its end waits for the upload, since node:http closes the socket at the
      // end.
      if (bodiless || body.length === 0) res.flushHeaders()
      else res.write(body)
      return this.body.linger(() => res.end())
    }
    res.end(bodiless ? undefined : body)
    this.watchDelivery()
    if (this.body.uploading) this.body.limitDiscard()
  }

  stream(status: number, headers: HeaderList): OutgoingStream {
    if (this.state !== 'open' && !this.gone) throw new Error('the exchange has been answered already')
    if (status === 101 && this.#tunnel !== undefined) return this.#openTunnel(this.#tunnel, headers)
    const head = safeHead(status, headers)
    if (!this.gone) this.state = 'streaming'
    if (head.close || endsConnection(status, this)) this.#lastAnswer = true
    const bodiless = this.method === 'HEAD' || isBodiless(status)
    if (!this.gone) this.#writeHead(head, bodiless ? head.length : '')
    this.#stream = new NodeStream(this, bodiless)
    return this.#stream
  }

  #openTunnel(tunnel: NodeTunnel, headers: HeaderList): OutgoingStream {
    const { lines } = safeHead(200, headers)
    this.#stream = tunnel
    if (this.gone) {
      tunnel.dropped()
      return tunnel
    }
    this.state = 'streaming'
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

  /** @param length the Content-Length; '' for none */
  #writeHead({ status, pairs }: SafeHead, length: string): void {
    const all = [...pairs]
    if (length !== '') all.push('content-length', length)
    if (this.#lastAnswer || this.shared.retiring) {
      this.#lastAnswer = true
      all.push('connection', 'close')
    }
    this.res.writeHead(status, all)
  }

  /** The connection must close after the response, whatever the response is. */
  closeAfterAnswer(): void {
    this.#lastAnswer = true
  }

  /** R12: closing a socket with unread bytes would reset the connection before the client has read the response. */
  get mustLinger(): boolean {
    return this.body.uploading && (this.#lastAnswer || !this.res.shouldKeepAlive)
  }

  /**
   * R10: the socket's own idle timer runs while bytes wait for the client; the connection is closed when the client
   * takes none for `stallTimeoutMs`. This timer knows how much of a write the kernel has taken.
   */
  watchDelivery(): void {
    const { socket } = this.req
    if (this.gone || this.res.writableFinished || socket.writableLength === 0) return
    socket.setTimeout(this.shared.options.stallTimeoutMs, onStall)
    // node:http sets its keep-alive timeout itself once the response was sent.
    this.res.once('finish', () => socket.off('timeout', onStall))
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /**
   * The gateway has finished the response. It is counted as unsent until the response closes, which happens once the
   * kernel has all of it.
   */
  handOver(): void {
    if (this.gone || this.#handingOver) return
    this.#handingOver = true
    this.shared.unsent++
  }

  /** The stream has written its last byte. */
  settle(): void {
    if (!this.gone) this.state = 'answered'
  }

  /** Closes the connection now. */
  abandon(): void {
    this.req.socket.destroy()
  }

  #closed(): void {
    // 'close' is also emitted after a whole response on a connection that stays open.
    this.state = this.settled || this.res.writableFinished ? 'closed' : 'aborted'
    if (this.#handingOver && --this.shared.unsent === 0) this.shared.allSent()
    this.body.stopTimer()
    this.#stream?.dropped()
    if (this.state === 'aborted') this.notifyAborted(this.shared.options.onError)
  }

  /** Runs a callback of the gateway and handles what it throws. */
  guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.fail(error)
    }
  }

  /** An exception in the handler or a callback: answers 500 when nothing was sent yet, else cuts the connection. */
  fail(error: unknown): void {
    this.shared.options.onError?.(error)
    if (this.gone) return
    if (this.#stream !== undefined) return this.abandon()
    if (this.state !== 'open') return
    this.#lastAnswer = true
    this.respond(500, failureHeaders, failureBody)
  }
}

/** The target of a request, split into path and query. */
export function targetOf({ url = '' }: IncomingMessage): { path: string; query: string } {
  const mark = url.indexOf('?')
  return mark < 0 ? { path: url, query: '' } : { path: url.slice(0, mark), query: url.slice(mark + 1) }
}
