/**
 * A WebSocket through the `proxy` plugin on uWebSockets.js, which gives messages and no raw bytes. To the exchange it
 * looks like the byte tunnel of the `node` listener: the client's messages are encoded as frames for the target, and
 * the target's frames are decoded and sent to the client.
 */
import { type Budget, counter } from '../../core/engine/budget.ts'
import type { BodyFlow, BodySink, OutgoingStream } from '../../core/ports/listener.ts'
import { BINARY, CLOSE, clientFrame, type FrameSink, PING, PONG, TargetFrames, TEXT } from './frames.ts'
import type { UwsSession, UwsSocket } from './web-socket.ts'

/** The longest message of a client, in bytes. uWebSockets.js keeps a message until it is whole. */
export const TUNNEL_MESSAGE_BYTES = 32 * 1024 * 1024
/**
 * uWebSockets.js cannot stop reading from a WebSocket. So many bytes of a client may wait for a target that reads
 * slowly; when another message comes then, the connection is closed.
 */
const WAITING_BYTES = 16 * 1024 * 1024

export const tunnelBudget: Budget = {
  name: 'tunnel_bytes',
  bound: 'what a client sent into a WebSocket through `proxy` and its target has not taken, on `uws`',
  owner: 'connection',
  each: ['16 MiB', 'a message 32 MiB'],
  over: 'close code 1013; a longer message cuts the connection',
  seen: '`sluice_tunnel_overruns_total`: those of 1013',
  metrics: [
    counter(
      'sluice_tunnel_overruns_total',
      'WebSockets through proxy whose client sent more than the target took.',
      ({ open }) => open.overrunTunnels,
    ),
  ],
}

/** Close codes (RFC 6455 section 7.4, and its registry). */
const NO_CODE = 1005
const ABNORMAL = 1006
const INTERNAL_ERROR = 1011
const TRY_AGAIN_LATER = 1013
const BAD_GATEWAY = 1014

const nothing = new Uint8Array(0)

/** The callbacks by which a tunnel notifies its exchange. */
export interface TunnelOwner {
  /** The gateway has ended the tunnel. */
  ended(): void
  /** The client has sent more than the target takes, and is closed for it. */
  overran(): void
  /** The connection to the client is closed, and nobody has said so in a frame or was asked to. */
  socketClosed(): void
  /** A callback of the gateway threw. */
  fail(error: unknown): void
}

export class UwsTunnel implements UwsSession, OutgoingStream, FrameSink {
  readonly #owner: TunnelOwner
  readonly #frames = new TargetFrames(this)
  #socket: UwsSocket | undefined
  /** What the target sent before the socket was open. */
  #early: Uint8Array[] = []
  /** The target's words are not sent on any more: the client has closed, or was asked to. */
  #closed = false
  /** The gateway has ended the tunnel. */
  #over = false
  #drainListener: (() => void) | undefined

  #sink: BodySink | undefined
  #paused = false
  #waiting: Uint8Array[] = []
  #waitingBytes = 0
  /** The client says no more. */
  #ended = false

  constructor(owner: TunnelOwner) {
    this.#owner = owner
  }

  // ---- from the client ----------------------------------------------------------------------------------------------

  opened(socket: UwsSocket): void {
    this.#socket = socket
    const early = this.#early
    this.#early = []
    for (const bytes of early) this.write(bytes)
    socket.flush()
    if (this.#over) this.#close(BAD_GATEWAY)
  }

  message(bytes: Uint8Array, binary: boolean): void {
    this.#say(binary ? BINARY : TEXT, bytes)
  }
  ping(bytes: Uint8Array): void {
    this.#say(PING, bytes)
  }
  pong(bytes: Uint8Array): void {
    this.#say(PONG, bytes)
  }

  closed(code: number, reason: Uint8Array): void {
    const told = this.#closed
    this.#closed = true
    this.#socket = undefined
    if (this.#over || (code === ABNORMAL && !told)) return this.#owner.socketClosed()
    if (!told) this.#say(CLOSE, closePayload(code, reason))
    this.#end()
    // The exchange may still wait for a slow client, and has to read the target's end.
    this.#drainListener?.()
  }

  /** A drain lets tunnels run until its deadline, when their exchanges are ended. */
  drain(): void {}

  read(sink: BodySink): BodyFlow {
    this.#sink = sink
    return {
      pause: () => {
        this.#paused = true
      },
      resume: () => {
        this.#paused = false
        this.#pass()
      },
    }
  }

  #say(opcode: number, payload: Uint8Array): void {
    if (this.#over || this.#ended) return
    if (this.#waitingBytes > WAITING_BYTES && opcode !== CLOSE) {
      this.#owner.overran()
      return this.#refuse(TRY_AGAIN_LATER, 'too fast')
    }
    const frame = clientFrame(opcode, payload)
    this.#waiting.push(frame)
    this.#waitingBytes += frame.length
    this.#pass()
  }

  #end(): void {
    this.#ended = true
    this.#pass()
  }

  /** Passes on what waits, until the sink pauses. */
  #pass(): void {
    const sink = this.#sink
    if (sink === undefined) return
    try {
      while (!this.#paused && !this.#over && this.#waiting.length > 0) {
        const frame = this.#waiting.shift()!
        this.#waitingBytes -= frame.length
        sink.chunk(frame)
      }
      if (!this.#ended || this.#waiting.length > 0 || this.#over) return
      this.#sink = undefined
      sink.end()
    } catch (error) {
      this.#owner.fail(error)
    }
  }

  // ---- to the client ------------------------------------------------------------------------------------------------

  write(data: string | Uint8Array): void {
    if (this.#closed || data.length === 0) return
    const bytes = typeof data === 'string' ? Buffer.from(data) : data
    if (this.#socket === undefined) return void this.#early.push(bytes)
    const fault = this.#frames.push(bytes)
    if (fault !== undefined) this.#refuse(BAD_GATEWAY, `the target sent ${fault}`)
  }

  part(data: Uint8Array, binary: boolean, first: boolean, last: boolean): void {
    if (this.#closed) return
    this.#socket?.sendBy(ws => {
      if (first) return last ? ws.send(data, binary) : ws.sendFirstFragment(data, binary)
      return last ? ws.sendLastFragment(data) : ws.sendFragment(data)
    }, data.length)
  }

  control(opcode: number, payload: Uint8Array): void {
    if (this.#closed) return
    // uWebSockets.js has answered the client's ping itself.
    if (opcode === PING) this.#socket?.sendBy(ws => ws.ping(payload), payload.length)
    if (opcode !== CLOSE) return
    const code = payload.length < 2 ? 0 : (payload[0]! << 8) | payload[1]!
    const socket = this.#socket
    this.#say(CLOSE, payload)
    this.#closed = true
    socket?.close(code, payload.subarray(2))
    this.#end()
  }

  /** Closes both sides because of a fault; the exchange hears what it hears of a client that disconnected. */
  #refuse(code: number, reason: string): void {
    this.#closed = true
    this.#socket?.close(code, reason)
    this.#socket = undefined
    if (!this.#over) this.#owner.socketClosed()
  }

  /** True also when the client has closed: the target's end must still be read. */
  flush(): boolean {
    return this.#socket === undefined || this.#closed || this.#socket.flush()
  }
  drained(): void {
    if (!this.#over) this.#drainListener?.()
  }
  onDrain(listener: () => void): void {
    this.#drainListener = listener
  }
  get buffered(): number {
    return this.#socket?.buffered ?? 0
  }

  /** The target has ended its connection. */
  end(): void {
    this.#finish(BAD_GATEWAY)
  }
  cut(): void {
    this.#finish(INTERNAL_ERROR)
  }
  #finish(code: number): void {
    if (this.#over) return
    this.#over = true
    this.#waiting = []
    this.#owner.ended()
    if (this.#socket === undefined && this.#closed) this.#owner.socketClosed()
    else this.#close(code)
  }
  #close(code: number): void {
    if (!this.#closed) this.#socket?.close(code, nothing)
  }

  /** The connection was closed before the socket opened. */
  dropped(): void {
    this.#closed = true
    this.#over = true
  }
}

/** The payload of a close frame. The codes that stand for no code are none. */
function closePayload(code: number, reason: Uint8Array): Uint8Array {
  if (code === NO_CODE || code === ABNORMAL || code === 0) return new Uint8Array(0)
  return Buffer.concat([Buffer.from([code >> 8, code & 255]), reason])
}
