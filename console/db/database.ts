/** Opens the console's database: SQLite for one console, PostgreSQL for any number. */
import { mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { Kysely, PostgresDialect, type SqliteDatabase, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import pg from 'pg'
import { MIGRATIONS } from './migrations.ts'
import type { Database, Tables } from './tables.ts'

/**
 * @param url `sqlite:PATH`, `sqlite::memory:` or `postgres://…`
 * @param migrations those of an earlier release, in tests
 * @throws Error with the cure
 */
export async function openDatabase(url: string, migrations = MIGRATIONS): Promise<Database> {
  const db = new Kysely<Tables>({ dialect: url.startsWith('sqlite:') ? sqlite(url.slice(7)) : postgres(url) })
  try {
    await migrate(db, migrations)
    return db
  } catch (error) {
    await db.destroy().catch(() => {})
    throw error
  }
}

async function migrate(db: Database, migrations: typeof MIGRATIONS): Promise<void> {
  const { error, results = [] } = await new Migrator({
    db,
    provider: { getMigrations: async () => migrations },
    migrationTableName: 'console_migration',
    migrationLockTableName: 'console_migration_lock',
  }).migrateToLatest()
  if (error === undefined) return
  const { message } = error as Error
  const failed = results.find(({ status }) => status === 'Error')
  if (/previously executed migration/.test(message))
    throw new Error('the database was made by a later release of the console; start that release, or restore a backup')
  throw new Error(`the database cannot be used${failed ? ` (${failed.migrationName})` : ''}: ${message}`)
}

function sqlite(file: string): SqliteDialect {
  if (file !== ':memory:') mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  const db = new DatabaseSync(file)
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 5000')
  // What kysely expects is the interface of better-sqlite3.
  const database: SqliteDatabase = {
    close: () => db.close(),
    prepare(sql) {
      const statement = db.prepare(sql)
      return {
        reader: statement.columns().length > 0,
        all: parameters => statement.all(...(parameters as any[])),
        run: parameters => statement.run(...(parameters as any[])),
        iterate: parameters => statement.iterate(...(parameters as any[])) as IterableIterator<unknown>,
      }
    },
  }
  return new SqliteDialect({ database })
}

const BIGINT = 20

function postgres(connectionString: string): PostgresDialect {
  const pool = new pg.Pool({
    connectionString,
    max: 10,
    connectionTimeoutMillis: 5000,
    // No number of the console's is above 2^53.
    types: {
      getTypeParser: (type: number, format?: any) =>
        type === BIGINT ? Number : (pg.types.getTypeParser as any)(type, format),
    } as pg.CustomTypesConfig,
  })
  // A server that goes away ends idle connections; the next query makes another.
  pool.on('error', () => {})
  return new PostgresDialect({ pool })
}
