import { readFileSync } from 'node:fs'
import { Pool, ProxyAgent } from 'undici'
import type { PluginCatalog } from '../../config/check-chain.ts'
import { SIMULATED_SEARCH, searchesIn } from '../../config/searches.ts'
import type { GatewayConfig, ProviderConfig } from '../../config/types.ts'
import type { PipelineEntry } from '../../core/engine/chain.ts'
import type { SearchProvider, SearchProviders } from '../../core/ports/search.ts'
import { HttpSearch } from './http-provider.ts'
import { searchBackend } from './model-search.ts'

/** The most searches at the same time. Others wait for a connection, and their timeout already runs. */
const CONNECTIONS = 32

/** The search providers that a chain uses. Each is opened at its first use. */
export class OpenSearches {
  readonly #providers: Record<string, ProviderConfig>
  readonly #registered: SearchProviders
  readonly #connectTimeoutMs: number
  readonly #open = new Map<string, { search: SearchProvider; dispatcher: Pool | ProxyAgent }>()

  constructor(providers: Record<string, ProviderConfig>, registered: SearchProviders, connectTimeoutMs: number) {
    this.#providers = providers
    this.#registered = registered
    this.#connectTimeoutMs = connectTimeoutMs
  }

  /**
   * @param name as in the option `provider` of `web-search`
   * @returns undefined when no provider has that name
   */
  of(name: string | null): SearchProvider | undefined {
    if (name === null) return undefined
    let found = this.#open.get(name)
    if (found) return found.search
    const builtIn = this.#registered.builtIn[name]
    const endpoint = builtIn === undefined ? this.#providers[name] : ownServer(builtIn)
    if (!endpoint) return this.#registered.get(name)
    const dispatcher = open(endpoint, this.#connectTimeoutMs)
    const { origin, pathname } = new URL(endpoint.base_url)
    const headers = { ...endpoint.headers, ...(endpoint.api_key && { authorization: `Bearer ${endpoint.api_key}` }) }
    const search = new HttpSearch({ dispatcher, origin, prefix: pathname.replace(/\/+$/, ''), headers })
    this.#open.set(name, (found = { search, dispatcher }))
    return found.search
  }

  async close(): Promise<void> {
    for (const { dispatcher } of this.#open.values()) await dispatcher.close()
  }
}

/** Whether any pipeline searches the simulated web, so that the simulator has to run. */
export function usesSimulatedSearch({ pipelines }: GatewayConfig, plugins: PluginCatalog): boolean {
  return searchesIn(pipelines, plugins).some(({ provider }) => provider === SIMULATED_SEARCH)
}

/**
 * The first fault in the search providers that pipelines name, checked after every plugin was created; null when there
 * is none.
 */
export function searchProviderFault(
  config: GatewayConfig,
  plugins: PluginCatalog,
  registered: SearchProviders,
): { at: PipelineEntry['at']; message: string } | null {
  for (const { entry, provider } of searchesIn(config.pipelines, plugins)) {
    const { model } = entry.config as { model?: string | null }
    const backend = model == null ? null : searchBackend(config, provider, model)
    if (typeof backend === 'string') return { at: entry.at, message: `${entry.id}: ${backend}` }
    if (provider === null || provider === SIMULATED_SEARCH || Object.hasOwn(config.providers, provider)) continue
    if (registered.get(provider)) continue
    const option = entry.implied ? 'web_search.provider' : 'web-search.provider'
    return {
      at: entry.at,
      message: `${option} is '${provider}', but that plugin registers no search provider of this name; call context.searchProviders.register in its create`,
    }
  }
  return null
}

type Endpoint = Pick<ProviderConfig, 'base_url' | 'headers' | 'api_key' | 'tls' | 'proxy'>

function ownServer(base_url: string): Endpoint {
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
