/**
 * The embedded limit engine. Levels are plain numbers in the memory of one process, without locks or messages. What an
 * earlier process left is read when a cell is first used: the levels of buckets, and the spend of a day or month. The
 * store asks for the buckets that changed (`changed`) and writes them.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { IdMap } from '../../core/collections.ts'
import type { Admission, AdmitRequest, Cell, CellState, Denial, LimitEngine } from '../../core/store.ts'
import type { Charge } from '../journal.ts'
import { admit, advance, correct, denial, emptyLevel, fits, type Level, periodIndex, stateOf } from './rules.ts'

/** One sweep checks this many organizations, so that it does not block the event loop for long. */
const SWEEP_ORGS = 500
const SWEEP_MS = 1000

interface Entry {
  readonly org: string
  /** The cell of the last admission. The sweep refills the level with this cell's capacity. */
  cell: Cell
  readonly level: Level
  /** What of the level is reserved by running exchanges. After a crash it counts as given back, so it is not stored. */
  held: number
  /** The level changed since it was last given out by `changed`. */
  dirty: boolean
  /**
   * The store may have a row of this cell. Until that is deleted, the entry stays: a reader would find the old level.
   */
  stored: boolean
}

/** The level of a bucket, to be stored. */
export interface ChangedLevel {
  readonly organization: string
  readonly cell: string
  /** Without reservations. Zero: the row is deleted. */
  readonly used: number
  readonly part: number
  readonly at: number
  /** Unix ms when the bucket is full again for certain: the row is of no use any more. */
  readonly expires: number
  /** This engine's own. */
  readonly entry: Entry
}
interface Reservation {
  readonly cells: readonly Cell[]
  readonly amounts: readonly number[]
  /** The period in which each spend cell was charged; parallel to `cells`. Absent when no cell is of spend. */
  readonly periods: readonly number[] | undefined
}
/** A set of cells with its levels. */
interface Resolved {
  readonly cells: readonly Cell[]
  /** Parallel to `cells`. */
  readonly entries: readonly Entry[]
  /** Those of `entries`. */
  readonly levels: readonly Level[]
  /** Whether one of the cells is of spend. */
  readonly spend: boolean
}
interface Organization {
  /** By cell id. */
  readonly entries: Map<string, Entry>
  /** By request id. */
  readonly reservations: IdMap<Reservation>
  /** The cells of the last admission. Successive requests of one key have the same set of cells. */
  resolved: Resolved | undefined
}

export interface MemoryLimitsOptions {
  clock: Clock
  /** How much was spent in a cell's period before this process started, in nano-USD. */
  spent?: (org: string, cell: string, period: number) => number
  /** The level of a bucket that an earlier process left. Absent: levels are not stored, and `changed` is empty. */
  levelBefore?: (org: string, cell: string) => Level | undefined
  /** Called with the spend of each settled request, which must be stored. */
  onCharge?: (org: string, id: string, charges: Charge[]) => void
}

export class MemoryLimits implements LimitEngine {
  #orgs = new Map<string, Organization>()
  #options: MemoryLimitsOptions
  #sweeping: IterableIterator<[string, Organization]> | undefined
  #timer: Timer | undefined
  /** Entries whose `dirty` is set. */
  #dirty: Entry[] = []

  constructor(options: MemoryLimitsOptions) {
    this.#options = options
    this.#schedule()
  }

  admit(request: AdmitRequest): Admission {
    const org = this.#org(request.org)
    const { cells, now } = request
    let resolved = org.resolved
    if (resolved?.cells !== cells) resolved = org.resolved = this.#resolve(request.org, org, cells, now)
    const { levels } = resolved
    const admission = admit(request, levels)
    if (!admission.admitted) {
      // A repeated request id is answered as admitted when its reservation exists, as the Redis script does.
      return org.reservations.has(request.id) ? { admitted: true, states: admission.states } : admission
    }
    const { amounts } = request
    const periods = resolved.spend ? levels.map(level => level.at) : undefined
    if (org.reservations.add(request.id, { cells, amounts, periods })) {
      const { entries } = resolved
      for (let i = 0; i < entries.length; i++) this.#touch(entries[i]!, amounts[i]!)
      return admission
    }
    for (let i = 0; i < levels.length; i++) levels[i]!.used -= amounts[i]!
    return { admitted: true, states: states(cells, levels, now) }
  }

  settle(orgId: string, id: string, finals: readonly number[], now: number): void {
    const org = this.#orgs.get(orgId)
    const reservation = org?.reservations.take(id)
    if (!org || !reservation) return
    const { cells, amounts, periods } = reservation
    const entries = org.resolved?.cells === cells ? org.resolved.entries : undefined
    let charges: Charge[] | undefined
    for (let i = 0; i < cells.length; i++) {
      const cell = cells[i]!
      const final = finals[i] ?? 0
      const entry = entries?.[i] ?? this.#entry(orgId, org, cell, now)
      const { level } = entry
      advance(cell, level, now)
      const charged = periods ? periods[i]! : 0
      correct(cell, level, amounts[i]!, final, charged)
      this.#touch(entry, -amounts[i]!)
      if (cell.kind === 'spend' && final > 0) (charges ??= []).push([cell.id, cell.period!, charged, final])
    }
    if (charges) this.#options.onCharge?.(orgId, id, charges)
  }

  wouldDeny({ org: orgId, cells, amounts, now }: Omit<AdmitRequest, 'id'>): Denial | null {
    const org = this.#org(orgId)
    let full = false
    const levels = cells.map((cell, i) => {
      const level = this.#entry(orgId, org, cell, now).level
      advance(cell, level, now)
      if (!fits(cell, level, amounts[i]!)) full = true
      return level
    })
    if (!full) return null
    return { admitted: false, ...denial(cells, levels, amounts, now)!, states: states(cells, levels, now) }
  }

  peek(orgId: string, cells: readonly Cell[], now: number): CellState[] {
    const org = this.#org(orgId)
    return states(
      cells,
      cells.map(cell => this.#entry(orgId, org, cell, now).level),
      now,
    )
  }

  /** How many buckets have changed and were not given out by `changed` yet. */
  get changes(): number {
    return this.#dirty.length
  }

  /** Gives out at most `most` of the buckets that changed. The caller stores them, then calls `stored` or `failed`. */
  changed(most: number): ChangedLevel[] {
    return this.#dirty.splice(0, most).map(entry => {
      const { org, cell, level, held } = entry
      const used = Math.max(0, level.used - held)
      const { at } = level
      entry.dirty = false
      if (used > 0) entry.stored = true
      const expires = at + Math.max(cell.windowMs!, stateOf(cell, level).resetMs)
      return { organization: org, cell: cell.id, used, part: used > 0 ? level.part : 0, at, expires, entry }
    })
  }
  /** The rows are committed. */
  stored(rows: readonly ChangedLevel[]): void {
    for (const { used, entry } of rows) if (used === 0) entry.stored = false
  }
  /** The rows could not be written: they are given out again. */
  failed(rows: readonly ChangedLevel[]): void {
    for (const { entry } of rows) this.#touch(entry, 0)
  }

  /** Number of levels in memory, over all organizations; for tests and metrics. */
  get size(): number {
    let size = 0
    for (const org of this.#orgs.values()) size += org.entries.size
    return size
  }
  /** Number of reservations that are not settled yet. */
  get open(): number {
    let open = 0
    for (const org of this.#orgs.values()) open += org.reservations.size
    return open
  }

  close(): void {
    this.#timer?.cancel()
  }

  #org(id: string): Organization {
    let org = this.#orgs.get(id)
    if (!org) this.#orgs.set(id, (org = { entries: new Map(), reservations: new IdMap(), resolved: undefined }))
    return org
  }

  #resolve(orgId: string, org: Organization, cells: readonly Cell[], now: number): Resolved {
    const entries = cells.map(cell => this.#entryForAdmission(orgId, org, cell, now))
    return {
      cells,
      entries,
      levels: entries.map(({ level }) => level),
      spend: cells.some(cell => cell.kind === 'spend'),
    }
  }

  /**
   * The entry of a cell of an admission. It keeps this cell for the sweep, because a reload or the platform load may
   * have changed its capacity, and with it the refill.
   */
  #entryForAdmission(orgId: string, org: Organization, cell: Cell, now: number): Entry {
    const entry = this.#entry(orgId, org, cell, now)
    entry.cell = cell
    return entry
  }

  #entry(orgId: string, org: Organization, cell: Cell, now: number): Entry {
    const known = org.entries.get(cell.id)
    if (known) return known
    const level = emptyLevel()
    const entry = { org: orgId, cell, level, held: 0, dirty: false, stored: false }
    if (cell.kind === 'spend') {
      level.at = periodIndex(cell.period!, now)
      level.used = this.#options.spent?.(orgId, cell.id, level.at) ?? 0
    } else {
      const before = cell.kind === 'bucket' ? this.#options.levelBefore?.(orgId, cell.id) : undefined
      level.at = now
      if (before) {
        Object.assign(level, before)
        entry.stored = true
      }
    }
    org.entries.set(cell.id, entry)
    return entry
  }

  /** Notes that a level was changed, and by how much what is reserved of it was. */
  #touch(entry: Entry, reserved: number): void {
    entry.held += reserved
    if (entry.dirty || entry.cell.kind !== 'bucket' || this.#options.levelBefore === undefined) return
    entry.dirty = true
    this.#dirty.push(entry)
  }

  /**
   * Deletes levels that are back to zero, since a missing level stands for a full cell. A level of spend stays until
   * its period has passed.
   */
  #sweep(now: number): void {
    this.#sweeping ??= this.#orgs.entries()
    for (let n = 0; n < SWEEP_ORGS; n++) {
      const next = this.#sweeping.next()
      if (next.done) {
        this.#sweeping = undefined
        return
      }
      const [id, org] = next.value
      for (const [cellId, entry] of org.entries) {
        const { cell, level } = entry
        const period = level.at
        advance(cell, level, now)
        if (level.used !== 0 || (cell.kind === 'spend' && level.at === period)) continue
        if (entry.stored) this.#touch(entry, 0)
        if (entry.dirty || entry.stored) continue
        org.entries.delete(cellId)
        org.resolved = undefined
      }
      if (org.entries.size === 0 && org.reservations.size === 0) this.#orgs.delete(id)
    }
  }

  #schedule(): void {
    this.#timer = this.#options.clock.setTimer(SWEEP_MS, () => {
      this.#sweep(this.#options.clock.now())
      this.#schedule()
    })
  }
}

/** Brings the levels up to `now`. @returns their states, parallel to the cells */
function states(cells: readonly Cell[], levels: readonly Level[], now: number): CellState[] {
  return cells.map((cell, i) => {
    advance(cell, levels[i]!, now)
    return stateOf(cell, levels[i]!)
  })
}
