import v8 from 'node:v8'
import vm from 'node:vm'

v8.setFlagsFromString('--expose-gc')
const collect = vm.runInNewContext('gc') as () => void

/** Bytes that are in use when all that is dead has been collected. */
export async function memory(): Promise<number> {
  // A collection that finds another under way finishes that one, and keeps what has died since it began.
  for (let i = 0; i < 3; i++) {
    collect()
    await new Promise<void>(resolve => setImmediate(resolve))
  }
  // Not `external`: what it says of freed buffers lags behind a collection, by half a megabyte a stream on a busy
  // machine.
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}
