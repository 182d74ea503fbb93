/**
 * Retained responses and continuation data in Redis, and values of plugins. Each is one value with a time to live, and
 * has a place in the index of its kind (lua/record_keep.lua).
 */
import type { RecordKind, RecordStore, Retained } from '../../core/ports/store.ts'
import { type RedisClient, tagOf } from './client.ts'
import { script } from './scripts.ts'
import { Shares } from './shares.ts'

const PUT = script('record_put')
const TRIM = script('record_trim')
const DELETE = script('record_delete')

/** What is bounded together: its name in the keys of Redis, and its kinds. */
interface Family<Kind extends string> {
  readonly name: Exclude<Retained, 'idempotency'>
  readonly kinds: readonly Kind[]
}

export const RECORDS: Family<RecordKind> = { name: 'records', kinds: ['response', 'reply', 'continuation'] }
export const VALUES: Family<'value'> = { name: 'plugin_values', kinds: ['value'] }

export class RedisRecords<Kind extends string = RecordKind> implements RecordStore<Kind> {
  readonly shares: Shares
  #client: RedisClient
  readonly #family: Family<Kind>
  /**
   * Writes that Redis may not have executed yet, by name; the value of a deleted one is null. When Redis does not know
   * a script, it is sent a second time, and what was sent later would be executed before it.
   */
  #writing = new Map<string, { value: Uint8Array | null; done: Promise<void> }>()

  constructor(family: Family<Kind>, options: { client: RedisClient; maxTotal: number; share: number }) {
    const { client, maxTotal, share } = options
    this.#client = client
    this.#family = family
    const trim = (org: string, bytes: number) => client.script(TRIM, this.#keysOf(org), [bytes]) as Promise<never>
    this.shares = new Shares({ client, kind: family.name, total: maxTotal, share, trim })
  }

  put(org: string, kind: Kind, id: string, value: Uint8Array, ttlMs: number): Promise<void> {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
    return this.#write(nameOf(org, kind, id), value, async () => {
      const keys = [...this.#keysOf(org), indexOf(org, kind)]
      this.shares.stored(org, await this.#client.script(PUT, keys, [id, bytes, ttlMs, this.shares.share]))
    })
  }

  async get(org: string, kind: Kind, id: string): Promise<Uint8Array | null> {
    const name = nameOf(org, kind, id)
    const writing = this.#writing.get(name)
    return writing ? writing.value : this.#client.call(this.#client.redis.getBuffer(name))
  }

  async getMany(org: string, kind: Kind, ids: readonly string[]): Promise<(Uint8Array | null)[]> {
    if (ids.length === 0) return []
    const names = ids.map(id => nameOf(org, kind, id))
    const writing = names.map(name => this.#writing.get(name))
    const found = await this.#client.call(this.#client.redis.mgetBuffer(...names))
    return found.map((value, i) => (writing[i] ? writing[i].value : value))
  }

  async hasAll(org: string, kind: Kind, ids: readonly string[]): Promise<boolean> {
    const stored: string[] = []
    for (const id of ids) {
      const name = nameOf(org, kind, id)
      const writing = this.#writing.get(name)
      if (!writing) stored.push(name)
      else if (writing.value === null) return false
    }
    return stored.length === 0 || (await this.#client.call(this.#client.redis.exists(...stored))) === stored.length
  }

  async touch(org: string, kind: Kind, ids: readonly string[], ttlMs: number): Promise<void> {
    await Promise.all(ids.map(id => this.#client.call(this.#client.redis.pexpire(nameOf(org, kind, id), ttlMs))))
  }

  delete(org: string, kind: Kind, id: string): Promise<void> {
    return this.#write(nameOf(org, kind, id), null, async () => {
      this.shares.stored(org, await this.#client.script(DELETE, [...this.#keysOf(org), indexOf(org, kind)], [id]))
    })
  }

  /** The keys of record_keep.lua, without that of one record's kind. */
  #keysOf(org: string): string[] {
    const { name, kinds } = this.#family
    return [name, ...kinds].map(each => indexOf(org, each))
  }

  /** Runs the writes of one name one after the other. */
  async #write(name: string, value: Uint8Array | null, run: () => Promise<void>): Promise<void> {
    const before = this.#writing.get(name)
    const writing = { value, done: before ? before.done.then(run, run) : run() }
    this.#writing.set(name, writing)
    try {
      await writing.done
    } finally {
      if (this.#writing.get(name) === writing) this.#writing.delete(name)
    }
  }
}

/** The name of the index of a kind. */
function indexOf(org: string, kind: string): string {
  return `sluice:${tagOf(org)}:${kind}`
}

function nameOf(org: string, kind: string, id: string): string {
  return `${indexOf(org, kind)}:${id}`
}
