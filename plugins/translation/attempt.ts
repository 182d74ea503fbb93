/**
 * One attempt: one request to one backend, whose reply is read into events until its end. It is undici's handler and
 * the exchange's upstream control in one object, so that passing on a chunk makes no closure. reply-connection.ts has
 * the connection under it.
 */
import { StringDecoder } from 'node:string_decoder'
import type { Dispatcher } from 'undici'
import { asGatewayError, GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import type { Exchange, UpstreamControl } from '../../core/plugin.ts'
import type { Authenticator, AuthHeaders } from '../../core/ports/auth.ts'
import { type Backend, type Decoder, FrameFault, FrameLimit, type FrameReader } from '../../core/ports/dialect.ts'
import type { Clock } from '../../core/tools/clock.ts'
import type { Ticking } from '../../core/tools/ticker.ts'
import { isBlamed } from '../../providers/blame.ts'
import { retryAfterMs } from '../../providers/faults.ts'
import type { Outbound } from '../shared/slots.ts'
import type { Scope } from '../upstream/breaker.ts'
import type { Failed } from '../upstream/failed-attempts.ts'
import type { ReplyHandler } from '../upstream/http1/client.ts'
import type { ReplyHeaders } from '../upstream/http1/parser.ts'
import type { ProviderPool } from '../upstream/pools.ts'
import type { Clocks } from '../upstream/stream-limits.ts'
import { type DecodedSink, Decoding } from './decoding.ts'
import { ReplyConnection } from './reply-connection.ts'

/**
 * silent    no event has come: if the attempt fails, its owner may try another backend
 * answered  events go to the sink, and a failure ends the exchange
 * draining  like answered, but the client has disconnected: only the usage report matters
 * over      everything that still comes is ignored
 */
type State = 'silent' | 'answered' | 'draining' | 'over'

/**
 * The most bytes of a buffered reply, which is parsed, counted and encoded in one piece (15 to 50 ms a MiB). Replies
 * are only asked for whole up to 2,048 output tokens: 1.5 MiB, if each were the longest token of the vocabulary (128
 * bytes) and each of its characters escaped. The rest is for results of a provider's own searches.
 */
const MAX_WHOLE = 4 * 1024 * 1024
/** The most bytes that a content encoding may decode to, the framing of a stream included. */
const MAX_DECODED = 64 * 1024 * 1024
/** What one event costs in memory beside its text, in bytes: an estimate for the bound on a whole reply. */
const EVENT_BYTES = 32
/** An error body is read up to this many bytes; the rest is discarded. */
const MAX_ERROR_BODY = 64 * 1024

/** How an attempt failed before any of its events was passed on. */
export interface AttemptFault {
  error: GatewayError
  /** The upstream cannot have acted on the request, or said that it failed: another backend may be tried. */
  retriable: boolean
  /** No byte of the request was sent: the same backend may be tried again. */
  neverSent?: boolean
  /** The upstream may have acted: only a request that is marked safe may be tried again. */
  mayHaveActed?: boolean
  /** Nothing was sent, for want of credentials: it says nothing about the backend. */
  unreached?: boolean
  /** For whom it counts against the backend's health; nobody, when the request may have caused it. */
  counts: Scope | 'nobody'
  /**
   * For how long the provider asked not to be called, milliseconds. The wait that clients are given is in the error,
   * within the range of its class (ERR-6).
   */
  restMs?: number | null
}

/** Where the events of a reply go: the exchange, or what stands in front of it. */
export type AttemptSink = Pick<Exchange, 'emit' | 'flush' | 'end' | 'fail' | 'headSent' | 'sendHead'>

/** What an attempt is told: the request to one backend, and how long its reply may take. */
export interface AttemptCall {
  readonly backend: Backend
  readonly outbound: Outbound
  /** Headers of this attempt alone: ids by which the provider's logs can be joined with the gateway's. */
  readonly own: Readonly<Record<string, string>>
  readonly clocks: Clocks
  /** When the exchange began, monotonic milliseconds. All its attempts share one ceiling, which counts from here. */
  readonly exchangeMono: number
  /** A backend has answered an earlier request of the exchange, so the client has output. */
  readonly begun: boolean
  /** The most bytes of the reply. */
  readonly maxReply: number
}

/** What an attempt reports while it runs. */
export interface AttemptOwner {
  /** The first event has come: this backend serves the exchange. */
  answered(attempt: Attempt): void
  /**
   * A clock ended the attempt before its first event, and the client gets an ordinary end, but the backend has not
   * answered.
   * @param tooLong the backend was silent for as long as the idle limit allows
   */
  silent(attempt: Attempt, tooLong: boolean): void
  /**
   * The attempt failed, or its reply was cut.
   * @param headers of its request; their values are removed from what the provider said
   */
  failed(failed: Failed, error: GatewayError, headers: Readonly<Record<string, string>>): void
  /** The reply is over a bound on its size. The attempt fails or the reply is cut; `over` follows. */
  oversized(): void
  /**
   * The attempt is over, and has released everything. Always called last, exactly once.
   * @param fault set when nothing of this attempt was passed on, so that the owner may try another backend
   */
  over(attempt: Attempt, fault: AttemptFault | null): void
}

export class Attempt implements ReplyHandler, DecodedSink, UpstreamControl, Ticking {
  place = -1
  readonly backend: Backend
  readonly startedMono: number
  readonly #clock: Clock
  readonly #call: AttemptCall
  readonly #outbound: Outbound
  readonly #clocks: Clocks
  readonly #owner: AttemptOwner
  readonly #sink: AttemptSink
  readonly #connection = new ReplyConnection()
  #state: State = 'silent'
  #status = 0
  #headers: ReplyHeaders = {}
  #reader: FrameReader | null = null
  #decoder: Decoder | null = null
  #decoding: Decoding | null = null
  /** Why the connection failed; set while the decoder decides whether the reply was whole all the same. */
  #cause: GatewayError | null = null
  /**
   * A body that is not a stream: the text decoded so far, and the decoder of a character that is split between chunks.
   */
  #text = ''
  #cut: StringDecoder | null = null
  /** Bytes of that body so far; for a stream, what its events cost in memory (`sizeOf`). */
  #size = 0
  #activityMono: number
  /** When the request was sent (monotonic milliseconds): it may have waited for credentials before. */
  #sentMono: number
  /** Waiting for credentials, which have a limit of their own: the clocks of the upstream stand still. */
  #authenticating = false
  #auth: Authenticator | null = null
  /** The headers with credentials of this attempt alone. */
  #secrets: AuthHeaders | undefined
  /** The chunk that is being read has brought an event. */
  #spoke = false
  /** When the client disconnected (monotonic milliseconds). */
  #goneMono = 0
  /** Within a reply of 2xx, and before any event, the provider said that it did not do the work. */
  #declined = false

  constructor(call: AttemptCall, clock: Clock, owner: AttemptOwner, sink: AttemptSink) {
    this.#call = call
    this.#clock = clock
    this.backend = call.backend
    this.#outbound = call.outbound
    this.#clocks = call.clocks
    this.#owner = owner
    this.#sink = sink
    this.startedMono = clock.mono()
    this.#activityMono = this.startedMono
    this.#sentMono = this.startedMono
  }

  /**
   * Whether the backend has the prompt: the request was sent, and not refused. What the provider refused, it did not
   * read for the model, and it does not charge for it.
   */
  get promptTaken(): boolean {
    return this.#connection.used && this.#status < 300 && !this.#declined
  }

  start(pool: ProviderPool): void {
    const { own } = this.#call
    if (pool.auth === null) this.#send(pool, own)
    else this.#authenticate(pool, pool.auth, own)
  }

  #send(pool: ProviderPool, own: Readonly<Record<string, string>>): void {
    const { request, body } = this.#outbound
    pool.dispatcher.dispatch(
      {
        origin: pool.origin,
        path: pool.prefix + request.path,
        method: request.method,
        headers: request.headers,
        own,
        body,
      },
      this,
    )
  }

  /** Adds the headers that authenticate the request, then sends it. */
  #authenticate(pool: ProviderPool, auth: Authenticator, own: Readonly<Record<string, string>>): void {
    const { request, body } = this.#outbound
    const { method, headers } = request
    this.#auth = auth
    const made = auth.headers({ method, origin: pool.origin, path: pool.prefix + request.path, headers, body })
    const send = (added: AuthHeaders) => {
      this.#secrets = added
      this.#send(pool, { ...own, ...added })
    }
    if (!(made instanceof Promise)) return send(made)
    this.#authenticating = true
    made.then(
      added => {
        this.#authenticating = false
        if (this.#state === 'over') return
        this.#sentMono = this.#activityMono = this.#clock.mono()
        try {
          send(added)
        } catch (error) {
          this.#threw(error)
        }
      },
      cause => {
        const error = new GatewayError('upstream_auth_error', {
          message: 'The gateway has no valid credentials for the upstream. Retry shortly.',
          retriable: true,
          cause,
        })
        this.#end({ error, retriable: true, unreached: true, counts: 'nobody' })
      },
    )
  }

  // ---- the client's handler -----------------------------------------------------------------------------------------

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#connection.begun(controller)
  }

  onRequestLost(): void {
    this.#connection.lost()
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: ReplyHeaders): void {
    if (status < 200 || this.#state === 'over') return
    this.#status = status
    this.#headers = headers
    const encoding = headers['content-encoding']
    if (encoding !== undefined && encoding !== 'identity') {
      const limit = status < 300 ? MAX_DECODED : MAX_ERROR_BODY
      this.#decoding = Decoding.of(String(encoding), limit, this)
      if (!this.#decoding && status < 300) {
        this.#break(
          upstreamFailed(
            'The upstream answered in an encoding that was not asked for. Retry shortly.',
            UpstreamFault.of({ code: 'content-encoding', message: encoding }),
          ),
        )
        return
      }
    }
    if (status >= 300) return
    this.#decoder = this.#outbound.decoder()
    this.#reader = this.#outbound.frames(String(headers['content-type'] ?? ''))
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#state === 'over') this.#connection.ignored(chunk.length)
    else if (!this.#decoding) this.#data(chunk)
    else if (!this.#decoding.push(chunk)) this.#connection.stall()
  }

  /** Bytes of the body, after any content encoding was removed. */
  #data(chunk: Buffer): void {
    if (!this.#reader) {
      this.#size += chunk.length
      const most = this.#status < 300 ? Math.min(MAX_WHOLE, this.#call.maxReply) : MAX_ERROR_BODY
      if (this.#size <= most) this.#keep(chunk)
      else if (this.#status < 300) this.#tooLarge('a reply')
      return
    }
    try {
      this.#reader.push(chunk, this.#frame)
    } catch (error) {
      if (error instanceof FrameLimit) this.#tooLarge('an event')
      else if (error instanceof FrameFault)
        this.#break(upstreamFailed('The upstream sent a malformed stream. Retry shortly.'))
      else throw error
      return
    }
    if (this.#state === 'over') return
    if (this.#spoke) {
      this.#spoke = false
      this.#activityMono = this.#clock.mono()
    }
    if (this.#decoder!.done) {
      this.#connection.whole()
      this.#finish()
      return
    }
    if (!this.#sink.flush()) this.pause()
  }

  #keep(chunk: Buffer): void {
    // After an ASCII character, text can be cut safely. Most replies are one chunk that ends with a brace, so they need
    // no decoder.
    if (this.#cut === null && chunk[chunk.length - 1]! <= 0x7f) this.#text += chunk.toString('utf8')
    else this.#text += (this.#cut ??= new StringDecoder('utf8')).write(chunk)
  }

  #whole(): string {
    return this.#cut === null ? this.#text : this.#text + this.#cut.end()
  }

  onResponseEnd(): void {
    this.#connection.ended()
    if (this.#state === 'over') return
    if (this.#decoding) this.#decoding.end()
    else this.#dataEnd()
  }

  #dataEnd(): void {
    try {
      this.#readEnd()
    } catch (error) {
      this.#threw(error)
    }
  }

  #readEnd(): void {
    if (this.#status >= 300 || this.#status === 204) {
      if (this.#status === 401 || this.#status === 403) this.#auth?.refused()
      let error =
        this.#status < 400
          ? upstreamFailed('The upstream failed. Retry shortly.')
          : this.#outbound.fault(this.#status, this.#headers, this.#whole())
      if (this.#auth !== null && error.code === 'upstream_auth_error') error = expired(error)
      const elsewhere = (this.#status >= 300 && mayTryElsewhere(this.#status)) || isBlamed(error)
      const restMs = error.horizonMs === null ? null : retryAfterMs(this.#headers)
      const counts = this.#status >= 400 && this.#status < 500 ? 'nobody' : 'organization'
      // A 204 is an empty answer like one of 200 without a body: what the provider did for it is not known.
      this.#end({ error, retriable: elsewhere, mayHaveActed: this.#status === 204, counts, restMs })
      return
    }
    if (this.#reader) this.#reader.end(this.#frame)
    else this.#decoder!.body(this.#whole(), this.#push)
    if (this.#state !== 'over') this.#finish()
  }

  onResponseError(_: Dispatcher.DispatchController, cause: Error): void {
    const { used } = this.#connection
    this.#connection.ended()
    if (this.#state === 'over') return
    const code = (cause as NodeJS.ErrnoException).code ?? ''
    if (!used) {
      const timedOut = code === 'UND_ERR_CONNECT_TIMEOUT'
      const message = timedOut
        ? 'The upstream could not be reached in time. Retry shortly.'
        : 'The upstream could not be reached. Retry shortly.'
      this.#end({
        error: new GatewayError(timedOut ? 'gateway_timeout' : 'provider_unavailable', { message, cause }),
        retriable: true,
        neverSent: true,
        counts: 'all',
      })
      return
    }
    this.#brokeOff(
      upstreamFailed('The upstream closed the connection before its reply was complete. Retry shortly.', cause),
    )
  }

  // ---- content encoding, removed ------------------------------------------------------------------------------------

  decoded(bytes: Buffer): void {
    if (this.#state === 'over') return
    try {
      this.#data(bytes)
    } catch (error) {
      this.#threw(error)
    }
  }
  decodedDrain(): void {
    this.#connection.unstall()
  }
  decodedEnd(): void {
    if (this.#state !== 'over') this.#dataEnd()
  }
  decodedError(error: Error): void {
    if (this.#state === 'over') return
    // The body of an error only tells which error it is; the status counts all the same.
    if (this.#status >= 300) this.#dataEnd()
    else if (error instanceof FrameLimit) this.#tooLarge('a compressed reply')
    else this.#brokeOff(upstreamFailed('The upstream sent a reply that can’t be decoded. Retry shortly.', error))
  }

  // ---- events -------------------------------------------------------------------------------------------------------

  readonly #frame = (event: string, data: string): void => {
    if (this.#state !== 'over' && !this.#decoder!.done) this.#decoder!.frame(event, data, this.#push)
  }

  readonly #push = (event: StreamEvent): void => {
    if (this.#state === 'over') return
    if (event.type === 'error') {
      if (this.#cause) return this.#break(this.#cause)
      const error = this.#outbound.eventFault(event.error)
      return this.#break(error, SAID_SO.has(error.code) || isBlamed(error))
    }
    if (event.type !== 'usage') this.#spoke = true
    if (this.#reader !== null && (this.#size += sizeOf(event)) > this.#call.maxReply) return this.#tooLarge('a reply')
    if (this.#state === 'silent') {
      this.#state = 'answered'
      this.#owner.answered(this)
    }
    this.#sink.emit(event)
  }

  /** The reply has ended; the decoder reports an error if it is not whole. */
  #finish(): void {
    this.#decoder!.end(this.#push)
    if (this.#state === 'over') return
    this.#end(null)
    this.#sink.end()
  }

  /**
   * The connection failed. A stream whose last event has come is whole all the same; any other reply ends here with an
   * error (STR-6).
   */
  #brokeOff(error: GatewayError): void {
    if (!this.#reader || this.#state === 'silent') return this.#break(error)
    this.#cause = error
    this.#finish()
  }

  #tooLarge(what: string): void {
    this.#owner.oversized()
    this.#break(upstreamFailed(`The upstream sent ${what} over the size limit. Retry shortly.`))
  }

  /**
   * Something went wrong after the request was sent. Before the first event the owner decides what happens; after it
   * the client gets the error.
   * @param saidSo the provider itself says that it did not do the work
   */
  #break(error: GatewayError, saidSo = false): void {
    if (this.#state === 'over') return
    if (this.#state === 'silent') {
      const counts = OF_A_4XX.has(error.code) || faultsRequest(error) ? 'nobody' : 'organization'
      this.#declined = saidSo || counts === 'nobody'
      return this.#end({ error, retriable: saidSo, mayHaveActed: !saidSo && counts === 'organization', counts })
    }
    this.#note(error)
    this.#reportCut()
    this.#end(null)
    this.#sink.flush()
    this.#sink.fail(error)
  }

  /**
   * A fault of the gateway itself, raised where no caller would catch it: it ends this exchange and not the process.
   */
  #threw(error: unknown): void {
    const fault = asGatewayError(error)
    if (this.#state === 'over') this.#sink.fail(fault)
    else this.#break(fault)
  }

  /**
   * What the provider reported about the prompt holds for a cut reply too, for example how much was cached (METER-5).
   */
  #reportCut(): void {
    const usage = this.#decoder?.reported?.()
    if (usage) this.#sink.emit({ type: 'usage', usage })
  }

  #note(error: GatewayError): void {
    const ms = this.#clock.mono() - this.startedMono
    const { headers } = this.#outbound.request
    const sent = this.#secrets ? { ...headers, ...this.#secrets } : headers
    this.#owner.failed({ backend: this.backend.id, status: this.#status, ms }, error, sent)
  }

  /** @param fault a failure that another attempt might avoid; null when there is none */
  #end(fault: AttemptFault | null): void {
    if (this.#state === 'over') return
    this.#state = 'over'
    if (fault) this.#note(fault.error)
    this.#decoding?.destroy()
    if (fault) this.#connection.abort()
    else this.#connection.release(this.#clock)
    this.#owner.over(this, fault)
  }

  // ---- the exchange's control ---------------------------------------------------------------------------------------

  pause(): void {
    if (this.#connection.paused || this.#state === 'over') return
    this.#decoding?.pause()
    this.#connection.pause()
  }

  resume(): void {
    if (!this.#connection.paused || this.#state === 'over') return
    // During a pause the client was silent, not the model.
    this.#activityMono = this.#clock.mono()
    this.#decoding?.resume()
    this.#connection.resume()
  }

  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    if (this.#state === 'over') return undefined
    if (reason === 'client_gone' && this.#state === 'answered' && this.#clocks.drain > 0) {
      this.#state = 'draining'
      this.#goneMono = this.#clock.mono()
      this.resume()
      return 'draining'
    }
    this.#reportCut()
    this.#end(null)
    return undefined
  }

  // ---- clocks -------------------------------------------------------------------------------------------------------

  tick(now: number): void {
    if (this.#state === 'over') return
    const clocks = this.#clocks
    if (this.#state === 'draining' && now - this.#goneMono >= clocks.drain) {
      this.#end(null)
      this.#sink.end()
      return
    }
    // A client that takes a byte now and then still has its ceiling. The other clocks judge the upstream, which cannot
    // send now.
    if (this.#connection.paused) {
      if (now - this.#call.exchangeMono >= clocks.ceiling) this.#stop('ceiling_timeout')
      return
    }
    if (now - this.#call.exchangeMono >= clocks.ceiling) return this.#stop('ceiling_timeout')
    if (this.#authenticating) return
    if (this.#state === 'silent') {
      const waited = now - this.#sentMono
      // A provider that never began to answer has not worked, so its client gets a timeout and no bill, whichever limit
      // is the shorter one. In a later round of a search the client has output, and a stream that ends early (STR-2).
      if (waited >= (this.#call.begun ? clocks.firstByte : Math.min(clocks.firstByte, clocks.idle))) {
        const error = new GatewayError('gateway_timeout', {
          message: 'The upstream did not begin to answer in time. Retry shortly.',
        })
        this.#end({ error, retriable: false, mayHaveActed: true, counts: 'organization' })
        return
      }
      if (waited >= clocks.headWait && !this.#sink.headSent) this.#sink.sendHead()
    }
    if (now - this.#activityMono >= clocks.idle) this.#stop('idle_timeout')
  }

  /** An idle or ceiling stop is an ordinary, incomplete end (STR-2). */
  #stop(reason: 'idle_timeout' | 'ceiling_timeout'): void {
    if (this.#state === 'silent') {
      this.#state = 'answered'
      this.#owner.silent(this, reason === 'idle_timeout')
    }
    // Some providers (gemini) mark no last event: a reply whose finish reason has come is whole, and only its
    // connection is idle.
    const whole = reason === 'idle_timeout' && this.#reader !== null && this.#decoderSaysWhole()
    this.#end(null)
    if (!whole) {
      this.#reportCut()
      this.#sink.emit({ type: 'finish', reason })
    }
    this.#sink.end()
  }

  #decoderSaysWhole(): boolean {
    let whole = true
    this.#decoder!.end(event => {
      if (event.type === 'error') whole = false
      else this.#sink.emit(event)
    })
    return whole
  }
}

/**
 * Whether a status says that the provider did not do the work. Most other 4xx would come again for an unchanged request.
 */
function mayTryElsewhere(status: number): boolean {
  return status === 429 || status >= 500 || status === 401 || status === 403
}

/** Codes of errors inside a 200 reply that say the same. */
const SAID_SO: ReadonlySet<string> = new Set([
  'capacity_exceeded',
  'insufficient_quota',
  'provider_unavailable',
  'upstream_auth_error',
])

/** Codes of errors inside a 200 reply that a provider otherwise answers with a 4xx. */
const OF_A_4XX: ReadonlySet<string> = new Set([
  'capacity_exceeded',
  'insufficient_quota',
  'upstream_auth_error',
  'context_length_exceeded',
  'invalid_value',
])

/** Whether the provider says that it does not take the request as it was written. */
function faultsRequest({ cause }: GatewayError): boolean {
  return cause instanceof UpstreamFault && cause.ofRequest
}

/**
 * What an event may cost in memory until the reply is whole: a buffered reply keeps all events, and a stream keeps them
 * where an item waits for the one before it.
 */
function sizeOf(event: StreamEvent): number {
  return event.type === 'activity' ? 0 : EVENT_BYTES + ('text' in event ? event.text.length : 0)
}

/** The refusal of a credential that is fetched: after it another one is, so that a retry may succeed. */
function expired({ code, cause }: GatewayError): GatewayError {
  const message = 'The upstream refused the gateway’s own credential, and the gateway fetches another. Retry shortly.'
  return new GatewayError(code, { message, retriable: true, cause })
}

function upstreamFailed(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_server_error', { message, cause })
}
