/**
 * Refuses a database beside which the write-ahead log of another one was left: after a crash, whoever copies a backup over
 * the database by hand, and not its log, would have SQLite play the one into the other, without a word.
 *
 * Each start writes a number into the database, and into the lock file beside it. When there is a log, the database
 * without it must have the number that the lock file has.
 */
import { randomInt } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { StoreUnavailable } from '../../core/canon/errors.ts'

const OPENED = 'opened'

/**
 * @param lock the locked lock file
 * @throws StoreUnavailable
 */
export function checkLog(file: string, lock: DatabaseSync): void {
  const wal = `${file}-wal`
  const last = numberOf(lock)
  if (last === 0 || !fs.existsSync(file) || (fs.statSync(wal, { throwIfNoEntry: false })?.size ?? 0) === 0) return
  if (numberIn(file) === last) return
  const [name, log] = [path.resolve(file), path.resolve(wal)]
  throw new StoreUnavailable(
    `${name} is not the database to which ${log} belongs: SQLite would play changes of another one into it. Was a backup copied over it? To use it as it is, move ${log} and ${name}-shm away; to go back, put the database there that was there before. \`sluice store restore\` does this rightly`,
  )
}

/** The database is open and up to date: its log belongs to it from now on. The lock outlives its transaction. */
export function noteOpened(db: DatabaseSync, lock: DatabaseSync): void {
  const number = randomInt(1, 2 ** 31)
  db.prepare('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)').run(OPENED, Buffer.from(String(number)))
  // The database has it without its log before the lock file says so, and the log is empty until then.
  const { busy } = db.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get() as { busy: number }
  // A command that reads keeps the log from being emptied. Then nothing is known at the next start.
  lock.exec(`PRAGMA locking_mode = EXCLUSIVE; PRAGMA application_id = ${busy ? 0 : number}; COMMIT`)
}

/** A copy is another database: no log belongs to it. */
export function forgetOpened(db: DatabaseSync): void {
  db.prepare('DELETE FROM meta WHERE name = ?').run(OPENED)
}

const numberOf = (lock: DatabaseSync): number =>
  lock.prepare('PRAGMA application_id').get()!['application_id'] as number

/** The number in the file itself, as it is without its log; 0 when it has none. */
function numberIn(file: string): number {
  const url = pathToFileURL(file)
  url.searchParams.set('immutable', '1')
  const db = new DatabaseSync(url, { readOnly: true })
  try {
    const found = db.prepare('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?').get(OPENED)
    return Number(found?.['value'] ?? 0)
  } finally {
    db.close()
  }
}
