/** Opens the accounts of a store alone, beside a running gateway or without one: no lock, no lease, no journal. */
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { StoreUnavailable } from '../core/canon/errors.ts'
import type { AccountStore } from '../core/ports/accounts.ts'
import type { UsageFilter, UsageSum } from '../core/ports/store.ts'

/** Timeout of one call to Redis in ms: no client waits for it. */
const TIMEOUT_MS = 10_000

export interface OpenAccounts {
  readonly accounts: AccountStore
  /** As of `Store`. */
  usage(filter: UsageFilter): AsyncIterable<UsageSum[]>
  close(): Promise<void>
}

/**
 * @param url as in `StoreOptions`; a database file that does not exist is made
 * @param readOnly nothing is made, and nothing brought up to date
 * @throws StoreUnavailable when the store cannot be opened or has a format that this build does not use
 */
export async function openAccounts(url: string, { readOnly = false } = {}): Promise<OpenAccounts> {
  if (url.startsWith('sqlite:')) {
    const { SqliteAccounts } = await import('./sqlite/accounts.ts')
    const { checkCurrent, makePrivate, prepare } = await import('./sqlite/schema.ts')
    const file = url.slice('sqlite:'.length).replace(/^\/\/(?=\/)/, '')
    if (file === ':memory:')
      throw new StoreUnavailable('a store in memory is known to its gateway alone; name a file in `store`')
    let db: DatabaseSync | undefined
    try {
      if (readOnly) {
        db = new DatabaseSync(file, { readOnly })
        db.exec('PRAGMA busy_timeout = 5000')
        checkCurrent(db, file)
      } else {
        fs.mkdirSync(path.dirname(path.resolve(file)), { recursive: true, mode: 0o700 })
        makePrivate(file)
        db = new DatabaseSync(file)
        prepare(db, file)
        // An import adds digests at random places of the index. SQLite's own 2 MiB (KiB, when negative) and a checkpoint
        // every 1000 pages let it write each page again and again, and a million accounts took three times as long.
        db.exec('PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 16384')
      }
    } catch (error) {
      db?.close()
      if (error instanceof StoreUnavailable) throw error
      throw new StoreUnavailable(`cannot open ${file}: ${(error as Error).message}`, error)
    }
    const { scanUsage } = await import('./sqlite/ledger.ts')
    const opened = db
    return {
      accounts: new SqliteAccounts(opened),
      usage: filter => scanUsage(opened, filter),
      close: async () => opened.close(),
    }
  }
  const { RedisAccounts } = await import('./redis/accounts.ts')
  const { RedisClient } = await import('./redis/client.ts')
  const { bringUpToDate, checkLayout } = await import('./redis/format.ts')
  const quiet = () => {}
  const client = new RedisClient({
    url,
    timeout: TIMEOUT_MS,
    log: { debug: quiet, info: quiet, warn: quiet, error: quiet },
  })
  try {
    await client.connect()
    await (readOnly ? checkLayout : bringUpToDate)(client)
  } catch (error) {
    client.disconnect()
    throw error
  }
  const { drainOf } = await import('./redis/drained.ts')
  const { scanUsage } = await import('./redis/usage.ts')
  return {
    accounts: new RedisAccounts(client),
    usage: filter => scanUsage(client, drainOf(url), filter),
    close: async () => client.disconnect(),
  }
}
