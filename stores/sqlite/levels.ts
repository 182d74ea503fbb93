/**
 * The levels of buckets outlive the process: what changed is written in batches, and read again when a cell is first
 * used. A crash loses less than a second of changes; what running exchanges had reserved is given back by it.
 */
import type { DatabaseSync } from 'node:sqlite'
import type { Clock, Timer } from '../../core/clock.ts'
import type { MemoryLimits } from '../limits/memory.ts'
import type { Level } from '../limits/rules.ts'
import type { LevelRow } from './tables.ts'
import type { Writer } from './writer.ts'

/** Time between two writes of what changed, ms. Below a second, so that with its commit no level is a second old. */
const SAVE_MS = 750
/** One write has at most this many levels, so that neither the event loop nor the writer is held for long. */
const SLICE = 1000

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

export class LevelSaver {
  #limits: MemoryLimits
  #writer: Writer
  #clock: Clock
  #timer: Timer | undefined
  #saving: Promise<void> | undefined

  constructor(options: { limits: MemoryLimits; writer: Writer; clock: Clock }) {
    this.#limits = options.limits
    this.#writer = options.writer
    this.#clock = options.clock
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
    // What changes while this goes on is for the next time.
    for (let left = this.#limits.changes; left > 0; left -= SLICE) {
      const changed = this.#limits.changed(Math.min(left, SLICE))
      const rows = changed.map(
        ({ organization, cell, used, part, at, expires }): LevelRow => [organization, cell, used, part, at, expires],
      )
      try {
        await this.#writer.write({ op: 'levels', levels: JSON.stringify(rows) })
      } catch {
        // The writer's failure shows in `ready`.
        this.#limits.failed(changed)
        return
      }
      this.#limits.stored(changed)
    }
  }
}
