/**
 * Lets web pages of the listed origins call the gateway: answers preflight requests, and names the origin on each
 * reply, on refusals too. Stands at the top of a pipeline, so that all its replies pass it.
 *
 *   - cors: { origins: ['https://app.example.com'] }
 *   - auth
 *
 * An origin that is not listed gets the same reply without the headers, and its browser keeps the reply from the page.
 * This is no access control: who may call is decided by `auth`.
 */
import { definePlugin, type Incoming, type ResponseHead } from 'sluice'

interface Options {
  origins: string[]
  headers: string[]
  expose: string[]
  credentials: boolean
  max_age: number
}

/** The fields that this plugin owns: what an upstream behind `proxy` says about its own origins does not hold here. */
const OWN = [
  'access-control-allow-origin',
  'access-control-allow-credentials',
  'access-control-expose-headers',
  'access-control-allow-methods',
  'access-control-allow-headers',
  'access-control-max-age',
]
const ORIGIN = /^(\*|https?:\/\/(\[[0-9A-Fa-f:]+\]|[a-z0-9.-]+)(:\d{1,5})?)$/

export default definePlugin<Options>({
  name: 'cors',
  summary: 'Lets web pages of the listed origins call the gateway (CORS), and answers their preflight requests.',
  config: {
    type: 'object',
    additionalProperties: false,
    required: ['origins'],
    properties: {
      origins: {
        type: 'array',
        minItems: 1,
        items: { type: 'string', pattern: ORIGIN.source },
        description: 'Origins as browsers send them, such as https://app.example.com; "*" is every origin.',
      },
      headers: {
        type: 'array',
        items: { type: 'string', pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" },
        default: [],
        description: 'The only request headers that pages may send. Empty: those that the preflight request asks for.',
      },
      expose: {
        type: 'array',
        items: { type: 'string', pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" },
        default: ['x-request-id', 'retry-after'],
        description: 'Response headers that pages may read, beside those that every page may read.',
      },
      credentials: { type: 'boolean', default: false, description: 'Let pages send cookies; not with the origin "*".' },
      max_age: {
        type: 'string',
        format: 'duration',
        default: '1h',
        description: 'How long a browser may remember the answer to a preflight request.',
      },
    },
  },
  check: ({ origins, credentials }) =>
    credentials && origins.includes('*') ? ['credentials need a list of origins: browsers refuse "*" with them'] : [],
  create({ origins, headers, expose, credentials, max_age }) {
    const listed = new Set(origins)
    const any = listed.has('*')
    const stamp = (incoming: Incoming, head: ResponseHead): boolean => {
      for (const name of OWN) head.headers.delete(name)
      // The reply depends on the origin, also where the request has none: a cache must not give it to another.
      if (!any) vary(head, 'Origin')
      const origin = incoming.headers.get('origin')
      if (origin === undefined || !(any || listed.has(origin))) return false
      head.headers.set('access-control-allow-origin', any ? '*' : origin)
      if (credentials) head.headers.set('access-control-allow-credentials', 'true')
      return true
    }
    return {
      onEarlyHead(incoming, head) {
        if (!stamp(incoming, head)) return undefined
        const asks = incoming.headers.get('access-control-request-method')
        if (incoming.method !== 'OPTIONS' || asks === undefined) {
          if (expose.length > 0) head.headers.set('access-control-expose-headers', expose.join(', '))
          return undefined
        }
        head.headers.set('access-control-allow-methods', head.headers.get('allow') ?? asks)
        const wanted = incoming.headers.get('access-control-request-headers')
        const allowed = headers.length > 0 ? headers.join(', ') : wanted
        if (allowed !== undefined) head.headers.set('access-control-allow-headers', allowed)
        if (headers.length === 0) vary(head, 'Access-Control-Request-Headers')
        head.headers.set('access-control-max-age', String(Math.floor(max_age / 1000)))
        return undefined
      },
      onResponseHead(x, head) {
        if (stamp(x.incoming, head) && expose.length > 0)
          head.headers.set('access-control-expose-headers', expose.join(', '))
        return undefined
      },
    }
  },
})

function vary(head: ResponseHead, field: string): void {
  const already = head.headers.get('vary')
  if (already === undefined) head.headers.set('vary', field)
  else if (
    already !== '*' &&
    !already
      .toLowerCase()
      .split(/\s*,\s*/)
      .includes(field.toLowerCase())
  )
    head.headers.set('vary', `${already}, ${field}`)
}
