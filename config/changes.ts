/**
 * Names what differs between two configurations, for the log line of a reload. It never gives a value: some are secret.
 */
import type { Backend } from '../core/ports/dialect.ts'
import type { GatewayConfig } from './types.ts'

/** Sections whose entries have names. */
const NAMED = ['pipelines', 'providers', 'models', 'plans', 'organizations'] as const
/** The log line has at most this many names: a reload may change thousands of keys. */
const MOST = 50

/**
 * Names of the sections (`server`), entries (`models.eb1`, `pipelines.completions`) and keys
 * (`organizations.acme.keys.key_ci`) that were added, removed or changed, in the order of the file. At most 50; the
 * element after them says how many more there are. Empty when only comments, positions in the file or a plugin's code
 * changed.
 */
export function changedNames(before: GatewayConfig, after: GatewayConfig): string[] {
  const names: string[] = []
  const sections = new Set([...Object.keys(before), ...Object.keys(after)]) as Set<keyof GatewayConfig>
  for (const section of sections) {
    const named = NAMED.find(name => name === section)
    if (named)
      for (const id of differing(before[named], after[named])) names.push(...entryNames(named, id, before, after))
    else if (section !== 'files' && text(before[section]) !== text(after[section])) names.push(section)
  }
  return names.length <= MOST ? names : [...names.slice(0, MOST), `and ${names.length - MOST} more`]
}

function entryNames(
  section: (typeof NAMED)[number],
  id: string,
  before: GatewayConfig,
  after: GatewayConfig,
): string[] {
  const name = `${section}.${id}`
  const was = before.organizations[id]
  const now = after.organizations[id]
  if (section !== 'organizations' || !was || !now) return [name]
  const keys = differing(byId(was.keys), byId(now.keys)).map(key => `${name}.keys.${key}`)
  return text({ ...was, keys: [] }) === text({ ...now, keys: [] }) ? keys : [name, ...keys]
}

function byId<T extends { id: string }>(list: readonly T[]): Record<string, T> {
  return Object.fromEntries(list.map(entry => [entry.id, entry]))
}

function differing(before: Readonly<Record<string, unknown>>, after: Readonly<Record<string, unknown>>): string[] {
  const all = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...all].filter(id => before[id] !== after[id] && text(before[id]) !== text(after[id]))
}

/** The value as JSON, without positions in the file (`at`): they change when a line is added above. */
function text(value: unknown): string | undefined {
  return JSON.stringify(value, (name, member: unknown) => {
    // A dialect's code is not compared.
    if (name === 'at' || name === 'dialectLoad') return undefined
    if (name === 'backends' && Array.isArray(member)) return (member as Backend[]).map(ownOf)
    return member instanceof Set ? [...member] : member
  })
}

/**
 * A backend without what it takes from its provider, so that a changed provider is not reported as a change of every
 * model that uses it.
 */
function ownOf(backend: Backend): object {
  const own: Record<string, unknown> = { ...backend, settings: backend.settings.backend }
  for (const name of OF_PROVIDER) delete own[name]
  return own
}
const OF_PROVIDER = ['baseUrl', 'apiKey', 'keyHeader', 'headers', 'dialect', 'variant', 'apiVersion'] as const

/**
 * Models, and plans with prices of their own, whose price differs while `price_book` is the same: rows of the ledger name
 * the book, so that those before and those after the change look as if they were billed by one list.
 */
export function repriced(before: GatewayConfig, after: GatewayConfig): string[] {
  if (before.price_book !== after.price_book) return []
  const models = differing(before.models, after.models).filter(id => {
    const [was, now] = [before.models[id]?.price, after.models[id]?.price]
    return was != null && now != null && text(was) !== text(now)
  })
  const plans = differing(before.plans, after.plans).filter(name => {
    const [was, now] = [before.plans[name], after.plans[name]]
    return was !== undefined && now !== undefined && text(was.prices ?? {}) !== text(now.prices ?? {})
  })
  return [...models, ...plans.map(name => `plan ${name}`)]
}
