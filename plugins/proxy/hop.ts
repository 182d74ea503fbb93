/**
 * One exchange through http-proxy-3, which expects Node's request and response. The classes here have only the members
 * that it uses.
 */
import { createHash } from 'node:crypto'
import { EventEmitter } from 'node:events'
import type { ClientRequest, IncomingMessage } from 'node:http'
import { type Duplex, Readable } from 'node:stream'
import { type Exchange, GatewayError, requestBody, type UpstreamControl } from '../../core/plugin.ts'
import type { BodyFlow, Incoming } from '../../core/ports/listener.ts'
import type { Ticker, Ticking } from '../../core/tools/ticker.ts'
import { receivedBytes } from '../shared/slots.ts'
import { requestHeaders, responseHeaders } from './hop-by-hop.ts'

/** The client's request. Its body is read from the listener as fast as the target takes it. */
class HopRequest extends Readable {
  readonly method: string
  readonly url: string
  readonly headers: Record<string, string>
  readonly httpVersion = '1.1'
  readonly httpVersionMajor = 1
  readonly socket = { destroyed: false, remoteAddress: '', setTimeout() {} }
  readonly connection = this.socket
  /** Bytes of the body that have arrived. */
  bytes = 0
  /** The whole body has arrived. */
  whole: boolean
  #flow: BodyFlow | null = null

  constructor(x: Exchange, headers: Record<string, string>, onBytes: () => void) {
    super()
    const { incoming } = x
    this.method = incoming.method
    this.url = incoming.query === '' ? incoming.path : `${incoming.path}?${incoming.query}`
    this.headers = headers
    // A plugin above may have collected the body already, and it can be read only once.
    const collected = x.peek(requestBody)
    this.whole = !incoming.hasBody || collected !== undefined
    if (this.whole) {
      this.bytes = collected?.length ?? 0
      if (collected?.length) this.push(collected)
      this.push(null)
    } else {
      this.#flow = incoming.streamBody({
        chunk: bytes => {
          if (this.destroyed) return
          this.bytes += bytes.length
          onBytes()
          if (!this.push(bytes)) this.#flow?.pause()
        },
        end: () => {
          this.whole = true
          this.push(null)
        },
      })
    }
  }

  override _read(): void {
    this.#flow?.resume()
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    // The listener drops the rest of the body; while paused, the upload would never end.
    this.#flow?.resume()
    done(error)
  }
}

/** Only what http-proxy-3 uses of a response that it does not write itself. */
class HopResponse extends EventEmitter {
  headersSent = false
  finished = false
  writableFinished = false
}

/** The proof that a server has read a handshake (RFC 6455 section 4.2.2). */
function acceptOf({ headers }: Incoming): string {
  const key = headers.get('sec-websocket-key')
  return createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')
}

/** One exchange with the target: the control of the exchange, and the clock of its silence. */
export class Hop implements UpstreamControl, Ticking {
  place = -1
  readonly request: HopRequest
  readonly response = new HopResponse()
  readonly #x: Exchange
  readonly #timeoutMs: number
  readonly #ticker: Ticker
  #reply: IncomingMessage | null = null
  /** The target's socket of a tunnel. */
  #tunnel: Duplex | null = null
  /** Bytes from the client through the tunnel. */
  #tunnelledBytes = 0
  #activityMono: number
  #paused = false
  #over = false

  constructor(x: Exchange, apiKey: string | null, timeoutMs: number, ticker: Ticker) {
    this.#x = x
    this.#timeoutMs = timeoutMs
    this.#ticker = ticker
    this.#activityMono = x.clock.mono()
    const headers = requestHeaders(x.incoming)
    if (apiKey !== null) headers['authorization'] = `Bearer ${apiKey}`
    headers['x-request-id'] = x.id
    this.request = new HopRequest(x, headers, () => {
      this.#activityMono = x.clock.mono()
    })
    ticker.add(this)
  }

  answered(reply: IncomingMessage): void {
    if (this.#over) {
      reply.destroy()
      return
    }
    this.#reply = reply
    this.#activityMono = this.#x.clock.mono()
    const x = this.#x
    const status = reply.statusCode ?? 0
    if (status < 200 || status > 599) return this.#broken()
    reply.on('data', (chunk: Buffer) => this.#take(chunk))
    reply.on('end', () => (reply.complete ? this.#ended() : this.#broken()))
    reply.on('error', () => this.#broken())
    reply.on('aborted', () => this.#broken())
    const bodiless = this.request.method === 'HEAD' || status === 304
    x.respondHead(status, responseHeaders(reply.rawHeaders, bodiless))
    if (this.#paused) reply.pause()
  }

  /**
   * The request is on its way to the target, which may switch protocols if the client asked for it, or answer as usual.
   */
  sent(request: ClientRequest): void {
    if (this.#x.incoming.tunnel) request.on('upgrade', (reply, socket, head) => this.#opened(reply, socket, head))
  }

  /**
   * The target accepted a tunnel. When the target ends its side, what it sent is passed on and both connections close.
   * When the client ends its side, the target's side is ended, and what the target still sends is passed on.
   * @param head bytes that arrived together with the target's 101
   */
  #opened(reply: IncomingMessage, socket: Duplex, head: Buffer): void {
    const x = this.#x
    // A reset: 'close' follows.
    socket.on('error', () => {})
    if (this.#over) return void socket.destroy()
    this.#tunnel = socket
    this.#activityMono = x.clock.mono()
    if (reply.headers.upgrade?.toLowerCase() !== 'websocket') return this.#broken()
    if (x.incoming.tunnel === 'frames' && reply.headers['sec-websocket-accept'] !== acceptOf(x.incoming))
      return this.#broken()
    if (head.length > 0) socket.unshift(head)
    socket.on('data', (chunk: Buffer) => this.#take(chunk))
    socket.on('end', () => this.#ended())
    socket.on('close', () => this.#broken())
    x.respondHead(101, responseHeaders(reply.rawHeaders, false))
    // The 101 could not be sent.
    if (this.#over) return
    const flow = x.incoming.streamBody({
      chunk: bytes => {
        this.#tunnelledBytes += bytes.length
        this.#activityMono = x.clock.mono()
        if (!socket.write(bytes)) flow.pause()
      },
      end: () => void socket.end(),
    })
    socket.on('drain', () => {
      this.#activityMono = x.clock.mono()
      flow.resume()
    })
    if (this.#paused) socket.pause()
  }

  #take(chunk: Buffer): void {
    this.#activityMono = this.#x.clock.mono()
    this.#x.emit({ type: 'bytes', bytes: chunk })
    if (!this.#x.flush()) this.pause()
  }

  #ended(): void {
    if (this.#over) return
    this.#stop()
    this.#x.end()
  }

  /** The target could not be reached, or its connection broke before it answered. */
  failed(cause: NodeJS.ErrnoException): void {
    const unreachable =
      cause.code !== undefined && ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH'].includes(cause.code)
    this.#fail(
      unreachable
        ? new GatewayError('provider_unavailable', {
            message: 'The target of this path could not be reached. Retry shortly.',
            cause,
          })
        : new GatewayError('upstream_server_error', {
            message: 'The target of this path broke off. Retry shortly.',
            cause,
          }),
    )
  }

  #broken(): void {
    this.#fail(new GatewayError('upstream_server_error', { message: 'The target of this path broke off.' }))
  }

  #fail(error: GatewayError): void {
    if (this.#over) return
    this.#stop()
    this.#x.fail(error)
  }

  /**
   * Ends the exchange when the target has been silent for too long; in a tunnel, when both sides have. While the target
   * waits for a slow client, its silence does not count.
   */
  tick(now: number): void {
    if (this.#over || this.#paused || now - this.#activityMono < this.#timeoutMs) return
    this.#fail(
      new GatewayError('gateway_timeout', {
        message: 'The target of this path did not answer in time. Retry shortly.',
      }),
    )
  }

  /** Ends the hop. Unless both reply and upload are complete, the connection to the target is closed. */
  #stop(): void {
    this.#over = true
    this.#ticker.delete(this)
    this.#x.set(receivedBytes, this.request.bytes + this.#tunnelledBytes)
    if (this.#reply?.complete && this.request.whole) {
      this.response.finished = true
      this.response.writableFinished = true
      return
    }
    // http-proxy-3 destroys its request when the response closes unfinished.
    this.response.emit('close')
    this.#reply?.destroy()
    this.#tunnel?.destroy()
    this.request.destroy()
  }

  pause(): void {
    this.#paused = true
    this.#reply?.pause()
    this.#tunnel?.pause()
  }
  resume(): void {
    this.#paused = false
    this.#activityMono = this.#x.clock.mono()
    this.#reply?.resume()
    this.#tunnel?.resume()
  }
  abort(): undefined {
    if (!this.#over) this.#stop()
    return undefined
  }
}
