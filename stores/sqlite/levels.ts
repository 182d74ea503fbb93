/**
 * The levels of buckets outlive the process, to the last admission (limits/recovery.ts). What was settled is in the
 * journal, in the append that has the rows. What changed is written to the table in batches, and read again when a cell
 * is first used. A record leaves the journal when the table has its levels.
 */
import type { DatabaseSync } from 'node:sqlite'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import type { Item, Journal } from '../journal.ts'
import type { JournaledLedger, TurnLevels } from '../ledger.ts'
import type { MemoryLimits } from '../limits/memory.ts'
import type { SettledRecord } from '../limits/recovery.ts'
import type { Level } from '../limits/rules.ts'
import type { Writer } from './writer.ts'

/** Time between two writes of what changed, ms. Each lets the records so far leave the journal. */
const SAVE_MS = 750
/** One write has at most this many levels, so that neither the event loop nor the writer is held for long. */
const SLICE = 1000

/** The row of `meta` with the number of the last record of a journal that the table of levels has. */
export const POSITION = 'levels'

/**
 * Returns a function that reads the level which an earlier process left, or which has left memory. Once all of these
 * have expired, the table is not asked any more: the other rows are of cells that are in memory.
 * @param evictedUntil until when a level that has left memory may be in the table, Unix ms
 */
export function levelsBefore(
  db: DatabaseSync,
  clock: Clock,
  evictedUntil: () => number,
): (org: string, cell: string) => Level | undefined {
  const last = (db.prepare('SELECT max(expires) AS last FROM levels').get()!['last'] as number | null) ?? 0
  const select = db.prepare('SELECT used, part, at FROM levels WHERE organization = ? AND cell = ?')
  return (org, cell) => {
    if (clock.now() > Math.max(last, evictedUntil())) return undefined
    const row = select.get(org, cell) as { used: number; part: number; at: number } | undefined
    return row && { used: row.used, part: row.part, at: row.at }
  }
}

/** The bounds, the second not included, of texts that begin with this one, which ends with ':'. */
export const beginningWith = (prefix: string): [string, string] => [prefix, `${prefix.slice(0, -1)};`]

/** Returns a function that reads what is left of the end users of a key (`MemoryLimitsOptions.usersBefore`). */
export function usersBefore(
  db: DatabaseSync,
): (org: string, prefix: string, now: number) => readonly (readonly [string, Level])[] {
  const select = db.prepare(
    'SELECT cell, used, part, at FROM levels WHERE organization = ? AND cell >= ? AND cell < ? AND expires > ?',
  )
  return (org, prefix, now) => {
    const rows = select.all(org, ...beginningWith(prefix), now) as unknown as (Level & { cell: string })[]
    // Of spend, `at` is a period, and `part` the time.
    const time = ({ at, part }: Level) => Math.max(at, part)
    return rows.sort((a, b) => time(a) - time(b)).map(({ cell, used, part, at }) => [cell, { used, part, at }])
  }
}

/** The position of the table of levels; 0 when no record was ever in it. */
export function positionOf(db: DatabaseSync): number {
  const row = db.prepare('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?').get(POSITION)
  return Number(row?.['value'] ?? 0)
}

/** Numbers the records of levels, and keeps them in the journal until the table has them. */
export class SettledLevels implements TurnLevels {
  #limits: () => MemoryLimits
  #journal: Journal
  /** The records that the table may not have, oldest first. */
  #kept: { number: number; item: Item }[] = []
  /** The number of the last record. */
  last: number

  constructor(options: { limits: () => MemoryLimits; journal: Journal; position: number }) {
    this.#limits = options.limits
    this.#journal = options.journal
    this.last = options.position
  }

  record(): string | undefined {
    const levels = this.#limits().settled()
    if (levels.length === 0) return undefined
    return JSON.stringify([this.last + 1, ...levels] satisfies SettledRecord)
  }

  written(item: Item): void {
    this.last++
    this.#limits().noted()
    this.#kept.push({ number: this.last, item })
  }

  /** The table has all records up to this one. */
  saved(position: number): void {
    const left = this.#kept.findIndex(({ number }) => number > position)
    for (const { item } of this.#kept.splice(0, left < 0 ? this.#kept.length : left)) this.#journal.release(item)
  }
}

export class LevelSaver {
  #limits: MemoryLimits
  #writer: Writer
  #clock: Clock
  #ledger: JournaledLedger
  #settled: SettledLevels | undefined
  #timer: Timer | undefined
  #saving: Promise<void> | undefined

  /** @param options.settled absent for a database in memory, which keeps no levels */
  constructor(options: {
    limits: MemoryLimits
    writer: Writer
    clock: Clock
    ledger: JournaledLedger
    settled: SettledLevels | undefined
  }) {
    this.#limits = options.limits
    this.#writer = options.writer
    this.#clock = options.clock
    this.#ledger = options.ledger
    this.#settled = options.settled
    this.#schedule()
  }

  /** Writes what has changed so far. Never rejects: what could not be written stays to be written. */
  save(): Promise<void> {
    this.#saving ??= this.#saveAll().finally(() => {
      this.#saving = undefined
    })
    return this.#saving
  }

  /** Writes what has changed, for the last time. */
  async close(): Promise<void> {
    this.#timer?.cancel()
    await this.#saving
    await this.save()
  }

  #schedule(): void {
    this.#timer = this.#clock.setTimer(SAVE_MS, () => {
      // While the disk is slow, the next turn writes what gathers meanwhile: one write is under way at most.
      void this.save()
      this.#schedule()
    })
  }

  async #saveAll(): Promise<void> {
    if (!this.#settled || this.#limits.changes === 0) return
    // What was settled before this is in the journal, up to the last record, and all of it is about to be written. What
    // is settled while that goes on has later records. Where the journal takes nothing, levels are written all the same:
    // a crash then counts exchanges twice whose rows are lost.
    this.#ledger.append()
    const position = this.#settled.last
    // What changes while this goes on is for the next time.
    for (let left = this.#limits.changes; left > 0; left -= SLICE) {
      const changed = this.#limits.changed(Math.min(left, SLICE))
      try {
        await this.#writer.write({
          op: 'levels',
          levels: JSON.stringify(changed.map(({ row }) => row)),
          position: left > SLICE ? null : position,
        })
      } catch {
        // The writer's failure shows in `ready`.
        this.#limits.failed(changed)
        return
      }
      this.#limits.stored(changed)
    }
    this.#settled.saved(position)
  }
}
