import { type Budget, counter } from '../../core/engine/budget.ts'

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
/** The number of this turn, and the pieces that it has brought. */
let turn = 0
let pieces = 0
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

/**
 * A turn may have this many pieces: chunks of bodies, each 0.2 to 0.4 µs of work, and frames of WebSockets. uSockets
 * reads a socket until the kernel's buffer is empty, and nothing but closing it ends the read: chunks of one byte, 16
 * MB of them, took a second. From then on a connection that has brought more than its own part is closed.
 */
const PIECES_OF_TURN = 10_000
const PIECES_OF_ONE = 500
/** A piece of these costs as much as this many chunks of a body that is collected. */
export const STREAMED_PIECE = 8
export const FRAME_PIECE = 4

export const turnPiecesBudget: Budget = {
  name: 'turn_pieces',
  bound: `what one read of a connection brings, on \`uws\`: chunks of bodies, pieces of a body that is streamed (each counts for ${STREAMED_PIECE}), WebSocket frames (each for ${FRAME_PIECE})`,
  owner: 'connection',
  each: PIECES_OF_ONE,
  all: [PIECES_OF_TURN, 'in a turn of the event loop'],
  over: 'once all are used up, a connection over its own is closed',
  seen: '`sluice_turn_overruns_total`',
  metrics: [
    counter(
      'sluice_turn_overruns_total',
      'Connections closed for very many chunks or frames at once.',
      ({ open }) => open.overrunTurns,
    ),
  ],
}

/** Counts the bytes and pieces that arrive on one connection in a turn. */
export class TurnPieces {
  #turn = -1
  #own = 0

  /** Counts a piece. @returns true when the connection is to be closed, now and not at the end of the turn */
  overrun(weight = 1): boolean {
    if (this.#turn !== turn) {
      this.#turn = turn
      this.#own = 0
    }
    pieces += weight
    this.#own += weight
    return pieces > PIECES_OF_TURN && this.#own > PIECES_OF_ONE
  }
}

function endTurn(): void {
  parsing = false
  turn++
  pieces = 0
  const work = waiting
  waiting = spare
  for (let i = 0; i < work.length; i++) work[i]!.endOfTurn()
  work.length = 0
  spare = work
}
