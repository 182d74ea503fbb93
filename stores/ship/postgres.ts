/**
 * PostgreSQL as a target. Rows and position are written in one transaction, which holds the lock of the source's row
 * in sluice_ledger_source: so several processes take turns, and each goes on where the one before has committed.
 *
 * All settings are of one transaction only, so that a connection pooler may stand between.
 */
import type { Socket } from 'node:net'
import type { Client } from 'pg'
import { type Batch, ShipError, type Shipped, type ShipTarget } from './ship.ts'

/** Who may write the tables: a release with another version does not. Columns that are added do not raise it. */
const VERSION = 1
/** Raised with each set of columns that is added; what has none is revision 1. */
const REVISION = 3

/** The columns of the table, in the order of docs/ledger.md, with their types. */
const COLUMNS: readonly (readonly [name: string, type: string, more?: string])[] = [
  ['request_id', 'text', 'PRIMARY KEY'],
  ['time', 'timestamptz', 'NOT NULL'],
  ['organization', 'text', 'NOT NULL'],
  ['key_id', 'text', 'NOT NULL'],
  ['surface', 'text', 'NOT NULL'],
  ['model', 'text', 'NOT NULL'],
  ['provider', 'text', 'NOT NULL'],
  ['input', 'bigint', 'NOT NULL'],
  ['cached', 'bigint', 'NOT NULL'],
  ['cache_write', 'bigint', 'NOT NULL'],
  ['output', 'bigint', 'NOT NULL'],
  ['reasoning', 'bigint', 'NOT NULL'],
  ['searches', 'bigint', 'NOT NULL'],
  ['estimated', 'boolean', 'NOT NULL'],
  ['cost', 'bigint', 'NOT NULL'],
  ['price_book', 'text', 'NOT NULL'],
  ['billing', 'text', 'NOT NULL'],
  ['outcome', 'text', 'NOT NULL'],
  ['duration_ms', 'double precision', 'NOT NULL'],
  ['ttfb_ms', 'double precision'],
  ['bytes_in', 'bigint'],
  ['bytes_out', 'bigint'],
  ['input_tokens', 'bigint', 'NOT NULL'],
]

/** Those of later revisions. A release of revision 1 goes on to write rows, without them. */
const COLUMNS_MORE: readonly (readonly [name: string, type: string, more?: string])[] = [
  ['tags', 'jsonb'],
  ['provider_model', 'text', "NOT NULL DEFAULT ''"],
  ['service_tier', 'text', "NOT NULL DEFAULT ''"],
  ['rounds', 'bigint'],
  ['provider_input', 'bigint'],
  ['provider_cached', 'bigint'],
  ['provider_cache_write', 'bigint'],
  ['provider_cache_write_1h', 'bigint'],
  ['provider_output', 'bigint'],
  ['provider_reasoning', 'bigint'],
  ['provider_cost', 'bigint'],
  ['counted_input', 'bigint'],
  ['counted_output', 'bigint'],
  ['price_used', 'text', "NOT NULL DEFAULT ''"],
  ['price_input', 'bigint'],
  ['price_output', 'bigint'],
  ['output_reserved', 'bigint'],
  ['code', 'text', "NOT NULL DEFAULT ''"],
  // Of revision 3.
  ['body_digest', 'text', "NOT NULL DEFAULT ''"],
]
const ALL = [...COLUMNS, ...COLUMNS_MORE]

/** The statements that make the tables; docs/ledger.md has them, too. */
export const DDL = `CREATE TABLE IF NOT EXISTS sluice_ledger (
${ALL.map(([name, type, more]) => `  ${name.padEnd(23)} ${more ? `${type} ${more}` : type}`).join(',\n')}
);
CREATE INDEX IF NOT EXISTS sluice_ledger_organization_time ON sluice_ledger (organization, time);
CREATE TABLE IF NOT EXISTS sluice_ledger_source (
  source       text PRIMARY KEY,
  position     text,
  rows         bigint NOT NULL DEFAULT 0,
  shipped_at   timestamptz
);
CREATE TABLE IF NOT EXISTS sluice_ledger_meta (
  name         text PRIMARY KEY,
  value        text NOT NULL
);
INSERT INTO sluice_ledger_meta VALUES ('version', '${VERSION}'), ('revision', '${REVISION}') ON CONFLICT DO NOTHING;
`

/** The statements that bring tables of an earlier revision up to date; docs/ledger.md has them, too. */
export const UPGRADE = `ALTER TABLE sluice_ledger
${COLUMNS_MORE.map(([name, type, more]) => `  ADD COLUMN IF NOT EXISTS ${name} ${more ? `${type} ${more}` : type}`).join(',\n')};
INSERT INTO sluice_ledger_meta VALUES ('revision', '${REVISION}')
  ON CONFLICT (name) DO UPDATE SET value = excluded.value;
`

const NAMES = ALL.map(([name]) => name).join(', ')
/** What is of another type in the JSON of a row than in the table, and how it becomes that of the table. */
const CONVERTED: Readonly<Record<string, readonly [type: string, sql: string]>> = {
  // In Unix milliseconds.
  time: ['bigint', 'to_timestamp(time / 1000.0)'],
  tags: ['text', "NULLIF(tags, '')::jsonb"],
}
const INSERT = `INSERT INTO sluice_ledger (${NAMES})
SELECT ${ALL.map(([name]) => CONVERTED[name]?.[1] ?? name).join(', ')}
FROM json_to_recordset($1::json) AS row (${ALL.map(([name, type]) => `${name} ${CONVERTED[name]?.[0] ?? type}`).join(', ')})
ON CONFLICT DO NOTHING`

/**
 * A process that stands still in a transaction keeps the others waiting for up to a minute. A server that switched off
 * `synchronous_commit` could lose in a crash what retention then removes at the source.
 */
const BEGIN = `BEGIN;
SET LOCAL lock_timeout = '10s';
SET LOCAL statement_timeout = '60s';
SET LOCAL idle_in_transaction_session_timeout = '60s';
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`

const CONNECT_MS = 10_000
/** A server that hangs does not even keep its own statement_timeout. */
const QUERY_MS = 90_000
const CLOSE_MS = 2000

/** What to type where `pg` is missing. It is a development dependency of Sluice itself, hence both options. */
export const INSTALL = 'npm install --no-save --save-prod --omit=dev pg@8'

/** @throws ShipError when the package is not installed */
export async function loadPg(): Promise<typeof import('pg')> {
  try {
    return (await import('pg')).default as unknown as typeof import('pg')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new ShipError(`a target in PostgreSQL needs the package pg, which is not installed; run: ${INSTALL}`)
  }
}

/**
 * Connects, and makes the tables where they are missing.
 * @param to the URL, which pg reads with all its parameters, such as sslmode
 * @param name the URL without its password
 * @throws ShipError
 */
export async function openPostgres(to: string, name: string): Promise<ShipTarget> {
  const { Client } = await loadPg()
  const client = new Client({
    application_name: 'sluice',
    connectionString: to,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: QUERY_MS,
    keepAlive: true,
  })
  const target = new PostgresTarget(client, name)
  try {
    await target.open()
    return target
  } catch (error) {
    await target.close()
    throw error
  }
}

class PostgresTarget implements ShipTarget {
  readonly #client: Client
  readonly #name: string
  /** The sources that have a row in sluice_ledger_source. */
  readonly #known = new Set<string>()

  constructor(client: Client, name: string) {
    this.#client = client
    this.#name = name
    // The next query fails, too. Without a listener the process would end.
    client.on('error', () => {})
  }

  async open(): Promise<void> {
    await this.#try(async () => {
      await this.#client.connect()
      const { rows: missing } = await this.#client.query(
        `SELECT name FROM unnest(ARRAY['sluice_ledger', 'sluice_ledger_source', 'sluice_ledger_meta']) AS name
         WHERE to_regclass(name) IS NULL`,
      )
      // Two processes that make the same table at once would fail.
      if (missing.length > 0)
        await this.#client.query(`BEGIN; SELECT pg_advisory_xact_lock(hashtext('sluice_ledger')); ${DDL} COMMIT`)
      await this.#check()
    })
  }

  async #check(): Promise<void> {
    const { rows } = await this.#client.query<{ name: string; value: string }>(
      'SELECT name, value FROM sluice_ledger_meta',
    )
    const meta = new Map(rows.map(({ name, value }) => [name, value]))
    const version = meta.get('version')
    if (Number(version) !== VERSION)
      throw new ShipError(
        version === undefined
          ? `sluice_ledger_meta in ${this.#name} has no version; make the tables as docs/ledger.md has them`
          : `the tables in ${this.#name} have version ${version}, and this release of Sluice writes version ` +
              `${VERSION}; use the release that made them, or a later one`,
      )
    if (Number(meta.get('revision') ?? 1) < REVISION) await this.#upgrade()
    const unique = await this.#client.query(
      `SELECT 1 FROM pg_index WHERE indrelid = to_regclass('sluice_ledger') AND indisunique
         AND indpred IS NULL AND indexprs IS NULL
         AND (SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute
              WHERE attrelid = indrelid AND attnum = ANY (indkey))
           IN (ARRAY['request_id'], ARRAY['request_id', 'time'])`,
    )
    if (unique.rows.length === 0)
      throw new ShipError(
        `sluice_ledger in ${this.#name} lets a request_id stand twice; add: ALTER TABLE sluice_ledger ADD PRIMARY KEY ` +
          '(request_id), or (request_id, time) where the table is partitioned by time',
      )
  }

  /** Adds columns. Several processes may do it at once. */
  async #upgrade(): Promise<void> {
    try {
      await this.#client.query(`BEGIN; SELECT pg_advisory_xact_lock(hashtext('sluice_ledger')); ${UPGRADE} COMMIT`)
    } catch (error) {
      await this.#client.query('ROLLBACK').catch(() => {})
      if ((error as { code?: string }).code !== '42501') throw error
      throw new ShipError(
        `the tables in ${this.#name} lack columns of this release, and its user may not add them; run the statements ` +
          `of docs/ledger.md ("Columns that a release adds") as their owner`,
        { cause: error },
      )
    }
  }

  batch(source: string, next: (after: string | null) => Promise<Batch>): Promise<Shipped> {
    return this.#try(async () => {
      const client = this.#client
      if (!this.#known.has(source)) {
        await client.query('INSERT INTO sluice_ledger_source (source) VALUES ($1) ON CONFLICT DO NOTHING', [source])
        this.#known.add(source)
      }
      await client.query(BEGIN)
      const { rows: found } = await client.query<{ position: string | null }>(
        'SELECT position FROM sluice_ledger_source WHERE source = $1 FOR UPDATE',
        [source],
      )
      if (!found[0]) throw new ShipError(`the row of ${source} in sluice_ledger_source of ${this.#name} was removed`)
      const { rows, position, again, last } = await next(found[0].position)
      let added = 0
      if (rows.length > 0 || again) {
        const inserted = await client.query(INSERT, [`[${rows.map(row => row.json).join()}]`])
        added = inserted.rowCount ?? 0
        await client.query(
          'UPDATE sluice_ledger_source SET position = $2, rows = rows + $3, shipped_at = now() WHERE source = $1',
          [source, position, added],
        )
      }
      await client.query('COMMIT')
      return { rows: added, position, last }
    })
  }

  async close(): Promise<void> {
    const { stream } = (this.#client as unknown as { connection: { stream: Socket } }).connection
    // A server that hangs does not answer the good-bye.
    const timer = setTimeout(() => stream.destroy(), CLOSE_MS)
    await this.#client.end().catch(() => stream.destroy())
    clearTimeout(timer)
  }

  async #try<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw told(error as Error, this.#name)
    }
  }
}

const RIGHTS =
  'grant INSERT on sluice_ledger, SELECT, INSERT and UPDATE on sluice_ledger_source and SELECT on sluice_ledger_meta; ' +
  'tables that are missing are made with CREATE on the schema, or by hand (docs/ledger.md has the statements)'
/** By the SQLSTATE or error code: what to do. */
const CURES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'check host and port, and that the server runs',
  ENOTFOUND: 'check the host name',
  EAI_AGAIN: 'check the host name',
  ENOENT: 'check the folder of the socket, and that the server runs',
  '28P01': 'check user and password',
  '28000': 'check the user, and pg_hba.conf of the server',
  '3D000': 'create it, or name another one',
  '3F000': 'create the schema, or change search_path',
  '42501': RIGHTS,
  '42P01': RIGHTS,
  '42703': 'add the column as docs/ledger.md has it',
  '42804': 'give the column the type that docs/ledger.md has',
  '25006': 'name the primary, not a standby (target_session_attrs is not enough behind a pooler)',
  '53100': 'free space on its disk',
  '53200': 'the server is out of memory',
  '53300': 'raise max_connections, or close other connections',
  '55P03': 'another process ships this ledger now, or stands still; it is cut off after a minute',
  '57P03': 'the server starts or stops; try again',
}

/** An error of the server or the connection, with its cure. Other errors stay as they are. */
function told(error: Error, name: string): Error {
  if (error instanceof ShipError || error.name === 'StoreUnavailable') return error
  const { code = '', message, errors } = error as NodeJS.ErrnoException & { errors?: Error[] }
  // A name with several addresses fails with an error for each.
  const reason = message || errors?.map(each => each.message).join('; ') || code
  const cure = CURES[code]
  return new ShipError(`${name}: ${reason}${cure === undefined ? '' : `; ${cure}`}`, { cause: error })
}
