/**
 * The cells an exchange is held against: one for each limit that is set, of organization and key, over all models and over the one asked
 * (LIM-1, AUTH-4, decisions 20). Compiled once for each organization, key and model.
 */
import type { KeyConfig, Limits, OrganizationConfig } from '../../config/types.ts'
import type { Cell, Dimension } from '../../core/store.ts'
import { least } from '../account-limits.ts'

/** What one exchange takes of each dimension. `spend` in nano-USD. */
export type Amounts = Record<Dimension, number>

interface Rate {
  limit: keyof Limits
  id: string
  dimension: Dimension
  windowMs: number
}

const MINUTE = 60_000
const DAY = 86_400_000

const RATES: readonly Rate[] = [
  { limit: 'requests_per_minute', id: 'rpm', dimension: 'requests', windowMs: MINUTE },
  { limit: 'requests_per_day', id: 'rpd', dimension: 'requests', windowMs: DAY },
  { limit: 'tokens_per_minute', id: 'tpm', dimension: 'tokens', windowMs: MINUTE },
  { limit: 'tokens_per_day', id: 'tpd', dimension: 'tokens', windowMs: DAY },
  { limit: 'input_tokens_per_minute', id: 'itpm', dimension: 'input_tokens', windowMs: MINUTE },
  { limit: 'input_tokens_per_day', id: 'itpd', dimension: 'input_tokens', windowMs: DAY },
  { limit: 'output_tokens_per_minute', id: 'otpm', dimension: 'output_tokens', windowMs: MINUTE },
  { limit: 'output_tokens_per_day', id: 'otpd', dimension: 'output_tokens', windowMs: DAY },
]

/** Per-request maxima, the least of all scopes; null is none. */
export interface Maxima {
  outputTokens: number | null
  requestTokens: number | null
  /** nano-USD. */
  requestCost: number | null
}

export interface CellSet {
  cells: readonly Cell[]
  /** `cells` under platform load, by the factor that they shrink by; made when a factor is first met. */
  compressed: Map<number, readonly Cell[]>
  maxima: Maxima
  /** A spend cap of 0.00 applies (LIM-7, decisions 21). */
  zeroSpend: boolean
  /** The least tokens-per-minute capacity over both scopes, combined and by direction (LIM-6). */
  minuteBudget: { tokens: number | null; input_tokens: number | null; output_tokens: number | null }
}

export function cellsFor(organization: OrganizationConfig, key: KeyConfig, model: string | null): CellSet {
  const cells: Cell[] = []
  const maxima: Maxima = { outputTokens: null, requestTokens: null, requestCost: null }
  const minuteBudget: CellSet['minuteBudget'] = { tokens: null, input_tokens: null, output_tokens: null }

  const add = (limits: Partial<Limits>, scope: 'org' | 'key', prefix: string): void => {
    for (const rate of RATES) {
      const capacity = limits[rate.limit]
      if (capacity === null || capacity === undefined) continue
      cells.push({
        id: `${prefix}${rate.id}`,
        scope,
        dimension: rate.dimension,
        kind: 'bucket',
        capacity,
        windowMs: rate.windowMs,
      })
      const { dimension } = rate
      if (rate.windowMs === MINUTE && dimension in minuteBudget) {
        const name = dimension as keyof typeof minuteBudget
        minuteBudget[name] = least(minuteBudget[name], capacity)
      }
    }
    const slots = limits.concurrent_requests
    if (slots !== null && slots !== undefined)
      cells.push({ id: `${prefix}conc`, scope, dimension: 'concurrency', kind: 'slots', capacity: slots })
    const daily = limits.daily_spend_usd
    if (daily !== null && daily !== undefined)
      cells.push({ id: `${prefix}day`, scope, dimension: 'spend', kind: 'spend', period: 'day', capacity: daily })
    const monthly = limits.monthly_spend_usd
    if (monthly !== null && monthly !== undefined)
      cells.push({ id: `${prefix}month`, scope, dimension: 'spend', kind: 'spend', period: 'month', capacity: monthly })
    maxima.outputTokens = least(maxima.outputTokens, limits.max_output_tokens)
    maxima.requestTokens = least(maxima.requestTokens, limits.max_request_tokens)
    maxima.requestCost = least(maxima.requestCost, limits.max_request_usd)
  }

  add(organization.limits, 'org', 'o:')
  add(key.limits, 'key', `k:${key.id}:`)
  if (model !== null) {
    add(organization.model_limits[model] ?? {}, 'org', `o:m:${model}:`)
    add(key.model_limits[model] ?? {}, 'key', `k:${key.id}:m:${model}:`)
  }
  const zeroSpend = maxima.requestCost === 0 || cells.some(cell => cell.kind === 'spend' && cell.capacity === 0)
  return { cells, compressed: new Map(), maxima, zeroSpend, minuteBudget }
}

/**
 * Cells under platform load (LIM-10): rates and concurrency shrink, spend does not. What is closed stays so. One list
 * for each factor, because the plans of limits, headers and Redis are cached by the list.
 */
export function compress(set: CellSet, factor: number): readonly Cell[] {
  let cells = set.compressed.get(factor)
  if (!cells) {
    cells = set.cells.map(cell =>
      cell.kind === 'spend' || cell.capacity === 0
        ? cell
        : { ...cell, capacity: Math.max(1, Math.floor(cell.capacity * factor)) },
    )
    set.compressed.set(factor, cells)
  }
  return cells
}

/** From 1 at `above` of the capacity down to 0.1 at full, in steps of 0.05, so that few lists of cells are made. */
export function compression(load: number, above: number): number {
  if (load <= above) return 1
  const factor = 1 - (0.9 * (load - above)) / (1 - above)
  return Math.max(2, Math.floor(20 * factor)) / 20
}
