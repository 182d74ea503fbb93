/**
 * The upstream of tests: a bare TCP (or TLS) server that keeps each request and hands it to a script. Scripts also do
 * what HTTP forbids, so they write bytes, not responses. The reply that the simulator would give is at hand.
 */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { createServer as createTlsServer, type TlsOptions } from 'node:tls'
import { startSimulator } from '../../providers/simulator/server.ts'

/** One request as it came. */
export interface SeenRequest {
  method: string
  /** Path and query. */
  path: string
  /** By their names in lower case. */
  headers: Record<string, string>
  rawHeaders: [name: string, value: string][]
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

/** Answers one request. Resolves when the connection may be read for its next request. */
export type Script = (turn: Turn) => void | Promise<void>

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

  /** A whole, proper response. An object is sent as JSON. */
  async answer(status: number, body: string | object, headers: Record<string, string | number> = {}): Promise<void> {
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
    await this.head(status, { 'content-type': 'application/json', ...headers, 'content-length': bytes.length })
    await this.write(bytes)
  }

  /** A whole stream of server-sent events. */
  stream(events: string): Promise<void> {
    return this.answer(200, events, { 'content-type': 'text/event-stream' })
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

/**
 * A few turns of the event loop, of some milliseconds: what is in the kernel is read by the peer of the same process. A
 * busy kernel hands on what was written to loopback only when its own thread has had a turn.
 */
export async function settle(): Promise<void> {
  for (let i = 0; i < 6; i++) await new Promise(resolve => setTimeout(resolve, 2))
}

interface Internals {
  reply(request: SeenRequest): Promise<Reply>
  stalled(): void
}

export interface FakeUpstream {
  readonly url: string
  readonly port: number
  /** What was asked, in the order in which the requests were whole. */
  readonly requests: SeenRequest[]
  /** Connections accepted so far. */
  readonly accepted: number
  /** Connections open now. */
  readonly open: number
  /** What the next requests meet; the newest script stays until replaced. */
  script: Script
  /** Resolves when a script stalls from now on. */
  whenStalled(): Promise<void>
  /** Resolves when no connection is inside a request. */
  quiet(): Promise<void>
  close(): Promise<void>
}

/** The events of a stream, each with its blank line. */
export const eventsOf = (stream: string): string[] => stream.split(/(?<=\n\n)/)

/** Answers as the simulator would. */
export const behave: Script = async turn => {
  const reply = await turn.reply()
  await turn.send(reply.events)
}

/** @param script answers each request, until another one is set */
export async function startFakeUpstream(
  script: Script = behave,
  options: { tls?: TlsOptions; host?: string } = {},
): Promise<FakeUpstream> {
  let simulator: ReturnType<typeof startSimulator> | undefined
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
      simulator ??= startSimulator({ port: 0, keep: 1 })
      const { url } = await simulator
      const response = await fetch(url + request.path, { method: 'POST', headers, body: request.body })
      const body = Buffer.from(await response.arrayBuffer())
      const stream = response.headers.get('content-type')!.startsWith('text/event-stream')
      const events = stream ? eventsOf(body.toString('utf8')) : [body.toString('utf8')]
      return { status: response.status, type: response.headers.get('content-type')!, body, events }
    },
    stalled() {
      for (const resolve of waitingForStall.splice(0)) resolve()
    },
  }

  const server: FakeUpstream = {
    url: '',
    port: 0,
    requests,
    get accepted() {
      return accepted
    },
    get open() {
      return sockets.size
    },
    script,
    whenStalled: () => new Promise<void>(resolve => waitingForStall.push(resolve)),
    quiet: () => (busy === 0 ? Promise.resolve() : new Promise<void>(resolve => waitingForQuiet.push(resolve))),
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => listening.close(resolve))
      await (await simulator)?.close()
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
        await server.script(new Turn(internals, request, socket))
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

/** Reads requests, one after the other. A body has a Content-Length, or is in chunks. */
class RequestReader {
  #pieces: Buffer[] = []
  #size = 0
  #wake: (() => void) | null = null
  #closed = false
  constructor(socket: Socket) {
    socket.on('data', piece => {
      // A TLS hello at a server that has none.
      if (this.#size === 0 && piece[0] === 0x16) return socket.destroy()
      this.#pieces.push(piece)
      this.#size += piece.length
      this.#wake?.()
    })
    const close = () => {
      this.#closed = true
      this.#wake?.()
    }
    socket.once('close', close)
    socket.once('end', close)
  }

  /** @returns null when the connection ends before a whole request */
  async next(connection: number, nth: number): Promise<SeenRequest | null> {
    const head = await this.#until('\r\n\r\n')
    if (head === null) return null
    const [first, ...lines] = head.split('\r\n')
    const [method = '', path = ''] = first!.split(' ')
    const rawHeaders = lines.map((line): [string, string] => {
      const colon = line.indexOf(':')
      return [line.slice(0, colon), line.slice(colon + 1).trim()]
    })
    const headers = Object.fromEntries(rawHeaders.map(([name, value]) => [name.toLowerCase(), value]))
    const sized = headers['transfer-encoding'] === undefined
    const body = await (sized ? this.#bytes(Number(headers['content-length'] ?? 0)) : this.#chunks())
    return body && { method, path, headers, rawHeaders, body: body.toString('utf8'), connection, nth }
  }

  async #chunks(): Promise<Buffer | null> {
    const chunks: Buffer[] = []
    for (;;) {
      const size = Number.parseInt((await this.#until('\r\n')) ?? '', 16)
      const chunk = Number.isNaN(size) ? null : await this.#bytes(size + 2)
      if (!chunk) return null
      if (size === 0) return Buffer.concat(chunks)
      chunks.push(chunk.subarray(0, -2))
    }
  }

  /** What comes before the mark, which is read, too. */
  async #until(mark: string): Promise<string | null> {
    for (;;) {
      const at = this.#joined().indexOf(mark)
      if (at !== -1) return (await this.#bytes(at + mark.length))!.toString('latin1', 0, at)
      if (!(await this.#more())) return null
    }
  }

  async #bytes(count: number): Promise<Buffer | null> {
    while (this.#size < count) if (!(await this.#more())) return null
    const all = this.#joined()
    this.#pieces = [all.subarray(count)]
    this.#size -= count
    return all.subarray(0, count)
  }

  #joined(): Buffer {
    if (this.#pieces.length !== 1) this.#pieces = [Buffer.concat(this.#pieces)]
    return this.#pieces[0]!
  }

  async #more(): Promise<boolean> {
    if (this.#closed) return false
    await new Promise<void>(resolve => (this.#wake = resolve))
    this.#wake = null
    return true
  }
}
