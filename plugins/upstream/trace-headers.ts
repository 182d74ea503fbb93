/**
 * Headers by which a provider's logs can be joined with the gateway's: the request id, and the trace (W3C Trace
 * Context).
 */
import type { Backend } from '../../core/dialect.ts'
import type { Exchange } from '../../core/plugin.ts'
import { trace } from '../shared/slots.ts'
import { traceParent } from '../shared/trace-context.ts'

/** Longest `tracestate` that is passed on (Trace Context 3.3.1.5 asks for at least 512). */
const MAX_STATE = 512
/**
 * What an HTTP client accepts in a header. undici refuses anything else as if the backend could not be reached, and the
 * breaker would count that.
 */
const STATE = /^[\t\x20-\x7e]+$/

type Headers = Record<string, string>

/**
 * @returns `x-request-id`, `traceparent` and `tracestate`, except those that the operator configured in `headers`. The
 * parent is the attempt's own span where the exchange is traced, else the client's.
 */
export function traceHeaders(x: Exchange, backend: Backend, headers: Readonly<Headers>): Headers {
  const own: Headers = {}
  if (headers['x-request-id'] === undefined) own['x-request-id'] = x.id
  const span = x.peek(trace)?.attempt(backend)
  const parent = traceParent(x.incoming.headers)
  if (headers['traceparent'] === undefined && (span ?? parent) !== undefined) own['traceparent'] = (span ?? parent)!
  if (parent === undefined || headers['tracestate'] !== undefined) return own
  const state = x.incoming.headers.get('tracestate')
  if (state !== undefined && state.length <= MAX_STATE && STATE.test(state)) own['tracestate'] = state
  return own
}
