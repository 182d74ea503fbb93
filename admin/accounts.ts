/** Organizations and keys with their use of each limit, for the dashboard. */
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import type { Cell, Store } from '../core/store.ts'
import { cellsFor } from '../plugins/admission/cells.ts'
import type { Use, UseByKey } from './usage.ts'

/** One limit and how much of it is taken. Spend in nano-USD. */
export interface LimitUse {
  /** Of a model's own limit: which. */
  model?: string
  dimension: Cell['dimension']
  /** `minute` and `day` for rates, `day` and `month` for spend, '' for what runs at once. */
  per: 'minute' | 'day' | 'month' | ''
  capacity: number
  /** May pass the capacity: a settled exchange can leave a debt. */
  used: number
}

export interface KeyRow {
  id: string
  status: string
  limits: LimitUse[]
  use: Use
}

export interface AccountRow {
  id: string
  plan: string
  billing: string
  limits: LimitUse[]
  use: Use
  keys: KeyRow[]
}

export interface Accounts {
  rows: AccountRow[]
  /** Organizations that match; more than `rows` when the page shows only some. */
  total: number
  /** Why there is nothing to show: the store does not answer. */
  failed: boolean
}

/** Most organizations in one answer, and keys of one organization. */
const MOST_ORGANIZATIONS = 50
const MOST_KEYS = 50

interface Plan {
  cells: Cell[]
  /** Model of each cell that is one's own. */
  models: (string | undefined)[]
  /** Indexes of the organization's cells, and of each key's. */
  own: number[]
  keys: { key: KeyConfig; cells: number[] }[]
}

export class AccountReader {
  readonly #store: Store
  readonly #use: UseByKey
  #plans = new WeakMap<OrganizationConfig, Plan>()

  constructor(store: Store, use: UseByKey) {
    this.#store = store
    this.#use = use
  }

  /**
   * Those whose id, plan or key ids contain `find`; first those that were used most since the start.
   * @param now Unix milliseconds
   */
  async read(config: GatewayConfig, find: string, now: number): Promise<Accounts> {
    const wanted = find.trim().toLowerCase()
    const all = Object.values(config.organizations)
    const matching = wanted === '' ? all : all.filter(organization => matches(organization, wanted))
    const chosen = matching
      .map(organization => ({ organization, use: this.#use.total(organization.id) }))
      .sort((a, b) => b.use.requests - a.use.requests)
      .slice(0, MOST_ORGANIZATIONS)
    try {
      const rows = await Promise.all(chosen.map(({ organization, use }) => this.#row(organization, use, now)))
      return { rows, total: matching.length, failed: false }
    } catch {
      return { rows: [], total: matching.length, failed: true }
    }
  }

  async #row(organization: OrganizationConfig, use: Use, now: number): Promise<AccountRow> {
    let plan = this.#plans.get(organization)
    if (!plan) this.#plans.set(organization, (plan = planOf(organization)))
    const { cells, models } = plan
    const states = cells.length === 0 ? [] : await this.#store.limits.peek(organization.id, cells, now)
    const limit = (i: number): LimitUse => {
      const cell = cells[i]!
      return {
        ...(models[i] !== undefined && { model: models[i] }),
        dimension: cell.dimension,
        per: cell.kind === 'slots' ? '' : (cell.period ?? (cell.windowMs === 60_000 ? 'minute' : 'day')),
        capacity: cell.capacity,
        used: Math.max(0, Math.ceil(cell.capacity - states[i]!.remaining)),
      }
    }
    return {
      id: organization.id,
      plan: organization.plan,
      billing: organization.billing,
      limits: plan.own.map(limit),
      use,
      keys: plan.keys.map(({ key, cells: own }) => ({
        id: key.id,
        status: key.status,
        limits: own.map(limit),
        use: this.#use.of(organization.id, key.id),
      })),
    }
  }
}

function matches(organization: OrganizationConfig, wanted: string): boolean {
  return (
    organization.id.toLowerCase().includes(wanted) ||
    organization.plan.toLowerCase().includes(wanted) ||
    organization.keys.some(key => key.id.toLowerCase().includes(wanted))
  )
}

const NO_KEY: KeyConfig = {
  id: '',
  sha256: '',
  status: 'revoked',
  models: 'all',
  capabilities: 'all',
  streaming: true,
  limits: {},
  model_limits: {},
}

/** All cells of an organization, each once, whichever model they are of. */
function planOf(organization: OrganizationConfig): Plan {
  const plan: Plan = { cells: [], models: [], own: [], keys: [] }
  const known = new Map<string, number>()
  const collect = (key: KeyConfig, scope: Cell['scope'], models: readonly string[]): number[] => {
    const own: number[] = []
    for (const model of [null, ...models]) {
      for (const cell of cellsFor(organization, key, model).cells) {
        if (cell.scope !== scope || known.has(cell.id)) continue
        known.set(cell.id, plan.cells.length)
        own.push(plan.cells.length)
        plan.cells.push(cell)
        plan.models.push(model ?? undefined)
      }
    }
    return own
  }
  plan.own = collect(NO_KEY, 'org', Object.keys(organization.model_limits))
  for (const key of organization.keys.slice(0, MOST_KEYS))
    plan.keys.push({ key, cells: collect(key, 'key', Object.keys(key.model_limits)) })
  return plan
}
