/** Retained responses and continuation data of the embedded store. What is not yet committed is read from memory. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { RecordStore } from '../../core/store.ts'
import { withinBudget } from '../budget.ts'
import type { Writer } from './writer.ts'

type Kind = 'response' | 'continuation'

interface Pending {
  value: Uint8Array
  expires: number
}

export class SqliteRecords implements RecordStore {
  #writer: Writer
  #budget: number
  #select: StatementSync
  #pending = new Map<string, Pending>()

  constructor(options: { reader: DatabaseSync; writer: Writer; budget: number }) {
    this.#writer = options.writer
    this.#budget = options.budget
    this.#select = options.reader.prepare(
      'SELECT value, expires FROM records WHERE organization = ? AND kind = ? AND id = ?',
    )
  }

  async put(org: string, kind: Kind, id: string, value: Uint8Array, ttlMs: number, now: number): Promise<void> {
    const name = nameOf(org, kind, id)
    const pending: Pending = { value, expires: now + ttlMs }
    this.#pending.set(name, pending)
    const committed = this.#writer.write({ op: 'record', organization: org, kind, id, value, expires: pending.expires })
    const forget = () => {
      if (this.#pending.get(name) === pending) this.#pending.delete(name)
    }
    committed.then(forget, forget)
    await withinBudget(committed, this.#budget)
  }

  get(org: string, kind: Kind, id: string, now: number): Uint8Array | null {
    const found =
      this.#pending.get(nameOf(org, kind, id)) ?? (this.#select.get(org, kind, id) as unknown as Pending | undefined)
    return found && found.expires > now ? found.value : null
  }

  getMany(org: string, kind: Kind, ids: readonly string[], now: number): (Uint8Array | null)[] {
    return ids.map(id => this.get(org, kind, id, now))
  }

  async touch(org: string, kind: Kind, ids: readonly string[], ttlMs: number, now: number): Promise<void> {
    const expires = now + ttlMs
    for (const id of ids) {
      const pending = this.#pending.get(nameOf(org, kind, id))
      if (pending) pending.expires = Math.max(pending.expires, expires)
    }
    // What has expired but was not swept yet is gone for readers, and stays gone.
    const alive = ids.filter(id => this.get(org, kind, id, now) !== null)
    if (alive.length)
      await withinBudget(
        this.#writer.write({ op: 'touch', organization: org, kind, ids: alive, expires }),
        this.#budget,
      )
  }
}

function nameOf(org: string, kind: Kind, id: string): string {
  return kind + '\n' + org + '\n' + id
}
