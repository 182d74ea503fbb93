/** A streamed answer on uWebSockets.js. */

import type { OutgoingStream } from '../../core/listener.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { PieceQueue, type StreamState } from '../outgoing.ts'
import { CHUNK_BYTES, CORK_BYTES, HEAD_FRAMING_BYTES } from './cork.ts'
import type { UwsExchange } from './exchange.ts'
import { StallClock } from './stall.ts'
import { type Deferred, defer, inTurn } from './turn.ts'

const nothing = (): void => {}

export class UwsStream implements OutgoingStream, Deferred {
  /** A write did not fit in the kernel: nothing more is written before onWritable (R8). */
  blocked = false

  readonly exchange: UwsExchange
  readonly #bodiless: boolean
  #head: string
  /** Text written since the last flush: it is measured once, whole. */
  #fresh = ''
  readonly #queue = new PieceQueue(CHUNK_BYTES)
  /** Bytes of the write that blocked: uWebSockets.js holds them. */
  #native = 0
  /** What had been written when the client blocked. */
  #beforeBlock = 0
  #state: StreamState = 'open'
  #deferred = false
  /** The kernel has been full once. */
  #slow = false
  #owesDrain = false
  #drainListener: (() => void) | undefined
  #stall: StallClock | undefined

  constructor(exchange: UwsExchange, head: string, bodiless: boolean) {
    this.exchange = exchange
    this.#head = head
    this.#bodiless = bodiless
    if (exchange.gone) this.#state = 'closed'
  }

  write(data: string | Uint8Array): void {
    if (this.#state !== 'open' || this.#bodiless || data.length === 0) return
    if (typeof data === 'string') {
      // Small events of one flush go out as one chunk.
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
    if (this.blocked && overruns(queue.total - before, before)) this.exchange.abandon()
  }

  flush(): boolean {
    if (this.#state !== 'open') return false
    this.#enqueueText()
    this.#advance()
    if (this.blocked || this.#queue.bytes > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && !this.exchange.gone
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    this.#enqueueText()
    return this.#queue.bytes + this.#native
  }

  /** The last byte has been queued, and not everything has left. */
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

  /** R3: now, or when the parser's turn is over. */
  #advance(): void {
    if (!inTurn()) return this.#pump()
    if (this.#deferred) return
    this.#deferred = true
    defer(this)
  }

  endOfTurn(): void {
    this.#deferred = false
    if (this.exchange.over) return
    try {
      this.#pump()
      this.#drained()
    } catch (error) {
      this.exchange.fail(error)
    }
  }

  #pump(): void {
    if (this.exchange.over) return
    while (!this.blocked && !this.#queue.empty) {
      const piece = this.#take()
      const last = this.#queue.empty
      if (last && this.#state === 'ending' && !this.exchange.body.open && !this.#holdsBack) return this.#finish(piece)
      if (!this.#write(piece)) this.#block(piece)
    }
    if (this.blocked || !this.#queue.empty) return
    if (this.#state === 'ending') {
      if (this.exchange.body.open) this.exchange.body.linger(() => this.#finish(''))
      else this.#finish('')
    } else if (this.#state === 'cutting') this.#close()
  }

  /** The next piece that fits in a cork (R7). */
  #take(): string | Uint8Array {
    let room = this.#head === '' ? CHUNK_BYTES : Math.max(1024, CORK_BYTES - HEAD_FRAMING_BYTES - this.#head.length)
    if (this.#holdsBack && this.#queue.bytes > 1) room = Math.min(room, this.#queue.bytes - 1)
    return this.#queue.take(room)
  }

  /**
   * The last byte waits until what came before it has left, which only the write after it can tell: for a cut, which closes the connection, and for
   * an end that a slow reader or a drain could meet (what uWebSockets.js holds after `end` is out of sight, and a close takes it along).
   */
  get #holdsBack(): boolean {
    return this.#state === 'cutting' || (this.#state === 'ending' && (this.#slow || this.exchange.shared.draining))
  }

  /** One cork. False when the kernel has not taken what was written before it, or all of this. */
  #write(piece: string | Uint8Array): boolean {
    const head = this.#head
    this.#head = ''
    return this.exchange.shared.cork.chunk(this.exchange.res, head, piece)
  }

  #finish(piece: string | Uint8Array): void {
    this.#state = 'closed'
    this.#stall?.stop()
    const { res } = this.exchange
    const head = this.#head
    this.exchange.finished()
    res.cork(() => {
      if (head !== '') res.writeStatus(head)
      if (this.#bodiless) res.endWithoutBody()
      else if (head === '' || piece === '') res.end(piece)
      else {
        // A body in one `end` would go out with a Content-Length: right, but a stream is better always framed as one.
        res.write(piece)
        res.end()
      }
    })
  }

  /** Everything is in the kernel: no terminator, so that nobody takes the stream for a whole one (STR-6). */
  #close(): void {
    this.#state = 'closed'
    this.#stall?.stop()
    const exchange = this.exchange
    if (exchange.body.open) exchange.body.linger(() => exchange.closeQuietly())
    else exchange.closeQuietly()
  }

  #block(piece: string | Uint8Array): void {
    this.blocked = true
    this.#slow = true
    this.#beforeBlock = this.#queue.total
    this.#native = typeof piece === 'string' ? Buffer.byteLength(piece) : piece.byteLength
    this.#stall ??= new StallClock(this.exchange)
    this.#stall.start()
  }

  /** The kernel has room again. */
  onWritable(): void {
    this.#stall?.rest()
    this.blocked = false
    this.#native = 0
    // R9: without a write uWebSockets.js would never hand on what it holds itself.
    if (this.#queue.empty) this.exchange.res.cork(nothing)
    this.#pump()
    this.#drained()
  }

  #drained(): void {
    if (!this.#owesDrain || this.blocked || !this.#queue.empty || this.#state !== 'open') return
    this.#owesDrain = false
    this.#drainListener?.()
  }

  /** The connection is gone. */
  dropped(): void {
    this.#state = 'closed'
    this.#fresh = ''
    this.#queue.clear()
    this.#native = 0
    this.#stall?.stop()
  }
}
