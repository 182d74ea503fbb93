/** Accounts in the embedded store. Another process, such as `sluice org`, changes them beside a running gateway. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { sharedPrefix } from '../../core/canon/limits.ts'
import {
  type AccountChange,
  type AccountStore,
  type AccountsSince,
  type AuditNote,
  type AuditPage,
  type ChangeResult,
  type Credit,
  MOST_CHANGES,
  type NameCount,
  type NameKind,
  type NameUsers,
  type OrganizationWithKeys,
  type StoredAccount,
  type StoredKey,
  type StoredOrganization,
  unknownNote,
} from '../../core/ports/accounts.ts'
import { beginningWith } from './levels.ts'

/** The index of `version` answers what has changed since, and gives the next version; `gone` has the removals. */
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

/**
 * What the gateway ignores of organizations and keys; when an organization may be removed; and the ids of what was
 * removed, with '' for the organization itself, whose removal has a version as each change has.
 */
export const LIFE_TABLES = `
ALTER TABLE organizations ADD COLUMN about TEXT;
ALTER TABLE organizations ADD COLUMN leaves INTEGER;
ALTER TABLE keys ADD COLUMN about TEXT;
CREATE INDEX organizations_leaving ON organizations (leaves) WHERE leaves IS NOT NULL;
CREATE TABLE gone (
  organization TEXT NOT NULL,
  key          TEXT NOT NULL,
  version      INTEGER,
  PRIMARY KEY (organization, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX gone_version ON gone (version) WHERE version IS NOT NULL;
`

/** The columns of an organization that is read with its keys. */
const WHOLE = 'o.id AS id, o.version AS version, o.settings AS settings, o.about AS about, o.leaves AS leaves'

/** The first organizations that name a plan or model. */
export const USERS = 'SELECT DISTINCT organization FROM account_names WHERE kind = ? AND name = ? ORDER BY 1 LIMIT ?'

type Table = 'organizations' | 'keys'
/** Columns with the organization and the key of a row; an organization's own settings have the key ''. */
const OWNER = { organizations: ['id', "''"], keys: ['organization', 'id'] } as const
const ownerIn = (table: Table, row: string) => {
  const [organization, key] = OWNER[table]
  return [`${row}.${organization}`, key === "''" ? key : `${row}.${key}`] as const
}

/** Most keys name nothing. Parsing their settings would make an import of a million accounts half as long again. */
const saysModels = (row: string) => `instr(${row}.settings, '"model') > 0`

/** The names of a kind in the settings of a row, as a query of one column `name`, without repetitions. */
function namesIn(table: Table, kind: NameKind, row: string): string {
  const json = `iif(json_valid(${row}.settings), ${row}.settings, '{}')`
  const is = (member: string, type: string) => `json_type(${json}, '$.${member}') = '${type}'`
  if (kind === 'plan') return `SELECT json_extract(${json}, '$.plan') AS name WHERE ${is('plan', 'text')}`
  const alive = table === 'keys' ? ` AND json_extract(${json}, '$.status') IS NOT 'revoked'` : ''
  return `SELECT value AS name FROM json_each(${json}, '$.models') WHERE ${is('models', 'array')} AND type = 'text'${alive}
    UNION SELECT key FROM json_each(${json}, '$.model_limits') WHERE ${is('model_limits', 'object')}${alive}`
}

/** Triggers that keep `account_names` in step with one table. */
function namesOf(table: Table): string {
  const kinds: NameKind[] = table === 'organizations' ? ['plan', 'model'] : ['model']
  // Each kind by itself, so that all columns of the primary key are looked up; a row value in IN would be a scan.
  const each = (step: (kind: NameKind) => string) => kinds.map(kind => `${step(kind)};`).join('')
  const [organization, key] = ownerIn(table, 'NEW')
  const add = (kind: NameKind) => `
  INSERT INTO account_names (kind, name, organization, key)
    SELECT '${kind}', n.name, ${organization}, ${key} FROM (${namesIn(table, kind, 'NEW')}) AS n
    WHERE NOT EXISTS (SELECT 1 FROM account_names AS a WHERE a.kind = '${kind}' AND a.name = n.name
      AND a.organization = ${organization} AND a.key = ${key})`
  const remove = (kind: NameKind) => `
  DELETE FROM account_names WHERE kind = '${kind}' AND organization = ${ownerIn(table, 'OLD')[0]}
    AND key = ${ownerIn(table, 'OLD')[1]}
    AND name IN (${namesIn(table, kind, 'OLD')})`
  const [inserted, updated, deleted] =
    table === 'keys'
      ? [
          `WHEN ${saysModels('NEW')}`,
          ` AND (${saysModels('NEW')} OR ${saysModels('OLD')})`,
          `WHEN ${saysModels('OLD')}`,
        ]
      : ['', '', '']
  return `
CREATE TRIGGER ${table}_named AFTER INSERT ON ${table} ${inserted} BEGIN ${each(add)}
END;
CREATE TRIGGER ${table}_renamed AFTER UPDATE OF settings ON ${table} WHEN NEW.settings <> OLD.settings${updated} BEGIN
  ${each(remove)}
  ${each(add)}
END;
CREATE TRIGGER ${table}_unnamed AFTER DELETE ON ${table} ${deleted} BEGIN ${each(remove)}
END;
`
}

/** Adds the names of the rows that are there already. */
function addNamesOf(table: Table): string {
  const [organization, key] = ownerIn(table, 'r')
  const add = (kind: NameKind) => `
INSERT INTO account_names SELECT '${kind}', n.value, ${organization}, ${key} FROM ${table} AS r,
  json_each((SELECT json_group_array(name) FROM (${namesIn(table, kind, 'r')}))) AS n
  WHERE ${kind === 'plan' ? 'true' : saysModels('r')};`
  return (table === 'organizations' ? add('plan') : '') + add('model')
}

/**
 * Which plans and models accounts name, and how many organizations name each. Triggers keep both right, in the
 * transaction of the change, and for a release that does not know of them, too. `key` is '' for the organization's own
 * settings. No step has a conflict: in a trigger, the conflict clause of the statement that fired it would hold.
 */
export const NAME_TABLES = `
CREATE TABLE account_names (
  kind         TEXT NOT NULL,
  name         TEXT NOT NULL,
  organization TEXT NOT NULL,
  key          TEXT NOT NULL,
  PRIMARY KEY (kind, name, organization, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE account_counts (
  kind          TEXT NOT NULL,
  name          TEXT NOT NULL,
  organizations INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
${addNamesOf('organizations')}
${addNamesOf('keys')}
INSERT INTO account_counts SELECT kind, name, count(DISTINCT organization) FROM account_names GROUP BY kind, name;
CREATE TRIGGER account_names_added AFTER INSERT ON account_names WHEN NOT EXISTS (
  SELECT 1 FROM account_names WHERE kind = NEW.kind AND name = NEW.name AND organization = NEW.organization
    AND key <> NEW.key
) BEGIN
  INSERT INTO account_counts SELECT NEW.kind, NEW.name, 0
    WHERE NOT EXISTS (SELECT 1 FROM account_counts WHERE kind = NEW.kind AND name = NEW.name);
  UPDATE account_counts SET organizations = organizations + 1 WHERE kind = NEW.kind AND name = NEW.name;
END;
CREATE TRIGGER account_names_removed AFTER DELETE ON account_names WHEN NOT EXISTS (
  SELECT 1 FROM account_names WHERE kind = OLD.kind AND name = OLD.name AND organization = OLD.organization
) BEGIN
  UPDATE account_counts SET organizations = organizations - 1 WHERE kind = OLD.kind AND name = OLD.name;
  DELETE FROM account_counts WHERE kind = OLD.kind AND name = OLD.name AND organizations <= 0;
END;
${namesOf('organizations')}
${namesOf('keys')}
`

/**
 * The credits of organizations; and what their prepaid rows cost, which a trigger keeps in the transaction that books a
 * row. Rows that retention removes stay in it.
 */
export const BALANCE_TABLES = `
CREATE TABLE credits (
  organization TEXT NOT NULL,
  id           TEXT NOT NULL,
  amount       INTEGER NOT NULL,
  time         INTEGER NOT NULL,
  by           TEXT NOT NULL,
  note         TEXT NOT NULL,
  PRIMARY KEY (organization, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE billed (organization TEXT PRIMARY KEY, amount INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER ledger_billed AFTER INSERT ON ledger WHEN NEW.billing = 'prepaid' AND NEW.cost <> 0 BEGIN
  INSERT INTO billed (organization, amount) VALUES (NEW.organization, NEW.cost)
    ON CONFLICT DO UPDATE SET amount = amount + excluded.amount;
END;
`

interface Row extends StoredOrganization {
  about: string | null
  leaves: number | null
}

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
      const row = this.#sql(`SELECT ${WHOLE} FROM organizations o WHERE id = ?`).get(id)
      return row ? this.#withKeys(row as unknown as Row) : null
    })
  }

  page(after: string, most: number): OrganizationWithKeys[] {
    return this.#try(() => {
      const rows = this.#sql(`SELECT ${WHOLE} FROM organizations o WHERE id > ? ORDER BY id LIMIT ?`)
      return rows.all(after, most).map(row => this.#withKeys(row as unknown as Row))
    })
  }

  withKey(key: string, after: string, most: number): OrganizationWithKeys[] {
    return this.#try(() => {
      const rows = this.#sql(
        `SELECT ${WHOLE}
         FROM keys k CROSS JOIN organizations o ON o.id = k.organization
         WHERE k.id = ? AND k.organization > ? ORDER BY k.organization LIMIT ?`,
      )
      return rows.all(key, after, most).map(row => this.#withKeys(row as unknown as Row))
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

  names(): NameCount[] {
    return this.#try(() => {
      const rows = this.#sql('SELECT kind, name, organizations FROM account_counts').all()
      return rows.map(row => ({ ...row }) as unknown as NameCount)
    })
  }

  users(kind: NameKind, names: readonly string[], most: number): NameUsers[] {
    return this.#try(() => {
      const count = this.#sql('SELECT organizations FROM account_counts WHERE kind = ? AND name = ?')
      const ids = this.#sql(USERS)
      return names.flatMap(name => {
        const found = count.get(kind, name)
        if (!found) return []
        const first = ids.all(kind, name, most).map(row => row['organization'] as string)
        return [{ kind, name, organizations: found['organizations'] as number, ids: first }]
      })
    })
  }

  credits(id: string): Credit[] {
    return this.#try(() => {
      const rows = this.#sql(
        'SELECT id, amount, time, by, note FROM credits WHERE organization = ? ORDER BY time DESC, id',
      )
      return rows.all(id).map(row => ({ ...row }) as unknown as Credit)
    })
  }

  credit(id: string, credit: string): Credit | null {
    return this.#try(() => {
      const row = this.#sql('SELECT id, amount, time, by, note FROM credits WHERE organization = ? AND id = ?')
      return (row.get(id, credit) as unknown as Credit | undefined) ?? null
    })
  }

  billed(id: string): number {
    return this.#try(() => {
      const row = this.#sql('SELECT amount FROM billed WHERE organization = ?').get(id)
      return (row?.['amount'] as number | undefined) ?? 0
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

  leaving(now: number, most: number): string[] {
    return this.#try(() => {
      const due = this.#sql(
        'SELECT id FROM organizations WHERE leaves IS NOT NULL AND leaves <= ? ORDER BY leaves LIMIT ?',
      )
      return due.all(Math.floor(now), most).map(row => row['id'] as string)
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
    const select = this.#sql(
      `SELECT id FROM organizations WHERE version > ?1
       UNION ALL SELECT organization FROM gone WHERE version > ?1 LIMIT ${MOST_CHANGES + 1}`,
    )
    return select.all(version).map(row => row['id'] as string)
  }

  #latest(): number {
    const latest = (table: string) =>
      (this.#sql(`SELECT max(version) AS latest FROM ${table}`).get()!['latest'] as number | null) ?? 0
    return Math.max(latest('organizations'), latest('gone WHERE version IS NOT NULL'))
  }

  #change(change: AccountChange): ChangeResult {
    const { id, expected, settings, about, leaves, keys, removed = [], remove = false, audit, credit } = change
    const found = this.#sql('SELECT version FROM organizations WHERE id = ?').get(id)
    if (((found?.['version'] as number | undefined) ?? 0) !== expected) return { refused: 'changed' }
    if (credit && this.#sql('SELECT 1 FROM credits WHERE organization = ? AND id = ?').get(id, credit.id))
      return { refused: 'credited' }
    const digests = keys.map(({ sha256 }) => Buffer.from(sha256, 'hex'))
    const owner = this.#sql('SELECT organization, id FROM keys WHERE sha256 = ?')
    const gone = this.#sql('SELECT 1 FROM gone WHERE organization = ? AND key = ?')
    if (expected === 0 && gone.get(id, '')) return { refused: 'gone', key: '' }
    for (const [i, key] of keys.entries()) {
      const row = owner.get(digests[i]!) as { organization: string; id: string } | undefined
      if (row && (row.organization !== id || row.id !== key.id))
        return { refused: 'digest', sha256: key.sha256, organization: row.organization, key: row.id }
      if (gone.get(id, key.id)) return { refused: 'gone', key: key.id }
    }
    const version = this.#latest() + 1
    if (remove) this.#remove(id, version)
    else if (expected === 0) {
      this.#sql('INSERT INTO organizations (id, version, settings, about, leaves) VALUES (?, ?, ?, ?, ?)').run(
        ...[id, version, settings!, about ?? null, leaves ?? null],
      )
    } else {
      this.#sql(
        `UPDATE organizations SET version = ?, settings = coalesce(?, settings), about = coalesce(?, about)
         ${leaves === undefined ? '' : ', leaves = ?'} WHERE id = ?`,
      ).run(...[version, settings ?? null, about ?? null, ...(leaves === undefined ? [] : [leaves]), id])
    }
    const upsert = this.#sql(
      `INSERT INTO keys (sha256, organization, id, settings, about) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (organization, id) DO UPDATE SET sha256 = excluded.sha256, settings = excluded.settings,
       about = coalesce(excluded.about, about)`,
    )
    for (const [i, key] of keys.entries()) upsert.run(digests[i]!, id, key.id, key.settings, key.about ?? null)
    if (credit) {
      const { amount, time, by, note } = credit
      const insert = this.#sql(
        'INSERT INTO credits (organization, id, amount, time, by, note) VALUES (?, ?, ?, ?, ?, ?)',
      )
      insert.run(id, credit.id, amount, Math.floor(time), by, note)
    }
    const remember = this.#sql('INSERT OR IGNORE INTO gone (organization, key) VALUES (?, ?)')
    for (const key of removed)
      if (this.#sql('DELETE FROM keys WHERE organization = ? AND id = ?').run(id, key).changes === 1) {
        remember.run(id, key)
        const levels = this.#sql('DELETE FROM levels WHERE organization = ? AND cell >= ? AND cell < ?')
        levels.run(id, ...beginningWith(sharedPrefix(key)))
      }
    this.#note(id, audit ?? unknownNote(Date.now()))
    return { version }
  }

  #remove(id: string, version: number): void {
    this.#sql('DELETE FROM keys WHERE organization = ?').run(id)
    this.#sql('DELETE FROM organizations WHERE id = ?').run(id)
    this.#sql('DELETE FROM gone WHERE organization = ?').run(id)
    this.#sql("INSERT INTO gone (organization, key, version) VALUES (?, '', ?)").run(id, version)
  }

  #withKeys({ id, version, settings, about, leaves }: Row): OrganizationWithKeys {
    const rows = this.#sql(
      'SELECT id, lower(hex(sha256)) AS sha256, settings, about FROM keys WHERE organization = ? ORDER BY id',
    ).all(id)
    return {
      ...{ id, version, settings },
      ...(about !== null && { about }),
      ...(leaves !== null && { leaves }),
      keys: rows.map(({ about, ...key }) => ({ ...key, ...(about !== null && { about }) }) as unknown as StoredKey),
    }
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
