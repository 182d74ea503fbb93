/** Fakes of the services that give credentials. Each checks what it is sent, and refuses anything else. */
import { createServer, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface TokenService {
  readonly url: string
  /** Requests that asked for a credential, with their bodies. */
  readonly asked: { path: string; headers: IncomingMessage['headers']; body: string }[]
  /** What the next answers are, at once or as a promise; a number is a status without a body. */
  answer: (asked: { path: string; headers: IncomingMessage['headers']; body: string }) => unknown
  close(): Promise<void>
}

/** @param plain paths that are answered as text and are not counted */
export async function tokenService(
  answer: TokenService['answer'],
  plain: Record<string, string> = {},
): Promise<TokenService> {
  const service: Omit<TokenService, 'url' | 'close'> = { asked: [], answer }
  const server: Server = createServer(async (req, res) => {
    const chunks: Buffer[] = []
    for await (const chunk of req) chunks.push(chunk as Buffer)
    const asked = { path: req.url!, headers: req.headers, body: Buffer.concat(chunks).toString() }
    const [path] = asked.path.split('?')
    if (plain[path!] !== undefined) {
      res.writeHead(200, { 'metadata-flavor': 'Google', 'content-type': 'text/plain' })
      res.end(plain[path!])
      return
    }
    service.asked.push(asked)
    const given = await service.answer(asked)
    if (typeof given === 'number') {
      res.writeHead(given)
      res.end()
      return
    }
    const text = typeof given === 'string'
    res.writeHead(200, { 'metadata-flavor': 'Google', 'content-type': text ? 'text/xml' : 'application/json' })
    res.end(text ? given : JSON.stringify(given))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return Object.assign(service, {
    url: `http://127.0.0.1:${port}`,
    close: () =>
      new Promise<void>(resolve => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  })
}

/** Sets variables of the environment; the returned function restores what was there. */
export function environment(variables: Record<string, string | undefined>): () => void {
  const before = Object.keys(variables).map(name => [name, process.env[name]] as const)
  const set = (name: string, value: string | undefined) => {
    if (value === undefined) delete process.env[name]
    else process.env[name] = value
  }
  for (const [name, value] of Object.entries(variables)) set(name, value)
  return () => {
    for (const [name, value] of before) set(name, value)
  }
}
