/**
 * A thread of the open loop, which posts a message at each due time. Timers of the event loop have a resolution of only
 * one millisecond, and a loop that polls the clock would take the core away from the upstream.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { now } from './clock.ts'

const { start, periodMs, count } = workerData as { start: number; periodMs: number; count: number }
const never = new Int32Array(new SharedArrayBuffer(4))

for (let i = 0; i < count; i++) {
  const wait = start + i * periodMs - now()
  if (wait > 0) Atomics.wait(never, 0, 0, wait)
  parentPort!.postMessage(null)
}
