/**
 * Deltas of one item that came in one read, as one event. Whoever looks at events sees one longer delta, which the
 * grammar of events.ts allows anywhere; a surface writes a frame for each of the pieces, so that the client gets the
 * provider's. An event for each of them would cost half as much again on its way (bench/README.md).
 */
import { appendAll } from '../tools/append.ts'
import type { StreamEvent, TextEvent } from './events.ts'

/** An event of which several in a row may become one. */
type Delta = Extract<StreamEvent, { type: 'text' | 'reasoning' | 'tool_args' }>

/**
 * The pieces are private, so that a copy of the event with another text (`{ ...event, text }`) has none of them: it is
 * one delta.
 */
class Joined {
  readonly text: string
  readonly #pieces: readonly string[]

  constructor(pieces: readonly string[]) {
    this.text = pieces.join('')
    this.#pieces = pieces
  }

  static piecesOf(event: object): readonly string[] | null {
    return #pieces in event ? event.#pieces : null
  }
}

class JoinedText extends Joined implements TextEvent {
  readonly type = 'text'
}

class JoinedReasoning extends Joined {
  readonly type = 'reasoning'
  readonly part: number
  declare readonly id?: string
  constructor(pieces: readonly string[], part: number, id?: string) {
    super(pieces)
    this.part = part
    if (id !== undefined) this.id = id
  }
}

class JoinedArgs extends Joined {
  readonly type = 'tool_args'
  readonly index: number
  constructor(pieces: readonly string[], index: number) {
    super(pieces)
    this.index = index
  }
}

/** The deltas of which an event was made, none of them empty; null for an event that is one delta. */
export const piecesOf: (event: StreamEvent) => readonly string[] | null = Joined.piecesOf

type ReasoningEvent = Extract<StreamEvent, { type: 'reasoning' }>

/** The same delta, or deltas, as the beginning of the item with this public id. */
export function withItemId(event: ReasoningEvent, id: string): ReasoningEvent {
  const pieces = piecesOf(event)
  return pieces ? new JoinedReasoning(pieces, event.part, id) : { ...event, id }
}

/** A delta with this text as the pieces that it was joined of; any other event as it is. */
export function withPieces(event: StreamEvent, pieces: readonly string[], text: string): StreamEvent {
  return isDelta(event) && event.text === text ? joined(event, pieces) : event
}

/** Joins the events that pass, as far as they are deltas of one item. */
export class DeltaJoiner {
  readonly #pass: (event: StreamEvent) => void
  #first: Delta | null = null
  /** The texts of the events that wait; null while `#first` is alone. */
  #pieces: string[] | null = null

  constructor(pass: (event: StreamEvent) => void) {
    this.#pass = pass
  }

  push(event: StreamEvent): void {
    const first = this.#first
    if (first !== null) {
      if (continues(first, event)) {
        this.#pieces ??= [...(piecesOf(first) ?? [first.text])]
        const pieces = piecesOf(event)
        if (pieces === null) this.#pieces.push(event.text)
        else appendAll(this.#pieces, pieces)
        return
      }
      this.flush()
    }
    if (isDelta(event)) this.#first = event
    else this.#pass(event)
  }

  /** Passes what waits. */
  flush(): void {
    const first = this.#first
    if (first === null) return
    const pieces = this.#pieces
    this.#first = null
    this.#pieces = null
    this.#pass(pieces === null ? first : joined(first, pieces))
  }
}

function isDelta(event: StreamEvent): event is Delta {
  switch (event.type) {
    case 'text':
      return event.logprobs === undefined && event.text !== ''
    case 'reasoning':
    case 'tool_args':
      return event.text !== ''
    default:
      return false
  }
}

/** Whether an event adds to the item of a delta, and says nothing else. */
function continues(first: Delta, event: StreamEvent): event is Delta {
  if (event.type !== first.type || !isDelta(event)) return false
  switch (first.type) {
    case 'text':
      return true
    case 'reasoning':
      return (
        first.id === undefined &&
        (event as typeof first).id === undefined &&
        first.part === (event as typeof first).part
      )
    case 'tool_args':
      return first.index === (event as typeof first).index
  }
}

function joined(first: Delta, pieces: readonly string[]): StreamEvent {
  switch (first.type) {
    case 'text':
      return new JoinedText(pieces)
    case 'reasoning':
      return new JoinedReasoning(pieces, first.part)
    case 'tool_args':
      return new JoinedArgs(pieces, first.index)
  }
}
