/** Headers by which a provider's logs can be joined with ours: the request id, and the trace (W3C Trace Context). */
import type { Backend } from '../../core/dialect.ts'
import type { Exchange } from '../../core/plugin.ts'
import { trace } from '../slots.ts'
import { traceParent } from '../trace-context.ts'

/** Longest `tracestate` that is passed on (Trace Context 3.3.1.5 asks for at least 512). */
const MAX_STATE = 512

/**
 * @returns `headers` and, on top of what the operator configured, `x-request-id`, `traceparent` and `tracestate`. The parent is the attempt's own span
 *   where the exchange is traced, else the client's.
 */
export function traceHeaders(x: Exchange, backend: Backend, headers: Record<string, string>): Record<string, string> {
  const all: Record<string, string> = { 'x-request-id': x.id, 'accept-encoding': 'identity', ...headers }
  const own = x.peek(trace)?.attempt(backend)
  if (own !== undefined) all['traceparent'] ??= own
  const parent = traceParent(x.incoming.headers)
  if (parent === undefined) return all
  all['traceparent'] ??= parent
  const state = x.incoming.headers.get('tracestate')
  if (state !== undefined && state.length <= MAX_STATE) all['tracestate'] ??= state
  return all
}
