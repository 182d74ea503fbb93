/**
 * An HTTP/1.1 client for `http:` and `https:` origins, behind the part of undici's interface that attempts use. It
 * carries one request at a time over a kept connection; undici does HTTP/2 and proxies.
 *
 * It exists for its speed: in paired rounds of `npm run bench -- --client undici`, on 2 shared cores, a whole buffered
 * request costs 1.3 times the CPU time (medians of three runs: 1.29, 1.33, 1.37) when undici takes its place. If that
 * benchmark ever shows no such gain, this folder can be deleted.
 */
import net, { type Socket } from 'node:net'
import type { Dispatcher } from 'undici'
import type { Budget } from '../../../core/engine/budget.ts'
import type { WireHandler, WireHeaders } from '../../../core/plugin.ts'
import type { Pieces } from '../../shared/verbatim.ts'
import { MalformedResponse, type ResponseHandler, ResponseParser } from './parser.ts'
import { SecureOrigin, type TlsFiles } from './secure.ts'

export interface ClientOptions {
  /** `http://host:port` or `https://host:port`. */
  origin: string
  /** Beyond the system's defaults, for an `https:` origin. */
  tls?: TlsFiles
  /** The TLS handshake counts too. */
  connectTimeoutMs: number
  /** A connection that has been idle for this long takes no more requests; less than the server's own limit. */
  keepAliveMs: number
  /** A connection of this age takes no more requests, so that a change of DNS takes effect under load too. */
  maxAgeMs?: number
  /** Default: the system's resolver. */
  lookup?: net.LookupFunction
  /** Monotonic milliseconds; default: `performance.now`. */
  now?(): number
}

/** undici's options, but the body may come in pieces, and the headers come in two parts. */
export type RequestOptions = Omit<Dispatcher.DispatchOptions, 'body' | 'headers'> & {
  /** One object that does not change, for many requests: the head that is made from it is cached by the object. */
  headers: Readonly<Record<string, string>>
  /** Headers of this request alone; none of them is in `headers`. */
  own?: Readonly<Record<string, string>>
  body?: string | Pieces
  /**
   * Called when a long body is written to a connection: what it returns is called when the connection has given the
   * last byte to the system, or has ended. undici does neither.
   */
  writing?(): (() => void) | undefined
}

/** The calls of a `WireHandler` that a client makes. It gives only the headers that attempts read. */
export type ReplyHandler = Partial<Omit<WireHandler, 'over' | 'onRequestSent'>>

/** What attempts need of an HTTP client. */
export interface HttpClient {
  dispatch(options: RequestOptions, handler: ReplyHandler): boolean
  close(): Promise<void>
}

/**
 * A request as it is written, and the handler for its reply. `more`: the body, if it is long, and what is told when that
 * is written.
 */
interface Message {
  method: string
  text: string
  more?: { pieces: Pieces; writing: RequestOptions['writing'] }
  handler: ReplyHandler
  /** It was lost once, and is not sent a third time. */
  again?: true
}

/** Errors carry undici's codes, so that attempts treat both clients alike. */
export class ClientError extends Error {
  readonly code: string
  constructor(code: string, message: string) {
    super(message)
    this.name = 'ClientError'
    this.code = code
  }
}

export class Http1Client implements HttpClient {
  readonly #host: string
  readonly #port: number
  /** Null for an `http:` origin. */
  readonly #secure: SecureOrigin | null
  readonly #authority: string
  readonly #options: ClientOptions
  readonly #now: () => number
  /** Connections that are free and silent. The last used is taken first, so that the others age and are closed. */
  readonly #idle: Connection[] = []
  /** Connections opened or released in this event-loop turn, and in the one before: see `watch`. */
  #watched: Connection[] = []
  #polled: Connection[] = []
  /** Cached request lines with their header lines, by the headers' object. */
  readonly #heads = new WeakMap<object, { method: string; path: string; text: string }>()
  readonly #all = new Set<Connection>()
  #closing = false
  #sweeper: NodeJS.Timeout | undefined
  /** When the server closed a kept connection under a request, and until when its connections are not kept. */
  #lostAt = Number.NEGATIVE_INFINITY
  #closesUntil = Number.NEGATIVE_INFINITY

  constructor(options: ClientOptions) {
    const url = new URL(options.origin)
    this.#host = url.hostname.replace(/^\[|\]$/g, '')
    const secure = url.protocol === 'https:'
    this.#port = url.port !== '' ? Number(url.port) : secure ? 443 : 80
    this.#authority = url.host
    this.#options = options
    this.#now = options.now ?? (() => performance.now())
    this.#secure = secure ? new SecureOrigin(this.#host, options.tls ?? {}, this.#now) : null
  }

  get connections(): number {
    return this.#all.size
  }

  dispatch(options: RequestOptions, handler: ReplyHandler): boolean {
    this.carry(this.#serialize(options, handler))
    return true
  }

  /** @internal Finds a connection for a request of which nothing has been written, or opens one. */
  carry(message: Message): void {
    const now = this.#now()
    for (let kept = this.#idle.pop(); kept; kept = this.#idle.pop()) {
      if (kept.free(now)) return kept.send(message)
      kept.destroy()
    }
    const free = (each: Connection) => each.free(now)
    const soon = now < this.#closesUntil ? undefined : (this.#polled.find(free) ?? this.#watched.find(free))
    if (soon) soon.waiting = message
    else this.#all.add(new Connection(this.#options, this, now, message))
  }

  /** @internal A socket that begins to connect, and the event that says that it may carry requests. */
  open(onread: net.OnReadOpts): { socket: Socket; ready: 'connect' | 'secureConnect' } {
    const to = { host: this.#host, port: this.#port, lookup: this.#options.lookup, noDelay: true, onread }
    return this.#secure === null
      ? { socket: net.connect(to), ready: 'connect' }
      : { socket: this.#secure.connect(to), ready: 'secureConnect' }
  }

  /**
   * Head and body are one string, so that they are one write, and one packet if they fit. A long body is written
   * separately.
   */
  #serialize(options: RequestOptions, handler: ReplyHandler): Message {
    const { own, body, method, writing } = options
    let head = this.#head(options)
    if (own !== undefined) head += headerLines(own)
    if (body === undefined) return { method, text: `${head}\r\n`, handler }
    const pieces = typeof body === 'string' ? [body] : body
    let length = 0
    for (const piece of pieces) length += Buffer.byteLength(piece)
    head += `content-length: ${length}\r\n\r\n`
    return typeof body === 'string' && length <= JOINED_BYTES
      ? { method, text: head + body, handler }
      : { method, text: head, more: { pieces, writing }, handler }
  }

  #head({ method, path, headers }: RequestOptions): string {
    let head = this.#heads.get(headers)
    if (head === undefined || head.path !== path || head.method !== method) {
      const text = `${method} ${path} HTTP/1.1\r\nhost: ${this.#authority}\r\n${headerLines(headers)}`
      this.#heads.set(headers, (head = { method, path, text }))
    }
    return head.text
  }

  /** @internal The reply on a connection is whole. */
  release(connection: Connection): void {
    connection.idleSince = this.#now()
    const closes = connection.idleSince < this.#closesUntil
    if (this.#closing || closes || !connection.free(connection.idleSince)) connection.destroy()
    else this.watch(connection)
  }

  /**
   * @internal A kept connection that had carried a reply before ended under a request, before a byte of the reply to it
   * came. A server that does so twice in a while closes after its replies without saying so: its connections are not
   * kept for that while. Then it is tried anew, because a server that is started again looks the same.
   */
  again(message: Message): void {
    const now = this.#now()
    if (now - this.#lostAt < CLOSES_MS) {
      this.#closesUntil = now + CLOSES_MS
      for (const kept of this.#idle.splice(0)) kept.destroy()
    }
    this.#lostAt = now
    this.#all.add(new Connection(this.#options, this, now, { ...message, again: true }))
    message.handler.onRequestLost?.()
  }

  /** @internal Monotonic milliseconds. */
  get now(): number {
    return this.#now()
  }

  /**
   * @internal A connection carries a request only after a whole poll of the event loop has found nothing on it.
   * Otherwise a second reply that is already there would be taken for the reply to that request, which may be another
   * tenant's; and a request on a connection that the server has closed would be lost. Bytes that arrive between the
   * poll and the request cannot be told from its reply.
   */
  watch(connection: Connection): void {
    if (this.#watched.length + this.#polled.length === 0) setImmediate(this.#afterPoll)
    this.#watched.push(connection)
  }

  readonly #afterPoll = (): void => {
    // The connections of the turn before have been polled since.
    const silent = this.#polled
    this.#polled = this.#watched
    this.#watched = []
    if (this.#polled.length > 0) setImmediate(this.#afterPoll)
    for (const connection of silent) connection.silent()
  }

  /** @internal Keeps a connection that has nothing to do. */
  park(connection: Connection): void {
    if (this.#now() < this.#closesUntil) return connection.destroy()
    this.#idle.push(connection)
    this.#sweeper ??= setInterval(() => this.#sweep(), Math.max(50, this.#options.keepAliveMs / 4)).unref()
  }

  /** @internal A connection has closed. */
  forget(connection: Connection): void {
    this.#all.delete(connection)
    const i = this.#idle.indexOf(connection)
    if (i !== -1) this.#idle.splice(i, 1)
  }

  /** Closes connections that are too old while no request comes; `carry` closes those that it finds. */
  #sweep(): void {
    const now = this.#now()
    while (this.#idle.length > 0 && !this.#idle[0]!.free(now)) this.#idle.shift()!.destroy()
    if (this.#idle.length === 0) {
      clearInterval(this.#sweeper)
      this.#sweeper = undefined
    }
  }

  /** Idle connections close now, busy ones after their response. */
  async close(): Promise<void> {
    this.#closing = true
    clearInterval(this.#sweeper)
    this.#sweeper = undefined
    this.#idle.length = 0
    for (const connection of this.#all) if (!connection.busy) connection.destroy()
  }
}

function headerLines(headers: Readonly<Record<string, string>>): string {
  let lines = ''
  for (const name in headers) {
    const value = headers[name]!
    if (UNSAFE.test(value) || UNSAFE.test(name))
      throw new ClientError('SLUICE_HTTP_HEADER', `the header ${name} has control characters`)
    lines += `${name}: ${value}\r\n`
  }
  return lines
}

const UNSAFE = /[\0\r\n]/
/** A body of at most this many bytes is joined to its head, which copies it once more into fresh memory. */
const JOINED_BYTES = 16 * 1024
/**
 * Milliseconds by which the gateway ends an idle connection before the server does, so that a request arrives in time.
 */
const MARGIN_MS = 1000
/**
 * A kept connection that ends this long after a request was written to it, or later, may have ended because of the
 * request. One that was being closed as the request was written ends within the time that bytes take to the server and
 * back. Milliseconds.
 */
const CROSSED_MS = 1000
/** How long a server that closes kept connections under requests is remembered, milliseconds. */
const CLOSES_MS = 60_000
/** All connections read into this buffer, one read at a time. */
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024)
/**
 * What one connection may read in a turn of the event loop, in bytes. A reply that comes faster than it can be
 * translated would otherwise be read on, up to 2 MB in a turn, and each exchange that needs some turns waits for all of
 * it.
 */
const TURN_BYTES = READ_BUFFER.length

export const replyReadsBudget: Budget = {
  name: 'reply_reads',
  bound: 'what is read of a connection to a provider in a turn of the event loop',
  owner: 'connection',
  each: `${TURN_BYTES / 1024} KiB`,
  over: 'nothing: the rest waits',
}

/** Connections that have read in this turn of the event loop. */
let readers: Connection[] = []

function endTurn(): void {
  const all = readers
  readers = []
  for (const connection of all) connection.turnEnded()
}

/** One socket, one request at a time. Like undici, it gives itself to handlers as their controller. */
class Connection implements ResponseHandler, Dispatcher.DispatchController {
  idleSince = 0
  /** The request that it will carry once it is known to be silent. */
  waiting: Message | null
  readonly #openedAt: number
  readonly #maxAgeMs: number
  /** How long it may be idle: the client's limit, or one second less than the server's Keep-Alive header allows. */
  #keepAliveMs: number
  readonly #client: Http1Client
  readonly #parser = new ResponseParser(this)
  readonly #socket: Socket
  readonly #secure: boolean
  #handler: ReplyHandler | null = null
  /** It has carried a request before. */
  #used = false
  /** The request that was written to it when it was used before, until a byte of its reply comes; and when. */
  #unanswered: Message | null = null
  #sentAt = 0
  #connectTimer: NodeJS.Timeout | undefined
  #keep = false
  #dead = false
  #paused = false
  #aborted = false
  /** Bytes that came after the handler had paused the connection; later ones stay in the kernel's buffer. */
  #late: Buffer[] = []
  #closedWhilePaused = false
  #running = false
  /** Bytes that were read in this turn of the event loop. */
  #turnBytes = 0

  constructor(options: ClientOptions, client: Http1Client, now: number, first: Message) {
    const { connectTimeoutMs } = options
    this.waiting = first
    this.#openedAt = now
    this.#maxAgeMs = options.maxAgeMs ?? Number.POSITIVE_INFINITY
    this.#keepAliveMs = options.keepAliveMs
    this.#client = client
    // Bytes come straight from the read callback, in one buffer for all connections: no stream, and no allocation for
    // each read. The buffer is used again after the callback returns, so handlers copy what they keep.
    const { socket, ready } = client.open({
      buffer: READ_BUFFER,
      callback: length => {
        this.#read(READ_BUFFER.subarray(0, length))
        return !this.#paused && this.#mayReadOn(length)
      },
    })
    this.#socket = socket
    this.#secure = ready === 'secureConnect'
    this.#socket.on(ready, () => this.#connected())
    this.#socket.on('error', error => this.#lost(error))
    this.#socket.on('end', () => this.#ended())
    this.#socket.on('close', () => this.#lost(new ClientError('UND_ERR_SOCKET', 'other side closed')))
    // After the event loop was blocked, timers run before the sockets that connected meanwhile: those are read first.
    const timedOut = () => {
      if (this.#connectTimer === undefined) return
      this.#lost(new ClientError('UND_ERR_CONNECT_TIMEOUT', `no connection within ${connectTimeoutMs} ms`))
    }
    this.#connectTimer = setTimeout(() => setImmediate(timedOut), connectTimeoutMs)
  }

  get busy(): boolean {
    return this.#handler !== null || this.waiting !== null
  }

  /** Whether it may carry another request now: it has none, the server keeps it open, and it is not too old. */
  free(now: number): boolean {
    return (
      !this.#dead &&
      !this.busy &&
      this.#socket.writable &&
      now - this.idleSince < this.#keepAliveMs &&
      now - this.#openedAt < this.#maxAgeMs
    )
  }

  #connected(): void {
    clearTimeout(this.#connectTimer)
    this.#connectTimer = undefined
    this.#client.watch(this)
  }

  /** A poll has found nothing on this connection. */
  silent(): void {
    if (this.#dead) return
    if (this.#socket.writableLength > 0) return this.#lost(new ClientError('UND_ERR_SOCKET', 'a request was not read'))
    const { waiting } = this
    this.waiting = null
    if (waiting) this.send(waiting)
    else this.#client.park(this)
  }

  send(message: Message): void {
    const { method, text, more, handler } = message
    const kept = this.#used
    this.#used = true
    this.#handler = handler
    this.#aborted = false
    this.#paused = false
    this.#parser.begin(method)
    try {
      handler.onRequestStart?.(this)
    } catch (error) {
      return this.#lost(error as Error)
    }
    // The handler may have aborted at once.
    if (this.#dead) return
    if (kept && !message.again) {
      this.#unanswered = message
      this.#sentAt = this.#client.now
    }
    const socket = this.#socket
    if (more === undefined) return void socket.write(text, 'utf8')
    const { pieces, writing } = more
    const last = pieces.length - 1
    const taken = writing?.()
    socket.cork()
    socket.write(text, 'utf8')
    pieces.forEach((piece, i) => {
      // ASCII is written as Latin-1, because that is copied and not encoded.
      const encoding = Buffer.byteLength(piece) === piece.length ? 'latin1' : 'utf8'
      socket.write(piece, encoding, i === last ? taken : undefined)
    })
    socket.uncork()
  }

  // ---- bytes --------------------------------------------------------------------------------------------------------

  #read(chunk: Buffer): void {
    if (this.#dead) return
    this.#unanswered = null
    if (this.#paused || this.#running) {
      this.#late.push(Buffer.from(chunk))
      return
    }
    this.#execute(chunk)
  }

  /** False when the rest has to wait for the next turn of the event loop. */
  #mayReadOn(length: number): boolean {
    if (this.#turnBytes === 0 && readers.push(this) === 1) setImmediate(endTurn)
    this.#turnBytes += length
    return this.#turnBytes < TURN_BYTES
  }

  turnEnded(): void {
    const waits = this.#turnBytes >= TURN_BYTES
    this.#turnBytes = 0
    if (waits && !this.#paused && !this.#dead) this.#socket.resume()
  }

  #execute(chunk: Buffer): void {
    this.#running = true
    try {
      this.#parser.execute(chunk)
    } catch (error) {
      this.#running = false
      // Bytes after a whole response belong to no request: the response is good, the connection is not.
      if (error instanceof MalformedResponse && this.#finished) {
        this.#keep = false
        return this.#settle()
      }
      // A handler that throws loses its response, and does not end the process.
      return this.#lost(error as Error)
    }
    this.#running = false
    if (this.#finished) this.#settle()
  }

  /** The response was whole at the end of this read. */
  #finished = false

  head(status: number, headers: WireHeaders, keepAlive: boolean): void {
    this.#keep = keepAlive
    const hint = headers['keep-alive']
    if (hint !== undefined) {
      const seconds = Number(/timeout=(\d+)/i.exec(String(hint))?.[1])
      if (seconds >= 0) this.#keepAliveMs = Math.min(this.#keepAliveMs, seconds * 1000 - MARGIN_MS)
    }
    this.#handler?.onResponseStart?.(this, status, headers)
  }

  body(chunk: Buffer): void {
    this.#handler?.onResponseData?.(this, chunk)
  }

  end(): void {
    this.#finished = true
  }

  #settle(): void {
    this.#finished = false
    const handler = this.#handler
    this.#handler = null
    // If the response came before the whole request was sent, the server may take the rest of it for another request.
    // TLS reports a write only in the next turn of the event loop, so `silent` asks for those.
    const left = this.#socket.writableLength === 0 || this.#secure
    const keep = this.#keep && !this.#dead && left
    if (this.#paused) {
      this.#paused = false
      this.#socket.resume()
    }
    if (keep) this.#client.release(this)
    else this.destroy()
    handler?.onResponseEnd?.(this)
  }

  #ended(): void {
    if (this.#dead) return
    if (this.#paused) {
      this.#closedWhilePaused = true
      return
    }
    try {
      this.#parser.close()
    } catch {}
    if (!this.#finished) return this.#lost(new ClientError('UND_ERR_SOCKET', 'other side closed'))
    this.#keep = false
    this.#settle()
  }

  #lost(error: Error): void {
    if (this.#dead) return
    const handler = this.#handler
    const { waiting } = this
    this.#handler = null
    this.waiting = null
    const lost = this.#lostRequest()
    this.destroy()
    if (lost) return this.#client.again(lost)
    handler?.onResponseError?.(this, error)
    if (waiting === null) return
    // Nothing of the waiting request was sent. When a connection that was used before ends, that says nothing about the
    // server, so another connection is tried. When a new connection fails, the server cannot be reached.
    if (this.#used) this.#client.carry(waiting)
    else waiting.handler.onResponseError?.(this, error)
  }

  /**
   * The request that the server has not read, as far as that can be known: it was written to a kept connection, whose
   * end came at once and without a byte of a reply. Generating costs money, and is not done twice on a guess: a server
   * that had taken the request and failed would have ended a new connection too, or later, or after the head.
   */
  #lostRequest(): Message | null {
    const crossed = this.#client.now - this.#sentAt < CROSSED_MS
    return crossed && !this.#aborted ? this.#unanswered : null
  }

  destroy(): void {
    if (this.#dead) return
    this.#dead = true
    clearTimeout(this.#connectTimer)
    this.#late = []
    this.#client.forget(this)
    this.#socket.destroy()
  }

  // ---- undici's controller ------------------------------------------------------------------------------------------

  get aborted(): boolean {
    return this.#aborted
  }
  get paused(): boolean {
    return this.#paused
  }
  get reason(): Error | null {
    return null
  }
  abort(reason: Error): void {
    if (this.#aborted) return
    this.#aborted = true
    this.#lost(reason)
  }
  pause(): void {
    if (this.#dead || this.#paused) return
    this.#paused = true
    this.#socket.pause()
  }
  resume(): void {
    if (this.#dead || !this.#paused) return
    this.#paused = false
    // A handler may pause and resume while it is given bytes: the running call then goes on with them.
    if (this.#running) return void this.#socket.resume()
    while (this.#late.length > 0 && !this.#paused && !this.#dead) this.#execute(this.#late.shift()!)
    if (this.#paused || this.#dead) return
    if (this.#closedWhilePaused) return this.#ended()
    this.#socket.resume()
  }
}
