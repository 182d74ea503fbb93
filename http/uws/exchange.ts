/**
 * One exchange on uWebSockets.js: its head, whole answers, and its end. body.ts has the request's body, stream.ts has
 * streamed answers. R numbers: docs/spec/listener.md.
 */

import type { Clock } from '../../core/clock.ts'
import type { DenseSet, Placed } from '../../core/collections.ts'
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
  SocketSession,
  WebSocketOffer,
} from '../../core/listener.ts'
import { addressOfBytes, type TrustedPeers } from '../client-address.ts'
import { ClientExchange, failureBody, failureHeaders } from '../client-exchange.ts'
import {
  asksClose,
  declaresBody,
  endsConnection,
  isBodiless,
  isHandshake,
  judgeHead,
  type SafeHead,
  safeHead,
  statusLine,
  upgradeOf,
} from '../safe-header.ts'
import { UwsBody } from './body.ts'
import { byteLength, type Cork, fitsCork } from './cork.ts'
import type { UwsRequest, UwsResponse } from './native.ts'
import { StallClock } from './stall.ts'
import { UwsStream } from './stream.ts'
import { type Deferred, defer, inTurn } from './turn.ts'
import { UwsSocket } from './web-socket.ts'

/** What the exchanges of one listener share. */
export interface UwsShared {
  readonly options: ListenerOptions
  readonly handler: RequestHandler
  readonly clock: Clock
  readonly trusted: TrustedPeers
  /** R11: exchanges whose timer uWebSockets.js would let run out; each slice is visited every 4 s. */
  readonly ticking: readonly DenseSet<UwsExchange>[]
  nextSlice: number
  readonly fields: FieldReader
  readonly cork: Cork
  draining: boolean
  /** Open WebSockets. */
  readonly sockets: Set<UwsSocket>
}

/**
 * Reads header fields, for all exchanges of one listener: one array and one callback, since heads are read one at a
 * time and synchronously.
 */
export class FieldReader {
  readonly #pairs: string[] = []
  readonly #collect = (name: string, value: string): void => void this.#pairs.push(name, value)

  /** Names and values by turns. The array is the next reading's, too. */
  read(req: UwsRequest): readonly string[] {
    this.#pairs.length = 0
    req.forEach(this.#collect)
    return this.#pairs
  }
}

export class UwsExchange extends ClientExchange implements Incoming, Deferred, Placed {
  /** In its slice of `ticking`. */
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

  /** A whole answer that waits for the end of the parser's turn. */
  #head: SafeHead | undefined
  #payload: string | Uint8Array = ''
  #stream: UwsStream | undefined
  /** Of a large whole answer. */
  #stall: StallClock | undefined
  /** The connection ends with the answer. */
  #lastAnswer = false
  #slice = -1
  #handshake: Handshake | undefined

  constructor(res: UwsResponse, shared: UwsShared) {
    super()
    this.res = res
    this.shared = shared
    this.body = new UwsBody(this)
  }

  /** `res` must not be touched any more: it throws. */
  get over(): boolean {
    return this.state === 'ended' || this.gone
  }

  // ---- the request ----------------------------------------------------------------------------------------------------

  /**
   * Reads the head, judges it and calls the handler. `req` is not touched after this returns (R2).
   * @param context what an upgrade has to be given back, of a request that uWebSockets.js holds for one
   */
  begin(req: UwsRequest, context?: unknown): void {
    this.method = req.getCaseSensitiveMethod()
    this.path = req.getUrl()
    this.query = req.getQuery() ?? ''
    const headers = this.headers
    const fault = judgeHead(this.method, this.path, this.query, this.shared.fields.read(req), headers)
    this.#lastAnswer = asksClose(headers.get('connection'))
    if (fault !== null) {
      // R4: an uncertain parse is never answered on a kept connection. Whatever framing is announced is swallowed, not served.
      this.#lastAnswer = true
      if (headers.has('content-length') || headers.has('transfer-encoding')) this.body.discard()
      const refusal = this.shared.options.refuse(fault)
      this.respond(refusal.status, refusal.headers, refusal.body)
      return
    }
    this.hasBody = declaresBody(headers)
    if (this.hasBody) this.body.announced()
    this.upgrade = upgradeOf(headers)
    // What follows an upgrade request is not HTTP (as CVE-2026-2833): nothing is served after it.
    if (this.upgrade !== undefined) {
      this.#lastAnswer = true
      if (context !== undefined && isHandshake(this.method, headers)) this.#handshake = new Handshake(context)
    }
    this.shared.handler(this)
    if (this.#handshake !== undefined) this.#handshake.parsing = false
    if (this.body.unread) {
      // R2: not asked for and not yet refused. Listen now, or the body is lost.
      if (!this.settled) this.body.keep()
      // A connection that closes with the answer must not close over unread bytes: the reset would take the answer with it.
      else if (this.#closes()) this.body.discard()
      // R12: else it was refused by its head alone: no onData, uWebSockets.js discards the body and the connection goes on.
    }
  }

  get webSocket(): WebSocketOffer | undefined {
    return this.#handshake
  }

  /** Asked of the socket when first wanted: nearly a microsecond, and most exchanges never want it. */
  get remoteAddress(): string {
    if (this.#remoteAddress === undefined) {
      if (this.over) return ''
      const peer = addressOfBytes(this.res.getRemoteAddress())
      this.#remoteAddress = this.shared.trusted.clientOf(peer, this.headers.get('x-forwarded-for'))
    }
    return this.#remoteAddress
  }

  readBody(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
    this.body.read(limits, done)
  }

  streamBody(sink: BodySink): BodyFlow {
    return this.body.stream(sink)
  }

  /** The last byte of the body has come. */
  bodyEnded(): void {
    if (this.#stream === undefined) this.#untick()
  }

  get bodyTaken(): boolean {
    return this.body.taken
  }

  // ---- clocks ---------------------------------------------------------------------------------------------------------

  /** From now on, until it is over or its body has come, uWebSockets.js's own timer is kept from running out. */
  startTicking(): void {
    if (this.#slice >= 0) return
    const { ticking } = this.shared
    this.#slice = this.shared.nextSlice
    this.shared.nextSlice = (this.#slice + 1) % ticking.length
    ticking[this.#slice]!.add(this)
  }

  #untick(): void {
    if (this.#slice < 0) return
    this.shared.ticking[this.#slice]!.delete(this)
    this.#slice = -1
  }

  /**
   * R11, decisions 15: uWebSockets.js closes a body slower than 16 KB/s, and a blocked write, after 8 to 12 s; pausing and resuming in one go
   * arms its timer anew, so that only our own clocks decide. Called every 4 s.
   */
  tick(): void {
    if (this.over) return this.#untick()
    // A paused socket has no timer, and resuming it would undo the reader's pause.
    if (this.body.paused) return
    this.res.pause()
    this.res.resume()
  }

  // ---- the answer -----------------------------------------------------------------------------------------------------

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.state !== 'open') return
    const opens = status === 101 && this.#handshake?.session !== undefined
    if (!opens) this.#handshake = undefined
    // 101 is no final status, and has no content whose type could be told.
    this.#head = opens
      ? safeHead(
          200,
          [...headers].filter(([name]) => name !== 'content-type'),
        )
      : safeHead(status, headers)
    this.#payload = body
    this.state = 'answered'
    if (this.#head.close || endsConnection(status, this)) this.#lastAnswer = true
    if (opens && this.#handshake!.parsing) return this.endOfTurn()
    // R3
    if (inTurn()) defer(this)
    else this.endOfTurn()
  }

  stream(status: number, headers: HeaderList): OutgoingStream {
    if (this.state !== 'open' && !this.gone) throw new Error('the exchange has been answered already')
    const head = safeHead(status, headers)
    if (!this.gone) this.state = 'streaming'
    if (head.close || endsConnection(status, this)) this.#lastAnswer = true
    return this.#openStream(head)
  }

  #openStream(head: SafeHead): UwsStream {
    const bodiless = this.method === 'HEAD' || isBodiless(head.status)
    let text = headText(head)
    if (bodiless && head.length !== '') text += `\r\ncontent-length: ${head.length}`
    // `end(…, true)` would write its Connection header into the middle of a chunked body: a stream only says so in its head.
    if (this.#closes()) text += '\r\nconnection: close'
    const stream = new UwsStream(this, text, bodiless)
    this.#stream = stream
    if (!this.gone) {
      this.#onWritable(() => stream.onWritable())
      this.startTicking()
    }
    return stream
  }

  /** Whatever the answer is, the connection ends with it. */
  closeAfterAnswer(): void {
    this.#lastAnswer = true
  }

  #closes(): boolean {
    return this.#lastAnswer || this.shared.draining
  }

  /** What waited for the end of the parser's turn: the clocks, the answer, or the end of a linger. */
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
      // No end before the upload's: as a stream the answer can wait for it.
      const stream = this.#openStream(head)
      stream.write(body)
      stream.end()
    } else if (this.body.open || (bodiless && close)) {
      this.#sendAndLinger(head.status, text, bodiless)
    } else if (bodiless) {
      // R14. 204 and 304 carry no Content-Length (RFC 9110 8.6).
      this.#sendWhole(
        isBodiless(head.status) ? text : `${text}\r\ncontent-length: ${byteLength(body)}`,
        '',
        false,
        true,
      )
    } else if (fits) {
      this.#sendWhole(text, body, close, false)
    } else {
      this.#sendLarge(
        close ? `${text}\r\nconnection: close` : text,
        typeof body === 'string' ? Buffer.from(body) : body,
      )
    }
  }

  #sendWhole(head: string, body: string | Uint8Array, close: boolean, bodiless: boolean): void {
    this.finished()
    this.shared.cork.answer(this.res, head, body, close, bodiless)
  }

  /**
   * The connection is a WebSocket from now on, and the exchange has nothing more to do with it.
   *
   * At best while its head is being parsed: R3 does not bind here, since the parser drops what is behind an upgrade. Later it is done outside of any cork:
   * at a cork's end the tested build takes the socket for the response that it was, when the two happen to lie at one place in memory, and closes it or
   * arms its 10 s timer (1 handshake in 25). The price is a warning of uWebSockets.js on stderr, on gateways whose plugins above the body wait.
   */
  #open({ context, session, parsing }: Handshake, head: SafeHead): void {
    const { res, shared, headers } = this
    const text = headText({ ...head, status: 101 })
    const socket = new UwsSocket(session!, shared, shared.options.webSocket!)
    this.finished()
    if (parsing) res.writeStatus(text)
    else res.cork(() => res.writeStatus(text))
    res.upgrade({ socket }, headers.get('sec-websocket-key')!, '', '', context)
    socket.start()
  }

  /**
   * R7 for whole answers of any size: `tryEnd` says how much the kernel took and keeps nothing, so that the path which loses bytes (a write
   * that must not fail, overflowing the cork) is not reached, and a large body is never copied into uWebSockets.js's own buffer.
   */
  #sendLarge(text: string, body: Uint8Array): void {
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
   * R12: the answer must arrive although the client is still uploading. Closing now would reset the connection under the answer, ending it
   * would disarm the idle timer for good when the upload ends. So the answer is written whole, but for uWebSockets.js the response stays
   * pending: a second request on the connection makes it close the socket. What the client still sends is swallowed, then we close.
   *
   * `writeStatus` writes its text, unchecked, and a line end. With a head in the text that line end is the empty line that ends the head; with
   * a body too, it is the body's last two bytes, white space to a JSON parser.
   */
  #sendAndLinger(status: number, text: string, bodiless: boolean): void {
    const body = this.#payload
    const length = byteLength(body)
    let head = `${text}\r\ndate: ${new Date().toUTCString()}\r\nconnection: close`
    let raw: string | Uint8Array
    if (isBodiless(status)) raw = `${head}\r\n`
    else if (bodiless || length === 0) raw = `${head}\r\ncontent-length: ${length}\r\n`
    else {
      head += `\r\ncontent-length: ${length + 2}\r\n\r\n`
      raw = typeof body === 'string' ? head + body : Buffer.concat([Buffer.from(head, 'latin1'), body])
    }
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

  // ---- the end --------------------------------------------------------------------------------------------------------

  /** A write has met a full kernel. */
  get blocked(): boolean {
    return this.#stream?.blocked ?? false
  }

  /** The gateway is done with the answer, and the kernel (or a lingering upload) is not. */
  get unsent(): boolean {
    return this.#stream === undefined ? this.state === 'answered' : !this.over && this.#stream.ending
  }

  /** R18: the whole answer has been handed over, not delivered: uWebSockets.js owns the socket from now on and tells nothing more of it. */
  finished(): void {
    this.state = 'ended'
    this.#clear()
  }

  /** Closes the connection now. What the kernel has, it still delivers. */
  abandon(): void {
    if (this.over) return
    this.res.close() // calls onAborted
  }

  /** As `abandon`, by our own wish: the exchange is not told that its client left. */
  closeQuietly(): void {
    if (this.over) return
    this.state = 'answered'
    this.abandon()
  }

  /** R1: registered before anything else. */
  socketClosed(): void {
    this.state = this.settled ? 'closed' : 'aborted'
    this.#clear()
    this.#stream?.dropped()
    if (this.state === 'aborted') this.tellAborted(this.shared.options.onError)
  }

  #clear(): void {
    this.body.clear()
    this.#stall?.stop()
    this.#untick()
  }

  /** R1: an exception in a callback leaves no request hanging. 500 when nothing has been said yet, else the connection is cut. */
  fail(error: unknown): void {
    this.shared.options.onError?.(error)
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
  /** The parser is still at the head. */
  parsing = true
  session: SocketSession | undefined

  constructor(context: unknown) {
    this.context = context
  }
  accept(session: SocketSession): void {
    this.session = session
  }
}

/**
 * Status and headers as one text for `writeStatus`, which writes what it is given: one call into native code instead of one a header.
 * `safeHead` has checked every part (R6).
 */
function headText({ status, lines }: SafeHead): string {
  return statusLine(status) + lines
}

function isJson(head: SafeHead): boolean {
  const at = head.pairs.indexOf('content-type')
  return at >= 0 && at % 2 === 0 && head.pairs[at + 1]!.startsWith('application/json')
}
