import v8 from 'node:v8'
import { HEAP_GROWING_PERCENT } from '../../bin/flags.mjs'
import type { Clock } from '../../core/tools/clock.ts'

/** A full collection begins when the live heap has grown by at most about this much. */
const GROWTH_BYTES = 256 * 1024 * 1024
/** A large heap grows by at least this many percent, so that collections do not follow each other. */
const LEAST_PERCENT = 20
const PERIOD_MS = 200

/**
 * Bounds what the heap of the process grows by between two full collections. It may triple while it is small, which
 * saves collections. If it tripled when a flood has made it large, hundreds of megabytes would be garbage.
 *
 * V8 sets the size of the next collection at the end of each one, by a flag that it reads then. The heap before a
 * collection is at least as large as what survives it, so a percentage of the former is enough. Node documents that
 * flags may be changed while it runs, with care: this one is a number that nothing else depends on.
 */
export function boundHeapGrowth(clock: Clock): void {
  let percent = HEAP_GROWING_PERCENT
  const look = () => {
    const wanted = growingPercent(v8.getHeapStatistics().used_heap_size)
    if (wanted !== percent) v8.setFlagsFromString(`--heap-growing-percent=${wanted}`)
    percent = wanted
    clock.setTimer(PERIOD_MS, look)
  }
  clock.setTimer(PERIOD_MS, look)
}

/** By how many percent a heap of this many bytes may grow, in steps of ten. */
export function growingPercent(bytes: number): number {
  const percent = Math.floor((10 * GROWTH_BYTES) / bytes) * 10
  return Math.max(LEAST_PERCENT, Math.min(HEAP_GROWING_PERCENT, percent))
}
