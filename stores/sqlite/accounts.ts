/** Accounts in the embedded store. Another process, such as `sluice org`, changes them beside a running gateway. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import {
  type AccountChange,
  type AccountStore,
  type AccountsSince,
  type AuditNote,
  type AuditPage,
  type ChangeResult,
  MOST_CHANGES,
  type OrganizationWithKeys,
  type StoredAccount,
  type StoredKey,
  type StoredOrganization,
  unknownNote,
} from '../../core/accounts.ts'
import { StoreUnavailable } from '../../core/store.ts'

/** The index of `version` answers what has changed since, and gives the next version. No organization is deleted. */
export const ACCOUNT_TABLES = `
CREATE TABLE organizations (
  id       TEXT PRIMARY KEY,
  version  INTEGER NOT NULL UNIQUE,
  settings TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE keys (
  sha256       BLOB PRIMARY KEY,
  organization TEXT NOT NULL,
  id           TEXT NOT NULL,
  settings     TEXT NOT NULL,
  UNIQUE (organization, id)
) STRICT, WITHOUT ROWID;
`

/** `entry`: JSON of an `AuditNote`. Entries are numbered without gaps being filled, so that a number is a cursor. */
export const AUDIT_TABLE = `
CREATE TABLE audit (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  time         INTEGER NOT NULL,
  organization TEXT NOT NULL,
  entry        TEXT NOT NULL
) STRICT;
CREATE INDEX audit_time ON audit (time);
CREATE INDEX audit_organization ON audit (organization, id);
`

/** Finds organizations by the id of a key, in the order of their ids. */
export const KEY_INDEX = 'CREATE INDEX keys_id ON keys (id, organization)'

export class SqliteAccounts implements AccountStore {
  readonly #db: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()
  /** SQLite's counter of commits by other connections, when `since` last looked; undefined to look again. */
  #commits: unknown
  #version = 0

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  find(sha256: string): StoredAccount | null {
    return this.#try(() => {
      const row = this.#sql(
        `SELECT o.id AS organization, version, o.settings AS own, k.id AS id, k.settings AS settings
         FROM keys k JOIN organizations o ON o.id = k.organization WHERE sha256 = ?`,
      ).get(Buffer.from(sha256, 'hex'))
      if (!row) return null
      const { organization, version, own, id, settings } = row as Record<string, string>
      return {
        organization: { id: organization!, version: Number(version), settings: own! },
        key: { id: id!, sha256, settings: settings! },
      }
    })
  }

  read(id: string): OrganizationWithKeys | null {
    return this.#try(() => {
      const row = this.#sql('SELECT id, version, settings FROM organizations WHERE id = ?').get(id)
      return row ? this.#withKeys(row as unknown as StoredOrganization) : null
    })
  }

  page(after: string, most: number): OrganizationWithKeys[] {
    return this.#try(() => {
      const rows = this.#sql('SELECT id, version, settings FROM organizations WHERE id > ? ORDER BY id LIMIT ?')
      return rows.all(after, most).map(row => this.#withKeys(row as unknown as StoredOrganization))
    })
  }

  withKey(key: string, after: string, most: number): OrganizationWithKeys[] {
    return this.#try(() => {
      const rows = this.#sql(
        `SELECT o.id AS id, version, o.settings AS settings
         FROM keys k CROSS JOIN organizations o ON o.id = k.organization
         WHERE k.id = ? AND k.organization > ? ORDER BY k.organization LIMIT ?`,
      )
      return rows.all(key, after, most).map(row => this.#withKeys(row as unknown as StoredOrganization))
    })
  }

  count(): number {
    return this.#try(() => this.#sql('SELECT count(*) AS n FROM organizations').get()!['n'] as number)
  }

  held(ids: readonly string[]): string[] {
    return this.#try(() => {
      const select = this.#sql('SELECT value FROM json_each(?) WHERE value IN (SELECT id FROM organizations)')
      return select.all(JSON.stringify(ids)).map(row => row['value'] as string)
    })
  }

  change(changes: readonly AccountChange[]): ChangeResult[] {
    return this.#try(() => {
      this.#db.exec('BEGIN IMMEDIATE')
      try {
        const results = changes.map(change => this.#change(change))
        this.#db.exec('COMMIT')
        this.#commits = undefined
        return results
      } catch (error) {
        if (this.#db.isTransaction) this.#db.exec('ROLLBACK')
        throw error
      }
    })
  }

  since(version: number): AccountsSince {
    return this.#try(() => {
      // The gateway commits rows and levels all the time, so that a commit alone says little. It saves the next look
      // while nothing at all is written.
      const commits = this.#sql('PRAGMA data_version').get()!['data_version']
      if (commits === this.#commits && version === this.#version) return { version, ids: [] }
      const latest = this.#latest()
      const behind = latest === version ? [] : this.#changed(version)
      this.#commits = commits
      this.#version = latest
      return { version: latest, ids: latest < version || behind.length > MOST_CHANGES ? null : behind }
    })
  }

  note(audit: AuditNote): void {
    this.#try(() => this.#note('', audit))
  }

  audit({ organization, before, most }: { organization?: string; before: string; most: number }): AuditPage {
    return this.#try(() => {
      const below = before === '' ? Number.MAX_SAFE_INTEGER : Number(before)
      const rows = this.#sql(
        `SELECT id, organization, entry FROM audit WHERE id < ?${organization === undefined ? '' : ' AND organization = ?'}
         ORDER BY id DESC LIMIT ?`,
      ).all(...(organization === undefined ? [below, most] : [below, organization, most]))
      const entries = rows.map(({ id, organization, entry }) => ({
        id: String(id),
        organization: organization as string,
        ...(JSON.parse(entry as string) as AuditNote),
      }))
      return { entries, next: rows.length < most ? null : entries.at(-1)!.id }
    })
  }

  #note(organization: string, audit: AuditNote): void {
    const insert = this.#sql('INSERT INTO audit (time, organization, entry) VALUES (?, ?, ?)')
    insert.run(Math.floor(audit.time), organization, JSON.stringify(audit))
  }

  #changed(version: number): string[] {
    const select = this.#sql(`SELECT id FROM organizations WHERE version > ? LIMIT ${MOST_CHANGES + 1}`)
    return select.all(version).map(row => row['id'] as string)
  }

  #latest(): number {
    return (this.#sql('SELECT max(version) AS latest FROM organizations').get()!['latest'] as number | null) ?? 0
  }

  #change({ id, expected, settings, keys, audit }: AccountChange): ChangeResult {
    const found = this.#sql('SELECT version FROM organizations WHERE id = ?').get(id)
    if (((found?.['version'] as number | undefined) ?? 0) !== expected) return { refused: 'changed' }
    const digests = keys.map(({ sha256 }) => Buffer.from(sha256, 'hex'))
    const owner = this.#sql('SELECT organization, id FROM keys WHERE sha256 = ?')
    for (const [i, key] of keys.entries()) {
      const row = owner.get(digests[i]!) as { organization: string; id: string } | undefined
      if (row && (row.organization !== id || row.id !== key.id))
        return { refused: 'digest', sha256: key.sha256, organization: row.organization, key: row.id }
    }
    const version = this.#latest() + 1
    if (expected === 0) {
      this.#sql('INSERT INTO organizations (id, version, settings) VALUES (?, ?, ?)').run(id, version, settings!)
    } else {
      const update = this.#sql('UPDATE organizations SET version = ?, settings = coalesce(?, settings) WHERE id = ?')
      update.run(version, settings ?? null, id)
    }
    const upsert = this.#sql(
      `INSERT INTO keys (sha256, organization, id, settings) VALUES (?, ?, ?, ?)
       ON CONFLICT (organization, id) DO UPDATE SET sha256 = excluded.sha256, settings = excluded.settings`,
    )
    for (const [i, key] of keys.entries()) upsert.run(digests[i]!, id, key.id, key.settings)
    this.#note(id, audit ?? unknownNote(Date.now()))
    return { version }
  }

  #withKeys({ id, version, settings }: StoredOrganization): OrganizationWithKeys {
    const rows = this.#sql(
      'SELECT id, lower(hex(sha256)) AS sha256, settings FROM keys WHERE organization = ? ORDER BY id',
    ).all(id)
    return { id, version, settings, keys: rows.map(row => ({ ...row }) as unknown as StoredKey) }
  }

  #try<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      throw new StoreUnavailable(`the store cannot read or write accounts: ${(error as Error).message}`, error)
    }
  }

  #sql(text: string): StatementSync {
    let statement = this.#statements.get(text)
    if (!statement) this.#statements.set(text, (statement = this.#db.prepare(text)))
    return statement
  }
}
