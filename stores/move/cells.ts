/** Limits between the engines: rows of cells in SQLite, and groups of doubles in Redis (redis/layout.ts). */
import { COUNTED, periodIndex, userOfCell } from '../../core/canon/limits.ts'
import { GROUP_BYTES, PLACES, placeOf, STARTS } from '../redis/layout.ts'
import type { Cells, Drop } from './end.ts'

/** What a level counts, by the last word of the ids of its cells. */
const WORDS = new Map(
  Object.entries(COUNTED).flatMap(([dimension, { kind, limits }]) =>
    limits.map(limit => {
      const { word, windowMs } = limit as { word: string; windowMs?: number }
      return [word, { dimension: dimension as keyof typeof COUNTED, kind, ...(windowMs && { windowMs }) }] as const
    }),
  ),
)

const places = PLACES.map((place, i) => ({ ...place, start: STARTS[i]! }))

/** Reads the groups of an organization (redis/layout.ts). */
export function cellsOf(organization: string, fields: Record<string, Buffer>, now: number, drop: Drop): Cells {
  const cells: Cells = { organization, spend: [], levels: [] }
  for (const [group, bytes] of Object.entries(fields)) {
    if (group.startsWith('@') || bytes.length !== GROUP_BYTES) continue
    const at = bytes.readDoubleLE(0)
    for (const { word, kind, period, start } of places) {
      const [used, second] = [bytes.readDoubleLE(8 * start), kind === 'slots' ? 0 : bytes.readDoubleLE(8 * start + 8)]
      if (used <= 0 || kind === 'slots') continue
      const cell = group.endsWith('!') ? group.slice(0, -1) : `${group}:${word}`
      if (period === undefined) {
        // A negative part is refill that is owed, in ms.
        const owed = second < 0
        cells.levels.push({ cell, used, part: owed ? 0 : second, at: owed ? at + second : at })
      } else if (second !== periodIndex(period, now)) drop('spend of days and months that are over')
      else cells.spend.push({ cell, period, number: second, amount: used, ...(userOfCell(cell) && { at }) })
    }
  }
  return cells
}

/**
 * Makes the groups of an organization. Buckets of a group share their time: the latest of them. To the others, the time
 * in between is owed, and the part of a unit that they had earned is lost.
 */
export function groupsOf({ spend, levels }: Cells): Map<string, Buffer> {
  const groups = new Map<string, Buffer>()
  /** By group, of spend. */
  const times = new Map<string, number>()
  const groupOf = (name: string) => {
    const known = groups.get(name)
    if (known) return known
    const made = Buffer.alloc(GROUP_BYTES)
    groups.set(name, made)
    return made
  }
  for (const { cell, period, number, amount, at = 0 } of spend) {
    const { group, place } = placeOf({ id: cell, kind: 'spend', dimension: 'spend', period })
    const bytes = groupOf(group)
    bytes.writeDoubleLE(amount, 8 * STARTS[place]!)
    bytes.writeDoubleLE(number, 8 * STARTS[place]! + 8)
    times.set(group, Math.max(at, times.get(group) ?? 0))
  }
  const placed = levels.map(level => ({ ...level, ...levelPlace(level.cell)! }))
  for (const { group, at } of placed) {
    const bytes = groupOf(group)
    bytes.writeDoubleLE(Math.max(at, bytes.readDoubleLE(0)), 0)
  }
  for (const { group, place, used, part, at } of placed) {
    const bytes = groupOf(group)
    const latest = bytes.readDoubleLE(0)
    bytes.writeDoubleLE(used, 8 * STARTS[place]!)
    bytes.writeDoubleLE(at === latest ? part : at - latest, 8 * STARTS[place]! + 8)
  }
  // Where a group has buckets, it has their time.
  for (const [group, at] of times) {
    const bytes = groups.get(group)!
    if (bytes.readDoubleLE(0) === 0) bytes.writeDoubleLE(at, 0)
  }
  return groups
}

/** The period of the spend of an end user, which SQLite keeps with the levels; undefined for a bucket. */
export function periodOfUser(cell: string): 'day' | 'month' | undefined {
  const word = cell.slice(cell.lastIndexOf(':') + 1)
  return (word === 'day' || word === 'month') && userOfCell(cell) ? word : undefined
}

/** Where the level of a bucket is kept; null for a limit that this release does not know. */
export function levelPlace(id: string): { group: string; place: number } | null {
  const known = WORDS.get(id.slice(id.lastIndexOf(':') + 1))
  return known?.kind === 'bucket' ? placeOf({ id, ...known }) : null
}
