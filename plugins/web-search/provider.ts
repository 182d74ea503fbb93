import { readFileSync } from 'node:fs'
import { Pool, ProxyAgent } from 'undici'
import type { GatewayConfig, ProviderConfig } from '../../config/types.ts'
import { type SearchProvider, type SearchProviders, SIMULATED_SEARCH } from '../../core/search.ts'
import { HttpSearch } from './http-provider.ts'

/** The search provider that `web_search.provider` names. */
export interface OpenSearch {
  /** Undefined: none is configured. Asked late: a plugin registers its own while the chain is built, above or below. */
  provider(): SearchProvider | undefined
  close(): Promise<void>
}

/** Searches at the same time; more wait for a connection, and their own time runs. */
const CONNECTIONS = 32

export function openSearch(
  { web_search, providers }: Pick<GatewayConfig, 'web_search' | 'providers'>,
  registered: SearchProviders,
  connectTimeoutMs: number,
): OpenSearch {
  const name = web_search.provider
  if (name === null) return { provider: () => undefined, close: async () => {} }
  const endpoint = name === SIMULATED_SEARCH ? simulated(web_search.base_url!) : providers[name]
  if (!endpoint) return { provider: () => registered.get(name), close: async () => {} }
  const dispatcher = open(endpoint, connectTimeoutMs)
  const { origin, pathname } = new URL(endpoint.base_url)
  const headers = { ...endpoint.headers, ...(endpoint.api_key && { authorization: `Bearer ${endpoint.api_key}` }) }
  const search = new HttpSearch({ dispatcher, origin, prefix: pathname.replace(/\/+$/, ''), headers })
  return { provider: () => search, close: () => dispatcher.close() }
}

type Endpoint = Pick<ProviderConfig, 'base_url' | 'headers' | 'api_key' | 'tls' | 'proxy'>

function simulated(base_url: string): Endpoint {
  return { base_url, headers: {}, tls: null, proxy: null }
}

function open({ base_url, tls, proxy }: Endpoint, connectTimeoutMs: number): Pool | ProxyAgent {
  const connect = {
    timeout: connectTimeoutMs,
    ...(tls?.ca && { ca: readFileSync(tls.ca, 'utf8') }),
    ...(tls?.cert && { cert: readFileSync(tls.cert, 'utf8') }),
    ...(tls?.key && { key: readFileSync(tls.key, 'utf8') }),
  }
  const options = { connections: CONNECTIONS, connect }
  return proxy
    ? new ProxyAgent({ uri: proxy, ...options, requestTls: connect })
    : new Pool(new URL(base_url).origin, options)
}
