/**
 * Loads gateway.yaml: text, sections, references, chains. Start-up, reload and `sluice check` all use this module. It
 * reports every fault at once, each with its position and its cure. What it knows of a section is in a file of its
 * own; here is the order of the steps.
 */
import { readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import type { Plugin } from '../core/plugin.ts'
import type { Dialect } from '../core/ports/dialect.ts'
import type { Schema } from '../core/tools/vocabulary.ts'
import { modelIds, readOrganizations, readPlans, warnOfDemoKey } from './accounts.ts'
import type { PluginCatalog } from './check-chain.ts'
import { checkFiles } from './files.ts'
import { checkPackages, type DialectFacts, readModels, readProviders, warnOfComputedCaps } from './models.ts'
import { importedFiles } from './modules.ts'
import { NO_OPTIONS } from './options.ts'
import { checkByPlugins, namesIn, readPipelines, readRoutes, warnOfOtherPlugins } from './pipelines.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import { knownPlugins, type PluginSources, readPlugins } from './plugin-files.ts'
import type { PresetFacts } from './presets.ts'
import { Report } from './report.ts'
import { checkRetired } from './retired.ts'
import { ENTRIES, fullEntry, type Names, namesOf, route, SECTIONS, type Sections, withNames } from './schema.ts'
import { checkSearchers, SIMULATED_SEARCH, warnOfNoSearch } from './searches.ts'
import { checkSectionNames, namedEntries, readSections } from './sections.ts'
import { checkSecret, readPlatform, readServer } from './server.ts'
import { type ConfigError, type ConfigSource, readSource } from './source.ts'
import { checkBounds, checkLedger, checkWorkers, readLedger, readReceipts, readStore } from './store.ts'
import type { GatewayConfig } from './types.ts'
import { ready } from './validate.ts'
import { readOptionSections } from './version-1.ts'

export type { PluginCatalog } from './check-chain.ts'
export type { DialectFacts } from './models.ts'
export { type ConfigError, formatError } from './source.ts'

export interface LoadOptions extends PluginSources {
  /** The dialects that providers may speak. */
  dialects: DialectFacts
  /** The optional packages that each vendor's way to authenticate needs, by `auth`; none by default. */
  authPackages?: Readonly<Record<string, readonly string[]>>
  /** Names of the surfaces that routes may speak. */
  surfaces: readonly string[]
  /** The services that a provider may name as its preset; none by default. */
  presets?: PresetFacts
  /** Source of the values for `${NAME}`; `process.env` by default. */
  env?: Readonly<Record<string, string | undefined>>
  /**
   * If true, an environment variable that is not set is a warning, and the text `unset-NAME` stands for its value. For
   * commands that call no provider, so that a machine that builds or bills needs no secrets. Where that text is not
   * valid (for a number, an address), the unset variable is still an error.
   */
  placeholders?: boolean | undefined
  /** Reads a file as text; from the disk by default. */
  readFile?(path: string): Promise<string>
  /** The number of workers that `workers: auto` stands for; by default the number of cores of this machine. */
  cores?: number
}

interface Loaded {
  /** Problems that do not prevent a start. */
  warnings: ConfigError[]
  /**
   * Absolute paths of the main file, of every included one, and of plugins with what they import. Complete even when
   * the configuration is not valid, so that all of them can be watched.
   */
  files: string[]
}

/** Either `config` or `errors` is set; `if (loaded.errors) …` shows which. */
export type LoadResult =
  | (Loaded & {
      errors?: undefined
      config: GatewayConfig
      /** The built-in plugins and those of `plugins:`. */
      plugins: ReadonlyMap<string, Plugin>
      /** The dialects of `plugins:`. */
      dialects: ReadonlyMap<string, Dialect>
      /** Those of the warnings that are about a variable that is not set. */
      unset: ConfigError[]
    })
  | (Loaded & { errors: ConfigError[]; config?: undefined; plugins?: undefined; dialects?: undefined })

/**
 * The schemas that every configuration is checked with: first those of the gateway's sections, then those of the
 * built-in plugins.
 */
export const knownSchemas = (plugins: PluginCatalog, names: Names): Schema[][] => [
  [
    ...Object.values(SECTIONS),
    ...Object.values(ENTRIES).map(({ entry }) => withNames(entry, names)),
    fullEntry,
    withNames(route, names),
  ],
  [...plugins.keys()].map(name => plugins.get(name)!.config ?? NO_OPTIONS),
]

/**
 * Loads and checks the configuration at `path`. Faults in it are returned and never thrown; a missing file is one of
 * them.
 */
export async function loadConfig(path: string, options: LoadOptions): Promise<LoadResult> {
  const { env = process.env, placeholders } = options
  const read = options.readFile ?? ((file: string) => readFile(file, 'utf8'))
  let source: ConfigSource
  try {
    source = await readSource(path, { env, placeholders, readFile: read })
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code
    const why =
      code === 'ENOENT' ? 'there is no such file; name one with --config FILE' : `cannot be read (${code ?? cause})`
    return { errors: [{ file: path, line: 1, column: 1, message: why }], warnings: [], files: [] }
  }
  const report = new Report(source)
  const result = source.usable ? await readAll(source, { ...options, readFile: read }, report) : undefined
  const files = [...source.files, ...importedFiles()]
  const warnings = report.sorted(report.warnings)
  if (!result || report.errors.length > 0) return { errors: report.sorted(report.errors), warnings, files }
  return { ...result, warnings, unset: report.sorted(source.unset), files }
}

/**
 * The steps of loading, in an order in which each finds what it refers to. A step reads its part, and reports the faults
 * in it; a part with a fault is left out of what it returns.
 * @returns undefined after a fault that leaves no whole configuration
 */
async function readAll(
  source: ConfigSource,
  options: LoadOptions & Required<Pick<LoadOptions, 'readFile'>>,
  report: Report,
): Promise<Pick<LoadResult & { errors?: undefined }, 'config' | 'plugins' | 'dialects'> | undefined> {
  const { data } = source
  const { presets = {} } = options
  makeValidators(options.plugins, namesOf(options.dialects, options.surfaces))

  checkSectionNames(data, report)
  const sections = readSections(source, report)
  const { version } = sections
  const oldOptions = readOptionSections(version, source, options.plugins, report)
  // Every reference to a section that could not be read would be reported as wrong.
  if (source.brokenSections.size > 0) return undefined
  const read = await readPlugins(sections.plugins ?? [], source, options, options.dialects, report)
  const { plugins, files, broken } = read
  const load = options.generation ?? 0
  const ofFiles = Array.from(read.dialects, ([name, dialect]) => [
    name,
    Object.assign(Object.create(dialect) as Dialect, { load }),
  ])
  const dialects: DialectFacts = { ...options.dialects, ...Object.fromEntries(ofFiles) }
  const names = namesOf(dialects, options.surfaces)

  const rawProviders = namedEntries('providers', report)
  const rawModels = namedEntries('models', report)
  const rawPlans = namedEntries('plans', report)
  const rawOrganizations = namedEntries('organizations', report)
  const providers = readProviders(rawProviders, names, dialects, presets, report)
  const models = readModels(rawModels, providers, Object.keys(rawProviders), names, dialects, presets, report)
  const ids = modelIds(models, Object.keys(rawModels))
  const plans = readPlans(rawPlans, ids, report)
  const planNames = [...new Set([...Object.keys(BUILT_IN_PLANS), ...Object.keys(rawPlans)])]
  const organizations = readOrganizations(rawOrganizations, plans, planNames, ids, report)
  if (sections.retired) checkRetired(sections.retired, planNames, ids, report)

  const catalog = knownPlugins(plugins, options)
  const pipelines = readPipelines(data['pipelines'], version, oldOptions, catalog, broken, report)
  const routes = readRoutes(data['routes'], pipelines, namesIn(data['pipelines']), plugins, names, report)

  const server = sections.server && readServer(sections.server, options.cores ?? availableParallelism(), report)
  const store = sections.store && readStore(sections.store, source)
  if (server && store) checkWorkers(server, store, report)
  if (server && store) warnOfDemoKey(server, organizations, report)
  if (sections.ledger && store) checkLedger(sections.ledger, store, report)
  const receipts = sections.receipts && store && readReceipts(sections.receipts, store, source, report)
  const platform = sections.platform && readPlatform(sections.platform, report)
  warnOfComputedCaps(models, organizations, dialects, report)
  await checkFiles(server, providers, options.readFile, report)
  checkPackages(providers, dialects, options.authPackages ?? {}, report)
  const searchers = [SIMULATED_SEARCH, ...Object.keys(rawProviders), ...broken]
  // Whether one of the operator's own plugins can search is known only when it is created, so every name is accepted
  // here.
  for (const name of plugins.keys()) if (!options.plugins.get(name)) searchers.push(name)
  checkSearchers(oldOptions, pipelines, plugins, searchers, report)
  warnOfNoSearch(models, pipelines, plugins, report)
  warnOfOtherPlugins(pipelines, routes, plugins, report)
  if (sections.secret !== undefined) checkSecret(sections.secret, report)
  if (report.errors.length > 0 || !server || !store || !platform || !receipts) return undefined

  const config: GatewayConfig = {
    // No section is missing here: a section with a fault has added an error, and the function has returned above.
    ...(sections as Sections),
    files: source.files,
    server,
    store,
    platform,
    ledger: readLedger(sections.ledger!, store, source),
    receipts,
    pipelines,
    routes,
    plugins: files,
    providers,
    models,
    plans,
    organizations,
    retired: {
      ...sections.retired!,
      at: { plans: source.position(['plans'], 'key'), models: source.position(['models'], 'key') },
    },
  }
  checkByPlugins(config, plugins, report)
  checkBounds(pipelines, plugins, report)
  return { config, plugins, dialects: read.dialects }
}

function makeValidators(plugins: PluginCatalog, names: Names): void {
  try {
    for (const schemas of knownSchemas(plugins, names)) ready(schemas)
  } catch {
    // The schema of a plugin is not valid. That is reported later, at the plugin's place in a pipeline.
  }
}
