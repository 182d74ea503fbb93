/** Applies groups of writes to the tables, one transaction each. Runs in the writer's thread, or inline for an in-memory database. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { LedgerIntent } from '../../core/store.ts'
import type { Charge } from '../journal.ts'
import type { ChargeRecord, Entry, OutcomeRecord } from '../ledger.ts'

/** A finished idempotent exchange; without a body it was executed but is not kept. */
export interface IdempotencyRow {
  organization: string
  key: string
  fingerprint: string
  requestId: string
  /** Null: not kept. */
  reply: { status: number; headers: string; body: Uint8Array; whole: boolean } | null
  expires: number
}

export type Write =
  /** As `packEntries` writes it. */
  | { op: 'ledger'; entries: string }
  | { op: 'idempotency'; row: IdempotencyRow }
  | { op: 'record'; organization: string; kind: string; id: string; value: Uint8Array; expires: number }
  | { op: 'touch'; organization: string; kind: string; ids: readonly string[]; expires: number }
  | { op: 'sweep'; now: number }

/**
 * Entries as one text, a line each: cloning one string for the thread costs a copy, cloning the objects costs more than the rows. JSON text has no raw
 * tab or line end.
 */
export function packEntries(entries: readonly Entry[]): string {
  let text = ''
  for (const entry of entries) {
    if (text !== '') text += '\n'
    text += 'charge' in entry ? entry.charge : `${entry.intent}\t${entry.outcome}`
  }
  return text
}

export interface Caps {
  /** Bytes of idempotency replies; beyond it the oldest become "not kept". */
  idempotencyBytes: number
  /** Bytes of retained records; beyond it the oldest go. */
  recordBytes: number
  /** Milliseconds that ledger rows are kept; null: for ever. */
  ledgerKeep: number | null
}

interface CellSum {
  organization: string
  cell: string
  period: 'day' | 'month'
  index: number
  amount: number
}

/** Rows that one sweep deletes from one table, so that no transaction grows without bound. */
const SWEEP_ROWS = 5000
/** Spend of past periods is of no more use; a margin for clocks that step back. */
const SPEND_KEEP_MS = 40 * 86_400_000

export class Tables {
  #db: DatabaseSync
  #caps: Caps
  #statements = new Map<string, StatementSync>()
  #idempotencyBytes: number
  #recordBytes: number
  /** What the transaction at hand has charged to each cell so far. */
  readonly #sums = new Map<string, CellSum>()

  constructor(db: DatabaseSync, caps: Caps) {
    this.#db = db
    this.#caps = caps
    this.#idempotencyBytes = this.#sum('idempotency')
    this.#recordBytes = this.#sum('records')
  }

  /** All or none. */
  apply(writes: readonly Write[]): void {
    this.#db.exec('BEGIN IMMEDIATE')
    const before = [this.#idempotencyBytes, this.#recordBytes] as const
    try {
      for (const write of writes) this.#one(write)
      this.#bookSums()
      this.#db.exec('COMMIT')
      // With each sweep everything so far is made safe against a power cut too.
      if (writes.some(write => write.op === 'sweep')) this.#db.exec('PRAGMA wal_checkpoint(PASSIVE)')
    } catch (error) {
      ;[this.#idempotencyBytes, this.#recordBytes] = before
      this.#sums.clear()
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK')
      throw error
    }
  }

  #one(write: Write): void {
    switch (write.op) {
      case 'ledger':
        if (write.entries === '') return
        for (const line of write.entries.split('\n')) {
          const tab = line.indexOf('\t')
          if (tab === -1) this.#charge(JSON.parse(line) as ChargeRecord)
          else this.#row(line.slice(0, tab), line.slice(tab + 1))
        }
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
      case 'sweep':
        this.#sweep(write.now)
        return
    }
  }

  #row(intent: string, outcome: string): void {
    const opened = JSON.parse(intent) as LedgerIntent
    const closed = JSON.parse(outcome) as OutcomeRecord
    const inserted = this.#sql(
      `INSERT OR IGNORE INTO ledger (request_id, time, organization, key_id, surface, model, provider, input, cached, cache_write, output, reasoning, searches, estimated,
        cost, price_book, billing, outcome, duration_ms, ttfb_ms, bytes_in, bytes_out, input_tokens, charged) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ).run(
      opened.request_id,
      opened.time,
      opened.organization,
      opened.key_id,
      opened.surface,
      opened.model,
      closed.provider,
      closed.input,
      closed.cached,
      closed.cacheWrite,
      closed.output,
      closed.reasoning,
      closed.searches,
      closed.estimated ? 1 : 0,
      closed.cost,
      opened.price_book,
      opened.billing,
      closed.outcome,
      closed.duration_ms,
      closed.ttfb_ms,
      closed.bytes_in ?? null,
      closed.bytes_out ?? null,
      opened.input_tokens,
      closed.charges ? 1 : 0,
    )
    if (inserted.changes === 1 && closed.charges) this.#book(opened.organization, closed.charges)
  }

  /** Charges that came apart from their row: booked once, and only for a row that exists. */
  #charge(record: ChargeRecord): void {
    const { changes } = this.#sql('UPDATE ledger SET charged = 1 WHERE request_id = ? AND charged = 0').run(
      record.request_id,
    )
    if (changes === 1) this.#book(record.organization, record.charges)
  }

  #book(organization: string, charges: readonly Charge[]): void {
    for (const [cell, period, index, amount] of charges) {
      const name = `${organization}\0${cell}\0${period}\0${index}`
      const sum = this.#sums.get(name)
      if (sum) sum.amount += amount
      else this.#sums.set(name, { organization, cell, period, index, amount })
    }
  }

  /** The rows of one transaction charge the same few cells again and again: each is written once. */
  #bookSums(): void {
    const add = this.#sql(
      `INSERT INTO spend (organization, cell, period, number, amount) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (organization, cell, period, number) DO UPDATE SET amount = amount + excluded.amount`,
    )
    for (const { organization, cell, period, index, amount } of this.#sums.values())
      add.run(organization, cell, period, index, amount)
    this.#sums.clear()
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
      // The mark stays: an executed key never runs again within its time (IDEM-3).
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

  #sweep(now: number): void {
    for (const table of ['idempotency', 'records'] as const) {
      const gone = this.#sql(
        `DELETE FROM ${table} WHERE rowid IN (SELECT rowid FROM ${table} WHERE expires <= ? LIMIT ${SWEEP_ROWS}) RETURNING size`,
      ).all(now)
      let bytes = 0
      for (const row of gone) bytes += row['size'] as number
      if (table === 'idempotency') this.#idempotencyBytes -= bytes
      else this.#recordBytes -= bytes
    }
    if (this.#caps.ledgerKeep !== null) {
      const before = now - this.#caps.ledgerKeep
      this.#sql(`DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM ledger WHERE time < ? LIMIT ${SWEEP_ROWS})`).run(
        before,
      )
    }
    const past = new Date(now - SPEND_KEEP_MS)
    const month = past.getUTCFullYear() * 12 + past.getUTCMonth()
    this.#sql("DELETE FROM spend WHERE (period = 'day' AND number < ?) OR (period = 'month' AND number < ?)").run(
      Math.floor(past.getTime() / 86_400_000),
      month,
    )
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
