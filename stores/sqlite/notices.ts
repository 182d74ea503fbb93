/** Notices in SQLite: a small table, written where they are found. */
import type { DatabaseSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Notice, NoticePage, NoticeStore } from '../../core/ports/store.ts'
import { identityOf, newsUnless } from '../notices.ts'

export const NOTICE_TABLE = `
CREATE TABLE notices (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  time         INTEGER NOT NULL,
  organization TEXT NOT NULL,
  identity     TEXT NOT NULL UNIQUE,
  notice       TEXT NOT NULL
) STRICT;
CREATE INDEX notices_time ON notices (time);
CREATE INDEX notices_organization ON notices (organization, id);
`

export class SqliteNotices implements NoticeStore {
  readonly #db: DatabaseSync

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  post(notice: Notice): boolean {
    const known = newsUnless(notice)
    const marks = known.map(() => '?').join(', ')
    return this.#try(() => {
      if (this.#db.prepare(`SELECT 1 FROM notices WHERE identity IN (${marks})`).get(...known)) return false
      return this.keep(notice)
    })
  }

  /** Keeps a notice that was news where it was posted. @returns whether it was not there yet */
  keep(notice: Notice): boolean {
    return this.#try(() => {
      const insert = this.#db.prepare(
        'INSERT OR IGNORE INTO notices (time, organization, identity, notice) VALUES (?, ?, ?, ?)',
      )
      const { time, organization } = notice
      return insert.run(Math.floor(time), organization, identityOf(notice), JSON.stringify(notice)).changes === 1
    })
  }

  page(after: string, most: number, organization?: string): NoticePage {
    return this.#try(() => {
      const only = organization === undefined ? '' : ' AND organization = ?'
      // A cursor of another engine, as after a restore, is none: who reads knows notices by what they say.
      const values = [Number(after) || 0, ...(organization === undefined ? [] : [organization]), most]
      const rows = this.#db
        .prepare(`SELECT id, notice FROM notices WHERE id > ?${only} ORDER BY id LIMIT ?`)
        .all(...values)
      const notices = rows.map(({ id, notice }) => ({ id: String(id), ...(JSON.parse(notice as string) as Notice) }))
      return { notices, next: notices.at(-1)?.id ?? after }
    })
  }

  #try<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      throw new StoreUnavailable(`the store cannot read or write notices: ${(error as Error).message}`, error)
    }
  }
}
