import { GatewayError } from '../../core/canon/errors.ts'
import type { Incoming } from '../../core/ports/listener.ts'

/** Headers that belong to one connection (RFC 9110 7.6.1) and are not passed on. */
const HOP_BY_HOP = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])

/** The gateway's own credential, and headers that the gateway answers or sets itself. */
const OURS = new Set(['authorization', 'x-api-key', 'host', 'expect', 'idempotency-key', 'x-request-id'])

/**
 * Headers by which proxies in front say where a request came from, or which path or method is meant. Targets believe
 * them, and here they are the client's own words. That holds behind a trusted proxy too (`trust_proxy`): it appends to
 * what the client wrote, and passes on what it does not know.
 */
const OF_PROXIES = new Set([
  'forwarded',
  'x-real-ip',
  'x-client-ip',
  'x-remote-ip',
  'x-remote-addr',
  'x-originating-ip',
  'x-cluster-client-ip',
  'x-proxyuser-ip',
  'x-azure-clientip',
  'x-azure-socketip',
  'x-appengine-user-ip',
  'x-envoy-external-address',
  'x-envoy-original-path',
  'x-host',
  'x-method-override',
  'client-ip',
  'proxy-client-ip',
  'wl-proxy-client-ip',
  'true-client-ip',
  'cf-connecting-ip',
  'cf-connecting-ipv6',
  'fastly-client-ip',
])
/** What more names of such headers begin with. */
const OF_PROXIES_BEGIN = ['x-forwarded', 'x-original-', 'x-rewrite-', 'x-http-method']

function isOfProxies(name: string): boolean {
  // Servers that hand headers to programs as variables take both for one.
  const plain = name.includes('_') ? name.replaceAll('_', '-') : name
  return OF_PROXIES.has(plain) || OF_PROXIES_BEGIN.some(begin => plain.startsWith(begin))
}

/**
 * Request headers for the next hop, without those that `Connection` names. A tunnel is requested anew (RFC 9110 7.8).
 * @throws GatewayError when a value cannot be passed on as it came
 */
export function requestHeaders({ headers, hasBody, tunnel }: Incoming): Record<string, string> {
  const named = connectionNames(headers.get('connection'))
  const out: Record<string, string> = {}
  for (const [name, value] of headers) {
    if (HOP_BY_HOP.has(name) || OURS.has(name) || named.has(name) || isOfProxies(name)) continue
    if (value.includes('\ufffd')) throw lostBytes(name)
    out[name] = value
  }
  const length = headers.get('content-length')
  // The length frames the body, so a client must not be able to remove it through `Connection`.
  if (length !== undefined) out['content-length'] = length
  else if (hasBody) {
    // Node does not frame the body of a GET or DELETE by itself: the target would take its bytes for the next request.
    out['transfer-encoding'] = 'chunked'
    // http-proxy-3 gives a DELETE or OPTIONS without a length a length of 0, and removes its framing. A length that
    // http-proxy-3 sees but does not copy prevents that.
    Object.defineProperty(out, 'content-length', { value: 'chunked', enumerable: false })
  }
  if (tunnel) {
    out['connection'] = 'Upgrade'
    out['upgrade'] = 'websocket'
    if (tunnel === 'frames') delete out['sec-websocket-extensions']
  }
  return out
}

/**
 * Response headers for the client. The listener sets framing and Date itself; only a reply without a body keeps its
 * length.
 * @param raw names and values, alternating
 */
export function responseHeaders(raw: readonly string[], bodiless: boolean): [string, string][] {
  const named = new Set<string>()
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (raw[i]!.toLowerCase() === 'connection') for (const name of connectionNames(raw[i + 1])) named.add(name)
  }
  const out: [string, string][] = []
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i]!.toLowerCase()
    if (HOP_BY_HOP.has(name) || named.has(name) || name === 'date' || name === 'x-request-id') continue
    if (name === 'content-length' && !bodiless) continue
    out.push([name, raw[i + 1]!])
  }
  return out
}

function lostBytes(name: string): GatewayError {
  return new GatewayError('bad_request', {
    message: `The header '${name}' stands more than once, with bytes that are not UTF-8, and this gateway's listener cannot pass them on. Send it once, or as UTF-8 or ASCII; with \`listener: node\` such bytes pass unchanged.`,
  })
}

function connectionNames(value: string | undefined): Set<string> {
  return new Set(
    (value ?? '')
      .split(',')
      .map(name => name.trim().toLowerCase())
      .filter(Boolean),
  )
}
