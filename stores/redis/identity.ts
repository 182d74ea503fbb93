/**
 * Which data a Redis holds, and whether it is what this machine's journals were written for. A Redis that lost its data
 * (a `dump.rdb` that was ignored, a volume that was not mounted) is empty, and would be served from as if it were new:
 * keys, spend and the ledger gone, and nobody told.
 *
 *   {sluice:leases}:format   hash: `data`, a random name of the data
 *   data/*.store             JSON: a store, and the name of the data that it had when a gateway of this machine used it
 */
import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { StoreRefused } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type { RedisClient } from './client.ts'
import { FORMAT } from './format.ts'

const DATA = 'data'

export class Identity {
  readonly #client: RedisClient
  readonly #log: Logger
  readonly #file: string

  /** @param dir the gateway's data folder */
  constructor(client: RedisClient, dir: string, log: Logger) {
    this.#client = client
    this.#log = log
    const name = createHash('sha256').update(client.name).digest('hex').slice(0, 12)
    this.#file = path.resolve(dir, `${name}.store`)
  }

  /** @throws StoreRefused when the data is gone that was there */
  async check(): Promise<void> {
    if (this.#known() === undefined || (await this.#found()) !== null) return
    throw new StoreRefused(
      `the data in ${this.#client.name} is gone: it was there when a gateway last started on this machine. Look at what that Redis has loaded (with appendonly yes it ignores a dump.rdb), or restore a backup with \`sluice store restore\`. To begin with nothing, remove ${this.#file}`,
    )
  }

  /** Names the data when it has no name, and remembers it on this machine. */
  async note(): Promise<void> {
    const { redis } = this.#client
    await this.#client.call(redis.hsetnx(FORMAT, DATA, randomUUID()))
    const data = await this.#found()
    const known = this.#known()
    if (data === null || known === data) return
    const store = this.#client.name
    if (known !== undefined) this.#log.warn({ store }, 'the store has other data than before')
    const part = `${this.#file}.${process.pid}`
    fs.mkdirSync(path.dirname(this.#file), { recursive: true, mode: 0o700 })
    fs.writeFileSync(part, JSON.stringify({ store, data }), { mode: 0o600 })
    fs.renameSync(part, this.#file)
  }

  #found(): Promise<string | null> {
    return this.#client.call(this.#client.redis.hget(FORMAT, DATA))
  }

  #known(): string | undefined {
    try {
      return (JSON.parse(fs.readFileSync(this.#file, 'utf8')) as { data: string }).data
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw new StoreRefused(`cannot read ${this.#file}: ${(error as Error).message}; mend or remove it`, error)
    }
  }
}

/** Says that other data is here from now on, as a restore brings it. */
export async function renewIdentity(client: RedisClient): Promise<void> {
  await client.call(client.redis.hset(FORMAT, DATA, randomUUID()))
}
