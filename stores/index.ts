/** Opens the store that gateway.yaml names: `sqlite:PATH` (embedded) or a redis URL (shared). */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import type { Clock } from '../core/clock.ts'
import type { Logger } from '../core/plugin.ts'
import { type Store, StoreUnavailable } from '../core/store.ts'

export interface StoreOptions {
  /** `sqlite:./data/gateway.db`, `sqlite::memory:`, `redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://` (docs/ledger.md). */
  url: string
  /** Budget of one call to Redis, ms. */
  timeout: number
  /** Name of this process in journals and leases; made unique for each start. Default: host name and process id. */
  instance?: string
  clock: Clock
  log: Logger
  /** Milliseconds that ledger rows are kept; null or absent: for ever. */
  ledgerKeep?: number | null
  idempotency?: {
    /** Replies above this many bytes are not kept. Default 4 MiB. */
    maxRecord?: number
    /** Bytes of all kept replies (redis: of one organization's). Default 1 GiB. */
    maxTotal?: number
  }
  /** Bytes of all retained records (embedded only; redis has its own memory limit). Default 4 GiB. */
  maxRecords?: number
  /** Redis: folder of the local journal's `journal/`. Default ./data. The embedded store keeps its journal beside the database file. */
  dataDir?: string
}

/** Rejects with StoreUnavailable when the URL is wrong or the engine cannot be reached or opened. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { url, timeout, clock, log } = options
  const scheme = url.slice(0, Math.max(0, url.indexOf(':')))
  // A restarted process must never be taken for its dead predecessor.
  const instance = `${safeName(options.instance ?? `${os.hostname()}-${process.pid}`)}-${randomBytes(4).toString('hex')}`
  const maxRecord = options.idempotency?.maxRecord ?? 4 << 20
  const maxTotal = options.idempotency?.maxTotal ?? 1 << 30
  const ledgerKeep = options.ledgerKeep ?? null
  if (scheme === 'sqlite') {
    const { openSqliteStore } = await import('./sqlite/store.ts')
    const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
    if (!file) throw new StoreUnavailable(`${url} names no file`)
    const caps = { idempotencyBytes: maxTotal, recordBytes: options.maxRecords ?? 4 * 2 ** 30, ledgerKeep }
    return openSqliteStore({ file, instance, clock, log, caps, maxRecord })
  }
  if (REDIS_SCHEMES.has(scheme)) {
    const { openRedisStore } = await import('./redis/store.ts')
    return openRedisStore({
      url,
      timeout,
      instance,
      clock,
      log,
      ledgerKeep,
      maxRecord,
      maxTotal,
      dataDir: options.dataDir ?? './data',
    })
  }
  throw new StoreUnavailable(
    `${scheme || url}: no such kind of store; use sqlite:, redis:, rediss:, redis+sentinel: or redis+cluster:`,
  )
}

const REDIS_SCHEMES = new Set([
  'redis',
  'rediss',
  'redis+sentinel',
  'rediss+sentinel',
  'redis+cluster',
  'rediss+cluster',
])

function safeName(name: string): string {
  return name.replace(/[^A-Za-z0-9_.-]/g, '_').slice(0, 80)
}
