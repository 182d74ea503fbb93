/** The tables of the embedded store. `ledger` is public and documented in docs/ledger.md; the others are the store's own. */
import type { DatabaseSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/store.ts'

const VERSION = 1

const SCHEMA = `
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
 * Settings of a connection that writes, and the tables when they are missing. A commit is safe against a killed process; a power cut may undo those since
 * the last checkpoint (decisions 26), never leave the file torn. `synchronous = FULL` would cost each retained response an fsync before its last event.
 */
export function prepare(db: DatabaseSync): void {
  db.exec('PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
  const version = (db.prepare('PRAGMA user_version').get() as { user_version: number }).user_version
  if (version === VERSION) return
  if (version !== 0)
    throw new StoreUnavailable(`the database has schema version ${version}; this build knows ${VERSION}`)
  db.exec(`BEGIN IMMEDIATE; ${SCHEMA} PRAGMA user_version = ${VERSION}; COMMIT`)
}
