import type { GatewayConfig } from '../config/types.ts'
import type { Store, UsageFilter, UsageSum, UsageTotals } from '../core/ports/store.ts'
import { GROUPS, type Group, sumBy } from '../core/ports/usage-groups.ts'

/**
 * What each key used since the process started: plain counts that the dashboard shows beside the limits. The ledger has
 * the complete record.
 */
export interface Use {
  requests: number
  input: number
  output: number
  /** nano-USD. */
  cost: number
}

/** The use of this many organizations is kept; of more, those that called first are forgotten. */
const MOST_ORGANIZATIONS = 5000

export class UseByKey {
  readonly #organizations = new Map<string, Map<string, Use>>()

  add(organization: string, key: string, input: number, output: number, cost: number): void {
    let keys = this.#organizations.get(organization)
    if (!keys) {
      if (this.#organizations.size >= MOST_ORGANIZATIONS)
        this.#organizations.delete(this.#organizations.keys().next().value!)
      this.#organizations.set(organization, (keys = new Map()))
    }
    const use = keys.get(key)
    if (!use) {
      keys.set(key, { requests: 1, input, output, cost })
      return
    }
    use.requests++
    use.input += input
    use.output += output
    use.cost += cost
  }

  of(organization: string, key: string): Use {
    return { ...(this.#organizations.get(organization)?.get(key) ?? { requests: 0, input: 0, output: 0, cost: 0 }) }
  }

  byKey(organization: string): Record<string, Use> {
    return Object.fromEntries(this.#organizations.get(organization) ?? [])
  }

  total(organization: string): Use {
    const sum: Use = { requests: 0, input: 0, output: 0, cost: 0 }
    for (const use of this.#organizations.get(organization)?.values() ?? []) {
      sum.requests += use.requests
      sum.input += use.input
      sum.output += use.output
      sum.cost += use.cost
    }
    return sum
  }

  /** The organizations that have called. */
  organizations(): Iterable<string> {
    return this.#organizations.keys()
  }
}

/** Groups of `GROUPS`, and the plan of the organization as it is now; '' where there is no such organization. */
export const USAGE_GROUPS = [...(Object.keys(GROUPS) as Group[]), 'plan'] as const
export type UsageGroup = (typeof USAGE_GROUPS)[number]

/** In one answer. */
const MOST_GROUPS = 10_000
/** So many organizations are looked up at once. */
const TOGETHER = 50

/** What was used, by the ledger, in ascending order of the groups. @throws TooManyGroups */
export async function usageBy(
  store: Store,
  organizations: GatewayConfig['organizations'],
  filter: UsageFilter,
  groups: readonly UsageGroup[],
): Promise<(Record<string, string> & UsageTotals)[]> {
  const plans = new Map<string, string>()
  const asked = { ...filter, by: groups.map(group => (group === 'plan' ? 'organization' : group)) }
  const pages = groups.includes('plan') ? withPlans(store, organizations, asked, plans) : store.usage(asked)
  const of = groups.map(group =>
    group === 'plan' ? (sum: UsageSum) => plans.get(sum.organization)! : (GROUPS[group] as (sum: UsageSum) => string),
  )
  const found = await sumBy(pages, of, MOST_GROUPS)
  return found.map(({ names, sums }) => ({
    ...Object.fromEntries(groups.map((group, i) => [group, names[i]!])),
    ...sums,
  })) as (Record<string, string> & UsageTotals)[]
}

/** Pages of sums. The plans of a page's organizations are in `plans` before it comes. */
async function* withPlans(
  store: Store,
  organizations: GatewayConfig['organizations'],
  filter: UsageFilter,
  plans: Map<string, string>,
): AsyncGenerator<UsageSum[]> {
  for await (const page of store.usage(filter)) {
    const unknown = [...new Set(page.map(sum => sum.organization))].filter(id => !plans.has(id))
    for (let i = 0; i < unknown.length; i += TOGETHER)
      await Promise.all(
        unknown.slice(i, i + TOGETHER).map(async id => {
          const inFile = Object.hasOwn(organizations, id) ? organizations[id]!.plan : undefined
          const stored = inFile === undefined ? await store.accounts.read(id) : null
          plans.set(id, inFile ?? (stored ? (JSON.parse(stored.settings) as { plan: string }).plan : ''))
        }),
      )
    yield page
  }
}
