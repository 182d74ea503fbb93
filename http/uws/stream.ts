/** A streamed response on uWebSockets.js. Rule ids such as R8 are those of docs/spec/listener.md. */

import type { OutgoingStream } from '../../core/ports/listener.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { PieceQueue, type StreamState } from '../outgoing.ts'
import { CHUNK_BYTES, CORK_BYTES, type CorkedResponse, HEAD_FRAMING_BYTES, type HeadBytes } from './cork.ts'
import type { UwsShared } from './shared.ts'
import { type Stallable, StallClock } from './stall.ts'
import { type Deferred, defer, inTurn } from './turn.ts'

const nothing = (): void => {}

/** What a stream needs of its exchange. */
export interface StreamOwner extends Stallable {
  /** Not used once the exchange is over. */
  readonly res: CorkedResponse
  readonly shared: Stallable['shared'] & Pick<UwsShared, 'cork' | 'draining'>
  /** What is left of the upload, which must end before the response does. */
  readonly body: { readonly open: boolean; linger(then: () => void): void }
  /** Call it just before the last byte is given to uWebSockets.js. */
  finished(): void
  /** As `abandon`, when all bytes are in the kernel and the gateway itself cuts. */
  closeQuietly(): void
  fail(error: unknown): void
}

export class UwsStream implements OutgoingStream, Deferred {
  /** True after a write that did not fit in the kernel: nothing more is written until onWritable (R8). */
  blocked = false

  readonly #owner: StreamOwner
  readonly #bodiless: boolean
  #head: HeadBytes
  /** Text that was written since the last flush. It is measured once, as a whole. */
  #fresh = ''
  readonly #queue = new PieceQueue(CHUNK_BYTES)
  /** Bytes of the write that blocked, which uWebSockets.js still holds. */
  #native = 0
  /** Bytes that had been queued when the client blocked. */
  #beforeBlock = 0
  #state: StreamState = 'open'
  #deferred = false
  /** True once the kernel was full for this client. */
  #slow = false
  #owesDrain = false
  #drainListener: (() => void) | undefined
  #stall: StallClock | undefined

  constructor(owner: StreamOwner, head: HeadBytes, bodiless: boolean) {
    this.#owner = owner
    this.#head = head
    this.#bodiless = bodiless
  }

  write(data: string | Uint8Array): void {
    if (this.#state !== 'open' || this.#bodiless || data.length === 0) return
    if (typeof data === 'string') {
      // Small events between two flushes are sent as one chunk.
      if (this.#fresh.length + data.length > CHUNK_BYTES) this.#enqueueText()
      this.#fresh += data
      if (this.blocked) this.#enqueueText()
    } else {
      this.#enqueueText()
      this.#enqueue(data)
    }
  }

  #enqueueText(): void {
    const text = this.#fresh
    if (text === '') return
    this.#fresh = ''
    this.#enqueue(text)
  }

  #enqueue(data: string | Uint8Array): void {
    const queue = this.#queue
    queue.push(data)
    const before = this.#beforeBlock
    if (this.blocked && overruns(queue.total - before, before)) this.#owner.abandon()
  }

  flush(): boolean {
    if (this.#state !== 'open') return false
    this.#enqueueText()
    this.#advance()
    if (this.blocked || this.#queue.bytes > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && this.#state === 'open'
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    this.#enqueueText()
    return this.#queue.bytes + this.#native
  }

  /** True once the last byte was queued, while not all bytes have left. */
  get ending(): boolean {
    return this.#state === 'ending' || this.#state === 'cutting'
  }

  end(): void {
    if (this.#state !== 'open') return
    this.#enqueueText()
    this.#state = 'ending'
    this.#advance()
  }

  cut(): void {
    if (this.#state !== 'open') return
    this.#enqueueText()
    this.#state = 'cutting'
    this.#advance()
  }

  /** R3: sends now, or at the end of the event-loop turn while the parser runs. */
  #advance(): void {
    if (!inTurn()) return this.#pump()
    if (this.#deferred) return
    this.#deferred = true
    defer(this)
  }

  endOfTurn(): void {
    this.#deferred = false
    if (this.#owner.over) return
    try {
      this.#pump()
      this.#drained()
    } catch (error) {
      this.#owner.fail(error)
    }
  }

  #pump(): void {
    if (this.#owner.over) return
    while (!this.blocked && !this.#queue.empty) {
      const piece = this.#take()
      const last = this.#queue.empty
      if (last && this.#state === 'ending' && !this.#owner.body.open && !this.#holdsBack) return this.#finish(piece)
      if (!this.#write(piece)) this.#block(piece)
    }
    if (this.blocked || !this.#queue.empty) return
    if (this.#state === 'ending') {
      if (this.#owner.body.open) this.#owner.body.linger(() => this.#finish(''))
      else this.#finish('')
    } else if (this.#state === 'cutting') this.#close()
  }

  /** Takes the next piece that fits in a cork (R7). */
  #take(): string | Uint8Array {
    let room = this.#head === '' ? CHUNK_BYTES : Math.max(1024, CORK_BYTES - HEAD_FRAMING_BYTES - this.#head.length)
    if (this.#holdsBack && this.#queue.bytes > 1) room = Math.min(room, this.#queue.bytes - 1)
    return this.#queue.take(room)
  }

  /**
   * The last byte waits until all bytes before it have left; only the next write can tell whether they have. That is
   * needed for a cut, which closes the connection, and for an end while the client is slow or the listener drains:
   * what uWebSockets.js holds after `end` cannot be seen, and closing the listener would discard it.
   */
  get #holdsBack(): boolean {
    return this.#state === 'cutting' || (this.#state === 'ending' && (this.#slow || this.#owner.shared.draining))
  }

  /** Writes one cork. @returns false when the kernel has not taken all of it, or of the bytes before it */
  #write(piece: string | Uint8Array): boolean {
    const head = this.#head
    this.#head = ''
    return this.#owner.shared.cork.chunk(this.#owner.res, head, piece)
  }

  #finish(piece: string | Uint8Array): void {
    this.#state = 'closed'
    this.#stall?.stop()
    const { res } = this.#owner
    const head = this.#head
    this.#owner.finished()
    res.cork(() => {
      if (head !== '') res.writeStatus(head)
      if (this.#bodiless) res.endWithoutBody()
      else if (head === '' || piece === '') res.end(piece)
      else {
        // A body in a single `end` would be sent with a Content-Length. That is valid, but a stream should always be
        // chunked.
        res.write(piece)
        res.end()
      }
    })
  }

  /**
   * Closes the connection when all bytes are in the kernel, without the chunk terminator, so that no client takes the
   * stream for a complete one (STR-6).
   */
  #close(): void {
    this.#state = 'closed'
    this.#stall?.stop()
    const owner = this.#owner
    if (owner.body.open) owner.body.linger(() => owner.closeQuietly())
    else owner.closeQuietly()
  }

  #block(piece: string | Uint8Array): void {
    this.blocked = true
    this.#slow = true
    this.#beforeBlock = this.#queue.total
    this.#native = typeof piece === 'string' ? Buffer.byteLength(piece) : piece.byteLength
    this.#stall ??= new StallClock(this.#owner)
    this.#stall.start()
  }

  /** The kernel has room again. */
  onWritable(): void {
    this.#stall?.rest()
    this.blocked = false
    this.#native = 0
    // R9: without a write, uWebSockets.js would never send the bytes that it holds itself.
    if (this.#queue.empty) this.#owner.res.cork(nothing)
    this.#pump()
    this.#drained()
  }

  #drained(): void {
    if (!this.#owesDrain || this.blocked || !this.#queue.empty || this.#state !== 'open') return
    this.#owesDrain = false
    this.#drainListener?.()
  }

  /** The connection is closed. */
  dropped(): void {
    this.#state = 'closed'
    this.#fresh = ''
    this.#queue.clear()
    this.#native = 0
    this.#stall?.stop()
  }
}
