/** Reads `providers` and `models`: what is served, by whom, at what price. */
import type { Backend, Dialect } from '../core/ports/dialect.ts'
import type { Arrives } from '../core/tools/vocabulary.ts'
import { place } from './check-chain.ts'
import { absolutePaths } from './files.ts'
import { installCommand, isInstalled } from './modules.ts'
import { type PresetFacts, withPreset, withQuirks } from './presets.ts'
import { readCost, readPrice, warnOfOtherRates } from './prices.ts'
import type { Report } from './report.ts'
import { type backend as backendSchema, model as modelSchema, type Names, provider, withNames } from './schema.ts'
import type { Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { Limits, ModelConfig, OrganizationConfig, ProviderConfig, VendorAuth } from './types.ts'

/**
 * What loading must know about each dialect, by name. The caller passes it in, because config/ may not import
 * providers/.
 */
export type DialectFacts = Readonly<Record<string, Facts & { readonly variants?: Readonly<Record<string, Facts>> }>>
type Facts = Pick<Dialect, 'capabilities' | 'embeddings' | 'keyless' | 'outputCap' | 'packages' | 'settings'> & {
  /** Of the dialect of a file: the number of the load that brought it. */
  readonly load?: number
}

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const OWN_HEADERS = ['host', 'content-length', 'transfer-encoding', 'connection', 'content-type']

export function readProviders(
  raw: Record<string, unknown>,
  names: Names,
  dialects: DialectFacts,
  presets: PresetFacts,
  report: Report,
): Record<string, ProviderConfig> {
  const providerSchema = withNames(provider, names)
  const providers: Record<string, ProviderConfig> = {}
  for (const [name, value] of Object.entries(raw)) {
    const path = ['providers', name]
    const filled = withPreset(value, path, presets, report)
    const checked = filled === null ? null : report.check(providerSchema, withAuth(filled), path, name)
    if (!checked) continue
    const { rest: provider, settings } = apart(checked, names.settings.provider)
    const headers: Record<string, string> = {}
    for (const [header, text] of Object.entries(provider.headers)) {
      if (!HEADER_NAME.test(header)) report.error([...path, 'headers', header], `'${header}' is no header name`, 'key')
      if (OWN_HEADERS.includes(header.toLowerCase())) {
        report.error([...path, 'headers', header], `${header} is set by the gateway for each request; remove it`, 'key')
      }
      headers[header.toLowerCase()] = text
    }
    if (provider.tls && (provider.tls.cert === undefined) !== (provider.tls.key === undefined)) {
      report.error([...path, 'tls'], 'a client certificate needs both cert and key')
    }
    checkVariant(provider, path, dialects, report)
    const { auth, key_header } = readAuth(provider, path, report)
    providers[name] = {
      ...provider,
      dialectLoad: dialects[provider.dialect]?.load,
      settings,
      auth,
      key_header,
      name,
      base_url: provider.base_url.replace(/\/+$/, ''),
      api_key: provider.api_key || undefined,
      headers,
      tls: provider.tls && absolutePaths(provider.tls, [...path, 'tls'], report),
      at: report.source.position(path, 'key'),
    }
  }
  return providers
}

/** The members that the dialects declare, apart from the rest. */
function apart<T extends object>(entry: T, declared: object): { rest: T; settings: Record<string, unknown> } {
  const rest: Record<string, unknown> = {}
  const settings: Record<string, unknown> = {}
  for (const [key, value] of Object.entries(entry)) (Object.hasOwn(declared, key) ? settings : rest)[key] = value
  return { rest: rest as T, settings }
}

function checkVariant(
  { dialect, variant, api_version }: Arrives<typeof provider>,
  path: Path,
  dialects: DialectFacts,
  report: Report,
): void {
  if (variant !== undefined) {
    const known = Object.keys(dialects[dialect]?.variants ?? {})
    if (!known.includes(variant)) {
      const cure = didYouMean(variant, known) || `; it has ${known.join(', ') || 'none'}`
      report.error([...path, 'variant'], `the ${dialect} dialect has no variant '${variant}'${cure}`)
    }
  }
  const versioned = variant === 'azure-deployments'
  if (versioned && api_version === undefined)
    report.error(path, 'the variant azure-deployments needs api_version, e.g. 2024-10-21', 'key')
  if (!versioned && api_version !== undefined)
    report.error([...path, 'api_version'], 'only the variant azure-deployments has an api_version; remove it', 'key')
}

/** `auth: aws` means `auth: { aws: {} }`, whose members then get their defaults. */
function withAuth(value: unknown): unknown {
  const auth = (value as { auth?: unknown } | null)?.auth
  return auth === 'aws' || auth === 'google' || auth === 'azure'
    ? { ...(value as object), auth: { [auth]: {} } }
    : value
}

type Credentials = Pick<ProviderConfig, 'auth' | 'key_header'>

/** Reads `auth` and checks what it needs. A fault is reported, and the result is then not used. */
function readAuth({ api_key, auth: raw, headers }: Arrives<typeof provider>, path: Path, report: Report): Credentials {
  const at = [...path, 'auth']
  if (raw === undefined) return { auth: null, key_header: undefined }
  const [kind, ...more] = typeof raw === 'string' ? [raw] : Object.keys(raw)
  if (kind === undefined || more.length > 0) {
    report.error(at, 'auth takes one of bearer, { header: NAME }, aws, google and azure')
    return { auth: null, key_header: undefined }
  }
  const set = typeof raw === 'string' ? {} : raw
  const keyed =
    kind === 'azure' && api_key !== undefined
      ? 'api-key'
      : kind === 'bearer'
        ? 'authorization'
        : set.header?.toLowerCase()
  const header = keyed ?? 'authorization'
  const own = Object.keys(headers).find(name => name.toLowerCase() === header)
  if (own !== undefined)
    report.error([...path, 'headers', own], `auth sets ${own} as well; remove one of the two`, 'key')
  if (keyed !== undefined) {
    if (OWN_HEADERS.includes(keyed))
      report.error(at, `${keyed} is set by the gateway for each request; name another header`)
    if (!api_key) report.warn(at, 'auth names a header for api_key, and there is no api_key; requests go without')
    return { auth: null, key_header: { name: keyed, prefix: kind === 'bearer' ? 'Bearer ' : '' } }
  }
  if (api_key) report.error([...path, 'api_key'], `auth: ${kind} has credentials of its own; remove api_key`, 'key')
  return { auth: vendorAuth(kind as VendorAuth['kind'], set, at, report), key_header: undefined }
}

function vendorAuth(
  kind: VendorAuth['kind'],
  set: Exclude<Arrives<typeof provider>['auth'], string | undefined>,
  path: Path,
  report: Report,
): VendorAuth {
  const at = [...path, kind]
  const inFile = (key: 'credentials' | 'token_file', file: string | undefined) =>
    file === undefined ? {} : { [key]: report.source.resolvePath([...at, key], file) }
  if (kind === 'aws') {
    const aws = set.aws!
    if (!aws.region) report.error(path, 'auth: aws needs a region: { aws: { region: us-east-1 } }')
    if (!aws.access_key_id !== !aws.secret_access_key)
      report.error(at, 'access_key_id and secret_access_key belong together; set both or none')
    if (aws.access_key_id && aws.profile) report.error(at, 'access_key_id and profile are two credentials; remove one')
    return { kind, ...aws, region: aws.region ?? '' }
  }
  if (kind === 'google') {
    const google = set.google!
    return { kind, ...google, ...inFile('credentials', google.credentials) }
  }
  const azure = set.azure!
  const secrets = [azure.client_secret, azure.token_file].filter(Boolean).length
  if (azure.tenant_id ? secrets !== 1 || !azure.client_id : secrets > 0)
    report.error(at, 'an application needs tenant_id, client_id and either client_secret or token_file')
  return { kind, ...azure, ...inFile('token_file', azure.token_file) }
}

/** Checks that the optional packages are installed that the providers need. */
export function checkPackages(
  providers: Record<string, ProviderConfig>,
  dialects: DialectFacts,
  authPackages: Readonly<Record<string, readonly string[]>>,
  report: Report,
): void {
  const packages = ({ auth, dialect, variant }: ProviderConfig) => [
    ...((auth && authPackages[auth.kind]) ?? []),
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

/**
 * @param providerNames names of all providers in the file, including those that have a fault and are not in `providers`
 */
export function readModels(
  raw: Record<string, unknown>,
  providers: Record<string, ProviderConfig>,
  providerNames: readonly string[],
  names: Names,
  dialects: DialectFacts,
  presets: PresetFacts,
  report: Report,
): Record<string, ModelConfig> {
  const schema = withNames(modelSchema, names)
  const models: Record<string, ModelConfig> = {}
  const aliases = new Map<string, string>()
  for (const [id, value] of Object.entries(raw)) {
    const path = ['models', id]
    const checked = report.check(schema, withQuirks(value, providers, presets), path, id)
    if (!checked) continue
    const own = aliasesOf(checked, path, names.surfaces, report)
    for (const { alias, at } of own) {
      const owner = Object.hasOwn(raw, alias) ? alias : aliases.get(alias)
      if (owner !== undefined) {
        const what = owner === alias ? 'is a model of its own' : `is already an alias of ${owner}`
        const where = place(report.source.position(['models', owner], 'key'), report.source.position(at))
        report.error(at, `the alias '${alias}' of ${id} ${what} (${where}); an id means one model`)
      } else aliases.set(alias, id)
    }
    const backends = checked.backends.map((backend, i) =>
      resolveBackend(
        backend,
        checked.max_output_tokens,
        [...path, 'backends', i],
        providers,
        providerNames,
        names,
        dialects,
        report,
      ),
    )
    const usable = backends.filter(b => b !== null)
    checkOutputRates(checked, id, path, report)
    if (checked.serves === 'embeddings') checkEmbeddings(usable, path, dialects, report)
    const assumed = usable.find(({ dialect }) => dialects[dialect]!.outputCap !== undefined)
    if (assumed && checked.max_output_tokens === null && checked.serves === 'text') {
      const { dialect } = assumed
      report.warn(
        path,
        `${id} has no max_output_tokens, and ${dialect} needs an output cap: a request that names none, and for which no limit sets one, is sent with ${dialects[dialect]!.outputCap}. Set max_output_tokens to what the upstream model takes`,
        'key',
      )
    }
    const at = [...path, 'price']
    const written = checked.price && { ...checked.price, output: checked.price.output ?? 0 }
    if (written) warnOfOtherRates(written, (member, message) => report.warn([...at, ...member], message))
    const price = written && readPrice(written, undefined, (member, words) => report.error([...at, ...member], words))
    models[id] = {
      ...checked,
      id,
      aliases: own.map(({ alias }) => alias),
      price,
      backends: usable,
      at: report.source.position(path, 'key'),
    }
  }
  return models
}

/** Text has a rate for output, in the price and in the costs of its backends; embeddings have none. */
function checkOutputRates(
  { serves, price, backends }: Arrives<typeof modelSchema>,
  id: string,
  path: Path,
  report: Report,
): void {
  const costs = backends.map(({ cost }, i) => ['cost', [...path, 'backends', i, 'cost'], cost] as const)
  for (const [what, at, rates] of [['price', [...path, 'price'], price] as const, ...costs]) {
    if (serves === 'embeddings' && rates?.output)
      report.error([...at, 'output'], `a model for embeddings writes no output; remove its ${what}`)
    if (serves === 'text' && rates && rates.output === undefined)
      report.error(at, `the ${what} of ${id} needs 'output', in USD per million tokens`, 'key')
  }
}

function checkEmbeddings(backends: readonly Backend[], path: Path, dialects: DialectFacts, report: Report): void {
  const able = Object.keys(dialects).filter(name => dialects[name]!.embeddings)
  for (const [i, { dialect }] of backends.entries())
    if (!able.includes(dialect))
      report.error(
        [...path, 'backends', i],
        `the ${dialect} dialect makes no embeddings; name a provider that speaks ${able.join(' or ')}`,
      )
}

/** All aliases of a model, each once, with their places: those that are never listed, then those of each surface. */
function aliasesOf(
  { aliases, listed_aliases }: Arrives<typeof modelSchema>,
  path: Path,
  surfaces: readonly string[],
  report: Report,
): { alias: string; at: Path }[] {
  const found = new Map(aliases.map((alias, i) => [alias, [...path, 'aliases', i]]))
  for (const [surface, listed] of Object.entries(listed_aliases)) {
    const at = [...path, 'listed_aliases', surface]
    if (!surfaces.includes(surface)) {
      const cure = didYouMean(surface, surfaces) || `; surfaces: ${surfaces.join(', ')}`
      report.error(at, `there is no surface '${surface}'${cure}`, 'key')
    }
    for (const [i, alias] of listed.entries()) if (!found.has(alias)) found.set(alias, [...at, i])
  }
  return [...found].map(([alias, at]) => ({ alias, at }))
}

/**
 * Warns of models without `max_output_tokens` where a limit of an account sets the cap of requests that name none: it
 * may be up to the rest of the window, which is often more than a provider takes as a cap (decision 50).
 */
export function warnOfComputedCaps(
  models: Record<string, ModelConfig>,
  organizations: Record<string, OrganizationConfig>,
  dialects: DialectFacts,
  report: Report,
): void {
  for (const model of Object.values(models)) {
    if (model.max_output_tokens !== null || model.serves !== 'text') continue
    // The simulator takes any cap; a dialect with a cap of its own has its own warning.
    const real = model.backends.filter(({ baseUrl }) => baseUrl !== 'simulator')
    if (real.length === 0 || real.some(({ dialect }) => dialects[dialect]!.outputCap !== undefined)) continue
    for (const organization of Object.values(organizations)) {
      const limit = capSetBy(organization, model)
      if (limit === undefined) continue
      report.warn(
        ['models', model.id],
        `${model.id} has no max_output_tokens, and ${limit} of organization ${organization.id} sets the output cap of a request that names none: up to the rest of the window, which an upstream may refuse. Set max_output_tokens to what the upstream model takes`,
        'key',
      )
      break
    }
  }
}

/** The limit of an organization or one of its keys from which a cap is computed; undefined when there is none. */
function capSetBy({ billing, limits, model_limits, keys }: OrganizationConfig, model: ModelConfig): string | undefined {
  const priced = model.price !== null && billing !== 'free'
  const sources = [limits, model_limits[model.id], ...keys.flatMap(key => [key.limits, key.model_limits[model.id]])]
  // A limit of 0 refuses, and sets no cap.
  const set = (name: keyof Limits) => sources.some(source => (source?.[name] ?? 0) > 0)
  if (set('max_output_tokens')) return undefined
  const names: (keyof Limits)[] = ['max_request_tokens']
  if (priced) names.push('max_request_usd', 'daily_spend_usd', 'monthly_spend_usd')
  return names.find(set)
}

/**
 * A backend with everything that it takes from its provider. Null when its provider is unknown (reported here) or has a
 * fault (reported before).
 */
function resolveBackend(
  raw: Arrives<typeof backendSchema>,
  maxOutputTokens: number | null,
  path: Path,
  providers: Record<string, ProviderConfig>,
  providerNames: readonly string[],
  names: Names,
  dialects: DialectFacts,
  report: Report,
): Backend | null {
  if (!providerNames.includes(raw.provider)) {
    const cure = didYouMean(raw.provider, providerNames) || `; providers: ${providerNames.join(', ') || 'none'}`
    report.error([...path, 'provider'], `there is no provider '${raw.provider}'${cure}`)
    return null
  }
  const provider = providers[raw.provider]
  if (!provider) return null
  const dialect = dialects[provider.dialect]!
  // A variant that does not exist was reported with its provider.
  const { capabilities: expressible, keyless } = dialect.variants?.[provider.variant ?? ''] ?? dialect
  const supports = new Set(raw.supports ? raw.supports.filter(c => expressible.has(c)) : expressible)
  const lost = raw.supports?.filter(c => !expressible.has(c)) ?? []
  if (lost.length > 0)
    report.warn(
      [...path, 'supports'],
      `the ${provider.dialect} dialect has no ${lost.join(', ')}: left out for this backend`,
    )
  if (!provider.api_key && !provider.auth && provider.base_url.startsWith('https:') && !keyless) {
    report.warn(
      [...path, 'provider'],
      `provider ${provider.name} has no api_key; requests to it will be refused upstream`,
    )
  }
  return {
    ...modelAt(provider, raw.model),
    weight: raw.weight,
    group: raw.group,
    supports,
    nativeTools: new Set(raw.native_tools),
    effortCeiling: raw.effort_ceiling ?? undefined,
    contextWindow: raw.context_window ?? undefined,
    maxOutputTokens: maxOutputTokens ?? undefined,
    settings: { provider: provider.settings, backend: apart(raw, names.settings.backend).settings },
    ...(raw.cost && { cost: readCost(raw.cost, (at, words) => report.error([...path, 'cost', ...at], words)) }),
  }
}

/** What a backend takes from its provider. */
export function modelAt(provider: ProviderConfig, model: string) {
  return {
    id: `${provider.name}/${model}`,
    provider: provider.name,
    dialect: provider.dialect,
    dialectLoad: provider.dialectLoad,
    variant: provider.variant,
    apiVersion: provider.api_version,
    baseUrl: provider.base_url,
    apiKey: provider.api_key,
    keyHeader: provider.key_header,
    headers: provider.headers,
    model,
  } satisfies Partial<Backend>
}
