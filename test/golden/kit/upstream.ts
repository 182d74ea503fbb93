/** The provider behind the gateway. It answers as the present case says, and keeps the requests. One case at a time. */
import { eventually } from '../../eventually.ts'
import { replyTo, type Said } from '../../fake-upstream/replies.ts'
import { eventsOf, type SeenRequest, startFakeUpstream, type Turn } from '../../fake-upstream/server.ts'

export interface Reply {
  status?: number
  headers?: Record<string, string>
  /** The body, instead of the usual reply, which is a short text in the dialect of the request. */
  body?: string
  /** Only this many events of the body are sent. */
  events?: number
  /**
   * What happens instead of the end of the reply. `fin`: the connection is closed. `stall`: nothing more is sent.
   * `reset`: the connection is reset (RST), and nothing of the reply is sent.
   */
  end?: 'fin' | 'stall' | 'reset'
  /** Raw bytes, which are sent instead of an HTTP response; then the connection is closed. */
  raw?: string
}

export interface Upstream {
  readonly address: string
  /** Sets the replies to the next requests. The last one is used for all further requests. */
  replies: readonly Reply[]
  /** Resolves when a request has arrived since the last call of `taken`. */
  arrived(): Promise<void>
  /** The requests since the last call. */
  taken(): SeenRequest[]
  close(): Promise<void>
}

/** The usual reply says this. */
const SAID: Said = {
  pieces: ['One', ' two', ' three.'],
  tag: 'up',
  model: 'up',
  created: 1,
  usage: { input: 9, cached: 4, output: 5, reasoning: 2 },
}

export async function startUpstream(): Promise<Upstream> {
  let replies: readonly Reply[] = []
  let next = 0
  const server = await startFakeUpstream(turn => answer(replies[Math.min(next++, replies.length - 1)] ?? {}, turn))
  return {
    address: `127.0.0.1:${server.port}`,
    get replies() {
      return replies
    },
    set replies(value) {
      replies = value
      next = 0
    },
    arrived: () => eventually(() => server.requests.length > 0),
    taken: () => server.requests.splice(0),
    close: () => server.close(),
  }
}

async function answer({ status = 200, headers = {}, end, raw, ...reply }: Reply, turn: Turn): Promise<void> {
  if (end === 'reset') return turn.reset()
  if (raw !== undefined) return void turn.socket.end(raw)
  const { path, body: asked } = turn.request
  let body = reply.body ?? replyTo(path, asked, SAID) ?? JSON.stringify({ echo: asked })
  const streamed = /(^|\n)(data|event):/.test(body)
  if (reply.events !== undefined) body = eventsOf(body).slice(0, reply.events).join('')
  const type = { 'content-type': streamed ? 'text/event-stream' : 'application/json', ...headers }
  if (!streamed && !end) return turn.answer(status, body, type)
  // A reply that breaks off before its first event has no head either.
  if (body !== '' || !end) await turn.head(status, { 'transfer-encoding': 'chunked', ...type })
  if (body !== '') await turn.chunk(body)
  if (end === 'fin') return turn.fin()
  if (end === 'stall') return turn.stall()
  await turn.end()
}
