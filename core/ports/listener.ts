/**
 * The listener port: all that core knows about HTTP with clients. Two listeners implement it, `http/uws/` and
 * `http/node/`, and one conformance suite runs on both (test/listener/). docs/listeners.md says where they differ.
 */
import type { Clock } from '../tools/clock.ts'

/**
 * A request whose head was parsed and is unambiguous (R4 of docs/spec/listener.md). Valid as long as the exchange
 * lives.
 */
export interface Incoming {
  /** Upper case; one of the allowed methods. */
  readonly method: string
  /** Without the query. The exact bytes, neither normalised nor decoded. */
  readonly path: string
  /** Without `?`; '' when there is none. */
  readonly query: string
  /**
   * Names are lower case. Repeated headers are joined by ', ' (those of R4 are refused when repeated). Each character
   * of a value is one byte (Latin-1), except U+FFFD: it stands for bytes that are lost (`uws`, in a repeated header).
   */
  readonly headers: ReadonlyMap<string, string>
  /**
   * The peer's address, or the one in X-Forwarded-For when the peer is in `trust_proxy` (R20). '' when it is first
   * read after the response was sent.
   */
  readonly remoteAddress: string
  /**
   * Whose request it is, as long as no plugin has found its organization (core/engine/tenant.ts). The ingress fills it
   * before anything else, and it never changes.
   */
  tenant?: string | undefined
  /** True when the request declared a body (Content-Length > 0 or chunked). */
  readonly hasBody: boolean
  /**
   * Set when the request asks for an upgrade (`websocket`, …). The listener closes the connection after the response
   * (decisions 7).
   */
  readonly upgrade: string | undefined
  /** Set on a valid WebSocket handshake, where the listener can open WebSockets. */
  readonly webSocket?: WebSocketOffer | undefined
  /**
   * Set on a valid WebSocket handshake, which `stream` with status 101 then turns into a tunnel. The stream writes raw
   * bytes from the target, and `streamBody`, called after it, delivers bytes for the target until the client ends its
   * side. `end` and `cut` both close the connection after the queued bytes. Any other response works as usual.
   * - `bytes` (`node`): the bytes are the client's own
   * - `frames` (`uws`): the listener speaks WebSocket with the client, and WebSocket frames with the target. It agrees
   *   on no extension, and checks no `sec-websocket-accept`
   */
  readonly tunnel?: 'bytes' | 'frames' | undefined
  /**
   * Set on requests that arrived as WebSocket messages: state that lives as long as the socket. Absent on all other
   * requests.
   */
  readonly connection?: ConnectionState
  /** True for a WebSocket message that asks no model, and is kept for the next request. */
  readonly warmUp?: boolean

  /**
   * Collects the whole body. Calls `done` exactly once, unless the client disconnects first (then `onAborted` fires
   * instead). The fault is `too_large` as soon as Content-Length or the received bytes exceed `maxBytes`, and
   * `timeout` when the body is not complete `timeoutMs` after this call by the gateway's clock; a client that sends
   * slowly does not extend it (GEN-6). The buffer belongs to the caller. After either fault the caller answers as
   * usual; the listener makes sure that the response arrives and then closes the connection (R12). `done` may run
   * before this call returns: when there is no body, when the whole body has already arrived, and when Content-Length
   * exceeds the limit. `take`, when it is given, is called with the number of bytes each time that bytes of the body
   * arrive, before they are kept; when it returns false the fault is `refused`.
   */
  readBody(
    limits: BodyLimits,
    done: (fault: BodyFault | null, body: Uint8Array) => void,
    take?: (bytes: number) => boolean,
  ): void
  /** Bytes of the body, where all of it is there already: a WebSocket message. */
  readonly bodyBytes?: number
  /**
   * Delivers the body as it arrives, for the `proxy` terminal. `end` is called once, after the last chunk. Chunks
   * belong to the sink. The sink is never called before this call returns. Call either `readBody` or `streamBody`,
   * and only once.
   */
  streamBody(sink: BodySink): BodyFlow

  /**
   * Sends a whole response. For HEAD only headers and length are sent. Call either `respond` or `stream`, and only
   * once; after an abort, calls are ignored.
   */
  respond(status: number, headers: HeaderList, body: string | Uint8Array): void
  /**
   * Starts a response and returns the stream to write to. The listener adds chunked framing. The head leaves with the
   * first flushed byte or with `end`, since uWebSockets.js writes both at once.
   */
  stream(status: number, headers: HeaderList): OutgoingStream
  /**
   * Fires once when the client disconnects before the response was sent whole; not after `respond`. A callback that
   * is registered after it fired is called at once. All callbacks are called, in the order of registration.
   */
  onAborted(listener: () => void): void
}

/**
 * Header pairs with lower-case names. The listener checks names and values: a name that is not a token, or a value
 * with CR, LF, NUL or another control character, throws a TypeError before anything is sent (R6). The listener itself
 * writes Content-Length, Transfer-Encoding, Date, Connection and Keep-Alive and ignores them here, with two
 * exceptions: `connection: close` makes it close the connection after the response, and a stream that answers HEAD
 * keeps its `content-length`.
 */
export type HeaderList = Iterable<readonly [name: string, value: string]>

export interface BodyLimits {
  maxBytes: number
  timeoutMs: number
}
export type BodyFault = 'too_large' | 'timeout' | 'refused'

/** Receives a body in pieces. */
export interface BodySink {
  chunk(bytes: Uint8Array): void
  end(): void
}
/** Pauses and resumes the delivery of a body to its sink. */
export interface BodyFlow {
  pause(): void
  resume(): void
}

/** A streamed response. */
export interface OutgoingStream {
  /**
   * Queues bytes; they leave in order at `flush`, at most 12 KB a cork (R7). Strings are sent as UTF-8. Byte arrays
   * are not copied, so they must not be changed afterwards.
   */
  write(data: string | Uint8Array): void
  /**
   * Sends the queued bytes.
   * @returns false when the client is slow: stop reading upstream until `onDrain`. Also false after the client
   * disconnected; `onAborted` has then fired.
   */
  flush(): boolean
  /**
   * The callback is called each time the queue becomes empty after a `flush` that returned false. There is one
   * callback.
   */
  onDrain(listener: () => void): void
  /** Bytes accepted but not yet handed to the kernel. */
  readonly buffered: number
  /** Ends the body properly (with the chunk terminator), after the queued bytes. */
  end(): void
  /**
   * Closes the connection without the chunk terminator, once the kernel has taken the queued bytes or after
   * `stall_timeout`. For replies that failed: a cut stream must never look finished.
   */
  cut(): void
}

// ---- WebSockets -----------------------------------------------------------------------------------------------------

/** Lets the handler take a WebSocket handshake. */
export interface WebSocketOffer {
  /**
   * After this call, `respond` with status 101 opens the socket with the headers given there, and `session` receives
   * its messages. Any other response works as usual.
   */
  accept(session: SocketSession): void
}

/** State by key. Each user has a symbol of its own. */
export type ConnectionState = Map<symbol, unknown>

/** An open WebSocket, as its session sees it. */
export interface Socket {
  /** Queues a text message; it leaves at `flush`. */
  send(text: string): void
  /**
   * Sends the queued messages.
   * @returns false when the client is slow (`drained` follows) or disconnected (it does not)
   */
  flush(): boolean
  /** Bytes accepted but not yet handed to the kernel. */
  readonly buffered: number
  /** Sends a ping. A peer that sends nothing for `pongTimeoutMs` after it counts as disconnected. */
  ping(): void
  /** Closes the socket properly, after the queued messages. Afterwards the session receives only `closed`. */
  close(code: number, reason: string): void
}

/** The code that receives what happens on a WebSocket. */
export interface SocketSession {
  /** Called once, before all other methods. */
  opened(socket: Socket): void
  /** A whole message, joined from its fragments. The bytes belong to the session. Text is valid UTF-8. */
  message(bytes: Uint8Array, binary: boolean): void
  /** The messages that were queued when `flush` returned false have left. */
  drained(): void
  /** The listener is closing: take no new work, and close the socket when the running work is done. */
  drain(): void
  /** The socket is closed, by either side. Called once, and nothing is called after it. */
  closed(): void
}

export interface WebSocketOptions {
  /** In bytes. A longer message closes the connection with an error. */
  maxMessageBytes: number
  pongTimeoutMs: number
}

export type RequestHandler = (incoming: Incoming) => void

export interface ListenerOptions {
  host: string
  /** 0 picks a free port. */
  port: number
  /** True: several processes (workers) share the port with reuse-port. Otherwise the port is exclusive (R16). */
  sharePort?: boolean
  maxConnections: number
  /** A client that takes no byte for this long while bytes wait for it counts as disconnected (decisions 15). */
  stallTimeoutMs: number
  /** Addresses or CIDR ranges of the peers whose X-Forwarded-For is trusted. */
  trustProxy: readonly string[]
  tls?: { cert: string; key: string }
  /** Options of WebSockets. Absent: the handler is offered no `webSocket`. `node` never offers one. */
  webSocket?: WebSocketOptions
  /**
   * Makes the response to a request whose head is ambiguous (R4), which never reaches the handler.
   * @param words what is wrong with a header, and the cure; '' where the fault is not one of a header
   */
  refuse(reason: string, words: string): Refusal
  /**
   * Called with an exception of the handler or of one of its callbacks. By then the client was answered (500) or cut.
   * Default: nothing.
   */
  onError?(error: unknown): void
  /**
   * The clock for the body deadline, the stall timeout and the linger after an early refusal. Default: the system
   * clock.
   */
  clock?: Clock
}

/** A response that the listener sends without the handler. */
export interface Refusal {
  status: number
  headers: HeaderList
  body: string
}

export interface Listener {
  readonly kind: 'uws' | 'node'
  readonly host: string
  /** The port that is really used, also when the options asked for 0. */
  readonly port: number
  /** Number of open connections. */
  readonly connections: number
  /**
   * Number of responses that the gateway has finished but the kernel has not taken whole, because their clients read
   * slowly or are still uploading. Closing the listener while this is not 0 cuts them. It is counted anew on each
   * read, so read it while draining, not for each request.
   */
  readonly unsent: number
  /**
   * WebSockets through a tunnel that were closed so far because their client sent more than the target took. Always 0
   * where a client's reading can be paused (`node`).
   */
  readonly overrunTunnels: number
  /**
   * Connections that were closed so far because they brought too many pieces in one turn of the event loop: chunks of a
   * body, frames of a WebSocket. Always 0 where a turn reads little of a connection (`node`).
   */
  readonly overrunTurns: number
  /**
   * From now on every response carries `Connection: close`, so that proxies and clients give their connections up one
   * by one. New connections are still accepted.
   */
  retire(): void
  /**
   * Stops accepting connections; from now on every response carries `Connection: close`. Running exchanges continue.
   */
  drain(): void
  /** Closes all connections at once. */
  close(): Promise<void>
}

export type ListenerFactory = (options: ListenerOptions, handler: RequestHandler) => Promise<Listener>
