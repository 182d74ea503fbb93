/**
 * The limit rules as pure functions over levels: they touch only their arguments, and time is an argument (decisions 19). Both engines
 * use them; the Redis scripts repeat `refill` and `fits` in Lua, and one model test holds the two together.
 *
 * A level counts what is *taken*, not what is left, so a missing level is a full cell, debt is `used > capacity` (decisions 18), and a capacity
 * that changes (reload, platform load) needs no conversion.
 *
 * Refill is exact: `used` is whole units, and `part` is the fraction of the next unit that has already flowed back, in windowMs-ths. No float
 * is ever rounded, so nothing drifts however often a cell is looked at. Capacities up to 1e13 stay exact.
 */
import type { Admission, AdmitRequest, Cell, CellState } from '../../core/store.ts'

export interface Level {
  /** Buckets: units not yet refilled. Slots: held now. Spend: nano-USD of the period, reservations included. */
  used: number
  /** Buckets: refill already earned towards the next unit, in windowMs-ths of a unit; below windowMs. */
  part: number
  /** Buckets: Unix ms up to which refill is counted. Spend: the period's index. Slots: unused. */
  at: number
}

const DAY = 86_400_000
/** ERR-4 class of concurrency (decisions 24). */
const CONCURRENCY_HORIZON = 1000

export function emptyLevel(): Level {
  return { used: 0, part: 0, at: 0 }
}

// ---- UTC periods ------------------------------------------------------------------------------------------------------

let monthOfDay = { day: Number.NaN, month: 0 }

/** Index of the UTC day or month that `now` lies in; grows with time. */
export function periodIndex(period: 'day' | 'month', now: number): number {
  const day = Math.floor(now / DAY)
  if (period === 'day') return day
  if (monthOfDay.day !== day) {
    const date = new Date(now)
    monthOfDay = { day, month: date.getUTCFullYear() * 12 + date.getUTCMonth() }
  }
  return monthOfDay.month
}

/** First instant of a period, Unix ms. */
export function periodStart(period: 'day' | 'month', index: number): number {
  return period === 'day' ? index * DAY : Date.UTC(Math.floor(index / 12), index % 12, 1)
}

// ---- one cell ---------------------------------------------------------------------------------------------------------

/**
 * Units that flow back in `elapsed` ms on top of `part`, as whole units and the new part. Split into whole windows, whole units per ms and the
 * rest, so that every product stays below 2^53: the largest is (windowMs - 1)^2 + windowMs < 7.5e15 for a day.
 */
function refill(level: Level, capacity: number, windowMs: number, elapsed: number): void {
  const windows = Math.floor(elapsed / windowMs)
  const rest = elapsed - windows * windowMs
  const perMs = Math.floor(capacity / windowMs)
  const parts = rest * (capacity - perMs * windowMs) + level.part
  let units = Math.floor(parts / windowMs)
  let part = parts - units * windowMs
  // The division may have rounded up to the next whole number.
  if (part < 0) {
    units--
    part += windowMs
  }
  level.used -= windows * capacity + rest * perMs + units
  if (level.used > 0) level.part = part
  else {
    level.used = 0
    level.part = 0
  }
}

/**
 * Brings a level up to `now`: refill, or the turn of a UTC period. Time never runs backwards in a level: a `now` before it (another machine's
 * clock) refills nothing. A level more than a day, or a whole period, ahead was written by a clock that has been corrected since, and is pulled back.
 */
export function advance(cell: Cell, level: Level, now: number): void {
  if (cell.kind === 'bucket') {
    const elapsed = now - level.at
    if (level.used === 0) {
      if (elapsed > 0) level.at = now
    } else if (elapsed > 0) {
      refill(level, cell.capacity, cell.windowMs!, elapsed)
      level.at = now
    } else if (elapsed < -DAY) level.at = now
  } else if (cell.kind === 'spend') {
    const index = periodIndex(cell.period!, now)
    if (index > level.at || index < level.at - 1) {
      level.used = 0
      level.at = index
    }
  }
}

/** Whether an advanced level has room. What asks for nothing always passes: free billing under a cap of 0.00 (decisions 21). */
export function fits(cell: Cell, level: Level, amount: number): boolean {
  return amount <= 0 || level.used + amount <= cell.capacity
}

/**
 * Milliseconds until the amount may fit (ERR-4), for an advanced level that has no room. Buckets: exactly until it fits; what
 * is above the whole capacity never does and waits a whole window. Concurrency: 1 s. Spend: until the next UTC day or month.
 */
export function horizon(cell: Cell, level: Level, amount: number, now: number): number {
  if (cell.kind === 'slots') return CONCURRENCY_HORIZON
  if (cell.kind === 'spend') return Math.max(1, periodStart(cell.period!, level.at + 1) - now)
  const windowMs = cell.windowMs!
  if (amount > cell.capacity || cell.capacity <= 0) return Math.max(windowMs, untilFull(cell, level))
  const need = level.used + amount - cell.capacity
  let ms = Math.max(1, Math.ceil((need / cell.capacity) * windowMs - level.part / cell.capacity))
  // The estimate is off by a millisecond at most; the exact rule has the last word.
  while (!refilled(cell, level, need, ms)) ms++
  while (ms > 1 && refilled(cell, level, need, ms - 1)) ms--
  // A level ahead of this clock starts to refill only then.
  return ms + Math.max(0, level.at - now)
}

function refilled(cell: Cell, level: Level, need: number, ms: number): boolean {
  const copy = { used: level.used, part: level.part, at: 0 }
  refill(copy, cell.capacity, cell.windowMs!, ms)
  return level.used - copy.used >= need
}

function untilFull(cell: Cell, level: Level): number {
  if (level.used === 0) return 0
  if (cell.capacity <= 0) return cell.windowMs!
  return Math.max(1, Math.ceil((level.used / cell.capacity) * cell.windowMs! - level.part / cell.capacity))
}

/** What headers and the dashboard show of an advanced level. Debt shows as 0 remaining. */
export function stateOf(cell: Cell, level: Level): CellState {
  return {
    remaining: Math.max(0, cell.capacity - level.used),
    resetMs: cell.kind === 'bucket' ? untilFull(cell, level) : 0,
  }
}

/**
 * Corrects an advanced level from what was reserved to the final figure. Slots go back whatever the final is. Spend belongs to the period it was
 * reserved in (`charged`, a period index), which is also the day of its ledger row; once that has passed there is nothing to correct.
 */
export function correct(cell: Cell, level: Level, reserved: number, final: number, charged: number): void {
  if (cell.kind === 'spend' && level.at !== charged) return
  level.used = Math.max(0, level.used + (cell.kind === 'slots' ? 0 : final) - reserved)
  if (level.used === 0) level.part = 0
}

// ---- all cells of a request -------------------------------------------------------------------------------------------

/** The denial of a set of advanced levels: the denying cell with the longest horizon, the first among equals. Null when all have room. */
export function denial(
  cells: readonly Cell[],
  levels: readonly Level[],
  amounts: readonly number[],
  now: number,
): { denied: number; horizonMs: number } | null {
  let denied = -1
  let horizonMs = 0
  for (let i = 0; i < cells.length; i++) {
    if (fits(cells[i]!, levels[i]!, amounts[i]!)) continue
    const wait = horizon(cells[i]!, levels[i]!, amounts[i]!, now)
    if (denied < 0 || wait > horizonMs) {
      denied = i
      horizonMs = wait
    }
  }
  return denied < 0 ? null : { denied, horizonMs }
}

/** One admission over levels parallel to the cells (LIM-2): brings them up to date, then takes every amount or none. */
export function admit(request: AdmitRequest, levels: readonly Level[]): Admission {
  const { cells, amounts, now } = request
  const count = cells.length
  let room = true
  for (let i = 0; i < count; i++) {
    const level = levels[i]!
    advance(cells[i]!, level, now)
    if (!fits(cells[i]!, level, amounts[i]!)) room = false
  }
  const states = new Array<CellState>(count)
  for (let i = 0; i < count; i++) {
    const level = levels[i]!
    if (room) level.used += amounts[i]!
    states[i] = stateOf(cells[i]!, level)
  }
  return room ? { admitted: true, states } : { admitted: false, ...denial(cells, levels, amounts, now)!, states }
}
