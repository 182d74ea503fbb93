/**
 * A request and its response in memory, without a socket: for `sluice route`, which shows what would happen to a
 * request, and for the test harness of plugins.
 */
import type {
  BodyFault,
  BodyFlow,
  BodyLimits,
  BodySink,
  HeaderList,
  Incoming,
  OutgoingStream,
} from '../ports/listener.ts'

/** Defaults: POST, `/v1/test`, no query, no headers, no body. */
export interface MemoryRequest {
  method?: string
  path?: string
  query?: string
  headers?: Record<string, string>
  body?: string | Uint8Array
  /** Default: 127.0.0.1. */
  remoteAddress?: string
}

/** A client that records what it receives. */
export class MemoryIncoming implements Incoming {
  readonly method: string
  readonly path: string
  readonly query: string
  readonly headers: ReadonlyMap<string, string>
  readonly remoteAddress: string
  readonly hasBody: boolean
  readonly upgrade = undefined
  readonly #body: Uint8Array
  #aborted = false
  readonly #onAborted: (() => void)[] = []
  #onDrain: (() => void) | undefined

  status = 0
  sentHeaders = new Map<string, string>()
  sent = ''
  ending: 'open' | 'whole' | 'cut' = 'open'
  /** False makes `flush` return false: the client is slow. */
  fast = true
  /** How often a status was sent. More than once is an error of the code under test. */
  answers = 0

  constructor(request: MemoryRequest = {}) {
    this.method = request.method ?? 'POST'
    this.path = request.path ?? '/v1/test'
    this.query = request.query ?? ''
    this.remoteAddress = request.remoteAddress ?? '127.0.0.1'
    this.headers = new Map(Object.entries(request.headers ?? {}))
    this.#body =
      typeof request.body === 'string' ? new TextEncoder().encode(request.body) : (request.body ?? new Uint8Array())
    this.hasBody = this.#body.length > 0
  }

  readBody(
    limits: BodyLimits,
    done: (fault: BodyFault | null, body: Uint8Array) => void,
    take?: (bytes: number) => boolean,
  ): void {
    if (this.#body.length > limits.maxBytes) done('too_large', new Uint8Array())
    else if (take?.(this.#body.length) === false) done('refused', new Uint8Array())
    else done(null, this.#body)
  }
  streamBody(sink: BodySink): BodyFlow {
    queueMicrotask(() => {
      if (this.#body.length > 0) sink.chunk(this.#body)
      sink.end()
    })
    return { pause() {}, resume() {} }
  }
  respond(status: number, headers: HeaderList, body: string | Uint8Array): void {
    if (this.#aborted) return
    this.#head(status, headers)
    this.sent += typeof body === 'string' ? body : new TextDecoder().decode(body)
    this.ending = 'whole'
  }
  stream(status: number, headers: HeaderList): OutgoingStream {
    this.#head(status, headers)
    return {
      write: data => {
        if (!this.#aborted && this.ending === 'open')
          this.sent += typeof data === 'string' ? data : new TextDecoder().decode(data)
      },
      flush: () => this.fast,
      onDrain: listener => {
        this.#onDrain = listener
      },
      buffered: 0,
      end: () => {
        if (this.ending === 'open') this.ending = 'whole'
      },
      cut: () => {
        if (this.ending === 'open') this.ending = 'cut'
      },
    }
  }
  onAborted(listener: () => void): void {
    if (this.#aborted) listener()
    else this.#onAborted.push(listener)
  }

  /** The client disconnects. */
  abort(): void {
    if (this.#aborted || this.ending !== 'open') return
    this.#aborted = true
    for (const listener of this.#onAborted) listener()
  }
  /** The slow client has read what waited for it. */
  drain(): void {
    this.fast = true
    this.#onDrain?.()
  }

  #head(status: number, headers: HeaderList): void {
    this.answers++
    this.status = status
    this.sentHeaders = new Map(headers)
  }
}
