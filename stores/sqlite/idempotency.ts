/**
 * Idempotency keys of the embedded store. A running first use is marked in memory and in the journal, so that a crash
 * does not make it run twice: after a restart such a key counts as running for one more lease. Finished replies go to
 * the table. Until they are committed, they are answered from memory.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { IdempotencyRecord, IdempotencyState, IdempotencyStore } from '../../core/ports/store.ts'
import type { Item, Journal } from '../journal.ts'
import type { Writer } from './writer.ts'

/** After a crash, a key whose first use was running counts as running for this long. */
export const LEASE_MS = 15_000

/** The JSON of the journal's `k` record. */
export interface RunningKey {
  organization: string
  key: string
  fingerprint: string
  requestId: string
}

interface Entry {
  fingerprint: string
  requestId: string
  state: 'running' | 'done' | 'not_kept'
  /** The reply; null unless `state` is `done`. */
  record: IdempotencyRecord | null
  /** Unix ms. */
  expires: number
  /** The open journal record of the first use. */
  item: Item | undefined
}

export interface SqliteIdempotencyOptions {
  reader: DatabaseSync
  writer: Writer
  journal: Journal | null
  /** A reply whose body has more than this many bytes is not kept. */
  maxRecord: number
}

export class SqliteIdempotency implements IdempotencyStore {
  #options: SqliteIdempotencyOptions
  /** Keys whose first use runs, or whose finished record is not committed yet. */
  #entries = new Map<string, Entry>()
  #select: StatementSync

  constructor(options: SqliteIdempotencyOptions) {
    this.#options = options
    this.#select = options.reader.prepare(
      'SELECT fingerprint, request_id, status, headers, body, whole, asked, expires FROM idempotency WHERE organization = ? AND key = ?',
    )
  }

  /**
   * Takes over the marks of a dead process. A key counts as running until its lease ends, unless its reply was kept.
   */
  restore(keys: readonly RunningKey[], now: number): void {
    for (const { organization, key, fingerprint, requestId } of keys) {
      if (this.#stored(organization, key, now)) continue
      this.#entries.set(nameOf(organization, key), {
        fingerprint,
        requestId,
        state: 'running',
        record: null,
        expires: now + LEASE_MS,
        item: undefined,
      })
    }
  }

  begin(
    org: string,
    key: string,
    fingerprint: string,
    requestId: string,
    _ttlMs: number,
    now: number,
  ): IdempotencyState {
    const name = nameOf(org, key)
    const entry = this.#entries.get(name) ?? this.#stored(org, key, now)
    if (entry && entry.expires > now) return stateOf(entry, fingerprint)
    if (entry?.item) this.#options.journal?.release(entry.item)
    const running: RunningKey = { organization: org, key, fingerprint, requestId }
    const item = this.#options.journal?.append('k', JSON.stringify(running))
    // Only this process can end it, so it has no lease.
    const expires = Number.POSITIVE_INFINITY
    this.#entries.set(name, { fingerprint, requestId, state: 'running', record: null, expires, item })
    return { state: 'first' }
  }

  /** No other process uses the file, and a running key of this one is never free. */
  claim(): boolean {
    return true
  }
  holds(): boolean {
    return true
  }

  async finish(org: string, key: string, record: IdempotencyRecord | null, ttlMs: number, now: number): Promise<void> {
    const name = nameOf(org, key)
    const entry = this.#entries.get(name)
    if (entry?.state !== 'running') return
    if (record && record.body.length > this.#options.maxRecord) record = null
    entry.state = record ? 'done' : 'not_kept'
    entry.record = record
    entry.expires = now + ttlMs
    const reply = record && {
      status: record.status,
      headers: JSON.stringify(record.headers),
      body: record.body,
      whole: record.whole,
      asked: record.asked ?? null,
    }
    const row = {
      organization: org,
      key,
      fingerprint: entry.fingerprint,
      requestId: entry.requestId,
      reply,
      expires: entry.expires,
    }
    const committed = this.#options.writer.write({ op: 'idempotency', row })
    // The entry stays in memory until the table has it. If the write fails, it stays until it expires.
    committed.then(
      () => {
        if (this.#entries.get(name) === entry) this.#entries.delete(name)
        if (entry.item) this.#options.journal?.release(entry.item)
      },
      () => {},
    )
    await committed
  }

  release(org: string, key: string): void {
    const name = nameOf(org, key)
    const entry = this.#entries.get(name)
    if (entry?.state !== 'running') return
    this.#entries.delete(name)
    if (entry.item) this.#options.journal?.release(entry.item)
  }

  /** Deletes expired entries from memory. */
  sweep(now: number): void {
    for (const [name, entry] of this.#entries) {
      if (entry.expires > now) continue
      this.#entries.delete(name)
      if (entry.item) this.#options.journal?.release(entry.item)
    }
  }

  /** The unexpired record of a key in the table. */
  #stored(org: string, key: string, now: number): Entry | undefined {
    const row = this.#select.get(org, key) as
      | {
          fingerprint: string
          request_id: string
          status: number | null
          headers: string
          body: Uint8Array
          whole: number
          asked: string | null
          expires: number
        }
      | undefined
    if (!row || row.expires <= now) return undefined
    const record =
      row.status === null
        ? null
        : {
            requestId: row.request_id,
            status: row.status,
            headers: JSON.parse(row.headers) as [string, string][],
            body: row.body,
            whole: row.whole === 1,
            ...(row.asked !== null && { asked: row.asked }),
          }
    return {
      fingerprint: row.fingerprint,
      requestId: row.request_id,
      state: record ? 'done' : 'not_kept',
      record,
      expires: row.expires,
      item: undefined,
    }
  }
}

function nameOf(org: string, key: string): string {
  return org + '\n' + key
}

function stateOf(entry: Entry, fingerprint: string): IdempotencyState {
  if (entry.fingerprint !== fingerprint) return { state: 'conflict' }
  if (entry.state === 'running') return { state: 'running' }
  if (entry.record) return { state: 'replay', record: entry.record }
  return { state: 'not_kept', requestId: entry.requestId }
}
