/** Retained responses and continuation data in Redis. Each is one value with a time to live. */
import type { RecordStore } from '../../core/store.ts'
import { type RedisClient, tagOf } from './client.ts'

type Kind = 'response' | 'continuation'

export class RedisRecords implements RecordStore {
  #client: RedisClient

  constructor(client: RedisClient) {
    this.#client = client
  }

  async put(org: string, kind: Kind, id: string, value: Uint8Array, ttlMs: number): Promise<void> {
    await this.#client.call(
      this.#client.redis.set(
        nameOf(org, kind, id),
        Buffer.from(value.buffer, value.byteOffset, value.length),
        'PX',
        ttlMs,
      ),
    )
  }

  get(org: string, kind: Kind, id: string): Promise<Uint8Array | null> {
    return this.#client.call(this.#client.redis.getBuffer(nameOf(org, kind, id)))
  }

  async getMany(org: string, kind: Kind, ids: readonly string[]): Promise<(Uint8Array | null)[]> {
    if (ids.length === 0) return []
    return this.#client.call(this.#client.redis.mgetBuffer(...ids.map(id => nameOf(org, kind, id))))
  }

  async touch(org: string, kind: Kind, ids: readonly string[], ttlMs: number): Promise<void> {
    await Promise.all(ids.map(id => this.#client.call(this.#client.redis.pexpire(nameOf(org, kind, id), ttlMs))))
  }
}

function nameOf(org: string, kind: Kind, id: string): string {
  return `sluice:${tagOf(org)}:${kind}:${id}`
}
