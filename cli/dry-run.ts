/** Builds every chain of a checked configuration without listening, storing or calling anyone: for `check` and `explain`. */

import type { GatewayConfig } from '../config/types.ts'
import { buildChain, type Chain } from '../core/chain.ts'
import { systemClock } from '../core/clock.ts'
import type { Plugin, PluginHooks } from '../core/plugin.ts'
import { SearchProviders, SIMULATED_SEARCH, searchProviderFault } from '../core/search.ts'
import { createSharedState } from '../core/shared-state.ts'
import { openStore } from '../stores/index.ts'
import { surfaces } from '../surfaces/index.ts'
import { silent } from './log.ts'
import { Failure } from './terminal.ts'

export interface DryRun {
  chains: ReadonlyMap<string, Chain>
  /** Closes the plugins' instances and the store in memory. */
  close(): Promise<void>
}

// Where a backend on the simulator would be, if it ran. Nothing connects.
const NOWHERE = 'http://127.0.0.1:9'

/**
 * The same plugins without their hooks on the way back. Nothing is replied in a dry run, so nothing may be exported,
 * recorded or announced as if it had been: `otel` would post a trace of an exchange that never was.
 */
export function requestsOnly(plugins: ReadonlyMap<string, Plugin>): Map<string, Plugin> {
  return new Map([...plugins].map(([name, plugin]) => [name, requestOnly(plugin)]))
}

function requestOnly(plugin: Plugin): Plugin {
  return {
    ...plugin,
    async create(options, context) {
      const hooks = await plugin.create(options, context)
      const kept: PluginHooks = hooks.body ? { body: hooks.body } : {}
      for (const name of ['onRequest', 'forward', 'close'] as const)
        if (hooks[name]) kept[name] = hooks[name].bind(hooks) as any
      return kept
    },
  }
}

export async function dryRun(
  config: GatewayConfig,
  plugins: ReadonlyMap<string, Plugin>,
  file: string,
): Promise<DryRun> {
  const store = await openStore({
    url: 'sqlite::memory:',
    timeout: config.store.timeout,
    clock: systemClock,
    log: silent,
  })
  const shared = createSharedState()
  const secret = await store.secret(config.secret)
  for (const provider of Object.values(config.providers))
    if (provider.base_url === 'simulator') provider.base_url = NOWHERE
  for (const model of Object.values(config.models)) {
    for (const backend of model.backends) if (backend.baseUrl === 'simulator') backend.baseUrl = NOWHERE
  }
  if (config.web_search.provider === SIMULATED_SEARCH) config.web_search.base_url = NOWHERE
  const searchProviders = new SearchProviders()
  const chains = new Map<string, Chain>()
  const close = async () => {
    for (const chain of chains.values()) await chain.close()
    await store.close()
  }
  for (const [name, entries] of Object.entries(config.pipelines)) {
    const used = new Set(config.routes.filter(r => r.pipeline === name && r.surface).map(r => surfaces[r.surface!]))
    try {
      const chain = await buildChain(name, {
        entries,
        plugins,
        log: silent,
        context: entry => ({
          config,
          store,
          clock: systemClock,
          random: Math.random,
          log: silent,
          id: entry.id,
          pipeline: name,
          surfaces: [...used],
          shared,
          secret,
          searchProviders,
        }),
      })
      chains.set(name, chain)
    } catch (error) {
      await close()
      throw new Failure(`${file}: pipeline ${name} cannot be built: ${(error as Error).message}`)
    }
  }
  const fault = searchProviderFault(config, searchProviders)
  if (fault) {
    await close()
    throw new Failure(`${file}: ${fault}`)
  }
  return { chains, close }
}
