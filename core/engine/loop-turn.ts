import { systemClock } from '../tools/clock.ts'
import { FairTurns, RestingTurns } from '../tools/fair.ts'
import type { Budget } from './budget.ts'

/**
 * Event-loop turns for slices of large work: reading large bodies, opening stored data, masking prompts. Organizations
 * take turns, and a turn holds one slice, so that any other exchange waits for at most one of them.
 */
export const loopTurns = new FairTurns()

/**
 * The same for work that takes long in one piece: a body of many values, a schema with thousands of places. After it
 * its organization rests. Without that a flood of such schemas took the p99 of a victim from 36 to 230 ms.
 */
const REST_TIMES = 2
export const longTurns = new RestingTurns(loopTurns, systemClock, REST_TIMES)

export const loopSlices: Budget = {
  name: 'loop_slices',
  bound: 'slices of large work on the event loop: reading large bodies, opening stored data, masking prompts',
  owner: 'tenant',
  each: 'by turns',
  all: 'one in a turn of the event loop, some 1 to 2 ms',
  over: 'nothing: the next waits',
  figures: () => ({ waiting: loopTurns.waiting }),
}

export const longWork: Budget = {
  name: 'long_work',
  bound: 'work that takes long in one piece: smaller bodies of more than 4,000 values',
  owner: 'tenant',
  each: `one at a time, each in a turn of the event loop of its own, and after it a rest of ${REST_TIMES} times as long as it took`,
  over: 'nothing: the next waits',
  seen: '`sluice_preparing_requests`',
  figures: () => ({ used: longTurns.running, waiting: longTurns.waiting }),
}
