/** Reads `plans` and `organizations` with their keys: what each account may use, and its limits. */
import type { Arrives } from '../core/vocabulary.ts'
import { place } from './check-chain.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import type { Report } from './report.ts'
import { type key as keySchema, LIMITS, organization as organizationSchema, plan as planSchema } from './schema.ts'
import type { Path } from './source.ts'
import { didYouMean } from './suggest.ts'
import type { AccountCapability, KeyConfig, Limits, ModelConfig, OrganizationConfig, PlanConfig } from './types.ts'
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

/** Checks the model ids in `models` and `model_limits`, and replaces aliases by the models' own ids. */
function canonicalModels<T extends Rights>(rights: T, ids: ReadonlyMap<string, string>, path: Path, report: Report): T {
  const resolve = (id: string, at: Path, part: 'key' | 'value') => {
    const canonical = ids.get(id)
    if (canonical === undefined) {
      const cure = didYouMean(id, ids.keys()) || `; models: ${[...new Set(ids.values())].join(', ') || 'none'}`
      report.error(at, `there is no model '${id}'${cure}`, part)
    }
    return canonical ?? id
  }
  const model_limits: Rights['model_limits'] = {}
  for (const [id, limits] of Object.entries(rights.model_limits)) {
    const at = [...path, 'model_limits', id]
    const canonical = resolve(id, at, 'key')
    // A model has one set of limits here, so one of the two would be lost.
    if (Object.hasOwn(model_limits, canonical))
      report.error(at, `the limits of ${canonical} stand here twice, under an alias too; write them once`, 'key')
    model_limits[canonical] = limits
  }
  if (!Array.isArray(rights.models)) return { ...rights, model_limits }
  const models = rights.models.map((id, i) => resolve(id, [...path, 'models', i], 'value'))
  return { ...rights, models: [...new Set(models)], model_limits }
}

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
    plans[name] = { ...plan, limits: complete(plan.limits) }
  }
  for (const [name, value] of Object.entries(raw)) {
    const path = ['plans', name]
    const checked = report.check(planSchema, value, path, name)
    if (!checked) continue
    plans[name] = { ...canonicalModels(checked, ids, path, report), limits: complete(checked.limits) }
  }
  return plans
}

type RawKey = Arrives<typeof keySchema>

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
    const own = canonicalModels(checked, ids, path, report)
    const organization: OrganizationConfig = {
      id,
      plan: own.plan,
      billing: own.billing,
      models: own.models ?? plan.models,
      capabilities: own.capabilities ?? plan.capabilities,
      streaming: own.streaming ?? plan.streaming,
      limits: { ...plan.limits, ...own.limits },
      model_limits: mergeModelLimits(plan.model_limits, own.model_limits),
      keys: [],
    }
    const zero = (['daily_spend_usd', 'monthly_spend_usd'] as const).find(name => organization.limits[name] === 0)
    if (zero && organization.billing === 'standard') {
      report.warn(
        [...path, 'plan'],
        `${id} has ${zero}: 0, so every priced request is refused; set billing: free to serve it at no charge`,
      )
    }
    organization.keys = readKeys(own.keys, organization, digests, ids, [...path, 'keys'], report)
    const live = organization.keys.filter(key => key.status !== 'revoked').length
    if (plan.active_keys !== null && live > plan.active_keys) {
      report.error(
        [...path, 'keys'],
        `${id} has ${live} keys that are active or staged, and plan ${own.plan} allows ${plan.active_keys}; revoke ${live - plan.active_keys}, or raise active_keys`,
        'key',
      )
    }
    organizations[id] = organization
  }
  return organizations
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
    const own = canonicalModels(value, ids, at, report)
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
    return {
      id: own.id,
      sha256,
      status: own.status,
      models: own.models ?? 'all',
      capabilities: own.capabilities ?? 'all',
      streaming: own.streaming ?? true,
      limits: own.limits,
      model_limits: own.model_limits,
    }
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
  for (const name of LIMIT_NAMES) {
    const mine = key.limits[name]
    const theirs = organization.limits[name]
    if (mine !== undefined && theirs !== null && (mine === null || mine > theirs)) {
      const show = (n: number | null) => (n === null ? 'unlimited' : name.endsWith('_usd') ? (n / 1e9).toFixed(2) : n)
      warn([...at, 'limits', name], name, show(mine), show(theirs))
    }
  }
  const wider = <T extends string>(mine: 'all' | T[] | undefined, theirs: 'all' | T[]) =>
    Array.isArray(mine) && Array.isArray(theirs) ? mine.filter(item => !theirs.includes(item)) : []
  const models = wider(key.models, organization.models)
  if (models.length > 0) warn([...at, 'models'], 'the model list with', models.join(', '), 'models')
  const capabilities = wider<AccountCapability>(key.capabilities, organization.capabilities)
  if (capabilities.length > 0) warn([...at, 'capabilities'], 'the list with', capabilities.join(', '), 'capabilities')
  if (key.streaming === true && !organization.streaming) warn([...at, 'streaming'], 'streaming', 'true', 'false')
}
