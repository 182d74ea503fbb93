/** The reply as its client gets it: events become the surface's frames or one body, and bytes go on as they are. */
import { GatewayError } from '../errors.ts'
import { type FinishEvent, type StreamEvent, ZERO_USAGE } from '../events.ts'
import { itemId, searchId } from '../ids.ts'
import type { HeaderList, OutgoingStream } from '../listener.ts'
import { conversation as conversationSlot, estimate, request, type SentTap, usage } from '../plugin.ts'
import { type EncodeContext, type Encoder, errorBody } from '../surface.ts'
import type { Ticking } from '../ticker.ts'
import type { RunningExchange } from './index.ts'
import { Taps } from './taps.ts'
import type { SentHead, WayBack } from './way-back.ts'

/**
 * open        nothing has been said, and it may become anything
 * collecting  the encoder gathers a reply that will leave as one body; it may still become an error
 * opening     the plugins are at the head of a stream of frames
 * frames      the head is out, and the encoder's frames follow
 * bytes       the head is out, and bytes as they are follow
 * whole       the answer is out, all of it at once
 */
type ReplyState = 'open' | 'collecting' | 'opening' | 'frames' | 'bytes' | 'whole'

const SSE_HEADERS: HeaderList = [
  ['content-type', 'text/event-stream; charset=utf-8'],
  ['cache-control', 'no-cache, no-transform'],
  ['x-accel-buffering', 'no'],
]

const mint: EncodeContext['mint'] = prefix => (prefix === 'item_eba1_' ? itemId() : searchId())

export class ClientReply implements Ticking {
  /** Among those whose keep-alives the ticker looks after. */
  place = -1
  readonly #x: RunningExchange
  readonly #back: WayBack
  #state: ReplyState = 'open'
  #encoder: Encoder | null = null
  #out: OutgoingStream | null = null
  /** Something was written since the last flush. */
  #dirty = false
  #taps: Taps | null = null
  #status = 0
  #delivered = false
  #firstByteMono: number | null = null
  #lastWriteMono = 0

  constructor(x: RunningExchange, back: WayBack) {
    this.#x = x
    this.#back = back
  }

  /** Whether a head is out, so that an error can only follow it. */
  get headSent(): boolean {
    return this.#state === 'frames' || this.#state === 'bytes' || this.#state === 'whole'
  }
  get isBytes(): boolean {
    return this.#state === 'bytes'
  }
  /** What was sent; 0 before that. */
  get status(): number {
    return this.#status
  }
  /** Something of the reply's content has reached the client: a stream's beginning alone is none. */
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

  // ---- a reply of events --------------------------------------------------------------------------------------------

  event(event: StreamEvent): void {
    if (this.#state === 'open' && !this.#begin()) return
    const frames = this.#encoder!.event(event)
    if (this.#state === 'collecting' || frames === '') return
    // What the surface does not show, reasoning on Chat, is not delivered: cut there, nothing is billed.
    this.#delivered = true
    this.#write(frames)
  }

  /** False when the exchange has ended otherwise. */
  finish(event: FinishEvent): boolean {
    if (this.#state === 'open' && !this.#begin()) return false
    const encoder = this.#encoder!
    // A refusal of the gateway's own uses nothing, whatever its text would count.
    const billed = this.#back.origin === 'gateway' ? ZERO_USAGE : (this.#x.peek(usage)?.usage ?? ZERO_USAGE)
    const last = encoder.finish(event, billed)
    if (this.#state === 'collecting') {
      this.#delivered = true
      this.whole(this.#back.head(200, [['content-type', 'application/json']]), encoder.body())
    } else {
      this.#write(last)
      this.endStream()
    }
    return true
  }

  /** Sends the head of a stream although no event has come. A buffered reply has no head of its own to begin with. */
  sendHead(): void {
    if (this.#x.surface && this.#state === 'open' && !this.#begin()) return
    // A surface may have nothing to say yet, and a head needs a first byte to leave with.
    if (this.#out && !this.#dirty) this.#write(this.#encoder!.keepAlive())
    this.flush()
  }

  /** False when the exchange has ended because of it. */
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
      mint,
      now: () => clock.now(),
    }
  }

  /** A keep-alive, when the stream has been silent for long enough. */
  tick(now: number): void {
    if (this.#state !== 'frames' || this.#back.upstreamEnded) return
    if (now - this.#lastWriteMono < this.#x.host.keepAliveMs || this.#out!.buffered > 0) return
    this.#write(this.#encoder!.keepAlive())
    this.flush()
  }

  /** Nobody is left who would wait for one. */
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

  /** What there is of a reply whose end is missing, then a cut. False when the exchange has ended otherwise. */
  partial(head: SentHead, body: Uint8Array): boolean {
    if (!this.#openStream(head, 'bytes')) return false
    this.#out!.write(body)
    this.#out!.flush()
    this.#out!.cut()
    return true
  }

  // ---- what goes out ------------------------------------------------------------------------------------------------

  /** A whole answer. */
  whole({ status, headers }: SentHead, body: string | Uint8Array): void {
    try {
      this.#x.incoming.respond(status, headers, body)
    } catch (error) {
      return this.#badHead(error)
    }
    this.#answered(status)
    if (!this.#taps) return
    this.#taps.head(status, headers)
    this.#taps.bytes(body)
    this.#taps.end(true)
  }

  /** An error without anything that a plugin has a hand in. */
  bare(error: GatewayError): void {
    const { incoming, surface, id } = this.#x
    const headers: HeaderList = [
      ['content-type', 'application/json'],
      ['x-request-id', id],
    ]
    this.#delivered = false
    this.#answered(error.status)
    incoming.respond(error.status, headers, errorBody(surface, error, id))
  }

  #answered(status: number): void {
    this.#state = 'whole'
    this.#status = status
    this.#firstByteMono ??= this.#x.clock.mono()
  }

  /** False when the head can't be sent, and the exchange has ended because of it. */
  #openStream({ status, headers }: SentHead, state: 'frames' | 'bytes'): boolean {
    const x = this.#x
    // A plugin that saw the head may have ended the exchange.
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
    out.onDrain(() => x.drained())
    this.#taps?.head(status, headers)
    return true
  }

  /** The listener takes no such head: a plugin's or a target's header would break it apart. Answered without them. */
  #badHead(cause: unknown): void {
    this.#x.answerBare(cause, 'the head of the reply cannot be sent')
  }

  #write(data: string | Uint8Array): void {
    if (data === '' || !this.#out) return
    this.#firstByteMono ??= this.#x.clock.mono()
    this.#out.write(data)
    this.#dirty = true
    this.#taps?.bytes(data)
  }

  /** False when the client is slow. */
  flush(): boolean {
    if (!this.#dirty || !this.#out) return true
    this.#dirty = false
    this.#lastWriteMono = this.#x.clock.mono()
    return this.#out.flush()
  }

  /** The stream is whole. */
  endStream(): void {
    this.flush()
    this.#out!.end()
    this.#taps?.end(true)
  }

  /** The stream ends before its time. */
  failStream(error: GatewayError): void {
    if (!this.#out) return
    // An error frame is the honest end, and it must arrive: a cut connection takes with it what a slow reader has not
    // read, the frame first of all. What has no frames can only be cut.
    const encoder = this.#encoder
    if (encoder) this.#write(encoder.error(error, this.#x.peek(usage)?.usage))
    this.flush()
    if (encoder) this.#out.end()
    else this.#out.cut()
    this.#taps?.end(encoder !== null)
  }

  /** Ends a stream without another word. */
  cut(): void {
    this.#out?.cut()
  }
}
