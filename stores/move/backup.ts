/**
 * `sluice store backup` and `restore`: a store as one database file, in the form of the embedded store, from any engine
 * and into any.
 *
 *   SQLite          SQLite's own online backup: the state at one moment, beside a running gateway. What the gateway has
 *                   not written yet is in its journal, and is booked in the copy as a start would book it
 *   local, Redis    read like the source of a move, beside running gateways; see `backup` for what that means
 *
 * A backup is made beside its place and moved there once it was read again, so that a file of that name is a whole
 * backup. It holds the secret and everything that customers sent to be retained: its mode is 600.
 */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync, backup as onlineBackup } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { type JournalRecord, readJournals } from '../journal.ts'
import { owedEntries } from '../ledger.ts'
import { createPrivate } from '../private-file.ts'
import { forgetOpened } from '../sqlite/opened.ts'
import { checkDatabase, prepare } from '../sqlite/schema.ts'
import { packEntries, Tables } from '../sqlite/tables.ts'
import { HOUR_MS } from '../usage.ts'
import { type End, KINDS } from './end.ts'
import { carry, type Name, openEnd, Tallies, type Tally, verify } from './move.ts'
import { COPIED_TABLE, fileOf, openSqliteEnd, type SqliteEnd } from './sqlite.ts'

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
  /** After each step of the copy of a database. */
  step?(): void
  signal?: AbortSignal
}

export interface Copied {
  store: string
  file: string
  content: Record<Name, Tally>
  /** From when to when the backup was read; null in one of an earlier release. */
  read: Moments | null
}

/** Unix ms. Of an engine that is read at one moment, both are the same. */
export interface Moments {
  first: number
  last: number
}

/** A backup evicts nothing: the gateway that uses the store keeps to its own bounds. */
const NO_BOUND = Number.MAX_SAFE_INTEGER
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
      const from = fileOf(store)
      // Before the database: what leaves the journal meanwhile is in the database by then.
      const records = from === ':memory:' ? [] : readJournals(`${from}.journal`, 'sqlite')
      const { name, time } = await copyDatabase(from, part, options)
      book(part, records)
      const read = { first: time, last: time }
      takeRead(part)
      noteRead(part, read)
      const content = (await contentOf(part, options)).total(0)
      place(part, file)
      return { store: name, file, content, read }
    }
    const source = await openEnd(store, maxMemory, tell, false, true)
    try {
      const now = Date.now()
      const until = Math.floor(now / HOUR_MS - OPEN_HOURS) * HOUR_MS
      const target = openSqliteEnd(`sqlite:${part}`, true)
      try {
        if ((await source.mark()) !== null)
          throw new StoreUnavailable(`${source.name} is set aside by \`sluice store move\`; end that move first`)
        await target.begin(await source.secret())
        const carried = await carry(timed(source, target), target, now, () => {}, options, until)
        target.sumFrom(until)
        await target.finish()
        await verify(carried, target, now, options, until)
      } finally {
        await target.close()
      }
      const read = { first: now, last: Date.now() }
      noteRead(part, read)
      const content = (await contentOf(part, options)).total(0)
      place(part, file)
      return { store: source.name, file, content, read }
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
    const read = takeRead(part)
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
        return { store: name, file, content: (await contentOf(toFile, options)).total(0), read }
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
      return { store: name, file, content: expected.total(0), read }
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

/** Copies a database as it is at one moment, also one that a gateway uses. @returns its name, and the moment in Unix ms */
async function copyDatabase(
  from: string,
  to: string,
  { signal, step }: BackupOptions,
): Promise<{ name: string; time: number }> {
  if (from === ':memory:') throw new StoreUnavailable('a store in memory has no backup; name a file')
  if (!fs.existsSync(from)) throw new StoreUnavailable(`there is no database ${path.resolve(from)}`)
  createPrivate(to)
  const source = openToRead(from)
  let time: number
  try {
    if (checkDatabase(source, from).version === 0)
      throw new StoreUnavailable(`${from} is empty: no gateway has used it`)
    // One moment is read until the end. Else SQLite begins anew after each commit of a gateway, and a database that takes
    // more than one step beside a busy gateway would never be copied.
    source.exec('BEGIN')
    source.prepare('SELECT 1 FROM meta').get()
    time = Date.now()
    await onlineBackup(source, to, {
      rate: 4096,
      progress: () => {
        step?.()
        signal?.throwIfAborted()
      },
    })
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
  return { name: `sqlite:${path.resolve(from)}`, time }
}

/** Reads like `source`, and notes in the backup between which times each organization's part was read. */
function timed(source: End, target: SqliteEnd): Pick<End, 'read'> {
  return {
    async *read(kind, now, drop) {
      const batches = source.read(kind, now, drop)[Symbol.asyncIterator]()
      for (;;) {
        const first = Date.now()
        const { value: batch, done } = await batches.next()
        if (done) return
        // The ledger, the audit and what expires are many for each organization, and have times of their own.
        if (kind === 'organizations' || kind === 'cells' || kind === 'balances')
          target.noteCopied(batch.map(organizationOf), { first, last: Date.now() })
        yield batch
      }
    },
  }
}

const organizationOf = (item: { organization?: string; id?: string }): string => item.organization ?? item.id!

/** Notes when the whole of a backup was read. */
function noteRead(file: string, { first, last }: Moments): void {
  const db = new DatabaseSync(file)
  try {
    db.exec(COPIED_TABLE)
    db.prepare("INSERT INTO copied (organization, first, last) VALUES ('', ?, ?)").run(first, last)
  } finally {
    db.close()
  }
}

/** Takes out of a copy of a backup when that was read: it is a store from now on. */
function takeRead(file: string): Moments | null {
  const db = new DatabaseSync(file)
  try {
    db.exec(COPIED_TABLE)
    const found = db.prepare("SELECT first, last FROM copied WHERE organization = ''").get()
    db.exec('DROP TABLE copied')
    return found ? { first: Number(found['first']), last: Number(found['last']) } : null
  } finally {
    db.close()
  }
}

/**
 * Books what a gateway had in its journal: rows that it had not delivered, and levels that it had not written. Requests
 * that were running are not in a backup.
 */
function book(file: string, records: readonly JournalRecord[]): void {
  const { entries } = owedEntries(
    records.filter(({ kind }) => kind !== 'i'),
    Date.now(),
  )
  const levels = records.filter(({ kind }) => kind === 'l').map(({ json }) => json)
  if (entries.length === 0 && levels.length === 0) return
  const db = new DatabaseSync(file)
  try {
    prepare(db, file)
    const caps = { idempotencyBytes: NO_BOUND, recordBytes: NO_BOUND, valueBytes: NO_BOUND, share: 1, ledgerKeep: null }
    new Tables(db, caps).apply([
      { op: 'recover', entries: packEntries(entries), levels: `[${levels.join()}]`, lost: [] },
    ])
  } finally {
    db.close()
  }
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
