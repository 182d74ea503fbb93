/** Who runs web searches: checks what sections and pipelines name. */
import type { PipelineEntry } from '../core/engine/chain.ts'
import type { Report } from './report.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig } from './types.ts'

/**
 * Checks that the search provider exists which the section `web_search` (version 1) or a `web-search` entry of a
 * pipeline names.
 */
export function checkSearchers(
  section: unknown,
  pipelines: Record<string, PipelineEntry[]>,
  known: readonly string[],
  report: Report,
): void {
  const fault = (provider: unknown): string | null => {
    if (typeof provider !== 'string' || known.includes(provider)) return null
    return `there is no provider '${provider}'${didYouMean(provider, known) || '; simulator is built in, others are names of providers or of plugins'}`
  }
  const old = fault((section as { provider?: unknown } | undefined)?.provider)
  if (old) report.error(['web_search', 'provider'], old)
  for (const entry of Object.values(pipelines).flat()) {
    if (entry.plugin !== 'web-search' || entry.implied) continue
    const message = fault(entry.config['provider'])
    if (message) report.push({ ...entry.at, message: `${entry.id}: ${message}` })
  }
}

/** Warns of listed models whose requests with a web search nobody can serve: no backend, and not the gateway. */
export function warnOfNoSearch(
  models: GatewayConfig['models'],
  pipelines: Record<string, PipelineEntry[]>,
  report: Report,
): void {
  const searches = Object.values(pipelines)
    .flat()
    .some(({ plugin, config }) => plugin === 'web-search' && typeof config['provider'] === 'string')
  const without = Object.values(models).filter(
    ({ listed, backends }) =>
      listed &&
      backends.length > 0 &&
      // The gateway shows its own search to the model as a function.
      !backends.some(({ supports }) => supports.has('web_search') || (searches && supports.has('tools'))),
  )
  if (without.length === 0) return
  const ids = without.map(({ id }) => id).join(', ')
  const [lack, cure] = searches
    ? ['none takes the tools that the search of the gateway needs', 'Add a backend that searches, or one with tools']
    : ['the plugin web-search has no provider', 'Set its option provider, or add a backend that searches']
  report.warn(
    ['models', without[0]!.id],
    `no web search serves ${ids}: no backend searches by itself, and ${lack}. A request with a web search is refused. ${cure}`,
    'key',
  )
}
