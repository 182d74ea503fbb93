/** Replays a book of HTTP exchanges, and records what the client got, what the upstream got, and the ledger row. */
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http'
import { type Book, type Case, marked } from './book.ts'
import type { Gateway } from './gateway.ts'
import { Normaliser } from './normalise.ts'
import type { Reply, Upstream } from './upstream.ts'

/** A case of a book of exchanges. Its input is the body of the request. */
export interface Exchange extends Case {
  /** Default: POST, or GET when there is no body. */
  method?: string
  path: string
  /** Headers in addition to `DEFAULTS`; null removes one. */
  headers?: Record<string, string | null>
  /** The answers of the upstream, one for each request. Default: the usual reply. */
  upstream?: (Omit<Reply, 'body'> & { body?: string | { text: string } })[]
  /** The cases of one session share the numbers of ids, so that a request can name an id of an earlier reply. */
  session?: string
  /** The time of the gateway's wall clock, in seconds since its start. Default 0. */
  at?: number
  /**
   * The request is sent again while the answer says that the first use of its idempotency key is running, because the
   * gateway writes the record after the reply.
   */
  settled?: boolean
  /** The replacement of `{{fill}}` in the input: a text, repeated. */
  fill?: [text: string, times: number]
  /** Steps, done in order: when the reply contains `seen`, the gateway's monotonic clock is moved by `pass` ms. */
  steps?: { seen: string; pass: number }[]
}

export const DEFAULTS = { authorization: 'Bearer sk-golden', 'content-type': 'application/json' }
/** Timeout of one exchange. It takes milliseconds, or a second when it waits for a timeout of the gateway. */
const PATIENCE_MS = 60_000

/** The result of one case. The ledger row is added when the gateway has ended. */
export interface Outcome {
  lines: string[]
  /** The value from the reply, before placeholders are put in. */
  requestId: string | undefined
  normaliser: Normaliser
}

export async function replay(book: Book, gateway: Gateway, upstream: Upstream): Promise<Outcome[]> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const sessions = new Map<string, Normaliser>()
  const outcomes: Outcome[] = []
  try {
    for (const entry of book.entries) {
      const one = entry.case as Exchange
      const places = [
        [upstream.address, '‹upstream›'],
        [gateway.address, '‹gateway›'],
        [gateway.folder, '‹folder›'],
      ] as const
      let normaliser = one.session === undefined ? undefined : sessions.get(one.session)
      normaliser ??= new Normaliser(places, one.session !== undefined)
      if (one.session !== undefined) sessions.set(one.session, normaliser)
      await gateway.time((one.at ?? 0) * 1000)
      upstream.replies = (one.upstream ?? []).map(({ body, ...reply }) => ({
        ...reply,
        ...(body !== undefined && { body: typeof body === 'string' ? body : book.text(body.text) }),
      }))
      let { lines, requestId } = await send(one, gateway, agent, normaliser)
      for (const late = Date.now() + PATIENCE_MS; one.settled && unsettled(lines) && Date.now() < late; )
        ({ lines, requestId } = await send(one, gateway, agent, normaliser))
      // On a busy machine, the gateway may have given up before this process has read its request.
      if (upstream.replies.some(({ end }) => end === 'stall')) await upstream.arrived()
      lines.push(...received(upstream, normaliser))
      outcomes.push({ lines, requestId, normaliser })
    }
  } finally {
    agent.destroy()
  }
  return outcomes
}

/** The lines of a recording that show what the upstream got. */
export function received(upstream: Upstream, normaliser: Normaliser): string[] {
  const lines: string[] = []
  for (const [i, { method, path, rawHeaders, body }] of upstream.taken().entries()) {
    lines.push(`upstream ${i + 1}: ${method} ${normaliser.text(path)}`)
    for (const [name, value] of rawHeaders) {
      const length = name.toLowerCase() === 'content-length' && value === String(Buffer.byteLength(body))
      lines.push(`  ${name}: ${length ? '‹of the body›' : normaliser.header(name, value)}`)
    }
    if (body !== '') lines.push(...marked('|', normaliser.text(body)))
  }
  return lines
}

const unsettled = (lines: readonly string[]): boolean =>
  lines[0]!.startsWith('< 409') && lines.some(line => line.startsWith('  retry-after:'))

async function send(
  one: Exchange,
  gateway: Gateway,
  agent: Agent,
  normaliser: Normaliser,
): Promise<{ lines: string[]; requestId: string | undefined }> {
  const [text = '', times = 0] = one.fill ?? []
  const body = normaliser.original(one.input.replace('{{fill}}', text.repeat(times)))
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries({ ...DEFAULTS, ...one.headers })) {
    if (value !== null && !(name === 'content-type' && body === '')) headers[name] = normaliser.original(value)
  }
  if (body !== '') headers['content-length'] = String(Buffer.byteLength(body))
  const [host, port] = gateway.address.split(':') as [string, string]
  const request = httpRequest({
    host,
    port,
    agent,
    method: one.method ?? (body === '' ? 'GET' : 'POST'),
    path: normaliser.original(one.path),
    headers,
    signal: AbortSignal.timeout(PATIENCE_MS),
  })
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve)
    request.once('error', reject)
  })
  request.end(body)
  let response: IncomingMessage
  try {
    response = await answered
  } catch (error) {
    return { lines: [`< ${(error as NodeJS.ErrnoException).code ?? error}`], requestId: undefined }
  }
  const pieces: Buffer[] = []
  let whole = true
  try {
    const steps = [...(one.steps ?? [])]
    for await (const piece of response) {
      pieces.push(piece)
      while (steps.length > 0 && Buffer.concat(pieces).toString('utf8').includes(steps[0]!.seen))
        await gateway.pass(steps.shift()!.pass)
    }
  } catch {
    whole = false
  }
  const bytes = Buffer.concat(pieces)
  const lines = [`< ${response.statusCode} ${response.statusMessage}`]
  for (let i = 0; i < response.rawHeaders.length; i += 2) {
    const [name, value] = [response.rawHeaders[i]!, response.rawHeaders[i + 1]!]
    const length = name.toLowerCase() === 'content-length' && value === String(bytes.length)
    lines.push(`  ${name}: ${length ? '‹of the body›' : normaliser.header(name, value)}`)
  }
  if (bytes.length > 0) lines.push(...marked('|', normaliser.text(bytes.toString('utf8'))))
  if (!whole) lines.push('< the connection ended in the middle')
  return { lines, requestId: response.headers['x-request-id'] as string | undefined }
}
