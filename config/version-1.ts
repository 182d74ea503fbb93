/**
 * What `version: 1` of gateway.yaml implies. Since version 2 each of these plugins is its own line in a pipeline. In
 * version 1 their places are fixed, and two of them take their options from sections.
 */
import type { PipelineEntry } from '../core/engine/chain.ts'
import type { PluginCatalog } from './check-chain.ts'
import { NO_OPTIONS, parseOptions } from './options.ts'
import type { Report } from './report.ts'
import type { ConfigSource } from './source.ts'

interface Implied {
  plugin: string
  /** Its place: directly above the first entry of this plugin. */
  above: string
  /** The section that holds its options. */
  section?: string
}

/** In the order of their places. */
const IMPLIED: readonly Implied[] = [
  { plugin: 'model-access', above: 'conversation' },
  { plugin: 'compaction', above: 'token-estimate' },
  { plugin: 'web-search', above: 'routing', section: 'web_search' },
  { plugin: 'media', above: 'routing', section: 'media' },
]

/** The plugins that version 1 implies. */
export const IMPLIED_PLUGINS: readonly string[] = IMPLIED.map(({ plugin }) => plugin)

/** Sections that only version 1 has, each with the plugin whose options it holds. */
export const OPTION_SECTIONS: ReadonlyMap<string, string> = new Map(
  IMPLIED.flatMap(({ plugin, section }) => (section === undefined ? [] : [[section, plugin] as const])),
)

/** The fault of a section that only version 1 has, in a file of version 2; undefined for every other section. */
export function faultOfFormer(section: string): string | undefined {
  const plugin = OPTION_SECTIONS.get(section)
  if (!plugin) return undefined
  const cure = `since version 2 its keys are options of the plugin ${plugin}: write \`- ${plugin}: { … }\` above routing, and remove the section`
  return `the section '${section}' belongs to version 1; ${cure}`
}

/**
 * Checks the sections that hold the options of plugins. Those with a fault are left out of the result.
 * @param version that of the file; undefined when it has none that can be read
 */
export function readOptionSections(
  version: number | undefined,
  source: ConfigSource,
  plugins: PluginCatalog,
  report: Report,
): Record<string, unknown> {
  const sections: Record<string, unknown> = {}
  if (version === 2) return sections
  for (const [name, plugin] of OPTION_SECTIONS) {
    if (source.brokenSections.has(name)) continue
    const checked = report.check(plugins.get(plugin)?.config ?? NO_OPTIONS, source.data[name], [name], name)
    if (checked !== null) sections[name] = checked
  }
  return sections
}

/**
 * The pipeline with the plugins that version 1 implies. A plugin that is already written is not added again.
 * @param sections those that hold options, checked, by name
 */
export function withImplied(
  entries: readonly PipelineEntry[],
  sections: Record<string, unknown>,
  catalog: PluginCatalog,
): PipelineEntry[] {
  const whole = [...entries]
  for (const { plugin, above, section } of IMPLIED) {
    const at = whole.findIndex(entry => entry.plugin === above)
    const known = catalog.get(plugin)
    if (at < 0 || !known || whole.some(entry => entry.plugin === plugin)) continue
    const host = whole[at]!
    const config = section === undefined ? parseOptions(known) : (sections[section] ?? {})
    const id = whole.some(entry => entry.id === plugin) ? `implied-${plugin}` : plugin
    whole.splice(at, 0, {
      plugin,
      id,
      on_failure: 'deny',
      config: config as Record<string, unknown>,
      at: host.at,
      implied: true,
    })
  }
  return whole
}
