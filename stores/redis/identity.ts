/**
 * Which data a Redis holds, and whether it is what this machine's journals were written for. A Redis that lost its data
 * (a `dump.rdb` that was ignored, a volume that was not mounted) is empty, and would be served from as if it were new:
 * keys, spend and the ledger gone, and nobody told. Where a gateway of another machine has begun with nothing there, it
 * has another name, and is as wrong. A restore or a move brings data under a new name, too, and says so.
 *
 *   {sluice:leases}:format   hash: `data`, a random name of the data; `brought`, the name that a restore or move gave it
 *   data/*.store             JSON: a store, and the name of the data that it had when a gateway of this machine used it.
 *                            It is beside the configuration file, so that a start from another folder knows of it, and
 *                            in the working directory, beside the journal: a mounted file has nothing beside it that
 *                            outlives the container, or that can be written
 */
import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { StoreRefused } from '../../core/canon/errors.ts'
import type { Logger } from '../../core/plugin.ts'
import type { RedisClient } from './client.ts'
import { FORMAT } from './format.ts'

const DATA = 'data'
const BROUGHT = 'brought'

export class Identity {
  readonly #client: RedisClient
  readonly #log: Logger
  /** Where it is remembered; the first that is there counts. The last must be writable. */
  readonly #files: readonly string[]

  /** @param dirs the data folders: of the configuration, where there is one, and that which has the journal */
  constructor(client: RedisClient, dirs: readonly string[], log: Logger) {
    this.#client = client
    this.#log = log
    const name = createHash('sha256').update(client.name).digest('hex').slice(0, 12)
    this.#files = [...new Set(dirs.map(dir => path.resolve(dir, `${name}.store`)))]
  }

  /** @throws StoreRefused when the data is gone that was there, or is another's that nobody has brought on purpose */
  async check(): Promise<void> {
    const known = this.#known()
    if (known === undefined) return
    const { name, redis } = this.#client
    const [found, brought] = await this.#client.call(redis.hmget(FORMAT, DATA, BROUGHT))
    if (found === known || (found !== null && found === brought)) return
    const [what, otherwise] =
      found === null
        ? ['is gone: it was there when a gateway last started on this machine', 'To begin with nothing']
        : [
            'is not that with which a gateway last started on this machine: another one has begun with nothing there, or it is another server',
            'To go on with what is there now',
          ]
    throw new StoreRefused(
      `the data in ${name} ${what}. Look at what that Redis has loaded (with appendonly yes it ignores a dump.rdb), or restore a backup with \`sluice store restore\`. ${otherwise}, remove ${this.#files.filter(file => fs.existsSync(file)).join(' and ')}`,
    )
  }

  /** Names the data when it has no name, and remembers it on this machine. */
  async note(): Promise<void> {
    const { redis } = this.#client
    await this.#client.call(redis.hsetnx(FORMAT, DATA, randomUUID()))
    const data = await this.#found()
    const known = this.#known()
    if (data === null) return
    const store = this.#client.name
    if (known !== undefined && known !== data) this.#log.warn({ store }, 'the store has other data than before')
    for (const [i, file] of this.#files.entries()) {
      if (knownIn(file) === data) continue
      try {
        write(file, JSON.stringify({ store, data }))
      } catch (error) {
        if (i === this.#files.length - 1) throw error
      }
    }
  }

  #found(): Promise<string | null> {
    return this.#client.call(this.#client.redis.hget(FORMAT, DATA))
  }

  #known(): string | undefined {
    for (const file of this.#files) {
      const known = knownIn(file)
      if (known !== undefined) return known
    }
    return undefined
  }
}

function knownIn(file: string): string | undefined {
  try {
    return (JSON.parse(fs.readFileSync(file, 'utf8')) as { data: string }).data
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    // A folder of another user has nothing of a gateway of this one.
    if (code === 'ENOENT' || code === 'ENOTDIR' || (code === 'EACCES' && !fs.existsSync(file))) return undefined
    throw new StoreRefused(`cannot read ${file}: ${message}; mend or remove it`, error)
  }
}

function write(file: string, text: string): void {
  const part = `${file}.${process.pid}`
  fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 })
  fs.writeFileSync(part, text, { mode: 0o600 })
  fs.renameSync(part, file)
}

/** Says that other data is here from now on, as a restore brings it: all machines take it. */
export async function renewIdentity(client: RedisClient): Promise<void> {
  const name = randomUUID()
  await client.call(client.redis.hset(FORMAT, DATA, name, BROUGHT, name))
}
