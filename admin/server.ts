/** The admin listener: health, readiness, metrics, dashboard. On loopback, or behind a token; never public. */
import type { IncomingMessage, OutgoingHttpHeaders, Server, ServerResponse } from 'node:http'
import { type AddressInfo, isIP } from 'node:net'
import { Counter, type Registry } from 'prom-client'
import type { AdminToken } from '../config/types.ts'
import { systemClock } from '../core/tools/clock.ts'
import { createServer } from '../core/tools/http.ts'
import { OUTSIDE, refusal } from './access.ts'
import { API_PREFIX, type ApiAnswer, actingFor } from './api.ts'
import { type Caller, Callers } from './callers.ts'
import { Feed } from './feed.ts'
import { SERIES } from './history.ts'
import { localToken } from './local-token.ts'
import { CONTENT_SECURITY_POLICY, dashboardPages, type Page } from './pages.ts'
import type { Shown } from './snapshot.ts'
import type { GatewayView, Readiness } from './view.ts'

export interface AdminOptions {
  host: string
  port: number
  token?: string
  /** Where the local token is kept. */
  localToken?: string
  /** Named tokens as they are configured now. */
  tokens(): readonly AdminToken[]
  /** Answers a request of the admin API. */
  api(caller: Caller, request: IncomingMessage, path: string, query: URLSearchParams): Promise<ApiAnswer>
  /** Notes in the audit that an address has sent a wrong token. */
  tokenRefused(address: string): void
  /** Host names that the header `Host` may have when there is no token of any kind, beside localhost and IP addresses. */
  hosts: readonly string[]
  /** Gets the metrics of the listener itself. */
  registry: Registry
  /** The text of /metrics. */
  metrics(): Promise<string>
  /** What the dashboard shows. */
  snapshots: Shown
  /** Whether requests can be served: the chain is built and the store answers, unless that is excluded. */
  ready: GatewayView['ready']
  /** Answers `POST /route`: what the gateway would do with a request, without sending it. */
  route(question: RouteRequest): Promise<{ report: unknown } | { fault: string }>
}

/** A `POST /route` request: the body as it was sent, and the parameters of the query. */
export interface RouteRequest {
  body: string
  surface?: string
  model?: string
  organization?: string
  key?: string
}

export interface Admin {
  readonly host: string
  readonly port: number
  /** Dashboards open now. */
  readonly pages: number
  close(): Promise<void>
}

export const addressOf = ({ host, port }: Pick<Admin, 'host' | 'port'>): string => `http://${host}:${port}`

const TEXT = 'text/plain; charset=utf-8'
/** In bytes: the largest request body that a chain takes by default. */
const MAX_ROUTE_BODY = 32 * 1024 * 1024

export async function startAdmin(options: AdminOptions): Promise<Admin> {
  const pages = dashboardPages()
  // Always the system's clock, also where tests give the exchanges another one: the pages are for people.
  const feed = new Feed(options.snapshots, systemClock)
  const local = options.localToken === undefined ? undefined : localToken(options.localToken)
  const callers = new Callers(options.token, local, options.tokens, systemClock, options.tokenRefused)
  new Counter({
    name: 'sluice_admin_tokens_refused_total',
    help: 'Requests to the admin listener with a wrong token, and those of addresses that had sent too many.',
    labelNames: ['reason'],
    registers: [options.registry],
    collect() {
      this.reset()
      for (const [reason, count] of Object.entries(callers.stats)) this.inc({ reason }, count)
    },
  })
  const server = createServer((request, response) => {
    handle(options, callers, pages, feed, request, response).catch(() => {
      if (!response.headersSent) send(response, 500, TEXT, 'internal error\n')
      else response.destroy()
    })
  })
  await listen(server, options.host, options.port)
  const { port } = server.address() as AddressInfo
  return {
    host: options.host,
    port,
    get pages() {
      return feed.pages
    },
    close: () =>
      new Promise(resolve => {
        feed.close()
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function handle(
  options: AdminOptions,
  callers: Callers,
  pages: ReadonlyMap<string, Page>,
  feed: Feed,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  // A client of HTTP/1.0 may leave the header out, as probes do; node:http refuses the others that have none.
  const [host, ...more] = request.headersDistinct['host'] ?? []
  const name = host === undefined ? null : nameOfHost(host)
  if ((host !== undefined && name === null) || more.length > 0)
    return send(response, 400, TEXT, 'the header Host is empty, malformed or there twice\n', CLOSE)
  const target = request.url ?? '/'
  const mark = target.indexOf('?')
  const path = mark === -1 ? target : target.slice(0, mark)
  const allow = path === '/route' ? 'POST' : 'GET, HEAD'
  const isApi = path.startsWith(API_PREFIX)
  if (!isApi && !allow.split(', ').includes(request.method!)) {
    return send(response, 405, TEXT, `${allow} only\n`, { allow, connection: 'close' })
  }
  // Probes need no token. The answers say whether the gateway is well and, if it is not, why; nothing else.
  if (path === '/healthz') return send(response, 200, TEXT, 'ok\n')
  if (path === '/readyz') {
    const exclude = new URLSearchParams(mark === -1 ? '' : target.slice(mark)).get('exclude')
    if (exclude !== null && exclude !== 'store') return send(response, 400, TEXT, 'only the store can be excluded\n')
    const state = await options.ready(exclude ?? undefined).catch(() => ({ ok: false, reason: 'the check failed' }))
    return send(response, state.ok ? 200 : 503, TEXT, readyText(state))
  }
  // DNS rebinding: a page of another site can make its own host name point to this machine, and then read from this
  // listener. Its requests still have that name in `Host`. With a token this check is not needed, because such a page
  // does not have the token.
  if (callers.open && !isOwnName(name, options.hosts)) {
    const body =
      'without a token this listener answers to localhost and addresses only; server.admin.hosts adds names\n'
    return send(response, 421, TEXT, body)
  }
  // The page itself holds no data, so it needs no token. It asks its user for the token and then fetches the feed.
  const page = pages.get(path)
  if (page) {
    return send(response, 200, page.type, page.body, {
      'content-security-policy': CONTENT_SECURITY_POLICY,
      'referrer-policy': 'no-referrer',
      'x-frame-options': 'DENY',
      'cross-origin-resource-policy': 'same-origin',
    })
  }
  const caller = callers.of(request)
  if (caller === 'throttled')
    return send(response, 429, TEXT, 'too many wrong tokens from this address\n', { 'retry-after': '60', ...CLOSE })
  if (caller === 'unknown') {
    const body = 'this listener needs its token: Authorization: Bearer <admin token>\n'
    return send(response, 401, TEXT, body, { 'www-authenticate': 'Bearer', ...(isApi && CLOSE) })
  }
  if (isApi) {
    const query = new URLSearchParams(mark === -1 ? '' : target.slice(mark))
    const { status, body, headers } = await options.api(caller, request, path, query)
    // What is left of a refused body is not read.
    const close = status >= 400 && request.method !== 'GET' && request.method !== 'HEAD' ? CLOSE : {}
    return send(response, status, 'application/json', JSON.stringify(body), { ...headers, ...close })
  }
  const refused = refusal(caller, actingFor(request), OUTSIDE, undefined)
  if (refused) return send(response, 403, TEXT, `${refused.message}\n`, CLOSE)
  if (path === '/metrics') return send(response, 200, options.registry.contentType, await options.metrics())
  if (path !== '/feed' && path !== '/trace' && path !== '/history' && path !== '/accounts' && path !== '/route') {
    return send(response, 404, TEXT, 'no such path: / /healthz /readyz /metrics /route /trace\n')
  }
  const query = new URLSearchParams(mark === -1 ? '' : target.slice(mark))
  if (path === '/route') return route(options, query, request, response)
  if (path === '/trace') {
    const record = await options.snapshots.recorded(query.get('id') ?? '')
    if (!record) return send(response, 404, TEXT, 'this exchange is not, or no longer, in memory\n')
    return send(response, 200, 'application/json', JSON.stringify(record))
  }
  if (path === '/history') {
    const points = options.snapshots.history.since(Number(query.get('since')) || 0)
    return send(response, 200, 'application/octet-stream', points, { 'x-series': SERIES.join(' ') })
  }
  if (path === '/accounts') {
    const find = query.get('find') ?? ''
    return send(response, 200, 'application/json', JSON.stringify(await options.snapshots.find(find)))
  }
  if (request.method === 'HEAD') return send(response, 200, 'text/event-stream; charset=utf-8', '')
  if (!(await feed.join(response))) send(response, 503, TEXT, 'too many dashboards are open\n')
}

/**
 * Answers `POST /route`. The body is a request as a client would send it; the answer is what the gateway would do with
 * it. Nothing is sent upstream.
 */
async function route(
  options: AdminOptions,
  query: URLSearchParams,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  // A page of another site can post a form here, but not JSON.
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? ''))
    return send(response, 415, TEXT, 'the body is a request in JSON: content-type: application/json\n', CLOSE)
  const pieces: Buffer[] = []
  let size = 0
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length
    if (size > MAX_ROUTE_BODY) return send(response, 413, TEXT, 'the body is over 32 MiB\n', CLOSE)
    pieces.push(piece)
  }
  const question: RouteRequest = { body: Buffer.concat(pieces).toString('utf8') }
  for (const [name, value] of query) {
    if (name === 'surface' || name === 'model' || name === 'key') question[name] = value
    else if (name === 'org') question.organization = value
    else return send(response, 400, TEXT, `no such parameter: ${name} (surface, model, org, key)\n`)
  }
  const answer = await options.route(question)
  if ('fault' in answer) return send(response, 400, TEXT, `${answer.fault}\n`)
  send(response, 200, 'application/json', JSON.stringify(answer.report))
}

/** The answer of `/readyz`. What is ready may have a warning in a second line. */
function readyText({ ok, reason }: Readiness): string {
  if (!ok) return `not ready: ${reason}\n`
  return reason === undefined ? 'ready\n' : `ready\n${reason}\n`
}

const CLOSE = { connection: 'close' }

/**
 * The name or address of a header `Host`, in lower case, without port, brackets and final dot; null when it is none as
 * browsers and other clients write it. WHATWG's parser takes more (`user@`, spaces, other spellings of addresses), so
 * what it changes is refused.
 */
function nameOfHost(host: string): string | null {
  const parts = /^(?:\[([\da-f:.]+)\]|([^\s:@/?#\\[\]]+?)\.?)(?::(\d{0,5}))?$/i.exec(host)
  if (!parts || Number(parts[3] ?? 0) > 65_535) return null
  const [, address, name] = parts
  if (address !== undefined) return isIP(address) === 6 ? address.toLowerCase() : null
  const lower = name!.toLowerCase()
  return !lower.endsWith('.') && URL.parse(`http://${lower}/`)?.hostname === lower ? lower : null
}

function isOwnName(name: string | null, names: readonly string[]): boolean {
  if (name === null) return false
  return (
    isIP(name) !== 0 ||
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    names.some(own => own.toLowerCase() === name)
  )
}

function send(
  response: ServerResponse,
  status: number,
  type: string,
  body: string | Buffer,
  headers: OutgoingHttpHeaders = {},
): void {
  response.writeHead(status, {
    'content-type': type,
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    'content-length': Buffer.byteLength(body),
    ...headers,
  })
  response.end(body)
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
