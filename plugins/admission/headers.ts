/** Limits as response headers (LIM-5, LIM-9, decision 86). */
import { countedOf, headerFamily } from '../../core/canon/limits.ts'
import { formatUsd } from '../../core/canon/money.ts'
import { type Cell, type CellState, isLimit } from '../../core/ports/store.ts'

/** The headers of one dimension and window: the indexes of the cells that they may show, and their names. */
interface Family {
  /** `input-tokens`; `input-tokens-day` for limits per day. */
  name: string
  cells: number[]
  /** Values of the limit header, parallel to `cells`. */
  limits: string[]
  limit: string
  remaining: string
  reset: string
  money: boolean
}

const namesOf = (name: string) => ({
  limit: `x-ratelimit-limit-${name}`,
  remaining: `x-ratelimit-remaining-${name}`,
  reset: `x-ratelimit-reset-${name}`,
})

/** Cell sets are compiled once for each key and model, so the plans of their headers are cached by the set. */
const plans = new WeakMap<readonly Cell[], Family[]>()

function planOf(cells: readonly Cell[]): Family[] {
  let plan = plans.get(cells)
  if (plan) return plan
  plan = []
  for (const [i, cell] of cells.entries()) {
    const { money } = countedOf(cell.dimension)
    if (!isLimit(cell) || money === 'in no header') continue
    const name = headerFamily(cell.dimension, cell)
    const value = money ? formatUsd(cell.capacity) : String(cell.capacity)
    const known = plan.find(family => family.name === name)
    if (known) {
      known.cells.push(i)
      known.limits.push(value)
    } else {
      plan.push({
        name,
        cells: [i],
        limits: [value],
        ...namesOf(name),
        money: money !== undefined,
      })
    }
  }
  plans.set(cells, plan)
  return plan
}

/**
 * Sets the headers of each dimension and window, from its cell with the least remaining share among organization and
 * key, for all models and for one (decisions 22).
 * @param headers is changed
 * @param scope who makes the limits what they are
 */
export function limitHeaders(
  cells: readonly Cell[],
  states: readonly CellState[],
  headers: Map<string, string>,
  scope: 'org' | 'platform' = 'org',
): void {
  const plan = planOf(cells)
  if (plan.length === 0) return
  for (const family of plan) set(family, tightest(family, cells, states), cells, states, headers)
  headers.set('x-ratelimit-scope', scope)
}

/**
 * Sets the headers of a denial: those of the cell that denies and, where that is a limit per day, the dimension's plain
 * names, which clients look for. They have the minute; where no minute is limited, the day that denies.
 * @param headers is changed
 */
export function denialHeaders(
  cells: readonly Cell[],
  states: readonly CellState[],
  denied: number,
  headers: Map<string, string>,
): void {
  const cell = cells[denied]!
  const own = headerFamily(cell.dimension, cell)
  const plain = headerFamily(cell.dimension, {})
  const plan = planOf(cells)
  const of = (name: string) => plan.find(family => family.name === name)
  const denying = of(own)
  if (!denying) return
  const at = denying.cells.indexOf(denied)
  set(denying, at, cells, states, headers)
  if (own === plain) return
  const minute = of(plain)
  if (minute) set(minute, tightest(minute, cells, states), cells, states, headers)
  else set({ ...denying, ...namesOf(plain) }, at, cells, states, headers)
}

/** The position in `family.cells` of the cell with the least remaining share. */
function tightest({ cells: indexes }: Family, cells: readonly Cell[], states: readonly CellState[]): number {
  let at = 0
  if (indexes.length === 1) return at
  for (let k = 1, least = share(cells, states, indexes[0]!); k < indexes.length; k++) {
    const other = share(cells, states, indexes[k]!)
    if (other >= least) continue
    least = other
    at = k
  }
  return at
}

function set(
  { cells: indexes, limits, limit, remaining, reset, money }: Family,
  at: number,
  cells: readonly Cell[],
  states: readonly CellState[],
  headers: Map<string, string>,
): void {
  const i = indexes[at]!
  const state = states[i]
  headers.set(limit, limits[at]!)
  if (!state) return
  const left = Math.max(0, state.remaining)
  headers.set(remaining, money ? formatUsd(left) : String(Math.floor(left)))
  if (cells[i]!.kind === 'bucket' && !money) headers.set(reset, duration(state.resetMs))
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
