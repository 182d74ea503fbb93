/** A streamed answer on uWebSockets.js. */

import type { Timer } from '../../core/clock.ts'
import type { OutgoingStream } from '../../core/listener.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { CHUNK_BYTES, CORK_BYTES, HEAD_FRAMING_BYTES } from './cork.ts'
import type { UwsExchange } from './exchange.ts'
import { type Deferred, defer, inTurn } from './turn.ts'

const OPEN = 0
const ENDING = 1
const CUTTING = 2
const CLOSED = 3

const nothing = (): void => {}

export class UwsStream implements OutgoingStream, Deferred {
  /** A write did not fit in the kernel: nothing more is written before onWritable (R8). */
  blocked = false

  readonly exchange: UwsExchange
  readonly #bodiless: boolean
  #head: string
  /** Text written since the last flush: it is measured once, whole. */
  #fresh = ''
  #queue: (string | Uint8Array)[] = []
  /** Bytes in the queue. */
  #queued = 0
  /** Bytes of the write that blocked: uWebSockets.js holds them. */
  #native = 0
  /** Bytes written, and those of them that were while the client was blocked. */
  #written = 0
  #overrun = 0
  #state = OPEN
  #deferred = false
  /** The kernel has been full once. */
  #slow = false
  #owesDrain = false
  #drainListener: (() => void) | undefined
  #progress = 0
  #stallTimer: Timer | undefined

  constructor(exchange: UwsExchange, head: string, bodiless: boolean) {
    this.exchange = exchange
    this.#head = head
    this.#bodiless = bodiless
    if (exchange.gone) this.#state = CLOSED
  }

  write(data: string | Uint8Array): void {
    if (this.#state !== OPEN || this.#bodiless || data.length === 0) return
    if (typeof data === 'string') {
      // Small events of one flush go out as one chunk.
      if (this.#fresh.length + data.length > CHUNK_BYTES) this.#enqueueText()
      this.#fresh += data
      if (this.blocked) this.#enqueueText()
    } else {
      this.#enqueueText()
      this.#queue.push(data)
      this.#count(data.byteLength)
    }
  }

  #enqueueText(): void {
    const text = this.#fresh
    if (text === '') return
    this.#fresh = ''
    const queue = this.#queue
    const last = queue.length - 1
    const before = queue[last]
    if (typeof before === 'string' && before.length + text.length <= CHUNK_BYTES) queue[last] = before + text
    else queue.push(text)
    this.#count(Buffer.byteLength(text))
  }

  #count(bytes: number): void {
    this.#queued += bytes
    this.#written += bytes
    if (!this.blocked) return
    this.#overrun += bytes
    if (overruns(this.#overrun, this.#written - this.#overrun)) this.exchange.abandon()
  }

  flush(): boolean {
    if (this.#state !== OPEN) return false
    this.#enqueueText()
    this.#advance()
    if (this.blocked || this.#queued > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && !this.exchange.gone
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    this.#enqueueText()
    return this.#queued + this.#native
  }

  /** The last byte has been queued, and not everything has left. */
  get ending(): boolean {
    return this.#state === ENDING || this.#state === CUTTING
  }

  end(): void {
    if (this.#state !== OPEN) return
    this.#enqueueText()
    this.#state = ENDING
    this.#advance()
  }

  cut(): void {
    if (this.#state !== OPEN) return
    this.#enqueueText()
    this.#state = CUTTING
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
    while (!this.blocked && this.#queue.length > 0) {
      const piece = this.#take()
      const last = this.#queue.length === 0
      if (last && this.#state === ENDING && !this.exchange.body.open && !this.#holdsBack) return this.#finish(piece)
      if (!this.#write(piece)) this.#block(piece)
    }
    if (this.blocked || this.#queue.length > 0) return
    if (this.#state === ENDING) {
      if (this.exchange.body.open) this.exchange.body.linger(() => this.#finish(''))
      else this.#finish('')
    } else if (this.#state === CUTTING) this.#close()
  }

  /** The next piece that fits in a cork (R7). */
  #take(): string | Uint8Array {
    const queue = this.#queue
    let room = this.#head === '' ? CHUNK_BYTES : Math.max(1024, CORK_BYTES - HEAD_FRAMING_BYTES - this.#head.length)
    if (this.#holdsBack && this.#queued > 1) room = Math.min(room, this.#queued - 1)
    let first = queue[0]!
    if (typeof first === 'string') {
      // All that is queued is one text that fits: the usual case.
      const bytes = queue.length === 1 ? this.#queued : Buffer.byteLength(first)
      if (bytes <= room) {
        queue.shift()
        this.#queued -= bytes
        return first
      }
      first = Buffer.from(first)
    }
    if (first.byteLength <= room) {
      queue.shift()
      this.#queued -= first.byteLength
      return first
    }
    queue[0] = first.subarray(room)
    this.#queued -= room
    return first.subarray(0, room)
  }

  /**
   * The last byte waits until what came before it has left, which only the write after it can tell: for a cut, which closes the connection, and for
   * an end that a slow reader or a drain could meet (what uWebSockets.js holds after `end` is out of sight, and a close takes it along).
   */
  get #holdsBack(): boolean {
    return this.#state === CUTTING || (this.#state === ENDING && (this.#slow || this.exchange.shared.draining))
  }

  /** One cork. False when the kernel has not taken what was written before it, or all of this. */
  #write(piece: string | Uint8Array): boolean {
    const head = this.#head
    this.#head = ''
    return this.exchange.shared.cork.chunk(this.exchange.res, head, piece)
  }

  #finish(piece: string | Uint8Array): void {
    this.#state = CLOSED
    this.#stallTimer?.cancel()
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
    this.#state = CLOSED
    this.#stallTimer?.cancel()
    const exchange = this.exchange
    if (exchange.body.open) exchange.body.linger(() => exchange.closeQuietly())
    else exchange.closeQuietly()
  }

  #block(piece: string | Uint8Array): void {
    this.blocked = true
    this.#slow = true
    this.#overrun = 0
    this.#native = typeof piece === 'string' ? Buffer.byteLength(piece) : piece.byteLength
    const { clock } = this.exchange.shared
    this.#progress = clock.mono()
    // R10
    if (this.#stallTimer === undefined) this.#armStall(this.exchange.shared.options.stallTimeoutMs)
  }

  #armStall(ms: number): void {
    const { clock, options } = this.exchange.shared
    this.#stallTimer = clock.setTimer(ms, () => {
      this.#stallTimer = undefined
      if (!this.blocked || this.exchange.over) return
      const left = options.stallTimeoutMs - (clock.mono() - this.#progress)
      if (left > 0) this.#armStall(left)
      else this.exchange.abandon()
    })
  }

  /** The kernel has room again. */
  onWritable(): void {
    this.#progress = this.exchange.shared.clock.mono()
    this.blocked = false
    this.#native = 0
    // R9: without a write uWebSockets.js would never hand on what it holds itself.
    if (this.#queue.length === 0) this.exchange.res.cork(nothing)
    this.#pump()
    this.#drained()
  }

  #drained(): void {
    if (!this.#owesDrain || this.blocked || this.#queue.length > 0 || this.#state !== OPEN) return
    this.#owesDrain = false
    this.#drainListener?.()
  }

  /** The connection is gone. */
  dropped(): void {
    this.#state = CLOSED
    this.#fresh = ''
    this.#queue = []
    this.#queued = 0
    this.#native = 0
    this.#stallTimer?.cancel()
    this.#stallTimer = undefined
  }
}
