/** The provider behind the gateway: answers as the case at hand says, and keeps what came. One case at a time. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { usualReply } from './replies.ts'

export interface Reply {
  status?: number
  headers?: Record<string, string>
  /** Takes the place of the usual reply, a short text in the dialect that was spoken. */
  body?: string
  /** Of the body's events, so many are sent. */
  events?: number
  /**
   * What takes the place of the reply's end. `fin`: the connection is closed; `stall`: nothing more is said; `reset`:
   * RST, in place of everything.
   */
  end?: 'fin' | 'stall' | 'reset'
  /** Bytes on the connection, in place of everything else; then it is closed. */
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
  /** The replies to the next requests; the last one stays. */
  replies: readonly Reply[]
  /** Resolves when a request has come since the last call of `taken`. */
  arrived(): Promise<void>
  /** What came since the last call. */
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
    // A gateway that lets go of the request: what came is what counts.
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
