/**
 * The second listener: the same contract on node:http. It is for systems without a uWebSockets.js binary, and a
 * fallback when uWebSockets.js has a defect that matters. Rule ids such as R12 are those of docs/spec/listener.md.
 */
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { Server as NetServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Listener, ListenerFactory, ListenerOptions, RequestHandler } from '../../core/ports/listener.ts'
import { systemClock } from '../../core/tools/clock.ts'
import { HeaderFields, TOKEN } from '../../core/tools/header-fields.ts'
import { TrustedPeers } from '../client-address.ts'
import {
  checkHead,
  type HeadFault,
  headerWords,
  isHandshake,
  MAX_HEAD_BYTES,
  safeHead,
  shownName,
  statusLine,
} from '../safe-header.ts'
import { NodeExchange, type NodeShared, targetOf } from './exchange.ts'
import { NodeTunnel } from './tunnel.ts'

/**
 * Timeouts in milliseconds, the same as those of uWebSockets.js. A connection is closed when a head does not arrive
 * within `HEAD_TIMEOUT_MS`, or when nothing arrives between two requests within `KEEP_ALIVE_MS`. A TLS handshake gets what
 * the clock of uWebSockets.js gives it at most; Node's own limit is 120 s.
 */
const HEAD_TIMEOUT_MS = 10_000
const KEEP_ALIVE_MS = 10_000
const HANDSHAKE_TIMEOUT_MS = 12_000

/** Starts listening. Rejects when the address is in use or a certificate cannot be read. */
export const listenNode: ListenerFactory = async (options, handler) => {
  const listener = new NodeListener(options, handler)
  await listener.start()
  return listener
}

class NodeListener implements Listener {
  readonly kind = 'node'
  readonly host: string
  port = 0
  connections = 0
  readonly overrunTunnels = 0
  readonly overrunTurns = 0

  readonly #server: Server
  readonly #shared: NodeShared
  /** Connections that are no longer node:http's, so it does not close them. */
  readonly #tunnels = new Set<Socket>()
  #closing: Promise<void> | undefined

  constructor(options: ListenerOptions, handler: RequestHandler) {
    this.host = options.host
    this.#shared = {
      options,
      handler,
      clock: options.clock ?? systemClock,
      trusted: new TrustedPeers(options.trustProxy),
      draining: false,
      retiring: false,
      unsent: 0,
      lingering: new WeakMap(),
      allSent: () => this.#closeIdle(),
    }
    const settings = {
      insecureHTTPParser: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: HEAD_TIMEOUT_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: 1_000,
      // The body deadline is our own (GEN-6), and a missing Host is checked with the rest of the head.
      requestTimeout: 0,
      requireHostHeader: false,
      noDelay: true,
      // TCP keep-alive probes detect a peer that vanished while no bytes were sent to it, such as a client that waits
      // for its response.
      keepAlive: true,
      keepAliveInitialDelay: options.stallTimeoutMs,
    }
    this.#server = options.tls
      ? createTlsServer({
          ...settings,
          cert: readFileSync(options.tls.cert),
          key: readFileSync(options.tls.key),
          handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
        })
      : createServer(settings)
    const server = this.#server
    server.timeout = 0
    // node:http silently drops headers above its own limit; checkHead refuses the request instead.
    server.maxHeadersCount = 0
    server.maxConnections = options.maxConnections // R13

    server.on('connection', (socket: Socket) => {
      this.connections += 1
      socket.once('close', () => {
        this.connections -= 1
      })
    })
    const serve = (req: IncomingMessage, res: ServerResponse, tunnel?: NodeTunnel): void => {
      const exchange = new NodeExchange(req, res, this.#shared, tunnel)
      try {
        exchange.begin()
      } catch (error) {
        exchange.fail(error)
      }
    }
    server.on('request', (req, res) => serve(req, res))
    // Without these two, node:http would answer before the head was checked.
    server.on('checkContinue', (req, res) => serve(req, res))
    server.on('checkExpectation', (req, res) => serve(req, res))
    this.#offerTunnels(serve)
    server.on('connect', (_req: IncomingMessage, socket: Duplex) => this.#refuseRaw(socket, { reason: 'method' }))
    server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => this.#clientError(error, socket))
  }

  get unsent(): number {
    return this.#shared.unsent
  }

  async start(): Promise<void> {
    const { host, port, sharePort } = this.#shared.options
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      // R16: the port is exclusive unless workers share it.
      this.#server.listen({ host, port, exclusive: !sharePort, reusePort: sharePort === true }, () => {
        this.#server.off('error', reject)
        resolve()
      })
    })
    this.port = (this.#server.address() as { port: number }).port
  }

  /**
   * Takes valid WebSocket handshakes out of node:http, so that they may be answered with a tunnel. Every other
   * upgrade request stays an ordinary request, whose response closes the connection (decisions 7).
   */
  #offerTunnels(serve: (req: IncomingMessage, res: ServerResponse, tunnel: NodeTunnel) => void): void {
    const server: Server & { shouldUpgradeCallback?(req: IncomingMessage): boolean } = this.#server
    // A Node without this callback would emit 'upgrade' for every upgrade request.
    if (server.shouldUpgradeCallback === undefined) return
    server.shouldUpgradeCallback = mayTunnel
    server.on('upgrade', (req, duplex, head) => {
      const socket = duplex as Socket
      this.#tunnels.add(socket)
      socket.once('close', () => this.#tunnels.delete(socket))
      const tunnel = new NodeTunnel(req, socket, head, this.#shared)
      serve(req, tunnel.response, tunnel)
    })
  }

  /** Handles what node:http's parser refuses before there is a request. */
  #clientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    // Nothing can be written before the handshake is done, and `end` would wait for it without a limit.
    if (error.code === 'ERR_TLS_HANDSHAKE_TIMEOUT') return void socket.destroy()
    // The client disconnected, perhaps in the middle of a request.
    if (error.code === 'ECONNRESET' || error.code === 'HPE_INVALID_EOF_STATE' || !socket.writable)
      return void socket.destroy()
    // Bytes after a request with `Connection: close` are ignored; its response closes the connection.
    if (error.code === 'HPE_CLOSED_CONNECTION') return
    if (error.code === 'HPE_HEADER_OVERFLOW') return this.#refuseRaw(socket, { reason: 'headers_too_large' }, 431)
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return this.#refuseRaw(socket, { reason: 'head_timeout' }, 408)
    const header = headerAt(error)
    this.#refuseRaw(socket, { reason: 'malformed', ...(header !== undefined && { header }) })
  }

  /**
   * Answers on a socket that has no request, then closes it. If the response to an earlier request is being sent,
   * that response is cut instead.
   */
  #refuseRaw(socket: Duplex, fault: HeadFault, status?: number): void {
    const answering = (socket as { _httpMessage?: ServerResponse })._httpMessage
    // These bytes are the rest of an upload that nobody wanted, and its response was already written.
    const lingering = answering && this.#shared.lingering.get(answering)
    if (lingering) return lingering()
    if (answering?.headersSent) return void socket.destroy()
    const refusal = this.#shared.options.refuse(fault.reason, headerWords(fault))
    const head = safeHead(status ?? refusal.status, refusal.headers)
    let text = `HTTP/1.1 ${statusLine(head.status)}\r\ndate: ${new Date().toUTCString()}\r\nconnection: close${head.lines}`
    text += `\r\ncontent-length: ${Buffer.byteLength(refusal.body)}\r\n\r\n${refusal.body}`
    socket.end(text, () => (socket as Socket).destroySoon())
  }

  retire(): void {
    this.#shared.retiring = true
  }

  /** First half of R17. Idle connections are closed at once. */
  drain(): void {
    if (this.#shared.draining) return
    this.retire()
    this.#shared.draining = true
    // `close` of http.Server is not used here: it also destroys connections whose response is still being sent.
    this.#closing = new Promise(resolve => NetServer.prototype.close.call(this.#server, () => resolve()))
    this.#closeIdle()
  }

  /** Waits for unsent responses, since node:http calls a connection idle as soon as `end` was called. */
  #closeIdle(): void {
    if (this.#shared.draining && this.#shared.unsent === 0) this.#server.closeIdleConnections()
  }

  async close(): Promise<void> {
    this.drain()
    this.#server.closeAllConnections()
    for (const socket of this.#tunnels) socket.destroy()
    // The server is closed already; this stops its checks for slow heads.
    this.#server.close()
    await this.#closing
  }
}

function mayTunnel(req: IncomingMessage): boolean {
  // An earlier request on this socket is still being answered, and its response uses the socket.
  if ((req.socket as { _httpMessage?: ServerResponse | null })._httpMessage) return false
  const method = req.method ?? ''
  const { path, query } = targetOf(req)
  const headers = new HeaderFields()
  const sound = checkHead(method, path, query, req.rawHeaders, headers) === null && req.httpVersion === '1.1'
  return sound && isHandshake(method, headers)
}

/**
 * The name of the header in whose value node:http's parser stopped; undefined when it stopped elsewhere, or when the
 * name came in an earlier packet.
 */
function headerAt(error: NodeJS.ErrnoException & { rawPacket?: Buffer; bytesParsed?: number }): string | undefined {
  const { code, rawPacket, bytesParsed } = error
  if (code !== 'HPE_INVALID_HEADER_TOKEN' || !rawPacket || !bytesParsed) return undefined
  const line = rawPacket.subarray(rawPacket.lastIndexOf('\n', bytesParsed - 1) + 1, bytesParsed)
  const name = line.subarray(0, Math.max(0, line.indexOf(':'))).toString('latin1')
  return TOKEN.test(name) ? shownName(name) : undefined
}
