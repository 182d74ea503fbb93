/**
 * The thread of ThreadWriter. It has one connection, and runs one transaction for each message. It answers null, or the
 * error message of a failed transaction.
 */
import { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { prepare } from './schema.ts'
import { type Caps, Tables, type Write } from './tables.ts'

const { file, caps } = workerData as { file: string; caps: Caps }
const db = new DatabaseSync(file)
prepare(db, file)
const tables = new Tables(db, caps)

parentPort!.on('message', (message: Write[] | 'close') => {
  if (message === 'close') {
    db.close()
    parentPort!.close()
    return
  }
  try {
    tables.apply(message)
    parentPort!.postMessage(null)
  } catch (error) {
    parentPort!.postMessage((error as Error).message)
  }
})
