/**
 * Applies groups of writes to the tables, one transaction for each group. It runs in the writer's thread, or on the
 * main thread for an in-memory database.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { periodIndex } from '../../core/canon/limits.ts'
import type { AuditBounds } from '../../core/ports/accounts.ts'
import type { KeptStats, Retained } from '../../core/ports/store.ts'
import type { ShipRetention } from '../index.ts'
import type { ChargeRecord, Entry, LostRow } from '../ledger.ts'
import { type LevelRow, recoverLevels, type SettledRecord } from '../limits/recovery.ts'
import { MARK_BASE, MARK_BYTES_PER_CHARACTER, markBytes } from '../marks.ts'
import { NOTICE_KEEP_MS } from '../notices.ts'
import { ROW_COLUMNS, type RowValue, type RowValues } from '../rows.ts'
import { HOUR_MS, startOfMonth } from '../usage.ts'
import { POSITION, positionOf } from './levels.ts'
import { ROLL_SLICE, ROLL_TO, SUM_SLICE, USAGE_KEY } from './usage.ts'

/** The record of a finished exchange with an idempotency key. */
export interface IdempotencyRow {
  organization: string
  key: string
  fingerprint: string
  requestId: string
  /**
   * The reply; `headers` is JSON, `asked` as in `IdempotencyRecord`, or null. Null: the exchange was executed, but its
   * reply is not kept.
   */
  reply: { status: number; headers: string; body: Uint8Array; whole: boolean; asked: string | null } | null
  /** Unix ms. */
  expires: number
}

/** The tables of records: those of retained responses, and values of plugins. */
export type RecordTable = Exclude<Retained, 'idempotency'>

/** One write of the store. `expires` and `now` are Unix ms. */
export type Write =
  /** `entries`: what `packEntries` made. */
  | { op: 'ledger'; entries: string }
  | { op: 'idempotency'; row: IdempotencyRow }
  | RecordWrite
  | { op: 'forget'; table: RecordTable; organization: string; kind: string; id: string }
  | { op: 'touch'; table: RecordTable; organization: string; kind: string; ids: readonly string[]; expires: number }
  /** `levels`: JSON of `LevelRow[]`. `position`: of the table from now on; null: as it was. */
  | { op: 'levels'; levels: string; position: number | null }
  /**
   * What a journal has that was left behind. `entries`: as of `ledger`. `levels`: JSON of `SettledRecord[]`. `lost`: those
   * of the entries that have the outcome `lost`, with the request id.
   */
  | { op: 'recover'; entries: string; levels: string; lost: readonly LostRow[] }
  | { op: 'sweep'; now: number }
  /** One slice of what an organization has beside its account and its ledger rows. */
  | { op: 'remove'; organization: string }
  /** Changes one small row: whether anything can be written. */
  | { op: 'probe'; now: number }

interface RecordWrite {
  op: 'record'
  table: RecordTable
  organization: string
  kind: string
  id: string
  value: Uint8Array
  expires: number
}

/**
 * Makes one JSON array of entries: rows, and charges that were settled apart from their row. Sending one string to the
 * thread costs one copy; cloning objects costs more than writing the rows. Parsing one long text is faster than parsing
 * many short ones.
 */
export function packEntries(entries: readonly Entry[]): string {
  return '[' + entries.map(({ json }) => json).join() + ']'
}

export interface Caps {
  /** All idempotency replies together take at most this many bytes. What is evicted becomes "not kept". */
  idempotencyBytes: number
  /** All retained records together take at most this many bytes. What is evicted is deleted. */
  recordBytes: number
  /** All values of plugins together take at most this many bytes. What is evicted is deleted. */
  valueBytes: number
  /** The part of each that one organization may have: above 0, at most 1. */
  share: number
  /** How long ledger rows are kept, ms. Null: for ever. */
  ledgerKeep: number | null
  /** Which rows are kept for longer, because they were not shipped. Null or absent: none. */
  ship?: ShipRetention | null
  /** Undefined: the audit is kept whole. */
  audit?: AuditBounds
}

/** The row of `meta` with the position of a target: its rowid, a space, its request id. */
export const shippedName = (target: string): string => `shipped ${target}`

/** The rowid of a position; 0 for none. */
export const rowidOf = (position: string | null): number => (position === null ? 0 : Number.parseInt(position, 10))

/** Up to where sums are rolled up: an hour and, within it, an organization. */
interface Place {
  hour: number
  organization: string
}

/** The charges of one transaction to one spend cell in one period. */
interface CellSum {
  readonly period: string
  readonly index: number
  amount: number
}

/**
 * One INSERT has at most this many rows. Several are faster, because each call of SQLite costs as much as half a row.
 */
const TOGETHER = 8
const COLUMNS = ROW_COLUMNS.length
/** INSERT statements, by the number of rows that they insert. */
const INSERTS = Array.from(
  { length: TOGETHER + 1 },
  (_, rows) =>
    `INSERT OR IGNORE INTO ledger (${ROW_COLUMNS.join()}, charged) VALUES ` +
    new Array(rows).fill(`(${'?,'.repeat(COLUMNS)}?)`).join(),
)

/** One of several rows of an INSERT is already in the table. */
class Repeated extends Error {}

/**
 * One slice of a sweep deletes at most this many rows from one table, so that no other write waits long for it. A slice
 * that was full is followed by the next.
 */
const SWEEP_ROWS = 500
/** One slice of a sweep sums at most this many rows that have no sums yet, which takes some milliseconds. */
const SUM_ROWS = 2000
/** Hours are rolled up into days when this many have begun after them: most rows are booked by then. */
const ROLLED_AFTER = 1
/** One write evicts at most this many rows. The next writes and sweeps evict what is left. */
const EVICTED_ROWS = 500
/**
 * Spend is deleted this long after its period began. Past periods are not needed; the margin allows for wrong clocks.
 */
const SPEND_KEEP_MS = 40 * 86_400_000

const RETAINED: readonly Retained[] = ['idempotency', 'records', 'plugin_values']

export class Tables {
  #db: DatabaseSync
  #caps: Caps
  #statements = new Map<string, StatementSync>()
  /** How many rows have been evicted since the start. */
  #evicted: Record<Retained, { share: number; total: number }> = {
    records: { share: 0, total: 0 },
    idempotency: { share: 0, total: 0 },
    plugin_values: { share: 0, total: 0 },
  }
  /** A slice of a sweep or of a removal was full. */
  #left = false
  /** What the running transaction has charged so far, by organization and cell. */
  readonly #sums = new Map<string, Map<string, CellSum>>()

  constructor(db: DatabaseSync, caps: Caps) {
    this.#db = db
    this.#caps = caps
  }

  /** Bytes and evictions, for metrics. */
  kept(): KeptStats {
    const of = (kind: Retained) => ({ bytes: this.#bytes(kind, ''), evicted: { ...this.#evicted[kind] } })
    return { records: of('records'), idempotency: of('idempotency'), plugin_values: of('plugin_values') }
  }

  /** Applies all writes, or none when it throws. @returns whether a slice among them has left rows */
  apply(writes: readonly Write[]): boolean {
    this.#left = false
    try {
      this.#transaction(writes, TOGETHER)
    } catch (error) {
      if (!(error instanceof Repeated)) throw error
      this.#transaction(writes, 1)
    }
    return this.#left
  }

  #transaction(writes: readonly Write[], together: number): void {
    this.#db.exec('BEGIN IMMEDIATE')
    const before = structuredClone(this.#evicted)
    try {
      for (const write of writes) this.#one(write, together)
      this.#bookSums()
      this.#db.exec('COMMIT')
      // With the last slice of each sweep, a checkpoint makes all commits so far safe against a power cut.
      if (!this.#left && writes.some(write => write.op === 'sweep')) this.#db.exec('PRAGMA wal_checkpoint(PASSIVE)')
    } catch (error) {
      this.#evicted = before
      this.#sums.clear()
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK')
      throw error
    }
  }

  #one(write: Write, together: number): void {
    switch (write.op) {
      case 'ledger':
        this.#ledger(JSON.parse(write.entries) as (RowValues | ChargeRecord)[], together)
        return
      case 'idempotency':
        this.#idempotency(write.row)
        return
      case 'record':
        this.#record(write)
        return
      case 'forget':
        this.#forget(write)
        return
      case 'touch': {
        const touch = this.#sql(
          `UPDATE ${write.table} SET expires = max(expires, ?) WHERE organization = ? AND kind = ? AND id = ?`,
        )
        for (const id of write.ids) touch.run(write.expires, write.organization, write.kind, id)
        return
      }
      case 'levels':
        this.#levels(JSON.parse(write.levels) as LevelRow[], write.position)
        return
      case 'recover':
        this.#recover(write, together)
        return
      case 'sweep':
        this.#sweep(write.now)
        return
      case 'remove':
        this.#remove(write.organization)
        return
      case 'probe':
        this.#sql("INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', ?)").run(Buffer.from(String(write.now)))
        return
    }
  }

  #ledger(entries: readonly (RowValues | ChargeRecord)[], together: number): void {
    const rows: RowValues[] = []
    for (const entry of entries) {
      if (Array.isArray(entry)) {
        rows.push(entry)
        if (rows.length === together) this.#insert(rows)
      } else {
        this.#insert(rows)
        this.#charge(entry)
      }
    }
    this.#insert(rows)
  }

  /** Inserts the rows, adds their charges to the sums, and empties the array. */
  #insert(rows: RowValues[]): void {
    if (rows.length === 0) return
    const values = new Array<RowValue>(rows.length * (COLUMNS + 1))
    let at = 0
    for (const row of rows) {
      for (let i = 0; i < COLUMNS; i++) values[at++] = row[i]!
      values[at++] = row.length > COLUMNS ? 1 : 0
    }
    const { changes } = this.#sql(INSERTS[rows.length]!).run(...values)
    // A row that is already in the table must not be charged again. SQLite does not say which of several rows it was.
    if (changes !== rows.length && rows.length > 1) throw new Repeated()
    if (changes === rows.length) for (const row of rows) this.#book(row)
    rows.length = 0
  }

  #book(row: RowValues): void {
    for (let i = COLUMNS; i < row.length; i += 4)
      this.#add(row[2], row[i] as string, row[i + 1] as string, row[i + 2] as number, row[i + 3] as number)
  }

  /** Books charges that were settled apart from their row: once, and only when the row exists. */
  #charge({ request_id, organization, charges }: ChargeRecord): void {
    const { changes } = this.#sql('UPDATE ledger SET charged = 1 WHERE request_id = ? AND charged = 0').run(request_id)
    if (changes === 1) for (const charge of charges) this.#add(organization, ...charge)
  }

  #add(organization: string, cell: string, period: string, index: number, amount: number): void {
    let cells = this.#sums.get(organization)
    if (!cells) this.#sums.set(organization, (cells = new Map()))
    const sum = cells.get(cell)
    if (sum?.index === index && sum.period === period) {
      sum.amount += amount
      return
    }
    // A new day or month began between two rows.
    if (sum) this.#bookSum(organization, cell, sum)
    cells.set(cell, { period, index, amount })
  }

  /** Writes the sums to the spend table. Many rows charge the same few cells, and each cell is written only once. */
  #bookSums(): void {
    for (const [organization, cells] of this.#sums)
      for (const [cell, sum] of cells) this.#bookSum(organization, cell, sum)
    this.#sums.clear()
  }

  #bookSum(organization: string, cell: string, { period, index, amount }: CellSum): void {
    this.#sql(
      `INSERT INTO spend (organization, cell, period, number, amount) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (organization, cell, period, number) DO UPDATE SET amount = amount + excluded.amount`,
    ).run(organization, cell, period, index, amount)
  }

  #idempotency({ organization, key, fingerprint, requestId, reply, expires }: IdempotencyRow): void {
    this.#sql(
      `INSERT OR REPLACE INTO idempotency (organization, key, fingerprint, request_id, status, headers, body, whole, asked, size, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ).run(
      organization,
      key,
      fingerprint,
      requestId,
      reply?.status ?? null,
      reply?.headers ?? null,
      reply?.body ?? null,
      reply ? Number(reply.whole) : null,
      reply?.asked ?? null,
      markBytes(key) + (reply ? reply.body.length + reply.headers.length : 0),
      expires,
    )
    this.#evict('idempotency', organization)
  }

  #record({ table, organization, kind, id, value, expires }: RecordWrite): void {
    this.#sql(
      `INSERT OR REPLACE INTO ${table} (organization, kind, id, value, size, expires) VALUES (?, ?, ?, ?, ?, ?)`,
    ).run(organization, kind, id, value, value.length, expires)
    this.#evict(table, organization)
  }

  /**
   * Evicts the oldest rows: of this organization while it has more than its share, and of the largest share while all
   * together have more than the total. @returns whether rows are left to be evicted
   */
  #evict(kind: Retained, organization: string | undefined): boolean {
    const { share, total } = this.#bounds(kind)
    const evicted = this.#evicted[kind]
    let rows = EVICTED_ROWS
    while (organization !== undefined && this.#bytes(kind, organization) > share) {
      if (rows-- === 0) return true
      if (!this.#evictOldest(kind, organization)) break
      evicted.share++
    }
    while (this.#bytes(kind, '') > total) {
      if (rows-- === 0) return true
      const largest = this.#sql(
        "SELECT organization FROM shares WHERE kind = ? AND organization <> '' ORDER BY bytes DESC LIMIT 1",
      ).get(kind)
      if (!largest || !this.#evictOldest(kind, largest['organization'] as string)) break
      evicted.total++
    }
    return false
  }

  /** Evicts what is above the bounds though nobody writes: after a start with smaller ones. */
  #trim(kind: Retained): void {
    const full = this.#sql(
      "SELECT organization FROM shares WHERE kind = ? AND organization <> '' AND bytes > ? LIMIT 1",
    ).get(kind, this.#bounds(kind).share)
    const left = this.#evict(kind, full?.['organization'] as string | undefined)
    if (full || left) this.#left = true
  }

  /** In bytes: what one organization may have, and what all may have. */
  #bounds(kind: Retained): { share: number; total: number } {
    const { idempotencyBytes, recordBytes, valueBytes } = this.#caps
    const total = { idempotency: idempotencyBytes, records: recordBytes, plugin_values: valueBytes }[kind]
    return { share: Math.floor(total * this.#caps.share), total }
  }

  /** What an organization has, and of `idempotency` the part that is `marks`; with '' what all have. */
  #bytes(kind: Retained | 'marks', organization: string): number {
    const row = this.#sql('SELECT bytes FROM shares WHERE kind = ? AND organization = ?').get(kind, organization)
    return (row?.['bytes'] as number | undefined) ?? 0
  }

  #evictOldest(kind: Retained, organization: string): boolean {
    const oldest = (index: string, where: string) =>
      `(SELECT rowid FROM ${kind} INDEXED BY ${index} WHERE organization = ?${where} ORDER BY rowid LIMIT 1)`
    const run = (text: string) => this.#sql(text).run(organization).changes === 1
    if (kind !== 'idempotency') return run(`DELETE FROM ${kind} WHERE rowid = ${oldest(`${kind}_age`, '')}`)
    // A reply leaves a mark: an executed key is not to run again before it expires (IDEM-3). Marks go while they have
    // more than half, so that neither takes the place of the other (stores/marks.ts).
    const mark = `DELETE FROM idempotency WHERE rowid = ${oldest('idempotency_marks', ' AND status IS NULL AND size > 0')}`
    const reply = `UPDATE idempotency SET status = NULL, headers = NULL, body = NULL, whole = NULL, asked = NULL,
      size = ${MARK_BASE} + ${MARK_BYTES_PER_CHARACTER} * length(key)
      WHERE rowid = ${oldest('idempotency_replies', ' AND status IS NOT NULL')}`
    const marksFirst = 2 * this.#bytes('marks', organization) > this.#bytes(kind, organization)
    return marksFirst ? run(mark) || run(reply) : run(reply) || run(mark)
  }

  #forget({ table, organization, kind, id }: Extract<Write, { op: 'forget' }>): void {
    this.#sql(`DELETE FROM ${table} WHERE organization = ? AND kind = ? AND id = ?`).run(organization, kind, id)
  }

  /** Books the rows, and the levels that were settled with them or behind them, in one step. It may be repeated. */
  #recover({ entries, levels, lost }: Extract<Write, { op: 'recover' }>, together: number): void {
    const known = this.#sql('SELECT 1 FROM ledger WHERE request_id = ?')
    const uncounted = lost.filter(({ id }) => known.get(id) === undefined)
    this.#ledger(JSON.parse(entries) as (RowValues | ChargeRecord)[], together)
    const select = this.#sql(
      'SELECT organization, cell, used, part, at, expires, capacity, window FROM levels WHERE organization = ? AND cell = ?',
    )
    const stored = (organization: string, cell: string) => {
      const row = select.get(organization, cell)
      return row && (Object.values(row) as LevelRow)
    }
    const { rows, position } = recoverLevels(
      stored,
      positionOf(this.#db),
      JSON.parse(levels) as SettledRecord[],
      uncounted,
    )
    this.#levels(rows, position)
  }

  #levels(rows: readonly LevelRow[], position: number | null): void {
    if (position !== null)
      this.#sql('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)').run(POSITION, Buffer.from(String(position)))
    const replace = this.#sql(
      'INSERT OR REPLACE INTO levels (organization, cell, used, part, at, expires, capacity, window) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    )
    const remove = this.#sql('DELETE FROM levels WHERE organization = ? AND cell = ?')
    for (const row of rows) {
      if (row[2] > 0) replace.run(...row)
      else remove.run(row[0], row[1])
    }
  }

  #sweep(now: number): void {
    for (const table of RETAINED) {
      this.#delete(table, 'rowid', 'expires <= ?', now)
      this.#trim(table)
    }
    if (!this.#sumSlice() || !this.#rollSlice(Math.floor(now / HOUR_MS) - ROLLED_AFTER)) this.#left = true
    this.#sweepLedger(now)
    const { audit } = this.#caps
    if (audit) {
      this.#delete('audit', 'id', 'time < ?', now - audit.keep)
      const last = (this.#sql('SELECT max(id) AS last FROM audit').get()!['last'] as number | null) ?? 0
      this.#delete('audit', 'id', 'id <= ?', last - audit.most)
    }
    this.#delete('levels', 'organization, cell', 'expires <= ?', now)
    this.#delete('notices', 'id', 'time < ?', now - NOTICE_KEEP_MS)
    const past = now - SPEND_KEEP_MS
    const key = 'organization, cell, period, number'
    for (const period of ['day', 'month'] as const)
      this.#delete('spend', key, `period = '${period}' AND number < ?`, periodIndex(period, past))
  }

  #remove(organization: string): void {
    for (const table of RETAINED) this.#delete(table, 'rowid', 'organization = ?', organization)
    for (const table of ['levels', 'spend']) this.#sql(`DELETE FROM ${table} WHERE organization = ?`).run(organization)
  }

  /**
   * Deletes old rows, those of `ship` only when they were shipped, and the sums of months that are over. The row of the
   * position itself stays, too: it shows that the position is right.
   */
  #sweepLedger(now: number): void {
    const { ledgerKeep, ship } = this.#caps
    if (ledgerKeep === null) return
    const old = now - ledgerKeep
    this.#delete('usage', USAGE_KEY, 'hour < ?', startOfMonth(old) / HOUR_MS)
    if (!ship) {
      this.#delete('ledger', 'rowid', 'time < ?', old)
      return
    }
    const noted = this.#sql('SELECT CAST(value AS TEXT) AS value FROM meta WHERE name = ?').get(
      shippedName(ship.target),
    )
    const least = ship.keepUnshipped === null ? Number.MIN_SAFE_INTEGER : now - Math.max(ledgerKeep, ship.keepUnshipped)
    const shipped = rowidOf((noted?.['value'] as string | undefined) ?? null)
    this.#delete('ledger', 'rowid', 'time < ? AND (rowid < ? OR time < ?)', old, shipped, least)
  }

  /** Sums one slice of the rows from before there were sums, the latest first. @returns whether none are left */
  #sumSlice(): boolean {
    const { since } = this.#sql('SELECT since FROM summed').get() as { since: number }
    if (since === 0) return true
    const slice = this.#sql('SELECT time FROM ledger WHERE time < ? ORDER BY time DESC LIMIT 1 OFFSET ?')
    const from = (slice.get(since, SUM_ROWS - 1)?.['time'] as number | undefined) ?? 0
    this.#sql(SUM_SLICE).run(from, since)
    this.#sql('UPDATE summed SET since = ?').run(from)
    return from === 0
  }

  /** Rolls up one slice of the hours before one; of hours whose rows all have sums. @returns whether none are left */
  #rollSlice(before: number): boolean {
    const { hour, organization } = this.#sql('SELECT hour, organization FROM rolled').get() as unknown as Place
    if (hour >= before) return true
    const full = this.#sql(ROLL_TO).get(hour, organization, before, SUM_ROWS - 1) as Place | undefined
    const to = full ?? { hour: before, organization: '' }
    this.#sql(ROLL_SLICE).run(hour, organization, to.hour, to.organization)
    this.#sql('UPDATE rolled SET hour = ?, organization = ?').run(to.hour, to.organization)
    return full === undefined
  }

  /** Deletes one slice. */
  #delete(table: string, key: string, where: string, ...limits: (number | string)[]): void {
    const { changes } = this.#sql(
      `DELETE FROM ${table} WHERE (${key}) IN (SELECT ${key} FROM ${table} WHERE ${where} LIMIT ${SWEEP_ROWS})`,
    ).run(...limits)
    if (changes === SWEEP_ROWS) this.#left = true
  }

  #sql(text: string): StatementSync {
    let statement = this.#statements.get(text)
    if (!statement) this.#statements.set(text, (statement = this.#db.prepare(text)))
    return statement
  }
}
