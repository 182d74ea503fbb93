/**
 * Where levels are stored in Redis, and the layout of the arguments of the scripts.
 *
 * The levels of one scope share one field of the organization's hash. Such a field is a group, and each level has a
 * place in it. Example: `o:rpm` and `o:tpd` have places in the group `o`, because the last word of each id is the
 * standard one for what the cell limits. Any other cell has its own group, named `id!`, so that no two cells share a
 * place. This includes cells of limits that are newer than this layout (core/canon/limits.ts): they use a place of the
 * same kind and window. So a new limit does not change stored data.
 *
 * A balance has a group of its own, too, with the place of slots: both count what is taken, and nothing comes back with
 * time. What a release without balances gives back there is right. In the place of the month's period the group has the
 * generation of balances (lease.ts): one of another generation, or none, is built before it is used.
 *
 * The groups of a key's end users are in a hash of the key, with the users' own parts of reservations under the same
 * marks. So a release that does not know them leaves them alone when it gives back what a dead gateway held; a release
 * that does gives back the users' parts later (limits.ts, `audit`).
 *
 *   sluice:{org}:limits             hash: groups of levels, and reservations under their marks
 *   sluice:{org}:users              set: the ids of keys that have end users
 *   sluice:{org}:users:<key>        hash: the groups `k:<key>:u` (shared) and `k:<key>:u:<user>`, and reservations; `#` is
 *                                   the number of admissions
 *   sluice:{org}:order:<key>        sorted set: the names of the users, by the number of their last admission
 */
import { COUNTED } from '../../core/canon/limits.ts'
import type { Cell } from '../../core/ports/store.ts'

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
 * The places of a group, in order. This is a format of stored data: it does not change with the table of limits.
 *
 * A group is a list of doubles. The first is `at`, the time up to which its buckets are refilled (Unix ms). Then follow
 * used and part for each bucket, used for slots, and used and period for spend. The buckets share one `at`, because
 * each step brings all of them up to date. A step may have no capacity for a bucket, when its limit is not configured
 * in that process. The refill of that bucket is then owed: its part is negative, the number of milliseconds owed.
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
/** The index of each place's first double. */
const starts = PLACES.map(
  (_, i) => 1 + PLACES.slice(0, i).reduce((sum, { kind }) => sum + (kind === 'slots' ? 1 : 2), 0),
)
export const STARTS: readonly number[] = starts
export const GROUP_DOUBLES = starts.at(-1)! + 2
export const GROUP_BYTES = 8 * GROUP_DOUBLES

const SLOTS_PLACE = PLACES.findIndex(p => p.kind === 'slots')

/**
 * The group of a cell, and the index of its place there.
 * @throws Error for a cell whose kind and window have no place
 */
export function placeOf(cell: Pick<Cell, 'id' | 'kind' | 'dimension' | 'windowMs' | 'period'>): {
  group: string
  place: number
} {
  const alike = (p: Place) => p.kind === cell.kind && p.windowMs === cell.windowMs && p.period === cell.period
  const own = PLACES.findIndex(p => alike(p) && p.dimension === cell.dimension)
  const end = own >= 0 && ':' + PLACES[own]!.word
  if (end && cell.id.endsWith(end)) return { group: cell.id.slice(0, -end.length), place: own }
  const place = cell.kind === 'balance' ? SLOTS_PLACE : own >= 0 ? own : PLACES.findIndex(alike)
  if (place < 0) throw new Error(`the redis engine knows no cell like ${JSON.stringify(cell)}`)
  return { group: cell.id + '!', place }
}

/** The names of the Redis keys of the end users of a key of the organization with this hash tag. */
export const userNames = (tag: string, key: string) => ({
  cells: `sluice:${tag}:users:${key}`,
  order: `sluice:${tag}:order:${key}`,
  all: `sluice:${tag}:users`,
})

/**
 * For how long the groups of a key's end users are kept after the last new user, or the last day with an admission, ms:
 * longer than any of these cells looks back.
 */
export function usersKeep(cells: readonly Pick<Cell, 'id'>[]): number {
  const words = cells.map(({ id }) => PLACES.find(({ word }) => id.endsWith(`:${word}`)))
  const days = words.map(place => (place?.period === 'month' ? 40 : place?.period || place?.windowMs === DAY ? 8 : 2))
  return Math.max(...days) * DAY
}

/** Where what is taken of an organization's balance is kept. */
export const BALANCE = placeOf({ id: COUNTED.balance.given, kind: 'balance', dimension: 'balance' })

/**
 * A request begins with four doubles: now (Unix ms), the indexes of the UTC day and month, and the number of groups.
 */
export const HEAD = 4
/** Then a request has two doubles for each place of each group: capacity and amount. */
export const PLACE_DOUBLES = 2
/** The capacity of a place that has no cell in this request. */
export const NONE = -1
/**
 * A settlement has more doubles behind that, for each group: the final figure of each place, then the indexes of the
 * day and the month in which spend was charged.
 */
export const FINALS = PLACES.length + 2

export const DAY_PLACE = PLACES.findIndex(p => p.period === 'day')
const MONTH_PLACE = PLACES.findIndex(p => p.period === 'month')
/** The index of the double in a group that holds how many requests run. */
export const RUNNING = STARTS[SLOTS_PLACE]!
/** Indexes of doubles in the group of a balance: what is taken, and the generation. */
export const TAKEN = STARTS[SLOTS_PLACE]!
export const GENERATION = STARTS[MONTH_PLACE]! + 1
/** Indexes in the doubles that a request has for the group of a balance: its amount, and the generation. */
export const BALANCE_AMOUNT = PLACE_DOUBLES * SLOTS_PLACE + 1
export const ASKED_GENERATION = PLACE_DOUBLES * MONTH_PLACE + 1
