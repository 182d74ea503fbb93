/**
 * The thread of ThreadWriter. It has one connection, and runs one transaction for each message. It answers `Applied`.
 */
import { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import type { KeptStats } from '../../core/ports/store.ts'
import { prepare } from './schema.ts'
import { type Caps, Tables, type Write } from './tables.ts'

/** How a transaction went. */
export interface Applied {
  /** Why it failed; null when it was committed. */
  error: string | null
  /** A sweep in it has left expired rows. */
  left: boolean
  /** Absent when it failed. */
  kept?: KeptStats
}

const { file, caps } = workerData as { file: string; caps: Caps }
const db = new DatabaseSync(file)
prepare(db, file)
// In KiB, when negative. With SQLite's own 2 MiB, rows of very many organizations take twice as long to book.
db.exec('PRAGMA cache_size = -16384')
const tables = new Tables(db, caps)

parentPort!.on('message', (message: Write[] | 'close') => {
  if (message === 'close') {
    db.close()
    parentPort!.close()
    return
  }
  try {
    const left = tables.apply(message)
    parentPort!.postMessage({ error: null, left, kept: tables.kept() } satisfies Applied)
  } catch (error) {
    parentPort!.postMessage({ error: (error as Error).message, left: false } satisfies Applied)
  }
})
