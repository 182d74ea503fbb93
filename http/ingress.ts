/**
 * The ingress, between the listener and the chains: built-in paths, routing, early refusals by headers alone, and the
 * generations of the configuration. The order of its checks follows decisions 1 and 7.
 */

import {
  type ErrorCode,
  type ErrorInit,
  GatewayError,
  printable,
  retryHeaders,
  setRetryAfter,
} from '../core/canon/errors.ts'
import { type Chain, handshakeChain, takesMessages } from '../core/engine/chain.ts'
import { type ExchangeHost, RunningExchange } from '../core/engine/exchange/index.ts'
import type { Tenants } from '../core/engine/tenant.ts'
import type { Exchange, ResponseHead, Settlement } from '../core/plugin.ts'
import type { HeaderList, Incoming } from '../core/ports/listener.ts'
import { errorBody, knownSurface, type Surface } from '../core/ports/surface.ts'
import { DenseSet } from '../core/tools/collections.ts'
import { requestId } from '../core/tools/ids.ts'
import { allowed, type Route, type Router, routeFor } from './router.ts'
import { safeHead } from './safe-header.ts'
import { MessageSession, MessageTurns, type SocketHost } from './web-socket.ts'

/** One compiled configuration. It is retired when another replaces it, and closed when its last exchange has ended. */
export interface Generation {
  readonly number: number
  readonly router: Router
  /** Called once, after the last exchange has ended. */
  close(): Promise<void>
}

export interface IngressOptions extends Omit<ExchangeHost, 'onSettled'> {
  /** The surface in whose form a request without a surface is refused; undefined for the plain form. */
  callersSurface(incoming: Incoming): Surface | undefined
  /** The requests that such a refusal names as possible, in words. */
  offered: string
  /** The former prefix of an API, which is answered with 410, and the one that took its place. */
  retired: { prefix: string; use: string }
  /** Finds out whose a request is. Default: its address's. */
  tenants?: Pick<Tenants, 'of'>
  /** Whether a new request must be refused to protect the running ones (http/overload.ts). Default: never. */
  overloaded?(incoming: Incoming, running: number): boolean
  /** Counts messages that wait on a WebSocket (`SocketHost.hold`). Default: they are not counted. */
  hold?: SocketHost['hold']
  onSettled(x: RunningExchange, settlement: Settlement): void
  /** Called for a refusal that never became an exchange. `route` is '' when none matched. */
  onRefused(route: string, error: GatewayError, requestId: string, incoming: Incoming): void
}

/** A generation and the number of exchanges that run on it. */
interface Serving {
  readonly generation: Generation
  readonly host: ExchangeHost
  running: number
  retired: boolean
}

export class Ingress {
  readonly #options: IngressOptions
  readonly #running = new DenseSet<RunningExchange>()
  #current: Serving | null = null
  #idle: (() => void)[] = []
  /** Retired generations that are being closed. */
  readonly #closing = new Set<Promise<void>>()

  readonly #socketHost: SocketHost

  constructor(options: IngressOptions) {
    this.#options = options
    const { clock, ticker, keepAliveMs, log } = options
    this.#socketHost = {
      clock,
      ticker,
      keepAliveMs,
      log,
      messageTurns: new MessageTurns(),
      sessions: new Set(),
      handle: incoming => this.handle(incoming),
      hold: options.hold ?? (() => () => {}),
      refuse: (incoming, route, code, init) => this.#refuse(incoming, route, undefined, code, init),
    }
  }

  get running(): Pick<DenseSet<RunningExchange>, 'size' | typeof Symbol.iterator> {
    return this.#running
  }

  /** WebSockets open now: those that carry messages, and those that are tunnels to a target. */
  get webSockets(): number {
    let open = this.#socketHost.sessions.size
    for (const x of this.#running) if (x.incoming.tunnel && x.headSent) open++
    return open
  }

  get generation(): Generation | undefined {
    return this.#current?.generation
  }

  /** Uses this generation for new requests. The former one is closed when its last exchange ends. */
  use(generation: Generation): void {
    const former = this.#current
    const { clock, log, ticker, keepAliveMs, random } = this.#options
    const serving: Serving = {
      generation,
      running: 0,
      retired: false,
      host: {
        clock,
        log,
        ticker,
        keepAliveMs,
        random,
        onSettled: (x, settlement) => this.#onSettled(x, settlement, serving),
      },
    }
    this.#current = serving
    if (former) {
      former.retired = true
      if (former.running === 0) this.#close(former.generation)
    }
  }

  #close(generation: Generation): void {
    const closing = generation
      .close()
      .catch(error =>
        this.#options.log.error({ err: error, generation: generation.number }, 'closing a retired chain failed'),
      )
      .finally(() => this.#closing.delete(closing))
    this.#closing.add(closing)
  }

  readonly handle = (incoming: Incoming): void => {
    const { path, method } = incoming
    this.#options.tenants?.of(incoming)
    const current = this.#current
    if (!current)
      return this.#refuse(incoming, '', undefined, 'route_unavailable', {
        message: 'A platform service is starting. Retry shortly.',
      })

    const { prefix, use } = this.#options.retired
    if (path === prefix || path.startsWith(`${prefix}/`)) {
      return this.#refuse(incoming, '', undefined, 'endpoint_retired', {
        message: `The path ${printable(path)} is retired. Use ${use} instead of ${prefix}.`,
      })
    }
    if ((path === '/' && method === 'HEAD') || (path === '/api/hello' && (method === 'HEAD' || method === 'GET'))) {
      // Coding agents send these requests to test whether the gateway is reachable (decisions 8).
      return incoming.respond(200, [['x-request-id', requestId()]], '')
    }

    const methods = current.generation.router.methods(path)
    if (!methods) {
      const { paths, chain } = current.generation.router.near(path)
      const message = noSuchPath(path, paths, this.#options.offered)
      return this.#refuse(incoming, '', undefined, 'not_found', { message }, chain)
    }
    const route = routeFor(methods, method)
    const any = route ?? methods.values().next().value!
    if (incoming.upgrade && !(incoming.tunnel && route && tunnels(route)))
      return this.#upgrade(incoming, any, methods.get('POST'), current)
    if (!route) {
      if (method === 'OPTIONS') return this.#options204(incoming, methods, any)
      const init = {
        message: `${printable(path)} does not take ${printable(method)}. It takes ${[...methods.keys()].join(', ')}.`,
        headers: { allow: allowed(methods) },
      }
      return this.#refuse(incoming, any.name, any.surface, 'method_not_allowed', init, any.chain)
    }
    const early = checkHeaders(incoming, route)
    if (early) return this.#refuse(incoming, route.name, route.surface, early.code, early.init, route.chain)
    const surface = incoming.connection === undefined ? route.surface : route.surface?.socket?.surface
    this.#start(incoming, route.chain, surface, route.name, current)
  }

  #start(
    incoming: Incoming,
    chain: Chain,
    surface: Surface | undefined,
    route: string,
    current: Serving,
  ): Exchange | undefined {
    if (this.#options.overloaded?.(incoming, this.#running.size)) {
      const message = 'This service is overloaded at the moment. Retry after the advertised time.'
      this.#refuse(incoming, route, surface, 'route_capacity', { message }, chain)
      return undefined
    }
    const form = this.#formOf(surface, incoming)
    const x = new RunningExchange(requestId(), incoming, chain, surface, route, current.host, form)
    this.#running.add(x)
    current.running++
    x.start()
    return x
  }

  #onSettled(x: RunningExchange, settlement: Settlement, serving: Serving): void {
    this.#running.delete(x)
    serving.running--
    if (serving.retired && serving.running === 0) this.#close(serving.generation)
    this.#options.onSettled(x, settlement)
    if (this.#running.size === 0) for (const resolve of this.#idle.splice(0)) resolve()
  }

  /**
   * Answers a request that asks for an upgrade (decisions 7).
   * @param post the path's POST route, which serves the messages on the socket
   */
  #upgrade(incoming: Incoming, route: Route, post: Route | undefined, current: Serving): void {
    const form = post?.surface?.socket
    const offer = incoming.webSocket
    if (offer && post && form && takesMessages(post.chain)) {
      const opening = `GET ${post.path}`
      if (incoming.headers.has('idempotency-key')) {
        return this.#refuse(incoming, opening, post.surface, 'bad_request', {
          message:
            'A WebSocket carries many requests, and an Idempotency-Key is of one. Leave the header out, or send the request as POST.',
        })
      }
      const session = new MessageSession(incoming, form, post.name, this.#socketHost)
      offer.accept(session)
      session.handshake = this.#start(incoming, handshakeOf(post.chain), post.surface, opening, current)
      return
    }
    if (route.surface) {
      return this.#refuse(incoming, route.name, route.surface, 'upgrade_required', {
        message:
          'This path does not speak WebSocket. Send an ordinary POST; set "stream": true for server-sent events.',
      })
    }
    const proxied = isProxied(route)
    return this.#refuse(incoming, route.name, route.surface, proxied ? 'not_implemented' : 'bad_request', {
      message: proxied
        ? 'The only upgrade that is passed on is a WebSocket. Send a complete handshake: GET without a body, version 13.'
        : 'This path takes no protocol upgrade.',
    })
  }

  /** Answers OPTIONS on a path that has no route for it. A preflight request is answered by the route it asks about. */
  #options204(incoming: Incoming, methods: ReadonlyMap<string, Route>, any: Route): void {
    const asks = incoming.headers.get('access-control-request-method')
    const { chain } = (asks !== undefined && routeFor(methods, asks)) || any
    const headers: [string, string][] = [
      ['allow', allowed(methods)],
      ['x-request-id', requestId()],
    ]
    incoming.respond(204, this.#earlyHead(incoming, 204, headers, chain), '')
  }

  /** Runs the `onEarlyHead` hooks of a chain over the headers of a reply. */
  #earlyHead(incoming: Incoming, status: number, headers: [string, string][], chain: Chain | undefined): HeaderList {
    if (!chain || chain.early.hooks.length === 0) return headers
    let kept = new Map(headers)
    for (const [i, hook] of chain.early.hooks.entries()) {
      const head: ResponseHead = { status, headers: new Map(kept), origin: 'gateway' }
      try {
        hook(incoming, head)
        safeHead(status, head.headers)
        kept = head.headers
      } catch (error) {
        const link = chain.early.links[i]!
        link.stats.errors++
        this.#options.log.error({ err: error, pipeline: chain.name, plugin: link.id }, 'plugin failed')
      }
    }
    return kept
  }

  /** The surface in whose form a request is refused: where its route does not say, that of its caller. */
  #formOf(surface: Surface | undefined, incoming: Incoming): Surface | undefined {
    return knownSurface(surface) ?? this.#options.callersSurface(incoming)
  }

  #refuse(
    incoming: Incoming,
    route: string,
    surface: Surface | undefined,
    code: ErrorCode,
    init: ErrorInit,
    chain?: Chain,
  ): void {
    const error = new GatewayError(code, init)
    const form = this.#formOf(surface, incoming)
    setRetryAfter(error, () => this.#options.random())
    const id = requestId()
    const headers: [string, string][] = [
      ['content-type', 'application/json'],
      ['x-request-id', id],
    ]
    for (const name of form?.requestIdHeaders ?? []) headers.push([name, id])
    for (const [name, value] of Object.entries(error.headers ?? {})) headers.push([name, value])
    for (const [name, value] of Object.entries(retryHeaders(error))) headers.push([name, value])
    incoming.respond(error.status, this.#earlyHead(incoming, error.status, headers, chain), errorBody(form, error, id))
    this.#options.onRefused(route, error, id, incoming)
  }

  /** Resolves as soon as no exchange is running. */
  idle(): Promise<void> {
    if (this.#running.size === 0) return Promise.resolve()
    return new Promise(resolve => this.#idle.push(resolve))
  }

  /** Ends every running exchange with an error (decisions 16). */
  expire(): void {
    for (const x of this.#running) x.expire()
  }

  /** Retires the current generation. Resolves when it and all earlier ones are closed. */
  async close(): Promise<void> {
    await this.idle()
    const current = this.#current
    this.#current = null
    if (current) this.#close(current.generation)
    await Promise.all(this.#closing)
  }
}

/**
 * @param near the paths that stand near it, with their methods
 * @param offered where to see which paths there are
 */
function noSuchPath(path: string, near: readonly string[], offered: string): string {
  const start = `No such path: ${printable(path)}`
  if (path.startsWith('/v1/v1/'))
    return `${start}. The base URL already ends in /v1: configure it without the second /v1 (the Anthropic SDK takes the origin alone).`
  if (near.length === 0) return `${start}. See ${offered}.`
  const empty = path.endsWith('/') ? ', with nothing after its last slash' : ''
  return `${start}${empty}. What is there: ${near.join('; ')}.`
}

function isProxied({ chain }: Route): boolean {
  return chain.links[chain.terminal]?.plugin.passesThrough === true
}

/**
 * Whether a handshake that the listener can tunnel becomes an exchange of this route. The bytes that the client sends
 * after it belong to the proxy's target, so no plugin may read them as a body.
 */
function tunnels(route: Route): boolean {
  return isProxied(route) && route.surface === undefined && route.chain.body === null
}

/** The handshake chain of each chain, made when its first socket opens. */
const handshakes = new WeakMap<Chain, Chain>()
function handshakeOf(chain: Chain): Chain {
  let handshake = handshakes.get(chain)
  if (!handshake) handshakes.set(chain, (handshake = handshakeChain(chain)))
  return handshake
}

/**
 * Finds reasons for 415 and 413 in the head alone, without waiting for the body (GEN-5). The gateway does not check
 * bodies of routes without a surface.
 */
function checkHeaders(incoming: Incoming, route: Route): { code: ErrorCode; init: ErrorInit } | null {
  const body = route.chain.body
  if (!body || !route.surface) return null
  const encoding = incoming.headers.get('content-encoding')
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return {
      code: 'unsupported_media_type',
      init: {
        message: `Content-Encoding ${printable(encoding)} is not supported. Send the body uncompressed (identity).`,
      },
    }
  }
  const type = incoming.headers.get('content-type')
  if (!isJson(type)) {
    return {
      code: 'unsupported_media_type',
      init: {
        message: `The body must be application/json; Content-Type is ${type === undefined ? 'missing' : printable(type)}. Set Content-Type: application/json.`,
      },
    }
  }
  const length = incoming.headers.get('content-length')
  if (length !== undefined && Number(length) > body.maxBytes) {
    return {
      code: 'request_too_large',
      init: { message: `The request body has ${length} bytes; the limit is ${body.maxBytes} (max_body). Send less.` },
    }
  }
  return null
}

function isJson(type: string | undefined): boolean {
  if (type === undefined) return false
  if (type === 'application/json') return true
  const semicolon = type.indexOf(';')
  return (semicolon === -1 ? type : type.slice(0, semicolon)).trim().toLowerCase() === 'application/json'
}
