/** The admin API of a gateway, for what a test wants it to say: by method and path, as docs/admin-api.md has it. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface AdminQuestion {
  method: string
  /** Behind /api/v1/. */
  path: string
  query: URLSearchParams
  headers: IncomingHttpHeaders
  body: any
}

export interface AdminStandIn {
  url: string
  asked: AdminQuestion[]
  close(): Promise<void>
}

/** @param answer what is answered with 200, or 400 where it has an `error`; null is 404, 'hang' nothing */
export async function startAdmin(
  answer: (question: AdminQuestion) => unknown | Promise<unknown>,
): Promise<AdminStandIn> {
  const asked: AdminQuestion[] = []
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = []
    for await (const piece of request) pieces.push(piece)
    const { pathname, searchParams: query } = new URL(request.url!, 'http://x')
    const text = Buffer.concat(pieces).toString()
    const question = {
      ...{ method: request.method!, path: decodeURIComponent(pathname.replace('/api/v1/', '')), query },
      headers: request.headers,
      body: text === '' ? null : JSON.parse(text),
    }
    asked.push(question)
    const body = await answer(question)
    if (body === 'hang') return
    const refused = (body as { error?: unknown } | null)?.error !== undefined
    response.writeHead(body === null ? 404 : refused ? 400 : 200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(body ?? { error: { code: 'not_found', message: 'there is no such thing' } }))
  })
  // On a busy machine the caller may take a connection that ends at this moment, after five seconds.
  server.keepAliveTimeout = 120_000
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}
