/**
 * Retained responses and continuation data in Redis. Each is one value with a time to live, and has a place in the index
 * of its kind (RECORD_KEEP in scripts.ts).
 */
import type { RecordKind, RecordStore } from '../../core/store.ts'
import { script } from './call.ts'
import { type RedisClient, tagOf } from './client.ts'
import { RECORD_DELETE, RECORD_PUT, RECORD_TRIM } from './scripts.ts'
import { Shares } from './shares.ts'

const PUT = script(RECORD_PUT)
const TRIM = script(RECORD_TRIM)
const DELETE = script(RECORD_DELETE)

export class RedisRecords implements RecordStore {
  readonly shares: Shares
  #client: RedisClient
  /**
   * Values that Redis may not have executed yet, by name. When Redis does not know the script, it is sent a second
   * time, and a read that was made later would be executed before it.
   */
  #putting = new Map<string, Uint8Array>()

  constructor(options: { client: RedisClient; maxTotal: number; share: number }) {
    const { client, maxTotal, share } = options
    this.#client = client
    const trim = (org: string, bytes: number) => client.script(TRIM, keysOf(org), [bytes]) as Promise<never>
    this.shares = new Shares({ client, kind: 'records', total: maxTotal, share, trim })
  }

  async put(org: string, kind: RecordKind, id: string, value: Uint8Array, ttlMs: number): Promise<void> {
    const name = nameOf(org, kind, id)
    this.#putting.set(name, value)
    try {
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
      const keys = [...keysOf(org), indexOf(org, kind)]
      this.shares.stored(org, await this.#client.script(PUT, keys, [id, bytes, ttlMs, this.shares.share]))
    } finally {
      if (this.#putting.get(name) === value) this.#putting.delete(name)
    }
  }

  async get(org: string, kind: RecordKind, id: string): Promise<Uint8Array | null> {
    const name = nameOf(org, kind, id)
    return this.#putting.get(name) ?? this.#client.call(this.#client.redis.getBuffer(name))
  }

  async getMany(org: string, kind: RecordKind, ids: readonly string[]): Promise<(Uint8Array | null)[]> {
    if (ids.length === 0) return []
    const names = ids.map(id => nameOf(org, kind, id))
    const putting = names.map(name => this.#putting.get(name))
    const found = await this.#client.call(this.#client.redis.mgetBuffer(...names))
    return found.map((value, i) => putting[i] ?? value)
  }

  async touch(org: string, kind: RecordKind, ids: readonly string[], ttlMs: number): Promise<void> {
    await Promise.all(ids.map(id => this.#client.call(this.#client.redis.pexpire(nameOf(org, kind, id), ttlMs))))
  }

  async delete(org: string, kind: RecordKind, id: string): Promise<void> {
    this.shares.stored(org, await this.#client.script(DELETE, [...keysOf(org), indexOf(org, kind)], [id]))
  }
}

/** The name of the index of a kind. */
function indexOf(org: string, kind: RecordKind): string {
  return `sluice:${tagOf(org)}:${kind}`
}

function nameOf(org: string, kind: RecordKind, id: string): string {
  return `${indexOf(org, kind)}:${id}`
}

const KINDS: readonly RecordKind[] = ['response', 'reply', 'continuation']

/** The keys of RECORD_KEEP. */
function keysOf(org: string): string[] {
  return [`sluice:${tagOf(org)}:records`, ...KINDS.map(kind => indexOf(org, kind))]
}
