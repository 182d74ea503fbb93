/**
 * Builds the chains and the routes of a checked configuration. Start-up, reload, `check`, `explain` and `route` all use
 * this module; they differ in the services that they pass in.
 */
import { place } from '../config/check-chain.ts'
import { type ConfigError, formatError } from '../config/load.ts'
import { pluginName } from '../config/modules.ts'
import { SIMULATED_SEARCH } from '../config/searches.ts'
import type { GatewayConfig } from '../config/types.ts'
import { assemble, closeChains, type Services } from '../core/engine/assemble.ts'
import { type BuildOptions, type Chain, ChainError, idleLinks } from '../core/engine/chain.ts'
import type { Surface } from '../core/ports/surface.ts'
import { Router } from '../http/router.ts'
import { extras } from '../plugins/extra/index.ts'
import { accountFinder } from '../plugins/shared/directory.ts'
import { searchProviderFault, usesSimulatedSearch } from '../plugins/web-search/provider.ts'
import { routable } from '../surfaces/index.ts'

export interface Assembly {
  chains: ReadonlyMap<string, Chain>
  router: Router
  /** What shows only once the plugins are created: those that can do nothing where they stand. */
  warnings: ConfigError[]
  /** Closes every plugin's instance. */
  close(): Promise<void>
}

/**
 * Thrown when the configuration is not valid, or when one of its plugins does not start. `errors` has every fault with
 * its position.
 */
export class ConfigRefused extends Error {
  readonly errors: ConfigError[]
  constructor(errors: ConfigError[]) {
    super(errors.map(formatError).join('\n'))
    this.name = 'ConfigRefused'
    this.errors = errors
  }
}

export interface AssemblyOptions {
  /** `services.config` is changed: `base_url: simulator` becomes an address. */
  services: Omit<Services, 'accounts'>
  plugins: Parameters<typeof assemble>[0]['plugins']
  /** Gives the address of the built-in upstream. Called only when the configuration uses it. */
  simulator(): string | Promise<string>
  /** For tests: every request hook answers through a promise. */
  forceAsync?: boolean | undefined
  /** For tests: wraps the hooks of each plugin. */
  around?: BuildOptions['around']
}

/**
 * Creates every plugin, and compiles every chain.
 * @throws ConfigRefused
 */
export async function buildAssembly(options: AssemblyOptions): Promise<Assembly> {
  const { services, plugins, forceAsync, around } = options
  const { config, log } = services
  const simulator = await resolveSimulator(config, plugins, options.simulator)
  const surfaceOf = ({ surface }: GatewayConfig['routes'][number]): Surface | undefined =>
    surface === undefined ? undefined : routable[surface]
  const surfacesOf = (pipeline: string): Surface[] => {
    const used = config.routes.filter(route => route.pipeline === pipeline).map(surfaceOf)
    return [...new Set(used.flatMap(surface => surface?.told?.surfaces ?? surface ?? []))]
  }
  const { pipelines } = config
  const ours = new Set(extras.values())
  const foreign = new Set(config.plugins.filter(({ path }) => !ours.has(path)).map(({ path }) => pluginName(path)))
  const { chains, searchProviders } = await assemble({
    pipelines,
    surfacesOf,
    plugins,
    services: { ...services, accounts: accountFinder(services.shared, config) },
    isForeign: plugin => foreign.has(plugin),
    forceAsync,
    around,
    searchServers: simulator === undefined ? {} : { [SIMULATED_SEARCH]: simulator },
  }).catch(error => {
    throw error instanceof ChainError ? new ConfigRefused([{ ...error.at, message: error.message }]) : error
  })
  const close = () => closeChains(chains.values(), log)
  const fault = searchProviderFault(config, plugins, searchProviders)
  if (fault) {
    await close()
    throw new ConfigRefused([{ ...fault.at, message: fault.message }])
  }
  const router = new Router(
    config.routes.map(route => ({
      name: `${route.method} ${route.path}`,
      method: route.method,
      path: route.path,
      surface: surfaceOf(route),
      chain: chains.get(route.pipeline)!,
    })),
  )
  return {
    chains,
    router,
    warnings: [...chains].flatMap(([name, chain]) => idleWarnings(chain, pipelines[name]!)),
    close,
  }
}

function idleWarnings(chain: Chain, entries: GatewayConfig['pipelines'][string]): ConfigError[] {
  return idleLinks(chain).map(({ id, index }) => {
    const terminal = chain.links[chain.terminal]!
    const why =
      index > chain.terminal
        ? `it is listed below ${terminal.id} (${place(entries[terminal.index]!.at, entries[index]!.at)}), and has hooks for the way down only. Move it above`
        : 'no plugin above the terminal needs the body, or the hook is one of terminals. Remove it'
    return { ...entries[index]!.at, message: `${id} does nothing here: ${why}.` }
  })
}

/**
 * Replaces `base_url: simulator` by the address of the built-in upstream.
 * @returns the address, when a provider or the simulated web search uses it
 */
export async function resolveSimulator(
  config: GatewayConfig,
  plugins: AssemblyOptions['plugins'],
  simulator: AssemblyOptions['simulator'],
): Promise<string | undefined> {
  const named = Object.values(config.providers).filter(provider => provider.base_url === 'simulator')
  if (named.length === 0 && !usesSimulatedSearch(config, plugins)) return undefined
  const url = await simulator()
  for (const provider of named) provider.base_url = url
  for (const { backends } of Object.values(config.models)) {
    for (const backend of backends) if (backend.baseUrl === 'simulator') backend.baseUrl = url
  }
  return url
}
