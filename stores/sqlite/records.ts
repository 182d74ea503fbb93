/**
 * Retained responses and continuation data of the embedded store, and values of plugins, each in a table of its own. What
 * is not committed yet is read from memory.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { RecordKind, RecordStore } from '../../core/ports/store.ts'
import type { RecordTable } from './tables.ts'
import type { Writer } from './writer.ts'

/**
 * A reply waits at most this long for its record to be committed. This is longer than the timeout of calls that decide
 * whether a request runs: the request has already run, and the commit only makes the record safe against a crash.
 */
const COMMIT_MS = 10_000

/** When a record that was deleted ends: before any other. */
const DELETED = 0

/** What was written and is not committed yet. */
interface Pending {
  /** Undefined for a record that was touched alone: the table has its value. */
  value?: Uint8Array
  expires: number
}

export class SqliteRecords<Kind extends string = RecordKind> implements RecordStore<Kind> {
  readonly #table: RecordTable
  #writer: Writer
  #select: StatementSync
  #selectEnd: StatementSync
  #count: StatementSync
  #pending = new Map<string, Pending>()

  constructor({ reader, writer, table }: { reader: DatabaseSync; writer: Writer; table: RecordTable }) {
    this.#table = table
    this.#writer = writer
    const one = `FROM ${table} WHERE organization = ? AND kind = ? AND id = ?`
    this.#select = reader.prepare(`SELECT value, expires ${one}`)
    this.#selectEnd = reader.prepare(`SELECT expires ${one}`)
    this.#count = reader.prepare(
      `SELECT count(*) AS n FROM json_each(?) AS wanted CROSS JOIN ${table} AS stored
       ON organization = ? AND kind = ? AND stored.id = wanted.value`,
    )
  }

  async put(org: string, kind: Kind, id: string, value: Uint8Array, ttlMs: number, now: number): Promise<void> {
    const expires = now + ttlMs
    const committed = this.#writer.write({
      op: 'record',
      table: this.#table,
      organization: org,
      kind,
      id,
      value,
      expires,
    })
    this.#remember(nameOf(org, kind, id), { value, expires }, committed)
    await withinBudget(committed)
  }

  get(org: string, kind: Kind, id: string, now: number): Uint8Array | null {
    const pending = this.#pending.get(nameOf(org, kind, id))
    if (pending?.value) return pending.expires > now ? pending.value : null
    const stored = this.#select.get(org, kind, id) as unknown as Required<Pending> | undefined
    return stored && Math.max(stored.expires, pending?.expires ?? 0) > now ? stored.value : null
  }

  getMany(org: string, kind: Kind, ids: readonly string[], now: number): (Uint8Array | null)[] {
    return ids.map(id => this.get(org, kind, id, now))
  }

  /** The index alone tells it: reading when each ends would read the page of each. */
  hasAll(org: string, kind: Kind, ids: readonly string[]): boolean {
    const stored: string[] = []
    for (const id of ids) {
      const pending = this.#pending.get(nameOf(org, kind, id))
      if (!pending?.value) stored.push(id)
      else if (pending.expires === DELETED) return false
    }
    if (stored.length === 0) return true
    const { n } = this.#count.get(JSON.stringify(stored), org, kind) as { n: number }
    return n === stored.length
  }

  /** Extends the life of records. The request does not wait for the commit; `ready` reports a failure. */
  touch(org: string, kind: Kind, ids: readonly string[], ttlMs: number, now: number): void {
    const expires = now + ttlMs
    const renewed = ids.filter(id => {
      const end = this.#endOf(org, kind, id)
      // A record that has expired but was not swept yet must not come back.
      return end > now && end < expires
    })
    if (renewed.length === 0) return
    const committed = this.#writer.write({
      op: 'touch',
      table: this.#table,
      organization: org,
      kind,
      ids: renewed,
      expires,
    })
    for (const id of renewed) {
      const name = nameOf(org, kind, id)
      this.#remember(name, { ...this.#pending.get(name), expires }, committed)
    }
  }

  async delete(org: string, kind: Kind, id: string): Promise<void> {
    const committed = this.#writer.write({ op: 'forget', table: this.#table, organization: org, kind, id })
    // Until it is committed, the table still has the record: an expired one is before it.
    this.#remember(nameOf(org, kind, id), { value: new Uint8Array(), expires: DELETED }, committed)
    await withinBudget(committed)
  }

  /** When a record ends, Unix ms; 0 for one that is not there. */
  #endOf(org: string, kind: Kind, id: string): number {
    const pending = this.#pending.get(nameOf(org, kind, id))
    if (pending) return pending.expires
    const stored = this.#selectEnd.get(org, kind, id) as unknown as Pending | undefined
    return stored?.expires ?? 0
  }

  #remember(name: string, pending: Pending, committed: Promise<void>): void {
    this.#pending.set(name, pending)
    const forget = () => {
      if (this.#pending.get(name) === pending) this.#pending.delete(name)
    }
    committed.then(forget, forget)
  }
}

/** The result of the promise, or StoreUnavailable after COMMIT_MS. The commit itself continues. */
function withinBudget(committed: Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new StoreUnavailable(`the store did not commit within ${COMMIT_MS} ms`)),
      COMMIT_MS,
    )
    committed.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

function nameOf(org: string, kind: string, id: string): string {
  return kind + '\n' + org + '\n' + id
}
