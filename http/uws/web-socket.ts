/**
 * A WebSocket on uWebSockets.js. Rule ids such as R7 are those of docs/spec/listener.md. The tested build does some
 * things itself, and this cannot be changed: it answers pings, joins fragments, and closes the connection without a
 * close frame after a message that is too long, text that is not UTF-8, or bytes that are not a frame.
 */

import type { Socket, SocketSession, WebSocketOptions } from '../../core/ports/listener.ts'
import type { Timer } from '../../core/tools/clock.ts'
import { HIGH_WATER, overruns } from '../backpressure.ts'
import { CORK_BYTES } from './cork.ts'
import type { SocketEvents, UwsWebSocket } from './native.ts'
import type { OpenSocket, UwsShared } from './shared.ts'
import { type Deferred, defer, enterTurn, FRAME_PIECE, inTurn, TurnPieces } from './turn.ts'

/** A session that may also want control frames, and the code with which a socket was closed. */
export interface UwsSession extends Omit<SocketSession, 'opened' | 'closed'> {
  opened(socket: UwsSocket): void
  ping?(bytes: Uint8Array): void
  pong?(bytes: Uint8Array): void
  /** @param code 1005 for a close frame without a code, 1006 for a connection that ended without a close frame */
  closed(code: number, reason: Uint8Array): void
}

type Write = (ws: UwsWebSocket) => unknown

/**
 * uWebSockets.js closes a socket on which nothing was sent or received for this many seconds. This is its maximum,
 * since our own pings find a dead peer sooner.
 */
export const IDLE_SECONDS = 960
/**
 * Bytes that uWebSockets.js may hold for a client before it drops further ones. We write only when it holds nothing,
 * so only its own answers to pings can be dropped. A client that sends pings and reads nothing is not worth more
 * memory.
 */
export const MAX_BACKPRESSURE = 256 * 1024
/** Bytes that a frame needs beside its text: its header, and a margin. */
const FRAME_BYTES = 16

export class UwsSocket implements Socket, SocketEvents, OpenSocket, Deferred {
  readonly #session: UwsSession
  readonly #shared: UwsShared
  readonly #options: WebSocketOptions
  #ws: UwsWebSocket | undefined
  /** Messages that wait, and the size of each in bytes, with its frame. */
  #queue: (string | Write)[] = []
  #sizes: number[] = []
  /** Bytes in the queue, and all bytes that were ever queued. */
  #queued = 0
  #written = 0
  #blocked = false
  #deferred = false
  #owesDrain = false
  readonly #pieces = new TurnPieces()
  #closing: { code: number; reason: string | Uint8Array } | undefined
  /** When the client last took bytes, or when it blocked (monotonic milliseconds). */
  #progress = 0
  #stallTimer: Timer | undefined
  #pongTimer: Timer | undefined

  constructor(session: UwsSession, shared: UwsShared, options: WebSocketOptions) {
    this.#session = session
    this.#shared = shared
    this.#options = options
  }

  /** Called after the response to the handshake was sent. */
  start(): void {
    if (this.#ws === undefined) return
    this.#guarded(() => {
      this.#session.opened(this)
      if (this.#shared.draining) this.#session.drain()
    })
  }

  // ---- callbacks of uWebSockets.js ----------------------------------------------------------------------------------

  onOpen(ws: UwsWebSocket): void {
    this.#ws = ws
    this.#shared.sockets.add(this)
  }

  onMessage(message: ArrayBuffer, binary: boolean): void {
    // The socket is written to only after everything that one read brought was processed: within these callbacks
    // uWebSockets.js has corked it already (R7).
    if (!this.#hears()) return
    if (this.#closing !== undefined) return
    if (message.byteLength > this.#options.maxMessageBytes) return this.#cut()
    // uWebSockets.js reuses the memory once the callback has returned.
    const bytes = copyOf(message)
    this.#guarded(() => this.#session.message(bytes, binary))
  }

  onPing(message: ArrayBuffer): void {
    if (!this.#hears()) return
    if (this.#session.ping) this.#guarded(() => this.#session.ping!(copyOf(message)))
  }

  onPong(message: ArrayBuffer): void {
    if (!this.#hears()) return
    if (this.#session.pong) this.#guarded(() => this.#session.pong!(copyOf(message)))
  }

  /** A frame has arrived. @returns false when it is one too many, and the connection was closed */
  #hears(): boolean {
    enterTurn()
    if (this.#pieces.overrun(FRAME_PIECE)) {
      this.#shared.overrunTurns++
      this.#cut()
      return false
    }
    this.#stopPongTimer()
    return true
  }

  #stopPongTimer(): void {
    this.#pongTimer?.cancel()
    this.#pongTimer = undefined
  }

  onDrain(): void {
    if (this.#ws === undefined) return
    this.#progress = this.#shared.clock.mono()
    if (this.#ws.getBufferedAmount() > 0) return
    enterTurn()
    this.#later()
  }

  onClose(code: number, message: ArrayBuffer): void {
    const reason = copyOf(message)
    this.#ws = undefined
    this.#shared.sockets.delete(this)
    this.#queue = []
    this.#sizes = []
    this.#queued = 0
    this.#stallTimer?.cancel()
    this.#stopPongTimer()
    try {
      this.#session.closed(code, reason)
    } catch (error) {
      this.#shared.options.onError?.(error)
    }
  }

  drain(): void {
    this.#guarded(() => this.#session.drain())
  }

  /** True while something is still to be sent, including the close frame. */
  get unsent(): boolean {
    return this.#ws !== undefined && (this.#queued > 0 || this.#blocked || this.#closing !== undefined)
  }

  // ---- methods for the session --------------------------------------------------------------------------------------

  send(text: string): void {
    this.#enqueue(text, Buffer.byteLength(text))
  }

  /** As `send`, for what is not a text. @param bytes the size of what `write` sends */
  sendBy(write: Write, bytes: number): void {
    this.#enqueue(write, bytes)
  }

  #enqueue(item: string | Write, bytes: number): void {
    if (this.#ws === undefined || this.#closing !== undefined) return
    const size = bytes + FRAME_BYTES
    this.#queue.push(item)
    this.#sizes.push(size)
    this.#queued += size
    this.#written += size
    if (this.#blocked && overruns(this.#queued, this.#written - this.#queued)) this.#cut()
  }

  flush(): boolean {
    if (this.#ws === undefined) return false
    if (inTurn()) this.#later()
    else this.#pump()
    if (this.#blocked || this.#queued > HIGH_WATER) this.#owesDrain = true
    return !this.#owesDrain && this.#ws !== undefined
  }

  get buffered(): number {
    return this.#queued + (this.#ws?.getBufferedAmount() ?? 0)
  }

  ping(): void {
    // The stall timer watches a blocked client, so no ping is needed.
    if (this.#ws === undefined || this.#blocked || this.#queued > 0 || this.#closing !== undefined) return
    this.#ws.ping()
    this.#pongTimer ??= this.#shared.clock.setTimer(this.#options.pongTimeoutMs, () => this.#cut())
  }

  close(code: number, reason: string | Uint8Array): void {
    if (this.#ws === undefined || this.#closing !== undefined) return
    this.#closing = { code, reason }
    this.#later()
  }

  // ---- writing ------------------------------------------------------------------------------------------------------

  #later(): void {
    if (!inTurn()) return this.endOfTurn()
    if (this.#deferred) return
    this.#deferred = true
    defer(this)
  }

  endOfTurn(): void {
    this.#deferred = false
    this.#guarded(() => {
      this.#pump()
      if (!this.#owesDrain || this.#blocked || this.#queued > 0 || this.#ws === undefined) return
      this.#owesDrain = false
      this.#session.drained()
    })
  }

  #pump(): void {
    const ws = this.#ws
    if (ws === undefined) return
    for (;;) {
      // The answers of uWebSockets.js to pings may fill the kernel too, and behind too many of them a message would
      // be dropped.
      if (ws.getBufferedAmount() > 0) return this.#block()
      this.#blocked = false
      if (this.#queue.length === 0) break
      this.#sendCork(ws)
    }
    // Calls `onClose`. The close frame and the FIN are sent after the messages.
    if (this.#closing !== undefined) ws.end(this.#closing.code, this.#closing.reason)
  }

  /** Sends the next messages that fit together in one cork (R7). A longer message is sent alone and without a cork. */
  #sendCork(ws: UwsWebSocket): void {
    let count = 0
    let bytes = 0
    while (count < this.#sizes.length && bytes + this.#sizes[count]! <= CORK_BYTES) bytes += this.#sizes[count++]!
    if (count <= 1) {
      this.#queued -= this.#sizes.shift()!
      write(ws, this.#queue.shift()!)
      return
    }
    const batch = this.#queue.splice(0, count)
    this.#sizes.splice(0, count)
    this.#queued -= bytes
    ws.cork(() => {
      for (const item of batch) write(ws, item)
    })
  }

  #block(): void {
    if (this.#blocked) return
    this.#blocked = true
    this.#progress = this.#shared.clock.mono()
    // R10: closes the connection of a client that takes no byte for `stallTimeoutMs`.
    if (this.#stallTimer === undefined) this.#armStall(this.#shared.options.stallTimeoutMs)
  }

  #armStall(ms: number): void {
    const { clock, options } = this.#shared
    this.#stallTimer = clock.setTimer(ms, () => {
      this.#stallTimer = undefined
      if (!this.#blocked) return
      const left = options.stallTimeoutMs - (clock.mono() - this.#progress)
      if (left > 0) this.#armStall(left)
      else this.#cut()
    })
  }

  /** Closes without a close frame, which the client would not read. Calls `onClose`. */
  #cut(): void {
    this.#ws?.close()
  }

  /** R1: an exception must not leave a socket open that nobody serves. */
  #guarded(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#shared.options.onError?.(error)
      this.#cut()
    }
  }
}

function write(ws: UwsWebSocket, item: string | Write): void {
  if (typeof item === 'string') ws.send(item)
  else item(ws)
}

function copyOf(message: ArrayBuffer): Uint8Array {
  const bytes = Buffer.allocUnsafe(message.byteLength)
  bytes.set(new Uint8Array(message))
  return bytes
}
