/** Limits as response headers (LIM-5, LIM-9). */
import { COUNTED, type Counted, type Dimension } from '../../core/limits.ts'
import { formatUsd } from '../../core/money.ts'
import { type Cell, type CellState, isLimit } from '../../core/store.ts'

/** One dimension of a set of cells: the indexes of its cells, and the names of its headers. */
interface DimensionPlan {
  dimension: Dimension
  cells: number[]
  /** Values of the limit header, parallel to `cells`. */
  limits: string[]
  limit: string
  remaining: string
  reset: string
}

/** Cell sets are compiled once for each key and model, so the plans of their headers are cached by the set. */
const plans = new WeakMap<readonly Cell[], DimensionPlan[]>()

function planOf(cells: readonly Cell[]): DimensionPlan[] {
  let plan = plans.get(cells)
  if (plan) return plan
  plan = []
  for (const [i, cell] of cells.entries()) {
    const { dimension } = cell
    const { money }: Counted = COUNTED[dimension]
    if (!isLimit(cell) || money === 'in no header') continue
    const known = plan.find(p => p.dimension === dimension)
    const name = dimension.replaceAll('_', '-')
    const value = money ? formatUsd(cell.capacity) : String(cell.capacity)
    if (known) {
      known.cells.push(i)
      known.limits.push(value)
    } else {
      plan.push({
        dimension,
        cells: [i],
        limits: [value],
        limit: `x-ratelimit-limit-${name}`,
        remaining: `x-ratelimit-remaining-${name}`,
        reset: `x-ratelimit-reset-${name}`,
      })
    }
  }
  plans.set(cells, plan)
  return plan
}

/**
 * Sets the headers of each dimension from its cell with the least remaining share, among organization and key, minute
 * and day (decisions 22).
 * @param headers is changed
 */
export function limitHeaders(cells: readonly Cell[], states: readonly CellState[], headers: Map<string, string>): void {
  const plan = planOf(cells)
  if (plan.length === 0) return
  for (const { dimension, cells: indexes, limits, limit, remaining, reset } of plan) {
    let at = 0
    for (let k = 1, least = share(cells, states, indexes[0]!); k < indexes.length; k++) {
      const other = share(cells, states, indexes[k]!)
      if (other >= least) continue
      least = other
      at = k
    }
    const cell = cells[indexes[at]!]!
    const state = states[indexes[at]!]
    headers.set(limit, limits[at]!)
    if (!state) continue
    if (dimension === 'spend') {
      headers.set(remaining, formatUsd(Math.max(0, state.remaining)))
      continue
    }
    headers.set(remaining, String(Math.max(0, Math.floor(state.remaining))))
    if (cell.kind === 'bucket') headers.set(reset, duration(state.resetMs))
  }
  headers.set('x-ratelimit-scope', 'org')
}

function share(cells: readonly Cell[], states: readonly CellState[], i: number): number {
  const capacity = cells[i]!.capacity
  return capacity === 0 ? 0 : (states[i]?.remaining ?? capacity) / capacity
}

/** `250ms`, `56s`: whole milliseconds below a second, else seconds rounded up. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`
  return `${Math.ceil(ms / 1000)}s`
}
