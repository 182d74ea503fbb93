/**
 * The embedded limit engine. Levels are plain numbers in the memory of one process, without locks or messages. What an
 * earlier process left is read when a cell is first used: the levels of buckets, the spend of a day or month, and what
 * was taken from a balance. The store asks for the buckets that changed (`changed`) and writes them.
 */

import { periodIndex, periodStart, userOfCell } from '../../core/canon/limits.ts'
import type {
  Admission,
  AdmitRequest,
  Cell,
  CellState,
  Denial,
  LimitEngine,
  UserRequest,
} from '../../core/ports/store.ts'
import type { Clock, Timer } from '../../core/tools/clock.ts'
import { IdMap } from '../../core/tools/collections.ts'
import type { Charge } from '../journal.ts'
import type { LevelRow } from './recovery.ts'
import { admit, advance, correct, denial, deniedBy, emptyLevel, fits, type Level, stateOf } from './rules.ts'
import { type Placed, Users } from './users.ts'

/** One sweep checks this many organizations, so that it does not block the event loop for long. */
const SWEEP_ORGS = 500
/** A sweep checks at least this share of all organizations, so that it comes round in two minutes. */
const SWEEP_SHARE = 1 / 120
const SWEEP_MS = 1000
/** An organization that has sent nothing for so long leaves memory, where the store has all that it used. */
const IDLE_MS = 120_000

interface Entry {
  readonly org: string
  readonly id: string
  /** The cell of the last admission. The sweep refills the level with this cell's capacity. */
  cell: Cell
  readonly level: Level
  /** What of the level is reserved by running exchanges. After a crash it counts as given back, so it is not stored. */
  held: number
  /** The level changed since it was last given out by `changed`. */
  dirty: boolean
  /** `changed` has given it out, and it is not known yet whether it was written. */
  saving: boolean
  /**
   * The store may have a row of this cell. Until that is deleted, the entry stays: a reader would find the old level.
   */
  stored: boolean
}

/** A level that changed and is stored. */
export interface ChangedLevel {
  /** Its level without reservations, to be stored. */
  readonly row: LevelRow
  /** This engine's own. */
  readonly entry: Entry
}
interface Reservation {
  readonly cells: readonly Cell[]
  readonly amounts: readonly number[]
  /** The period in which each spend cell was charged; parallel to `cells`. Absent when no cell is of spend. */
  readonly periods: readonly number[] | undefined
  /** What is taken from limits of the end user; `periods` as above, for all of his cells. */
  readonly user?: {
    readonly amounts: readonly number[]
    readonly entries: readonly Entry[]
    readonly periods: readonly number[]
  }
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
  /** The end users of its keys, by the key's id. */
  users: Map<string, Users<Entry>> | undefined
  /** When it last sent or ended something, Unix ms. */
  usedAt: number
}

export interface MemoryLimitsOptions {
  clock: Clock
  /** How much was spent in a cell's period before this process started, in nano-USD. */
  spent?: (org: string, cell: string, period: number) => number
  /** What the prepaid rows of an organization cost, in nano-USD: those that are in the store. */
  billed?: (org: string) => number
  /** The level of a bucket that an earlier process left. Absent: levels are not stored, and `changed` is empty. */
  levelBefore?: (org: string, cell: string) => Level | undefined
  /**
   * The levels of cells of end users that an earlier process left, of buckets and of spend, by cell. Those whose users were
   * used last come last. Absent: as of `levelBefore`.
   * @param prefix with what the ids of the key's cells begin (`sharedPrefix`)
   */
  usersBefore?: (org: string, prefix: string, now: number) => readonly (readonly [cell: string, level: Level])[]
  /** So many end users of a key are kept; for tests. */
  usersKept?: number
  /** Since when a charge has been waiting to be stored, Unix ms; Infinity when none does. */
  chargesSince?: () => number
  /** Called with the spend of each settled request, which must be stored. */
  onCharge?: (org: string, id: string, charges: Charge[]) => void
}

export class MemoryLimits implements LimitEngine {
  #orgs = new Map<string, Organization>()
  #options: MemoryLimitsOptions
  #sweeping: IterableIterator<[string, Organization]> | undefined
  #timer: Timer | undefined
  /** Until when the store may have a level that has left memory, Unix ms. */
  evictedUntil = 0
  /** Entries whose `dirty` is set. */
  #dirty: Entry[] = []
  /** Buckets in which something was settled, since `settled` was last emptied. */
  #settled = new Set<Entry>()

  constructor(options: MemoryLimitsOptions) {
    this.#options = options
    this.#schedule()
  }

  admit(request: AdmitRequest): Admission {
    const { cells, now, user } = request
    const org = this.#org(request.org, now)
    let resolved = org.resolved
    if (resolved?.cells !== cells) resolved = org.resolved = this.#resolve(request.org, org, cells, now)
    if (user) return this.#admitUser(request, user, org, resolved)
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

  /** As `admit`, for a request of an end user whose key limits each of them. */
  #admitUser(request: AdmitRequest, user: UserRequest, org: Organization, resolved: Resolved): Admission {
    const { cells, amounts, now, id } = request
    const { levels, entries } = resolved
    const users = this.#usersOf(request.org, org, user.cells, now)
    const placed = users.place(user.name, user.cells, now)
    let room = true
    for (let i = 0; i < cells.length; i++) {
      advance(cells[i]!, levels[i]!, now)
      if (!fits(cells[i]!, levels[i]!, amounts[i]!)) room = false
    }
    const seen = seenLevels(user.cells, placed)
    for (let i = 0; i < seen.length; i++) if (!fits(user.cells[i]!, seen[i]!, user.amounts[i]!)) room = false
    // A repeated request id takes nothing.
    const repeated = org.reservations.has(id)
    if (room && !repeated) {
      const taken = users.enter(placed)
      org.reservations.add(id, {
        cells,
        amounts,
        periods: resolved.spend ? levels.map(level => level.at) : undefined,
        user: { amounts: user.amounts, entries: taken, periods: taken.map(({ level }) => level.at) },
      })
      for (let i = 0; i < entries.length; i++) this.#take(entries[i]!, amounts[i]!)
      for (let i = 0; i < taken.length; i++) {
        const entry = taken[i]!
        this.#take(entry, user.amounts[i]!)
        // It shows after a restart who was admitted last (`usersBefore`). Spend has no other use for it.
        if (entry.cell.kind === 'spend') entry.level.part = now
      }
    }
    const all = cells.map((cell, i) => stateOf(cell, levels[i]!))
    if (room || repeated) return { admitted: true, states: all }
    return deniedBy(denial(cells, levels, amounts, now), denial(user.cells, seen, user.amounts, now), all, () =>
      seen.map((level, i) => stateOf(user.cells[i]!, level)),
    )
  }

  settle(orgId: string, id: string, finals: readonly number[], now: number, ofUser?: readonly number[]): void {
    const org = this.#orgs.get(orgId)
    const reservation = org?.reservations.take(id)
    if (!org || !reservation) return
    org.usedAt = now
    const { cells, amounts, periods, user } = reservation
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
      if (cell.kind === 'bucket' && this.#options.levelBefore) this.#settled.add(entry)
      if (cell.kind === 'spend' && final > 0) (charges ??= []).push([cell.id, cell.period!, charged, final])
    }
    if (user) this.#settleUser(user, ofUser ?? [], now)
    if (charges) this.#options.onCharge?.(orgId, id, charges)
  }

  #settleUser(
    { entries, amounts, periods }: NonNullable<Reservation['user']>,
    finals: readonly number[],
    now: number,
  ): void {
    for (const [i, entry] of entries.entries()) {
      advance(entry.cell, entry.level, now)
      correct(entry.cell, entry.level, amounts[i]!, finals[i] ?? 0, periods[i]!)
      this.#touch(entry, -amounts[i]!)
      if (this.#isStored(entry.cell)) this.#settled.add(entry)
    }
  }

  wouldDeny({ org: orgId, cells, amounts, now }: Omit<AdmitRequest, 'id' | 'user'>): Denial | null {
    const org = this.#org(orgId, now)
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
    const org = this.#org(orgId, now)
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
      const row = rowOf(entry)
      entry.dirty = false
      entry.saving = true
      if (row[2] > 0) entry.stored = true
      return { row, entry }
    })
  }

  /** The levels of the buckets in which something was settled since `noted` was last called. */
  settled(): LevelRow[] {
    return Array.from(this.#settled, rowOf)
  }
  /** What `settled` returned is in the journal. */
  noted(): void {
    this.#settled.clear()
  }
  /** The rows are committed. */
  stored(rows: readonly ChangedLevel[]): void {
    for (const { row, entry } of rows) {
      entry.saving = false
      if (row[2] === 0) entry.stored = false
    }
  }
  /** The rows could not be written: they are given out again. */
  failed(rows: readonly ChangedLevel[]): void {
    for (const { entry } of rows) {
      entry.saving = false
      this.#touch(entry, 0)
    }
  }

  /** Number of levels in memory, over all organizations; for tests and metrics. */
  get size(): number {
    let size = 0
    for (const { entries, users } of this.#orgs.values()) {
      size += entries.size
      for (const one of users?.values() ?? []) size += [...one.entries()].length
    }
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

  #org(id: string, now: number): Organization {
    let org = this.#orgs.get(id)
    if (org) org.usedAt = now
    else {
      org = { entries: new Map(), reservations: new IdMap(), resolved: undefined, users: undefined, usedAt: now }
      this.#orgs.set(id, org)
    }
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
    const entry = makeEntry(orgId, cell.id, cell, level)
    if (cell.kind === 'spend') {
      level.at = periodIndex(cell.period!, now)
      level.used = this.#options.spent?.(orgId, cell.id, level.at) ?? 0
    } else if (cell.kind === 'balance') level.used = this.#options.billed?.(orgId) ?? 0
    else {
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

  /** The end users of a key, with what an earlier process left of them. */
  #usersOf(orgId: string, org: Organization, cells: readonly Cell[], now: number): Users<Entry> {
    const { key } = userOfCell(cells[0]!.id)!
    const known = org.users?.get(key)
    if (known) return known
    const { usersBefore, usersKept } = this.#options
    const maker = {
      make: (id: string, cell: Cell, level: Level) => makeEntry(orgId, id, cell, level),
      changed: (entry: Entry) => this.#touch(entry, 0),
    }
    const users = new Users<Entry>(maker, usersKept)
    const shared = cells[0]!.id.slice(0, cells[0]!.id.lastIndexOf(':') + 1)
    const ofUsers = new Map<string | null, Map<string, Level>>()
    for (const [id, level] of usersBefore?.(orgId, shared, now) ?? []) {
      const { user } = userOfCell(id)!
      const levels = ofUsers.get(user) ?? new Map<string, Level>()
      levels.set(id, level)
      ofUsers.delete(user)
      ofUsers.set(user, levels)
    }
    for (const [user, levels] of ofUsers)
      users.restore(user, cells, (id, cell) => {
        const level = levels.get(id)
        const entry = makeEntry(orgId, id, cell, level ?? emptyLevel())
        entry.stored = level !== undefined
        return entry
      })
    users.trim(now)
    org.users ??= new Map()
    org.users.set(key, users)
    return users
  }

  /**
   * Whether the levels of a cell are stored. Those of slots are in memory alone; spend is in the rows, but for that of end
   * users: a user's level may come from others (users.ts), and leaves with him.
   */
  #isStored({ kind, scope }: Cell): boolean {
    if (this.#options.levelBefore === undefined) return false
    return kind === 'bucket' || (kind === 'spend' && scope === 'user')
  }

  #take(entry: Entry, amount: number): void {
    entry.level.used += amount
    this.#touch(entry, amount)
  }

  /** Notes that a level was changed, and by how much what is reserved of it was. */
  #touch(entry: Entry, reserved: number): void {
    entry.held += reserved
    if (entry.dirty || this.#options.levelBefore === undefined || !this.#isStored(entry.cell)) return
    entry.dirty = true
    this.#dirty.push(entry)
  }

  /**
   * Deletes levels that are back to zero, since a missing level stands for a full cell. A level of spend stays until
   * its period has passed.
   */
  #sweep(now: number): void {
    this.#sweeping ??= this.#orgs.entries()
    const most = Math.max(SWEEP_ORGS, this.#orgs.size * SWEEP_SHARE)
    for (let n = 0; n < most; n++) {
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
      for (const [key, users] of org.users ?? []) if (this.#usersCanLeave(users, now)) org.users!.delete(key)
      if (org.reservations.size > 0) continue
      if ((org.entries.size === 0 && !org.users?.size) || this.#canLeave(org, now)) this.#orgs.delete(id)
    }
  }

  /** Whether an organization is idle, and the store has its levels and spend, to be read when it comes back. */
  #canLeave({ entries, users, usedAt }: Organization, now: number): boolean {
    const { levelBefore, chargesSince } = this.#options
    if (!levelBefore || !chargesSince || now - usedAt < IDLE_MS || chargesSince() <= usedAt) return false
    return !users?.size && this.#areStored(entries.values())
  }

  /** As `#canLeave`, for the end users of one key. */
  #usersCanLeave(users: Users<Entry>, now: number): boolean {
    if (!this.#options.levelBefore || now - users.usedAt < IDLE_MS) return false
    // Levels that are back to zero stay in memory, unlike those of accounts.
    return this.#areStored(Array.from(users.entries()).filter(({ level }) => level.used !== 0))
  }

  /** Whether the store has all of these, to be read again. */
  #areStored(entries: Iterable<Entry>): boolean {
    let until = this.evictedUntil
    for (const { cell, level, dirty, saving, stored } of entries) {
      const isStored = this.#isStored(cell)
      if (dirty || saving || cell.kind === 'slots' || (isStored && !stored)) return false
      if (isStored) until = Math.max(until, expiry(cell, level))
    }
    this.evictedUntil = until
    return true
  }

  #schedule(): void {
    this.#timer = this.#options.clock.setTimer(SWEEP_MS, () => {
      this.#sweep(this.#options.clock.now())
      this.#schedule()
    })
  }
}

function makeEntry(org: string, id: string, cell: Cell, level: Level): Entry {
  return { org, id, cell, level, held: 0, dirty: false, saving: false, stored: false }
}

/** The levels of a user that a request needs room in. */
function seenLevels(cells: readonly Cell[], { levels, elsewhere }: Placed<Entry>): readonly Level[] {
  if (elsewhere === 0) return levels
  return levels.map((level, i) => (cells[i]!.kind === 'slots' ? { ...level, used: level.used + elsewhere } : level))
}

function rowOf({ org, id, cell, level, held }: Entry): LevelRow {
  const used = Math.max(0, level.used - held)
  const part = used > 0 ? level.part : 0
  return [org, id, used, part, level.at, expiry(cell, level), cell.capacity, cell.windowMs ?? null]
}

/** Unix ms when a bucket is full again for certain, or a period over, and its row of no use any more. */
function expiry(cell: Cell, level: Level): number {
  if (cell.kind === 'spend') return periodStart(cell.period!, level.at + 1)
  return level.at + Math.max(cell.windowMs!, stateOf(cell, level).resetMs)
}

/** Brings the levels up to `now`. @returns their states, parallel to the cells */
function states(cells: readonly Cell[], levels: readonly Level[], now: number): CellState[] {
  return cells.map((cell, i) => {
    advance(cell, levels[i]!, now)
    return stateOf(cell, levels[i]!)
  })
}
