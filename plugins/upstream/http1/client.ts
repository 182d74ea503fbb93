/**
 * A lean HTTP/1.1 client for plain-text origins, behind the part of undici's interface that attempts use. A third of a short exchange was
 * undici's; one request at a time over a kept connection needs much less. TLS, HTTP/2 and proxies stay undici's.
 */
import net, { type Socket } from 'node:net'
import type { Dispatcher } from 'undici'
import type { Pieces } from '../../verbatim.ts'
import { MalformedResponse, type ReplyHeaders, type ResponseHandler, ResponseParser } from './parser.ts'

export interface ClientOptions {
  /** `http://host:port`. */
  origin: string
  connectTimeoutMs: number
  /** Longest idle time of a kept connection; below the server's own. */
  keepAliveMs: number
  /** A connection of this age takes no more requests, so that a change of DNS is followed under load too. */
  maxAgeMs?: number
  /** Default: the system's resolver. */
  lookup?: net.LookupFunction
}

/** undici's, with a body that may come in pieces, and headers in two parts. */
export type RequestOptions = Omit<Dispatcher.DispatchOptions, 'body' | 'headers'> & {
  /** One object, which does not change, for many requests: what a client makes of it is kept with it. */
  headers: Readonly<Record<string, string>>
  /** Headers of this request alone, under other names. */
  own?: Readonly<Record<string, string>>
  body?: string | Pieces
}

/** undici's. Of the headers, those that anybody reads. */
export type ReplyHandler = Omit<Dispatcher.DispatchHandler, 'onResponseStart'> & {
  onResponseStart?(controller: Dispatcher.DispatchController, status: number, headers: ReplyHeaders): void
}

/** What attempts need of a client. */
export interface HttpClient {
  dispatch(options: RequestOptions, handler: ReplyHandler): boolean
  close(): Promise<void>
}

/** A request as it is written. `more`: its body, where that is long. */
interface Message {
  text: string
  more?: Pieces
}

/** Errors carry undici's codes, so that one table reads both. */
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
  readonly #authority: string
  readonly #options: ClientOptions
  /** The last used first: the others age and are let go. */
  readonly #idle: Connection[] = []
  /** Request line and header lines, by the headers' object. */
  readonly #heads = new WeakMap<object, { method: string; path: string; text: string }>()
  readonly #all = new Set<Connection>()
  #closing = false
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: ClientOptions) {
    const url = new URL(options.origin)
    this.#host = url.hostname.replace(/^\[|\]$/g, '')
    this.#port = url.port === '' ? 80 : Number(url.port)
    this.#authority = url.host
    this.#options = options
  }

  get connections(): number {
    return this.#all.size
  }

  dispatch(options: RequestOptions, handler: ReplyHandler): boolean {
    const request = this.#serialize(options)
    let connection = this.#idle.pop()
    while (connection && !connection.usable) connection = this.#idle.pop()
    if (connection) connection.send(request, options.method, handler)
    else {
      connection = new Connection(this.#host, this.#port, this.#options, this)
      this.#all.add(connection)
      connection.connect(request, options.method, handler)
    }
    return true
  }

  /** Head and body in one string, one write, one packet where it fits; a long body by itself. */
  #serialize(options: RequestOptions): Message {
    const { own, body } = options
    let head = this.#head(options)
    if (own !== undefined) head += headerLines(own)
    if (body === undefined) return { text: `${head}\r\n` }
    const pieces = typeof body === 'string' ? [body] : body
    let length = 0
    for (const piece of pieces) length += Buffer.byteLength(piece)
    head += `content-length: ${length}\r\n\r\n`
    return typeof body === 'string' && length <= JOINED_BYTES ? { text: head + body } : { text: head, more: pieces }
  }

  #head({ method, path, headers }: RequestOptions): string {
    let head = this.#heads.get(headers)
    if (head === undefined || head.path !== path || head.method !== method) {
      const text = `${method} ${path} HTTP/1.1\r\nhost: ${this.#authority}\r\n${headerLines(headers)}`
      this.#heads.set(headers, (head = { method, path, text }))
    }
    return head.text
  }

  /** @internal A connection is free again. */
  release(connection: Connection): void {
    if (this.#closing) return connection.destroy()
    connection.idleSince = performance.now()
    if (connection.idleSince - connection.openedAt > (this.#options.maxAgeMs ?? Number.POSITIVE_INFINITY))
      return connection.destroy()
    this.#idle.push(connection)
    this.#sweeper ??= setInterval(() => this.#sweep(), Math.max(50, this.#options.keepAliveMs / 4)).unref()
  }

  /** @internal */
  forget(connection: Connection): void {
    this.#all.delete(connection)
    const i = this.#idle.indexOf(connection)
    if (i !== -1) this.#idle.splice(i, 1)
  }

  #sweep(): void {
    const now = performance.now()
    while (
      this.#idle.length > 0 &&
      now - this.#idle[0]!.idleSince >= Math.min(this.#options.keepAliveMs, this.#idle[0]!.keepAliveMs)
    ) {
      this.#idle.shift()!.destroy()
    }
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
    for (const connection of this.#idle.splice(0)) connection.destroy()
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
/** Joining a longer body to its head would copy it once more, into fresh memory. */
const JOINED_BYTES = 16 * 1024
const READ_BUFFER = Buffer.allocUnsafeSlow(64 * 1024)

/** One socket, one request at a time. It is the controller that undici hands to its handlers, too. */
class Connection implements ResponseHandler, Dispatcher.DispatchController {
  idleSince = 0
  readonly openedAt = performance.now()
  /** What the server's Keep-Alive header allows, less a second. */
  keepAliveMs = Number.POSITIVE_INFINITY
  readonly #client: Http1Client
  readonly #parser = new ResponseParser(this)
  readonly #socket: Socket
  #handler: ReplyHandler | null = null
  #pending: { request: Message; method: string } | null = null
  #connectTimer: NodeJS.Timeout | undefined
  #keep = false
  #dead = false
  #paused = false
  #aborted = false
  /** Bytes that came while the handler had paused the connection: the kernel's buffer holds all later ones. */
  #late: Buffer[] = []
  #closedWhilePaused = false
  #running = false

  constructor(host: string, port: number, { connectTimeoutMs, lookup }: ClientOptions, client: Http1Client) {
    this.#client = client
    this.#socket = net.connect({
      host,
      port,
      lookup,
      noDelay: true,
      // Bytes come straight from the read callback, into one buffer for all connections: no stream, no allocation for each read.
      // They are used up before the callback returns; handlers copy what they keep.
      onread: {
        buffer: READ_BUFFER,
        callback: length => {
          this.#read(READ_BUFFER.subarray(0, length))
          return !this.#paused
        },
      },
    })
    this.#socket.on('connect', () => this.#connected())
    this.#socket.on('error', error => this.#lost(error))
    this.#socket.on('end', () => this.#ended())
    this.#socket.on('close', () => this.#lost(new ClientError('UND_ERR_SOCKET', 'other side closed')))
    this.#connectTimer = setTimeout(() => {
      this.#lost(new ClientError('UND_ERR_CONNECT_TIMEOUT', `no connection within ${connectTimeoutMs} ms`))
    }, connectTimeoutMs)
  }

  get usable(): boolean {
    return !this.#dead && this.#parser.idle && this.#socket.writable
  }

  connect(request: Message, method: string, handler: ReplyHandler): void {
    this.#handler = handler
    this.#pending = { request, method }
  }

  #connected(): void {
    clearTimeout(this.#connectTimer)
    const pending = this.#pending
    const handler = this.#handler
    if (this.#dead || !pending || !handler) return
    this.#pending = null
    this.send(pending.request, pending.method, handler)
  }

  send({ text, more }: Message, method: string, handler: ReplyHandler): void {
    this.#handler = handler
    this.#aborted = false
    this.#paused = false
    this.#parser.begin(method)
    handler.onRequestStart?.(this, null)
    // The handler may have aborted at once.
    if (this.#dead) return
    const socket = this.#socket
    if (more === undefined) return void socket.write(text, 'utf8')
    socket.cork()
    socket.write(text, 'utf8')
    // ASCII as Latin-1: that is copied and not encoded.
    for (const piece of more) socket.write(piece, Buffer.byteLength(piece) === piece.length ? 'latin1' : 'utf8')
    socket.uncork()
  }

  // ---- bytes ----------------------------------------------------------------------------------------------------------

  #read(chunk: Buffer): void {
    if (this.#dead) return
    if (this.#paused || this.#running) {
      this.#late.push(Buffer.from(chunk))
      return
    }
    this.#execute(chunk)
  }

  #execute(chunk: Buffer): void {
    this.#running = true
    try {
      this.#parser.execute(chunk)
    } catch (error) {
      this.#running = false
      // What stands behind a whole response is nobody's: the response is good, the connection is not.
      if (error instanceof MalformedResponse && this.#finished) {
        this.#keep = false
        return this.#settle()
      }
      // A handler that throws loses its response, not the process.
      return this.#lost(error as Error)
    }
    this.#running = false
    if (this.#finished) this.#settle()
  }

  /** The response was whole at the end of this read. */
  #finished = false

  head(status: number, headers: ReplyHeaders, keepAlive: boolean): void {
    this.#keep = keepAlive
    const hint = headers['keep-alive']
    if (typeof hint === 'string') {
      const seconds = Number(/timeout=(\d{1,6})/.exec(hint)?.[1])
      if (seconds >= 0) this.keepAliveMs = Math.max(0, seconds * 1000 - 1000)
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
    const keep = this.#keep && this.#parser.idle && !this.#dead && this.#late.length === 0
    if (this.#paused) {
      this.#paused = false
      this.#socket.resume()
    }
    if (keep) this.#client.release(this)
    else this.destroy()
    handler?.onResponseEnd?.(this, {})
  }

  #ended(): void {
    if (this.#dead) return
    if (this.#paused) {
      this.#closedWhilePaused = true
      return
    }
    try {
      this.#parser.close()
    } catch {
      return this.#lost(new ClientError('UND_ERR_SOCKET', 'other side closed'))
    }
    if (this.#finished) {
      this.#keep = false
      this.#settle()
    } else this.destroy()
  }

  #lost(error: Error): void {
    if (this.#dead) return
    const handler = this.#handler
    this.#handler = null
    this.destroy()
    handler?.onResponseError?.(this, error)
  }

  destroy(): void {
    if (this.#dead) return
    this.#dead = true
    clearTimeout(this.#connectTimer)
    this.#late = []
    this.#client.forget(this)
    this.#socket.destroy()
  }

  // ---- undici's controller --------------------------------------------------------------------------------------------

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
    while (this.#late.length > 0 && !this.#paused && !this.#dead) this.#execute(this.#late.shift()!)
    if (this.#paused || this.#dead) return
    if (this.#closedWhilePaused) return this.#ended()
    this.#socket.resume()
  }
}
