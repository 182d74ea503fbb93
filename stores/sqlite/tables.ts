/**
 * Applies groups of writes to the tables, one transaction for each group. It runs in the writer's thread, or on the
 * main thread for an in-memory database.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { ChargeRecord, Entry } from '../ledger.ts'
import { periodIndex } from '../limits/rules.ts'
import { ROW_COLUMNS, type RowValue, type RowValues } from '../rows.ts'

/** The record of a finished exchange with an idempotency key. */
export interface IdempotencyRow {
  organization: string
  key: string
  fingerprint: string
  requestId: string
  /** The reply; `headers` is JSON. Null: the exchange was executed, but its reply is not kept. */
  reply: { status: number; headers: string; body: Uint8Array; whole: boolean } | null
  /** Unix ms. */
  expires: number
}

/** One write of the store. `expires` and `now` are Unix ms. */
export type Write =
  /** `entries`: what `packEntries` made. */
  | { op: 'ledger'; entries: string }
  | { op: 'idempotency'; row: IdempotencyRow }
  | { op: 'record'; organization: string; kind: string; id: string; value: Uint8Array; expires: number }
  | { op: 'touch'; organization: string; kind: string; ids: readonly string[]; expires: number }
  /** `levels`: JSON of `LevelRow[]`. */
  | { op: 'levels'; levels: string }
  | { op: 'sweep'; now: number }
  /** Changes one small row: whether anything can be written. */
  | { op: 'probe'; now: number }

/** The level of a bucket, as the table has it. With `used` 0 the row is deleted. */
export type LevelRow = [organization: string, cell: string, used: number, part: number, at: number, expires: number]

/**
 * Makes one JSON array of entries: rows, and charges that were settled apart from their row. Sending one string to the
 * thread costs one copy; cloning objects costs more than writing the rows. Parsing one long text is faster than parsing
 * many short ones.
 */
export function packEntries(entries: readonly Entry[]): string {
  return '[' + entries.map(({ json }) => json).join() + ']'
}

export interface Caps {
  /** All idempotency replies together take at most this many bytes. Above it, the oldest become "not kept". */
  idempotencyBytes: number
  /** All retained records together take at most this many bytes. Above it, the oldest are deleted. */
  recordBytes: number
  /** How long ledger rows are kept, ms. Null: for ever. */
  ledgerKeep: number | null
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
/**
 * Spend is deleted this long after its period began. Past periods are not needed; the margin allows for wrong clocks.
 */
const SPEND_KEEP_MS = 40 * 86_400_000

export class Tables {
  #db: DatabaseSync
  #caps: Caps
  #statements = new Map<string, StatementSync>()
  /** The present sum of the sizes in the idempotency table. */
  #idempotencyBytes: number
  /** The present sum of the sizes in the records table. */
  #recordBytes: number
  /** A slice of a sweep was full. */
  #left = false
  /** What the running transaction has charged so far, by organization and cell. */
  readonly #sums = new Map<string, Map<string, CellSum>>()

  constructor(db: DatabaseSync, caps: Caps) {
    this.#db = db
    this.#caps = caps
    this.#idempotencyBytes = this.#sum('idempotency')
    this.#recordBytes = this.#sum('records')
  }

  /** Applies all writes, or none when it throws. @returns whether a sweep among them has left expired rows */
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
    const before = [this.#idempotencyBytes, this.#recordBytes] as const
    try {
      for (const write of writes) this.#one(write, together)
      this.#bookSums()
      this.#db.exec('COMMIT')
      // With the last slice of each sweep, a checkpoint makes all commits so far safe against a power cut.
      if (!this.#left && writes.some(write => write.op === 'sweep')) this.#db.exec('PRAGMA wal_checkpoint(PASSIVE)')
    } catch (error) {
      ;[this.#idempotencyBytes, this.#recordBytes] = before
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
      case 'touch': {
        const touch = this.#sql(
          'UPDATE records SET expires = max(expires, ?) WHERE organization = ? AND kind = ? AND id = ?',
        )
        for (const id of write.ids) touch.run(write.expires, write.organization, write.kind, id)
        return
      }
      case 'levels':
        this.#levels(JSON.parse(write.levels) as LevelRow[])
        return
      case 'sweep':
        this.#sweep(write.now)
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
    const old = this.#sql('SELECT size FROM idempotency WHERE organization = ? AND key = ?').get(organization, key) as
      | { size: number }
      | undefined
    const size = reply ? reply.body.length + reply.headers.length : 0
    this.#sql(
      `INSERT OR REPLACE INTO idempotency (organization, key, fingerprint, request_id, status, headers, body, whole, size, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ).run(
      organization,
      key,
      fingerprint,
      requestId,
      reply?.status ?? null,
      reply?.headers ?? null,
      reply?.body ?? null,
      reply ? Number(reply.whole) : null,
      size,
      expires,
    )
    this.#idempotencyBytes += size - (old?.size ?? 0)
    while (this.#idempotencyBytes > this.#caps.idempotencyBytes) {
      const oldest = this.#sql('SELECT rowid, size FROM idempotency WHERE size > 0 ORDER BY rowid LIMIT 1').get() as
        | { rowid: number; size: number }
        | undefined
      if (!oldest) break
      // The row stays without its reply: an executed key must not run again before it expires (IDEM-3).
      this.#sql(
        'UPDATE idempotency SET status = NULL, headers = NULL, body = NULL, whole = NULL, size = 0 WHERE rowid = ?',
      ).run(oldest.rowid)
      this.#idempotencyBytes -= oldest.size
    }
  }

  #record({ organization, kind, id, value, expires }: Extract<Write, { op: 'record' }>): void {
    const old = this.#sql('SELECT size FROM records WHERE organization = ? AND kind = ? AND id = ?').get(
      organization,
      kind,
      id,
    ) as { size: number } | undefined
    this.#sql(
      'INSERT OR REPLACE INTO records (organization, kind, id, value, size, expires) VALUES (?, ?, ?, ?, ?, ?)',
    ).run(organization, kind, id, value, value.length, expires)
    this.#recordBytes += value.length - (old?.size ?? 0)
    while (this.#recordBytes > this.#caps.recordBytes) {
      const oldest = this.#sql('SELECT rowid, size FROM records ORDER BY rowid LIMIT 1').get() as
        | { rowid: number; size: number }
        | undefined
      if (!oldest) break
      this.#sql('DELETE FROM records WHERE rowid = ?').run(oldest.rowid)
      this.#recordBytes -= oldest.size
    }
  }

  #levels(rows: readonly LevelRow[]): void {
    const replace = this.#sql(
      'INSERT OR REPLACE INTO levels (organization, cell, used, part, at, expires) VALUES (?, ?, ?, ?, ?, ?)',
    )
    const remove = this.#sql('DELETE FROM levels WHERE organization = ? AND cell = ?')
    for (const row of rows) {
      if (row[2] > 0) replace.run(...row)
      else remove.run(row[0], row[1])
    }
  }

  #sweep(now: number): void {
    for (const table of ['idempotency', 'records'] as const) {
      const gone = this.#sql(
        `DELETE FROM ${table} WHERE rowid IN (SELECT rowid FROM ${table} WHERE expires <= ? LIMIT ${SWEEP_ROWS}) RETURNING size`,
      ).all(now)
      if (gone.length === SWEEP_ROWS) this.#left = true
      let bytes = 0
      for (const row of gone) bytes += row['size'] as number
      if (table === 'idempotency') this.#idempotencyBytes -= bytes
      else this.#recordBytes -= bytes
    }
    if (this.#caps.ledgerKeep !== null) this.#delete('ledger', 'rowid', 'time < ?', now - this.#caps.ledgerKeep)
    this.#delete('levels', 'organization, cell', 'expires <= ?', now)
    const past = now - SPEND_KEEP_MS
    const key = 'organization, cell, period, number'
    for (const period of ['day', 'month'] as const)
      this.#delete('spend', key, `period = '${period}' AND number < ?`, periodIndex(period, past))
  }

  /** Deletes one slice. */
  #delete(table: string, key: string, where: string, limit: number): void {
    const { changes } = this.#sql(
      `DELETE FROM ${table} WHERE (${key}) IN (SELECT ${key} FROM ${table} WHERE ${where} LIMIT ${SWEEP_ROWS})`,
    ).run(limit)
    if (changes === SWEEP_ROWS) this.#left = true
  }

  #sum(table: 'idempotency' | 'records'): number {
    return (this.#db.prepare(`SELECT coalesce(sum(size), 0) AS bytes FROM ${table}`).get() as { bytes: number }).bytes
  }

  #sql(text: string): StatementSync {
    let statement = this.#statements.get(text)
    if (!statement) this.#statements.set(text, (statement = this.#db.prepare(text)))
    return statement
  }
}
