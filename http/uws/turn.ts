/**
 * When it is safe to write to a uWebSockets.js socket (R3 of docs/spec/listener.md).
 *
 * uWebSockets.js parses all that one read brought before it returns to the event loop. An answer that is complete while the parser is still
 * going lets bytes behind the request (a smuggled tail, a pipelined request) be served as a second one; an answer that is still pending
 * makes it close the socket instead. Microtasks run between the parser's callbacks, so they are no escape. Hence: from the first callback of
 * a turn of the loop until its setImmediate phase, nothing is written; what wants to be sent waits for the end of the turn. All that wait share
 * one setImmediate. The loop is one for all listeners of the process, and so is its turn. Outside such a turn (a timer, an upstream's data) writing at once is safe.
 */
let parsing = false
let waiting: Deferred[] = []
let spare: Deferred[] = []

export interface Deferred {
  /** Must not throw. */
  endOfTurn(): void
}

/** First thing in every callback of the parser. */
export function enterTurn(): void {
  if (parsing) return
  parsing = true
  setImmediate(endTurn)
}

/** True: don't write now, `defer` it. */
export function inTurn(): boolean {
  return parsing
}

/** Runs `work` when the turn is over. Only while `inTurn()`. */
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
