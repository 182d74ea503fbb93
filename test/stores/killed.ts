/** Both engines, as a `kill -9` of their gateway leaves them. */
import fs from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import type { Store } from '../../core/ports/store.ts'
import type { ManualClock } from '../../core/tools/clock.ts'
import { openStore } from '../../stores/index.ts'
import { openRedisStore, type RedisStore } from '../../stores/redis/store.ts'
import { options, recordingLog, temporary } from './kit.ts'
import { skipWithoutRedis } from './redis-server.ts'

/** A gateway's store, which ends as `kill -9` ends it: nothing is closed, and its lease runs out. */
export interface KillableEngine {
  name: string
  skip: string | false
  /** A store with nothing in it, and what opens it anew after a kill. */
  begin(clock: ManualClock): Promise<{ open(): Promise<Store>; kill(): Promise<void>; end(): Promise<void> }>
}

/** @param newRedis the URL of a Redis database that no other test uses at the time */
export const killableEngines = (newRedis: () => string): KillableEngine[] => [
  {
    name: 'sqlite',
    skip: false,
    async begin(clock) {
      let file = path.join(temporary(), 'gateway.db')
      const stores: Store[] = []
      return {
        async open() {
          const store = await openStore(options(`sqlite:${file}`, { clock }))
          stores.push(store)
          return store
        },
        async kill() {
          const copy = path.join(temporary(), 'gateway.db')
          for (const end of ['', '-wal']) if (fs.existsSync(file + end)) fs.copyFileSync(file + end, copy + end)
          fs.cpSync(file + '.journal', copy + '.journal', { recursive: true })
          file = copy
        },
        async end() {
          for (const store of stores) await store.close()
        },
      }
    },
  },
  {
    name: 'redis',
    skip: skipWithoutRedis,
    async begin(clock) {
      const url = newRedis()
      const redis = new Redis(url)
      await redis.flushdb()
      let dataDir = temporary()
      let starts = 0
      const stores: RedisStore[] = []
      return {
        async open() {
          const store = await openRedisStore({
            ...{
              url,
              timeout: 10_000,
              clock,
              log: recordingLog(),
              ledgerKeep: null,
              instance: `i${++starts}`,
              dataDir,
            },
            ...{ maxRecord: 1e6, maxTotal: 1e9, maxRecords: 1e9, maxValues: 1e9, share: 1, replicas: 'auto' },
          })
          stores.push(store)
          return store
        },
        async kill() {
          const copy = temporary()
          fs.cpSync(path.join(dataDir, 'journal'), path.join(copy, 'journal'), { recursive: true })
          dataDir = copy
          // From here on the killed process does nothing more.
          const killed = stores.at(-1)!
          killed.client.redis.disconnect()
          await killed.ledger.close(0)
          await redis.del(`{sluice:leases}:id:${killed.leases.id}`)
        },
        async end() {
          for (const store of stores) await store.close()
          redis.disconnect()
        },
      }
    },
  },
]
