/**
 * The default listener: HTTP/1.1 on uWebSockets.js. Its defects must be worked around. docs/spec/listener.md lists
 * the rules R1 to R20 and what they leave open; comments name the rules where the code follows them.
 */

import { connect } from 'node:net'
import type { Listener, ListenerFactory, ListenerOptions, RequestHandler } from '../../core/ports/listener.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { DenseSet } from '../../core/tools/collections.ts'
import { TrustedPeers } from '../client-address.ts'
import { MAX_HEAD_BYTES } from '../safe-header.ts'
import { pacedReads } from './body.ts'
import { Cork } from './cork.ts'
import { UwsExchange } from './exchange.ts'
import {
  type ListenSocket,
  loadNative,
  type SocketEvents,
  type Uws,
  type UwsApp,
  type UwsRequest,
  type UwsResponse,
  type UwsWebSocket,
} from './native.ts'
import { FieldReader, type Ticked, type UwsShared } from './shared.ts'
import { TUNNEL_MESSAGE_BYTES } from './tunnel.ts'
import { enterTurn } from './turn.ts'
import { IDLE_SECONDS, MAX_BACKPRESSURE } from './web-socket.ts'

/**
 * R11: each exchange that needs it is ticked every 4 s. It is done in slices, so that thousands of streams are not
 * ticked at the same moment.
 */
const TICK_MS = 4_000
const SLICES = 8

let loading: Promise<Uws> | undefined

/** Loads, configures and tests the native part, once per process. @throws NoUwsBinary */
function loadUws(): Promise<Uws> {
  loading ??= (async () => {
    // R15: uWebSockets.js reads this variable once, when the native part is loaded.
    process.env['UWS_HTTP_MAX_HEADERS_SIZE'] = String(MAX_HEAD_BYTES)
    const uws = loadNative()
    // This key removes the `uWebSockets: 20` header from every response. uWebSockets.js always writes Date.
    uws._cfg('999999990007')
    await selfTest(uws)
    return uws
  })()
  return loading
}

/**
 * R15: tests that a head of 12 KB passes. Otherwise uWebSockets.js has read the limit too early, and requests with
 * long API keys, cookies and trace headers would get 431.
 */
async function selfTest(uws: Uws): Promise<void> {
  const app = uws.App()
  app.any('/*', res => {
    res.onAborted(() => {})
    setImmediate(() => res.cork(() => res.end('ok', true)))
  })
  const status = await new Promise<string>((resolve, reject) => {
    app.listen('127.0.0.1', 0, listening => {
      if (!listening) return reject(new Error('self-test: no free port on 127.0.0.1'))
      const socket = connect(uws.us_socket_local_port(listening), '127.0.0.1')
      socket.on('connect', () => socket.write(`GET / HTTP/1.1\r\nHost: self\r\nX-Test: ${'x'.repeat(12_288)}\r\n\r\n`))
      socket.once('data', data => {
        resolve(data.subarray(9, 12).toString())
        socket.destroy()
      })
      socket.on('error', reject)
    })
  }).finally(() => app.close())
  if (status !== '200') {
    throw new Error(
      `listener: uws can't start: uWebSockets.js answered ${status} to a head of 12 KB. Something loaded it before Sluice could set its header limit. Set \`listener: node\`, or remove what loads it.`,
    )
  }
}

/** Starts listening. Rejects with NoUwsBinary, or when the address is in use or a certificate cannot be read. */
export const listenUws: ListenerFactory = async (options, handler) => {
  const trusted = new TrustedPeers(options.trustProxy)
  const uws = await loadUws()
  return new UwsListener(uws, options, handler, trusted).start()
}

class UwsListener implements Listener {
  readonly kind = 'uws'
  readonly host: string
  port = 0
  connections = 0

  readonly #uws: Uws
  readonly #app: UwsApp
  readonly #shared: UwsShared
  #listenSocket: ListenSocket | undefined
  #ticker: NodeJS.Timeout | undefined
  #closed = false

  constructor(uws: Uws, options: ListenerOptions, handler: RequestHandler, trusted: TrustedPeers) {
    this.#uws = uws
    this.host = options.host
    const clock = options.clock ?? systemClock
    this.#shared = {
      options,
      handler,
      clock,
      trusted,
      ticking: Array.from({ length: SLICES }, () => new DenseSet<Ticked>()),
      nextSlice: 0,
      fields: new FieldReader(),
      cork: new Cork(),
      reads: pacedReads(clock),
      draining: false,
      retiring: false,
      sockets: new Set(),
      overrunTunnels: 0,
      overrunTurns: 0,
    }
    if (options.tls) {
      try {
        this.#app = uws.SSLApp({ cert_file_name: options.tls.cert, key_file_name: options.tls.key })
      } catch (cause) {
        throw new Error(`TLS: can't use certificate ${options.tls.cert} with key ${options.tls.key}`, { cause })
      }
    } else this.#app = uws.App()

    // R13: connections above the limit are closed at once.
    // biome-ignore lint/suspicious/useIterableCallbackReturn: uWebSockets.js's filter is no array's
    this.#app.filter((res, change) => {
      this.connections += change
      if (change > 0 && this.connections > options.maxConnections) res.close()
    })
    const serve = (res: UwsResponse, req: UwsRequest, context?: unknown): void => {
      const exchange = new UwsExchange(res, this.#shared)
      res.onAborted(() => exchange.socketClosed()) // R1: first, since a throw before it aborts the process
      enterTurn()
      try {
        exchange.begin(req, context)
      } catch (error) {
        exchange.fail(error)
      }
    }
    this.#takeWebSockets(serve)
    this.#app.any('/*', (res, req) => serve(res, req))
  }

  #takeWebSockets(serve: (res: UwsResponse, req: UwsRequest, context: unknown) => void) {
    const socketOf = (ws: UwsWebSocket): SocketEvents => ws.getUserData().socket
    this.#app.ws('/*', {
      // Of all paths: each socket has a limit of its own, which may be lower.
      maxPayloadLength: Math.max(TUNNEL_MESSAGE_BYTES, this.#shared.options.webSocket?.maxMessageBytes ?? 0),
      maxBackpressure: MAX_BACKPRESSURE,
      idleTimeout: IDLE_SECONDS,
      sendPingsAutomatically: false,
      maxLifetime: 0,
      // uWebSockets.js calls it for GET requests with a key of the right length; all other requests go to `any`.
      upgrade: serve,
      open: ws => socketOf(ws).onOpen(ws),
      message: (ws, message, binary) => socketOf(ws).onMessage(message, binary),
      drain: ws => socketOf(ws).onDrain(),
      ping: (ws, message) => socketOf(ws).onPing(message),
      pong: (ws, message) => socketOf(ws).onPong(message),
      close: (ws, code, message) => {
        // R13: the filter is not notified when a connection ends that has become a WebSocket.
        this.connections--
        socketOf(ws).onClose(code, message)
      },
    })
  }

  get unsent(): number {
    let count = 0
    // R11: every response that is not sent at once is in a slice.
    for (const slice of this.#shared.ticking) slice.forEach(exchange => void (count += exchange.unsent ? 1 : 0))
    for (const socket of this.#shared.sockets) if (socket.unsent) count++
    return count
  }

  get overrunTunnels(): number {
    return this.#shared.overrunTunnels
  }

  get overrunTurns(): number {
    return this.#shared.overrunTurns
  }

  start(): this {
    const { host, port, sharePort } = this.#shared.options
    // R16: uWebSockets.js shares the port by default, so a second gateway that is started by mistake would get half
    // the requests.
    const flags = sharePort ? 0 : this.#uws.LIBUS_LISTEN_EXCLUSIVE_PORT
    this.#app.listen(host, port, flags, socket => {
      this.#listenSocket = socket || undefined
    })
    if (!this.#listenSocket) {
      this.#app.close()
      throw new Error(`can't listen on ${host}:${port}: the address is in use, not of this machine, or not permitted`)
    }
    this.port = this.#uws.us_socket_local_port(this.#listenSocket)
    const { ticking } = this.#shared
    let slice = 0
    let due = performance.now()
    this.#ticker = setInterval(() => {
      // The slices that are due are computed from the clock: a late timer fires once for all its periods, and a slow
      // event-loop turn must not make the round longer.
      const now = performance.now()
      for (let i = 0; i < SLICES && due <= now; i++, due += TICK_MS / SLICES) {
        ticking[slice]!.forEach(exchange => {
          exchange.tick()
        })
        slice = (slice + 1) % SLICES
      }
      if (due <= now) due = now + TICK_MS / SLICES
    }, TICK_MS / SLICES)
    this.#ticker.unref()
    return this
  }

  retire(): void {
    this.#shared.retiring = true
  }

  /** First half of R17. The gateway then ends its streams and calls `close`. */
  drain(): void {
    if (this.#shared.draining) return
    this.retire()
    this.#shared.draining = true
    this.#uws.us_listen_socket_close(this.#listenSocket!)
    this.#listenSocket = undefined
    for (const socket of [...this.#shared.sockets]) socket.drain()
  }

  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    clearInterval(this.#ticker)
    this.retire()
    this.#shared.draining = true
    this.#app.close()
  }
}
