/** Who runs web searches: checks what sections and pipelines name. */
import type { PipelineEntry } from '../core/engine/chain.ts'
import type { PluginCatalog } from './check-chain.ts'
import type { Report } from './report.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig } from './types.ts'
import { OPTION_SECTIONS } from './version-1.ts'

/** The name of the built-in upstream's web search, for an option `searchProvider`. */
export const SIMULATED_SEARCH = 'simulator'

/** The entries of pipelines whose plugin has an option `searchProvider`, with what that option says. */
export function searchesIn(
  pipelines: Record<string, PipelineEntry[]>,
  catalog: PluginCatalog,
): { entry: PipelineEntry; provider: string | null }[] {
  return Object.values(pipelines)
    .flat()
    .flatMap(entry => {
      const option = catalog.get(entry.plugin)?.searchProvider
      return option === undefined ? [] : [{ entry, provider: entry.config[option] as string | null }]
    })
}

/**
 * Checks that the search providers exist which sections of version 1 and entries of pipelines name.
 * @param sections those that hold the options of plugins, checked, by name
 */
export function checkSearchers(
  sections: Record<string, unknown>,
  pipelines: Record<string, PipelineEntry[]>,
  catalog: PluginCatalog,
  known: readonly string[],
  report: Report,
): void {
  const fault = (provider: unknown): string | null => {
    if (typeof provider !== 'string' || known.includes(provider)) return null
    return `there is no provider '${provider}'${didYouMean(provider, known) || '; simulator is built in, others are names of providers or of plugins'}`
  }
  for (const [section, plugin] of OPTION_SECTIONS) {
    const option = catalog.get(plugin)?.searchProvider
    const old = option !== undefined && fault((sections[section] as Record<string, unknown> | undefined)?.[option])
    if (old) report.error([section, option], old)
  }
  for (const { entry, provider } of searchesIn(pipelines, catalog)) {
    const message = entry.implied ? null : fault(provider)
    if (message) report.push({ ...entry.at, message: `${entry.id}: ${message}` })
  }
}

/**
 * Where the gateway searches: warns of listed models whose requests with a web search nobody can serve all the same.
 * Where it does not, nobody asked for a search, and there is nothing to warn of.
 */
export function warnOfNoSearch(
  models: GatewayConfig['models'],
  pipelines: Record<string, PipelineEntry[]>,
  catalog: PluginCatalog,
  report: Report,
): void {
  if (!searchesIn(pipelines, catalog).some(({ provider }) => typeof provider === 'string')) return
  const without = Object.values(models).filter(
    ({ listed, serves, backends }) =>
      listed &&
      serves === 'text' &&
      backends.length > 0 &&
      // The gateway shows its own search to the model as a function.
      !backends.some(({ supports }) => supports.has('web_search') || supports.has('tools')),
  )
  if (without.length === 0) return
  const ids = without.map(({ id }) => id).join(', ')
  report.warn(
    ['models', without[0]!.id],
    `no web search serves ${ids}: no backend searches by itself, and none takes the tools that the search of the gateway needs. A request with a web search is refused. Add a backend that searches, or one with tools`,
    'key',
  )
}
