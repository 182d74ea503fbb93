/**
 * Retained responses and continuation data of the embedded store. Values that are not committed yet are read from
 * memory.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { RecordKind, RecordStore } from '../../core/ports/store.ts'
import type { Writer } from './writer.ts'

/**
 * A reply waits at most this long for its record to be committed. This is longer than the timeout of calls that decide
 * whether a request runs: the request has already run, and the commit only makes the record safe against a crash.
 */
const COMMIT_MS = 10_000

/** A value that is not committed yet, or one read from the table. */
interface Pending {
  value: Uint8Array
  expires: number
}

export class SqliteRecords implements RecordStore {
  #writer: Writer
  #select: StatementSync
  #pending = new Map<string, Pending>()

  constructor(options: { reader: DatabaseSync; writer: Writer }) {
    this.#writer = options.writer
    this.#select = options.reader.prepare(
      'SELECT value, expires FROM records WHERE organization = ? AND kind = ? AND id = ?',
    )
  }

  async put(org: string, kind: RecordKind, id: string, value: Uint8Array, ttlMs: number, now: number): Promise<void> {
    const expires = now + ttlMs
    const committed = this.#writer.write({ op: 'record', organization: org, kind, id, value, expires })
    this.#remember(nameOf(org, kind, id), { value, expires }, committed)
    await withinBudget(committed)
  }

  get(org: string, kind: RecordKind, id: string, now: number): Uint8Array | null {
    return this.#find(org, kind, id, now)?.value ?? null
  }

  getMany(org: string, kind: RecordKind, ids: readonly string[], now: number): (Uint8Array | null)[] {
    return ids.map(id => this.get(org, kind, id, now))
  }

  /** Extends the life of records. The request does not wait for the commit; `ready` reports a failure. */
  touch(org: string, kind: RecordKind, ids: readonly string[], ttlMs: number, now: number): void {
    // A record that has expired but was not swept yet must not come back.
    const alive = ids.filter(id => this.#find(org, kind, id, now))
    if (alive.length === 0) return
    const expires = now + ttlMs
    const committed = this.#writer.write({ op: 'touch', organization: org, kind, ids: alive, expires })
    for (const id of alive) {
      const found = this.#find(org, kind, id, now)!
      this.#remember(
        nameOf(org, kind, id),
        { value: found.value, expires: Math.max(found.expires, expires) },
        committed,
      )
    }
  }

  async delete(org: string, kind: RecordKind, id: string): Promise<void> {
    const committed = this.#writer.write({ op: 'forget', organization: org, kind, id })
    // Until it is committed, the table still has the record: an expired one is before it.
    this.#remember(nameOf(org, kind, id), { value: new Uint8Array(), expires: 0 }, committed)
    await withinBudget(committed)
  }

  #find(org: string, kind: RecordKind, id: string, now: number): Pending | undefined {
    const found =
      this.#pending.get(nameOf(org, kind, id)) ?? (this.#select.get(org, kind, id) as unknown as Pending | undefined)
    return found && found.expires > now ? found : undefined
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

function nameOf(org: string, kind: RecordKind, id: string): string {
  return kind + '\n' + org + '\n' + id
}
