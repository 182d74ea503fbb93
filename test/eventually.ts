/** How a test waits. Nothing in these tests sleeps to be in step with something else, or asserts how long a thing took. */
import { inspect } from 'node:util'

/** Far above what anything takes on a machine that is busy with others: only a condition that never comes true meets it. */
const DEADLINE_MS = 60_000

/**
 * Resolves when `holds` does; what `holds` throws ends the wait.
 * @param seen what the failure shows beside the condition
 * @throws after 60 s, with the condition and what was seen last
 */
export async function eventually(holds: () => boolean | Promise<boolean>, seen?: () => unknown): Promise<void> {
  const end = performance.now() + DEADLINE_MS
  while (!(await holds())) {
    if (performance.now() > end) {
      const last = seen ? `\nlast seen: ${inspect(await seen(), { depth: 5 })}` : ''
      throw new Error(`not within ${DEADLINE_MS / 1000} s: ${holds}${last}`)
    }
    await new Promise<void>(resolve => setTimeout(resolve, 5))
  }
}

/** Resolves when a figure that something keeps raising has stood still for many turns of the event loop: every buffer on the way is full. */
export async function standsStill(figure: () => number): Promise<void> {
  let last = figure()
  for (let same = 0; same < 10; same = figure() === last ? same + 1 : 0) {
    last = figure()
    await timersOf(25)
  }
}

/**
 * Resolves when every timer of at most `ms` that this process had armed before the call has fired: for what must not have happened by then. It is no way to wait
 * for another process, nor for what takes more than a timer.
 */
export function timersOf(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms + 1))
}

/** Stops this thread: no timer, no socket and no promise of it gets a turn. */
export function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
