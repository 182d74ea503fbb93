/** Loads the plugins of files: those of `plugins:`, and extras that a pipeline names. */
import type { Plugin } from '../core/plugin.ts'
import type { PluginCatalog } from './check-chain.ts'
import { loadPluginFile, pluginName, pluginPlace } from './modules.ts'
import type { Report } from './report.ts'
import type { ConfigSource, Path } from './source.ts'
import type { GatewayConfig } from './types.ts'

/** Where plugins come from. */
export interface PluginSources {
  /** The built-in plugins. */
  plugins: PluginCatalog
  /** Files of plugins that are loaded when a pipeline names them, by name. A file under `plugins:` comes first. */
  extras?: ReadonlyMap<string, string>
  /**
   * Number of this load. It rises with each reload, so that plugin files and their own imports are loaded again
   * (decision 39).
   */
  generation?: number
  /** Imports a plugin file; tests replace it. */
  loadPlugin?(path: string, generation: number): Promise<Plugin>
}

/**
 * @returns all plugins (built-in ones and those of the configuration's files), the files that were loaded, and the names
 * of the files that did not load
 */
export async function readPlugins(
  files: readonly string[],
  source: ConfigSource,
  options: PluginSources,
  report: Report,
): Promise<{ plugins: Map<string, Plugin>; files: GatewayConfig['plugins']; broken: Set<string> }> {
  const plugins = new Map<string, Plugin>()
  const broken = new Set<string>()
  const loaded: GatewayConfig['plugins'] = []
  const read = async (name: string, path: string, at: Path, shown: string): Promise<void> => {
    try {
      plugins.set(name, await (options.loadPlugin ?? loadPluginFile)(path, options.generation ?? 0))
      loaded.push({ path, at: source.position(at) })
    } catch (cause) {
      broken.add(name)
      report.error(at, `cannot load ${shown}: ${(cause as Error).message}`)
    }
  }
  for (const name of options.plugins.keys()) plugins.set(name, options.plugins.get(name)!)
  for (const [i, file] of files.entries()) {
    const path = ['plugins', i]
    const name = pluginName(file)
    if (plugins.has(name)) {
      const whose = options.plugins.get(name) ? 'a built-in plugin' : 'another file of this list'
      report.error(path, `the name '${name}' belongs to ${whose}; rename the file`)
      continue
    }
    await read(
      name,
      pluginPlace(file, relative => source.resolvePath(path, relative)),
      path,
      file,
    )
  }
  for (const { name, path } of namedPlugins(source.data['pipelines'])) {
    const file = options.extras?.get(name)
    if (file !== undefined && !plugins.has(name) && !broken.has(name)) await read(name, file, path, name)
  }
  return { plugins, files: loaded, broken }
}

/** The names of plugins in pipelines whose entries are not checked yet. */
function* namedPlugins(pipelines: unknown): Generator<{ name: string; path: Path }> {
  if (typeof pipelines !== 'object' || pipelines === null) return
  for (const [pipeline, entries] of Object.entries(pipelines)) {
    if (!Array.isArray(entries)) continue
    for (const [i, entry] of entries.entries()) {
      const members = typeof entry === 'object' && entry !== null ? entry : {}
      const name = typeof entry === 'string' ? entry : (members.plugin ?? Object.keys(members)[0])
      if (typeof name === 'string') yield { name, path: ['pipelines', pipeline, i] }
    }
  }
}

/** The plugins that a pipeline may name: those that are not loaded are known by name alone. */
export function knownPlugins(plugins: ReadonlyMap<string, Plugin>, { extras }: PluginSources): PluginCatalog {
  return { get: name => plugins.get(name), keys: () => new Set([...plugins.keys(), ...(extras?.keys() ?? [])]) }
}
