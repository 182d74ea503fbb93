/** One exchange through http-proxy-3, which wants Node's request and response: these are as much of them as it touches. */
import { EventEmitter } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import type { BodyFlow } from '../../core/listener/port.ts'
import { type Exchange, GatewayError, type UpstreamControl } from '../../core/plugin.ts'
import type { Ticker, Ticking } from '../../core/ticker.ts'
import { receivedBytes } from '../slots.ts'
import { requestHeaders, responseHeaders } from './hop-by-hop.ts'

/** The client's request. The body is read from the listener as the target takes it. */
class HopRequest extends Readable {
  readonly method: string
  readonly url: string
  readonly headers: Record<string, string>
  readonly httpVersion = '1.1'
  readonly httpVersionMajor = 1
  readonly socket = { destroyed: false, remoteAddress: '', setTimeout() {} }
  readonly connection = this.socket
  /** Bytes of the body that came. */
  bytes = 0
  /** The body came whole. */
  whole: boolean
  #flow: BodyFlow | null = null

  constructor(x: Exchange, headers: Record<string, string>, onBytes: () => void) {
    super()
    const { incoming } = x
    this.method = incoming.method
    this.url = incoming.query === '' ? incoming.path : `${incoming.path}?${incoming.query}`
    this.headers = headers
    this.whole = !incoming.hasBody
    if (this.whole) this.push(null)
    else {
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
    // What is still to come is the listener's to swallow: a paused upload would never end.
    this.#flow?.resume()
    done(error)
  }
}

/** Only what http-proxy-3 asks of a response that it does not write itself. */
class HopResponse extends EventEmitter {
  headersSent = false
  finished = false
  writableFinished = false
}

export class Hop implements UpstreamControl, Ticking {
  place = -1
  readonly request: HopRequest
  readonly response = new HopResponse()
  readonly #x: Exchange
  readonly #timeoutMs: number
  readonly #ticker: Ticker
  #reply: IncomingMessage | null = null
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
    reply.on('data', (chunk: Buffer) => {
      this.#activityMono = x.clock.mono()
      x.emit({ type: 'bytes', bytes: chunk })
      if (!x.flush()) this.pause()
    })
    reply.on('end', () => {
      if (this.#over) return
      if (!reply.complete) return this.#broken()
      this.#stop()
      x.end()
    })
    reply.on('error', () => this.#broken())
    reply.on('aborted', () => this.#broken())
    const bodiless = this.request.method === 'HEAD' || status === 304
    x.respondHead(status, responseHeaders(reply.rawHeaders, bodiless))
    if (this.#paused) reply.pause()
  }

  /** The target could not be reached, or broke off before it answered. */
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

  /** Silence of the target; while it waits for a slow client it owes nothing. */
  tick(now: number): void {
    if (this.#over || this.#paused || now - this.#activityMono < this.#timeoutMs) return
    this.#fail(
      new GatewayError('gateway_timeout', {
        message: 'The target of this path did not answer in time. Retry shortly.',
      }),
    )
  }

  /** Nothing more is wanted of the target. A reply or an upload that is not whole takes the connection with it. */
  #stop(): void {
    this.#over = true
    this.#ticker.delete(this)
    this.#x.set(receivedBytes, this.request.bytes)
    if (this.#reply?.complete && this.request.whole) {
      this.response.finished = true
      this.response.writableFinished = true
      return
    }
    // http-proxy-3 destroys its request when the response closes unfinished.
    this.response.emit('close')
    this.#reply?.destroy()
    this.request.destroy()
  }

  pause(): void {
    this.#paused = true
    this.#reply?.pause()
  }
  resume(): void {
    this.#paused = false
    this.#activityMono = this.#x.clock.mono()
    this.#reply?.resume()
  }
  abort(): undefined {
    if (!this.#over) this.#stop()
    return undefined
  }
}
