/** Opens the store that gateway.yaml names: `sqlite:PATH` (embedded in this process) or a Redis URL (shared). */
import { randomBytes } from 'node:crypto'
import os from 'node:os'
import { StoreUnavailable } from '../core/canon/errors.ts'
import type { Logger } from '../core/plugin.ts'
import type { AuditBounds } from '../core/ports/accounts.ts'
import type { Store } from '../core/ports/store.ts'
import type { Clock } from '../core/tools/clock.ts'
import { folderOf, isLocal, localMemory } from './local.ts'

/** What retention leaves until it was shipped. */
export interface ShipRetention {
  /** `nameOfTarget` in ship/ship.ts. */
  target: string
  /** Rows that were not shipped are removed when they are older than this, ms, and than `ledgerKeep`. Null: never. */
  keepUnshipped: number | null
}

export interface StoreOptions {
  /**
   * `sqlite:./data/gateway.db`, `sqlite::memory:`, `local:FOLDER`, `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://`
   * (docs/ledger.md).
   */
  url: string
  /** Timeout of one call to Redis, ms. */
  timeout: number
  /**
   * Name of this process in journals and leases. Each start appends random characters, which make it unique. Default:
   * host name and process id.
   */
  instance?: string
  clock: Clock
  log: Logger
  /** How long ledger rows are kept, ms. Null or absent: for ever. */
  ledgerKeep?: number | null
  /** Rows that were not shipped to this target are kept for longer than `ledgerKeep`. Null or absent: they are not. */
  ship?: ShipRetention | null
  /** How much of the audit is kept. Absent: all of it. */
  audit?: AuditBounds
  idempotency?: {
    /** A reply of more than this many bytes is not kept. Default 4 MiB. */
    maxRecord?: number
    /** All kept replies together take at most this many bytes. Default 1 GiB. */
    maxTotal?: number
  }
  /**
   * `local:` only: the memory of its server, in bytes. What is retained may have a quarter of it, idempotency an eighth, and
   * values of plugins a sixteenth. Absent or null: `localMemory`.
   */
  maxMemory?: number | null
  /** All retained responses and continuation data together take at most this many bytes. Default 4 GiB. */
  maxRecords?: number
  /** All values of plugins together take at most this many bytes. Default 256 MiB. */
  maxValues?: number
  /**
   * Redis only: how many replicas must have a ledger row before it leaves the journal. `auto`, the default: one, as soon
   * as this process has seen one.
   */
  replicas?: number | 'auto'
  /** The part of each total that one organization may have: above 0, at most 1. Default 0.25. */
  share?: number
  /**
   * Redis only: the folder that holds `journal/`. Default ./data. SQLite keeps its journal beside the database file.
   */
  dataDir?: string
  /** A Redis that is no local one only: the folder `data` beside the configuration, where a gateway has one. */
  configDir?: string
}

/**
 * Opens a store. SQLite must open at once. Redis need not answer yet: the store then connects when it can.
 * @throws StoreUnavailable when the URL is wrong, or the database cannot be opened
 * @throws FormatRefused (a StoreUnavailable) when the stored data has a format that this build cannot use
 */
export async function openStore(options: StoreOptions): Promise<Store> {
  const { url, timeout, clock, log, audit } = options
  const scheme = url.slice(0, Math.max(0, url.indexOf(':')))
  // A restarted process must not have the name of the dead process before it.
  const instance = `${safeName(options.instance ?? `${os.hostname()}-${process.pid}`)}-${randomBytes(4).toString('hex')}`
  const maxRecord = options.idempotency?.maxRecord ?? 4 << 20
  const memory = isLocal(url) ? (options.maxMemory ?? localMemory()) : Number.POSITIVE_INFINITY
  const maxTotal = Math.min(options.idempotency?.maxTotal ?? 1 << 30, Math.floor(memory / 8))
  const maxRecords = Math.min(options.maxRecords ?? 4 * 2 ** 30, Math.floor(memory / 4))
  const maxValues = Math.min(options.maxValues ?? 256 * 2 ** 20, Math.floor(memory / 16))
  const share = options.share ?? 0.25
  const ledgerKeep = options.ledgerKeep ?? null
  const ship = options.ship ?? null
  if (scheme === 'sqlite') {
    const { openSqliteStore } = await import('./sqlite/store.ts')
    const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
    if (!file) throw new StoreUnavailable(`${url} names no file`)
    const kept = { ledgerKeep, ship, ...(audit && { audit }) }
    const caps = { idempotencyBytes: maxTotal, recordBytes: maxRecords, valueBytes: maxValues, share, ...kept }
    return openSqliteStore({ file, instance, clock, log, caps, maxRecord })
  }
  if (isLocal(url) || REDIS_SCHEMES.has(scheme)) {
    const { openRedisStore } = await import('./redis/store.ts')
    return openRedisStore({
      url,
      timeout,
      instance,
      clock,
      log,
      ledgerKeep,
      ship,
      ...(audit && { audit }),
      maxRecord,
      maxTotal,
      maxRecords,
      maxValues,
      share,
      replicas: options.replicas ?? 'auto',
      dataDir: isLocal(url) ? folderOf(url) : (options.dataDir ?? './data'),
      configDir: isLocal(url) ? undefined : options.configDir,
    })
  }
  throw new StoreUnavailable(
    `${scheme || url}: no such kind of store; use sqlite:, local:, redis:, rediss:, redis+sentinel: or redis+cluster:`,
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
