/**
 * Loads gateway.yaml: text, sections, references, chains. The one way in: start-up, reload and `sluice check` all come through here, and every fault is
 * reported at once with its place and its cure.
 */
import { readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { basename, extname } from 'node:path'
import type { PipelineEntry } from '../core/chain.ts'
import type { Plugin } from '../core/plugin.ts'
import { SIMULATED_SEARCH } from '../core/search.ts'
import type { Schema } from '../core/vocabulary.ts'
import { DEMO_KEY_DIGEST, modelIds, readOrganizations, readPlans } from './accounts.ts'
import type { PluginCatalog } from './check-chain.ts'
import { absolutePaths, type DialectFacts, readModels, readProviders } from './models.ts'
import { loadPluginFile } from './modules.ts'
import { NO_OPTIONS } from './options.ts'
import { pluginChecks, readPipelines, readRoutes } from './pipelines.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import { Report } from './report.ts'
import {
  CHAIN_SECTIONS,
  ENTRIES,
  fullEntry,
  type Names,
  route,
  SECTION_ORDER,
  SECTIONS,
  type Sections,
  withNames,
} from './schema.ts'
import { type ConfigError, type ConfigSource, readSource } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig, ServerConfig } from './types.ts'
import { isLoopback, parseListen } from './units.ts'
import { ready } from './validate.ts'
import { OPTION_SECTIONS, optionSection } from './version-1.ts'

export type { PluginCatalog } from './check-chain.ts'
export type { DialectFacts } from './models.ts'
export { type ConfigError, formatError } from './source.ts'

export interface LoadOptions {
  /** The built-in plugins. */
  plugins: PluginCatalog
  /** The dialects that providers may speak. */
  dialects: DialectFacts
  /** Names of the surfaces that routes may speak. */
  surfaces: readonly string[]
  /** Where `${NAME}` is read; `process.env` by default. */
  env?: Readonly<Record<string, string | undefined>>
  /**
   * A variable that is not set is a warning, and a placeholder stands for it: for commands that call no provider, so that
   * a machine that builds or bills needs no secrets. Where no text can stand (a number, an address) it stays an error.
   */
  placeholders?: boolean | undefined
  /** Text of a file; from the disk by default. */
  readFile?(path: string): Promise<string>
  /** Raised at each reload, so that plugin files and their own imports are read anew (decisions 39). */
  generation?: number
  /** Imports a plugin file; tests replace it. */
  loadPlugin?(path: string, generation: number): Promise<Plugin>
  /** What `workers: auto` means; the cores of this machine by default. */
  cores?: number
}

interface Loaded {
  /** Worth telling, and no reason not to start. */
  warnings: ConfigError[]
  /** The main file and every included one, absolute; complete even when the configuration is not valid, so that it can be watched. */
  files: string[]
}

/** `errors` is set exactly when `config` is not: `if (loaded.errors) …`. */
export type LoadResult =
  | (Loaded & {
      errors?: undefined
      config: GatewayConfig
      /** The built-in plugins and those of `plugins:`. */
      plugins: ReadonlyMap<string, Plugin>
      /** Those of the warnings that tell where a placeholder stands. */
      unset: ConfigError[]
    })
  | (Loaded & { errors: ConfigError[]; config?: undefined; plugins?: undefined })

/** What every configuration is checked with: the schemas of the gateway itself, and those of the built-in plugins. */
export const knownSchemas = (plugins: PluginCatalog, names: Names): Schema[][] => [
  [
    ...Object.values(SECTIONS),
    ...Object.values(ENTRIES).map(({ entry }) => withNames(entry, names)),
    fullEntry,
    withNames(route, names),
  ],
  [...plugins.keys()].map(name => plugins.get(name)!.config ?? NO_OPTIONS),
]

/** Loads and checks the configuration at `path`. Never throws for what is wrong in it, a missing file included. */
export async function loadConfig(path: string, options: LoadOptions): Promise<LoadResult> {
  const names = { dialects: Object.keys(options.dialects), surfaces: options.surfaces }
  const read = options.readFile ?? ((file: string) => readFile(file, 'utf8'))
  let source: ConfigSource
  try {
    const { env = process.env, placeholders } = options
    source = await readSource(path, { env, placeholders, readFile: read })
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code
    const why =
      code === 'ENOENT' ? 'there is no such file; name one with --config FILE' : `cannot be read (${code ?? cause})`
    return { errors: [{ file: path, line: 1, column: 1, message: why }], warnings: [], files: [] }
  }
  try {
    for (const schemas of knownSchemas(options.plugins, names)) ready(schemas)
  } catch {
    // A plugin's schema is not valid: it is told of where the plugin stands in a pipeline.
  }
  const report = new Report(source)
  const fail = (): LoadResult => ({
    errors: report.sorted(report.errors),
    warnings: report.sorted(report.warnings),
    files: source.files,
  })
  if (!source.usable) return fail()

  const data = source.data
  checkSectionNames(data, report)
  const sections = readSections(source, options.plugins, report)
  // What refers to a section that could not be read would all look wrong.
  if (source.brokenSections.size > 0) return fail()
  const { plugins, broken } = await readPlugins(sections.plugins ?? [], source, options, report)

  const entries = (section: string): Record<string, unknown> => {
    const raw = data[section]
    if (raw === undefined || raw === null) return {}
    if (!report.mapping(raw, [section])) return {}
    for (const name of Object.keys(raw)) {
      if (!/^[A-Za-z0-9][\w.:/-]{0,127}$/.test(name)) {
        report.error([section, name], `'${name}' is no name: letters, digits and . _ - : / only, at most 128`, 'key')
      }
    }
    return raw
  }
  const rawProviders = entries('providers')
  const rawModels = entries('models')
  const rawPlans = entries('plans')
  const rawOrganizations = entries('organizations')
  const providers = readProviders(rawProviders, names, report)
  const models = readModels(rawModels, providers, Object.keys(rawProviders), options.dialects, report)
  const ids = modelIds(models, Object.keys(rawModels))
  const plans = readPlans(rawPlans, ids, report)
  const planNames = [...new Set([...Object.keys(BUILT_IN_PLANS), ...Object.keys(rawPlans)])]
  const organizations = readOrganizations(rawOrganizations, plans, planNames, ids, report)

  const rawPipelines = data['pipelines']
  const pipelines = rawPipelines === undefined ? {} : readPipelines(rawPipelines, sections, plugins, broken, report)
  const pipelineNames = typeof rawPipelines === 'object' && rawPipelines !== null ? Object.keys(rawPipelines) : []
  const routes =
    data['routes'] === undefined ? [] : readRoutes(data['routes'], pipelines, pipelineNames, plugins, names, report)

  const server = sections.server && resolveServer(sections.server, source, options, report)
  const store = sections.store && resolveStore(sections.store, source)
  if (server && store) checkTogether(server, store, organizations, report)
  await checkFiles(server, providers, read, report)
  const searchers = [SIMULATED_SEARCH, ...Object.keys(rawProviders), ...broken]
  // Whether a plugin can search shows when it is created.
  for (const name of plugins.keys()) if (!options.plugins.get(name)) searchers.push(name)
  checkSearchers(sections.web_search, pipelines, searchers, report)
  if (sections.secret && sections.secret.length < 32)
    report.warn(['secret'], 'the secret is short; use 32 characters or more, e.g. from `openssl rand -hex 32`')

  if (report.errors.length > 0 || !server || !store) return fail()

  for (const section of OPTION_SECTIONS.keys()) delete sections[section]
  const config: GatewayConfig = {
    // Each is there: a fault in one is among the errors.
    ...(sections as Sections),
    files: source.files,
    server,
    store,
    pipelines,
    routes,
    plugins: sections.plugins!.map((file, i) => ({
      path: source.resolvePath(['plugins', i], file),
      at: source.position(['plugins', i]),
    })),
    providers,
    models,
    plans,
    organizations,
  }

  for (const error of pluginChecks(
    pipelines,
    plugins,
    (name, entry) => plugins.get(name)?.check?.(entry.config, config) ?? [],
  )) {
    report.push(error)
  }
  if (report.errors.length > 0) return fail()
  return {
    config,
    plugins,
    warnings: report.sorted(report.warnings),
    unset: report.sorted(source.unset),
    files: source.files,
  }
}

/** Whoever answers searches must be there: in the section of version 1, or in the lines of a pipeline. */
function checkSearchers(
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

function checkSectionNames(data: Record<string, unknown>, report: Report): void {
  for (const name of Object.keys(data)) {
    const plugin = data['version'] === 2 ? OPTION_SECTIONS.get(name) : undefined
    if (plugin) {
      const cure = `since version 2 its keys are options of the plugin ${plugin}: write \`- ${plugin}: { … }\` above routing, and remove the section`
      report.error([name], `the section '${name}' belongs to version 1; ${cure}`, 'key')
      continue
    }
    if (SECTION_ORDER.includes(name)) continue
    report.error(
      [name],
      `unknown section '${name}'${didYouMean(name, SECTION_ORDER) || `; sections: ${SECTION_ORDER.join(', ')}`}`,
      'key',
    )
  }
  const required = ['version', ...Object.keys(CHAIN_SECTIONS)]
  for (const name of required) {
    if (name in data || report.source.brokenSections.has(name)) continue
    const cure = name === 'version' ? 'start the file with `version: 2`' : CHAIN_SECTIONS[name as 'routes']
    report.error([], `the section '${name}' is missing: ${cure}`)
  }
}

/** Checks every section that has one schema; those with a fault are left out. */
/** What was read, and the two sections of version 1 that are plugins' options. */
type ReadSections = Partial<Sections> & { [section: string]: unknown }

function readSections(source: ConfigSource, plugins: PluginCatalog, report: Report): ReadSections {
  const sections: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(SECTIONS)) {
    if (name === 'version' && !(name in source.data)) continue
    if (source.brokenSections.has(name)) continue
    const value = source.data[name] ?? schema['default']
    const checked = report.check(schema, value, [name], name)
    if (checked !== null) sections[name] = checked
  }
  if (sections['version'] !== 2) {
    for (const [name, plugin] of OPTION_SECTIONS) {
      if (source.brokenSections.has(name)) continue
      const checked = report.check(optionSection(plugins.get(plugin)), source.data[name], [name], name)
      if (checked !== null) sections[name] = checked
    }
  }
  return sections as ReadSections
}

/** The catalog with the plugin files of the configuration, and the names of files that did not load. */
async function readPlugins(
  files: readonly string[],
  source: ConfigSource,
  options: LoadOptions,
  report: Report,
): Promise<{ plugins: Map<string, Plugin>; broken: Set<string> }> {
  const plugins = new Map<string, Plugin>()
  const broken = new Set<string>()
  for (const name of options.plugins.keys()) plugins.set(name, options.plugins.get(name)!)
  for (const [i, file] of files.entries()) {
    const path = ['plugins', i]
    const name = basename(file, extname(file))
    if (plugins.has(name)) {
      const whose = options.plugins.get(name) ? 'a built-in plugin' : 'another file of this list'
      report.error(path, `the name '${name}' belongs to ${whose}; rename the file`)
      continue
    }
    try {
      plugins.set(
        name,
        await (options.loadPlugin ?? loadPluginFile)(source.resolvePath(path, file), options.generation ?? 0),
      )
    } catch (cause) {
      broken.add(name)
      report.error(path, `cannot load ${file}: ${(cause as Error).message}`)
    }
  }
  return { plugins, broken }
}

// ---- server and store -------------------------------------------------------------------------------------------------

function resolveServer(
  raw: Sections['server'],
  source: ConfigSource,
  options: LoadOptions,
  report: Report,
): ServerConfig {
  const admin = typeof raw.admin === 'string' ? { listen: raw.admin, token: undefined, hosts: [] } : raw.admin
  const listen = parseListen(raw.listen)!
  const adminListen = parseListen(admin.listen)!
  const token = admin.token || undefined
  if (!isLoopback(adminListen.host) && !token) {
    report.error(
      ['server', 'admin'],
      `the admin pages would be open to the network on ${admin.listen}; bind them to 127.0.0.1, or set a token: admin: { listen: ${admin.listen}, token: "\${ADMIN_TOKEN}" }`,
    )
  }
  const workers = raw.workers === 'auto' ? (options.cores ?? availableParallelism()) : raw.workers
  if (workers > 1 && listen.port === 0)
    report.error(['server', 'listen'], `${workers} workers share one port: name it, instead of 0`)
  // Worker n has its admin pages on the n-th port from the one that is named.
  const ports = adminListen.port === 0 ? 1 : workers
  if (
    listen.port !== 0 &&
    listen.port >= adminListen.port &&
    listen.port < adminListen.port + ports &&
    (listen.host === adminListen.host || adminListen.host === '0.0.0.0' || listen.host === '0.0.0.0')
  ) {
    report.error(
      ['server', 'admin'],
      ports === 1
        ? `the admin pages and the public surfaces cannot share port ${listen.port}; give admin another one`
        : `the admin pages of ${workers} workers take ports ${adminListen.port} to ${adminListen.port + ports - 1}, and the public surfaces have ${listen.port}; give admin another one`,
    )
  }
  return {
    ...raw,
    listen,
    admin: { ...adminListen, ...(token ? { token } : {}), hosts: admin.hosts ?? [] },
    workers,
    tls: raw.tls && absolutePaths(raw.tls, ['server', 'tls'], new Report(source)),
  }
}

function resolveStore(raw: Sections['store'], source: ConfigSource): GatewayConfig['store'] {
  const { url, timeout } = typeof raw === 'string' ? { url: raw, timeout: 250 } : raw
  const file = /^sqlite:(?!:memory:)(.+)$/s.exec(url)?.[1]
  return { url: file === undefined ? url : `sqlite:${source.resolvePath(['store'], file)}`, timeout }
}

/** What no section can see alone. */
function checkTogether(
  server: ServerConfig,
  store: GatewayConfig['store'],
  organizations: GatewayConfig['organizations'],
  report: Report,
): void {
  if (server.workers > 1 && store.url.startsWith('sqlite:')) {
    report.error(
      ['server', 'workers'],
      `${server.workers} workers cannot share an sqlite store: each would count limits by itself, and N workers would admit N times as much. Use workers: 1, or a redis store`,
    )
  }
  if (isLoopback(server.listen.host)) return
  for (const [id, { keys }] of Object.entries(organizations)) {
    const demo = keys.findIndex(key => key.sha256 === DEMO_KEY_DIGEST && key.status !== 'revoked')
    if (demo >= 0)
      report.warn(
        ['organizations', id, 'keys', demo],
        'everyone knows the key sk-demo, and this gateway listens beyond loopback; remove it',
      )
  }
}

/** Certificates that are named must be there: found at load, not at the first connection. */
async function checkFiles(
  server: ServerConfig | undefined,
  providers: GatewayConfig['providers'],
  read: (path: string) => Promise<string>,
  report: Report,
): Promise<void> {
  const named: [string[], Record<string, string | undefined> | null][] = [
    [['server', 'tls'], server?.tls ?? null],
    ...Object.values(providers).map(p => [['providers', p.name, 'tls'], p.tls] as [string[], typeof p.tls]),
  ]
  for (const [path, tls] of named) {
    for (const [key, file] of Object.entries(tls ?? {})) {
      if (file === undefined) continue
      try {
        await read(file)
      } catch (cause) {
        report.error([...path, key], `cannot read ${file} (${(cause as NodeJS.ErrnoException).code ?? cause})`)
      }
    }
  }
}
