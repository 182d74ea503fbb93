/** What the retry loops of clients do with the gateway's errors. */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pipeline, Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { ERRORS, type ErrorCode, GatewayError, retryHeaders, setRetryAfter } from '../../core/canon/errors.ts'
import { errorBody } from '../../core/ports/surface.ts'
import { callersSurface } from '../../surfaces/index.ts'

export const CODES = Object.keys(ERRORS) as ErrorCode[]

/**
 * Refusals that can never succeed, with a status that clients retry when they know no `x-should-retry`: conflicts and
 * limits, whose statuses the contract sets, what the operator has to mend, and what the route can't do.
 */
export const BY_STATUS_ALONE: readonly ErrorCode[] = [
  'idempotency_key_conflict',
  'request_token_budget_exceeded',
  'request_spend_cap_exceeded',
  'insufficient_quota',
  'not_implemented',
  'upstream_auth_error',
]

/** The first code of each status; of the errors that may succeed later, and of those that never do. */
export const ONE_OF_EACH: readonly ErrorCode[] = CODES.filter((code, at) => {
  const { status, retriable } = ERRORS[code]
  return at === CODES.findIndex(other => ERRORS[other].status === status && ERRORS[other].retriable === retriable)
})

/** The gateway's answer with this code to a request for a path, with the shortest wait, so that clients do not sleep. */
export function refusal(code: ErrorCode, path: string) {
  const error = new GatewayError(code, { message: 'x', ...(ERRORS[code].retriable && { horizonMs: 1 }) })
  setRetryAfter(error, () => 0)
  const headers = { 'content-type': 'application/json', ...retryHeaders(error) }
  const body = errorBody(callersSurface({ path, headers: new Map() }), error, 'req_1')
  return { status: error.status, headers, body }
}

/**
 * A server before a gateway. It answers `/CLIENT/CODE/...` with that error: always if it is one that never succeeds,
 * else the first time that a body comes; what comes again goes to the gateway, without the first two words.
 * `GET /CLIENT` says what the client did wrong.
 */
export class Refusals {
  /** How often each request came: by client, then by code and body. */
  readonly #came = new Map<string, Map<string, { code: ErrorCode; times: number }>>()
  readonly #server = createServer((request, response) => void this.#answer(request, response))
  readonly #gateway: string

  private constructor(gateway: string) {
    this.#gateway = gateway
  }

  static async listen(gateway: string): Promise<Refusals> {
    const refusals = new Refusals(gateway)
    await new Promise<void>(resolve => refusals.#server.listen(0, '127.0.0.1', resolve))
    return refusals
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** @returns the errors that a client took wrongly, as sentences; [] when it did all as it was told */
  faults(client: string): string[] {
    const faults: string[] = []
    for (const { code, times } of this.#came.get(client)?.values() ?? []) {
      const { retriable, status } = ERRORS[code]
      if (retriable && times === 1) faults.push(`${code} (${status}) may succeed later, and was not sent again`)
      if (!retriable && times > 1 && !BY_STATUS_ALONE.includes(code))
        faults.push(`${code} (${status}) can never succeed, and was sent ${times} times`)
    }
    return faults
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, client = '', code, path = ''] = request.url!.split(/^\/([^/]+)(?:\/(\w+)(\/.*))?$/)
    if (code === undefined) return void response.end(JSON.stringify(this.faults(client)))
    const body = await buffer(request)
    const seen = this.#seen(client, code as ErrorCode, body)
    if (seen.times++ > 0 && ERRORS[seen.code].retriable) return this.#forward(request, path, body, response)
    const refused = refusal(seen.code, path)
    response.writeHead(refused.status, refused.headers).end(refused.body)
  }

  #seen(client: string, code: ErrorCode, body: Buffer): { code: ErrorCode; times: number } {
    let requests = this.#came.get(client)
    if (!requests) this.#came.set(client, (requests = new Map()))
    const id = code + createHash('sha256').update(body).digest('hex')
    let seen = requests.get(id)
    if (!seen) requests.set(id, (seen = { code, times: 0 }))
    return seen
  }

  async #forward(request: IncomingMessage, path: string, body: Buffer, response: ServerResponse): Promise<void> {
    const headers = new Headers({ 'content-type': 'application/json' })
    for (const name of ['authorization', 'x-api-key', 'anthropic-version']) {
      const value = request.headers[name]
      if (value !== undefined) headers.set(name, String(value))
    }
    const reply = await fetch(this.#gateway + path, { method: 'POST', headers, body })
    response.writeHead(reply.status, { 'content-type': reply.headers.get('content-type') ?? '' })
    pipeline(Readable.fromWeb(reply.body as never), response, () => {})
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}
