/**
 * What a reservation leaves once its exchange has ended, computed from the states that its admission returned. A whole
 * reply is complete before its head goes out, so its headers can tell it without another call to the store.
 */
import { ZERO_USAGE } from '../../core/canon/events.ts'
import { type Consumed, countedOf, periodIndex } from '../../core/canon/limits.ts'
import { type Exchange, usage } from '../../core/plugin.ts'
import { type Cell, type CellState, isLimit } from '../../core/ports/store.ts'
import { consumption } from '../shared/slots.ts'

/** What the exchange used of each amount that it had reserved, as far as it is known now. */
export function finals(cells: readonly Cell[], reserved: readonly number[], x: Exchange): number[] {
  const bill = x.peek(usage)
  const billed = bill?.billed ? bill : undefined
  const known = x.peek(consumption)
  const consumed: Consumed = {
    // An operator's plugin may fill `usage` and count no consumption: then the bill is all that is known.
    usage: known?.usage ?? billed?.usage ?? ZERO_USAGE,
    sent: known?.sent ?? billed?.usage.input ?? 0,
    billed: billed?.cost ?? 0,
    unbilled: known?.unbilled ?? 0,
  }
  return cells.map(({ dimension }, i) => countedOf(dimension).settle(consumed, reserved[i]!))
}

/**
 * The states after a settlement. What others take meanwhile is not in them. A bucket is refilled up to `now`: of a unit
 * that comes back within this millisecond they may not have it yet, and they never have more than there is.
 * @param states right after the admission; parallel to `cells`, as are the amounts
 * @param at when it was admitted, Unix ms
 */
export function statesAfter(
  cells: readonly Cell[],
  states: readonly CellState[],
  reserved: readonly number[],
  used: readonly number[],
  at: number,
  now: number,
): CellState[] {
  return cells.map((cell, i) => (isLimit(cell) ? after(cell, states[i]!, reserved[i]!, used[i]!, at, now) : states[i]!))
}

function after(cell: Cell, state: CellState, reserved: number, final: number, at: number, now: number): CellState {
  const { capacity } = cell
  switch (cell.kind) {
    case 'slots':
      return { remaining: Math.min(capacity, state.remaining + reserved), resetMs: 0 }
    case 'spend':
    case 'balance': {
      const { period } = cell
      const same = period === undefined || periodIndex(period, at) === periodIndex(period, now)
      const left = same ? state.remaining + reserved - final : capacity
      return { remaining: Math.min(capacity, Math.max(0, left)), resetMs: 0 }
    }
    case 'bucket': {
      if (capacity <= 0) return state
      const perMs = capacity / cell.windowMs!
      // How much is taken, with fractions: `remaining` shows it to the unit, `resetMs` to the millisecond, and debt
      // too.
      const toTheMs = state.resetMs * perMs
      const taken = state.remaining > 0 ? Math.min(capacity - state.remaining, toTheMs) : toTheMs
      const rest = Math.max(0, Math.max(0, taken - Math.max(0, now - at) * perMs) + final - reserved)
      // Sums of fractions miss a whole number by less than this.
      const units = Math.ceil(rest - capacity * 1e-12)
      return { remaining: Math.max(0, capacity - units), resetMs: Math.ceil(rest / perMs - 1e-6) }
    }
  }
}
