/**
 * Builds the chains of a configuration. Everyone builds them here: a gateway that starts or reloads, `sluice check`,
 * `explain` and `route`, the harness `sluice/testing`, and the tests of the engine.
 */
import { type BuildOptions, buildChain, type Chain, type PipelineEntry } from './chain.ts'
import type { Configuration, Plugin, PluginContext } from './plugin.ts'
import { SearchProviders } from './search.ts'
import type { Surface } from './surface.ts'

/** What all plugins of a configuration share. */
export type Services = Omit<
  PluginContext,
  'config' | 'id' | 'pipeline' | 'terminal' | 'surfaces' | 'searchProviders'
> & {
  /** Whole; each plugin gets the sections that it uses. */
  config: Configuration
}

export interface Blueprint {
  pipelines: Readonly<Record<string, readonly PipelineEntry[]>>
  /** Surfaces of the routes that use a pipeline. */
  surfacesOf(pipeline: string): readonly Surface[]
  /** By the name that stands in a pipeline. */
  plugins: ReadonlyMap<string, Plugin>
  services: Services
  /** Tests: every request hook answers through a promise. */
  forceAsync?: boolean | undefined
  /** Tests: stands around each plugin's hooks. */
  around?: BuildOptions['around']
  /** Address of the simulated web, where it runs. */
  simulator?: string | undefined
}

export interface Assembly {
  chains: ReadonlyMap<string, Chain>
  /** Those that plugins of this configuration have registered. */
  searchProviders: SearchProviders
}

/** Creates every plugin of every pipeline. Throws a ChainError; what had been created is closed by then. */
export async function assemble({
  pipelines,
  surfacesOf,
  plugins,
  services,
  forceAsync,
  around,
  simulator,
}: Blueprint): Promise<Assembly> {
  const chains = new Map<string, Chain>()
  const searchProviders = new SearchProviders(simulator)
  const { log } = services
  try {
    for (const [pipeline, entries] of Object.entries(pipelines)) {
      const surfaces = surfacesOf(pipeline)
      const terminal = entries.map(({ plugin }) => plugins.get(plugin)).find(plugin => plugin?.terminal)!
      const context = ({ id, plugin }: PipelineEntry): PluginContext<any> => ({
        ...services,
        config: sectionsOf(services.config, plugins.get(plugin)),
        id,
        pipeline,
        terminal,
        surfaces,
        searchProviders,
      })
      chains.set(pipeline, await buildChain(pipeline, { entries, plugins, log, forceAsync, around, context }))
    }
  } catch (error) {
    await closeChains(chains.values(), log)
    throw error
  }
  return { chains, searchProviders }
}

/** What a plugin may see of the configuration. */
function sectionsOf(config: Configuration, plugin: Plugin | undefined): Partial<Configuration> {
  const used = plugin?.uses ?? []
  return Object.fromEntries(used.map(section => [section, config[section as keyof Configuration]]))
}

/** Closes all of them, whatever a plugin does: what one leaves open must not leave open what others have. */
export async function closeChains(chains: Iterable<Chain>, log: PluginContext['log']): Promise<void> {
  for (const chain of chains) {
    try {
      await chain.close()
    } catch (error) {
      log.error({ err: error, pipeline: chain.name }, 'closing a plugin failed')
    }
  }
}
