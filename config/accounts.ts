/** Reads `plans` and `organizations` with their keys: what each account may use, and its limits. */
import { isDeepStrictEqual } from 'node:util'
import { COUNTED, capacityIn, isUsd } from '../core/canon/limits.ts'
import type { Price } from '../core/canon/money.ts'
import type { Arrives } from '../core/tools/vocabulary.ts'
import { place } from './check-chain.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import { type RawPrice, readPrice, warnOfOtherRates } from './prices.ts'
import type { Report } from './report.ts'
import { key as keySchema, LIMITS, organization as organizationSchema, plan as planSchema } from './schema.ts'
import type { ConfigSource, Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import type {
  AccountCapability,
  GatewayConfig,
  KeyConfig,
  Limits,
  ModelConfig,
  OrganizationConfig,
  PlanConfig,
} from './types.ts'
import { isLoopback } from './units.ts'
import { validate } from './validate.ts'

/** SHA-256 of `sk-demo`, the key of the quickstart. */
export const DEMO_KEY_DIGEST = 'f77894fdfa58e447c57e077eaa9708e8e009c84dc6aba2db80461275e9b85be7'

const LIMIT_NAMES = Object.keys(LIMITS) as (keyof Limits)[]

/** All limits by name. A limit that is left out becomes null, which is unlimited. */
function complete(limits: Partial<Limits>): Limits {
  return Object.fromEntries(LIMIT_NAMES.map(name => [name, limits[name] ?? null])) as unknown as Limits
}

/**
 * Maps every id that a client may send (a model's own id and its aliases) to the model's own id. Models whose entry has
 * a fault are included, so that a reference to one is not reported as a second fault.
 */
export function modelIds(models: Record<string, ModelConfig>, names: readonly string[]): Map<string, string> {
  const ids = new Map(names.map(name => [name, name]))
  for (const model of Object.values(models))
    for (const alias of model.aliases) if (!ids.has(alias)) ids.set(alias, model.id)
  return ids
}

interface Rights {
  models?: 'all' | string[]
  model_limits: Record<string, Partial<Limits>>
}

/** Reports a fault of an account, with the path of the member in it. */
type TellFault = (path: Path, message: string, part?: 'key' | 'value') => void

const within =
  (report: Report, base: Path): TellFault =>
  (path, message, part) =>
    report.error([...base, ...path], message, part)

/**
 * Checks the model ids in `models` and `model_limits`, and replaces aliases by the models' own ids. Ids of no model are
 * reported and left out.
 */
function canonicalModels<T extends Rights>(rights: T, ids: ReadonlyMap<string, string>, tell: TellFault): T {
  const resolve = (id: string, at: Path, part: 'key' | 'value') => {
    const canonical = ids.get(id)
    if (canonical === undefined) tell(at, noModel(id, ids), part)
    return canonical
  }
  const model_limits: Rights['model_limits'] = {}
  for (const [id, limits] of Object.entries(rights.model_limits)) {
    const at = ['model_limits', id]
    const canonical = resolve(id, at, 'key')
    if (canonical === undefined) continue
    // A model has one set of limits here, so one of the two would be lost.
    if (Object.hasOwn(model_limits, canonical))
      tell(at, `the limits of ${canonical} stand here twice, under an alias too; write them once`, 'key')
    model_limits[canonical] = limits
  }
  if (!Array.isArray(rights.models)) return { ...rights, model_limits }
  const models = rights.models.map((id, i) => resolve(id, ['models', i], 'value'))
  return { ...rights, models: [...new Set(models)].filter(id => id !== undefined), model_limits }
}

/** Price lists by the models' own ids. Ids of no model are reported and left out. */
function readPrices(
  raw: Record<string, RawPrice>,
  list: string,
  ids: ReadonlyMap<string, string>,
  tell: TellFault,
): Record<string, Price> {
  const prices: Record<string, Price> = {}
  for (const [id, price] of Object.entries(raw)) {
    const at = ['prices', id]
    const canonical = ids.get(id)
    if (canonical === undefined) tell(at, noModel(id, ids), 'key')
    else if (Object.hasOwn(prices, canonical))
      tell(at, `the price of ${canonical} stands here twice, under an alias too; write it once`, 'key')
    else prices[canonical] = readPrice(price, list, (path, message) => tell([...at, ...path], message))
  }
  return prices
}

/** The fault of an id of no model, with its cure. */
export const noModel = (id: string, ids: ReadonlyMap<string, string>): string =>
  `there is no model '${id}'${didYouMean(id, ids.keys()) || `; models: ${[...new Set(ids.values())].join(', ') || 'none'}`}`

/**
 * The built-in plans and those of the file, by name.
 * @param raw the section `plans` as it was parsed
 */
export function readPlans(
  raw: Record<string, unknown>,
  ids: ReadonlyMap<string, string>,
  report: Report,
): Record<string, PlanConfig> {
  const plans: Record<string, PlanConfig> = {}
  for (const [name, value] of Object.entries(BUILT_IN_PLANS)) {
    const result = validate(planSchema, value, { name })
    if (result.problems) throw new Error(`built-in plan ${name}: ${result.problems[0]?.message}`)
    const plan = result.value as Arrives<typeof planSchema>
    plans[name] = { ...plan, limits: complete(plan.limits), prices: {} }
  }
  for (const [name, value] of Object.entries(raw)) {
    const path = ['plans', name]
    const checked = report.check(planSchema, value, path, name)
    if (!checked) continue
    const tell = within(report, path)
    warnOfPrices(checked.prices, path, report)
    const prices = readPrices(checked.prices, `plan:${name}`, ids, tell)
    plans[name] = { ...canonicalModels(checked, ids, tell), limits: complete(checked.limits), prices }
  }
  return plans
}

function warnOfPrices(prices: Record<string, RawPrice>, path: Path, report: Report): void {
  for (const [id, price] of Object.entries(prices))
    warnOfOtherRates(price, (at, message) => report.warn([...path, 'prices', id, ...at], message))
}

type RawKey = Arrives<typeof keySchema>

/** Each reload reads every organization of the file. Above this many, the store is the place for them. */
const MOST_IN_FILE = 1000

/** @param planNames names of all plans, including those that have a fault and are not in `plans` */
export function readOrganizations(
  raw: Record<string, unknown>,
  plans: Record<string, PlanConfig>,
  planNames: readonly string[],
  ids: ReadonlyMap<string, string>,
  report: Report,
): Record<string, OrganizationConfig> {
  const organizations: Record<string, OrganizationConfig> = {}
  const digests = new Map<string, Path>()
  for (const [id, value] of Object.entries(raw)) {
    const path = ['organizations', id]
    const checked = report.check(organizationSchema, value, path, id)
    if (!checked) continue
    if (!planNames.includes(checked.plan)) {
      const cure = didYouMean(checked.plan, planNames) || `; plans: ${planNames.join(', ')}`
      report.error([...path, 'plan'], `there is no plan '${checked.plan}'${cure}`)
      continue
    }
    const plan = plans[checked.plan]
    if (!plan) continue
    const organization = resolved(id, checked, plan, ids, within(report, path))
    warnOfPrices(checked.prices, path, report)
    warnOfWideUsers(checked.user_limits, organization.limits, id, path, report)
    for (const [i, { until }] of checked.raises.entries())
      if (until <= Date.now()) report.warn([...path, 'raises', i], 'this raise has ended; take it out')
    const zero = (['daily_spend_usd', 'monthly_spend_usd'] as const).find(name => organization.limits[name] === 0)
    if (zero && organization.billing !== 'free') {
      report.warn(
        [...path, 'plan'],
        `${id} has ${zero}: 0, so every priced request is refused; set billing: free to serve it at no charge`,
      )
    }
    if (organization.billing === 'prepaid')
      report.error(
        [...path, 'billing'],
        `prepaid is for organizations of the store, which keeps credits and audit: take ${id} out of the file and make it with \`sluice org create ${id} plan=${organization.plan} billing=prepaid\`, then give it a credit`,
      )
    organization.keys = readKeys(checked.keys, organization, digests, ids, [...path, 'keys'], report)
    const full = tooManyKeys(organization, plan)
    if (full) report.error([...path, 'keys'], full, 'key')
    organizations[id] = organization
  }
  const count = Object.keys(raw).length
  if (count > MOST_IN_FILE) {
    const cure = 'the store takes a million: `sluice org export --file`, then `sluice org import` (docs/accounts.md)'
    report.warn(
      ['organizations'],
      `${count} organizations stand in the file, and each reload reads them all; ${cure}`,
      'key',
    )
  }
  return organizations
}

/** An organization on a plan, with its own differences applied, and without keys. */
function resolved(
  id: string,
  checked: Arrives<typeof organizationSchema>,
  plan: PlanConfig,
  ids: ReadonlyMap<string, string>,
  tell: TellFault,
): OrganizationConfig {
  const own = canonicalModels(checked, ids, tell)
  const prices = { ...plan.prices, ...readPrices(own.prices, 'organization', ids, tell) }
  const user_limits = { ...plan.user_limits, ...own.user_limits }
  const raises = own.raises.map((raise, i) =>
    canonicalModels(raise, ids, (path, message, part) => tell(['raises', i, ...path], message, part)),
  )
  return {
    id,
    plan: own.plan,
    status: own.status,
    billing: own.billing,
    models: own.models ?? plan.models,
    capabilities: own.capabilities ?? plan.capabilities,
    streaming: own.streaming ?? plan.streaming,
    limits: { ...plan.limits, ...own.limits },
    model_limits: mergeModelLimits(plan.model_limits, own.model_limits),
    ...(Object.keys(user_limits).length > 0 && { user_limits }),
    ...(Object.keys(prices).length > 0 && { prices }),
    ...(raises.length > 0 && { raises }),
    ...(own.name !== undefined && { name: own.name }),
    ...(Object.keys(own.metadata).length > 0 && { metadata: own.metadata }),
    keys: [],
  }
}

/** An organization as its raises make it, and until when it is so, Unix ms. */
interface Raised {
  organization: OrganizationConfig
  until: number
}
/** `since`: when the last of those that have ended did. */
const raisedBefore = new WeakMap<OrganizationConfig, Raised & { since: number }>()

/** An organization with the raises that have not ended: the same object until one ends. @param now Unix ms */
export function raisedAt(organization: OrganizationConfig, now: number): Raised {
  if (organization.raises === undefined) return { organization, until: Number.POSITIVE_INFINITY }
  const before = raisedBefore.get(organization)
  // A clock may be set back, and a raise holds again then.
  if (before && now < before.until && now >= before.since) return before
  const raises = organization.raises.filter(({ until }) => now < until)
  const raised = { ...organization, raises, limits: { ...organization.limits } }
  const model_limits = { ...organization.model_limits }
  for (const raise of raises) {
    raised.limits = wider(raised.limits, raise.limits)
    for (const [id, limits] of Object.entries(raise.model_limits))
      if (Object.hasOwn(model_limits, id)) model_limits[id] = wider(model_limits[id]!, limits)
  }
  const until = Math.min(Number.POSITIVE_INFINITY, ...raises.map(({ until }) => until))
  const since = Math.max(
    Number.NEGATIVE_INFINITY,
    ...organization.raises.flatMap(r => (now < r.until ? [] : [r.until])),
  )
  const result = { organization: { ...raised, model_limits }, until, since }
  raisedBefore.set(organization, result)
  return result
}

/** Limits of which none is narrower than before. What is unlimited, or not set, stays so. */
function wider<L extends Partial<Limits>>(limits: L, raise: Partial<Limits>): L {
  const result = { ...limits }
  for (const name of LIMIT_NAMES) {
    const [mine, theirs] = [limits[name], raise[name]]
    if (mine == null || theirs === undefined) continue
    if (theirs === null || theirs > mine) result[name] = theirs
  }
  return result
}

/**
 * A key that ends within this time is on its way out, and leaves room for the one that replaces it: the grace of a
 * rotation, unless said otherwise. The playground's key of the console ends sooner.
 */
const GRACE_MS = 86_400_000

/** How many keys of an organization count towards `active_keys` when one is made. */
export const countedKeys = ({ keys }: OrganizationConfig, now: number): number =>
  keys.filter(({ status, expires }) => status !== 'revoked' && (expires === null || expires > now + GRACE_MS)).length

/**
 * The fault of an organization with more keys than its plan allows.
 * @param live the keys that count. Those without an end, unless said otherwise: what was written or stored before keys
 *   with an end counted is no fault. Who makes a key is held to `countedKeys`.
 */
export function tooManyKeys(
  { id, keys, plan: name }: OrganizationConfig,
  plan: PlanConfig,
  live = keys.filter(key => key.status !== 'revoked' && key.expires === null).length,
): string | undefined {
  if (plan.active_keys === null || live <= plan.active_keys) return undefined
  return `${id} has ${live} keys that are active or staged, and plan ${name} allows ${plan.active_keys}; revoke ${live - plan.active_keys}, or raise active_keys`
}

/** The fault of a prepaid organization whose clients could leave as much unbilled as they like. */
function unboundedGift({ id, billing, limits }: OrganizationConfig): string | undefined {
  const [limit] = COUNTED.unbilled.limits
  if (billing !== 'prepaid' || capacityIn(limits, COUNTED.unbilled, limit) !== undefined) return undefined
  return `limits.${limit.name}: ${id} is prepaid, and nothing bounds what its clients may leave unbilled and pay from no balance; set ${limit.name}, or a spend limit, of which it is a tenth`
}

/** What accounts refer to. */
export interface AccountNames {
  plans: Record<string, PlanConfig>
  /** Every id that a client may send, with the model's own id. */
  ids: ReadonlyMap<string, string>
}

/** The plans and models of a configuration. */
export function accountNames({ plans, models }: Pick<GatewayConfig, 'plans' | 'models'>): AccountNames {
  return { plans, ids: modelIds(models, Object.keys(models)) }
}

/** Stands for a plan that is gone: it allows nothing. */
const NO_PLAN: PlanConfig = {
  models: [],
  capabilities: [],
  streaming: false,
  active_keys: null,
  limits: complete({}),
  model_limits: {},
}

export interface Read {
  /** Null when it cannot be used. */
  organization: OrganizationConfig | null
  /** All of them. */
  faults: string[]
  /** The same organization, also when its plan is gone: to be shown and changed, and never to be served. */
  unplanned: OrganizationConfig | null
}

/**
 * An organization that is not in the file, from the members that it would have there.
 * @param members the organization with its `keys`, as parsed
 * @param credited the sum of its credits in nano-USD
 * @param text the YAML that the members stand in, where they do
 * @returns the organization with its faults. Names of models that do not exist are faults which leave an organization:
 *   it may use the others, and nothing when there is no other.
 */
export function readOrganization(
  id: string,
  members: unknown,
  { plans, ids }: AccountNames,
  credited = 0,
  text: Pick<ConfigSource, 'fromEnvironment' | 'written'> | undefined = undefined,
): Read {
  const { value, problems } = validate(organizationSchema, members, { name: '', ...text })
  if (problems) return { organization: null, faults: problems.map(problem => problem.message), unplanned: null }
  const checked = value as Arrives<typeof organizationSchema>
  const plan = Object.hasOwn(plans, checked.plan) ? plans[checked.plan] : undefined
  const faults: string[] = []
  if (!plan) {
    const cure = didYouMean(checked.plan, Object.keys(plans)) || `; plans: ${Object.keys(plans).join(', ')}`
    faults.push(`plan: there is no plan '${checked.plan}'${cure}`)
  }
  const tell =
    (base: Path): TellFault =>
    (path, message) =>
      void faults.push(`${[...base, ...path].join('.')}: ${message}`)
  const organization = resolved(id, checked, plan ?? NO_PLAN, ids, tell([]))
  if (credited !== 0) organization.credited = credited
  const unbounded = plan && unboundedGift(organization)
  if (unbounded) faults.push(unbounded)
  organization.keys = checked.keys.map((key, i) => keyOf(canonicalModels(key, ids, tell(['keys', i]))))
  for (const member of ['id', 'sha256'] as const) {
    const values = organization.keys.map(key => key[member])
    const twin = values.findIndex((value, i) => values.indexOf(value) < i)
    if (twin >= 0) faults.push(`keys.${twin}.${member}: an earlier key of ${id} has the same`)
  }
  const full = plan && tooManyKeys(organization, plan)
  if (full) faults.push(`keys: ${full}`)
  return { organization: plan ? organization : null, faults, unplanned: organization }
}

/**
 * Whether members of an organization or of a key say the same, however they spell it: `"10"` and `10` are one amount.
 * Members that do not fit are compared as they are.
 */
export function sameMembers(kind: 'organization' | 'key', a: unknown, b: unknown): boolean {
  const [schema, needed] = kind === 'key' ? [keySchema, { id: 'x', sha256: '0'.repeat(64) }] : [organizationSchema, {}]
  const read = (members: unknown) => {
    const { value, problems } = validate(schema, { ...(members as object), ...needed }, { name: '' })
    return problems ? members : value
  }
  return isDeepStrictEqual(read(a), read(b))
}

function keyOf(own: RawKey): KeyConfig {
  return {
    id: own.id,
    sha256: own.sha256.toLowerCase(),
    status: own.status,
    expires: own.expires,
    models: own.models ?? 'all',
    capabilities: own.capabilities ?? 'all',
    streaming: own.streaming ?? true,
    usage: own.usage,
    limits: own.limits,
    model_limits: own.model_limits,
    ...(own.user_limits && { user_limits: own.user_limits }),
    ...(own.label !== undefined && { label: own.label }),
    ...(own.hint !== undefined && { hint: own.hint }),
    ...(own.creator !== undefined && { creator: own.creator }),
    ...(own.created !== undefined && { created: own.created }),
  }
}

function mergeModelLimits(
  plan: PlanConfig['model_limits'],
  own: PlanConfig['model_limits'],
): PlanConfig['model_limits'] {
  const merged = { ...plan }
  for (const [id, limits] of Object.entries(own)) merged[id] = { ...merged[id], ...limits }
  return merged
}

function readKeys(
  raw: RawKey[],
  organization: OrganizationConfig,
  digests: Map<string, Path>,
  ids: ReadonlyMap<string, string>,
  path: Path,
  report: Report,
): KeyConfig[] {
  const seen = new Map<string, Path>()
  return raw.map((value, i) => {
    const at = [...path, i]
    const own = canonicalModels(value, ids, within(report, at))
    const sha256 = own.sha256.toLowerCase()
    const position = (other: Path) => place(report.source.position(other), report.source.position(at))
    const twin = digests.get(sha256)
    if (twin)
      report.error([...at, 'sha256'], `this digest is already a key (${position(twin)}); a secret belongs to one key`)
    else digests.set(sha256, at)
    const namesake = seen.get(own.id)
    if (namesake)
      report.error(
        [...at, 'id'],
        `key id '${own.id}' is taken in ${organization.id} (${position(namesake)}); ids tell keys apart in the ledger`,
      )
    else seen.set(own.id, at)
    warnOfWiderKey(own, organization, at, report)
    return keyOf(own)
  })
}

/**
 * Warns of a key with wider limits or rights than its organization. A key only narrows (AUTH-4), so the wider value has
 * no effect. That is no error, but probably not what the operator meant.
 */
function warnOfWiderKey(key: RawKey, organization: OrganizationConfig, at: Path, report: Report): void {
  const warn = (path: Path, what: string, mine: unknown, theirs: unknown) =>
    report.warn(
      path,
      `key ${key.id}: ${what} ${mine} is wider than the ${theirs} of ${organization.id}, which holds; a key only narrows`,
    )
  for (const kind of ['limits', 'user_limits'] as const)
    for (const name of LIMIT_NAMES) {
      const mine = key[kind]?.[name]
      const theirs = organization[kind]?.[name]
      if (mine !== undefined && theirs != null && (mine === null || mine > theirs)) {
        const what = kind === 'limits' ? name : `${kind}.${name}`
        warn([...at, kind, name], what, shownLimit(name, mine), shownLimit(name, theirs))
      }
    }
  warnOfWideUsers(key.user_limits, key.limits, `key ${key.id}`, at, report)
  const wider = <T extends string>(mine: 'all' | T[] | undefined, theirs: 'all' | T[]) =>
    Array.isArray(mine) && Array.isArray(theirs) ? mine.filter(item => !theirs.includes(item)) : []
  const models = wider(key.models, organization.models)
  if (models.length > 0) warn([...at, 'models'], 'the model list with', models.join(', '), 'models')
  const capabilities = wider<AccountCapability>(key.capabilities, organization.capabilities)
  if (capabilities.length > 0) warn([...at, 'capabilities'], 'the list with', capabilities.join(', '), 'capabilities')
  if (key.streaming === true && !organization.streaming) warn([...at, 'streaming'], 'streaming', 'true', 'false')
}

const shownLimit = (name: keyof Limits, limit: number | null): string | number =>
  limit === null ? 'unlimited' : isUsd(name) ? (limit / 1e9).toFixed(2) : limit

/** Warns of a limit of each user that is not below that of all users together. */
function warnOfWideUsers(
  users: Partial<Limits> | undefined,
  limits: Partial<Limits>,
  whose: string,
  at: Path,
  report: Report,
): void {
  for (const [name, mine] of Object.entries(users ?? {}) as [keyof Limits, number | null][]) {
    const all = limits[name]
    if (mine === null || all == null || mine < all) continue
    report.warn(
      [...at, 'user_limits', name],
      `${whose}: one user may have ${shownLimit(name, mine)}, and limits.${name} allows ${shownLimit(name, all)} to all of them together; a lower value keeps one user from taking all`,
    )
  }
}

/** Warns of the quickstart's key where a gateway listens beyond loopback. */
export function warnOfDemoKey(
  { listen }: GatewayConfig['server'],
  organizations: GatewayConfig['organizations'],
  report: Report,
): void {
  if (isLoopback(listen.host)) return
  for (const [id, { keys }] of Object.entries(organizations)) {
    const demo = keys.findIndex(key => key.sha256 === DEMO_KEY_DIGEST && key.status !== 'revoked')
    if (demo >= 0)
      report.warn(
        ['organizations', id, 'keys', demo],
        'everyone knows the key sk-demo, and this gateway listens beyond loopback; remove it',
      )
  }
}
