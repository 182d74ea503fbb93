/**
 * Headers by which a provider's logs can be joined with the gateway's: the request id, and the trace (W3C Trace
 * Context).
 */
import { hash } from 'node:crypto'
import type { WireRequest } from '../../core/plugin.ts'
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
 * A request id as a UUID: some servers take nothing else (llama-cpp-python answers 400 with an empty body). It is the
 * beginning of the id's SHA-256 digest, so whoever has the id can compute it. It is marked as version 4, as which it is
 * as random as the id, because some checks take no other.
 */
export function uuidOf(requestId: string): string {
  const digits = hash('sha256', requestId)
  const variant = ((Number.parseInt(digits[16]!, 16) & 3) | 8).toString(16)
  const groups = [digits.slice(0, 8), digits.slice(8, 12), `4${digits.slice(13, 16)}`, variant + digits.slice(17, 20)]
  return [...groups, digits.slice(20, 32)].join('-')
}

/**
 * Adds `x-request-id`, `traceparent` and `tracestate` to the headers of a request, except those that the operator
 * configured in `headers` or a layer has added. The parent is that of a layer such as `otel`, else the client's.
 */
export function traceHeaders({ call, headers, own: added }: WireRequest): Headers {
  const { id, incoming } = call.facts
  const own: Headers = { ...added }
  const lacks = (name: string) => headers[name] === undefined && own[name] === undefined
  if (lacks('x-request-id')) own['x-request-id'] = uuidOf(id)
  const parent = traceParent(incoming.headers)
  if (parent === undefined) return own
  if (lacks('traceparent')) own['traceparent'] = parent
  if (!lacks('tracestate')) return own
  const state = incoming.headers.get('tracestate')
  if (state !== undefined && state.length <= MAX_STATE && STATE.test(state)) own['tracestate'] = state
  return own
}
