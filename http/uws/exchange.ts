/**
 * One exchange on uWebSockets.js: its head, whole responses, and its end. body.ts has the request's body, stream.ts
 * streamed responses. Rule ids such as R12 are those of docs/spec/listener.md.
 */

import type {
  BodyFault,
  BodyFlow,
  BodyLimits,
  BodySink,
  HeaderList,
  Incoming,
  OutgoingStream,
  SocketSession,
  WebSocketOffer,
} from '../../core/ports/listener.ts'
import type { DenseSet } from '../../core/tools/collections.ts'
import { HeaderFields } from '../../core/tools/header-fields.ts'
import { addressOfBytes } from '../client-address.ts'
import { ClientExchange, failureBody, failureHeaders } from '../client-exchange.ts'
import {
  asksClose,
  checkHead,
  declaresBody,
  endsConnection,
  headerWords,
  isBodiless,
  isHandshake,
  type SafeHead,
  safeHead,
  statusLine,
  upgradeOf,
} from '../safe-header.ts'
import { type BodyOwner, UwsBody } from './body.ts'
import { byteLength, fitsCork, type HeadBytes } from './cork.ts'
import type { UwsRequest, UwsResponse } from './native.ts'
import type { Ticked, UwsShared } from './shared.ts'
import { StallClock } from './stall.ts'
import { type StreamOwner, UwsStream } from './stream.ts'
import { TUNNEL_MESSAGE_BYTES, type TunnelOwner, UwsTunnel } from './tunnel.ts'
import { defer, inTurn } from './turn.ts'
import { type UwsSession, UwsSocket } from './web-socket.ts'

export class UwsExchange extends ClientExchange implements Incoming, Ticked, BodyOwner, StreamOwner, TunnelOwner {
  /** Index in its slice of `ticking`; -1 while it is in none. */
  place = -1
  method = ''
  path = ''
  query = ''
  readonly headers = new HeaderFields()
  #remoteAddress: string | undefined
  hasBody = false
  upgrade: string | undefined = undefined

  readonly res: UwsResponse
  readonly shared: UwsShared
  readonly body: UwsBody

  /** The head of a whole response that waits for the end of the event-loop turn. */
  #head: SafeHead | undefined
  #payload: string | Uint8Array = ''
  #stream: UwsStream | undefined
  /** Set for a large whole response. */
  #stall: StallClock | undefined
  /** True when the connection closes after this response. */
  #lastAnswer = false
  /** Its slice of `ticking`, while it is in one. */
  #slice: DenseSet<Ticked> | undefined
  #handshake: Handshake | undefined
  #tunnel: UwsTunnel | undefined

  constructor(res: UwsResponse, shared: UwsShared) {
    super()
    this.res = res
    this.shared = shared
    this.body = new UwsBody(this)
  }

  /** True once `res` must not be used any more: every method of it would throw. */
  get over(): boolean {
    return this.state === 'ended' || this.gone || this.#handshake?.state === 'upgraded'
  }

  // ---- the request --------------------------------------------------------------------------------------------------

  /**
   * Reads the head, checks it and calls the handler. `req` is not used after this returns (R2).
   * @param context given for a request that asks for an upgrade; uWebSockets.js wants it back when the socket is
   * opened
   */
  begin(req: UwsRequest, context?: unknown): void {
    this.method = req.getCaseSensitiveMethod()
    this.path = req.getUrl()
    this.query = req.getQuery() ?? ''
    const headers = this.headers
    const fault = checkHead(this.method, this.path, this.query, this.shared.fields.read(req), headers)
    // uWebSockets.js reads some chunk sizes wrongly: `9;;` as 0x9ba. What it takes for the body's end, and for the next
    // request, is then not what a proxy in front of it takes for them (compare CVE-2026-2833).
    this.#lastAnswer = asksClose(headers.get('connection')) || headers.has('transfer-encoding')
    if (fault !== null) {
      // R4: after an ambiguous head the connection is always closed. Bytes of a declared body are discarded, never
      // parsed as a request.
      this.#lastAnswer = true
      if (headers.has('content-length') || headers.has('transfer-encoding')) this.body.discard()
      const refusal = this.shared.options.refuse(fault.reason, headerWords(fault))
      this.respond(refusal.status, refusal.headers, refusal.body)
      return
    }
    this.hasBody = declaresBody(headers)
    if (this.hasBody) this.body.announced()
    this.upgrade = upgradeOf(headers)
    // The bytes after an upgrade request are not HTTP (compare CVE-2026-2833), so no later request is served.
    if (this.upgrade !== undefined) {
      this.#lastAnswer = true
      if (context !== undefined && isHandshake(this.method, headers)) this.#handshake = new Handshake(context)
    }
    this.shared.handler(this)
    if (this.#handshake?.state === 'parsing') this.#handshake.state = 'parsed'
    if (this.body.unread) {
      // R2: nobody has asked for the body and the request was not refused. Register onData now, or the body is lost.
      if (!this.settled) this.body.keep()
      // The connection closes after the response. It must not close with unread bytes: the reset would discard the
      // response. And what uWebSockets.js discards by itself is not paced.
      else if (this.#closes() || this.body.large) this.body.discard()
      // R12: otherwise the request was refused by its head alone. No onData is registered, uWebSockets.js discards
      // the body, and the connection stays open.
    }
  }

  get webSocket(): WebSocketOffer | undefined {
    return this.shared.options.webSocket && this.#handshake
  }

  get tunnel(): 'frames' | undefined {
    return this.#handshake && 'frames'
  }

  /** Read from the socket on first use: that takes nearly a microsecond, and most exchanges never use it. */
  get remoteAddress(): string {
    if (this.#remoteAddress === undefined) {
      if (this.over) return ''
      const peer = addressOfBytes(this.res.getRemoteAddress())
      this.#remoteAddress = this.shared.trusted.clientOf(peer, this.headers.get('x-forwarded-for'))
    }
    return this.#remoteAddress
  }

  readBody(
    limits: BodyLimits,
    done: (fault: BodyFault | null, body: Uint8Array) => void,
    take?: (bytes: number) => boolean,
  ): void {
    this.body.read(limits, done, take)
  }

  streamBody(sink: BodySink): BodyFlow {
    if (this.#tunnel !== undefined) return this.#tunnel.read(sink)
    return this.body.stream(sink)
  }

  /** The last byte of the body has arrived. */
  bodyEnded(): void {
    if (this.#stream === undefined) this.#untick()
  }

  get bodyTaken(): boolean {
    return this.body.taken
  }

  // ---- timers -------------------------------------------------------------------------------------------------------

  /**
   * From now on, until the exchange is over or its body has arrived, the timer of uWebSockets.js is kept from
   * expiring.
   */
  startTicking(): void {
    if (this.#slice !== undefined) return
    const { ticking, nextSlice } = this.shared
    this.shared.nextSlice = (nextSlice + 1) % ticking.length
    this.#slice = ticking[nextSlice]!
    this.#slice.add(this)
  }

  #untick(): void {
    this.#slice?.delete(this)
    this.#slice = undefined
  }

  /**
   * R11, decisions 15: uWebSockets.js closes a body slower than 16 KB/s, and a blocked write, after 8 to 12 s.
   * Pausing and resuming restarts its timer, so that only our own deadlines apply. Called every 4 s.
   */
  tick(): void {
    if (this.over) return this.#untick()
    // A paused socket has no such timer, and to resume it would undo the reader's pause.
    if (this.body.paused) return
    this.res.pause()
    this.res.resume()
  }

  // ---- the response -------------------------------------------------------------------------------------------------

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.state !== 'open') return
    const opens = status === 101 && this.#handshake?.session !== undefined
    if (!opens) this.#handshake = undefined
    // 101 is not a final status (`safeHead` refuses it), and it has no content, so no content-type.
    this.#head = opens
      ? safeHead(
          200,
          [...headers].filter(([name]) => name !== 'content-type'),
        )
      : safeHead(status, headers)
    this.#payload = body
    this.state = 'answered'
    if (this.#head.close || endsConnection(status, this)) this.#lastAnswer = true
    if (opens && this.#handshake!.state === 'parsing') return this.endOfTurn()
    // R3: not while the parser runs.
    if (inTurn()) defer(this)
    else this.endOfTurn()
  }

  stream(status: number, headers: HeaderList): OutgoingStream {
    if (this.state !== 'open' && !this.gone) throw new Error('the exchange has been answered already')
    if (status === 101 && this.#handshake !== undefined) return this.#openTunnel(this.#handshake, headers)
    this.#handshake = undefined
    const head = safeHead(status, headers)
    if (!this.gone) this.state = 'streaming'
    if (head.close || endsConnection(status, this)) this.#lastAnswer = true
    return this.#openStream(head)
  }

  #openTunnel(handshake: Handshake, headers: HeaderList): OutgoingStream {
    const tunnel = new UwsTunnel(this)
    this.#tunnel = tunnel
    if (this.gone) {
      tunnel.dropped()
      return tunnel
    }
    this.state = 'streaming'
    handshake.session = tunnel
    handshake.protocol = [...headers].find(([name]) => name === 'sec-websocket-protocol')?.[1] ?? ''
    this.#head = safeHead(
      200,
      [...headers].filter(([name]) => !WRITTEN_BY_UPGRADE.has(name)),
    )
    if (inTurn() && handshake.state !== 'parsing') defer(this)
    else this.endOfTurn()
    return tunnel
  }

  overran(): void {
    this.shared.overrunTunnels++
  }

  overranTurn(): void {
    this.shared.overrunTurns++
    this.abandon()
  }

  /** The gateway has ended the tunnel. */
  ended(): void {
    if (!this.gone) this.state = 'answered'
  }

  #openStream(head: SafeHead): UwsStream {
    const bodiless = this.method === 'HEAD' || isBodiless(head.status)
    let text = headText(head)
    if (bodiless && head.length !== '') text += `\r\ncontent-length: ${head.length}`
    // `end(…, true)` would write its Connection header into the middle of a chunked body, so a stream has the header
    // in its head instead.
    if (this.#closes()) text += '\r\nconnection: close'
    const stream = new UwsStream(this, bytesOf(head, text), bodiless)
    this.#stream = stream
    if (this.gone) stream.dropped()
    else {
      this.#onWritable(() => stream.onWritable())
      this.startTicking()
    }
    return stream
  }

  /** The connection must close after the response, whatever the response is. */
  closeAfterAnswer(): void {
    this.#lastAnswer = true
  }

  #closes(): boolean {
    return this.#lastAnswer || this.shared.retiring
  }

  /** Does what waited for the end of the event-loop turn: starts timers, sends the response, or ends a linger. */
  endOfTurn(): void {
    if (this.over) return
    try {
      this.body.watch()
      if (this.body.lingers) this.body.endLinger()
      else if (this.#head !== undefined) {
        const head = this.#head
        this.#head = undefined
        this.#send(head)
      }
    } catch (error) {
      this.shared.options.onError?.(error)
      this.abandon()
    }
  }

  #send(head: SafeHead): void {
    if (this.#handshake !== undefined) return this.#open(this.#handshake, head)
    const body = this.#payload
    const text = headText(head)
    const close = this.#closes() && !this.body.unread
    const bodiless = this.method === 'HEAD' || isBodiless(head.status)
    const fits = bodiless || fitsCork(text, body)
    if (this.body.open && !(bodiless || (fits && isJson(head)))) {
      // The response must not end before the upload does. A stream can wait with its end.
      const stream = this.#openStream(head)
      stream.write(body)
      stream.end()
    } else if (this.body.open || (bodiless && close)) {
      this.#sendAndLinger(head, text, bodiless)
    } else if (bodiless) {
      // R14. 204 and 304 have no Content-Length (RFC 9110 section 8.6).
      this.#sendWhole(
        bytesOf(head, isBodiless(head.status) ? text : `${text}\r\ncontent-length: ${byteLength(body)}`),
        '',
        false,
        true,
      )
    } else if (fits) {
      this.#sendWhole(bytesOf(head, text), body, close, false)
    } else {
      this.#sendLarge(
        bytesOf(head, close ? `${text}\r\nconnection: close` : text),
        typeof body === 'string' ? Buffer.from(body) : body,
      )
    }
  }

  #sendWhole(head: HeadBytes, body: string | Uint8Array, close: boolean, bodiless: boolean): void {
    this.finished()
    this.shared.cork.answer(this.res, head, body, close, bodiless)
  }

  /**
   * Turns the connection into a WebSocket; the exchange has nothing more to do with it.
   *
   * If possible, this is done while the head is being parsed. R3 does not apply then, since the parser drops what
   * follows an upgrade request. Where a plugin above the body waits, it is done later, and must then be done outside
   * of any cork: at the end of a cork the tested build can take the socket for the former response, if both are at
   * the same place in memory, and then closes it or starts its 10 s timer (1 handshake in 25). Outside of a cork
   * uWebSockets.js writes a warning to stderr.
   */
  #open(handshake: Handshake, head: SafeHead): void {
    const { res, shared, headers } = this
    const { context, session, protocol } = handshake
    const parsing = handshake.state === 'parsing'
    const text = bytesOf(head, headText({ ...head, status: 101 }))
    const tunnels = this.#tunnel !== undefined
    const socket = new UwsSocket(session!, shared, tunnels ? TUNNEL_OPTIONS : shared.options.webSocket!)
    handshake.state = 'upgraded'
    if (tunnels) this.#clear()
    else this.finished()
    if (parsing) res.writeStatus(text)
    else res.cork(() => res.writeStatus(text))
    res.upgrade({ socket }, headers.get('sec-websocket-key')!, protocol, '', context)
    socket.start()
  }

  /**
   * R7 for whole responses of any size. `tryEnd` says how much the kernel took and keeps nothing, so the code that
   * loses bytes (a write that must be kept and overflows the cork) is not reached, and a large body is never copied
   * into the buffer of uWebSockets.js.
   */
  #sendLarge(text: HeadBytes, body: Uint8Array): void {
    const stall = new StallClock(this)
    this.#stall = stall
    const pump = (): void => {
      if (this.over) return
      const offset = this.res.getWriteOffset()
      if (this.res.tryEnd(offset === 0 ? body : body.subarray(offset), body.length)[1]) this.finished()
    }
    this.#onWritable(() => {
      stall.start()
      this.res.cork(pump)
    })
    this.res.cork(() => {
      this.res.writeStatus(text)
      pump()
    })
    if (this.over) return
    this.startTicking()
    stall.start()
  }

  /**
   * R12: the response must arrive although the client is still uploading. To close now would reset the connection
   * before the client has read the response; to end it would turn the idle timer off for good when the upload ends.
   * So the whole response is written as raw bytes, and for uWebSockets.js it stays pending: if a second request
   * arrives on the connection, uWebSockets.js closes the socket. What the client still sends is discarded; then we
   * close.
   *
   * `writeStatus` writes its text unchecked, followed by a line end. After a text that is only a head, this is the
   * empty line that ends the head; after a head and a body, it is the last two bytes of the body, which a JSON parser
   * ignores.
   */
  #sendAndLinger({ status, latin1 }: SafeHead, text: string, bodiless: boolean): void {
    const body = this.#payload
    const length = byteLength(body)
    let head = `${text}\r\ndate: ${new Date().toUTCString()}\r\nconnection: close`
    let rest: string | Uint8Array = ''
    if (isBodiless(status)) head += '\r\n'
    else if (bodiless || length === 0) head += `\r\ncontent-length: ${length}\r\n`
    else {
      head += `\r\ncontent-length: ${length + 2}\r\n\r\n`
      rest = body
    }
    if (typeof rest === 'string' && latin1) rest = Buffer.from(rest)
    const raw = typeof rest === 'string' ? head + rest : Buffer.concat([Buffer.from(head, 'latin1'), rest])
    const { res } = this
    res.cork(() => res.writeStatus(raw))
    this.body.linger(() => this.abandon())
  }

  #onWritable(listener: () => void): void {
    this.res.onWritable(() => {
      if (!this.over) {
        try {
          listener()
        } catch (error) {
          this.fail(error)
        }
      }
      return true // R9
    })
  }

  // ---- the end ------------------------------------------------------------------------------------------------------

  /** True while a write waits for the kernel. */
  get blocked(): boolean {
    return this.#stream?.blocked ?? false
  }

  /** True while the gateway has finished the response, but the kernel (or a lingering upload) has not. */
  get unsent(): boolean {
    return this.#stream === undefined ? this.state === 'answered' : !this.over && this.#stream.ending
  }

  /**
   * R18: the whole response was given to uWebSockets.js, which may not have delivered it yet. It owns the socket from
   * now on and reports nothing more about this response.
   */
  finished(): void {
    this.state = 'ended'
    this.#clear()
  }

  /** Closes the connection now. Bytes that the kernel has are still delivered. */
  abandon(): void {
    if (this.over) return
    this.res.close() // calls onAborted
  }

  /** As `abandon`, but the exchange is not notified of a disconnect, since the gateway itself wanted it. */
  closeQuietly(): void {
    if (this.over) return
    this.state = 'answered'
    this.abandon()
  }

  /** Called when the connection is closed (R1: registered before anything else). */
  socketClosed(): void {
    this.state = this.settled ? 'closed' : 'aborted'
    this.#clear()
    this.#stream?.dropped()
    this.#tunnel?.dropped()
    if (this.state === 'aborted') this.notifyAborted(this.shared.options.onError)
  }

  #clear(): void {
    this.body.clear()
    this.#stall?.stop()
    this.#untick()
  }

  /**
   * R1: an exception in a callback must not leave a request without an end. Answers 500 when nothing was sent yet,
   * else cuts the connection.
   */
  fail(error: unknown): void {
    this.shared.options.onError?.(error)
    if (this.#handshake?.state === 'upgraded') return this.#tunnel?.cut()
    if (this.over) return
    if (this.#stream !== undefined) return this.abandon()
    if (this.state !== 'open') return
    this.#lastAnswer = true
    if (this.body.unread) this.body.discard()
    this.respond(500, failureHeaders, failureBody)
  }
}

class Handshake implements WebSocketOffer {
  readonly context: unknown
  /** `parsing` while the parser is still reading the head; `upgraded` once `res` is a WebSocket, and not valid. */
  state: 'parsing' | 'parsed' | 'upgraded' = 'parsing'
  session: UwsSession | undefined
  /** The subprotocol; '' for none. */
  protocol = ''

  constructor(context: unknown) {
    this.context = context
  }
  accept(session: SocketSession): void {
    this.session = session
  }
}

/** Headers of a 101 that uWebSockets.js writes itself. It agrees on no extension, so none may be announced. */
const WRITTEN_BY_UPGRADE = new Set(['sec-websocket-accept', 'sec-websocket-protocol', 'sec-websocket-extensions'])
/** The gateway sends no pings into a tunnel: client and target have their own. */
const TUNNEL_OPTIONS = { maxMessageBytes: TUNNEL_MESSAGE_BYTES, pongTimeoutMs: Number.POSITIVE_INFINITY }

/**
 * Status and headers as one text for `writeStatus`, which writes any text it is given: one native call instead of one
 * for each header. `safeHead` has checked every part (R6).
 */
function headText({ status, lines }: SafeHead): string {
  return statusLine(status) + lines
}

/** A head's text as it is to be written. */
function bytesOf({ latin1 }: SafeHead, text: string): HeadBytes {
  return latin1 ? Buffer.from(text, 'latin1') : text
}

function isJson(head: SafeHead): boolean {
  const at = head.pairs.indexOf('content-type')
  return at >= 0 && at % 2 === 0 && head.pairs[at + 1]!.startsWith('application/json')
}
