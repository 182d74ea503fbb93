/**
 * The embedded limit engine. Levels are plain numbers in the memory of one process, without locks or messages. After a
 * restart all buckets are full: at most one window of use is forgotten. The spend of the running day and month comes
 * from the store of the ledger.
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
  /** The cell of the last admission. The sweep refills the level with this cell's capacity. */
  cell: Cell
  readonly level: Level
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
  /** Called with the spend of each settled request, which must be stored. */
  onCharge?: (org: string, id: string, charges: Charge[]) => void
}

export class MemoryLimits implements LimitEngine {
  #orgs = new Map<string, Organization>()
  #options: MemoryLimitsOptions
  #sweeping: IterableIterator<[string, Organization]> | undefined
  #timer: Timer | undefined

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
    if (org.reservations.add(request.id, { cells, amounts, periods })) return admission
    for (let i = 0; i < levels.length; i++) levels[i]!.used -= amounts[i]!
    return { admitted: true, states: states(cells, levels, now) }
  }

  settle(orgId: string, id: string, finals: readonly number[], now: number): void {
    const org = this.#orgs.get(orgId)
    const reservation = org?.reservations.take(id)
    if (!org || !reservation) return
    const { cells, amounts, periods } = reservation
    const levels = org.resolved?.cells === cells ? org.resolved.levels : undefined
    let charges: Charge[] | undefined
    for (let i = 0; i < cells.length; i++) {
      const cell = cells[i]!
      const final = finals[i] ?? 0
      const level = levels?.[i] ?? this.#level(orgId, org, cell, now)
      advance(cell, level, now)
      const charged = periods ? periods[i]! : 0
      correct(cell, level, amounts[i]!, final, charged)
      if (cell.kind === 'spend' && final > 0) (charges ??= []).push([cell.id, cell.period!, charged, final])
    }
    if (charges) this.#options.onCharge?.(orgId, id, charges)
  }

  wouldDeny({ org: orgId, cells, amounts, now }: Omit<AdmitRequest, 'id'>): Denial | null {
    const org = this.#org(orgId)
    let full = false
    const levels = cells.map((cell, i) => {
      const level = this.#level(orgId, org, cell, now)
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
      cells.map(cell => this.#level(orgId, org, cell, now)),
      now,
    )
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
    return {
      cells,
      levels: cells.map(cell => this.#levelForAdmission(orgId, org, cell, now)),
      spend: cells.some(cell => cell.kind === 'spend'),
    }
  }

  /**
   * The level of a cell of an admission. It keeps this cell for the sweep, because a reload or the platform load may
   * have changed its capacity, and with it the refill.
   */
  #levelForAdmission(orgId: string, org: Organization, cell: Cell, now: number): Level {
    const level = this.#level(orgId, org, cell, now)
    org.entries.get(cell.id)!.cell = cell
    return level
  }

  #level(orgId: string, org: Organization, cell: Cell, now: number): Level {
    const entry = org.entries.get(cell.id)
    if (entry) return entry.level
    const level = emptyLevel()
    if (cell.kind === 'spend') {
      level.at = periodIndex(cell.period!, now)
      level.used = this.#options.spent?.(orgId, cell.id, level.at) ?? 0
    } else level.at = now
    org.entries.set(cell.id, { cell, level })
    return level
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
      for (const [cellId, { cell, level }] of org.entries) {
        const period = level.at
        advance(cell, level, now)
        if (level.used !== 0 || (cell.kind === 'spend' && level.at === period)) continue
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
