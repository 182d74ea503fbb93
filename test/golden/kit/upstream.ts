/** The provider behind the gateway. It answers as the present case says, and keeps the requests. One case at a time. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { usualReply } from '../../fake-upstream/replies.ts'

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

export interface Received {
  method: string
  target: string
  headers: [string, string][]
  body: string
}

export interface Upstream {
  readonly address: string
  /** Sets the replies to the next requests. The last one is used for all further requests. */
  replies: readonly Reply[]
  /** Resolves when a request has arrived since the last call of `taken`. */
  arrived(): Promise<void>
  /** The requests since the last call. */
  taken(): Received[]
  close(): Promise<void>
}

export async function startUpstream(): Promise<Upstream> {
  let received: Received[] = []
  let replies: readonly Reply[] = []
  let next = 0
  let wake = (): void => {}
  const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    void bodyOf(request).then(body => {
      const headers: [string, string][] = []
      for (let i = 0; i < request.rawHeaders.length; i += 2)
        headers.push([request.rawHeaders[i]!, request.rawHeaders[i + 1]!])
      received.push({ method: request.method!, target: request.url!, headers, body })
      wake()
      const reply = replies[Math.min(next++, replies.length - 1)] ?? {}
      answer(reply, request.url!, body, response)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get replies() {
      return replies
    },
    set replies(value) {
      replies = value
      next = 0
    },
    async arrived() {
      while (received.length === 0) {
        await new Promise<void>(resolve => {
          wake = resolve
        })
      }
    },
    taken() {
      const all = received
      received = []
      return all
    },
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = []
  try {
    for await (const piece of request) pieces.push(piece)
  } catch {
    // The gateway has cancelled the request. What has arrived is recorded.
  }
  return Buffer.concat(pieces).toString('utf8')
}

function answer(reply: Reply, target: string, asked: string, response: ServerResponse): void {
  const socket = response.socket!
  if (reply.end === 'reset') return void socket.resetAndDestroy()
  if (reply.raw !== undefined) return void socket.end(reply.raw)
  let body = reply.body ?? usualReply(target, asked)
  const streamed = /(^|\n)(data|event):/.test(body)
  if (reply.events !== undefined)
    body = body
      .split(/(?<=\n\n)/)
      .slice(0, reply.events)
      .join('')
  response.sendDate = false
  response.writeHead(reply.status ?? 200, {
    'content-type': streamed ? 'text/event-stream' : 'application/json',
    ...(streamed || reply.end ? {} : { 'content-length': String(Buffer.byteLength(body)) }),
    ...reply.headers,
  })
  if (reply.end === undefined) return void response.end(body)
  response.write(body, () => {
    if (reply.end === 'fin') socket.end()
  })
}
