/**
 * A WebSocket handshake that was taken out of node:http. It can be answered like an ordinary request that closes its
 * connection, or with 101: from then on the connection is a tunnel of raw bytes, which this file reads and writes.
 */
import { type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { BodyFlow, BodySink, OutgoingStream } from '../../core/ports/listener.ts'
import { discardRest } from './body.ts'
import type { NodeShared } from './exchange.ts'
import { onStall } from './stream.ts'

/** The callbacks by which a tunnel notifies its exchange. */
export interface TunnelOwner {
  /** The gateway has ended the tunnel; its last bytes are being sent. */
  ended(): void
  /** A callback of the gateway threw. */
  fail(error: unknown): void
}

export class NodeTunnel implements OutgoingStream {
  /** For a response other than 101. */
  readonly response: ServerResponse
  readonly #socket: Socket
  readonly #shared: NodeShared
  #owner: TunnelOwner | undefined
  #over = false
  #owesDrain = false
  #drainListener: (() => void) | undefined

  /** @param head the bytes that arrived after the head of the request */
  constructor(req: IncomingMessage, socket: Socket, head: Buffer, shared: NodeShared) {
    this.#socket = socket
    this.#shared = shared
    const res = new ServerResponse(req)
    this.response = res
    res.assignSocket(socket)
    if (head.length > 0) socket.unshift(head)
    // node:http has removed its listeners from the socket. The ones below do their work for an ordinary response.
    socket.on('error', () => {})
    socket.on('drain', () => {
      if (this.#owner !== undefined) this.#drained()
      else if (res.writableNeedDrain) res.emit('drain')
    })
    socket.on('end', () => {
      // A client that closes its side counts as disconnected, until the tunnel is open and passes that end on.
      if (this.#owner === undefined) socket.end()
    })
    res.on('finish', () => this.#close())
  }

  /** @param head the whole head of the 101 */
  open(head: string, owner: TunnelOwner): void {
    this.#owner = owner
    this.#socket.write(head, 'latin1')
  }

  // ---- from the client ----------------------------------------------------------------------------------------------

  read(sink: BodySink): BodyFlow {
    const socket = this.#socket
    const guard = (work: () => void): void => {
      if (this.#over) return
      try {
        work()
      } catch (error) {
        this.#owner?.fail(error)
      }
    }
    socket.on('data', (chunk: Buffer) => guard(() => sink.chunk(chunk)))
    socket.on('end', () => guard(() => sink.end()))
    return {
      pause: () => {
        if (!this.#over) socket.pause()
      },
      resume: () => {
        if (!this.#over) socket.resume()
      },
    }
  }

  // ---- to the client ------------------------------------------------------------------------------------------------

  write(data: string | Uint8Array): void {
    if (this.#over || data.length === 0 || this.#socket.write(data) || this.#owesDrain) return
    this.#owesDrain = true
    this.#watch()
  }

  flush(): boolean {
    return !this.#over && !this.#owesDrain
  }

  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }

  get buffered(): number {
    return this.#socket.writableLength
  }

  /**
   * R10: closes the connection when the client takes no byte for `stallTimeoutMs`. The socket's own timer knows how
   * much of a write the kernel has taken; bytes from the client also restart it.
   */
  #watch(): void {
    this.#socket.setTimeout(this.#shared.options.stallTimeoutMs, onStall)
  }

  #drained(): void {
    if (this.#over) return
    this.#socket.off('timeout', onStall)
    this.#socket.setTimeout(0)
    if (!this.#owesDrain) return
    this.#owesDrain = false
    try {
      this.#drainListener?.()
    } catch (error) {
      this.#owner?.fail(error)
    }
  }

  end(): void {
    if (this.#over) return
    this.#over = true
    this.#owner?.ended()
    this.#close()
  }

  /**
   * R12: closing the socket while the client still sends would discard what the client has not read. Its bytes are
   * discarded until the client closes its side too.
   */
  #close(): void {
    const socket = this.#socket
    socket.end()
    if (socket.writableLength > 0) this.#watch()
    const timer = discardRest(socket, this.#shared.clock, () => socket.destroySoon())
    socket.once('close', () => timer.cancel())
  }

  /** Raw bytes have no chunk terminator to leave out, so a cut is an end. */
  cut(): void {
    this.end()
  }

  /** The socket is closed. */
  dropped(): void {
    this.#over = true
  }
}
