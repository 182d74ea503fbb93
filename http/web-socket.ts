/**
 * One WebSocket of a client. Each request message becomes a request like any other (`Message`). The ingress sends it
 * down the chain that its route has at that moment, so limits, ledger, errors and reloads work as over HTTP. This
 * file adds the order of requests, the bounds on what may wait for one connection, keep-alives, and the end of the
 * connection.
 */

import { type ErrorCode, type ErrorInit, GatewayError } from '../core/canon/errors.ts'
import { type Budget, type Refusal, refusal } from '../core/engine/budget.ts'
import { type Exchange, type Logger, tenantOf } from '../core/plugin.ts'
import type {
  BodyFault,
  BodyFlow,
  BodyLimits,
  BodySink,
  ConnectionState,
  HeaderList,
  Incoming,
  OutgoingStream,
  Socket,
  SocketSession,
} from '../core/ports/listener.ts'
import type { Envelope, SocketForm } from '../core/ports/surface.ts'
import type { Clock } from '../core/tools/clock.ts'
import { FairTurns } from '../core/tools/fair.ts'
import type { Ticker, Ticking } from '../core/tools/ticker.ts'
import { withListener } from './aborts.ts'

/**
 * The documented limits of Responses over WebSocket: age of a connection in milliseconds, requests that run at the
 * same time, and different lanes.
 */
const MAX_AGE_MS = 60 * 60_000
const MAX_RUNNING = 16
const MAX_LANES = 32
/** Limits of the gateway: the number of requests that wait, and their bytes together. */
const MAX_WAITING = 32
const MAX_WAITING_BYTES = 32 * 1024 * 1024
/**
 * Messages of one connection that may wait until they are read: more than may run and wait. Further ones are refused,
 * and when this many were refused as well, the connection is closed.
 */
const MAX_UNREAD = 128
const MAX_OVERFLOWED = 32
/**
 * Messages, of all connections, that are read at once in one turn of the event loop. One read of a socket may bring a
 * million; read as they came, 8 MB of them blocked the event loop for 24 s.
 */
const READ_AT_ONCE = 32
/** Messages of one connection that are read in one of its turns. */
const READ_IN_TURN = 8

/** Close codes of RFC 6455 section 7.4.1, and 1012 and 1013 of the IANA registry. */
const NORMAL = 1000
const SERVER_ERROR = 1011
const SERVICE_RESTART = 1012
const TRY_AGAIN_LATER = 1013

const QUEUE_FULL: Refusal = {
  code: 'websocket_queue_full',
  message: () =>
    `A connection runs ${MAX_RUNNING} responses at once, one for each stream_id. At most ${MAX_WAITING} more requests, of ${MAX_WAITING_BYTES / 1024 / 1024} MiB together, may wait. Wait until a response ends.`,
}
const LANES_USED: Refusal = {
  code: 'websocket_stream_limit_reached',
  message: () =>
    `This connection has used ${MAX_LANES} different values of stream_id, which is the limit. Use one of them again, or open a new connection.`,
}

export const messageBudgets: readonly Budget[] = [
  {
    name: 'websocket_requests',
    bound: 'requests of a WebSocket that run, and that wait',
    owner: 'connection',
    each: [`${MAX_RUNNING} that run`, `${MAX_WAITING} that wait, of ${MAX_WAITING_BYTES / 1024 / 1024} MiB together`],
    refused: { each: QUEUE_FULL },
    seen: '`sluice_refused_total`, by code',
  },
  {
    name: 'websocket_unread',
    bound: 'messages of a WebSocket that wait to be read',
    owner: 'connection',
    each: MAX_UNREAD,
    refused: { each: QUEUE_FULL },
    over: `after ${MAX_OVERFLOWED} of these, close code ${TRY_AGAIN_LATER}`,
    seen: '`sluice_refused_total`, by code',
  },
  {
    name: 'websocket_streams',
    bound: 'different values of `stream_id` on a WebSocket',
    owner: 'connection',
    each: MAX_LANES,
    refused: { each: LANES_USED },
    seen: '`sluice_refused_total`, by code',
  },
  {
    name: 'websocket_reads',
    bound: 'messages of WebSockets that are read in a turn of the event loop',
    owner: 'tenant',
    each: `${READ_IN_TURN} of a connection, tenants by turns`,
    all: `${READ_AT_ONCE} at once`,
    over: 'nothing: the next waits',
  },
]

/** Headers of the handshake that do not apply to the requests after it. */
const HANDSHAKE_HEADERS = new Set(['connection', 'upgrade', 'content-length', 'transfer-encoding', 'expect'])

/** When the messages of all connections are read: at once while they are few, else by turns of their tenants. */
export class MessageTurns {
  readonly #turns = new FairTurns()
  #left = READ_AT_ONCE

  mayReadNow(): boolean {
    if (this.#left === 0) return false
    if (this.#left-- === READ_AT_ONCE) setImmediate(() => void (this.#left = READ_AT_ONCE))
    return true
  }
  next(tenant: string): Promise<void> {
    return this.#turns.next(tenant)
  }
}

/** The gateway around a WebSocket. */
export interface SocketHost {
  readonly clock: Clock
  readonly ticker: Ticker
  readonly keepAliveMs: number
  readonly log: Logger
  readonly messageTurns: MessageTurns
  /** The sessions whose socket is open. */
  readonly sessions: Set<MessageSession>
  /** Handles a request as if the listener had received it. */
  handle(incoming: Incoming): void
  /**
   * Counts a message that has to wait in the budget of work before admission.
   * @param handshake the exchange that opened the socket
   * @returns the function that ends the count; call it once
   * @throws GatewayError where the budget is full
   */
  hold(handshake: Exchange, bytes: number): () => void
  /** Answers a message that does not become a request. */
  refuse(incoming: Incoming, route: string, code: ErrorCode, init: ErrorInit): void
}

/** The session of one WebSocket. */
export class MessageSession implements SocketSession, Ticking {
  place = -1
  readonly form: SocketForm
  readonly path: string
  readonly query: string
  readonly headers: ReadonlyMap<string, string>
  readonly remoteAddress: string
  readonly state: ConnectionState = new Map()
  readonly #route: string
  readonly #host: SocketHost
  readonly #openedAt: number
  #socket: Socket | undefined
  #lastSent: number
  readonly #running = new Set<Message>()
  /** The exchange that opened the socket: it knows whose the messages are. */
  handshake: Exchange | undefined
  /** Messages whose envelope has not been read yet, in order of arrival. */
  #unread: Unread[] = []
  /** Messages that were refused since `#unread` was empty, because it was full. */
  #overflowed = 0
  #waiting: Message[] = []
  /** Bytes in `#unread` and `#waiting` together. */
  #waitingBytes = 0
  /** Names of lanes that this connection has used. */
  readonly #lanes = new Set<string>()
  /** Why no further request is taken; undefined while requests are taken. */
  #ending: 'old' | 'draining' | undefined

  /**
   * @param handshake the request that opens the socket
   * @param route name of the route that serves the messages
   */
  constructor(handshake: Incoming, form: SocketForm, route: string, host: SocketHost) {
    this.form = form
    this.#route = route
    this.path = handshake.path
    this.query = handshake.query
    this.remoteAddress = handshake.remoteAddress
    const headers = new Map([['content-type', 'application/json']])
    for (const [name, value] of handshake.headers) {
      if (name !== 'content-type' && !HANDSHAKE_HEADERS.has(name) && !name.startsWith('sec-websocket-'))
        headers.set(name, value)
    }
    this.headers = headers
    this.#host = host
    this.#openedAt = host.clock.mono()
    this.#lastSent = this.#openedAt
  }

  /** Whose the messages are. */
  get tenant(): string {
    return tenantOf(this.handshake!)
  }

  // ---- callbacks of the socket --------------------------------------------------------------------------------------

  opened(socket: Socket): void {
    this.#socket = socket
    this.#host.ticker.add(this)
    this.#host.sessions.add(this)
  }

  message(bytes: Uint8Array, binary: boolean): void {
    const message: Unread = { bytes, reading: binary ? refuseBinary() : this.form.open(bytes), held: undefined }
    if (this.#unread.length === 0 && this.#host.messageTurns.mayReadNow() && this.#read(message)) return
    try {
      if (this.#unread.length >= MAX_UNREAD || this.#isOver(bytes)) throw queueFull()
      message.held = this.#hold(bytes)
    } catch (error) {
      if (++this.#overflowed > MAX_OVERFLOWED) this.#socket?.close(TRY_AGAIN_LATER, 'too many messages at once')
      else this.#failed(error, undefined)
      return
    }
    if (this.#unread.push(message) === 1) void this.#readOn()
  }

  /** Reads what waits in order of arrival. */
  async #readOn(): Promise<void> {
    while (this.#unread.length > 0) {
      await this.#host.messageTurns.next(this.tenant)
      for (let i = 0; i < READ_IN_TURN && this.#unread.length > 0; i++) if (!this.#read(this.#unread[0]!)) break
    }
    this.#overflowed = 0
  }

  /**
   * Reads the envelope of a message, or a slice of it, and admits the message.
   * @returns false when it goes on in another turn of the event loop
   */
  #read(message: Unread): boolean {
    let lane: string | undefined
    try {
      const step = message.reading.next()
      if (!step.done) return false
      this.#wasRead(message)
      if (step.value.kind === 'request') {
        lane = step.value.lane
        this.#admit(lane, message.bytes, step.value.warmUp)
      }
    } catch (error) {
      this.#wasRead(message)
      this.#failed(error, lane)
    }
    return true
  }

  #failed(error: unknown, lane: string | undefined): void {
    if (error instanceof GatewayError) return this.#refuse(new Message(this, lane, NOTHING), error)
    this.#host.log.error({ err: error }, 'a WebSocket message failed')
    this.broken()
  }

  #wasRead(message: Unread): void {
    if (message !== this.#unread[0]) return
    this.#unread.shift()
    this.#letGo(message.held!)
  }

  /** @throws GatewayError where the budget of work before admission is full */
  #hold(bytes: Uint8Array): Held {
    const leave = this.#host.hold(this.handshake!, bytes.length)
    this.#waitingBytes += bytes.length
    return { bytes, leave }
  }

  #letGo({ bytes, leave }: Held): void {
    this.#waitingBytes -= bytes.length
    leave()
  }

  /** Whether more bytes would wait with these than may. */
  #isOver({ length }: Uint8Array): boolean {
    return this.#waitingBytes + length > MAX_WAITING_BYTES
  }

  #admit(lane: string | undefined, bytes: Uint8Array, warmUp: boolean): void {
    if (this.#ending === 'old') throw tooOld()
    if (this.#ending === 'draining') throw restarting()
    if (lane !== undefined && !this.#lanes.has(lane)) {
      if (this.#lanes.size >= MAX_LANES) throw tooManyLanes()
      this.#lanes.add(lane)
    }
    const message = new Message(this, lane, bytes, warmUp)
    if (this.#mayRun(message)) return this.#run(message)
    if (this.#waiting.length >= MAX_WAITING || this.#isOver(bytes)) throw queueFull()
    message.held = this.#hold(bytes)
    this.#waiting.push(message)
  }

  drained(): void {
    for (const message of [...this.#running]) message.drained()
  }

  drain(): void {
    this.#stop('draining', restarting)
  }

  closed(): void {
    this.#socket = undefined
    this.#host.ticker.delete(this)
    this.#host.sessions.delete(this)
    for (const { held } of this.#unread) this.#letGo(held!)
    for (const { held } of this.#waiting) this.#letGo(held!)
    this.#unread = []
    this.#waiting = []
    for (const message of [...this.#running]) message.abort()
    this.#running.clear()
    this.state.clear()
  }

  tick(now: number): void {
    if (now - this.#openedAt >= MAX_AGE_MS && this.#ending === undefined) {
      this.#refuse(new Message(this, undefined, NOTHING), tooOld())
      this.#stop('old', tooOld)
    }
    if (now - this.#lastSent < this.#host.keepAliveMs) return
    this.#lastSent = now
    this.#socket?.ping()
  }

  /** Refuses the waiting requests, lets the running ones end, then closes the connection. */
  #stop(why: 'old' | 'draining', refusal: () => GatewayError): void {
    if (this.#ending !== undefined) return
    this.#ending = why
    const waiting = this.#waiting
    this.#waiting = []
    for (const request of waiting) {
      this.#letGo(request.held!)
      this.#refuse(request, refusal())
    }
    this.#closeWhenDone()
  }

  #refuse(message: Message, { code, message: text, param, details, horizonMs }: GatewayError): void {
    this.#host.refuse(message, this.#route, code, { message: text, param, details, horizonMs })
  }

  #closeWhenDone(): void {
    if (this.#ending === undefined || this.#running.size > 0) return
    if (this.#ending === 'old') this.#socket?.close(NORMAL, 'open for 60 minutes')
    else this.#socket?.close(SERVICE_RESTART, 'service restart')
  }

  // ---- the order of requests ----------------------------------------------------------------------------------------

  #mayRun({ lane }: Message): boolean {
    if (this.#running.size >= MAX_RUNNING) return false
    for (const running of this.#running) if (running.lane === lane) return false
    for (const waiting of this.#waiting) if (waiting.lane === lane) return false
    return true
  }

  #run(message: Message): void {
    this.#running.add(message)
    this.#host.handle(message)
  }

  /**
   * A reply has ended. The next request starts in a microtask, because this call may come from within the exchange
   * that ends.
   */
  over(message: Message): void {
    if (!this.#running.has(message)) return
    queueMicrotask(() => {
      if (!this.#running.delete(message) || !this.#socket) return
      this.#next()
      this.#closeWhenDone()
    })
  }

  #next(): void {
    const waiting = this.#waiting
    const busy = new Set<string | undefined>()
    for (const running of this.#running) busy.add(running.lane)
    for (let i = 0; i < waiting.length && this.#running.size < MAX_RUNNING; i++) {
      const message = waiting[i]!
      if (busy.has(message.lane)) continue
      busy.add(message.lane)
      waiting.splice(i--, 1)
      this.#letGo(message.held!)
      this.#run(message)
    }
  }

  // ---- methods for replies ------------------------------------------------------------------------------------------

  send(text: string): void {
    this.#lastSent = this.#host.clock.mono()
    this.#socket?.send(text)
  }

  flush(): boolean {
    return this.#socket?.flush() ?? false
  }

  get buffered(): number {
    return this.#socket?.buffered ?? 0
  }

  /** A reply broke off and no frame can say so: closes the connection. */
  broken(): void {
    this.#socket?.close(SERVER_ERROR, 'a reply broke off')
  }
}

const NOTHING = new Uint8Array()

/** A message whose envelope has not been read. */
interface Unread {
  readonly bytes: Uint8Array
  readonly reading: Generator<undefined, Envelope>
  held: Held | undefined
}

/** A message that waits, counted in the budget of work before admission. */
interface Held {
  readonly bytes: Uint8Array
  readonly leave: () => void
}

/** One message as a request: a POST to the path of the socket, with the message as its body. */
class Message implements Incoming {
  readonly method = 'POST'
  readonly hasBody = true
  readonly upgrade = undefined
  readonly tenant: string
  readonly lane: string | undefined
  readonly warmUp: boolean
  readonly size: number
  /** Set while the message waits for its turn. */
  held: Held | undefined
  readonly #session: MessageSession
  #body: Uint8Array
  #answered = false
  #aborted = false
  #abortListener: (() => void) | undefined
  #stream: MessageStream | undefined

  constructor(session: MessageSession, lane: string | undefined, body: Uint8Array, warmUp = false) {
    this.#session = session
    this.tenant = session.tenant
    this.lane = lane
    this.warmUp = warmUp
    this.#body = body
    this.size = body.length
  }

  get path(): string {
    return this.#session.path
  }
  get query(): string {
    return this.#session.query
  }
  get headers(): ReadonlyMap<string, string> {
    return this.#session.headers
  }
  get remoteAddress(): string {
    return this.#session.remoteAddress
  }
  get bodyBytes(): number {
    return this.size
  }
  get connection(): ConnectionState {
    return this.#session.state
  }

  readBody({ maxBytes }: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void {
    const body = this.#body
    this.#body = NOTHING
    if (body.length > maxBytes) done('too_large', NOTHING)
    else done(null, body)
  }

  streamBody(sink: BodySink): BodyFlow {
    const body = this.#body
    this.#body = NOTHING
    queueMicrotask(() => {
      if (this.#aborted) return
      sink.chunk(body)
      sink.end()
    })
    return { pause() {}, resume() {} }
  }

  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.#answered || this.#aborted) return
    this.#answered = true
    const text = typeof body === 'string' ? body : Buffer.from(body).toString()
    this.#session.send(this.#session.form.reply(status, headers, text, this.lane))
    this.#session.flush()
    this.#session.over(this)
  }

  stream(_status: number, headers: HeaderList): OutgoingStream {
    if (this.#answered) throw new Error('the message has been answered already')
    this.#answered = true
    this.#stream = new MessageStream(this.#session, this, headers)
    return this.#stream
  }

  onAborted(listener: () => void): void {
    if (this.#aborted) return listener()
    this.#abortListener = withListener(this.#abortListener, listener)
  }

  drained(): void {
    this.#stream?.drained()
  }

  abort(): void {
    this.#aborted = true
    this.#abortListener?.()
  }
}

/** A streamed reply. Each line that the encoder writes is one message. */
class MessageStream implements OutgoingStream {
  readonly #session: MessageSession
  readonly #message: Message
  /** The headers of the reply; null once the first frame has carried them. */
  #headers: HeaderList | null
  #open = true
  #owesDrain = false
  #drainListener: (() => void) | undefined

  constructor(session: MessageSession, message: Message, headers: HeaderList) {
    this.#session = session
    this.#message = message
    this.#headers = headers
  }

  write(data: string | Uint8Array): void {
    if (!this.#open) return
    const text = typeof data === 'string' ? data : Buffer.from(data).toString()
    const { form } = this.#session
    for (let from = 0, to = text.indexOf('\n'); to !== -1; from = to + 1, to = text.indexOf('\n', from)) {
      this.#session.send(form.frame(text.slice(from, to), this.#message.lane, this.#headers))
      this.#headers = null
    }
  }

  flush(): boolean {
    if (!this.#open) return false
    const fast = this.#session.flush()
    if (!fast) this.#owesDrain = true
    return fast
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    return this.#session.buffered
  }

  drained(): void {
    if (!this.#owesDrain || !this.#open) return
    this.#owesDrain = false
    this.#drainListener?.()
  }

  end(): void {
    if (!this.#open) return
    this.#open = false
    this.#session.flush()
    this.#session.over(this.#message)
  }

  cut(): void {
    if (!this.#open) return
    this.end()
    this.#session.broken()
  }
}

// biome-ignore lint/correctness/useYield: it stands for the reading of an envelope
function* refuseBinary(): Generator<undefined, never> {
  throw new GatewayError('invalid_json', { message: 'Binary messages are not accepted. Send JSON in a text message.' })
}
function tooOld(): GatewayError {
  return new GatewayError('websocket_connection_limit_reached', {
    message: 'The connection has been open for 60 minutes, which is its limit. Open a new one to go on.',
  })
}
function restarting(): GatewayError {
  return new GatewayError('route_unavailable', {
    message: 'A platform service is restarting and takes no more requests on this connection. Open a new one.',
  })
}
function tooManyLanes(): GatewayError {
  return refusal(LANES_USED, '', { param: 'stream_id' })
}
function queueFull(): GatewayError {
  return refusal(QUEUE_FULL)
}
