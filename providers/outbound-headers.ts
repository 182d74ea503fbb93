/** The headers of a request to a provider. */
import type { Backend } from '../core/ports/dialect.ts'

export type Headers = Readonly<Record<string, string>>

/**
 * A dialect's headers, with names in lower case. Headers that the operator configured for the provider take
 * precedence. All requests to a backend share one object, so that the HTTP client serialises its lines only once.
 */
export class OutboundHeaders {
  readonly #credential: (apiKey: string) => Headers
  readonly #always: Headers
  readonly #streamed = new WeakMap<Backend, Headers>()
  readonly #whole = new WeakMap<Backend, Headers>()

  constructor(credential: (apiKey: string) => Headers, always: Headers = {}) {
    this.#credential = credential
    this.#always = always
  }

  of(backend: Backend, stream: boolean): Headers {
    const known = stream ? this.#streamed : this.#whole
    let headers = known.get(backend)
    if (headers === undefined) known.set(backend, (headers = this.#make(backend, stream)))
    return headers
  }

  #make(backend: Backend, stream: boolean): Headers {
    const headers: Record<string, string> = {
      'content-type': 'application/json',
      accept: stream ? 'text/event-stream' : 'application/json',
      'accept-encoding': 'identity',
      ...this.#always,
      ...this.#key(backend),
    }
    for (const name in backend.headers) headers[name.toLowerCase()] = backend.headers[name]!
    return Object.freeze(headers)
  }

  #key({ apiKey, keyHeader }: Backend): Headers {
    if (!apiKey) return {}
    return keyHeader ? { [keyHeader.name]: keyHeader.prefix + apiKey } : this.#credential(apiKey)
  }
}
