/**
 * One attempt: one request to one backend, whose reply is read into events until its end. It is the handler of the
 * written request and the control of the attempt in one object, so that passing on a chunk makes no closure.
 * reply-connection.ts has the connection under it.
 */
import { StringDecoder } from 'node:string_decoder'
import { asGatewayError, GatewayError } from '../../core/canon/errors.ts'
import type { StreamEvent } from '../../core/canon/events.ts'
import { DeltaJoiner } from '../../core/canon/joined.ts'
import { UpstreamFault } from '../../core/canon/upstream-fault.ts'
import type {
  AttemptCall,
  CallControl,
  CallFault,
  CallSink,
  FaultKind,
  SendWire,
  WireControl,
  WireCredentials,
  WireHandler,
  WireHeaders,
  WireRequest,
} from '../../core/plugin.ts'
import { type Decoder, FrameFault, FrameLimit, type FrameReader } from '../../core/ports/dialect.ts'
import type { Ticker, Ticking } from '../../core/tools/ticker.ts'
import { isBlamed } from '../../providers/blame.ts'
import { retryAfterMs } from '../../providers/faults.ts'
import { FAULTS } from '../shared/fault-table.ts'
import { type DecodedSink, Decoding } from './decoding.ts'
import { ReplyConnection } from './reply-connection.ts'
import type { Written } from './written.ts'

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

/** What an attempt sends, and what reads the reply. */
export interface WrittenCall extends Pick<Written, 'wire' | 'decoder' | 'frames' | 'fault' | 'eventFault'> {
  /** In place of `MAX_WHOLE`, where a reply of one body is not parsed. */
  readonly maxWhole?: number
}

export class Attempt implements WireHandler, DecodedSink, CallControl, Ticking {
  place = -1
  readonly #call: AttemptCall
  readonly #written: WrittenCall
  readonly #sink: CallSink
  readonly #ticker: Ticker
  readonly #startedMono: number
  readonly #connection = new ReplyConnection()
  #state: State = 'silent'
  #status = 0
  #headers: WireHeaders = {}
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
  /**
   * When the request was sent (monotonic milliseconds). Null while a layer or the credentials, which have limits of
   * their own, keep it: the clocks of the upstream stand still.
   */
  #sentMono: number | null = null
  /** The request as it was sent, with what layers added. */
  #request: WireRequest | null = null
  #credentials: WireCredentials | undefined
  /** What went wrong, in the gateway's own words. */
  #why: string | undefined
  /** The chunk that is being read has brought an event. */
  #spoke = false
  /** When the client disconnected (monotonic milliseconds). */
  #goneMono = 0
  /** An earlier call of the exchange was answered, so the client has output. */
  readonly #begun: boolean
  /** The deltas of a chunk are passed on when it has been read. */
  readonly #deltas: DeltaJoiner

  constructor(call: AttemptCall, written: WrittenCall, sink: CallSink, ticker: Ticker) {
    this.#call = call
    this.#written = written
    this.#sink = sink
    this.#deltas = new DeltaJoiner(event => sink.emit(event))
    this.#ticker = ticker
    this.#begun = (call.report.served ?? call.report.instead) !== undefined
    this.#startedMono = call.facts.clock.mono()
    this.#activityMono = this.#startedMono
  }

  start(send: SendWire): this {
    this.#ticker.add(this)
    try {
      send(this.#written.wire, this)
    } catch (error) {
      this.onResponseError(null, asGatewayError(error))
    }
    return this
  }

  // ---- the written request's handler -----------------------------------------------------------------------------------------

  get over(): boolean {
    return this.#state === 'over'
  }

  onRequestSent(request: WireRequest, credentials?: WireCredentials): void {
    this.#request = request
    this.#credentials = credentials
    this.#sentMono = this.#activityMono = this.#call.facts.clock.mono()
  }

  onRequestStart(control: WireControl): void {
    this.#sentMono ??= this.#activityMono = this.#call.facts.clock.mono()
    this.#connection.begun(control)
  }

  onRequestLost(): void {
    this.#connection.lost()
  }

  onResponseStart(_: WireControl, status: number, headers: WireHeaders): void {
    if (status < 200 || this.#state === 'over') return
    this.#status = status
    this.#headers = headers
    const encoding = headers['content-encoding']
    if (encoding !== undefined && encoding !== 'identity') {
      const limit = status < 300 ? MAX_DECODED : MAX_ERROR_BODY
      this.#decoding = Decoding.of(String(encoding), limit, this)
      if (!this.#decoding && status < 300) {
        this.#why = 'answered in an encoding that was not asked for'
        this.#break(
          upstreamFailed(
            'The upstream answered in an encoding that was not asked for. Retry shortly.',
            new UpstreamFault(encoding, { code: 'content-encoding', message: encoding }),
          ),
        )
        return
      }
    }
    if (status >= 300) return
    this.#decoder = this.#written.decoder()
    this.#reader = this.#written.frames(String(headers['content-type'] ?? ''))
    if (this.#reader && status === 200) this.#call.headCame?.()
  }

  onResponseData(_: WireControl, chunk: Buffer): void {
    if (this.#state === 'over') this.#connection.ignored(chunk.length)
    else if (!this.#decoding) this.#data(chunk)
    else if (!this.#decoding.push(chunk)) this.#connection.stall()
  }

  /** Bytes of the body, after any content encoding was removed. */
  #data(chunk: Buffer): void {
    if (!this.#reader) {
      this.#size += chunk.length
      const most =
        this.#status < 300 ? Math.min(this.#written.maxWhole ?? MAX_WHOLE, this.#call.maxReply) : MAX_ERROR_BODY
      if (this.#size <= most) this.#keep(chunk)
      else if (this.#status < 300) this.#tooLarge('a reply')
      return
    }
    try {
      this.#reader.push(chunk, this.#frame, this.#run)
    } catch (error) {
      if (error instanceof FrameLimit) this.#tooLarge('an event')
      else if (error instanceof FrameFault) {
        this.#why = 'sent a malformed stream'
        this.#break(upstreamFailed('The upstream sent a malformed stream. Retry shortly.'))
      } else throw error
      return
    }
    this.#deltas.flush()
    if (this.#state === 'over') return
    if (this.#spoke) {
      this.#spoke = false
      this.#activityMono = this.#call.facts.clock.mono()
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
      if (this.#status === 401 || this.#status === 403) this.#credentials?.refused()
      let error =
        this.#status < 400
          ? upstreamFailed('The upstream failed. Retry shortly.')
          : this.#written.fault(this.#status, this.#headers, this.#whole())
      if (this.#credentials && error.code === 'upstream_auth_error') error = expired(error)
      const restMs = error.horizonMs === null ? null : retryAfterMs(this.#headers)
      return this.#failed(error, { kind: kindOf(this.#status, error), restMs })
    }
    if (this.#reader) this.#reader.end(this.#frame)
    else this.#decoder!.body(this.#whole(), this.#push)
    if (this.#state !== 'over') this.#finish()
  }

  onResponseError(_: WireControl | null, cause: Error): void {
    const { used } = this.#connection
    this.#connection.ended()
    if (this.#state === 'over') return
    if (!used && cause instanceof GatewayError) {
      this.#why = 'nothing was sent'
      return this.#failed(cause, { kind: 'not_sent' })
    }
    const code = codeOf(cause)
    const named = code && `: ${code}`
    if (!used) {
      this.#why = `could not connect${named}`
      const timedOut = code === 'UND_ERR_CONNECT_TIMEOUT'
      const message = timedOut
        ? 'The upstream could not be reached in time. Retry shortly.'
        : 'The upstream could not be reached. Retry shortly.'
      const error = new GatewayError(timedOut ? 'gateway_timeout' : 'provider_unavailable', { message, cause })
      return this.#failed(error, { kind: 'unreachable' })
    }
    this.#why = `closed the connection before ${this.#status === 0 ? 'it answered' : 'the end of its reply'}${named}`
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
    // The body of an error only says which error it is; the status counts all the same.
    if (this.#status >= 300) this.#dataEnd()
    else if (error instanceof FrameLimit) this.#tooLarge('a compressed reply')
    else {
      this.#why = 'sent a reply that can’t be decoded'
      this.#brokeOff(upstreamFailed('The upstream sent a reply that can’t be decoded. Retry shortly.', error))
    }
  }

  // ---- events -------------------------------------------------------------------------------------------------------

  readonly #frame = (event: string, data: string): void => {
    if (this.#state !== 'over' && !this.#decoder!.done) this.#decoder!.frame(event, data, this.#push)
  }

  readonly #run = (text: string, at: number): number => {
    const decoder = this.#decoder!
    return this.#state === 'over' || decoder.done || !decoder.deltas ? at : decoder.deltas(text, at, this.#push)
  }

  readonly #push = (event: StreamEvent): void => {
    if (this.#state === 'over') return
    if (event.type === 'error') {
      if (this.#cause) return this.#break(this.#cause)
      const error = this.#written.eventFault(event.error)
      if (!(error.cause instanceof UpstreamFault)) this.#why = 'sent a reply that is not whole, or can’t be read'
      return this.#break(error, SAID_SO.has(error.code) || isBlamed(error))
    }
    if (event.type !== 'usage') this.#spoke = true
    if (this.#reader !== null && (this.#size += sizeOf(event)) > this.#call.maxReply) return this.#tooLarge('a reply')
    if (this.#state === 'silent') this.#state = 'answered'
    this.#deltas.push(event)
  }

  /** The reply has ended; the decoder reports an error if it is not whole. */
  #finish(): void {
    this.#decoder!.end(this.#push)
    this.#deltas.flush()
    if (this.#state === 'over') return
    this.#release(null)
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
    this.#why = `sent ${what} over the size limit`
    this.#break(upstreamFailed(`The upstream sent ${what} over the size limit. Retry shortly.`), false, true)
  }

  /**
   * Something went wrong after the request was sent. Before the first event another backend may be tried; after it the
   * client gets the error.
   * @param saidSo the provider itself says that it did not do the work
   */
  #break(error: GatewayError, saidSo = false, oversized = false): void {
    if (this.#state === 'over') return
    const fault: CallFault = { kind: kindOfBroken(error, saidSo), ...(oversized && { oversized }) }
    if (this.#state === 'silent') return this.#failed(error, fault)
    this.#deltas.flush()
    if (this.over) return
    this.#note(error)
    this.#reportCut()
    this.#release(null)
    this.#sink.flush()
    this.#sink.fail(error, fault)
  }

  /** Nothing of the attempt was passed on. */
  #failed(error: GatewayError, fault: CallFault): void {
    if (this.#state === 'over') return
    this.#note(error)
    this.#release(fault.kind)
    this.#sink.fail(error, fault)
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
    if (usage) this.#sink.emit({ type: 'usage', usage, cut: true })
  }

  #note(error: GatewayError): void {
    const { backend, facts, report } = this.#call
    const ms = facts.clock.mono() - this.#startedMono
    const { headers, own } = this.#request ?? this.#written.wire
    const sent = { ...headers, ...own, ...this.#credentials?.headers }
    report.failure({ backend: backend.id, status: this.#status, ms, why: this.#why }, error, sent)
  }

  /**
   * The attempt is over.
   * @param kind of its failure, if nothing of it was passed on
   */
  #release(kind: FaultKind | null): void {
    if (this.#state === 'over') return
    this.#state = 'over'
    this.#ticker.delete(this)
    this.#decoding?.destroy()
    // What the provider refused, it did not read for the model, and it does not charge for it.
    const hasPrompt = this.#connection.used && this.#status < 300 && (kind === null || FAULTS[kind].hasPrompt)
    if (kind === null) this.#connection.release(this.#call.facts.clock)
    else this.#connection.abort()
    if (hasPrompt) this.#call.report.tookPrompt()
  }

  // ---- the attempt's control ---------------------------------------------------------------------------------------

  pause(): void {
    if (this.#connection.paused || this.#state === 'over') return
    this.#decoding?.pause()
    this.#connection.pause()
  }

  resume(): void {
    if (!this.#connection.paused || this.#state === 'over') return
    // During a pause the client was silent, not the model.
    this.#activityMono = this.#call.facts.clock.mono()
    this.#decoding?.resume()
    this.#connection.resume()
  }

  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    if (this.#state === 'over') return undefined
    if (reason === 'client_gone' && this.#state === 'answered' && this.#call.clocks.drain > 0) {
      this.#state = 'draining'
      this.#goneMono = this.#call.facts.clock.mono()
      this.resume()
      return 'draining'
    }
    this.#reportCut()
    this.#release(null)
    return undefined
  }

  // ---- clocks -------------------------------------------------------------------------------------------------------

  tick(now: number): void {
    if (this.#state === 'over') return
    const { clocks, startedMono } = this.#call
    if (this.#state === 'draining' && now - this.#goneMono >= clocks.drain) {
      this.#release(null)
      this.#sink.end()
      return
    }
    // A client that takes a byte now and then still has its ceiling. The other clocks judge the upstream, which cannot
    // send now.
    if (this.#connection.paused) {
      if (now - startedMono >= clocks.ceiling) this.#stop('ceiling_timeout')
      return
    }
    if (now - startedMono >= clocks.ceiling) return this.#stop('ceiling_timeout')
    if (this.#sentMono === null) return
    if (this.#state === 'silent') {
      const waited = now - this.#sentMono
      // A provider that never began to answer has not worked, so its client gets a timeout and no bill, whichever limit
      // is the shorter one. In a later round of a search the client has output, and a stream that ends early (STR-2).
      if (waited >= (this.#begun ? clocks.firstByte : Math.min(clocks.firstByte, clocks.idle))) {
        const error = new GatewayError('gateway_timeout', {
          message: 'The upstream did not begin to answer in time. Retry shortly.',
        })
        this.#why = 'did not begin to answer in time'
        return this.#failed(error, { kind: 'broken' })
      }
      if (waited >= clocks.headWait && !this.#sink.headSent) this.#sink.sendHead()
    }
    if (now - this.#activityMono >= clocks.idle) this.#stop('idle_timeout')
  }

  /** An idle or ceiling stop is an ordinary, incomplete end (STR-2). */
  #stop(reason: 'idle_timeout' | 'ceiling_timeout'): void {
    if (this.#state === 'silent') this.#state = 'answered'
    // Some providers (gemini) mark no last event: a reply whose finish reason has come is whole, and only its
    // connection is idle.
    const whole = reason === 'idle_timeout' && this.#reader !== null && this.#decoderSaysWhole()
    this.#release(null)
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

/** What kind of failure a reply with this status is, and this error. */
function kindOf(status: number, error: GatewayError): FaultKind {
  // A 204 is an empty answer like one of 200 without a body: what the provider did for it is not known.
  if (status === 204) return 'broken'
  if (status < 400 || status >= 500) return 'failed'
  // Most other 4xx would come again for an unchanged request.
  return status === 429 || status === 401 || status === 403 || isBlamed(error) ? 'declined' : 'refused'
}

/**
 * What kind of failure it is that a reply of 2xx did not come to its end.
 * @param saidSo the provider itself says that it did not do the work
 */
function kindOfBroken(error: GatewayError, saidSo: boolean): FaultKind {
  if (OF_A_4XX.has(error.code) || faultsRequest(error)) return saidSo ? 'declined' : 'refused'
  return saidSo ? 'failed' : 'broken'
}

/** Codes of errors inside a 200 reply that say that the provider did not do the work. */
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

/** The code of a failed connection, as `ECONNREFUSED`: a name of a list, and never what somebody else wrote. */
function codeOf(error: Error): string {
  const { code } = error as NodeJS.ErrnoException
  return typeof code === 'string' && /^[A-Z][A-Z0-9_]{2,60}$/.test(code) ? code : ''
}

/** The refusal of a credential that is fetched: after it another one is, so that a retry may succeed. */
function expired({ code, cause }: GatewayError): GatewayError {
  const message = 'The upstream refused the gateway’s own credential, and the gateway fetches another. Retry shortly.'
  return new GatewayError(code, { message, retriable: true, cause })
}

function upstreamFailed(message: string, cause?: unknown): GatewayError {
  return new GatewayError('upstream_server_error', { message, cause })
}
