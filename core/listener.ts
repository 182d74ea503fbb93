/**
 * The listener port: all that core knows of HTTP on the client's side. Two adapters implement it, `uws.ts` and `node.ts`, and one
 * conformance suite runs on both (test/listener/). Where they differ, docs/listeners.md says so.
 */
import type { Clock } from './clock.ts'

/** A request whose head has been parsed and found unambiguous (R4 of docs/spec/listener.md). Valid for the life of the exchange. */
export interface Incoming {
  /** Upper case, from the allow list. */
  readonly method: string
  /** Without the query. Exact bytes, not normalised, not decoded. */
  readonly path: string
  /** Without `?`; '' when none. */
  readonly query: string
  /** Names lower case. Repeated headers joined by ', ' (those of R4 are refused when repeated). */
  readonly headers: ReadonlyMap<string, string>
  /** Peer address, or X-Forwarded-For's when the peer is in `trust_proxy` (R20). '' when first asked for after the answer has left. */
  readonly remoteAddress: string
  /** True when the request declared a body (Content-Length > 0 or chunked). */
  readonly hasBody: boolean
  /** Set when the request asks to upgrade (`websocket`, …); the adapter closes the connection after the answer (decisions 7). */
  readonly upgrade: string | undefined
  /** Set on a whole WebSocket handshake, where the adapter can take it. */
  readonly webSocket?: WebSocketOffer | undefined
  /**
   * True on a whole WebSocket handshake where the adapter can tunnel (`node`). `stream` with 101 then answers it: the head leaves at once with
   * `connection: Upgrade` and `upgrade: websocket`, the stream writes raw bytes, and `streamBody`, asked for after it, hands on what the client
   * sends, to the end of its side. `end` and `cut` both close the connection after what is queued. Any other answer is as ever.
   */
  readonly tunnel?: boolean
  /** Set on requests that came as messages of a WebSocket: state that lives as long as it is open. Absent: each request stands alone. */
  readonly connection?: ConnectionState

  /**
   * Collects the whole body. Calls `done` exactly once, unless the client leaves first (then `onAborted` fires instead).
   * `too_large` as soon as Content-Length or the bytes seen pass `maxBytes`; `timeout` when it is not whole `timeoutMs` after this call,
   * by the gateway's clock; dripping bytes does not extend it (GEN-6). The buffer belongs to the caller.
   * After either error the caller answers as usual; the adapter makes sure that the answer arrives and then closes the connection (R12).
   * `done` may run before this returns: when there is no body, when it has already arrived whole, and when Content-Length is over the cap.
   */
  readBody(limits: BodyLimits, done: (fault: BodyFault | null, body: Uint8Array) => void): void
  /**
   * Hands the body on as it arrives, for the `proxy` terminal. `end` once, after the last chunk. Chunks belong to the callee.
   * The sink is never called before this returns. One of `readBody` and `streamBody`, once.
   */
  streamBody(sink: BodySink): BodyFlow

  /** Answers whole. HEAD: headers and length only. At most one of `respond` and `stream`, once; later calls are ignored after an abort. */
  respond(status: number, headers: HeaderList, body: string | Uint8Array): void
  /**
   * Takes the head (chunked framing is the adapter's own) and returns the way to write. The head leaves with the first flushed byte, or
   * with `end`: uWebSockets.js writes both in one go.
   */
  stream(status: number, headers: HeaderList): OutgoingStream
  /** Fires once when the client is gone before the answer was whole. Not after `respond`. Registering late, after it fired, calls at once. All who register are told, in their order. */
  onAborted(listener: () => void): void
}

/**
 * Pairs, names lower case. Names and values are checked by the adapter: what is not a token, or holds CR, LF, NUL or another control
 * character, throws a TypeError before anything is sent (R6). Content-Length, Transfer-Encoding, Date, Connection and Keep-Alive are the
 * adapter's own and left out, with two exceptions: `connection: close` makes it close after the answer, and a stream that answers HEAD keeps
 * its `content-length`.
 */
export type HeaderList = Iterable<readonly [name: string, value: string]>

export interface BodyLimits {
  maxBytes: number
  timeoutMs: number
}
export type BodyFault = 'too_large' | 'timeout'

export interface BodySink {
  chunk(bytes: Uint8Array): void
  end(): void
}
export interface BodyFlow {
  pause(): void
  resume(): void
}

export interface OutgoingStream {
  /**
   * Queues bytes; they leave at `flush`, at most 12 KB a cork (R7), in order. Strings are UTF-8. Byte arrays are not copied: don't reuse them.
   */
  write(data: string | Uint8Array): void
  /** Sends what is queued. False: the client is slow; stop reading upstream until `onDrain`. False too once the client is gone: then `onAborted` has fired instead. */
  flush(): boolean
  /** Called each time the queue has emptied after a `flush` that returned false. One listener. */
  onDrain(listener: () => void): void
  /** Bytes accepted but not yet handed to the kernel. */
  readonly buffered: number
  /** Ends the body properly (chunk terminator), after what is queued. */
  end(): void
  /** Cuts the connection without the terminator, after what is queued has been handed to the kernel (or `stall_timeout`): for error frames, a cut stream never looks finished. */
  cut(): void
}

// ---- WebSockets -------------------------------------------------------------------------------------------------------

export interface WebSocketOffer {
  /** From now on `respond` with 101 opens the socket, with the headers given there, and `session` talks on it; any other answer is as ever. */
  accept(session: SocketSession): void
}

/** By key, as its users choose: a symbol of their own. */
export type ConnectionState = Map<symbol, unknown>

/** An open WebSocket, for its session. */
export interface Socket {
  /** Queues a text message; it leaves at `flush`. */
  send(text: string): void
  /** Sends what is queued. False: the client is slow, or gone; `drained` follows in the first case. */
  flush(): boolean
  /** Bytes accepted but not yet handed to the kernel. */
  readonly buffered: number
  /** A peer that is not heard for `pongTimeoutMs` after it is gone. */
  ping(): void
  /** Closes properly, after what is queued. Nothing is heard afterwards but `closed`. */
  close(code: number, reason: string): void
}

/** What talks on a WebSocket. */
export interface SocketSession {
  /** Once, before all others. */
  opened(socket: Socket): void
  /** A whole message, fragments put together. The bytes belong to the callee. Text is valid UTF-8. */
  message(bytes: Uint8Array, binary: boolean): void
  /** What was queued after a `flush` that returned false has left. */
  drained(): void
  /** The listener is closing: no new work, and an end to the connection when the running work is done. */
  drain(): void
  /** The socket is gone, whoever closed it. Once, and nothing after it. */
  closed(): void
}

export interface WebSocketOptions {
  /** A longer message is a fault that cuts the connection. */
  maxMessageBytes: number
  pongTimeoutMs: number
}

export type RequestHandler = (incoming: Incoming) => void

export interface ListenerOptions {
  host: string
  /** 0 picks a free port. */
  port: number
  /** Several processes on one port (workers): reuse-port; otherwise exclusive (R16). */
  sharePort?: boolean
  maxConnections: number
  /** No byte taken by a blocked client for so long: it is gone (decisions 15). */
  stallTimeoutMs: number
  /** CIDR or addresses whose X-Forwarded-For is believed. */
  trustProxy: readonly string[]
  tls?: { cert: string; key: string }
  /** Absent: no handshake is offered to the handler. `node` never offers one. */
  webSocket?: WebSocketOptions
  /** What the adapter must answer by itself once the head is parsed but ambiguous (R4): status and JSON body with headers. */
  refuse(reason: string): Refusal
  /** An exception out of the handler or one of its callbacks. The client has been answered (500) or cut. Default: nothing. */
  onError?(error: unknown): void
  /** For the body deadline, the stall timeout and the linger after an early refusal. Default: the system's. */
  clock?: Clock
}

export interface Refusal {
  status: number
  headers: HeaderList
  body: string
}

export interface Listener {
  readonly kind: 'uws' | 'node'
  readonly host: string
  /** The real port. */
  readonly port: number
  /** Open connections. */
  readonly connections: number
  /**
   * Answers that the gateway is done with and the kernel has not taken whole, because their clients read slowly or still upload. What is closed
   * before this is 0 cuts them. Looked up on each read: for a drain, not for each request.
   */
  readonly unsent: number
  /** Stops accepting; from now on every answer carries `Connection: close`. Running exchanges go on. */
  drain(): void
  /** Closes everything at once. */
  close(): Promise<void>
}

export type ListenerFactory = (options: ListenerOptions, handler: RequestHandler) => Promise<Listener>
