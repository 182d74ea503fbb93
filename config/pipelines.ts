/**
 * Reads `pipelines` and `routes`: the three ways to write an entry, the options of plugins, and the references between
 * sections.
 */

import { isDeepStrictEqual } from 'node:util'
import { ANY_SURFACE } from '../core/canon/conversation.ts'
import type { PipelineEntry } from '../core/engine/chain.ts'
import { conversation, request, type Slot } from '../core/plugin.ts'
import { type ChainToCheck, chainWarnings, checkChain, fills, type PluginCatalog, place } from './check-chain.ts'
import { NO_OPTIONS } from './options.ts'
import type { Report } from './report.ts'
import { fullEntry, type Names, route as openRoute, withNames } from './schema.ts'
import type { Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { GatewayConfig, RouteConfig } from './types.ts'
import { IMPLIED_PLUGINS, withImplied } from './version-1.ts'

/** The former prefix of the API: requests below it are 410 (GEN-4), so no route may have it. */
export const RETIRED_API = { prefix: '/v24b/v1', use: '/v1' } as const

/**
 * Reads and checks every pipeline. A pipeline with an entry that cannot be read is left out of the result.
 * @param version that of the file; undefined when it has none that can be read
 * @param options the sections of version 1 that hold the options of plugins
 * @param broken names of plugin files that did not load; their own errors are already reported
 */
export function readPipelines(
  raw: unknown,
  version: number | undefined,
  options: Record<string, unknown>,
  catalog: PluginCatalog,
  broken: ReadonlySet<string>,
  report: Report,
): Record<string, PipelineEntry[]> {
  const pipelines: Record<string, PipelineEntry[]> = {}
  if (raw === undefined) return pipelines
  if (!report.mapping(raw, ['pipelines'])) return pipelines
  for (const [name, list] of Object.entries(raw)) {
    const path = ['pipelines', name]
    if (!Array.isArray(list)) {
      report.error(path, `pipeline ${name} must be a list of plugins, each on a line of its own after a hyphen`, 'key')
      continue
    }
    const entries: PipelineEntry[] = []
    for (const [i, item] of list.entries()) {
      const entry = readEntry(item, [...path, i], catalog, report)
      if (entry) entries.push(entry)
    }
    // A chain without one of its entries would only give errors that follow from the missing entry.
    if (entries.length !== list.length || entries.some(entry => broken.has(entry.plugin))) continue
    const whole = version === 2 ? entries : impliedIn(entries, version, options, catalog, report)
    const chain: ChainToCheck = { name, at: report.source.position(path, 'key'), entries: whole }
    for (const error of checkChain(chain, catalog)) report.push(error)
    for (const warning of chainWarnings(chain, catalog)) report.warnings.push(warning)
    pipelines[name] = whole
  }
  return pipelines
}

/** Names of all pipelines in the file, including those with a fault. */
export function namesIn(raw: unknown): string[] {
  return typeof raw === 'object' && raw !== null ? Object.keys(raw) : []
}

/** Adds the plugins that version 1 implies. In version 1 their places are fixed, so one that is written is an error. */
function impliedIn(
  entries: readonly PipelineEntry[],
  version: number | undefined,
  options: Record<string, unknown>,
  catalog: PluginCatalog,
  report: Report,
): PipelineEntry[] {
  for (const { plugin, at } of entries) {
    if (version !== 1 || !IMPLIED_PLUGINS.includes(plugin)) continue
    const message = `${plugin} is implied by version: 1 and is not written; remove this line, or start the file with version: 2 and write ${IMPLIED_PLUGINS.join(', ')} (docs/configuration.md)`
    report.push({ ...at, message })
  }
  return withImplied(entries, options, catalog)
}

function readEntry(item: unknown, path: Path, catalog: PluginCatalog, report: Report): PipelineEntry | null {
  const at = report.source.position(path)
  if (typeof item === 'string')
    return withOptions({ plugin: item, id: item, on_failure: 'deny', config: {}, at }, path, path, catalog, report)
  if (typeof item !== 'object' || item === null || Array.isArray(item)) {
    report.error(path, 'a pipeline entry is a plugin name, `name: {options}`, or { plugin, id, on_failure, config }')
    return null
  }
  const members = item as Record<string, unknown>
  if ('plugin' in members) {
    const full = report.check(fullEntry, members, path, 'entry')
    if (!full) return null
    const { plugin, id, on_failure, config } = full as unknown as PipelineEntry
    return withOptions({ plugin, id: id ?? plugin, on_failure, config, at }, path, [...path, 'config'], catalog, report)
  }
  const names = Object.keys(members)
  const [plugin] = names
  if (names.length !== 1 || plugin === undefined) {
    const own = names.find(name => catalog.get(name))
    const cure =
      own && members[own] === null
        ? `indent its options further than ${own}, or write ${own}: { … }`
        : 'write one plugin after each hyphen'
    report.error(path, `this entry has ${names.length} keys (${names.join(', ')}); ${cure}`)
    return null
  }
  const options = members[plugin] ?? {}
  if (typeof options !== 'object' || Array.isArray(options)) {
    report.error([...path, plugin], `the options of ${plugin} must be a mapping: ${plugin}: { option: value }`)
    return null
  }
  return withOptions(
    { plugin, id: plugin, on_failure: 'deny', config: options as Record<string, unknown>, at },
    path,
    [...path, plugin],
    catalog,
    report,
  )
}

function withOptions(
  entry: PipelineEntry,
  path: Path,
  options: Path,
  catalog: PluginCatalog,
  report: Report,
): PipelineEntry | null {
  const plugin = catalog.get(entry.plugin)
  if (!plugin) return entry
  let checked: unknown
  try {
    checked = report.check(plugin.config ?? NO_OPTIONS, entry.config, options, entry.plugin)
  } catch (cause) {
    report.error(
      path,
      `the options schema of plugin ${entry.plugin} is not valid JSON Schema: ${(cause as Error).message}`,
    )
    return null
  }
  return checked === null ? null : { ...entry, config: checked as Record<string, unknown> }
}

// ---- routes ---------------------------------------------------------------------------------------------------------

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'ANY']
/**
 * Slots that are filled from a request in the format of a surface. A route to a plugin that provides one needs a
 * surface.
 */
const SURFACE_SLOTS = [conversation.name, request.name]

/**
 * Reads every route.
 * @param pipelines the pipelines that could be read
 * @param pipelineNames names of all pipelines in the file, including those with a fault
 */
export function readRoutes(
  raw: unknown,
  pipelines: Record<string, PipelineEntry[]>,
  pipelineNames: readonly string[],
  catalog: PluginCatalog,
  names: Names,
  report: Report,
): RouteConfig[] {
  const routes: RouteConfig[] = []
  if (raw === undefined) return routes
  if (!Array.isArray(raw)) {
    report.error(
      ['routes'],
      'routes must be a list such as - { match: POST /v1/responses, surface: responses, pipeline: completions }',
      'key',
    )
    return routes
  }
  const routeSchema = withNames(openRoute, names)
  const seen = new Map<string, RouteConfig>()
  for (const [i, item] of raw.entries()) {
    const path = ['routes', i]
    const checked = report.check(routeSchema, item, path, 'route')
    if (!checked) continue
    const { match, surface, pipeline } = checked
    const [method = '', target = ''] = match.split(/ +/)
    const route: RouteConfig = { method, path: target, surface, pipeline, at: report.source.position(path) }
    const fault = routeFault(method, target)
    if (fault) report.error([...path, 'match'], fault)
    const twin = seen.get(`${method} ${target}`)
    if (twin)
      report.error(
        [...path, 'match'],
        `${method} ${target} is already matched (${place(twin.at, route.at)}); remove one of the two`,
      )
    else seen.set(`${method} ${target}`, route)
    if (!pipelineNames.includes(pipeline)) {
      const cure = didYouMean(pipeline, pipelineNames) || `; pipelines: ${pipelineNames.join(', ') || 'none'}`
      report.error([...path, 'pipeline'], `there is no pipeline '${pipeline}'${cure}`)
    }
    const entries = Object.hasOwn(pipelines, pipeline) ? pipelines[pipeline]! : []
    const speaks = entries.find(entry => catalog.get(entry.plugin)?.provides?.some(s => SURFACE_SLOTS.includes(s.name)))
    if (speaks && surface === undefined) {
      report.error(
        path,
        `this route needs a surface (${names.surfaces.join(', ').replace(/, ([^,]*)$/, ' or $1')}): ${speaks.id} of pipeline ${pipeline} reads requests in its format`,
      )
    }
    const answers =
      surface === ANY_SURFACE
        ? entries.map(({ plugin }) => catalog.get(plugin)).find(plugin => plugin?.terminal)
        : undefined
    if (answers && !answers.postOnly)
      report.error(
        [...path, 'surface'],
        `${answers.name} of pipeline ${pipeline} answers in the form of one surface; \`${ANY_SURFACE}\` is for a question whose answer is the same on each. Name the surface, and give each a path of its own`,
      )
    routes.push(route)
  }
  for (const name of pipelineNames) {
    const used = raw.some(item => (item as { pipeline?: unknown } | null)?.pipeline === name)
    if (!used) report.warn(['pipelines', name], `no route uses pipeline ${name}`, 'key')
  }
  return routes
}

function routeFault(method: string, path: string): string | null {
  if (!METHODS.includes(method))
    return `'${method}' is no method; one of ${METHODS.join(', ')}${didYouMean(method, METHODS)}`
  if (/[?#]/.test(path)) return 'a route matches the path alone; leave out the query'
  if (path.slice(0, -1).includes('*') || (path.endsWith('*') && !path.endsWith('/*')))
    return 'a * may only stand last, after a slash: /v1/files/*'
  if (path === '/*')
    return 'a route over every path would take the built-in ones too; name a prefix such as /v1/files/*'
  if (path === RETIRED_API.prefix || path.startsWith(`${RETIRED_API.prefix}/`))
    return `${RETIRED_API.prefix} is retired and answers 410 by itself; remove this route`
  const probe =
    (path === '/' && method === 'HEAD') || (path === '/api/hello' && ['GET', 'HEAD', 'ANY'].includes(method))
  if (probe) return `${method} ${path} is a built-in probe, which answers 200 by itself; remove this route`
  return null
}

/** Runs every plugin's own `check` over the finished configuration; each message is an error at the entry's line. */
export function checkByPlugins(config: GatewayConfig, catalog: PluginCatalog, report: Report): void {
  for (const entry of Object.values(config.pipelines).flat()) {
    for (const message of catalog.get(entry.plugin)?.check?.(entry.config, config) ?? [])
      report.push({ ...entry.at, message: `${entry.id}: ${message}` })
  }
}

/**
 * Warns of a pipeline that foretells what another one does, and whose plugins are not those of any that serves the same
 * surface: it would admit what is refused there, or count what is not sent.
 */
export function warnOfOtherPlugins(
  pipelines: Record<string, PipelineEntry[]>,
  routes: readonly RouteConfig[],
  catalog: PluginCatalog,
  report: Report,
): void {
  const terminalOf = (name: string) =>
    pipelines[name]?.map(({ plugin }) => catalog.get(plugin)).find(plugin => plugin?.terminal)
  for (const name of Object.keys(pipelines)) {
    const foretold = terminalOf(name)?.foretells
    if (!foretold) continue
    const own = deciding(pipelines[name]!, foretold, catalog)
    const told = new Set<string>()
    for (const surface of new Set(routes.filter(({ pipeline }) => pipeline === name).map(route => route.surface))) {
      const serving = routes.filter(route => route.surface === surface && terminalOf(route.pipeline)?.calls)
      const differences = serving.map(({ pipeline }) => ({
        pipeline,
        plugins: differing(own, deciding(pipelines[pipeline]!, foretold, catalog)),
      }))
      if (differences.some(({ plugins }) => plugins.length === 0)) continue
      for (const { pipeline, plugins } of differences) {
        if (told.has(pipeline)) continue
        told.add(pipeline)
        const what = `${plugins.join(', ')} ${plugins.length === 1 ? 'stands' : 'stand'} in one of the two alone, or with other options`
        report.warn(
          ['pipelines', name],
          `pipeline ${name} tells what ${pipeline} would do with a request, and is another: ${what}. Write the same in both`,
          'key',
        )
      }
    }
  }
}

/** The entries above the terminal by which it is decided what becomes of a request, by plugin. */
function deciding(entries: readonly PipelineEntry[], foretold: readonly Slot<any>[], catalog: PluginCatalog) {
  const above = entries.slice(
    0,
    entries.findIndex(({ plugin }) => catalog.get(plugin)?.terminal),
  )
  const found = above.filter(entry => {
    const { provides = [], rewrites = [] } = catalog.get(entry.plugin) ?? {}
    return provides.length + rewrites.length > 0 && !provides.some(slot => fills(foretold, slot))
  })
  return new Map(found.map(({ plugin, config }) => [plugin, config]))
}

function differing(one: ReadonlyMap<string, object>, other: ReadonlyMap<string, object>): string[] {
  const all = new Set([...one.keys(), ...other.keys()])
  return [...all].filter(plugin => !isDeepStrictEqual(one.get(plugin), other.get(plugin)))
}
