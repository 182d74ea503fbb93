/** A database file as one end of a move. */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import { periodIndex, periodStart, userOfCell } from '../../core/canon/limits.ts'
import type { AuditNote } from '../../core/ports/accounts.ts'
import type { UsageSum } from '../../core/ports/store.ts'
import { columnOf, LEDGER_COLUMNS, TEXT_COLUMNS } from '../columns.ts'
import { type MoveMark, markOf, SET_ASIDE } from '../format.ts'
import { acquire } from '../journal.ts'
import { markBytes } from '../marks.ts'
import { SqliteAccounts } from '../sqlite/accounts.ts'
import { toRow } from '../sqlite/ledger.ts'
import { SqliteNotices } from '../sqlite/notices.ts'
import { MIN_READER, MOVE, makePrivate, prepare, STEPS } from '../sqlite/schema.ts'
import { SUM_SLICE, TAGGED_COLUMNS, toSum, USAGE_COLUMNS } from '../sqlite/usage.ts'
import { countsOf, HOUR_MS, textsOf } from '../usage.ts'
import { levelPlace, periodOfUser } from './cells.ts'
import type { Balance, Carried, Cells, Drop, End, KeptRecord, KeptReply, Kind, TaggedSum } from './end.ts'

/** A batch has at most this many rows, and about this many bytes. */
const ROWS = 500
const BYTES = 16 << 20
/** Accounts of one page. */
const PAGE = 100
/** The triggers of the ledger leave out rows from before this time; what is filled brings its own sums. */
const NEVER = Number.MAX_SAFE_INTEGER
/**
 * A level that comes from Redis is kept for this long behind its time, since Redis does not say when it is full again.
 * No bucket that can be refilled at all takes longer.
 */
const LEVEL_KEEP_MS = 31 * 86_400_000

/**
 * In a backup alone: between which times (Unix ms) the account, limits and balance of each organization were read; with
 * '' the whole backup.
 */
export const COPIED_TABLE =
  'CREATE TABLE IF NOT EXISTS copied (organization TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL) STRICT'

/** The file of a `sqlite:` URL. */
export const fileOf = (url: string): string => url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')

/**
 * Opens a database file, which stays locked until it is closed.
 * @param make makes it when it is not there
 * @throws StoreUnavailable when it is not there, or a gateway uses it
 */
export function openSqliteEnd(url: string, make: boolean): SqliteEnd {
  const file = fileOf(url)
  if (file === ':memory:') throw new StoreUnavailable('a store in memory cannot be moved; name a file')
  if (!make && !fs.existsSync(file)) throw new StoreUnavailable(`there is no database ${path.resolve(file)}`)
  fs.mkdirSync(path.dirname(path.resolve(file)), { recursive: true, mode: 0o700 })
  const lock = acquire(`${file}.lock`)
  if (lock === null) throw new StoreUnavailable(`a gateway uses ${file}; stop it first`)
  try {
    return new SqliteEnd(file, lock)
  } catch (error) {
    lock.close()
    if (error instanceof StoreUnavailable) throw error
    if ((error as Error).message.includes('database is locked'))
      throw new StoreUnavailable(`a command uses ${file}; wait until it has ended`, error)
    throw new StoreUnavailable(`cannot open ${file}: ${(error as Error).message}`, error)
  }
}

export class SqliteEnd implements End {
  readonly name: string
  readonly #file: string
  readonly #lock: DatabaseSync
  #db: DatabaseSync
  #statements = new Map<string, StatementSync>()

  constructor(file: string, lock: DatabaseSync) {
    this.name = `sqlite:${path.resolve(file)}`
    this.#file = file
    this.#lock = lock
    this.#db = this.#open()
  }

  /** A database that is set aside is opened as it is: a release that can go on with its move has brought it up to date. */
  #open(): DatabaseSync {
    makePrivate(this.#file)
    const db = new DatabaseSync(this.#file)
    try {
      // Commands have no lock, such as a long `sluice org import`. They get none of the database, and it gets none of theirs.
      db.exec('PRAGMA locking_mode = EXCLUSIVE')
      const aside = db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get() && metaOf(db, MOVE)
      if (!aside) prepare(db, this.#file)
      const { user_version: version } = db.prepare('PRAGMA user_version').get() as { user_version: number }
      if (version > markOf(STEPS).version)
        throw new StoreUnavailable(`a later release has written ${this.#file}; move it with that release`)
      db.exec('PRAGMA busy_timeout = 5000; PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 16384')
      return db
    } catch (error) {
      db.close()
      throw error
    }
  }

  async mark(): Promise<MoveMark | null> {
    const found = metaOf(this.#db, MOVE)
    return found === undefined ? null : (JSON.parse(found) as MoveMark)
  }

  async setMark(mark: MoveMark | null): Promise<void> {
    this.#transaction(() => {
      const set = this.#sql('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)')
      set.run(MIN_READER, Buffer.from(String(mark ? SET_ASIDE : markOf(STEPS).minReader)))
      if (mark) set.run(MOVE, Buffer.from(JSON.stringify(mark)))
      else this.#sql('DELETE FROM meta WHERE name = ?').run(MOVE)
    })
    // The mark is on the disk before the other store knows.
    this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  }

  async content(): Promise<string | null> {
    for (const table of [
      'organizations',
      'gone',
      'ledger',
      'usage',
      'spend',
      'levels',
      'idempotency',
      'records',
      'audit',
      'credits',
      'billed',
      'tagged',
      'notices',
    ])
      if (this.#sql(`SELECT 1 FROM ${table} LIMIT 1`).get()) return `${this.#file} has rows in its table ${table}`
    return null
  }

  async clear(): Promise<void> {
    const mark = await this.mark()
    this.#close()
    for (const end of ['-wal', '-shm', '']) fs.rmSync(this.#file + end, { force: true })
    this.#db = this.#open()
    if (mark) await this.setMark(mark)
  }

  async secret(): Promise<Uint8Array | null> {
    return (
      (this.#sql("SELECT value FROM meta WHERE name = 'secret'").get()?.['value'] as Uint8Array | undefined) ?? null
    )
  }

  async begin(secret: Uint8Array | null): Promise<void> {
    if (secret) this.#sql("INSERT OR REPLACE INTO meta (name, value) VALUES ('secret', ?)").run(secret)
    this.#sql('UPDATE summed SET since = ?').run(NEVER)
    // A gateway that has used it while it was empty has rolled up the hours until then; those that come are not.
    this.#db.exec("UPDATE rolled SET hour = 0, organization = ''; DELETE FROM usage_days")
  }

  /** Nobody else can change it. */
  async state(): Promise<string> {
    return ''
  }

  async finish(): Promise<void> {
    this.#sql('UPDATE summed SET since = 0').run()
    this.#db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  }

  /** Sums rows from a time on (Unix ms) whose sums were not carried; those of tags are there with the rows. */
  sumFrom(time: number): void {
    this.#transaction(() => this.#sql(SUM_SLICE).run(time, NEVER))
  }

  /** Notes that a part of these organizations was read between these times. */
  noteCopied(organizations: readonly string[], { first, last }: { first: number; last: number }): void {
    this.#db.exec(COPIED_TABLE)
    this.#transaction(() => {
      const note = this.#sql(
        `INSERT INTO copied (organization, first, last) VALUES (?, ?, ?) ON CONFLICT (organization)
           DO UPDATE SET first = min(first, excluded.first), last = max(last, excluded.last)`,
      )
      for (const organization of organizations) note.run(organization, first, last)
    })
  }

  async *read<K extends Kind>(kind: K, now: number, drop: Drop): AsyncGenerator<Carried[K][]> {
    try {
      yield* this.#batches(kind, now, drop)
    } catch (error) {
      if (error instanceof StoreUnavailable) throw error
      throw new StoreUnavailable(`cannot read ${this.#file}: ${(error as Error).message}`, error)
    }
  }

  *#batches<K extends Kind>(kind: K, now: number, drop: Drop): Generator<Carried[K][]> {
    const items = {
      organizations: () => this.#organizations(),
      gone: () => this.#rows('SELECT organization, key FROM gone ORDER BY organization, key', row => row),
      audit: () => this.#rows('SELECT organization, entry FROM audit ORDER BY id', row => row),
      cells: () => this.#cells(now, drop),
      sums: () => this.#sums(),
      tagged: () => this.#rows('SELECT * FROM tagged', toTagged),
      ledger: () => this.#rows('SELECT rowid, * FROM ledger ORDER BY rowid', toRow),
      balances: () => this.#balances(),
      notices: () => this.#rows('SELECT notice FROM notices ORDER BY id', row => JSON.parse(row['notice'] as string)),
      idempotency: () => this.#rows('SELECT * FROM idempotency ORDER BY expires, rowid', toReply),
      records: () => this.#rows('SELECT * FROM records ORDER BY expires, rowid', toRecord),
    }[kind]() as Iterable<Carried[K]>
    let batch: Carried[K][] = []
    let bytes = 0
    for (const item of items) {
      const { expires, value, reply } = item as Partial<KeptRecord & KeptReply>
      if (expires !== undefined && expires <= now) continue
      batch.push(item)
      bytes += value?.length ?? reply?.body.length ?? 0
      if (batch.length < ROWS && bytes < BYTES) continue
      yield batch
      batch = []
      bytes = 0
    }
    if (batch.length) yield batch
  }

  async write<K extends Kind>(kind: K, items: readonly Carried[K][]): Promise<Carried[K][]> {
    const writeOne = {
      organizations: this.#organization,
      gone: this.#gone,
      audit: this.#note,
      cells: this.#levels,
      sums: this.#sum,
      tagged: this.#tagged,
      ledger: this.#row,
      balances: this.#balance,
      notices: this.#notice,
      idempotency: this.#reply,
      records: this.#record,
    }[kind] as (item: Carried[K]) => boolean
    const fresh: Carried[K][] = []
    this.#transaction(() => {
      for (const item of items) if (writeOne(item)) fresh.push(item)
    })
    return fresh
  }

  async close(): Promise<void> {
    this.#close()
    this.#lock.close()
  }

  #close(): void {
    this.#statements.clear()
    this.#db.close()
  }

  // ---- reading ------------------------------------------------------------------------------------------------------

  *#rows<T>(text: string, to: (row: Record<string, unknown>) => T): Generator<T> {
    // Not from `#statements`: one statement is not read twice at a time.
    for (const row of this.#db.prepare(text).iterate()) yield to(row)
  }

  *#organizations(): Generator<Carried['organizations']> {
    const accounts = new SqliteAccounts(this.#db)
    for (let after = ''; ; ) {
      const page = accounts.page(after, PAGE)
      yield* page
      if (page.length < PAGE) return
      after = page.at(-1)!.id
    }
  }

  *#cells(now: number, drop: Drop): Generator<Cells> {
    const next = this.#db.prepare(
      `SELECT min(id) AS id FROM (SELECT min(organization) AS id FROM spend WHERE organization > ?1
         UNION ALL SELECT min(organization) FROM levels WHERE organization > ?1)`,
    )
    const spend = this.#db.prepare(
      'SELECT cell, period, number, amount FROM spend WHERE organization = ? ORDER BY cell, period, number',
    )
    // Those of the end users of a key stand together.
    const levels = this.#db.prepare(
      'SELECT cell, used, part, at, expires FROM levels WHERE organization = ? ORDER BY cell',
    )
    for (let organization = ''; ; ) {
      const found = next.get(organization)!['id'] as string | null
      if (found === null) return
      organization = found
      const present = new Map<string, Cells['spend'][number]>()
      for (const row of spend.all(organization) as unknown as Cells['spend']) {
        // No limit reads a period that is over. Days of up to 40 days ago stand in the table until a sweep deletes them.
        const over = row.number !== periodIndex(row.period, now)
        if (over) drop('spend of days and months that are over')
        else present.set(`${row.cell} ${row.period}`, { ...row })
      }
      const alive: Cells['levels'] = []
      const users = new Map<string, Cells>()
      for (const { expires, ...level } of levels.iterate(organization) as Iterable<
        Cells['levels'][number] & { expires: number }
      >) {
        if (expires <= now) continue
        const { cell, used: amount, part, at } = level
        const key = userOfCell(cell)?.key
        if (key !== undefined && !users.has(key)) {
          yield* users.values()
          users.clear()
          users.set(key, { organization, spend: [], levels: [] })
        }
        const period = periodOfUser(cell)
        if (period) {
          if (at === periodIndex(period, now))
            users.get(key!)!.spend.push({ cell, period, number: at, amount, at: part })
          else drop('spend of days and months that are over')
        } else if (levelPlace(cell)) (users.get(key!)?.levels ?? alive).push(level)
        else drop('levels of limits that this release does not know')
      }
      yield* users.values()
      if (present.size || alive.length) yield { organization, spend: [...present.values()], levels: alive }
    }
  }

  *#balances(): Generator<Balance> {
    const accounts = new SqliteAccounts(this.#db)
    const all = this.#db.prepare('SELECT organization FROM credits UNION SELECT organization FROM billed')
    for (const row of all.iterate()) {
      const organization = row['organization'] as string
      yield { organization, billed: accounts.billed(organization), credits: accounts.credits(organization) }
    }
  }

  *#sums(): Generator<UsageSum> {
    // Rows from before there were sums are summed first, as a gateway does it bit by bit.
    const { since } = this.#sql('SELECT since FROM summed').get() as { since: number }
    if (since > 0 && since !== NEVER)
      this.#transaction(() => {
        this.#sql(SUM_SLICE).run(Number.MIN_SAFE_INTEGER, since)
        this.#sql('UPDATE summed SET since = 0').run()
      })
    yield* this.#rows('SELECT * FROM usage', toSum)
  }

  // ---- writing: each says whether the thing was not there yet ------------------------------------------------------

  readonly #organization = ({ id, version, settings, about, leaves, keys }: Carried['organizations']): boolean => {
    const insert = this.#sql(
      'INSERT OR IGNORE INTO organizations (id, version, settings, about, leaves) VALUES (?, ?, ?, ?, ?)',
    )
    if (insert.run(id, version, settings, about ?? null, leaves ?? null).changes === 0) return false
    const add = this.#sql('INSERT INTO keys (sha256, organization, id, settings, about) VALUES (?, ?, ?, ?, ?)')
    for (const key of keys) add.run(Buffer.from(key.sha256, 'hex'), id, key.id, key.settings, key.about ?? null)
    return true
  }

  /** Without a version: whoever reads the new store knows nothing of the old one. */
  readonly #gone = ({ organization, key }: Carried['gone']): boolean =>
    this.#sql('INSERT OR IGNORE INTO gone (organization, key) VALUES (?, ?)').run(organization, key).changes === 1

  readonly #note = ({ organization, entry }: Carried['audit']): boolean => {
    const insert = this.#sql('INSERT INTO audit (time, organization, entry) VALUES (?, ?, ?)')
    insert.run(Math.floor((JSON.parse(entry) as AuditNote).time), organization, entry)
    return true
  }

  readonly #levels = ({ organization, spend, levels }: Cells): boolean => {
    let changes = 0
    const charge = this.#sql(
      'INSERT OR IGNORE INTO spend (organization, cell, period, number, amount) VALUES (?, ?, ?, ?, ?)',
    )
    const set = this.#sql(
      'INSERT OR IGNORE INTO levels (organization, cell, used, part, at, expires) VALUES (?, ?, ?, ?, ?, ?)',
    )
    for (const { cell, period, number, amount, at } of spend) {
      const end = periodStart(period, number + 1)
      changes += Number(
        periodOfUser(cell)
          ? set.run(organization, cell, amount, at ?? 0, number, end).changes
          : charge.run(organization, cell, period, number, amount).changes,
      )
    }
    const now = Date.now()
    for (const { cell, used, part, at } of levels)
      changes += Number(set.run(organization, cell, used, part, at, Math.max(at, now) + LEVEL_KEEP_MS).changes)
    return changes > 0
  }

  readonly #sum = (sum: UsageSum): boolean => {
    const values = [sum.time / HOUR_MS, ...textsOf(sum), ...countsOf(sum)]
    const insert = this.#sql(
      `INSERT OR IGNORE INTO usage (${USAGE_COLUMNS}) VALUES (?${', ?'.repeat(values.length - 1)})`,
    )
    return insert.run(...values).changes > 0
  }

  readonly #tagged = (sum: TaggedSum): boolean => {
    const { time, organization, tag, value, key_id, model } = sum
    const values = [time / HOUR_MS, organization, tag, value, key_id, model, ...countsOf(sum)]
    this.#sql(`INSERT OR REPLACE INTO tagged (${TAGGED_COLUMNS}) VALUES (?${', ?'.repeat(values.length - 1)})`).run(
      ...values,
    )
    return true
  }

  readonly #row = (row: Carried['ledger']): boolean => {
    const values = LEDGER_COLUMNS.map(name => {
      const value = columnOf(row, name) ?? (TEXT_COLUMNS.has(name) ? '' : null)
      return typeof value === 'boolean' ? Number(value) : value
    })
    const insert = this.#sql(
      `INSERT OR IGNORE INTO ledger (${LEDGER_COLUMNS.join()}, charged) VALUES (${'?,'.repeat(LEDGER_COLUMNS.length)}1)`,
    )
    return insert.run(...values).changes > 0
  }

  readonly #balance = ({ organization, billed, credits }: Balance): boolean => {
    const insert = this.#sql('INSERT INTO credits (organization, id, amount, time, by, note) VALUES (?, ?, ?, ?, ?, ?)')
    for (const { id, amount, time, by, note } of credits)
      insert.run(organization, id, amount, Math.floor(time), by, note)
    // The rows that were carried are in it already, and those that retention has removed are not.
    this.#sql('INSERT OR REPLACE INTO billed (organization, amount) VALUES (?, ?)').run(organization, billed)
    return true
  }

  readonly #notice = (notice: Carried['notices']): boolean => new SqliteNotices(this.#db).keep(notice)

  readonly #reply = ({ organization, key, fingerprint, requestId, reply, expires }: KeptReply): boolean => {
    const insert = this.#sql(
      `INSERT OR IGNORE INTO idempotency
         (organization, key, fingerprint, request_id, status, headers, body, whole, asked, size, expires)
       SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
       WHERE NOT EXISTS (SELECT 1 FROM idempotency WHERE organization = ?1 AND key = ?2)`,
    )
    const kept = reply
      ? [reply.status, reply.headers, reply.body, Number(reply.whole), reply.asked]
      : [null, null, null, null, null]
    const size = markBytes(key) + (reply ? reply.body.length + reply.headers.length : 0)
    return insert.run(organization, key, fingerprint, requestId, ...kept, size, expires).changes > 0
  }

  readonly #record = ({ organization, kind, id, value, expires }: KeptRecord): boolean => {
    const insert = this.#sql(
      `INSERT OR IGNORE INTO records (organization, kind, id, value, size, expires) SELECT ?1, ?2, ?3, ?4, ?5, ?6
       WHERE NOT EXISTS (SELECT 1 FROM records WHERE organization = ?1 AND kind = ?2 AND id = ?3)`,
    )
    return insert.run(organization, kind, id, value, value.length, expires).changes > 0
  }

  #transaction(work: () => void): void {
    this.#db.exec('BEGIN IMMEDIATE')
    try {
      work()
      this.#db.exec('COMMIT')
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK')
      throw new StoreUnavailable(`cannot write ${this.#file}: ${(error as Error).message}`, error)
    }
  }

  #sql(text: string): StatementSync {
    let statement = this.#statements.get(text)
    if (!statement) this.#statements.set(text, (statement = this.#db.prepare(text)))
    return statement
  }
}

function toTagged({ hour, cache_write, ...same }: Record<string, unknown>): TaggedSum {
  return { ...same, time: (hour as number) * HOUR_MS, cacheWrite: cache_write } as unknown as TaggedSum
}

function metaOf(db: DatabaseSync, name: string): string | undefined {
  return db.prepare('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?').get(name)?.['value'] as
    | string
    | undefined
}

function toReply(row: Record<string, unknown>): KeptReply {
  const { organization, key, fingerprint, request_id, status, headers, body, whole, asked, expires } = row
  const reply = status === null ? null : { status, headers, body, whole: whole === 1, asked: asked ?? null }
  return { organization, key, fingerprint, requestId: request_id, reply, expires } as KeptReply
}

function toRecord({ organization, kind, id, value, expires }: Record<string, unknown>): KeptRecord {
  return { organization, kind, id, value, expires } as KeptRecord
}
