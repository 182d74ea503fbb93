/**
 * Where levels live in Redis, and how the scripts are asked about them.
 *
 * The levels of one scope share a field of the organization's hash, a group: `o:rpm` and `o:tpd` are places in the group `o`, because their last word is the
 * standard one for what they limit. Any other cell has a group of its own (`id!`), so that no two cells ever share a place: of a limit that came later
 * than this layout (core/limits.ts) too, at a place of its kind and window. So a new limit changes nothing of what is stored.
 */
import type { Cell } from '../../core/store.ts'

const MINUTE = 60_000
const DAY = 86_400_000

interface Place {
  readonly word: string
  readonly kind: Cell['kind']
  readonly dimension: Cell['dimension']
  readonly windowMs?: number
  readonly period?: 'day' | 'month'
}
/**
 * The places of a group, in order. Stored: they do not change with the table of limits.
 *
 * A group is doubles: `at`, the time up to which its buckets are refilled, then of each bucket used and part, of slots used, and of spend used and period. Buckets share
 * their `at` because every step brings all of them up to date. One that a step has no capacity for (its limit is not configured there) is owed its refill: its part is then
 * the milliseconds owed, below zero.
 */
export const PLACES: readonly Place[] = [
  { word: 'rpm', kind: 'bucket', dimension: 'requests', windowMs: MINUTE },
  { word: 'rpd', kind: 'bucket', dimension: 'requests', windowMs: DAY },
  { word: 'tpm', kind: 'bucket', dimension: 'tokens', windowMs: MINUTE },
  { word: 'tpd', kind: 'bucket', dimension: 'tokens', windowMs: DAY },
  { word: 'itpm', kind: 'bucket', dimension: 'input_tokens', windowMs: MINUTE },
  { word: 'itpd', kind: 'bucket', dimension: 'input_tokens', windowMs: DAY },
  { word: 'otpm', kind: 'bucket', dimension: 'output_tokens', windowMs: MINUTE },
  { word: 'otpd', kind: 'bucket', dimension: 'output_tokens', windowMs: DAY },
  { word: 'conc', kind: 'slots', dimension: 'concurrency' },
  { word: 'day', kind: 'spend', dimension: 'spend', period: 'day' },
  { word: 'month', kind: 'spend', dimension: 'spend', period: 'month' },
]
/** The first double of each place, and how many there are. */
const starts = PLACES.map(
  (_, i) => 1 + PLACES.slice(0, i).reduce((sum, { kind }) => sum + (kind === 'slots' ? 1 : 2), 0),
)
export const STARTS: readonly number[] = starts
export const GROUP_DOUBLES = starts.at(-1)! + 2
export const GROUP_BYTES = 8 * GROUP_DOUBLES

/** The group of a cell, and its place there, from 0. */
export function placeOf(cell: Pick<Cell, 'id' | 'kind' | 'dimension' | 'windowMs' | 'period'>): {
  group: string
  place: number
} {
  const alike = (p: Place) => p.kind === cell.kind && p.windowMs === cell.windowMs && p.period === cell.period
  const own = PLACES.findIndex(p => alike(p) && p.dimension === cell.dimension)
  const end = own >= 0 && ':' + PLACES[own]!.word
  if (end && cell.id.endsWith(end)) return { group: cell.id.slice(0, -end.length), place: own }
  const place = own >= 0 ? own : PLACES.findIndex(alike)
  if (place < 0) throw new Error(`the redis engine knows no cell like ${JSON.stringify(cell)}`)
  return { group: cell.id + '!', place }
}

/** A request starts with now, the indexes of the UTC day and month, and the number of groups. */
export const HEAD = 4
/** Then for each place of each group: capacity (NONE: no cell there) and amount. */
export const PLACE_DOUBLES = 2
export const NONE = -1
/** A settlement goes on, for each group, with the final figure of each place and the periods charged of day and month. */
export const FINALS = PLACES.length + 2

export const DAY_PLACE = PLACES.findIndex(p => p.period === 'day')
