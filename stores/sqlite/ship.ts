/**
 * The ledger table as what is shipped. One connection at a time writes rows, so the order of rowids is the order of
 * commits. SQLite may give the rowid of a deleted row again; a position therefore has the request id, too.
 */
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { type Lag, type Page, PositionLost, ShipError, type ShipSource, shipRow } from '../ship/ship.ts'
import { toRow } from './ledger.ts'
import { prepare } from './schema.ts'
import { rowidOf, shippedName } from './tables.ts'

/** @throws ShipError, StoreUnavailable */
export function openSqliteSource(file: string): ShipSource {
  if (file === ':memory:') throw new ShipError('a ledger in memory cannot be shipped; name a file in `store`')
  if (!fs.existsSync(file)) throw new StoreUnavailable(`there is no ledger at ${path.resolve(file)} yet`)
  let db: DatabaseSync | undefined
  try {
    db = new DatabaseSync(file)
    prepare(db, file)
    return new SqliteSource(db)
  } catch (error) {
    db?.close()
    if (error instanceof StoreUnavailable) throw error
    throw new StoreUnavailable(`cannot open ${file}: ${(error as Error).message}`, error)
  }
}

class SqliteSource implements ShipSource {
  readonly id: string
  readonly #db: DatabaseSync
  readonly #at: StatementSync
  readonly #next: StatementSync
  readonly #last: StatementSync
  readonly #noted: StatementSync
  readonly #note: StatementSync

  constructor(db: DatabaseSync) {
    this.#db = db
    this.#at = db.prepare('SELECT request_id FROM ledger WHERE rowid = ?')
    this.#next = db.prepare('SELECT rowid, * FROM ledger WHERE rowid > ? ORDER BY rowid LIMIT ?')
    this.#last = db.prepare('SELECT max(rowid) AS rowid FROM ledger')
    this.#noted = db.prepare('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?')
    this.#note = db.prepare('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)')
    const made = Buffer.from(randomBytes(16).toString('hex'))
    db.prepare("INSERT OR IGNORE INTO meta (name, value) VALUES ('ledger_id', ?)").run(made)
    this.id = this.#noted.get('ledger_id')!['value'] as string
  }

  async page(after: string | null, most: number): Promise<Page> {
    return this.#try(() => {
      const rowid = rowidOf(after)
      if (after !== null && this.#at.get(rowid)?.['request_id'] !== after.slice(after.indexOf(' ') + 1))
        throw new PositionLost(`the ledger does not have the row '${after}'`)
      const rows = this.#next.all(rowid, most)
      const last = rows.at(-1)
      return {
        rows: rows.map(row => shipRow(toRow(row))),
        position: last ? `${last['rowid']} ${last['request_id']}` : after,
      }
    })
  }

  async note(target: string, position: string | null): Promise<void> {
    this.#try(() => {
      const noted = this.#noted.get(shippedName(target))?.['value'] ?? null
      if (noted !== position) this.#note.run(shippedName(target), Buffer.from(position ?? '0'))
    })
  }

  async lag(target: string): Promise<Lag> {
    return this.#try(() => {
      const noted = (this.#noted.get(shippedName(target))?.['value'] as string | undefined) ?? null
      const first = this.#next.get(rowidOf(noted), 1)
      if (!first) return { rows: 0, oldest: null }
      const last = this.#last.get()!['rowid'] as number
      return { rows: last - (first['rowid'] as number) + 1, oldest: first['time'] as number }
    })
  }

  /** One gateway uses the file. A command beside it takes turns with it at the target. */
  async lead(): Promise<boolean> {
    return true
  }

  async close(): Promise<void> {
    this.#db.close()
  }

  #try<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      if (error instanceof PositionLost) throw error
      throw new StoreUnavailable(`the ledger cannot be read: ${(error as Error).message}`, error)
    }
  }
}
