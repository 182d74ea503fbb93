/**
 * The levels of buckets after a crash. Three things make them whole, to the last admission:
 * - the table of levels, which is at most a second old, and says up to which record of the journal (`position`)
 * - the journal's records behind it: the levels of the buckets in which a turn of the event loop settled something. A
 *   record replaces what the table has, so that it does no harm to read one twice.
 * - the exchanges that the crash cut off. What they had reserved is given back; a request and its prompt stay counted.
 *
 * Spend needs none of this: its amounts are in the rows themselves.
 */
import { countedOfLost } from '../../core/canon/limits.ts'
import type { Cell } from '../../core/ports/store.ts'
import { advance, emptyLevel, type Level } from './rules.ts'

/** The level of a bucket, as a table has it. With `used` 0 the row is deleted. Times are Unix ms. */
export type LevelRow = [
  organization: string,
  cell: string,
  used: number,
  part: number,
  at: number,
  /** When the bucket is full again for certain. */
  expires: number,
  /** Null when it is not known. */
  capacity: number | null,
  windowMs: number | null,
]

/** A record `l` of the journal. The first record of a journal has a higher number than all before it. */
export type SettledRecord = [number: number, ...levels: LevelRow[]]

/** An exchange that has an intent and no outcome. */
export interface LostExchange {
  organization: string
  key: string
  /** '' where the route has none. */
  model: string
  time: number
  /** Tokens of the prompt. */
  input: number
}

export interface RecoveredLevels {
  rows: LevelRow[]
  /** The number of the last record that is in the levels now. */
  position: number
}

/**
 * @param stored reads a row of the table
 * @param position the number of the last record that is in the table
 * @param records in any order; those up to `position`, and repeated ones, change nothing
 * @param lost only those that were not counted by an earlier call
 */
export function recoverLevels(
  stored: (organization: string, cell: string) => LevelRow | undefined,
  position: number,
  records: readonly SettledRecord[],
  lost: readonly LostExchange[],
): RecoveredLevels {
  const organizations = new Map<string, Map<string, LevelRow>>()
  const cellsOf = (organization: string) => {
    let cells = organizations.get(organization)
    if (!cells) organizations.set(organization, (cells = new Map()))
    return cells
  }
  let last = position
  for (const [number, ...levels] of records.toSorted(([a], [b]) => a - b)) {
    if (number <= last) continue
    last = number
    for (const row of levels) cellsOf(row[0]).set(row[1], row)
  }
  for (const { organization, key, model, time, input } of lost.toSorted((a, b) => a.time - b.time)) {
    const cells = cellsOf(organization)
    for (const { cell, windowMs, amount } of countedOfLost(key, model, input))
      cells.set(cell, plus(cells.get(cell) ?? stored(organization, cell), [organization, cell], windowMs, time, amount))
  }
  return { rows: Array.from(organizations.values(), cells => [...cells.values()]).flat(), position: last }
}

/** A level to which an amount is added that was taken at `time`. */
function plus(
  row: LevelRow | undefined,
  [organization, cell]: [string, string],
  windowMs: number,
  time: number,
  amount: number,
): LevelRow {
  const [, , used, part, at, expires, capacity] = row ?? [organization, cell, 0, 0, time, 0, null, null]
  const level: Level = expires > time ? { used, part, at } : { ...emptyLevel(), at: time }
  // Without its capacity the level is not refilled up to now: what it would have got back is forgotten.
  if (capacity === null) level.at = Math.max(level.at, time)
  else advance({ kind: 'bucket', capacity, windowMs } as Cell, level, time)
  level.used += amount
  const full = capacity ? (level.used / capacity) * windowMs : windowMs
  const end = Math.max(expires, level.at + Math.max(windowMs, Math.ceil(full)))
  return [organization, cell, level.used, level.part, level.at, end, capacity, windowMs]
}
