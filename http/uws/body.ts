/**
 * The body of a request on uWebSockets.js: the bytes that have arrived wait for a reader, go to a reader, or are
 * discarded. Rule ids such as R12 are those of docs/spec/listener.md.
 */

import type { Budget } from '../../core/engine/budget.ts'
import { clientTenant } from '../../core/engine/tenant.ts'
import type { BodyFault, BodyFlow, BodyLimits, BodySink, Incoming } from '../../core/ports/listener.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { FairTurns } from '../../core/tools/fair.ts'
import { LINGER_BYTES, LINGER_MS } from '../client-exchange.ts'
import { CollectedBody } from '../collected-body.ts'
import type { UwsResponse } from './native.ts'
import type { UwsShared } from './shared.ts'
import { type Deferred, defer, enterTurn, inTurn, STREAMED_PIECE, TurnPieces } from './turn.ts'

/**
 * The states of a body:
 * - `none`: the request has no body
 * - `unread`: it has one, but no onData is registered: uWebSockets.js discards it (R12)
 * - `kept`: no code has asked for it yet; what arrives is kept for a reader (R2)
 * - `reading`: it is collected for a reader that wants it whole
 * - `streaming`: a sink gets each piece
 * - `discarded`: what still arrives is discarded
 * - `lingering`: as `discarded`; the response ends when the upload has ended or passed a limit (R12)
 */
type BodyState = 'none' | 'unread' | 'kept' | 'reading' | 'streaming' | 'discarded' | 'lingering'

type BodyReader = (fault: BodyFault | null, body: Uint8Array) => void

/**
 * R2: the socket is paused when more bytes than this are kept for a reader that has not asked yet. One read (512 KB)
 * may exceed it.
 */
const KEPT_BYTES = 256 * 1024
/**
 * Bytes that may still arrive after a sink has paused the body; after more, the connection is cut. A blocked write
 * makes uSockets poll for reading again, and its read loop ignores the pause until the kernel's buffers are empty (up
 * to 33 MB of `tcp_rmem`, and for a local sender also its own buffers).
 */
const PAUSED_BYTES = 64 * 1024 * 1024
/**
 * Of the connections with a body larger than this, one is read in an event-loop turn, tenants by turns. uSockets reads a
 * socket until the kernel's buffer is empty, and a fast sender keeps it full: one turn read 168 MB of forty uploads of
 * 24 MB, and took 208 ms. A turn still reads all that one sender can deliver, up to the whole body (15 to 36 ms for
 * 24 MB). With 1 MB here, twenty connections with bodies of 529 KB made turns of 20 to 44 ms; now of at most 15.
 */
const PACED_BYTES = 256 * 1024
/** To read what is left of a larger body that nobody wants costs more than another connection. */
const LARGE_BYTES = 1024 * 1024
/**
 * After a long turn they pause for this many times its length. A request of somebody else takes about five turns: with
 * ten such uploads it took 100 ms instead of 30.
 */
const REST_TIMES = 2
export const pacedReads = (clock: Clock): FairTurns => new FairTurns({ clock, times: REST_TIMES })

export const readsBudget: Budget = {
  name: 'large_reads',
  bound: 'reads of bodies of more than 256 KiB, on `uws`',
  owner: 'tenant',
  each: 'by turns',
  all: `one connection in a turn of the event loop, and after a long turn a rest of ${REST_TIMES} times as long as it took`,
  over: 'nothing: the next waits',
}

const empty = new Uint8Array(0)

/** What a body needs of its exchange; at the end of the event-loop turn that calls `watch` and `endLinger`. */
export interface BodyOwner extends Deferred {
  /** Not used once the exchange is over. */
  readonly res: Pick<UwsResponse, 'onData' | 'pause' | 'resume'>
  readonly headers: Pick<Incoming['headers'], 'get'>
  readonly shared: Pick<UwsShared, 'clock' | 'reads'>
  /** Whose upload it is, where tenants take turns. */
  readonly tenant: Incoming['tenant']
  readonly remoteAddress: string
  /** The request needs no more work: it was answered, or its client has left. */
  readonly settled: boolean
  /** The connection has nothing to do with it any more. */
  readonly over: boolean
  /** A write waits for the kernel. */
  readonly blocked: boolean
  startTicking(): void
  /** The last byte has arrived. */
  bodyEnded(): void
  closeAfterAnswer(): void
  /** The connection brought too many pieces in one turn, and is closed for it. */
  overranTurn(): void
  abandon(): void
  fail(error: unknown): void
}

export class UwsBody {
  readonly #owner: BodyOwner
  #state: BodyState = 'none'
  #ended = true
  #paused = false
  /** The socket is paused until the body's turn to be read comes. */
  #waitsForTurn = false
  #kept: Uint8Array[] = []
  /** The body of a reader, where it came in more than one piece. */
  #collected: CollectedBody | undefined
  /** Bytes that have arrived: in all, while the reader had paused, and while lingering. */
  #bytes = 0
  #pausedBytes = 0
  #lingered = 0
  /** Set for a body that comes in more than one piece. */
  #pieces: TurnPieces | undefined
  #maxBytes = 0
  #timeoutMs = 0
  #done: BodyReader | undefined
  #take: ((bytes: number) => boolean) | undefined
  #sink: BodySink | undefined
  #sinkPaused = false
  #afterLinger: (() => void) | undefined
  /** The timer of the body deadline while reading, of the linger while lingering. */
  #timer: Timer | undefined

  constructor(owner: BodyOwner) {
    this.#owner = owner
  }

  /** True once the last byte has arrived, or when there is no body. */
  get ended(): boolean {
    return this.#ended
  }
  /** True while the socket is paused: for the reader, or until its turn comes. */
  get paused(): boolean {
    return this.#paused || this.#waitsForTurn
  }
  /** True once the whole body has reached its reader. */
  get taken(): boolean {
    return this.#ended && (this.#done !== undefined || this.#sink !== undefined)
  }
  /** True while no onData is registered: uWebSockets.js discards the body. */
  get unread(): boolean {
    return this.#state === 'unread'
  }
  /** True when the body is announced to be so large that an early answer closes the connection. */
  get large(): boolean {
    return this.#isOver(LARGE_BYTES)
  }
  #isOver(bytes: number): boolean {
    const declared = this.#owner.headers.get('content-length')
    return declared !== undefined && Number(declared) > bytes
  }
  /**
   * True while onData waits for more. To end the response now would leak the socket, or reset it before the client
   * has read the response (R12).
   */
  get open(): boolean {
    return !this.#ended && this.#state !== 'unread'
  }

  // ---- registration -------------------------------------------------------------------------------------------------

  /** The head declares a body. */
  announced(): void {
    this.#state = 'unread'
    this.#ended = false
  }

  /** Keeps what arrives for a reader that has not asked yet. */
  keep(): void {
    this.#register('kept')
  }

  /** Discards what arrives. */
  discard(): void {
    this.#register('discarded')
  }

  #register(state: BodyState): void {
    this.#state = state
    this.#ended = false
    this.#owner.res.onData((chunk, last) => {
      enterTurn()
      try {
        this.#onChunk(chunk, last)
      } catch (error) {
        this.#owner.fail(error)
      }
    })
    this.#watchLater()
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  /** See `Incoming.readBody`. */
  read(limits: BodyLimits, done: BodyReader, take?: (bytes: number) => boolean): void {
    this.#claim()
    if (this.#owner.settled) return
    if (this.#state === 'none') return done(null, empty)
    this.#maxBytes = limits.maxBytes
    this.#timeoutMs = limits.timeoutMs
    this.#done = done
    this.#take = take
    const declared = this.#owner.headers.get('content-length')
    if (declared !== undefined && Number(declared) > limits.maxBytes) {
      if (this.#state === 'unread') this.discard()
      return this.#fault('too_large')
    }
    if (this.#state === 'unread') return this.#register('reading')
    this.#state = 'reading'
    if (this.#bytes > limits.maxBytes) return this.#fault('too_large')
    if (this.#bytes > 0 && take?.(this.#bytes) === false) return this.#fault('refused')
    if (this.#ended) return this.#finish()
    this.#resume()
    this.#watchLater()
  }

  /** See `Incoming.streamBody`. */
  stream(sink: BodySink): BodyFlow {
    this.#claim()
    this.#sink = sink
    if (this.#owner.settled) {
      // The sink will get nothing.
    } else if (this.#state === 'unread') this.#register('streaming')
    else if (this.#state === 'none' || this.#state === 'kept') {
      const none = this.#state === 'none'
      if (!none) this.#state = 'streaming'
      queueMicrotask(() => this.#handOver(none))
    }
    return {
      pause: () => {
        this.#sinkPaused = true
        if (this.#state === 'streaming') this.#pause()
      },
      resume: () => {
        this.#sinkPaused = false
        this.#resume()
      },
    }
  }

  #claim(): void {
    if (this.#done !== undefined || this.#sink !== undefined) throw new Error('the body has been asked for already')
  }

  /** Gives a sink the bytes that arrived before the sink was registered. */
  #handOver(none: boolean): void {
    if (this.#owner.over) return
    try {
      const kept = this.#kept
      this.#kept = []
      for (const chunk of kept) this.#sink!.chunk(chunk)
      if (none || this.#ended) this.#sink!.end()
      else if (!this.#sinkPaused) this.#resume()
    } catch (error) {
      this.#owner.fail(error)
    }
  }

  #pause(): void {
    if (this.#paused || this.#ended || this.#owner.over) return
    this.#paused = true
    this.#pausedBytes = 0
    this.#owner.res.pause()
  }

  #resume(): void {
    if (!this.#paused || this.#owner.over) return
    this.#paused = false
    if (this.#waitsForTurn) return
    // uWebSockets.js starts its 10 s timer here; the tick restarts it from now on (R11).
    this.#owner.res.resume()
    this.#owner.startTicking()
  }

  // ---- arriving bytes -----------------------------------------------------------------------------------------------

  #onChunk(chunk: ArrayBuffer, last: boolean): void {
    // R12: these callbacks continue after the response was ended; then the bytes are ignored.
    if (this.#owner.over) return
    if (last) this.#end()
    else if ((this.#pieces ??= new TurnPieces()).overrun(this.#state === 'streaming' ? STREAMED_PIECE : 1))
      return this.#owner.overranTurn()
    const bytes = chunk.byteLength
    this.#bytes += bytes
    if (!last && !this.#waitsForTurn && (this.#bytes > PACED_BYTES || this.#isOver(PACED_BYTES))) this.#waitForTurn()
    switch (this.#state) {
      case 'kept':
        if (bytes > 0) this.#kept.push(copyOf(chunk))
        // A paused socket does not notice that its client disconnects, so it is paused only when much is kept.
        if (!last && this.#bytes > KEPT_BYTES) this.#pause()
        break
      case 'reading':
        // R11: the limit applies to the bytes that arrive, whatever Content-Length said.
        if (this.#bytes > this.#maxBytes) return this.#fault('too_large')
        if (bytes > 0 && this.#take?.(bytes) === false) return this.#fault('refused')
        if (last) this.#finish(chunk)
        else if (bytes > 0) this.#collect().add(new Uint8Array(chunk))
        break
      case 'streaming':
        if (bytes > 0) {
          if (this.#kept.length > 0) this.#kept.push(copyOf(chunk))
          else this.#sink!.chunk(copyOf(chunk))
        }
        if (this.#paused && !last) this.#pausedAnyway(bytes)
        else if (last && this.#kept.length === 0) this.#sink!.end()
        break
      case 'lingering':
        this.#lingered += bytes
        if (last || this.#lingered > LINGER_BYTES) defer(this.#owner)
    }
    if (last) this.#owner.bodyEnded()
  }

  #end(): void {
    this.#ended = true
    // The rest came in the read that brought the pause. What follows on the connection is another request.
    if (this.#waitsForTurn && !this.#paused) this.#owner.res.resume()
  }

  #waitForTurn(): void {
    this.#waitsForTurn = true
    this.#owner.res.pause()
    this.#owner.shared.reads.next(clientTenant(this.#owner)).then(() => {
      this.#waitsForTurn = false
      if (!this.#paused && !this.#ended && !this.#owner.over) this.#owner.res.resume()
    })
  }

  /** Bytes arrived although the body is paused, because a blocked write made uSockets poll for reading. */
  #pausedAnyway(bytes: number): void {
    this.#pausedBytes += bytes
    if (this.#pausedBytes > PAUSED_BYTES) return this.#owner.abandon()
    if (!this.#owner.blocked) this.#owner.res.pause()
  }

  /** Where the reader's body is collected: at first what was kept for it. */
  #collect(): CollectedBody {
    if (this.#collected !== undefined) return this.#collected
    const declared = this.#owner.headers.get('content-length')
    this.#collected = new CollectedBody(declared === undefined ? undefined : Number(declared), this.#maxBytes)
    for (const piece of this.#kept) this.#collected.add(piece)
    this.#kept = []
    return this.#collected
  }

  /** Gives the reader the whole body. @param rest the chunk that has just arrived */
  #finish(rest?: ArrayBuffer): void {
    this.#stopTimer()
    this.#done!(null, this.#whole(rest))
    this.#collected = undefined
  }

  #whole(rest: ArrayBuffer | undefined): Uint8Array {
    const more = rest !== undefined && rest.byteLength > 0
    const kept = this.#kept
    this.#kept = []
    if (this.#collected === undefined) {
      if (kept.length === 0) return more ? copyOf(rest) : empty
      if (kept.length === 1 && !more) return kept[0]!
      this.#kept = kept
    }
    const body = this.#collect()
    if (more) body.add(new Uint8Array(rest))
    return body.bytes
  }

  #fault(fault: BodyFault): void {
    this.#stopTimer()
    this.#drop()
    this.#state = 'discarded'
    this.#owner.closeAfterAnswer()
    this.#resume()
    this.#done!(fault, empty)
  }

  // ---- timers -------------------------------------------------------------------------------------------------------

  /**
   * Starts timer and tick for a body that has not fully arrived, at the end of the event-loop turn. Most bodies
   * arrive with their head and are complete by then, so that they need neither.
   */
  #watchLater(): void {
    if (inTurn()) defer(this.#owner)
    else this.watch()
  }

  /** Called when the event-loop turn has ended. */
  watch(): void {
    if (this.#ended || this.#owner.over) return
    this.#owner.startTicking()
    if (this.#state !== 'reading' || this.#timer !== undefined) return
    // R11: a fixed deadline, counted from the reader's request. Arriving bytes do not extend it.
    this.#timer = this.#owner.shared.clock.setTimer(this.#timeoutMs, () => {
      this.#timer = undefined
      if (this.#state !== 'reading' || this.#ended || this.#owner.over) return
      try {
        this.#fault('timeout')
      } catch (error) {
        this.#owner.fail(error)
      }
    })
  }

  #stopTimer(): void {
    this.#timer?.cancel()
    this.#timer = undefined
  }

  // ---- discarding ---------------------------------------------------------------------------------------------------

  /** Discards the rest of the upload, then calls `then`, which closes the connection or ends the response. */
  linger(then: () => void): void {
    if (this.#ended) return then()
    this.#state = 'lingering'
    this.#drop()
    this.#lingered = 0
    this.#afterLinger = then
    this.#resume()
    this.#owner.startTicking()
    this.#stopTimer()
    this.#timer = this.#owner.shared.clock.setTimer(LINGER_MS, () => {
      if (!this.#owner.over) this.#stopLingering()
    })
  }

  get lingers(): boolean {
    return this.#state === 'lingering'
  }

  /** Called when the event-loop turn has ended: ends the linger if the upload has ended or passed the limit. */
  endLinger(): void {
    if (this.#ended || this.#lingered > LINGER_BYTES) this.#stopLingering()
  }

  #stopLingering(): void {
    const then = this.#afterLinger!
    this.#afterLinger = undefined
    this.#state = 'discarded'
    this.#stopTimer()
    if (this.#ended) then()
    else this.#owner.abandon()
  }

  /** The exchange has ended. */
  clear(): void {
    this.#stopTimer()
    this.#drop()
  }

  #drop(): void {
    this.#kept = []
    this.#collected = undefined
  }
}

/** A copy is needed because uWebSockets.js reuses the memory of a chunk once the callback has returned. */
function copyOf(chunk: ArrayBuffer): Uint8Array {
  const copy = Buffer.allocUnsafe(chunk.byteLength)
  copy.set(new Uint8Array(chunk))
  return copy
}
