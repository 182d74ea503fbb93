/** Organizations and keys with their use of each limit, for the dashboard. */
import { raisedAt } from '../config/accounts.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import { isUsd, type LimitName, MAXIMA } from '../core/canon/limits.ts'
import { formatUsd } from '../core/canon/money.ts'
import { type Cell, isLimit, type Store } from '../core/ports/store.ts'
import { cellsFor } from '../plugins/admission/cells.ts'
import type { Use, UseByKey } from './usage.ts'

/** One limit and how much of it is used now. Amounts of money are in nano-USD. */
export interface LimitUse {
  /** Set for a limit of one model: the id of that model. */
  model?: string
  dimension: Cell['dimension']
  /** `minute` and `day` for rates, `day` and `month` for spend, '' for concurrency. */
  per: 'minute' | 'day' | 'month' | ''
  capacity: number
  /** May exceed the capacity, because an exchange can use more than was reserved for it. */
  used: number
}

/** The most that a single request may need or ask for. Nothing is counted for it. */
export interface Maximum {
  /** Set for a maximum of one model: the id of that model. */
  model?: string
  limit: (typeof MAXIMA)[number]['name']
  /** Set where it is no amount of money. */
  most?: number
  /** USD, exact. */
  most_usd?: string
}

export interface KeyRow {
  id: string
  status: string
  limits: LimitUse[]
  maxima: Maximum[]
  use: Use
}

export interface AccountRow {
  id: string
  plan: string
  billing: string
  limits: LimitUse[]
  maxima: Maximum[]
  use: Use
  keys: KeyRow[]
}

export interface Accounts {
  rows: AccountRow[]
  /** Organizations that match; more than `rows` when the page shows only some. */
  total: number
  /** True when the store did not answer; `rows` is then empty. */
  failed: boolean
}

/** At most this many organizations in one answer, and this many keys of each. */
export const MOST_ORGANIZATIONS = 50
const MOST_KEYS = 50

interface OrganizationCells {
  cells: Cell[]
  /** Indexes in `cells`: of the organization's own cells, and of the cells of each key. */
  own: number[]
  keys: { key: KeyConfig; cells: number[] }[]
}

export class AccountReader {
  readonly #store: Store
  readonly #use: UseByKey
  #cells = new WeakMap<OrganizationConfig, OrganizationCells>()

  constructor(store: Store, use: UseByKey) {
    this.#store = store
    this.#use = use
  }

  /**
   * The organizations whose id, plan or key ids contain `find`; those with the most requests since the start first.
   * @param now Unix milliseconds
   */
  async read(config: Pick<GatewayConfig, 'organizations'>, find: string, now: number): Promise<Accounts> {
    const { ids, total } = this.busiest(config.organizations, find, MOST_ORGANIZATIONS)
    try {
      const rows = await this.rows(
        ids.map(id => config.organizations[id]!),
        now,
      )
      return { rows, total, failed: false }
    } catch {
      return { rows: [], total, failed: true }
    }
  }

  /** The ids of the `most` matching organizations with the most requests, these first, and how many match. */
  busiest(organizations: GatewayConfig['organizations'], find: string, most: number): { ids: string[]; total: number } {
    const wanted = find.trim().toLowerCase()
    const all = Object.values(organizations)
    const matching = wanted === '' ? all : all.filter(organization => matches(organization, wanted))
    const ids = matching
      .map(({ id }) => ({ id, requests: this.#use.total(id).requests }))
      .sort((a, b) => b.requests - a.requests)
      .slice(0, most)
      .map(({ id }) => id)
    return { ids, total: matching.length }
  }

  /** Rejects with StoreUnavailable. */
  rows(organizations: readonly OrganizationConfig[], now: number): Promise<AccountRow[]> {
    return Promise.all(organizations.map(one => this.#row(one, this.#use.total(one.id), now)))
  }

  /**
   * One organization with its levels, and its spend in the running UTC day and month in nano-USD, capped or not.
   * Rejects with StoreUnavailable.
   */
  async one(base: OrganizationConfig, now: number): Promise<AccountRow & { spend: { day: number; month: number } }> {
    const { organization } = raisedAt(base, now)
    const cells = cellsFor(organization, NO_KEY, null)
      .cells.filter(cell => cell.kind === 'spend' && cell.scope === 'org')
      .map(cell => ({ ...cell, capacity: Number.MAX_SAFE_INTEGER }))
    const states = await this.#store.limits.peek(organization.id, cells, now)
    const spent = (period: 'day' | 'month') => {
      const i = cells.findIndex(cell => cell.period === period)
      return i < 0 ? 0 : Math.max(0, cells[i]!.capacity - states[i]!.remaining)
    }
    const row = await this.#row(organization, this.#use.total(organization.id), now)
    return { ...row, spend: { day: spent('day'), month: spent('month') } }
  }

  async #row(base: OrganizationConfig, use: Use, now: number): Promise<AccountRow> {
    const { organization } = raisedAt(base, now)
    let all = this.#cells.get(organization)
    if (!all) this.#cells.set(organization, (all = cellsOf(organization)))
    const { cells } = all
    // Together with that of the organization, so that they agree: the store may take a while.
    const used = all.keys.map(({ key }) => this.#use.of(organization.id, key.id))
    const states = cells.length === 0 ? [] : await this.#store.limits.peek(organization.id, cells, now)
    const limit = (i: number): LimitUse => {
      const cell = cells[i]!
      return {
        ...(cell.model !== undefined && { model: cell.model }),
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
      limits: all.own.map(limit),
      maxima: maximaOf(organization),
      use,
      keys: all.keys.map(({ key, cells: own }, i) => ({
        id: key.id,
        status: key.status,
        limits: own.map(limit),
        maxima: maximaOf(key),
        use: used[i]!,
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

/** Those that are set: for all models, then for single ones. */
function maximaOf({ limits, model_limits }: Pick<KeyConfig, 'limits' | 'model_limits'>): Maximum[] {
  const set = (of: { readonly [name in LimitName]?: number | null }, model?: string) =>
    MAXIMA.flatMap(({ name }) => {
      const most = of[name]
      if (most == null) return []
      const amount = isUsd(name) ? { most_usd: formatUsd(most, 9) } : { most }
      return [{ ...(model !== undefined && { model }), limit: name, ...amount }]
    })
  return [...set(limits), ...Object.entries(model_limits).flatMap(([model, of]) => set(of, model))]
}

const NO_KEY: KeyConfig = {
  id: '',
  sha256: '',
  status: 'revoked',
  expires: null,
  models: 'all',
  capabilities: 'all',
  streaming: true,
  usage: 'key',
  limits: {},
  model_limits: {},
}

/** Every cell of an organization and its keys, each once, those of single models included. */
function cellsOf(organization: OrganizationConfig): OrganizationCells {
  const all: OrganizationCells = { cells: [], own: [], keys: [] }
  const known = new Map<string, number>()
  const collect = (key: KeyConfig, scope: Cell['scope'], models: readonly string[]): number[] => {
    const own: number[] = []
    for (const model of [null, ...models]) {
      for (const cell of cellsFor(organization, key, model).cells) {
        // A balance is shown by credits and rows; its cell may have to be built first.
        if (cell.scope !== scope || !isLimit(cell) || cell.kind === 'balance' || known.has(cell.id)) continue
        known.set(cell.id, all.cells.length)
        own.push(all.cells.length)
        all.cells.push(cell)
      }
    }
    return own
  }
  all.own = collect(NO_KEY, 'org', Object.keys(organization.model_limits))
  for (const key of organization.keys.slice(0, MOST_KEYS))
    all.keys.push({ key, cells: collect(key, 'key', Object.keys(key.model_limits)) })
  return all
}
