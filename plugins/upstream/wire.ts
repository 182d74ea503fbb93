/** Carries written requests to their backends: credentials, the headers of a trace, the connections. */
import { asGatewayError, GatewayError } from '../../core/canon/errors.ts'
import type { SendWire, WireCredentials, WireHandler, WireRequest } from '../../core/plugin.ts'
import { unsent } from '../shared/slots.ts'
import type { ProviderPool } from './pools.ts'
import type { Targets } from './targets.ts'
import { traceHeaders } from './trace-headers.ts'

export function wireOf(targets: Targets): SendWire {
  return (request, handler) => {
    const { pool } = targets.of(request.call.backend)
    if (pool.auth === null) carry(pool, request, handler)
    else authenticate(pool, request, handler)
  }
}

function carry(pool: ProviderPool, request: WireRequest, handler: WireHandler, credentials?: WireCredentials): void {
  handler.onRequestSent(request, credentials)
  const { method, path, headers, body, call } = request
  const own = traceHeaders(request)
  pool.dispatcher.dispatch(
    {
      origin: pool.origin,
      path: pool.prefix + path,
      method,
      headers,
      own: credentials ? { ...own, ...credentials.headers } : own,
      body,
      writing: () => call.facts.peek(unsent)?.writing(),
    },
    handler,
  )
}

/** Adds the headers that authenticate the request, then sends it. */
function authenticate(pool: ProviderPool, request: WireRequest, handler: WireHandler): void {
  const auth = pool.auth!
  const { method, headers, own, body } = request
  const made = auth.headers({
    method,
    origin: pool.origin,
    path: pool.prefix + request.path,
    headers: { ...headers, ...own },
    body,
  })
  const send = (added: WireCredentials['headers']) =>
    carry(pool, request, handler, { headers: added, refused: () => auth.refused() })
  if (!(made instanceof Promise)) return send(made)
  made.then(
    added => {
      if (handler.over) return
      try {
        send(added)
      } catch (error) {
        handler.onResponseError(null, asGatewayError(error))
      }
    },
    cause => {
      const message = 'The gateway has no valid credentials for the upstream. Retry shortly.'
      handler.onResponseError(null, new GatewayError('upstream_auth_error', { message, retriable: true, cause }))
    },
  )
}
