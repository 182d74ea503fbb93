/** The reply as the client gets it: events become the surface's frames or one body; bytes pass unchanged. */
import { GatewayError, retryHeaders } from '../../canon/errors.ts'
import { type FinishEvent, type StreamEvent, ZERO_USAGE } from '../../canon/events.ts'
import { piecesOf } from '../../canon/joined.ts'
import {
  conversation as conversationSlot,
  type Exchange,
  estimate,
  request,
  type SentTap,
  type StreamWatch,
  usage,
} from '../../plugin.ts'
import type { HeaderList, OutgoingStream } from '../../ports/listener.ts'
import { type EncodeContext, type Encoder, errorBody, type SentStream, SSE_HEADERS } from '../../ports/surface.ts'
import { itemId } from '../../tools/ids.ts'
import type { Ticker, Ticking } from '../../tools/ticker.ts'
import { Taps } from './taps.ts'
import type { SentHead, WayBack } from './way-back.ts'

/**
 * The states of a reply:
 * - `open`: nothing was sent or encoded yet; any kind of reply is possible
 * - `collecting`: the encoder collects a reply that will be sent as one body; it may still become an error
 * - `opening`: the response hooks are working on the head of a stream of frames
 * - `frames`: the head was sent, and the encoder's frames follow
 * - `bytes`: the head was sent, and unchanged bytes follow
 * - `whole`: the whole response was sent at once
 */
type ReplyState = 'open' | 'collecting' | 'opening' | 'frames' | 'bytes' | 'whole'

/**
 * Text that was written since the last flush counts as the last bytes of a reply up to this length; more is sent before
 * the reply's end. One write is cheaper than two, and most replies end in the read that brought their last words.
 */
const LAST_LENGTH = 16 * 1024

/** What a reply needs of the gateway: keep-alives. */
export interface ReplyHost {
  readonly ticker: Ticker
  readonly keepAliveMs: number
}

/** What a reply needs of its exchange. */
export interface ReplyOwner
  extends Pick<
    Exchange,
    'id' | 'incoming' | 'surface' | 'errorForm' | 'startedAt' | 'objectId' | 'clock' | 'closed' | 'peek' | 'fail'
  > {
  readonly host: ReplyHost
  /** A slow client has read the bytes that waited for it. */
  drained(): void
  /** The head cannot be sent: answers with `bare`. */
  answerBare(cause: unknown, what: string): void
  logError(error: unknown, what: string): void
}

export class ClientReply implements Ticking {
  /** Index in the ticker's set; -1 while it is not in the set. */
  place = -1
  readonly #x: ReplyOwner
  readonly #back: WayBack
  #state: ReplyState = 'open'
  #encoder: Encoder | null = null
  #out: OutgoingStream | null = null
  /** Length of what was written since the last flush, in characters or bytes. */
  #unflushed = 0
  /** The client has not taken what was flushed; the listener will notify us when it has. */
  #slow = false
  /** The whole response that `handOver` sends. */
  #whole: { status: number; headers: HeaderList; body: string | Uint8Array } | null = null
  /** The last frames of a stream, which `handOver` sends; null while the stream has no end. */
  #lastFrames: string | null = null
  #taps: Taps | null = null
  #watch: StreamWatch | null = null
  /** The client has disconnected from a stream that goes on without it: it is encoded, and sent to nobody. */
  #left = false
  #status = 0
  #delivered = false
  #finished = false
  #firstByteMono: number | null = null
  #lastWriteMono = 0

  constructor(x: ReplyOwner, back: WayBack) {
    this.#x = x
    this.#back = back
  }

  /** Whether a head was sent, so that an error can only come after it. */
  get headSent(): boolean {
    return this.#state === 'frames' || this.#state === 'bytes' || this.#state === 'whole'
  }
  get isBytes(): boolean {
    return this.#state === 'bytes'
  }
  /** The HTTP status that was sent; 0 before that. */
  get status(): number {
    return this.#status
  }
  /** Whether part of the reply's content was sent to the client. The frames that open a stream do not count. */
  get delivered(): boolean {
    return this.#delivered
  }
  /** Monotonic milliseconds; null before the first byte. */
  get firstByteMono(): number | null {
    return this.#firstByteMono
  }

  onSent(tap: SentTap): void {
    this.#taps ??= new Taps(error => this.#x.logError(error, 'a tap of what is sent failed'))
    this.#taps.add(tap)
  }

  // ---- a stream that goes on without its client -----------------------------------------------------------------

  watch(watch: StreamWatch): void {
    this.#watch = watch
  }
  get sentStream(): SentStream | undefined {
    return this.#state === 'frames' ? this.#encoder!.sent : undefined
  }
  get clientLeft(): boolean {
    return this.#left
  }

  /**
   * The client has disconnected.
   * @returns false where nobody else can know of the reply, since no head of a stream was sent
   */
  goesOn(): boolean {
    if (this.#state !== 'frames') return false
    this.#left = true
    this.#slow = false
    return true
  }

  // ---- a reply of events --------------------------------------------------------------------------------------------

  event(event: StreamEvent): void {
    if (this.#state === 'open' && !this.#begin()) return
    const frames = this.#framesOf(event)
    if (this.#state === 'collecting' || frames === '') return
    // A reply that is cut before any content was sent is not billed (BILL-3). Most events have content, and after the
    // first one the question is settled.
    if (!this.#delivered) this.#delivered = this.#hasContent(event)
    this.#write(frames)
  }

  #framesOf(event: StreamEvent): string {
    const encoder = this.#encoder!
    const pieces = this.#state === 'collecting' ? null : piecesOf(event)
    if (pieces === null) return encoder.event(event)
    // No encoder keeps an event, so one object serves for all pieces.
    const piece = { ...event, text: '' } as StreamEvent & { text: string }
    let frames = ''
    for (piece.text of pieces) frames += encoder.event(piece)
    return frames
  }

  /**
   * Whether a client that gets this event's frames has got part of the reply. Frames alone do not tell: hidden
   * reasoning on Responses opens an item that stays empty, and a search that begins shows neither query nor result.
   */
  #hasContent(event: StreamEvent): boolean {
    switch (event.type) {
      case 'text':
      case 'refusal':
      case 'tool_args':
        return event.text !== ''
      case 'reasoning':
        return event.text !== '' && this.#encoder!.showsReasoning
      case 'tool_call':
      case 'search_end':
      case 'citation':
      case 'compaction':
        return true
      default:
        return false
    }
  }

  /**
   * Whether a reply may end now: the client has taken what was sent before its last bytes. Otherwise the listener's
   * drain event follows.
   */
  mayEnd(): boolean {
    if (this.#unflushed > LAST_LENGTH) this.flush()
    return !this.#slow
  }

  /**
   * Encodes the end of the reply, for `handOver`.
   * @returns false when the exchange has ended otherwise
   */
  finish(event: FinishEvent): boolean {
    if (this.#state === 'open' && !this.#begin()) return false
    const encoder = this.#encoder!
    // A refusal by the gateway itself has zero usage, whatever tokens its text has.
    const billed = this.#back.origin === 'gateway' ? ZERO_USAGE : (this.#x.peek(usage)?.usage ?? ZERO_USAGE)
    const last = encoder.finish(event, billed)
    this.#finished = true
    if (this.#state === 'collecting') {
      this.#delivered = true
      this.whole(this.#back.head(200, [['content-type', 'application/json']]), encoder.body())
    } else this.#endFrames(last)
    return true
  }

  /** The whole reply as JSON; undefined before its finish was encoded. */
  wholeReply(): string | undefined {
    if (!this.#finished) return undefined
    const body = this.#whole?.body
    return typeof body === 'string' ? body : this.#encoder!.body()
  }

  /** Sends the head of a stream although no event has come. The head of a buffered reply leaves only with its body. */
  sendHead(): void {
    if (this.#x.surface && this.#state === 'open' && !this.#begin()) return
    // The listener sends a head only with the first body byte. The encoder may have no frame yet, so a keep-alive is
    // sent.
    if (this.#out && this.#unflushed === 0) this.#write(this.#encoder!.keepAlive())
    this.flush()
  }

  /** @returns false when the exchange has ended because of it */
  #begin(): boolean {
    const x = this.#x
    const conversation = x.peek(conversationSlot)
    if (!conversation) {
      x.fail(new GatewayError('internal_error', { message: 'A reply was made before the request was understood.' }))
      return false
    }
    const encoder = x.surface!.encoder(this.#context(conversation))
    this.#encoder = encoder
    if (!conversation.stream) {
      this.#state = 'collecting'
      encoder.start()
      return true
    }
    this.#state = 'opening'
    if (!this.#openStream(this.#back.head(200, SSE_HEADERS), 'frames')) return false
    this.#write(encoder.start())
    x.host.ticker.add(this)
    return !x.closed
  }

  #context(conversation: EncodeContext['conversation']): EncodeContext {
    const x = this.#x
    const { clock } = x
    return {
      requestId: x.id,
      created: Math.floor(x.startedAt / 1000),
      model: conversation.model,
      body: x.peek(request) ?? {},
      conversation,
      promptTokens: this.#back.origin === 'gateway' ? 0 : (x.peek(estimate)?.input ?? 0),
      objectId: x.objectId,
      mintItemId: itemId,
      now: () => clock.now(),
    }
  }

  /** Sends a keep-alive when the stream has been silent for `keepAliveMs`. */
  tick(now: number): void {
    if (this.#state !== 'frames' || this.#back.upstreamEnded) return
    if (now - this.#lastWriteMono < this.#x.host.keepAliveMs || this.#out!.buffered > 0) return
    this.#write(this.#encoder!.keepAlive())
    this.flush()
  }

  /** Ends the keep-alives: no client waits for this reply any more. */
  stopKeepAlive(): void {
    this.#x.host.ticker.delete(this)
  }

  // ---- a reply of bytes ---------------------------------------------------------------------------------------------

  openBytes(status: number, headers: HeaderList): void {
    this.#openStream(this.#back.head(status, headers), 'bytes')
  }

  bytes(bytes: Uint8Array): void {
    if (!this.#out) return
    this.#delivered = true
    this.#write(bytes)
  }

  /**
   * Sends a reply whose end is missing, then cuts the connection.
   * @returns false when the exchange has ended otherwise
   */
  partial(head: SentHead, body: Uint8Array): boolean {
    if (!this.#openStream(head, 'bytes')) return false
    this.#out!.write(body)
    this.#out!.flush()
    this.#out!.cut()
    return true
  }

  // ---- sending ------------------------------------------------------------------------------------------------------

  /** Makes a whole response, for `handOver`. */
  whole({ status, headers }: SentHead, body: string | Uint8Array): void {
    const fault = headers.fault()
    if (fault !== undefined) return this.#badHead(new TypeError(fault))
    this.#answered(status, headers, body)
    if (!this.#taps) return
    this.#taps.head(status, headers)
    this.#taps.bytes(body)
    this.#taps.end(true)
  }

  /** Makes an error without any header that a plugin added, for `handOver`. */
  bare(error: GatewayError): void {
    const { errorForm, id } = this.#x
    const headers: HeaderList = [
      ['content-type', 'application/json'],
      ['x-request-id', id],
    ]
    this.#delivered = false
    this.#answered(error.status, headers, errorBody(errorForm, error, id))
  }

  #answered(status: number, headers: HeaderList, body: string | Uint8Array): void {
    this.#state = 'whole'
    this.#status = status
    this.#firstByteMono ??= this.#x.clock.mono()
    this.#whole = { status, headers, body }
  }

  /** @returns false when the head cannot be sent; the exchange has then ended */
  #openStream({ status, headers }: SentHead, state: 'frames' | 'bytes'): boolean {
    const x = this.#x
    // A response hook that got the head may have ended the exchange.
    if (x.closed) return false
    let out: OutgoingStream
    try {
      out = x.incoming.stream(status, headers)
    } catch (error) {
      this.#badHead(error)
      return false
    }
    this.#out = out
    this.#state = state
    this.#status = status
    this.#lastWriteMono = x.clock.mono()
    out.onDrain(() => {
      this.#slow = false
      x.drained()
    })
    this.#taps?.head(status, headers)
    return true
  }

  /**
   * The listener rejected the head, because a header of a plugin or of the proxy's target is not valid. The client
   * gets an error without these headers.
   */
  #badHead(cause: unknown): void {
    this.#x.answerBare(cause, 'the head of the reply cannot be sent')
  }

  #write(data: string | Uint8Array): void {
    if (data === '' || !this.#out) return
    this.#firstByteMono ??= this.#x.clock.mono()
    if (!this.#left) this.#out.write(data)
    this.#unflushed += data.length
    this.#taps?.bytes(data)
  }

  /** @returns false when the client is slow */
  flush(): boolean {
    if (this.#unflushed > 0) {
      this.#unflushed = 0
      this.#lastWriteMono = this.#x.clock.mono()
      this.#slow = !this.#left && !this.#out!.flush()
      this.#watch?.more()
    }
    return !this.#slow
  }

  // ---- the last bytes -----------------------------------------------------------------------------------------------

  /** Whether `handOver` has something to send. */
  get waits(): boolean {
    return this.#whole !== null || this.#lastFrames !== null
  }

  /** Sends the end of the reply. */
  handOver(): void {
    const out = this.#out
    let whole = false
    try {
      if (this.#whole) {
        const { status, headers, body } = this.#whole
        this.#whole = null
        this.#x.incoming.respond(status, headers, body)
      } else if (this.#lastFrames !== null) {
        const last = this.#lastFrames
        this.#lastFrames = null
        if (!this.#left) {
          out!.write(last)
          out!.flush()
          out!.end()
        }
        whole = true
      }
    } finally {
      this.#watch?.end(whole)
    }
  }

  /**
   * Keeps the end of the reply back: a stream is cut, and a reply of one body becomes this error.
   * @param error with its wait (see `setRetryAfter`)
   */
  withdraw(error: GatewayError): void {
    if (this.#lastFrames !== null) {
      this.cut()
    } else if (this.#whole && this.#encoder) {
      const { errorForm, id } = this.#x
      const headers: HeaderList = [
        ['content-type', 'application/json'],
        ['x-request-id', id],
        ...Object.entries(retryHeaders(error)),
      ]
      this.#answered(error.status, headers, errorBody(errorForm, error, id))
    }
    this.handOver()
  }

  #endFrames(last: string): void {
    this.#firstByteMono ??= this.#x.clock.mono()
    this.#lastFrames = last
    if (last !== '') this.#taps?.bytes(last)
    this.#taps?.end(true)
  }

  /** Ends a complete reply of bytes. */
  endBytes(): void {
    this.flush()
    this.#out!.end()
    this.#taps?.end(true)
  }

  /** Ends a stream that failed; an error frame waits for `handOver`. */
  failStream(error: GatewayError): void {
    if (!this.#out) return
    // After an error frame the stream is ended properly, so that the frame arrives: cutting the connection would also
    // discard the bytes that a slow client has not read yet, the frame among them. A reply of bytes has no frames and
    // can only be cut.
    if (this.#encoder) return this.#endFrames(this.#encoder.error(error, this.#x.peek(usage)?.usage))
    this.flush()
    this.#out.cut()
    this.#taps?.end(false)
  }

  /** Cuts a stream without an error frame. */
  cut(): void {
    this.#lastFrames = null
    this.#out?.cut()
  }
}
