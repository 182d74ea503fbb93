/** Sums of the ledger by what somebody asks for: a day, a model, a backend. */
import { addUse, noUse, type UsageSum, type UsageTotals } from './store.ts'

/** By name, what a sum belongs to; '' where it has none. */
export const GROUPS = {
  organization: sum => sum.organization,
  key: sum => sum.key_id,
  model: sum => sum.model,
  provider: sum => sum.provider,
  backend: sum => [sum.provider, sum.provider_model].filter(Boolean).join('/'),
  surface: sum => sum.surface,
  outcome: sum => sum.outcome,
  /** The value of the tag that the filter names. */
  tag: sum => sum.tag ?? '',
  hour: sum => `${isoOf(sum).slice(0, 13)}:00Z`,
  day: sum => isoOf(sum).slice(0, 10),
  month: sum => isoOf(sum).slice(0, 7),
} as const satisfies Record<string, (sum: UsageSum) => string>
export type Group = keyof typeof GROUPS

/**
 * The texts of a sum that each group is made of, beside its time and the value of a tag: sums that agree in them, and in
 * the day, are of one group, but for the hour.
 */
export const TEXTS_OF = {
  organization: ['organization'],
  key: ['key_id'],
  model: ['model'],
  provider: ['provider'],
  backend: ['provider', 'provider_model'],
  surface: ['surface'],
  outcome: ['outcome'],
  tag: [],
  hour: [],
  day: [],
  month: [],
} as const satisfies Record<Group, readonly (keyof UsageSum)[]>

const NOT_BY_TAG: readonly string[] = ['provider', 'backend', 'surface', 'outcome'] satisfies Group[]

/** Why sums of this tag, or of all rows, cannot be grouped so; null: they can. */
export function faultByTag(groups: readonly string[], tag: string | undefined): string | null {
  if (tag === undefined) return groups.includes('tag') ? 'tag needs the name of a tag, too' : null
  const untold = groups.find(name => NOT_BY_TAG.includes(name))
  return untold === undefined ? null : `sums of a tag do not tell ${untold}; take it out`
}

/** Ids of keys are of their organization: where none is named, `key` means both. */
export function withOwners<T extends string>(groups: readonly T[], org: string | undefined): (T | 'organization')[] {
  if (org !== undefined || !groups.includes('key' as T) || groups.includes('organization' as T)) return [...groups]
  return groups.flatMap(name => (name === 'key' ? ['organization' as const, name] : [name]))
}

const isoOf = ({ time }: UsageSum): string => new Date(time).toISOString()

export interface GroupedUse {
  /** One for each group that was asked for. */
  names: string[]
  sums: UsageTotals
}

/** More groups than an answer may have. */
export class TooManyGroups extends Error {}

/**
 * @param groups what names the group of a sum
 * @param most groups
 * @returns the groups in ascending order of their names
 * @throws TooManyGroups
 */
export async function sumBy(
  pages: AsyncIterable<UsageSum[]>,
  groups: readonly ((sum: UsageSum) => string)[],
  most = Number.POSITIVE_INFINITY,
): Promise<GroupedUse[]> {
  const found = new Map<string, GroupedUse>()
  for await (const page of pages) {
    for (const sum of page) {
      const names = groups.map(of => of(sum))
      const key = names.join('\n')
      let group = found.get(key)
      if (!group) {
        if (found.size >= most) throw new TooManyGroups(`more than ${most} groups`)
        found.set(key, (group = { names, sums: noUse() }))
      }
      addUse(group.sums, sum)
    }
  }
  return [...found.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group)
}
