import { FairTurns } from './fair.ts'

/**
 * Event-loop turns for slices of large work: reading large bodies, opening stored data, masking prompts. Organizations
 * take turns, and a turn holds one slice, so that any other exchange waits for at most one of them.
 */
export const loopTurns = new FairTurns()
