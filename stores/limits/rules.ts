/**
 * The limit rules, as functions that change only their arguments; the time is an argument too (decisions 19). Both
 * engines use them. The Redis scripts repeat `refill` and `fits` in Lua, and a model test checks that both versions
 * agree.
 *
 * A level counts what has been *taken*, not what is left. So a missing level stands for a full cell, debt is
 * `used > capacity` (decisions 18), and a changed capacity (after a reload, or by platform load) needs no conversion.
 *
 * Refill is exact. `used` is a whole number of units. `part` is the refill already earned towards the next unit; its
 * unit is 1/windowMs of a unit. No result is rounded, so levels do not drift however often a cell is read. This holds
 * for capacities up to 1e13.
 */
import { periodIndex, periodStart } from '../../core/canon/limits.ts'
import type { Admission, AdmitRequest, Cell, CellState, Denial } from '../../core/ports/store.ts'

export interface Level {
  /**
   * Buckets: units not yet refilled. Slots: how many are held now. Spend: nano-USD of the period, with reservations.
   * Balance: nano-USD of all time, with reservations.
   */
  used: number
  /** Buckets: refill already earned towards the next unit, in 1/windowMs of a unit; below windowMs. */
  part: number
  /** Buckets: the time up to which refill is counted, Unix ms. Spend: the period's index. Others: unused. */
  at: number
}

const DAY = 86_400_000
/** By this many days or months a level of spend may be ahead of a clock before it is set back. */
export const FAR_AHEAD = { day: 31, month: 2 }
/** The wait in ms that a denial by concurrency asks for: ERR-4 gives concurrency a fixed class (decisions 24). */
const CONCURRENCY_HORIZON = 1000

/** The level of a cell from which nothing has been taken. */
export function emptyLevel(): Level {
  return { used: 0, part: 0, at: 0 }
}

// ---- one cell -------------------------------------------------------------------------------------------------------

/**
 * Gives back the units that `elapsed` ms earn, and updates `part`. The sum is split into whole windows, whole units per
 * ms, and the rest, so that every product is below 2^53: the largest is (windowMs - 1)^2 + windowMs < 7.5e15 for a day.
 */
function refill(level: Level, capacity: number, windowMs: number, elapsed: number): void {
  const windows = Math.floor(elapsed / windowMs)
  const rest = elapsed - windows * windowMs
  const perMs = Math.floor(capacity / windowMs)
  const parts = rest * (capacity - perMs * windowMs) + level.part
  let units = Math.floor(parts / windowMs)
  let part = parts - units * windowMs
  // The floating-point division may have rounded up to the next whole number.
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
 * Brings a level up to `now`: refills a bucket, or starts a new UTC period of spend. When `now` is before the level's
 * time (the clock of another machine), nothing is refilled and the level's time stays: what was refilled ahead is not
 * refilled again. Spend of an earlier period counts in the level's period, so that a clock that goes back and forth
 * empties nothing. A level that is far ahead was written by a wrong clock that has been corrected since: its time is
 * set back to `now`, and what is used stays used.
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
    if (index > level.at) level.used = 0
    if (index > level.at || index < level.at - FAR_AHEAD[cell.period!]) level.at = index
  }
}

/**
 * Whether a level has room for the amount. `advance` must have been called. An amount of 0 always fits, so that free
 * billing works under a cap of 0.00 (decisions 21).
 */
export function fits(cell: Cell, level: Level, amount: number): boolean {
  return amount <= 0 || level.used + amount <= cell.capacity
}

/**
 * Milliseconds until the amount may fit (ERR-4), for an advanced level that has no room for it now. Buckets: the exact
 * time until it fits. An amount above the whole capacity never fits: it gets at least a whole window. Concurrency: 1 s.
 * Spend: until the next UTC day or month. Balance: for ever.
 */
export function msUntilFits(cell: Cell, level: Level, amount: number, now: number): number {
  if (cell.kind === 'slots') return CONCURRENCY_HORIZON
  if (cell.kind === 'balance') return Number.POSITIVE_INFINITY
  if (cell.kind === 'spend') return Math.max(1, periodStart(cell.period!, level.at + 1) - now)
  const windowMs = cell.windowMs!
  if (amount > cell.capacity || cell.capacity <= 0) return Math.max(windowMs, untilFull(cell, level))
  const need = level.used + amount - cell.capacity
  let ms = Math.max(1, Math.ceil((need / cell.capacity) * windowMs - level.part / cell.capacity))
  // The estimate may be wrong by one millisecond, so it is corrected by the exact rule.
  while (!refilled(cell, level, need, ms)) ms++
  while (ms > 1 && refilled(cell, level, need, ms - 1)) ms--
  // A level whose time is ahead of this clock starts to refill only at that time.
  return ms + Math.max(0, level.at - now)
}

/** Whether `ms` milliseconds of refill give back at least `need` units. */
function refilled(cell: Cell, level: Level, need: number, ms: number): boolean {
  const copy = { used: level.used, part: level.part, at: 0 }
  refill(copy, cell.capacity, cell.windowMs!, ms)
  return level.used - copy.used >= need
}

/** Milliseconds until a bucket is full again. */
function untilFull(cell: Cell, level: Level): number {
  if (level.used === 0) return 0
  if (cell.capacity <= 0) return cell.windowMs!
  return Math.max(1, Math.ceil((level.used / cell.capacity) * cell.windowMs! - level.part / cell.capacity))
}

/** The state of an advanced level that headers and the dashboard show. Debt is shown as 0 remaining. */
export function stateOf(cell: Cell, level: Level): CellState {
  return {
    remaining: Math.max(0, cell.capacity - level.used),
    resetMs: cell.kind === 'bucket' ? untilFull(cell, level) : 0,
  }
}

/**
 * Replaces what was reserved by the final figure, in an advanced level. Slots are given back whatever the final figure
 * is. Spend belongs to the period in which it was reserved, which is also the day of its ledger row: once that period
 * has passed, there is nothing to correct.
 * @param charged index of the period in which spend was reserved; unused for other cells
 */
export function correct(cell: Cell, level: Level, reserved: number, final: number, charged: number): void {
  if (cell.kind === 'spend' && level.at !== charged) return
  level.used = Math.max(0, level.used + (cell.kind === 'slots' ? 0 : final) - reserved)
  if (level.used === 0) level.part = 0
}

/**
 * Raises a level to another of the same limit, where that is the higher one; both are advanced. Slots stay: each is held
 * where it was taken.
 */
export function raise(cell: Cell, level: Level, other: Level): void {
  if (cell.kind === 'slots') return
  if (other.used > level.used || (other.used === level.used && other.part < level.part)) {
    level.used = other.used
    level.part = other.part
  }
  level.at = Math.max(level.at, other.at)
}

/**
 * The denial of a request of an end user: of what denies in the account's cells and in his, the one with the longer wait.
 * @param ofUser his states
 */
export function deniedBy(
  account: { denied: number; horizonMs: number } | null,
  user: { denied: number; horizonMs: number } | null,
  states: CellState[],
  ofUser: () => CellState[],
): Denial {
  if (user && (!account || user.horizonMs > account.horizonMs))
    return { admitted: false, ...user, states, user: ofUser() }
  return { admitted: false, ...account!, states }
}

// ---- all cells of a request -----------------------------------------------------------------------------------------

/**
 * Which cell denies: among the advanced levels without room, the one with the longest wait; the first of several
 * equal ones. Null when all have room.
 */
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
    const wait = msUntilFits(cells[i]!, levels[i]!, amounts[i]!, now)
    if (denied < 0 || wait > horizonMs) {
      denied = i
      horizonMs = wait
    }
  }
  return denied < 0 ? null : { denied, horizonMs }
}

/** One admission (LIM-2): advances the levels, which are parallel to the cells, then takes every amount or none. */
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
