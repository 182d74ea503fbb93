/** Replays a book of WebSocket sessions. Each case is a connection, and each line of its input is a message. */
import { type Book, type Case, marked } from './book.ts'
import { DEFAULTS, type Outcome, received } from './exchanges.ts'
import type { Gateway } from './gateway.ts'
import { Normaliser } from './normalise.ts'
import type { Reply, Upstream } from './upstream.ts'

/** A case of a book of WebSocket sessions. */
interface Connection extends Case {
  path: string
  upstream?: Reply[]
}

const PATIENCE_MS = 60_000
/** The last message of a reply. */
const LAST = /"type":"(response\.(completed|incomplete|failed)|error)"/

export async function converse(book: Book, gateway: Gateway, upstream: Upstream): Promise<Outcome[]> {
  const outcomes: Outcome[] = []
  for (const entry of book.entries) {
    const one = entry.case as Connection
    const normaliser = new Normaliser([[upstream.address, '‹upstream›']], true)
    upstream.replies = one.upstream ?? []
    await gateway.time(0)
    const lines: string[] = []
    const { authorization } = DEFAULTS
    // Node's WebSocket accepts headers, but its types are those of browsers.
    const socket = new WebSocket(`ws://${gateway.address}${one.path}`, { headers: { authorization } } as never)
    const messages = new Messages(socket)
    for (const message of one.input.split('\n')) {
      await messages.opened
      socket.send(normaliser.original(message))
      for (let text = ''; !LAST.test(text); ) {
        text = await messages.next()
        lines.push(...marked('<', normaliser.text(text)))
      }
      lines.push(...received(upstream, normaliser))
    }
    socket.close()
    const code = await messages.closed
    outcomes.push({ lines: [...lines, `closed ${code}`], requestId: undefined, normaliser })
  }
  return outcomes
}

class Messages {
  readonly opened: Promise<void>
  readonly closed: Promise<number>
  readonly #texts: string[] = []
  readonly #late = AbortSignal.timeout(PATIENCE_MS)
  #wake: () => void = () => {}

  constructor(socket: WebSocket) {
    const opened = Promise.withResolvers<void>()
    const closed = Promise.withResolvers<number>()
    this.opened = opened.promise
    this.closed = closed.promise
    socket.addEventListener('open', () => opened.resolve())
    socket.addEventListener('error', () => opened.reject(new Error('the WebSocket failed')))
    socket.addEventListener('close', ({ code }) => closed.resolve(code))
    socket.addEventListener('message', ({ data }) => {
      this.#texts.push(String(data))
      this.#wake()
    })
    this.#late.addEventListener('abort', () => socket.close())
  }

  async next(): Promise<string> {
    while (this.#texts.length === 0) {
      const said = new Promise<void>(resolve => {
        this.#wake = resolve
      })
      const closed = await Promise.race([said, this.closed])
      if (closed !== undefined) throw new Error(`the WebSocket was closed with ${closed} before its reply was whole`)
    }
    return this.#texts.shift()!
  }
}
