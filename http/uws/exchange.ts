/** One exchange on uWebSockets.js: the request's side and whole answers. uws-stream.ts has streamed ones. R numbers: reliability 2.3. */

import type { Clock, Timer } from '../../core/clock.ts'
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
import { withListener } from '../aborts.ts'
import { addressOfBytes, type TrustedPeers } from '../client-address.ts'
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
import { byteLength, type Cork, fitsCork } from './cork.ts'
import type { UwsRequest, UwsResponse } from './native.ts'
import { UwsStream } from './stream.ts'
import { type Deferred, defer, enterTurn, inTurn } from './turn.ts'
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
  readonly cork: Cork
  draining: boolean
  /** Open WebSockets. */
  readonly sockets: Set<UwsSocket>
}

/** R12: how long, and for how many bytes, an upload is swallowed behind an early answer so that the client gets to read it. */
const LINGER_MS = 5_000
const LINGER_BYTES = 64 * 1024 * 1024
/** R2: bytes held for a reader that has not asked yet, before the socket is paused; one read more (512 KB) may come on top. */
const HELD_BYTES = 256 * 1024
/**
 * Bytes that may still arrive after a sink has said pause: a blocked write makes uSockets poll for reading again, and its read loop does not look
 * at the pause before the kernel's buffers are empty (up to 33 MB of `tcp_rmem`, and a local sender's own on top).
 */
const PAUSED_BYTES = 64 * 1024 * 1024

const empty = new Uint8Array(0)

// Body states.
const NONE = 0 // the request has no body
const UNREAD = 1 // it has one, no onData is registered: uWebSockets.js discards it (R12)
const HELD = 2 // onData is registered, nobody has asked yet (R2)
const READING = 3
const STREAMING = 4
const DISCARD = 5

// Flat pairs of the head being read: one array and one callback for all requests, since heads are read one at a time and synchronously.
const pairs: string[] = []
const collect = (name: string, value: string): void => {
  pairs.push(name, value)
}

export class UwsExchange implements Incoming, Deferred, Placed {
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
  /** The client is gone, or we have closed: `res` must not be touched (it throws). */
  gone = false
  /** The whole answer is in uWebSockets.js's hands: `res` must not be touched. */
  ended = false
  /** The last byte of the body has been seen. */
  bodyEnded = true
  /** The body's reading is paused by its reader. */
  bodyPaused = false

  #body = NONE
  #held: Uint8Array[] = []
  #bodyBytes = 0
  #maxBytes = 0
  #done: ((fault: BodyFault | null, body: Uint8Array) => void) | undefined
  #sink: BodySink | undefined
  #bodyTimer: Timer | undefined
  #timeoutMs = 0
  #sinkPaused = false
  #pausedBytes = 0

  /** `respond` or `stream` has been called. */
  #answered = false
  #settled = false
  #head: SafeHead | undefined
  #payload: string | Uint8Array = ''
  #stream: UwsStream | undefined
  #writeTimer: Timer | undefined
  #clientCloses = false
  #mustClose = false
  #lingering: (() => void) | undefined
  #lingered = 0
  #slice = -1
  #abortListener: (() => void) | undefined
  #aborted = false
  #handshake: Handshake | undefined

  constructor(res: UwsResponse, shared: UwsShared) {
    this.res = res
    this.shared = shared
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
    pairs.length = 0
    req.forEach(collect)
    const headers = this.headers
    const fault = judgeHead(this.method, this.path, this.query, pairs, headers)
    this.#clientCloses = asksClose(headers.get('connection'))
    if (fault !== null) {
      // R4: an uncertain parse is never answered on a kept connection. Whatever framing is announced is swallowed, not served.
      this.#mustClose = true
      if (headers.has('content-length') || headers.has('transfer-encoding')) this.#register(DISCARD)
      const refusal = this.shared.options.refuse(fault)
      this.respond(refusal.status, refusal.headers, refusal.body)
      return
    }
    this.hasBody = declaresBody(headers)
    if (this.hasBody) {
      this.#body = UNREAD
      this.bodyEnded = false
    }
    this.upgrade = upgradeOf(headers)
    // What follows an upgrade request is not HTTP (reliability 1, CVE-2026-2833): nothing is served after it.
    if (this.upgrade !== undefined) {
      this.#mustClose = true
      if (context !== undefined && isHandshake(this.method, headers)) this.#handshake = new Handshake(context)
    }
    this.shared.handler(this)
    if (this.#handshake !== undefined) this.#handshake.parsing = false
    if (this.#body === UNREAD) {
      // R2: not asked for and not yet refused. Listen now, or the body is lost.
      if (!this.#settled) this.#register(HELD)
      // A connection that closes with the answer must not close over unread bytes: the reset would take the answer with it.
      else if (this.#closes()) this.#register(DISCARD)
      // R12: else it was refused by its head alone: no onData, uWebSockets.js discards the body and the connection goes on.
    }
  }

  get webSocket(): WebSocketOffer | undefined {
    return this.#handshake
  }

  /** Asked of the socket when first wanted: nearly a microsecond, and most exchanges never want it. */
  get remoteAddress(): string {
    if (this.#remoteAddress === undefined) {
      if (this.gone || this.ended) return ''
      const peer = addressOfBytes(this.res.getRemoteAddress())
      this.#remoteAddress = this.shared.trusted.clientOf(peer, this.headers.get('x-forwarded-for'))
    }
    return this.#remoteAddress
  }

  #register(state: number): void {
    this.#body = state
    this.bodyEnded = false
    this.res.onData((chunk, last) => {
      enterTurn()
      try {
        this.#onChunk(chunk, last)
      } catch (error) {
        this.fail(error)
      }
    })
    this.#watchLater()
  }

  readBody(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
    this.#claimBody()
    if (this.gone || this.#settled) return
    if (this.#body === NONE) return done(null, empty)
    this.#maxBytes = limits.maxBytes
    this.#timeoutMs = limits.timeoutMs
    this.#done = done
    const declared = this.headers.get('content-length')
    if (declared !== undefined && Number(declared) > limits.maxBytes) {
      if (this.#body === UNREAD) this.#register(DISCARD)
      return this.#fault('too_large')
    }
    if (this.#body === UNREAD) return this.#register(READING)
    this.#body = READING
    if (this.#bodyBytes > limits.maxBytes) return this.#fault('too_large')
    if (this.bodyEnded) return this.#finishBody()
    this.#resumeBody()
    this.#watchLater()
  }

  streamBody(sink: BodySink): BodyFlow {
    this.#claimBody()
    this.#sink = sink
    if (this.gone || this.#settled) {
      // Nothing will come.
    } else if (this.#body === UNREAD) this.#register(STREAMING)
    else if (this.#body === NONE || this.#body === HELD) {
      const none = this.#body === NONE
      if (!none) this.#body = STREAMING
      queueMicrotask(() => this.#handOver(none))
    }
    return {
      pause: () => {
        this.#sinkPaused = true
        if (this.#body === STREAMING) this.#pauseBody()
      },
      resume: () => {
        this.#sinkPaused = false
        this.#resumeBody()
      },
    }
  }

  #claimBody(): void {
    if (this.#done !== undefined || this.#sink !== undefined) throw new Error('the body has been asked for already')
  }

  /** Gives a sink what had arrived before it was there. */
  #handOver(none: boolean): void {
    if (this.gone) return
    try {
      const held = this.#held
      this.#held = []
      for (const chunk of held) this.#sink!.chunk(chunk)
      if (none || this.bodyEnded) this.#sink!.end()
      else if (!this.#sinkPaused) this.#resumeBody()
    } catch (error) {
      this.fail(error)
    }
  }

  #pauseBody(): void {
    if (this.bodyPaused || this.bodyEnded || this.gone || this.ended) return
    this.bodyPaused = true
    this.#pausedBytes = 0
    this.res.pause()
  }

  #resumeBody(): void {
    if (!this.bodyPaused || this.gone || this.ended) return
    this.bodyPaused = false
    // uWebSockets.js arms its 10 s timer here; the tick takes over from now on (R11).
    this.res.resume()
    this.#tick()
  }

  #onChunk(chunk: ArrayBuffer, last: boolean): void {
    // R12, finding q: these go on after the answer was ended; by then there is nothing to do but forget them.
    if (this.gone || this.ended) return
    if (last) this.bodyEnded = true
    const bytes = chunk.byteLength
    this.#bodyBytes += bytes
    switch (this.#body) {
      case HELD:
        if (bytes > 0) this.#held.push(copyOf(chunk))
        // A paused socket does not see its client leave; so it is paused only when there is much to hold.
        if (!last && this.#bodyBytes > HELD_BYTES) this.#pauseBody()
        break
      case READING:
        // R11: the cap counts what arrives, whatever Content-Length said.
        if (this.#bodyBytes > this.#maxBytes) return this.#fault('too_large')
        if (last) this.#finishBody(chunk)
        else if (bytes > 0) this.#held.push(copyOf(chunk))
        break
      case STREAMING:
        if (bytes > 0) {
          if (this.#held.length > 0) this.#held.push(copyOf(chunk))
          else this.#sink!.chunk(copyOf(chunk))
        }
        if (this.bodyPaused && !last) this.#pausedAnyway(bytes)
        else if (last && this.#held.length === 0) this.#sink!.end()
        break
      case DISCARD:
        this.#lingered += bytes
        if (this.#lingering !== undefined && (last || this.#lingered > LINGER_BYTES)) defer(this)
    }
    if (last && this.#stream === undefined) this.#untick()
  }

  /** A blocked write made uSockets poll for reading although the body is paused. */
  #pausedAnyway(bytes: number): void {
    this.#pausedBytes += bytes
    if (this.#pausedBytes > PAUSED_BYTES) return this.abandon()
    if (this.#stream === undefined || !this.#stream.blocked) this.res.pause()
  }

  /** @param rest what has just arrived; of several pieces it is copied once, to where it belongs */
  #finishBody(rest?: ArrayBuffer): void {
    this.#bodyTimer?.cancel()
    this.#bodyTimer = undefined
    const held = this.#held
    this.#held = []
    if (rest !== undefined && rest.byteLength > 0) held.push(held.length === 0 ? copyOf(rest) : new Uint8Array(rest))
    this.#done!(null, held.length === 1 ? held[0]! : held.length === 0 ? empty : Buffer.concat(held, this.#bodyBytes))
  }

  #fault(fault: BodyFault): void {
    this.#bodyTimer?.cancel()
    this.#bodyTimer = undefined
    this.#held = []
    this.#body = DISCARD
    this.#mustClose = true
    this.#resumeBody()
    this.#done!(fault, empty)
  }

  // ---- clocks ---------------------------------------------------------------------------------------------------------

  /**
   * Starts the clocks of a body that is not there yet. Most bodies come with their head and are whole when the turn ends, so that they need
   * neither timer nor tick.
   */
  #watchLater(): void {
    if (inTurn()) defer(this)
    else this.#watch()
  }

  #watch(): void {
    if (this.bodyEnded || this.gone || this.ended) return
    this.#tick()
    if (this.#body === READING && this.#bodyTimer === undefined) {
      // R11, GEN-6: our clock, from the moment of asking; nothing that arrives moves it.
      this.#bodyTimer = this.shared.clock.setTimer(this.#timeoutMs, () => {
        this.#bodyTimer = undefined
        if (this.#body !== READING || this.bodyEnded || this.gone) return
        try {
          this.#fault('timeout')
        } catch (error) {
          this.fail(error)
        }
      })
    }
  }

  #tick(): void {
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
    if (this.gone || this.ended) return this.#untick()
    // A paused socket has no timer, and resuming it would undo the reader's pause.
    if (this.bodyPaused) return
    this.res.pause()
    this.res.resume()
  }

  // ---- the answer -----------------------------------------------------------------------------------------------------

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.#answered || this.gone) return
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
    this.#answered = true
    this.#settled = true
    if (this.#head.close || endsConnection(status, this)) this.#mustClose = true
    if (opens && this.#handshake!.parsing) return this.endOfTurn()
    // R3
    if (inTurn()) defer(this)
    else this.endOfTurn()
  }

  stream(status: number, headers: HeaderList): OutgoingStream {
    if (this.#answered) throw new Error('the exchange has been answered already')
    const head = safeHead(status, headers)
    this.#answered = true
    if (head.close || endsConnection(status, this)) this.#mustClose = true
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
      this.#tick()
    }
    return stream
  }

  #closes(): boolean {
    return this.#mustClose || this.#clientCloses || this.shared.draining
  }

  get bodyTaken(): boolean {
    return this.bodyEnded && (this.#done !== undefined || this.#sink !== undefined)
  }

  /** A registered onData that has not seen the last byte: ending now would leak the socket or reset it under the answer (R12, p and q). */
  get bodyOpen(): boolean {
    return !this.bodyEnded && this.#body !== UNREAD
  }

  /** What waited for the end of the parser's turn: the clocks, the answer, or the end of a linger. */
  endOfTurn(): void {
    if (this.gone || this.ended) return
    try {
      this.#watch()
      if (this.#lingering !== undefined) {
        if (this.bodyEnded || this.#lingered > LINGER_BYTES) this.#stopLingering()
      } else if (this.#head !== undefined) {
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
    const close = this.#closes() && this.#body !== UNREAD
    const bodiless = this.method === 'HEAD' || isBodiless(head.status)
    const fits = bodiless || fitsCork(text, body)
    if (this.bodyOpen && !(bodiless || (fits && isJson(head)))) {
      // No end before the upload's: as a stream the answer can wait for it.
      const stream = this.#openStream(head)
      stream.write(body)
      stream.end()
    } else if (this.bodyOpen || (bodiless && close)) {
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
    let progress = this.shared.clock.mono()
    const pump = (): void => {
      if (this.gone || this.ended) return
      const offset = this.res.getWriteOffset()
      if (this.res.tryEnd(offset === 0 ? body : body.subarray(offset), body.length)[1]) this.finished()
    }
    this.#onWritable(() => {
      progress = this.shared.clock.mono()
      this.res.cork(pump)
    })
    this.res.cork(() => {
      this.res.writeStatus(text)
      pump()
    })
    if (this.ended) return
    this.#tick()
    // R10
    const { stallTimeoutMs } = this.shared.options
    const check = (): void => {
      if (this.gone || this.ended) return
      const left = stallTimeoutMs - (this.shared.clock.mono() - progress)
      if (left <= 0) this.abandon()
      else this.#writeTimer = this.shared.clock.setTimer(left, check)
    }
    this.#writeTimer = this.shared.clock.setTimer(stallTimeoutMs, check)
  }

  /**
   * R12: the answer must arrive although the client is still uploading. Closing now would reset the connection under the answer (p), ending it
   * would disarm the idle timer for good when the upload ends (q). So the answer is written whole, but for uWebSockets.js the response stays
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
    this.linger(() => this.abandon())
  }

  /** Swallows the rest of the upload, then calls `then`, which closes or ends. */
  linger(then: () => void): void {
    if (this.bodyEnded) return then()
    this.#body = DISCARD
    this.#held = []
    this.#lingered = 0
    this.#lingering = then
    this.#resumeBody()
    this.#tick()
    this.#writeTimer?.cancel()
    this.#writeTimer = this.shared.clock.setTimer(LINGER_MS, () => {
      if (!this.gone) this.#stopLingering()
    })
  }

  #stopLingering(): void {
    const then = this.#lingering!
    this.#lingering = undefined
    this.#writeTimer?.cancel()
    if (this.bodyEnded) then()
    else this.abandon()
  }

  #onWritable(listener: () => void): void {
    this.res.onWritable(() => {
      if (!this.gone && !this.ended) {
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

  /** The gateway is done with the answer, and the kernel (or a lingering upload) is not. */
  get unsent(): boolean {
    if (this.gone || this.ended) return false
    return this.#stream === undefined ? this.#answered : this.#stream.ending
  }

  /** R18: the whole answer has been handed over, not delivered: uWebSockets.js owns the socket from now on and tells nothing more of it. */
  finished(): void {
    this.ended = true
    this.#settled = true
    this.#clear()
  }

  /** Closes the connection now. What the kernel has, it still delivers. */
  abandon(): void {
    if (this.gone || this.ended) return
    this.res.close() // calls onAborted
  }

  /** As `abandon`, by our own wish: the exchange is not told that its client left. */
  closeQuietly(): void {
    this.#settled = true
    this.abandon()
  }

  onAborted(listener: () => void): void {
    if (this.#aborted) return void listener()
    this.#abortListener = withListener(this.#abortListener, listener)
  }

  /** R1: registered before anything else. The socket is closed, by whomever. */
  socketClosed(): void {
    this.gone = true
    this.#clear()
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

  #clear(): void {
    this.#bodyTimer?.cancel()
    this.#writeTimer?.cancel()
    this.#untick()
    this.#held = []
  }

  /** R1, finding t: an exception in a callback leaves no request hanging. 500 when nothing has been said yet, else the connection is cut. */
  fail(error: unknown): void {
    this.shared.options.onError?.(error)
    if (this.gone || this.ended) return
    if (this.#stream !== undefined) return this.abandon()
    if (this.#answered) return
    this.#mustClose = true
    if (this.#body === UNREAD) this.#register(DISCARD)
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

const failureHeaders: HeaderList = [['content-type', 'application/json']]
const failureBody = '{"error":{"message":"Internal error","type":"server_error","code":"internal_error","param":null}}'

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

/** uWebSockets.js takes the memory of a chunk back when the callback returns. */
function copyOf(chunk: ArrayBuffer): Uint8Array {
  const copy = Buffer.allocUnsafe(chunk.byteLength)
  copy.set(new Uint8Array(chunk))
  return copy
}
