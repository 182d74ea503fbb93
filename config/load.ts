/**
 * Loads gateway.yaml: text, sections, references, chains. Start-up, reload and `sluice check` all use this module. It
 * reports every fault at once, each with its position and its cure.
 */
import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { createSecureContext } from 'node:tls'
import type { PipelineEntry } from '../core/engine/chain.ts'
import type { Plugin } from '../core/plugin.ts'
import { AUTH_PACKAGES } from '../core/ports/auth.ts'
import { SIMULATED_SEARCH } from '../core/ports/search.ts'
import type { Schema } from '../core/tools/vocabulary.ts'
import { DEMO_KEY_DIGEST, modelIds, readOrganizations, readPlans } from './accounts.ts'
import type { PluginCatalog } from './check-chain.ts'
import {
  absolutePaths,
  type DialectFacts,
  type PresetFacts,
  readModels,
  readProviders,
  warnOfComputedCaps,
} from './models.ts'
import { installCommand, isInstalled, loadPluginFile, pluginName, pluginPlace } from './modules.ts'
import { NO_OPTIONS } from './options.ts'
import { pluginChecks, readPipelines, readRoutes } from './pipelines.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import { Report } from './report.ts'
import { checkRetired } from './retired.ts'
import {
  adminMembers,
  CHAIN_SECTIONS,
  ENTRIES,
  fullEntry,
  type Names,
  route,
  SECTION_ORDER,
  SECTIONS,
  type Sections,
  ship,
  storeMembers,
  withNames,
} from './schema.ts'
import { type ConfigError, type ConfigSource, type Path, readSource } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig, ServerConfig } from './types.ts'
import { isLoopback, parseListen } from './units.ts'
import { defaultsOf, ready } from './validate.ts'
import { OPTION_SECTIONS, optionSection } from './version-1.ts'

export type { PluginCatalog } from './check-chain.ts'
export type { DialectFacts } from './models.ts'
export { type ConfigError, formatError } from './source.ts'

export interface LoadOptions {
  /** The built-in plugins. */
  plugins: PluginCatalog
  /** Files of plugins that are loaded when a pipeline names them, by name. A file under `plugins:` comes first. */
  extras?: ReadonlyMap<string, string>
  /** The dialects that providers may speak. */
  dialects: DialectFacts
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
  /**
   * Number of this load. It rises with each reload, so that plugin files and their own imports are loaded again
   * (decision 39).
   */
  generation?: number
  /** Imports a plugin file; tests replace it. */
  loadPlugin?(path: string, generation: number): Promise<Plugin>
  /** The number of workers that `workers: auto` stands for; by default the number of cores of this machine. */
  cores?: number
}

interface Loaded {
  /** Problems that do not prevent a start. */
  warnings: ConfigError[]
  /**
   * Absolute paths of the main file and of every included one. Complete even when the configuration is not valid, so
   * that all of them can be watched.
   */
  files: string[]
}

/** Either `config` or `errors` is set; `if (loaded.errors) …` tells which. */
export type LoadResult =
  | (Loaded & {
      errors?: undefined
      config: GatewayConfig
      /** The built-in plugins and those of `plugins:`. */
      plugins: ReadonlyMap<string, Plugin>
      /** Those of the warnings that are about a variable that is not set. */
      unset: ConfigError[]
    })
  | (Loaded & { errors: ConfigError[]; config?: undefined; plugins?: undefined })

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
  const presets = options.presets ?? {}
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
    // The schema of a plugin is not valid. That is reported later, at the plugin's place in a pipeline.
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
  // Every reference to a section that could not be read would be reported as wrong.
  if (source.brokenSections.size > 0) return fail()
  const { plugins, files, broken } = await readPlugins(sections.plugins ?? [], source, options, report)

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
  const providers = readProviders(rawProviders, names, options.dialects, presets, report)
  const models = readModels(rawModels, providers, Object.keys(rawProviders), options.dialects, presets, report)
  const ids = modelIds(models, Object.keys(rawModels))
  const plans = readPlans(rawPlans, ids, report)
  const planNames = [...new Set([...Object.keys(BUILT_IN_PLANS), ...Object.keys(rawPlans)])]
  const organizations = readOrganizations(rawOrganizations, plans, planNames, ids, report)

  if (sections.retired) checkRetired(sections.retired, planNames, ids, report)

  const rawPipelines = data['pipelines']
  const pipelines =
    rawPipelines === undefined ? {} : readPipelines(rawPipelines, sections, known(plugins, options), broken, report)
  const pipelineNames = typeof rawPipelines === 'object' && rawPipelines !== null ? Object.keys(rawPipelines) : []
  const routes =
    data['routes'] === undefined ? [] : readRoutes(data['routes'], pipelines, pipelineNames, plugins, names, report)

  const server = sections.server && resolveServer(sections.server, source, options, report)
  const store = sections.store && resolveStore(sections.store, source)
  if (server && store) checkTogether(server, store, organizations, report)
  if (sections.ledger && store) checkLedger(sections.ledger, store, report)
  if (sections.platform && sections.platform.overload_delay < LEAST_OVERLOAD_DELAY_MS)
    report.error(
      ['platform', 'overload_delay'],
      'at least 20ms: a busy gateway that is not overloaded is as late as that',
    )
  warnOfComputedCaps(models, organizations, options.dialects, report)
  await checkFiles(server, providers, read, report)
  checkPackages(providers, options.dialects, report)
  const searchers = [SIMULATED_SEARCH, ...Object.keys(rawProviders), ...broken]
  // Whether one of the operator's own plugins can search is known only when it is created, so every name is accepted
  // here.
  for (const name of plugins.keys()) if (!options.plugins.get(name)) searchers.push(name)
  checkSearchers(sections.web_search, pipelines, searchers, report)
  warnOfNoSearch(models, pipelines, report)
  if (sections.secret && sections.secret.length < 32)
    report.warn(['secret'], 'the secret is short; use 32 characters or more, e.g. from `openssl rand -hex 32`')

  if (report.errors.length > 0 || !server || !store) return fail()

  for (const section of OPTION_SECTIONS.keys()) delete sections[section]
  const config: GatewayConfig = {
    // No section is missing here: a section with a fault has added an error, and the function has returned above.
    ...(sections as Sections),
    files: source.files,
    server,
    store,
    ledger: resolveLedger(sections.ledger!, store, source),
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

/**
 * Checks that the search provider exists which the section `web_search` (version 1) or a `web-search` entry of a
 * pipeline names.
 */
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

/** Warns of listed models whose requests with a web search nobody can serve: no backend, and not the gateway. */
function warnOfNoSearch(
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

/** The checked sections, with the two of version 1 that hold the options of plugins. */
type ReadSections = Partial<Sections> & { [section: string]: unknown }

/** Checks every section that has one schema. Sections with a fault are left out of the result. */
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

/**
 * @returns all plugins (built-in ones and those of the configuration's files), the files that were loaded, and the names
 * of the files that did not load
 */
async function readPlugins(
  files: readonly string[],
  source: ConfigSource,
  options: LoadOptions,
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
function known(plugins: ReadonlyMap<string, Plugin>, { extras }: LoadOptions): PluginCatalog {
  return { get: name => plugins.get(name), keys: () => new Set([...plugins.keys(), ...(extras?.keys() ?? [])]) }
}

// ---- server and store -----------------------------------------------------------------------------------------------

function resolveServer(
  raw: Sections['server'],
  source: ConfigSource,
  options: LoadOptions,
  report: Report,
): ServerConfig {
  const admin = typeof raw.admin === 'string' ? { ...defaultsOf(adminMembers), listen: raw.admin } : raw.admin
  const listen = parseListen(raw.listen)!
  const adminListen = parseListen(admin.listen)!
  const token = admin.token || undefined
  const tokens = admin.tokens.map(one => ({ ...one, sha256: one.sha256.toLowerCase() }))
  for (const [i, { name, sha256 }] of tokens.entries()) {
    const twin = tokens.findIndex(other => other.name === name || other.sha256 === sha256)
    if (twin < i)
      report.error(['server', 'admin', 'tokens', i], `an earlier token has the same name or digest; each needs its own`)
  }
  if (!isLoopback(adminListen.host) && !token && tokens.length === 0) {
    report.error(
      ['server', 'admin'],
      `the admin pages would be open to the network on ${admin.listen}; bind them to 127.0.0.1, or set a token: admin: { listen: ${admin.listen}, token: "\${ADMIN_TOKEN}" }`,
    )
  }
  const workers = raw.workers === 'auto' ? (options.cores ?? availableParallelism()) : raw.workers
  if (workers > 1 && listen.port === 0)
    report.error(['server', 'listen'], `${workers} workers share one port: name it, instead of 0`)
  if (
    listen.port !== 0 &&
    listen.port === adminListen.port &&
    (listen.host === adminListen.host || adminListen.host === '0.0.0.0' || listen.host === '0.0.0.0')
  ) {
    report.error(
      ['server', 'admin'],
      `the admin pages and the public surfaces cannot share port ${listen.port}; give admin another one`,
    )
  }
  return {
    ...raw,
    listen,
    admin: {
      ...adminListen,
      ...(token ? { token } : {}),
      hosts: admin.hosts,
      tokens,
      audit: admin.audit,
    },
    workers,
    tls: raw.tls && absolutePaths(raw.tls, ['server', 'tls'], new Report(source)),
  }
}

function resolveStore(raw: Sections['store'], source: ConfigSource): GatewayConfig['store'] {
  const store = typeof raw === 'string' ? { ...defaultsOf(storeMembers), url: raw } : raw
  const folder = /^local(?::(.+))?$/s.exec(store.url)
  if (folder) return { ...store, url: `local:${source.resolvePath(['store'], folder[1] ?? './data')}` }
  const file = /^sqlite:(?!:memory:)(.+)$/s.exec(store.url)?.[1]
  return file === undefined ? store : { ...store, url: `sqlite:${source.resolvePath(['store'], file)}` }
}

/**
 * The folder of a target is relative to the file that names it. The ledger of a local store is in memory, so its rows go
 * to files where they are told to go nowhere else.
 */
function resolveLedger(
  ledger: Sections['ledger'],
  store: GatewayConfig['store'],
  source: ConfigSource,
): GatewayConfig['ledger'] {
  if (!ledger.ship && store.url.startsWith('local:'))
    return { ...ledger, ship: { ...defaultsOf(ship), to: `file:${store.url.slice('local:'.length)}/ledger` } }
  const folder = /^file:(.+)$/s.exec(ledger.ship?.to ?? '')?.[1]
  if (!ledger.ship || folder === undefined) return ledger
  return { ...ledger, ship: { ...ledger.ship, to: `file:${source.resolvePath(['ledger', 'ship', 'to'], folder)}` } }
}

/** A look for new rows, and a try to reach a target that is out, cost something; more often than this is a mistake. */
const LEAST_INTERVAL_MS = 1000

/** One prompt of a megabyte makes an event-loop turn as long. */
const LEAST_OVERLOAD_DELAY_MS = 20

function checkLedger({ keep, ship }: Sections['ledger'], store: GatewayConfig['store'], report: Report): void {
  if (keep === null && ship && store.url.startsWith('local:'))
    report.warn(
      ['ledger', 'keep'],
      'ledger rows stay in the memory of the local store for ever, about 200 MB a million, and a full store refuses; set how long they are kept, e.g. 30d, or leave out `ship`: then they go to files',
    )
  if (!ship) return
  if (store.url === 'sqlite::memory:')
    report.error(['ledger', 'ship'], 'a ledger in memory cannot be shipped; name a file or a Redis in `store`')
  if (ship.interval < LEAST_INTERVAL_MS) report.error(['ledger', 'ship', 'interval'], 'at least 1s')
}

/** Checks that need more than one section. */
function checkTogether(
  server: ServerConfig,
  store: GatewayConfig['store'],
  organizations: GatewayConfig['organizations'],
  report: Report,
): void {
  if (server.workers > 1 && store.url.startsWith('sqlite:')) {
    report.error(
      ['server', 'workers'],
      `${server.workers} workers cannot share an sqlite store: each would count limits by itself, and N workers would admit N times as much. Use workers: 1, or store: local, or a redis store`,
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

/**
 * Checks that every named certificate file can be read, so that a missing one fails the load and not the first
 * connection.
 */
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
  for (const { name, auth } of Object.values(providers)) {
    // A federated token's file may appear only after the start.
    if (auth?.kind === 'google') named.push([['providers', name, 'auth', 'google'], { credentials: auth.credentials }])
  }
  for (const [path, tls] of named) {
    const texts: Record<string, string> = {}
    for (const [key, file] of Object.entries(tls ?? {})) {
      if (file === undefined) continue
      try {
        texts[key] = await read(file)
      } catch (cause) {
        report.error([...path, key], `cannot read ${file} (${(cause as NodeJS.ErrnoException).code ?? cause})`)
      }
    }
    if (path[0] === 'providers') checkPems(path, texts, report)
  }
}

/** Checks what a provider's TLS files hold, so that a wrong one fails the load and not every connection. */
function checkPems(path: string[], { ca, cert, key }: Record<string, string>, report: Report): void {
  const attempt = (member: string, message: string, use: () => unknown) => {
    try {
      use()
    } catch (cause) {
      report.error([...path, member], `${message} (${(cause as NodeJS.ErrnoException).code ?? cause})`)
    }
  }
  // OpenSSL takes any text for authorities, and then trusts nobody.
  if (ca !== undefined) attempt('ca', 'it holds no certificate in PEM', () => new X509Certificate(ca))
  if (cert !== undefined && key !== undefined)
    attempt('cert', 'it is no PEM certificate that fits the key', () => createSecureContext({ cert, key }))
}

/** Checks that the optional packages are installed that the providers need. */
function checkPackages(providers: GatewayConfig['providers'], dialects: DialectFacts, report: Report): void {
  const packages = ({ auth, dialect, variant }: GatewayConfig['providers'][string]) => [
    ...(auth ? AUTH_PACKAGES[auth.kind] : []),
    ...(dialects[dialect]?.variants?.[variant ?? '']?.packages ?? []),
  ]
  // One command names all of them: npm removes what an earlier one installed.
  const all = [...new Set(Object.values(providers).flatMap(packages))]
  for (const provider of Object.values(providers)) {
    const missing = packages(provider).filter(name => !isInstalled(name))
    if (missing.length === 0) continue
    const message = `it needs ${missing.join(' and ')}, not installed here; run ${installCommand(all)}`
    report.error(['providers', provider.name], message, 'key')
  }
}
