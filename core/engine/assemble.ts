/**
 * Builds the chains of a configuration. Everything that needs chains builds them here: a gateway that starts or
 * reloads, `sluice check`, `explain` and `route`, the test harness `sluice/testing`, and the tests of the engine.
 */

import type { Configuration, Plugin, PluginContext } from '../plugin.ts'
import { SearchProviders } from '../ports/search.ts'
import type { Surface } from '../ports/surface.ts'
import { type BuildOptions, buildChain, type Chain, type PipelineEntry } from './chain.ts'
import { valuesOf } from './plugin-values.ts'
import { ownState } from './shared-state.ts'

/** What all plugins of a configuration share. */
export type Services = Omit<
  PluginContext,
  'config' | 'id' | 'pipeline' | 'terminal' | 'foreign' | 'surfaces' | 'searchProviders' | 'retrieved' | 'values'
> & {
  /** The whole configuration; each plugin gets only the sections that it uses. */
  config: Configuration
}

/** What chains are built from. */
export interface Blueprint {
  pipelines: Readonly<Record<string, readonly PipelineEntry[]>>
  /** The surfaces of the routes that use this pipeline. */
  surfacesOf(pipeline: string): readonly Surface[]
  /** The known plugins, by the name that a pipeline entry gives. */
  plugins: ReadonlyMap<string, Plugin>
  services: Services
  /** Whether the plugin of this name is not the gateway's own. Absent: all are. */
  isForeign?(plugin: string): boolean
  /** For tests: every request hook answers through a promise. */
  forceAsync?: boolean | undefined
  /** For tests: wraps the hooks of each plugin. */
  around?: BuildOptions['around']
  /** Base URLs of the search servers that the gateway itself runs, by their names. */
  searchServers?: Readonly<Record<string, string>> | undefined
}

/** The chains of one configuration. */
export interface Assembly {
  chains: ReadonlyMap<string, Chain>
  /** The search providers that the plugins of this configuration have registered. */
  searchProviders: SearchProviders
}

/**
 * Creates every plugin of every pipeline. Before it throws, it closes the plugins that it has already created.
 * @throws ChainError for the first plugin that fails
 */
export async function assemble({
  pipelines,
  surfacesOf,
  plugins,
  services,
  isForeign = () => false,
  forceAsync,
  around,
  searchServers,
}: Blueprint): Promise<Assembly> {
  const chains = new Map<string, Chain>()
  const searchProviders = new SearchProviders(searchServers)
  const { log } = services
  const used = Object.values(pipelines).flatMap(entries => entries.map(({ plugin }) => plugins.get(plugin)))
  const retrieved = new Set(used.flatMap(plugin => plugin?.retrieves ?? []))
  try {
    for (const [pipeline, entries] of Object.entries(pipelines)) {
      const surfaces = surfacesOf(pipeline)
      const terminal = entries.map(({ plugin }) => plugins.get(plugin)).find(plugin => plugin?.terminal)!
      const foreign = entries.some(({ plugin }) => isForeign(plugin))
      const context = ({ id, plugin }: PipelineEntry): PluginContext<any> => ({
        ...services,
        config: sectionsOf(services.config, plugins.get(plugin)),
        shared: ownState(services.shared, plugin),
        values: valuesOf(plugin, services),
        id,
        pipeline,
        terminal,
        foreign,
        surfaces,
        searchProviders,
        retrieved,
      })
      chains.set(pipeline, await buildChain(pipeline, { entries, plugins, log, forceAsync, around, context }))
    }
  } catch (error) {
    await closeChains(chains.values(), log)
    throw error
  }
  return { chains, searchProviders }
}

/** The sections of the configuration that the plugin declares in `uses`; a plugin sees no others. */
function sectionsOf(config: Configuration, plugin: Plugin | undefined): Partial<Configuration> {
  const used = plugin?.uses ?? []
  return Object.fromEntries(used.map(section => [section, config[section as keyof Configuration]]))
}

/** Closes all chains. One that fails to close is logged, and the others are closed all the same. */
export async function closeChains(chains: Iterable<Chain>, log: PluginContext['log']): Promise<void> {
  for (const chain of chains) {
    try {
      await chain.close()
    } catch (error) {
      log.error({ err: error, pipeline: chain.name }, 'closing a plugin failed')
    }
  }
}
