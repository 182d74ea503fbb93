/** Opens the public listener of a gateway. */
import type { GatewayConfig } from '../../config/types.ts'
import { GatewayError } from '../../core/canon/errors.ts'
import { type Chain, takesMessages } from '../../core/engine/chain.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Listener, ListenerFactory, RequestHandler, WebSocketOptions } from '../../core/ports/listener.ts'
import { errorBody } from '../../core/ports/surface.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { requestId } from '../../core/tools/ids.ts'
import { routable } from '../../surfaces/index.ts'

const LISTENERS: Record<'uws' | 'node', () => Promise<ListenerFactory>> = {
  uws: async () => (await import('../../http/uws/listener.ts')).listenUws,
  node: async () => (await import('../../http/node/listener.ts')).listenNode,
}

export interface ListenOptions {
  /** Overrides what the configuration says. */
  listen?: { host?: string; port?: number } | undefined
  listener?: 'uws' | 'node' | undefined
  /** Whether several processes share the port. */
  sharePort?: boolean | undefined
  clock: Clock
  log: Logger
}

/** @param chains those of the configuration */
export async function openListener(
  config: GatewayConfig,
  chains: readonly Chain[],
  options: ListenOptions,
  handler: RequestHandler,
): Promise<Listener> {
  const { server } = config
  const listen = await LISTENERS[options.listener ?? server.listener]()
  return listen(
    {
      host: options.listen?.host ?? server.listen.host,
      port: options.listen?.port ?? server.listen.port,
      sharePort: options.sharePort,
      clock: options.clock,
      maxConnections: server.max_connections,
      stallTimeoutMs: server.stall_timeout,
      trustProxy: server.trust_proxy,
      ...(server.tls && { tls: server.tls }),
      ...(server.websocket === 'on' && { webSocket: webSocketOptions(config, chains) }),
      refuse,
      // The client was answered with 500, or its connection was closed.
      onError: error => options.log.error({ err: error }, 'the listener failed an exchange'),
    },
    handler,
  )
}

/**
 * What a listener must know about WebSocket messages before it starts. A message may have twice the size of the
 * largest body, so that one that is only too long for a body is read whole and refused with an error; only a much
 * longer one closes the connection. A peer that answers no ping gets the time limit of a body, because its pong waits
 * behind the message that it is sending.
 */
function webSocketOptions({ routes }: GatewayConfig, chains: readonly Chain[]): WebSocketOptions {
  const spoken = routes.filter(route => route.surface && routable[route.surface]!.socket)
  const bodies = chains
    .filter(chain => takesMessages(chain) && spoken.some(route => route.pipeline === chain.name))
    .map(chain => chain.body)
  return {
    maxMessageBytes: Math.min(2 ** 31 - 1, 2 * Math.max(1024 * 1024, ...bodies.map(body => body?.maxBytes ?? 0))),
    pongTimeoutMs: Math.max(1000, ...bodies.map(body => body?.timeoutMs ?? 0)),
  }
}

/** The listener's response to an ambiguous head (R4). */
function refuse(reason: string, words: string) {
  const id = requestId()
  const message = `The request head is not acceptable: ${reason}.${words && ` ${words}`}`
  const error = new GatewayError('bad_request', { message })
  return {
    status: 400,
    headers: [
      ['content-type', 'application/json'],
      ['x-request-id', id],
      ['x-should-retry', 'false'],
    ] as const,
    body: errorBody(undefined, error, id),
  }
}
