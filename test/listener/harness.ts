/** Both adapters, and a client that writes exactly the bytes it is given. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Incoming, Listener, ListenerOptions, RequestHandler } from '../../core/ports/listener.ts'
import { type Clock, systemClock } from '../../core/tools/clock.ts'
import { listenNode } from '../../http/node/listener.ts'
import { listenUws } from '../../http/uws/listener.ts'
import { LISTENERS } from '../listeners.ts'

export const kinds = LISTENERS
export type Kind = (typeof kinds)[number]

/** Faults that the listener asked an answer for, in order; cleared by whoever looks. */
export interface Harness {
  listener: Listener
  port: number
  refused: string[]
  /** The words about headers of all refusals. */
  words: string[]
  errors: unknown[]
}

/** Runs `body` with a listener, and closes it whatever happens. */
export async function serving<T>(
  kind: Kind,
  handler: RequestHandler,
  body: (harness: Harness) => Promise<T>,
  options: Partial<ListenerOptions> = {},
): Promise<T> {
  const refused: string[] = []
  const words: string[] = []
  const errors: unknown[] = []
  const listen = kind === 'uws' ? listenUws : listenNode
  const listener = await listen(
    {
      host: '127.0.0.1',
      port: 0,
      maxConnections: 1000,
      stallTimeoutMs: 30_000,
      trustProxy: [],
      refuse(reason, about) {
        refused.push(reason)
        words.push(about)
        return {
          status: 400,
          headers: [['content-type', 'application/json']],
          body: JSON.stringify({ error: { code: 'bad_request', message: reason } }),
        }
      },
      onError: error => void errors.push(error),
      ...options,
    },
    handler,
  )
  try {
    return await body({ listener, port: listener.port, refused, words, errors })
  } finally {
    await listener.close()
  }
}

export const text = [['content-type', 'text/plain']] as const
export const json = [['content-type', 'application/json']] as const

/** Answers with `method path?query` and what the body was. */
export function echo(incoming: Incoming): void {
  incoming.readBody({ maxBytes: 1 << 20, timeoutMs: 10_000 }, (fault, body) => {
    if (fault) incoming.respond(fault === 'timeout' ? 408 : 413, json, `{"error":"${fault}"}`)
    else incoming.respond(200, text, `${incoming.method} ${incoming.path} ${body.byteLength}`)
  })
}

export interface Answer {
  status: number
  headers: Map<string, string>
  body: Buffer
  /** False when the connection ended before the body did. */
  whole: boolean
}

/** A connection whose every byte is ours. */
export class RawClient {
  readonly socket: Socket
  /** 'end' (FIN), 'reset' or an error code, once the connection is over. */
  closed: string | undefined
  /** Requests sent with HEAD: their answers have no body. */
  headAnswers = 0
  /** Bytes received so far. */
  bytes = 0
  #bytes: Buffer[] = []
  #waiters: (() => void)[] = []

  constructor(port: number) {
    this.socket = connect({ port, host: '127.0.0.1', noDelay: true })
    this.socket.on('data', data => {
      this.#bytes.push(data)
      this.bytes += data.length
      this.#wake()
    })
    this.socket.on('end', () => {
      this.closed ??= 'end'
      this.#wake()
    })
    this.socket.on('error', (error: NodeJS.ErrnoException) => {
      this.closed ??= error.code === 'ECONNRESET' || error.code === 'EPIPE' ? 'reset' : (error.code ?? 'error')
    })
    this.socket.on('close', () => {
      this.closed ??= 'end'
      this.#wake()
    })
  }

  static async open(port: number): Promise<RawClient> {
    const client = new RawClient(port)
    await once(client.socket, 'connect')
    return client
  }

  send(data: string | Uint8Array): void {
    this.socket.write(typeof data === 'string' ? Buffer.from(data, 'latin1') : data)
  }

  /**
   * Each piece in a packet of its own, as far as a socket can promise that: the next is written once the kernel has
   * taken the last.
   */
  async sendPieces(pieces: readonly string[]): Promise<void> {
    for (const piece of pieces) {
      if (this.closed) return
      await new Promise<void>(resolve => this.socket.write(Buffer.from(piece, 'latin1'), () => resolve()))
      await turns(3)
    }
  }

  get received(): Buffer {
    if (this.#bytes.length > 1) this.#bytes = [Buffer.concat(this.#bytes)]
    return this.#bytes[0] ?? Buffer.alloc(0)
  }

  /** Resolves when `done` holds or the connection is over. */
  async until(done: () => boolean): Promise<void> {
    while (!done() && this.closed === undefined) {
      await new Promise<void>(resolve => this.#waiters.push(resolve))
    }
  }

  /** Waits for this many whole answers. `atLeast`: bytes below which looking is not worth while. */
  async answers(count: number, atLeast = 0): Promise<Answer[]> {
    await this.until(() => this.bytes >= atLeast)
    await this.until(() => parseAnswers(this.received, this.headAnswers, false).filter(a => a.whole).length >= count)
    return parseAnswers(this.received, this.headAnswers, this.closed !== undefined)
  }

  async closing(): Promise<void> {
    await this.until(() => false)
  }

  destroy(): void {
    this.socket.destroy()
  }

  #wake(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const waiter of waiters) waiter()
  }
}

/** The answers in a stretch of bytes; an unfinished last one has `whole: false`. Skips 100 Continue. */
export function parseAnswers(bytes: Buffer, headAnswers = 0, closed = false): Answer[] {
  const answers: Answer[] = []
  let at = 0
  while (at < bytes.length) {
    const headEnd = bytes.indexOf('\r\n\r\n', at)
    if (headEnd < 0) {
      if (closed) answers.push({ status: 0, headers: new Map(), body: bytes.subarray(at), whole: false })
      break
    }
    const [first, ...lines] = bytes.toString('latin1', at, headEnd).split('\r\n')
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(`${first} `)?.[1] ?? Number.NaN)
    const headers = new Map<string, string>()
    for (const line of lines) {
      const colon = line.indexOf(':')
      const name = line.slice(0, colon).toLowerCase()
      if (headers.has(name)) throw new Error(`header sent twice: ${name}`)
      headers.set(name, line.slice(colon + 1).trim())
    }
    at = headEnd + 4
    if (status === 100) continue
    const answer: Answer = { status, headers, body: Buffer.alloc(0), whole: false }
    answers.push(answer)
    if (answers.length <= headAnswers || status === 204 || status === 304) answer.whole = true
    else if (headers.has('content-length')) {
      const length = Number(headers.get('content-length'))
      answer.body = bytes.subarray(at, at + length)
      answer.whole = answer.body.length === length
      at += length
    } else if (headers.get('transfer-encoding') === 'chunked') {
      const chunks: Buffer[] = []
      while (true) {
        const lineEnd = bytes.indexOf('\r\n', at)
        if (lineEnd < 0) break
        const size = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
        if (Number.isNaN(size)) throw new Error(`bad chunk size at ${at}`)
        if (size === 0) {
          answer.whole = bytes.length >= lineEnd + 4
          at = lineEnd + 4
          break
        }
        if (bytes.length < lineEnd + 2 + size + 2) {
          chunks.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
          break
        }
        chunks.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + size))
        if (bytes.toString('latin1', lineEnd + 2 + size, lineEnd + 4 + size) !== '\r\n')
          throw new Error(`chunk at ${at}`)
        at = lineEnd + 4 + size
      }
      answer.body = Buffer.concat(chunks)
      if (!answer.whole) break
    } else {
      // uWebSockets.js's own 400, 431 and 505 have neither: the body ends with the connection.
      answer.body = bytes.subarray(at)
      answer.whole = closed
      break
    }
    if (!answer.whole) break
  }
  return answers
}

/** A clock on which time runs `factor` times as fast: the adapter's own 5 s are over in no time, in the same order. */
export function fastClock(factor: number): Clock {
  return {
    now: () => systemClock.now() * factor,
    mono: () => systemClock.mono() * factor,
    setTimer: (ms, fn) => systemClock.setTimer(ms / factor, fn),
  }
}

/** Turns of the event loop. */
export async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise<void>(resolve => setImmediate(resolve))
}
