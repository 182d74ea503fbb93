/**
 * Plans and models that a configuration does not have, although accounts of the store name them. A reload that takes
 * one away is refused unless the file says that it is meant (`retired:`), and `sluice check --store` reports all.
 */
import { type AccountStore, NAME_KINDS, type NameKind, type NameUsers } from '../core/ports/accounts.ts'
import { appendAll } from '../core/tools/append.ts'
import { accountNames } from './accounts.ts'
import { BUILT_IN_PLANS } from './plans.ts'
import type { Report } from './report.ts'
import type { ConfigError } from './source.ts'
import type { GatewayConfig, RetiredConfig } from './types.ts'

type Parts = Pick<GatewayConfig, 'plans' | 'models' | 'retired'>

/** The section of each kind, here and under `retired`. */
const SECTION = { plan: 'plans', model: 'models' } as const

/** A message has the ids of at most this many organizations, and a refusal at most this many names. */
const MOST_IDS = 5
const MOST_NAMES = 20

/** Reports names under `retired` that are there all the same. */
export function checkRetired(
  retired: Pick<RetiredConfig, 'plans' | 'models'>,
  planNames: readonly string[],
  ids: ReadonlyMap<string, string>,
  report: Report,
): void {
  for (const [i, name] of retired.plans.entries()) {
    if (!planNames.includes(name)) continue
    const builtIn = Object.hasOwn(BUILT_IN_PLANS, name)
    report.error(
      ['retired', 'plans', i],
      builtIn
        ? `'${name}' is a built-in plan, which is always there; remove it here`
        : `plans has '${name}'; remove it there or here`,
    )
  }
  for (const [i, name] of retired.models.entries()) {
    const id = ids.get(name)
    if (id === undefined) continue
    const place = id === name ? `models has '${name}'` : `'${name}' is an alias of the model ${id}`
    report.error(['retired', 'models', i], `${place}; remove it there or here`)
  }
}

/** The names that accounts may use: of models, their ids and aliases. */
function namesOf(config: Parts): Record<NameKind, ReadonlySet<string>> {
  const { plans, ids } = accountNames(config)
  return { plan: new Set(Object.keys(plans)), model: new Set(ids.keys()) }
}

/** What a plan or model is to a configuration that accounts of a store have to live with. */
export function standingOf(config: Parts): (kind: NameKind, name: string) => 'there' | 'retired' | 'gone' {
  const there = namesOf(config)
  const retired = { plan: new Set(config.retired.plans), model: new Set(config.retired.models) }
  return (kind, name) => (there[kind].has(name) ? 'there' : retired[kind].has(name) ? 'retired' : 'gone')
}

export type Names = Record<NameKind, string[]>

/** The names that `before` has, and `after` neither has nor retires. */
export function takenAway(before: Parts, after: Parts): Names {
  const standing = standingOf(after)
  const had = namesOf(before)
  const gone = (kind: NameKind) => [...had[kind]].filter(name => standing(kind, name) === 'gone')
  return { plan: gone('plan'), model: gone('model') }
}

/** Which of the names accounts of the store use. Rejects when the store does not answer. */
export async function usersOf(store: AccountStore, names: Names): Promise<NameUsers[]> {
  const users: NameUsers[] = []
  for (const kind of NAME_KINDS)
    if (names[kind].length > 0) appendAll(users, await store.users(kind, names[kind], MOST_IDS))
  return users
}

/** The faults of a file that leaves accounts behind, each with its cure. */
export function faultsOf(users: readonly NameUsers[], { retired }: Parts): ConfigError[] {
  const faults = users
    .slice(0, MOST_NAMES)
    .map(user => ({ ...retired.at[SECTION[user.kind]], message: `${usedBy(user)}; ${cureOf(user)}` }))
  const more = users.length - faults.length
  if (more > 0) faults.push({ ...retired.at.plans, message: `and ${more} more plans or models that accounts name` })
  return faults
}

/** The fault of a file that takes names away while the store cannot say who uses them. */
export function unansweredFault(names: Names, { retired }: Parts, why: string): ConfigError {
  const kind = names.plan.length > 0 ? 'plan' : 'model'
  const count = names.plan.length + names.model.length
  const more = count > 1 ? ` and ${count - 1} more` : ''
  return {
    ...retired.at[SECTION[kind]],
    message: `this file does not have the ${kind} '${names[kind][0]}'${more} any more, and the store does not say whether its accounts use it (${why}); reload again when the store answers, or name it under retired`,
  }
}

/** The faults of a file with organizations that the store has, too. */
export function twiceFaults(ids: readonly string[], { files }: Pick<GatewayConfig, 'files'>): ConfigError[] {
  return ids.map(id => ({
    file: files[0]!,
    line: 1,
    column: 1,
    message: `the organization ${id} stands in the store too, and an id may stand in one place only; remove it here, or give one of the two another id`,
  }))
}

/** `3 organizations of the store have the plan 'gold' (acme, b, c), and this file does not have it`. */
export function usedBy({ kind, name, organizations, ids }: NameUsers): string {
  const more = organizations - ids.length
  const who = `${ids.join(', ')}${more > 0 ? ` and ${more.toLocaleString('en')} more` : ''}`
  const some = `${organizations.toLocaleString('en')} organization${organizations === 1 ? '' : 's'} of the store`
  const one = organizations === 1
  return kind === 'plan'
    ? `${some} ${one ? 'has' : 'have'} the plan '${name}' (${who}), and this file does not have it`
    : `${some} ${one ? 'names' : 'name'} the model '${name}' (${who}), and this file has no such id or alias`
}

function cureOf({ kind, name }: NameUsers): string {
  const word = /^[A-Za-z][\w.-]*$/.test(name) ? name : JSON.stringify(name)
  return kind === 'plan'
    ? `keep it until they are moved (sluice org set ID plan=NAME), or write retired: { plans: [${word}] }: then they get 503 account_unavailable`
    : `make it an alias of another model, change them (sluice org set ID models=[…]), or write retired: { models: [${word}] }: then it allows nothing there`
}
