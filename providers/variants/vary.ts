/** Makes a variant of a dialect: the same words on another path, with other members and headers around them. */
import type { Backend, Dialect, OutboundRequest } from '../../core/ports/dialect.ts'
import type { Headers } from '../outbound-headers.ts'

/** How requests of a variant differ from those of its dialect. */
export interface Wire {
  /** @param path as the dialect writes it */
  path(backend: Backend, stream: boolean, path: string): string
  /** The body; a member that is undefined is not sent. The given one must not be changed. */
  body?(body: Record<string, unknown>): Record<string, unknown>
  /** Members that come before all others. */
  first?(backend: Backend, headers: Headers): Record<string, unknown>
  /** Called once for each headers' object that the dialect gives. */
  headers?(headers: Headers, stream: boolean): Headers
}

/** @param more what else of the dialect differs */
export function varied(base: Dialect, wire: Wire, more: Partial<Dialect> = {}): Dialect {
  const known = new WeakMap<Headers, Headers>()
  const headersOf = (headers: Headers, stream: boolean): Headers => {
    if (!wire.headers) return headers
    let own = known.get(headers)
    if (own === undefined) known.set(headers, (own = Object.freeze(wire.headers(headers, stream))))
    return own
  }
  const { embeddings } = base
  return {
    ...base,
    ...(embeddings && {
      embeddings: {
        ...embeddings,
        request(asked, backend) {
          const request = embeddings.request(asked, backend)
          const path = wire.path(backend, false, request.path)
          return { ...request, path, headers: headersOf(request.headers, false) }
        },
      },
    }),
    ...more,
    request(conversation, backend, context): OutboundRequest {
      const write = context.json ?? JSON.stringify
      const json = wire.body && ((body: object) => write(wire.body!(body as Record<string, unknown>)))
      const request = base.request(conversation, backend, json ? { ...context, json } : context)
      const first = wire.first && JSON.stringify(wire.first(backend, request.headers)).slice(0, -1)
      return {
        ...request,
        path: wire.path(backend, context.stream, request.path),
        headers: headersOf(request.headers, context.stream),
        // Every dialect writes members of its own after these.
        body: first === undefined ? request.body : `${first},${request.body.slice(1)}`,
      }
    },
  }
}

/** The headers without some of them. */
export function without(headers: Headers, ...names: string[]): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)))
}
