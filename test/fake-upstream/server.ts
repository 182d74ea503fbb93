/**
 * A provider that misbehaves on the wire: a bare TCP (or TLS) server that hands each request to a script, with the
 * reply the simulator would have given at hand. What HTTP forbids is what it is for, so it writes bytes, not responses.
 */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer, type TlsOptions } from 'node:tls'
import { startSimulator } from '../../providers/simulator/server.ts'

/** One request as it came. */
export interface SeenRequest {
  method: string
  path: string
  headers: Record<string, string>
  body: string
  /** Which connection, counted from 0, and the how-manieth request on it. */
  connection: number
  nth: number
}

/** What the simulator answers to a request. */
export interface Reply {
  status: number
  type: string
  body: Buffer
  /** The body's events, each with its blank line; one for a buffered body. */
  events: string[]
}

/** Misbehaves once. Resolves when the connection may be read for its next request. */
export type Fault = (turn: Turn) => void | Promise<void>

export class Turn {
  readonly request: SeenRequest
  readonly socket: Socket
  readonly #server: Internals
  constructor(server: Internals, request: SeenRequest, socket: Socket) {
    this.#server = server
    this.request = request
    this.socket = socket
  }

  /** The reply that the simulator has for this request. */
  reply(): Promise<Reply> {
    return this.#server.reply(this.request)
  }

  /** Resolves when the kernel has taken the bytes. False when the peer is gone. */
  write(data: string | Buffer): Promise<boolean> {
    if (this.socket.destroyed) return Promise.resolve(false)
    return new Promise(resolve => this.socket.write(data, error => resolve(!error)))
  }

  head(status: number, headers: Record<string, string | number>, reason = 'X'): Promise<boolean> {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
    return this.write(`HTTP/1.1 ${status} ${reason}\r\n${lines.join('')}\r\n`)
  }

  chunk(data: string | Buffer): Promise<boolean> {
    const bytes = Buffer.from(data as string)
    return this.write(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from('\r\n')]))
  }

  end(): Promise<boolean> {
    return this.write('0\r\n\r\n')
  }

  /** A whole, proper response. */
  async answer(status: number, body: string | Buffer, headers: Record<string, string | number> = {}): Promise<void> {
    const bytes = Buffer.from(body as string)
    await this.head(status, { 'content-type': 'application/json', ...headers, 'content-length': bytes.length })
    await this.write(bytes)
  }

  /** The simulator's reply, chunked, with these bytes in place of its own. */
  async send(pieces: Iterable<string | Buffer>, headers: Record<string, string> = {}): Promise<void> {
    await this.open(headers)
    for (const piece of pieces) if (!(await this.chunk(piece))) return
    await this.end()
  }

  /** Head of the simulator's reply, chunked. */
  async open(headers: Record<string, string> = {}): Promise<Reply> {
    const reply = await this.reply()
    await this.head(reply.status, { 'content-type': reply.type, ...headers, 'transfer-encoding': 'chunked' })
    return reply
  }

  /** Says nothing more and keeps the connection; resolves when the peer has let go of it. */
  async stall(): Promise<void> {
    this.#server.stalled()
    if (!this.socket.destroyed) await new Promise(resolve => this.socket.once('close', resolve))
  }

  /**
   * RST. What was written before has been taken by the kernel, which throws away what the peer has not read: give it a
   * moment to.
   */
  async reset(): Promise<void> {
    await settle()
    this.socket.resetAndDestroy()
  }

  /** FIN. */
  async fin(): Promise<void> {
    this.socket.end()
    if (!this.socket.destroyed) await new Promise(resolve => this.socket.once('close', resolve))
  }
}

/** A few turns of the event loop: what is in the kernel is read by the peer of the same process. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 6; i++) await new Promise(resolve => setImmediate(resolve))
}

interface Internals {
  reply(request: SeenRequest): Promise<Reply>
  stalled(): void
}

export interface FaultServer {
  readonly url: string
  readonly port: number
  readonly requests: SeenRequest[]
  /** Connections accepted so far. */
  readonly accepted: number
  /** Connections open now. */
  readonly open: number
  /** What the next requests meet; the newest script stays until replaced. */
  fault: Fault
  /** Resolves when a script stalls from now on. */
  whenStalled(): Promise<void>
  /** Resolves when no connection is inside a request. */
  quiet(): Promise<void>
  close(): Promise<void>
}

/** Answers as the simulator would. */
export const behave: Fault = async turn => {
  const reply = await turn.reply()
  await turn.send(reply.events)
}

export async function startFaultServer(options: { tls?: TlsOptions; host?: string } = {}): Promise<FaultServer> {
  const simulator = await startSimulator({ port: 0, keep: 1 })
  const requests: SeenRequest[] = []
  const sockets = new Set<Socket>()
  let busy = 0
  let accepted = 0
  const waitingForStall: (() => void)[] = []
  const waitingForQuiet: (() => void)[] = []

  const internals: Internals = {
    async reply(request) {
      const { 'content-type': type, authorization, 'x-api-key': key, 'anthropic-version': version } = request.headers
      const headers: Record<string, string> = { 'content-type': type ?? 'application/json' }
      if (authorization) headers['authorization'] = authorization
      if (key) headers['x-api-key'] = key
      if (version) headers['anthropic-version'] = version
      const response = await fetch(simulator.url + request.path, { method: 'POST', headers, body: request.body })
      const body = Buffer.from(await response.arrayBuffer())
      const stream = response.headers.get('content-type')!.startsWith('text/event-stream')
      const events = stream ? body.toString('utf8').split(/(?<=\n\n)/) : [body.toString('utf8')]
      return { status: response.status, type: response.headers.get('content-type')!, body, events }
    },
    stalled() {
      for (const resolve of waitingForStall.splice(0)) resolve()
    },
  }

  const server: FaultServer = {
    url: '',
    port: 0,
    requests,
    get accepted() {
      return accepted
    },
    get open() {
      return sockets.size
    },
    fault: behave,
    whenStalled: () => new Promise<void>(resolve => waitingForStall.push(resolve)),
    quiet: () => (busy === 0 ? Promise.resolve() : new Promise<void>(resolve => waitingForQuiet.push(resolve))),
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => listening.close(resolve))
      await simulator.close()
    },
  }

  const serve = async (socket: Socket): Promise<void> => {
    const connection = accepted++
    sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', () => {})
    socket.once('close', () => sockets.delete(socket))
    const reader = new RequestReader(socket)
    for (let nth = 0; ; nth++) {
      const request = await reader.next(connection, nth)
      if (!request) return
      requests.push(request)
      busy++
      try {
        await server.fault(new Turn(internals, request, socket))
      } finally {
        if (--busy === 0) for (const resolve of waitingForQuiet.splice(0)) resolve()
      }
    }
  }
  const accept = (socket: Socket) => void serve(socket).catch(() => socket.destroy())
  const listening = options.tls
    ? createTlsServer({ ...options.tls, ALPNProtocols: ['http/1.1'] }, accept).on('tlsClientError', () => {})
    : createServer({ noDelay: true }, accept)
  const host = options.host ?? '127.0.0.1'
  listening.listen(0, host)
  await once(listening, 'listening')
  const { port } = listening.address() as { port: number }
  return Object.defineProperties(server, {
    port: { value: port },
    url: { value: `${options.tls ? 'https' : 'http'}://${options.tls ? 'localhost' : host}:${port}` },
  })
}

/** Reads requests with a Content-Length, one after the other. */
class RequestReader {
  #buffer = Buffer.alloc(0)
  #wake: (() => void) | null = null
  #closed = false
  constructor(socket: Socket) {
    socket.on('data', chunk => {
      // A TLS hello at a server that has none.
      if (this.#buffer.length === 0 && chunk[0] === 0x16) return socket.destroy()
      this.#buffer = Buffer.concat([this.#buffer, chunk])
      this.#wake?.()
    })
    const close = () => {
      this.#closed = true
      this.#wake?.()
    }
    socket.once('close', close)
    socket.once('end', close)
  }

  async next(connection: number, nth: number): Promise<SeenRequest | null> {
    const headEnd = await this.#until(() => {
      const at = this.#buffer.indexOf('\r\n\r\n')
      return at === -1 ? undefined : at
    })
    if (headEnd === undefined) return null
    const [first, ...lines] = this.#buffer.toString('latin1', 0, headEnd).split('\r\n')
    const [method = '', path = ''] = first!.split(' ')
    const headers: Record<string, string> = {}
    for (const line of lines) {
      const colon = line.indexOf(':')
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim()
    }
    const end = headEnd + 4 + Number(headers['content-length'] ?? 0)
    if ((await this.#until(() => (this.#buffer.length >= end ? end : undefined))) === undefined) return null
    const body = this.#buffer.toString('utf8', headEnd + 4, end)
    this.#buffer = this.#buffer.subarray(end)
    return { method, path, headers, body, connection, nth }
  }

  async #until(ready: () => number | undefined): Promise<number | undefined> {
    for (;;) {
      const value = ready()
      if (value !== undefined) return value
      if (this.#closed) return undefined
      await new Promise<void>(resolve => (this.#wake = resolve))
      this.#wake = null
    }
  }
}
