/** What sets two configurations apart, by name: for the log line of a reload. Never a value. */
import type { Backend } from '../core/dialect.ts'
import type { GatewayConfig } from './types.ts'

/** Sections whose entries have names. */
const NAMED = ['pipelines', 'providers', 'models', 'plans', 'organizations'] as const
/** A reload may replace every key: the line names the first of them. */
const MOST = 50

/**
 * Names of sections (`server`), entries (`models.eb1`, `pipelines.completions`) and keys
 * (`organizations.acme.keys.key_ci`) that were added, removed or changed, in the order of the file, at most fifty and
 * then how many more. Empty when only comments, places or a plugin's code changed.
 */
export function changedNames(before: GatewayConfig, after: GatewayConfig): string[] {
  const names: string[] = []
  const sections = new Set([...Object.keys(before), ...Object.keys(after)]) as Set<keyof GatewayConfig>
  for (const section of sections) {
    if (section === 'files' || text(before[section]) === text(after[section])) continue
    const named = NAMED.find(name => name === section)
    if (!named) names.push(section)
    else for (const id of differing(before[named], after[named])) names.push(...entryNames(named, id, before, after))
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
  return [...all].filter(id => text(before[id]) !== text(after[id]))
}

/** Without the places in the file, which move when a line is added above. */
function text(value: unknown): string | undefined {
  return JSON.stringify(value, (name, member: unknown) => {
    if (name === 'at') return undefined
    if (name === 'backends' && Array.isArray(member)) return (member as Backend[]).map(ownOf)
    return member instanceof Set ? [...member] : member
  })
}

/** What a backend has of itself: a changed provider is not a change of every model that uses it. */
function ownOf({ baseUrl: _, apiKey: __, headers: ___, dialect: ____, ...own }: Backend): object {
  return own
}
