/**
 * `sluice store backup` and `restore`: a store as one database file, in the form of the embedded store, from any engine
 * and into any.
 *
 *   SQLite          SQLite's own online backup: the state at one moment, beside a running gateway
 *   local, Redis    read like the source of a move, beside running gateways; see `backup` for what that means
 *
 * A backup is made beside its place and moved there once it was read again, so that a file of that name is a whole
 * backup. It holds the secret and everything that customers sent to be retained: its mode is 600.
 */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync, backup as onlineBackup } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { createPrivate } from '../private-file.ts'
import { forgetOpened } from '../sqlite/opened.ts'
import { checkDatabase } from '../sqlite/schema.ts'
import { HOUR_MS } from '../usage.ts'
import { type End, KINDS } from './end.ts'
import { carry, type Name, openEnd, Tallies, type Tally, verify } from './move.ts'
import { fileOf, openSqliteEnd } from './sqlite.ts'

export interface BackupOptions {
  /** The store, as in `StoreOptions`. */
  store: string
  /** The backup. */
  file: string
  /** `local:` only: the memory of the server, bytes. */
  maxMemory: number | null
  tell(text: string): void
  /** How many things have been read or written. */
  progress(count: number): void
  signal?: AbortSignal
}

export interface Copied {
  store: string
  file: string
  content: Record<Name, Tally>
}

/** Whether a sum may still grow: rows are booked within a few seconds, those of a killed gateway at its next start. */
const OPEN_HOURS = 2

/**
 * Makes a backup. Of a Redis, everything is read as it is when its turn comes, an organization in one step: what
 * changes meanwhile is in the backup or not. Sums of the last hours are made of the rows that were read, so that sums
 * and rows agree.
 * @throws StoreUnavailable
 */
export async function backup(options: BackupOptions): Promise<Copied> {
  const { store, maxMemory, tell } = options
  const file = path.resolve(options.file)
  if (fs.existsSync(file)) throw new StoreUnavailable(`${file} exists already; name another file for the backup`)
  if (!fs.existsSync(path.dirname(file))) throw new StoreUnavailable(`there is no folder ${path.dirname(file)}`)
  const part = `${file}.part`
  remove(part)
  try {
    if (store.startsWith('sqlite:')) {
      const name = await copyDatabase(fileOf(store), part, options)
      const content = (await contentOf(part, options)).total(0)
      place(part, file)
      return { store: name, file, content }
    }
    const source = await openEnd(store, maxMemory, tell, false)
    try {
      const now = Date.now()
      const until = Math.floor(now / HOUR_MS - OPEN_HOURS) * HOUR_MS
      const target = openSqliteEnd(`sqlite:${part}`, true)
      try {
        if ((await source.mark()) !== null)
          throw new StoreUnavailable(`${source.name} is set aside by \`sluice store move\`; end that move first`)
        await target.begin(await source.secret())
        const carried = await carry(source, target, now, () => {}, options, until)
        target.sumFrom(until)
        await target.finish()
        await verify(carried, target, now, options, until)
      } finally {
        await target.close()
      }
      const content = (await contentOf(part, options)).total(0)
      place(part, file)
      return { store: source.name, file, content }
    } finally {
      await source.close()
    }
  } catch (error) {
    throw stopped(error, options)
  } finally {
    remove(part)
  }
}

/**
 * Fills an empty store from a backup, which stays as it is.
 * @throws StoreUnavailable with what is in the way and its cure; the store is then empty
 */
export async function restore(options: BackupOptions): Promise<Copied> {
  const { store, maxMemory, tell } = options
  const file = path.resolve(options.file)
  if (!fs.existsSync(file)) throw new StoreUnavailable(`there is no file ${file}`)
  const toFile = store.startsWith('sqlite:') ? path.resolve(fileOf(store)) : undefined
  if (toFile === file) throw new StoreUnavailable(`${file} is the store itself; name the backup`)
  if (toFile !== undefined) refuseRemains(toFile)
  // The backup is brought up to date by this release, and stays what it was.
  const part = toFile === undefined ? `${file}.restoring` : `${toFile}.restoring`
  fs.mkdirSync(path.dirname(part), { recursive: true, mode: 0o700 })
  remove(part)
  try {
    await copyDatabase(file, part, options)
    const expected = await contentOf(part, options)
    const target = await openEnd(store, maxMemory, tell, true)
    const { name } = target
    let closed = false
    try {
      const from = `sqlite:${file}`
      await refuseContent(target, from)
      if (toFile !== undefined) {
        await target.close()
        closed = true
        remove(toFile)
        place(part, toFile)
        return { store: name, file, content: (await contentOf(toFile, options)).total(0) }
      }
      const source = openSqliteEnd(`sqlite:${part}`, false)
      let whole = false
      try {
        await target.setMark({ state: 'filling', other: from })
        const now = Date.now()
        await target.begin(await source.secret())
        const carried = await carry(source, target, now, () => {}, options)
        await target.finish()
        await verify(carried, target, now, options)
        whole = true
      } finally {
        if (!whole) await target.clear()
        await target.setMark(null)
        await source.close()
      }
      return { store: name, file, content: expected.total(0) }
    } finally {
      if (!closed) await target.close()
    }
  } catch (error) {
    throw stopped(error, options)
  } finally {
    remove(part)
  }
}

/** @param from the backup: what an interrupted restore of it has left is removed */
async function refuseContent(target: End, from: string): Promise<void> {
  const mark = await target.mark()
  if (mark?.state === 'filling' && mark.other === from) return target.clear()
  if (mark !== null)
    throw new StoreUnavailable(`${target.name} is set aside by \`sluice store move\`; end that move first`)
  const content = await target.content()
  if (content !== null)
    throw new StoreUnavailable(
      `${content}: a backup is restored into an empty store; name another one in 'store', or move what is there away`,
    )
}

/** What a database left when it was moved away by hand: SQLite would play it into the next one. */
function refuseRemains(file: string): void {
  const wal = `${file}-wal`
  if (!fs.existsSync(file) && fs.existsSync(wal))
    throw new StoreUnavailable(
      `${wal} belongs to a database that is not there any more: move it and ${file}-shm to where that is`,
    )
}

/** Copies a database as it is at one moment, also one that a gateway uses. @returns its name */
async function copyDatabase(from: string, to: string, { signal }: BackupOptions): Promise<string> {
  if (from === ':memory:') throw new StoreUnavailable('a store in memory has no backup; name a file')
  if (!fs.existsSync(from)) throw new StoreUnavailable(`there is no database ${path.resolve(from)}`)
  createPrivate(to)
  const source = openToRead(from)
  try {
    if (checkDatabase(source, from).version === 0)
      throw new StoreUnavailable(`${from} is empty: no gateway has used it`)
    await onlineBackup(source, to, { rate: 4096, progress: () => signal?.throwIfAborted() })
  } catch (error) {
    if (error instanceof StoreUnavailable || signal?.aborted) throw error
    throw new StoreUnavailable(`${from} cannot be copied: ${(error as Error).message}`, error)
  } finally {
    source.close()
  }
  const copy = new DatabaseSync(to)
  try {
    forgetOpened(copy)
  } finally {
    copy.close()
  }
  return `sqlite:${path.resolve(from)}`
}

function openToRead(file: string): DatabaseSync {
  try {
    return new DatabaseSync(file, { readOnly: true })
  } catch (error) {
    throw new StoreUnavailable(`cannot open ${file}: ${(error as Error).message}`, error)
  }
}

/** Reads all of a database that nobody uses. @throws StoreUnavailable when it is damaged */
async function contentOf(file: string, { progress, signal }: BackupOptions): Promise<Tallies> {
  const db = openToRead(file)
  try {
    const faults = db
      .prepare('PRAGMA integrity_check(3)')
      .all()
      .map(row => String(row['integrity_check']))
    if (faults.join() !== 'ok') throw new StoreUnavailable(`${file} is damaged: ${faults.join('; ')}`)
  } finally {
    db.close()
  }
  const end = openSqliteEnd(`sqlite:${file}`, false)
  try {
    const found = new Tallies()
    let count = 0
    for (const kind of KINDS)
      for await (const batch of end.read(kind, Date.now(), () => {})) {
        signal?.throwIfAborted()
        for (const item of batch) found.add(kind, item)
        progress((count += batch.length))
      }
    return found
  } finally {
    await end.close()
  }
}

/** Moves a whole database to its place. */
function place(part: string, file: string): void {
  fs.chmodSync(part, 0o600)
  const descriptor = fs.openSync(part, 'r+')
  fs.fsyncSync(descriptor)
  fs.closeSync(descriptor)
  fs.renameSync(part, file)
}

function remove(file: string): void {
  for (const end of ['-wal', '-shm', '-journal', '.lock', '']) fs.rmSync(file + end, { force: true })
}

function stopped(error: unknown, { signal }: BackupOptions): unknown {
  return signal?.aborted ? new StoreUnavailable('stopped; nothing was changed') : error
}
