/** The sums of a replay: the period as it was beside what it would have been, in all, by organization and by model. */
import type { Refusal, Replayed } from './replay.ts'

/** Amounts in nano-USD. */
export interface Side {
  requests: number
  input: number
  output: number
  revenue: number
  /** What the providers charge, of the rows where that is known. */
  cost: number
  /** How many rows these are. */
  costed: number
  /** The revenue of these. */
  costed_revenue: number
}

export interface Compared {
  before: Side
  after: Side
  refused: number
}

export interface OrganizationTotals extends Compared {
  organization: string
  /** As replayed; '' where the organization is gone. */
  plan: string
}

export interface ModelTotals extends Compared {
  model: string
}

/** The refusals by one limit. */
export interface LimitTotals extends Pick<Refusal, 'scope' | 'limit' | 'model' | 'code'> {
  requests: number
  organizations: number
  /** What they had brought, nano-USD. */
  revenue: number
  /** Unix ms. */
  first: number
  last: number
}

const side = (): Side => ({ requests: 0, input: 0, output: 0, revenue: 0, cost: 0, costed: 0, costed_revenue: 0 })
const compared = (): Compared => ({ before: side(), after: side(), refused: 0 })

/** What the providers do not get, as far as it is known, and the rows whose cost is not. */
export const marginOf = ({ requests, revenue, cost, costed }: Side): number | null =>
  costed < requests ? null : revenue - cost

export class Totals {
  readonly all: Compared = compared()
  readonly #organizations = new Map<string, OrganizationTotals>()
  readonly #models = new Map<string, ModelTotals>()
  readonly #limits = new Map<string, { totals: LimitTotals; organizations: Set<string> }>()

  add(replayed: Replayed): void {
    const { row, plan, refusal } = replayed
    let organization = this.#organizations.get(row.organization)
    if (!organization) {
      organization = { organization: row.organization, plan, ...compared() }
      this.#organizations.set(row.organization, organization)
    }
    let model = this.#models.get(row.model)
    if (!model) this.#models.set(row.model, (model = { model: row.model, ...compared() }))
    for (const totals of [this.all, organization, model]) addTo(totals, replayed)
    if (refusal) this.#refused(refusal)
  }

  #refused({ row, scope, limit, model, code }: Refusal): void {
    const id = [scope, limit, model, code].join('\n')
    let found = this.#limits.get(id)
    if (!found) {
      const totals = { scope, limit, model, code, requests: 0, organizations: 0, revenue: 0, first: row.time, last: 0 }
      this.#limits.set(id, (found = { totals, organizations: new Set() }))
    }
    const { totals, organizations } = found
    organizations.add(row.organization)
    totals.organizations = organizations.size
    totals.requests++
    totals.revenue += row.cost
    totals.last = row.time
  }

  /** Those that refused most come first. */
  get limits(): LimitTotals[] {
    const found = Array.from(this.#limits, ([id, { totals }]) => ({ id, totals }))
    return found.sort((a, b) => b.totals.requests - a.totals.requests || byText(a.id, b.id)).map(({ totals }) => totals)
  }

  /** Those for which most changes come first. @returns the first of them, and how many there are */
  organizations(most: number): { first: OrganizationTotals[]; all: number } {
    const all = [...this.#organizations.values()].sort(
      (a, b) => changeOf(b) - changeOf(a) || b.refused - a.refused || byText(a.organization, b.organization),
    )
    return { first: all.slice(0, most), all: all.length }
  }

  /** Those with the highest revenue come first. */
  get models(): ModelTotals[] {
    return [...this.#models.values()].sort(
      (a, b) =>
        b.before.revenue - a.before.revenue || b.before.requests - a.before.requests || byText(a.model, b.model),
    )
  }
}

function addTo(compared: Compared, { row, refusal, revenue, providerCost }: Replayed): void {
  addSide(compared.before, row, row.cost, row.provider_cost)
  if (refusal) compared.refused++
  else addSide(compared.after, row, revenue, providerCost)
}

function addSide(of: Side, { input, output }: Replayed['row'], revenue: number, cost: number | undefined): void {
  of.requests++
  of.input += input
  of.output += output
  of.revenue += revenue
  if (cost === undefined) return
  of.cost += cost
  of.costed++
  of.costed_revenue += revenue
}

const changeOf = ({ before, after }: Compared): number => Math.abs(after.revenue - before.revenue)
const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
