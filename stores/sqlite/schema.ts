/** The tables of the embedded store. `ledger` is public and documented in docs/ledger.md; the others are private. */
import fs from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import type { Retained } from '../../core/ports/store.ts'
import { checkFormat, checkMove, FormatRefused, type Mark, markOf } from '../format.ts'
import { createPrivate } from '../private-file.ts'
import { ACCOUNT_TABLES, AUDIT_TABLE, BALANCE_TABLES, KEY_INDEX, LIFE_TABLES, NAME_TABLES } from './accounts.ts'
import { NOTICE_TABLE } from './notices.ts'
import { DAY_TABLES, PROVIDER_SIDE, TAG_TABLES, USAGE_TABLES } from './usage.ts'

export interface SchemaStep extends Mark {
  /**
   * Migrates from the previous version; the first step starts from an empty file. All steps run in one transaction, so
   * a step must not begin its own.
   */
  run(db: DatabaseSync): void
}

const TABLES_1 = `
CREATE TABLE ledger (
  request_id    TEXT PRIMARY KEY,
  time          INTEGER NOT NULL,
  organization  TEXT NOT NULL,
  key_id        TEXT NOT NULL,
  surface       TEXT NOT NULL,
  model         TEXT NOT NULL,
  provider      TEXT NOT NULL,
  input         INTEGER NOT NULL,
  cached        INTEGER NOT NULL,
  cache_write   INTEGER NOT NULL,
  output        INTEGER NOT NULL,
  reasoning     INTEGER NOT NULL,
  searches      INTEGER NOT NULL,
  estimated     INTEGER NOT NULL,
  cost          INTEGER NOT NULL,
  price_book    TEXT NOT NULL,
  billing       TEXT NOT NULL,
  outcome       TEXT NOT NULL,
  duration_ms   REAL NOT NULL,
  ttfb_ms       REAL,
  bytes_in      INTEGER,
  bytes_out     INTEGER,
  input_tokens  INTEGER NOT NULL,
  charged       INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_time ON ledger (time);
CREATE INDEX ledger_organization_time ON ledger (organization, time);

CREATE TABLE spend (
  organization TEXT NOT NULL,
  cell         TEXT NOT NULL,
  period       TEXT NOT NULL,
  number       INTEGER NOT NULL,
  amount       INTEGER NOT NULL,
  PRIMARY KEY (organization, cell, period, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  organization TEXT NOT NULL,
  key          TEXT NOT NULL,
  fingerprint  TEXT NOT NULL,
  request_id   TEXT NOT NULL,
  status       INTEGER,
  headers      TEXT,
  body         BLOB,
  whole        INTEGER,
  size         INTEGER NOT NULL,
  expires      INTEGER NOT NULL,
  UNIQUE (organization, key)
) STRICT;
CREATE INDEX idempotency_expires ON idempotency (expires);

CREATE TABLE records (
  organization TEXT NOT NULL,
  kind         TEXT NOT NULL,
  id           TEXT NOT NULL,
  value        BLOB NOT NULL,
  size         INTEGER NOT NULL,
  expires      INTEGER NOT NULL,
  UNIQUE (organization, kind, id)
) STRICT;
CREATE INDEX records_expires ON records (expires);

CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
`

/**
 * Levels of buckets; and what a sweep of past spend goes by. `at` is real: a clock may have fractions of a millisecond.
 */
const TABLES_2 = `
CREATE TABLE levels (
  organization TEXT NOT NULL,
  cell         TEXT NOT NULL,
  used         INTEGER NOT NULL,
  part         REAL NOT NULL,
  at           REAL NOT NULL,
  expires      REAL NOT NULL,
  PRIMARY KEY (organization, cell)
) STRICT, WITHOUT ROWID;
CREATE INDEX levels_expires ON levels (expires);
CREATE INDEX spend_number ON spend (period, number);
`

/**
 * How many bytes of `table` each organization has, in `shares`, which is kept by triggers: so a release that does not
 * know of shares keeps them right, too. The row of the organization '' is the sum over all.
 *
 * Each step is one that has no conflict: in a trigger, the conflict clause of the statement that fired it (INSERT OR
 * REPLACE) would take the place of the trigger's own. REPLACE fires no DELETE trigger, hence `replaced`.
 * @param key the columns that identify a row
 */
const sharesOf = (table: Retained, key: readonly string[]) => {
  const add = (row: 'NEW' | 'OLD', sign: '+' | '-') =>
    `UPDATE shares SET bytes = bytes ${sign} ${row}.size WHERE kind = '${table}' AND organization IN ('', ${row}.organization);`
  return `
CREATE TRIGGER ${table}_replaced BEFORE INSERT ON ${table} BEGIN
  DELETE FROM ${table} WHERE ${key.map(column => `${column} = NEW.${column}`).join(' AND ')};
END;
CREATE TRIGGER ${table}_inserted AFTER INSERT ON ${table} WHEN NEW.size > 0 BEGIN
  INSERT INTO shares (kind, organization, bytes) SELECT '${table}', NEW.organization, 0
    WHERE NOT EXISTS (SELECT 1 FROM shares WHERE kind = '${table}' AND organization = NEW.organization);
  ${add('NEW', '+')}
END;
CREATE TRIGGER ${table}_resized AFTER UPDATE OF size ON ${table} WHEN NEW.size <> OLD.size BEGIN
  ${add('OLD', '-')}
  ${add('NEW', '+')}
END;
CREATE TRIGGER ${table}_deleted AFTER DELETE ON ${table} WHEN OLD.size > 0 BEGIN
  ${add('OLD', '-')}
  DELETE FROM shares WHERE kind = '${table}' AND organization = OLD.organization AND bytes <= 0 AND organization <> '';
END;
INSERT INTO shares SELECT '${table}', organization, sum(size) FROM ${table} WHERE size > 0 GROUP BY organization;
INSERT INTO shares SELECT '${table}', '', coalesce(sum(bytes), 0) FROM shares WHERE kind = '${table}';
`
}

/** The shares of organizations in what is retained; and what finds the largest share, and the oldest of one. */
const TABLES_3 = `
CREATE TABLE shares (
  kind         TEXT NOT NULL,
  organization TEXT NOT NULL,
  bytes        INTEGER NOT NULL,
  PRIMARY KEY (kind, organization)
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_bytes ON shares (kind, bytes);
CREATE INDEX records_age ON records (organization);
CREATE INDEX idempotency_age ON idempotency (organization) WHERE size > 0;
${sharesOf('records', ['organization', 'kind', 'id'])}
${sharesOf('idempotency', ['organization', 'key'])}
`

/** What refills a level, to bring it up to the time of an exchange that a crash cut off. Null: not known. */
const TABLES_9 = `
ALTER TABLE levels ADD COLUMN capacity REAL;
ALTER TABLE levels ADD COLUMN window REAL;
`

/**
 * What the request of a kept reply asked for; and the marks of keys whose reply is not kept, counted like replies
 * (stores/marks.ts), with their sum for each organization. A mark of an earlier release has the size 0 and is not
 * counted until it expires.
 */
const IDEMPOTENCY_MARKS = `
ALTER TABLE idempotency ADD COLUMN asked TEXT;
CREATE INDEX idempotency_replies ON idempotency (organization) WHERE status IS NOT NULL;
CREATE INDEX idempotency_marks ON idempotency (organization) WHERE status IS NULL AND size > 0;
CREATE TRIGGER idempotency_marked AFTER INSERT ON idempotency WHEN NEW.status IS NULL AND NEW.size > 0 BEGIN
  INSERT INTO shares (kind, organization, bytes) SELECT 'marks', NEW.organization, 0
    WHERE NOT EXISTS (SELECT 1 FROM shares WHERE kind = 'marks' AND organization = NEW.organization);
  UPDATE shares SET bytes = bytes + NEW.size WHERE kind = 'marks' AND organization = NEW.organization;
END;
CREATE TRIGGER idempotency_given_up AFTER UPDATE OF status, size ON idempotency WHEN NEW.status IS NULL BEGIN
  INSERT INTO shares (kind, organization, bytes) SELECT 'marks', NEW.organization, 0
    WHERE NOT EXISTS (SELECT 1 FROM shares WHERE kind = 'marks' AND organization = NEW.organization);
  UPDATE shares SET bytes = bytes + NEW.size - iif(OLD.status IS NULL, OLD.size, 0)
    WHERE kind = 'marks' AND organization = NEW.organization;
  DELETE FROM shares WHERE kind = 'marks' AND organization = NEW.organization AND bytes <= 0;
END;
CREATE TRIGGER idempotency_unmarked AFTER DELETE ON idempotency WHEN OLD.status IS NULL AND OLD.size > 0 BEGIN
  UPDATE shares SET bytes = bytes - OLD.size WHERE kind = 'marks' AND organization = OLD.organization;
  DELETE FROM shares WHERE kind = 'marks' AND organization = OLD.organization AND bytes <= 0;
END;
`

/** What plugins keep: as `records`, with a sum of its own. */
const VALUE_TABLES = `
CREATE TABLE plugin_values (
  organization TEXT NOT NULL,
  kind         TEXT NOT NULL,
  id           TEXT NOT NULL,
  value        BLOB NOT NULL,
  size         INTEGER NOT NULL,
  expires      INTEGER NOT NULL,
  UNIQUE (organization, kind, id)
) STRICT;
CREATE INDEX plugin_values_expires ON plugin_values (expires);
CREATE INDEX plugin_values_age ON plugin_values (organization);
${sharesOf('plugin_values', ['organization', 'kind', 'id'])}
`

/**
 * In ascending order of version. A new version adds an entry. Existing steps are never changed, as they have been run.
 */
export const STEPS: readonly SchemaStep[] = [
  { version: 1, minReader: 1, run: db => db.exec(TABLES_1) },
  // A release of version 1 leaves the new tables alone: its buckets start full, as they always did.
  { version: 2, minReader: 1, run: db => db.exec(TABLES_2) },
  // Earlier releases write as ever: the triggers keep the sums.
  { version: 3, minReader: 1, run: db => db.exec(TABLES_3) },
  // A release of version 3 knows no account of these tables, and refuses its keys.
  { version: 4, minReader: 1, run: db => db.exec(ACCOUNT_TABLES) },
  // Earlier releases book as ever: a trigger keeps the sums.
  { version: 5, minReader: 1, run: db => db.exec(USAGE_TABLES) },
  // A release of version 4 changes accounts without an entry in the audit.
  { version: 6, minReader: 1, run: db => db.exec(AUDIT_TABLE) },
  // SQLite keeps an index right whoever writes. Of two million keys it takes some seconds, once.
  { version: 7, minReader: 1, run: db => db.exec(KEY_INDEX) },
  // Triggers keep the names right whoever writes. Of a million organizations it takes some seconds, once.
  { version: 8, minReader: 1, run: db => db.exec(NAME_TABLES) },
  // Earlier releases write levels without them. Their journals have no levels, and neither has a position.
  { version: 9, minReader: 1, run: db => db.exec(TABLES_9) },
  // An earlier release writes replies without what they asked for, and marks that are not counted, as it always did.
  { version: 10, minReader: 1, run: db => db.exec(IDEMPOTENCY_MARKS) },
  // An earlier release cannot read the settings of an organization with a balance, and serves it to nobody.
  { version: 11, minReader: 1, run: db => db.exec(BALANCE_TABLES) },
  // Earlier releases book rows without tags.
  { version: 12, minReader: 1, run: db => db.exec(TAG_TABLES) },
  // An earlier release knows no names and labels, removes nothing, and may give an id again that was removed.
  { version: 13, minReader: 1, run: db => db.exec(LIFE_TABLES) },
  // An earlier release books rows without the provider's side, and the trigger sums them. Sums of a year of a large
  // installation are copied in some seconds, once.
  { version: 14, minReader: 1, run: db => db.exec(PROVIDER_SIDE) },
  { version: 15, minReader: 1, run: db => db.exec(NOTICE_TABLE) },
  // An earlier release books rows without the digest.
  {
    version: 16,
    minReader: 1,
    run: db => db.exec("ALTER TABLE ledger ADD COLUMN body_digest TEXT NOT NULL DEFAULT ''"),
  },
  // An earlier release leaves them where they are, and the next sweep of this one removes what has ended.
  { version: 17, minReader: 1, run: db => db.exec(VALUE_TABLES) },
  // Triggers keep the days right whoever writes. An earlier release rolls no hours up, and does not read the days.
  { version: 18, minReader: 1, run: db => db.exec(DAY_TABLES) },
]

/**
 * The name of the row of `meta` that has `minReader`. No version may move it. A database without it has a `minReader`
 * equal to its version.
 */
export const MIN_READER = 'min_reader'
/** The name of the row of `meta` with the `MoveMark` of a database that is set aside. */
export const MOVE = 'move'

/**
 * Makes the database readable to its owner alone before SQLite opens it: it holds replies and the secret, and SQLite
 * gives its write-ahead log the mode that the database has at that moment. What an earlier release left readable to
 * others is mended; a folder that is already there stays as the operator made it.
 */
export function makePrivate(file: string): void {
  createPrivate(file)
  for (const name of [file, `${file}.lock`, `${file}-wal`, `${file}-shm`]) {
    if (fs.existsSync(name)) fs.chmodSync(name, 0o600)
  }
}

/**
 * Sets up a connection that writes, and the tables: creates missing tables and migrates older ones. This is one
 * transaction, so that after a crash the old tables are there.
 *
 * A commit is safe against a killed process. A power cut may undo the commits since the last checkpoint (decisions 26),
 * but does not damage the file. `synchronous = FULL` would delay each retained response by an fsync before its last
 * event.
 * @throws FormatRefused when this build cannot use the database; the file is then unchanged
 */
export function prepare(db: DatabaseSync, file: string, steps: readonly SchemaStep[] = STEPS): void {
  db.exec('PRAGMA busy_timeout = 5000')
  const { version } = checkDatabase(db, file, steps)
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
  const mark = markOf(steps)
  if (version >= mark.version) return
  db.exec('BEGIN IMMEDIATE')
  try {
    for (const step of steps) if (step.version > version) step.run(db)
    const minReader = Buffer.from(String(mark.minReader))
    db.prepare('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)').run(MIN_READER, minReader)
    db.exec(`PRAGMA user_version = ${mark.version}; COMMIT`)
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK')
    throw error
  }
}

/**
 * Checks that a database needs no step to be read as this build reads it. It only reads.
 * @throws FormatRefused
 */
export function checkCurrent(db: DatabaseSync, file: string): void {
  const { version } = checkDatabase(db, file)
  const own = markOf(STEPS).version
  if (version < own)
    throw new FormatRefused(
      `${file} has format version ${version}, and this release reads version ${own}; start a gateway of this release once, which brings it up to date`,
    )
}

/**
 * The mark of a database; version 0 for an empty file. It only reads.
 * @throws FormatRefused when this build cannot use the database
 */
export function checkDatabase(db: DatabaseSync, file: string, steps: readonly SchemaStep[] = STEPS): Mark {
  const { user_version: version } = db.prepare('PRAGMA user_version').get() as { user_version: number }
  if (version === 0) {
    if (db.prepare('SELECT 1 FROM sqlite_schema').get())
      throw new FormatRefused(
        `${file} is the database of something else: it has tables and no format version; name another file in 'store'`,
      )
    return { version, minReader: version }
  }
  const select = db.prepare('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?')
  const metaOf = (name: string) => select.get(name)?.['value'] as string | undefined
  checkMove(`the database ${file}`, metaOf(MOVE))
  const minReader = metaOf(MIN_READER)
  const mark = { version, minReader: minReader === undefined ? version : Number(minReader) }
  checkFormat(`the database ${file}`, mark, steps, {
    newer: "start the release that wrote it, or a later one; or name another file in 'store', such as a backup",
    older: 'start a release in between first, which brings it up to date',
  })
  return mark
}
