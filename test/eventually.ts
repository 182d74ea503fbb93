/** How a test waits. No test sleeps to synchronise with something else, and none asserts how long something took. */
import { inspect } from 'node:util'

/**
 * Far longer than any condition takes on a busy machine, so that only a condition that never becomes true reaches it.
 */
const DEADLINE_MS = 60_000

/**
 * Resolves when `holds` returns true. An exception from `holds` ends the wait and is passed on.
 * @param seen returns a value that the error shows together with the condition
 * @throws Error after the deadline, with the condition and the last value of `seen`
 */
export async function eventually(
  holds: () => boolean | Promise<boolean>,
  seen?: () => unknown,
  deadlineMs = DEADLINE_MS,
): Promise<void> {
  const end = performance.now() + deadlineMs
  while (!(await holds())) {
    if (performance.now() > end) {
      const last = seen ? `\nlast seen: ${inspect(await seen(), { depth: 5 })}` : ''
      throw new Error(`not within ${deadlineMs / 1000} s: ${holds}${last}`)
    }
    await new Promise<void>(resolve => setTimeout(resolve, 5))
  }
}

/**
 * Resolves when a number that keeps growing has stayed the same for ten checks, 25 ms apart. For example when a writer
 * has stopped because every buffer on the way is full.
 */
export async function standsStill(figure: () => number): Promise<void> {
  let last = figure()
  for (let same = 0; same < 10; same = figure() === last ? same + 1 : 0) {
    last = figure()
    await timersOf(25)
  }
}

/**
 * Resolves when every timer of at most `ms` that this process set before the call has fired. Use it before asserting
 * that something did not happen. Do not use it to wait for another process, or for something that needs more than a
 * timer.
 */
export function timersOf(ms: number): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms + 1))
}

/** Blocks this thread: none of its timers, sockets and promises runs until `ms` milliseconds have passed. */
export function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
