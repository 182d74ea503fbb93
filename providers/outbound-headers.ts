/** Headers of a request to a provider. */
import type { Backend } from '../core/dialect.ts'

/**
 * @param auth the dialect's own credential headers
 * @returns lower-case names; what the operator configured for the provider wins
 */
export function outboundHeaders(
  backend: Backend,
  stream: boolean,
  auth: Record<string, string>,
): Record<string, string> {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: stream ? 'text/event-stream' : 'application/json',
    ...auth,
  }
  for (const name in backend.headers) headers[name.toLowerCase()] = backend.headers[name]!
  return headers
}
