/** Limits as response headers (LIM-5, LIM-9). */
import { formatUsd } from '../../core/money.ts'
import type { Cell, CellState, Dimension } from '../../core/store.ts'

const NAMES: Record<Dimension, string> = {
  requests: 'requests',
  tokens: 'tokens',
  input_tokens: 'input-tokens',
  output_tokens: 'output-tokens',
  concurrency: 'concurrency',
  spend: 'spend',
}

/** One dimension of a set of cells: which cells it has, and its header names. */
interface DimensionPlan {
  dimension: Dimension
  cells: number[]
  limit: string
  remaining: string
  reset: string
}

/** Cell sets are compiled once for each key and model: so are the plans of their headers. */
const plans = new WeakMap<readonly Cell[], DimensionPlan[]>()

function planOf(cells: readonly Cell[]): DimensionPlan[] {
  let plan = plans.get(cells)
  if (plan) return plan
  plan = []
  for (const [i, { dimension }] of cells.entries()) {
    const known = plan.find(p => p.dimension === dimension)
    const name = NAMES[dimension]
    if (known) known.cells.push(i)
    else {
      plan.push({
        dimension,
        cells: [i],
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
 * For each dimension the cell with the least remaining share, among organization and key, minute and day (decisions 22).
 * @param set receives names and values
 */
export function limitHeaders(
  cells: readonly Cell[],
  states: readonly CellState[],
  set: (name: string, value: string) => void,
): void {
  if (cells.length === 0) return
  for (const { dimension, cells: indexes, limit, remaining, reset } of planOf(cells)) {
    let tightest = indexes[0]!
    for (const i of indexes) if (share(cells, states, i) < share(cells, states, tightest)) tightest = i
    const cell = cells[tightest]!
    const state = states[tightest]
    if (dimension === 'spend') {
      set(limit, formatUsd(cell.capacity))
      if (state) set(remaining, formatUsd(Math.max(0, state.remaining)))
      continue
    }
    set(limit, String(cell.capacity))
    if (!state) continue
    set(remaining, String(Math.max(0, Math.floor(state.remaining))))
    if (cell.kind === 'bucket') set(reset, duration(state.resetMs))
  }
  set('x-ratelimit-scope', 'org')
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
