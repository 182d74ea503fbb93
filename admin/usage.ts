import { addUse, noUse, type Store, type UsageTotals } from '../core/ports/store.ts'

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
    return this.#organizations.get(organization)?.get(key) ?? { requests: 0, input: 0, output: 0, cost: 0 }
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

/** What one key used of one model, by the ledger. */
export interface KeyModelUsage extends UsageTotals {
  key: string
  model: string
  /** Of the tag that was asked for. */
  tag?: string
}

/** The use of an organization by key and model, and by the values of a tag where one is given, from `since` until before `until` (Unix ms). */
export async function usageByKeyAndModel(
  store: Store,
  organization: string,
  since: number,
  until: number,
  tag?: string,
): Promise<KeyModelUsage[]> {
  const sums = new Map<string, KeyModelUsage>()
  for await (const page of store.usage({ org: organization, since, until, ...(tag !== undefined && { tag }) })) {
    for (const part of page) {
      const name = `${part.key_id}\n${part.model}\n${part.tag ?? ''}`
      const of = part.tag === undefined ? {} : { tag: part.tag }
      let sum = sums.get(name)
      if (!sum) sums.set(name, (sum = { key: part.key_id, model: part.model, ...of, ...noUse() }))
      addUse(sum, part)
    }
  }
  return [...sums.entries()].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, sum]) => sum)
}
