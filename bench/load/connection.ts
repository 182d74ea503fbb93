/**
 * One client connection on a bare socket. It sends prepared bytes, reads HTTP/1.1 answers, counts them, and keeps the
 * last bytes of an answer. It does as little work as possible, because it shares a core with the upstream: it uses no
 * streams, and copies only the last bytes.
 */
import net from 'node:net'
import type { RequestSource } from '../requests.ts'

export interface Answer {
  status: number
  /** Number of bytes of the content, without chunk framing. */
  payload: number
  /** Number of bytes of the whole answer, with its head. */
  wire: number
  /** The last bytes of the content, at most 8 KiB. Valid only during the call. */
  tail: Buffer
}

export interface ConnectionHandler {
  /** A complete answer has arrived. */
  onAnswer(answer: Answer, connection: Connection): void
  /** The connection was closed or broke. `destroy` does not call it. */
  onLost(reason: string, connection: Connection): void
  /** A part of the content has arrived. */
  onPayload?(bytes: number, connection: Connection): void
  /** The same, with the content. The buffer is valid only during the call. */
  onContent?(content: Buffer): void
}

type State = 'head' | 'length' | 'chunk-size' | 'chunk' | 'chunk-end' | 'trailer'

const TAIL = 4096
const CR = 13
const LF = 10
// The read buffer of all sockets. They can share it, because they are read one at a time and nothing keeps a view of
// it.
const shared = Buffer.allocUnsafeSlow(256 * 1024)

export class Connection {
  readonly #socket: net.Socket
  readonly #handler: ConnectionHandler
  readonly #tail = Buffer.allocUnsafe(2 * TAIL)
  #tailLength = 0
  #state: State = 'head'
  #head: Buffer | undefined
  #left = 0
  #status = 0
  #payload = 0
  #wire = 0
  #lost = false
  /** Set by the load program: when the request was due or sent, in milliseconds of the program's clock. */
  since = 0
  /** Set by the load program: where its requests come from. */
  source: RequestSource | undefined
  open = false

  constructor(port: number, handler: ConnectionHandler) {
    this.#handler = handler
    this.#socket = net.connect({
      host: '127.0.0.1',
      port,
      noDelay: true,
      onread: {
        buffer: shared,
        callback: length => {
          this.#read(shared, length)
          return true
        },
      },
    })
    this.#socket.on('connect', () => (this.open = true))
    this.#socket.on('error', error => this.#lose((error as NodeJS.ErrnoException).code ?? error.message))
    this.#socket.on('close', () => this.#lose('closed'))
    this.#socket.on('end', () => this.#lose('closed'))
  }

  send(pieces: Buffer[]): void {
    if (pieces.length === 1) {
      this.#socket.write(pieces[0]!)
      return
    }
    this.#socket.cork()
    for (const piece of pieces) this.#socket.write(piece)
    this.#socket.uncork()
  }

  destroy(): void {
    this.#lost = true
    this.#socket.destroy()
  }

  #lose(reason: string): void {
    if (this.#lost) return
    this.#lost = true
    this.open = false
    this.#socket.destroy()
    this.#handler.onLost(this.#state === 'head' && this.#wire === 0 ? reason : `${reason} within an answer`, this)
  }

  #read(buffer: Buffer, length: number): void {
    let at = 0
    this.#wire += length
    while (at < length && !this.#lost) {
      switch (this.#state) {
        case 'head':
          at = this.#readHead(buffer, at, length)
          break
        case 'length':
        case 'chunk': {
          const take = Math.min(this.#left, length - at)
          this.#take(buffer, at, at + take)
          at += take
          this.#left -= take
          if (this.#left > 0) break
          if (this.#state === 'chunk') this.#state = 'chunk-end'
          else this.#finish(length - at)
          break
        }
        case 'chunk-size': {
          const byte = buffer[at++]!
          if (byte === LF) this.#state = this.#left === 0 ? 'trailer' : 'chunk'
          else if (byte !== CR) this.#left = this.#left * 16 + hex(byte)
          break
        }
        case 'chunk-end':
          if (buffer[at++] === LF) this.#expectChunk()
          break
        case 'trailer':
          // No contender sends trailers, so the empty line follows here.
          if (buffer[at++] === LF) this.#finish(length - at)
          break
      }
    }
  }

  #expectChunk(): void {
    this.#state = 'chunk-size'
    this.#left = 0
  }

  #readHead(buffer: Buffer, at: number, length: number): number {
    const end = buffer.indexOf('\r\n\r\n', at)
    if (this.#head || end < 0 || end + 4 > length) {
      // The head is split over several reads. This is rare, so its parts are copied together.
      const before = this.#head?.length ?? 0
      const all = Buffer.concat([this.#head ?? Buffer.alloc(0), buffer.subarray(at, length)])
      const stop = all.indexOf('\r\n\r\n')
      this.#head = stop < 0 ? all : undefined
      if (stop < 0) return length
      this.#startAnswer(all.toString('latin1', 0, stop + 2))
      return at + stop + 4 - before
    }
    this.#startAnswer(buffer.toString('latin1', at, end + 2))
    return end + 4
  }

  #startAnswer(head: string): void {
    this.#status = Number(head.slice(9, 12))
    this.#payload = 0
    this.#tailLength = 0
    if (this.#status === 100) return
    const sized = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)
    if (sized) {
      this.#left = Number(sized[1])
      this.#state = 'length'
      if (this.#left === 0) this.#finish(0)
    } else if (/\r\ntransfer-encoding: *chunked\r\n/i.test(head)) this.#expectChunk()
    else this.#lose('answered without a length')
  }

  #take(buffer: Buffer, from: number, to: number): void {
    const length = to - from
    this.#payload += length
    if (length >= TAIL) {
      buffer.copy(this.#tail, 0, to - TAIL, to)
      this.#tailLength = TAIL
    } else {
      if (this.#tailLength + length > this.#tail.length) {
        this.#tail.copyWithin(0, this.#tailLength - TAIL, this.#tailLength)
        this.#tailLength = TAIL
      }
      buffer.copy(this.#tail, this.#tailLength, from, to)
      this.#tailLength += length
    }
    this.#handler.onPayload?.(length, this)
    this.#handler.onContent?.(buffer.subarray(from, to))
  }

  /** @param more number of bytes that follow in this read; must be 0, as the load does not pipeline requests */
  #finish(more: number): void {
    this.#state = 'head'
    const answer = {
      status: this.#status,
      payload: this.#payload,
      wire: this.#wire - more,
      tail: this.#tail.subarray(0, this.#tailLength),
    }
    this.#wire = more
    if (more > 0) this.#lose('sent more than the answer')
    else this.#handler.onAnswer(answer, this)
  }
}

function hex(byte: number): number {
  if (byte >= 48 && byte <= 57) return byte - 48
  const letter = byte | 32
  if (letter >= 97 && letter <= 102) return letter - 87
  throw new Error(`a chunk size has byte ${byte}`)
}
