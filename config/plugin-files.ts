/** Loads the plugins and dialects of files: those of `plugins:`, and extras that a pipeline names. */
import type { Plugin } from '../core/plugin.ts'
import { CAPABILITIES, type Dialect } from '../core/ports/dialect.ts'
import type { PluginCatalog } from './check-chain.ts'
import type { DialectFacts } from './models.ts'
import { isDialect, loadOwnFile, pluginName, pluginPlace } from './modules.ts'
import type { Report } from './report.ts'
import { backend, provider } from './schema.ts'
import type { ConfigSource, Path } from './source.ts'
import type { GatewayConfig } from './types.ts'
import { ready } from './validate.ts'

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
  loadPlugin?(path: string, generation: number): Promise<Plugin | Dialect>
}

/**
 * @param builtIn the dialects of this build
 * @returns all plugins (built-in ones and those of the configuration's files), the dialects of files, the files that were
 * loaded, and the names of the files that did not load
 */
export async function readPlugins(
  files: readonly string[],
  source: ConfigSource,
  options: PluginSources,
  builtIn: DialectFacts,
  report: Report,
): Promise<{
  plugins: Map<string, Plugin>
  dialects: Map<string, Dialect>
  files: GatewayConfig['plugins']
  broken: Set<string>
}> {
  const plugins = new Map<string, Plugin>()
  const dialects = new Map<string, Dialect>()
  const broken = new Set<string>()
  const loaded: GatewayConfig['plugins'] = []
  const read = async (name: string, path: string, at: Path, shown: string): Promise<void> => {
    try {
      const found = await (options.loadPlugin ?? loadOwnFile)(path, options.generation ?? 0)
      if (isDialect(found)) {
        checkDialect(found, { ...builtIn, ...Object.fromEntries(dialects) })
        dialects.set(name, found)
      } else plugins.set(name, found)
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
    if (plugins.has(name) || dialects.has(name)) {
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
  return { plugins, dialects, files: loaded, broken }
}

/** @throws Error that says what the dialect of a file lacks, or has in common with another one */
function checkDialect(dialect: Dialect, others: DialectFacts): void {
  const { name, capabilities, settings } = dialect
  if (Object.hasOwn(others, name))
    throw new Error(`there is a dialect '${name}' already; rename the file and the dialect`)
  for (const member of ['unfit', 'fault'] as const)
    if (typeof dialect[member] !== 'function') throw new Error(`the dialect has no function '${member}'`)
  for (const member of ['capabilities', 'nativeTools'] as const)
    if (!(dialect[member] instanceof Set)) throw new Error(`'${member}' of the dialect is not a Set`)
  const known: ReadonlySet<string> = new Set(CAPABILITIES)
  const strange = [...capabilities].find(each => !known.has(each))
  if (strange !== undefined)
    throw new Error(`there is no capability '${strange}'; capabilities: ${CAPABILITIES.join(', ')}`)
  for (const entry of ['provider', 'backend'] as const) {
    const own = settings?.[entry]
    if (!own) continue
    try {
      ready([{ type: 'object', properties: { ...own } }])
    } catch (cause) {
      throw new Error(`the settings of the dialect are not valid JSON Schema: ${(cause as Error).message}`)
    }
    for (const [key, schema] of Object.entries(own)) {
      // One that is built on another dialect has that one's settings, too.
      const owner = Object.keys(others).find(other => (others[other]!.settings?.[entry]?.[key] ?? schema) !== schema)
      if (owner !== undefined) throw new Error(`the setting '${key}' belongs to the dialect '${owner}'; rename it`)
      if (key in ENTRIES_OF[entry]) throw new Error(`every ${entry} has the setting '${key}'; rename it`)
    }
  }
}

/** The members that every entry has. */
const ENTRIES_OF = { provider: provider['properties'] as object, backend: backend['properties'] as object }

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
