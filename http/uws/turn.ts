/**
 * When it is safe to write to a uWebSockets.js socket (R3 of docs/spec/listener.md).
 *
 * uWebSockets.js parses everything that one read brought before it returns to the event loop. If a response is
 * completed while the parser still runs, bytes behind the request (a smuggled tail, a pipelined request) are served
 * as a second request; if the response is still pending, uWebSockets.js closes the socket instead. Microtasks run
 * between the parser's callbacks, so they do not help. Therefore nothing is written from the first callback in an
 * event-loop turn until its setImmediate phase: what should be sent waits for the end of the turn. All deferred work
 * shares one setImmediate. All listeners of the process share one event loop, and so this state. Outside such a turn
 * (in a timer, or on data from upstream) writing at once is safe.
 */
let parsing = false
let waiting: Deferred[] = []
let spare: Deferred[] = []

/** Work that waits for the end of the event-loop turn. */
export interface Deferred {
  /** Must not throw. */
  endOfTurn(): void
}

/** Call this first in every callback of the parser. */
export function enterTurn(): void {
  if (parsing) return
  parsing = true
  setImmediate(endTurn)
}

/** Whether the parser may be running. If so, do not write now but `defer` the write. */
export function inTurn(): boolean {
  return parsing
}

/** Calls `work.endOfTurn()` when the event-loop turn has ended. Call it only while `inTurn()`. */
export function defer(work: Deferred): void {
  waiting.push(work)
}

function endTurn(): void {
  parsing = false
  const work = waiting
  waiting = spare
  for (let i = 0; i < work.length; i++) work[i]!.endOfTurn()
  work.length = 0
  spare = work
}
