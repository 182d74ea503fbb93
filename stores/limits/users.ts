/**
 * The end users of a key in the embedded engine (`UserRequest`). What is done here to levels, stores/redis/lua/users.lua
 * does in Redis, and a model test checks that both agree.
 *
 * Nothing is changed before it is known that the request is admitted: `place` says what would be done, `enter` does it.
 */
import { USERS_KEPT, userCellId } from '../../core/canon/limits.ts'
import type { Cell } from '../../core/ports/store.ts'
import { advance, emptyLevel, type Level, raise } from './rules.ts'

/** An admission of a user who is not kept looks at this many of those used longest ago. */
export const USERS_LOOKED_AT = 4

/** A level in memory, and the cell of its last admission. */
interface Holder {
  cell: Cell
  readonly level: Level
}

export interface KeptUser<E> {
  readonly name: string
  cells: readonly Cell[]
  /** Parallel to `cells`. */
  entries: E[]
  /** By the ids of their shared cells: those of limits that `cells` do not have, since a reload took them away. */
  others?: Map<string, E>
}

/** Where a request of a user takes, and what has to be done before. */
export interface Placed<E> {
  /** Parallel to the cells, and at the present time: what to take from where there is room. */
  readonly levels: readonly Level[]
  /** So many requests run in the shared cells. One of them may be this user's, so they count as his. */
  readonly elsewhere: number
  /** Who takes; null: the shared cells. For one who is not kept yet, his entries are made by `enter`. */
  readonly kept: KeptUser<E> | null
  readonly isNew: boolean
  /** Of those used longest ago: who has nothing left to count; who has requests that run; who makes room. */
  readonly empty: readonly KeptUser<E>[]
  readonly running: readonly KeptUser<E>[]
  readonly victim: KeptUser<E> | undefined
}

const NOBODY: readonly never[] = []

export interface EntryMaker<E> {
  /** An entry at the level of the cell that `id` names. */
  make(id: string, cell: Cell, level: Level): E
  /** An entry has been changed; one that left has the level 0. */
  changed(entry: E): void
}

export class Users<E extends Holder> {
  /** The shared entries, parallel to the cells of the last request. */
  readonly shared: KeptUser<E>
  /** Those kept, in the order in which they were used. */
  readonly kept = new Map<string, KeptUser<E>>()
  /** When one of them was last asked for, Unix ms. */
  usedAt = 0
  readonly #maker: EntryMaker<E>
  readonly #most: number

  constructor(maker: EntryMaker<E>, most = USERS_KEPT) {
    this.#maker = maker
    this.#most = most
    this.shared = { name: '', cells: [], entries: [] }
  }

  /**
   * Puts back what an earlier process left of a user, or null of the shared level; those used last come last.
   * @param entry makes an entry, with the level that is known of it
   */
  restore(name: string | null, cells: readonly Cell[], entry: (id: string, cell: Cell) => E): void {
    const kept = name === null ? this.shared : { name, cells, entries: [] as E[] }
    kept.cells = cells
    kept.entries = cells.map(cell => entry(name === null ? cell.id : userCellId(cell.id, name), cell))
    if (name !== null) this.kept.set(name, kept)
  }

  /** After a crash there may be more than are kept. Nobody's requests run yet. @param now Unix ms */
  trim(now: number): void {
    for (const user of this.kept.values()) {
      if (this.kept.size <= this.#most) return
      this.#fit(this.shared, user.cells, null, now)
      this.#merge(this.#fit(user, user.cells, user.name, now))
    }
  }

  /** All entries, the shared ones too. */
  *entries(): Generator<E> {
    for (const { entries, others } of [this.shared, ...this.kept.values()]) {
      yield* entries
      if (others) yield* others.values()
    }
  }

  /** Where a request takes. Changes nothing but the time of levels. */
  place(name: string, cells: readonly Cell[], now: number): Placed<E> {
    this.usedAt = now
    const shared = this.#fit(this.shared, cells, null, now)
    const elsewhere = runningOf(shared)
    const own = this.kept.get(name)
    if (own) {
      const levels = levelsOf(this.#fit(own, cells, name, now))
      return { levels, elsewhere, kept: own, isNew: false, empty: NOBODY, running: NOBODY, victim: undefined }
    }
    const empty: KeptUser<E>[] = []
    const running: KeptUser<E>[] = []
    let idle: KeptUser<E> | undefined
    let looked = 0
    for (const user of this.kept.values()) {
      if (looked++ === USERS_LOOKED_AT) break
      if (runningOf(this.#fit(user, cells, user.name, now)) > 0) running.push(user)
      else if (user.entries.every(({ level }) => level.used === 0)) empty.push(user)
      else idle ??= user
    }
    const full = this.kept.size - empty.length >= this.#most
    if (full && !idle)
      return { levels: levelsOf(shared), elsewhere: 0, kept: null, isNew: false, empty, running, victim: undefined }
    const victim = full ? idle : undefined
    const levels = cells.map((cell, i) => {
      const level = cell.kind === 'slots' ? emptyLevel() : { ...shared.entries[i]!.level }
      if (victim) raise(cell, level, victim.entries[i]!.level)
      return level
    })
    return { levels, elsewhere, kept: { name, cells, entries: [] }, isNew: true, empty, running, victim }
  }

  /** Does what `place` has found, and makes the user the one used last. @returns the entries that the request takes from */
  enter({ levels, kept, isNew, empty, running, victim }: Placed<E>): readonly E[] {
    for (const user of empty) this.#leave(user)
    if (victim) this.#merge(victim)
    for (const user of running) this.#use(user)
    if (!kept) return this.shared.entries
    if (isNew)
      kept.entries = kept.cells.map((cell, i) => this.#maker.make(userCellId(cell.id, kept.name), cell, levels[i]!))
    this.#use(kept)
    return kept.entries
  }

  /** Raises the shared level to that of a user, who leaves. The shared one is changed first, and so stored first. */
  #merge(user: KeptUser<E>): void {
    for (const [i, { level }] of user.entries.entries()) {
      const shared = this.shared.entries[i]!
      raise(user.cells[i]!, shared.level, level)
      this.#maker.changed(shared)
    }
    this.#leave(user)
  }

  #use(user: KeptUser<E>): void {
    this.kept.delete(user.name)
    this.kept.set(user.name, user)
  }

  #leave(user: KeptUser<E>): void {
    this.kept.delete(user.name)
    for (const entry of [...user.entries, ...(user.others?.values() ?? [])]) {
      entry.level.used = 0
      entry.level.part = 0
      this.#maker.changed(entry)
    }
  }

  /**
   * Gives a user entries for these cells, brought up to now.
   * @param name null for the shared cells
   */
  #fit(user: KeptUser<E>, cells: readonly Cell[], name: string | null, now: number): KeptUser<E> {
    if (user.cells !== cells) {
      const others = new Map(user.others)
      for (const [i, { id }] of user.cells.entries()) others.set(id, user.entries[i]!)
      user.entries = cells.map(cell => {
        const known = others.get(cell.id)
        others.delete(cell.id)
        if (!known) return this.#maker.make(name === null ? cell.id : userCellId(cell.id, name), cell, emptyLevel())
        known.cell = cell
        return known
      })
      user.cells = cells
      if (others.size > 0) user.others = others
      else delete user.others
    }
    for (let i = 0; i < cells.length; i++) advance(cells[i]!, user.entries[i]!.level, now)
    return user
  }
}

const levelsOf = ({ entries }: KeptUser<Holder>): Level[] => entries.map(({ level }) => level)

/** How many requests of a user run. */
function runningOf({ cells, entries }: KeptUser<Holder>): number {
  const at = cells.findIndex(({ kind }) => kind === 'slots')
  return entries[at]!.level.used
}
