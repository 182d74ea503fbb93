/** What a layer of a call is built of that answers by itself: with events of its own, or with those of an earlier reply. */
import { asGatewayError } from '../canon/errors.ts'
import type { StreamEvent } from '../canon/events.ts'
import { DeltaJoiner } from '../canon/joined.ts'
import { loopTurn } from '../plugin.ts'
import type { Call, CallControl, CallFacts, CallSink, LayerAnswer } from '../ports/call.ts'
import { callId, itemId, searchId } from '../tools/ids.ts'
import { SinkAround } from './layers.ts'

/** UTF-16 units of one delta. Longer ones are cut, so that a client that reads slowly is waited for in between. */
const PIECE = 4096
/** UTF-16 units that are sent in one turn of the event loop: to count and encode them takes some milliseconds. */
const SLICE = 65_536
/** What an event counts beside its text. */
const EVENT_UNITS = 64

/**
 * Answers a call with these events, in place of a backend. They may be those of an earlier reply: calls and searches
 * get new ids. They follow the grammar of canon/events.ts; usage and finish may be left out.
 */
export function answerCall(
  call: Call,
  sink: CallSink,
  events: readonly StreamEvent[],
  answer: LayerAnswer,
): CallControl {
  call.report.answeredInstead(answer)
  return new Answer(call.facts, sink, events).start()
}

class Answer implements CallControl {
  readonly #facts: CallFacts
  readonly #sink: CallSink
  readonly #events: readonly StreamEvent[]
  /** The next event, and how much of its text was sent. */
  #next = 0
  #sent = 0
  /** UTF-16 units in this turn of the event loop. */
  #units = 0
  #paused = false
  /** The loop below runs, or waits for its next turn. */
  #running = false
  #over = false
  /** New ids of searches, by those that the events have. */
  readonly #searches = new Map<string, string>()

  constructor(facts: CallFacts, sink: CallSink, events: readonly StreamEvent[]) {
    this.#facts = facts
    this.#sink = sink
    this.#events = events
  }

  start(): this {
    this.#run()
    return this
  }

  #run(): void {
    if (this.#running) return
    this.#running = true
    try {
      while (!this.#paused && !this.#over) {
        if (this.#units >= SLICE) return this.#later()
        this.#step()
      }
    } catch (error) {
      // The caller may be a turn of the event loop, or a client that reads on: neither could answer this client.
      this.#over = true
      this.#sink.fail(asGatewayError(error))
    }
    this.#running = false
  }

  #later(): void {
    this.#units = 0
    void loopTurn(this.#facts).then(() => {
      this.#running = false
      this.#run()
    })
  }

  #step(): void {
    if (this.#sink.closed) {
      this.#over = true
      return
    }
    const event = this.#events[this.#next]
    if (!event) {
      this.#over = true
      return this.#sink.end()
    }
    this.#sink.emit(this.#piece(event))
    if (!this.#over && !this.#sink.flush()) this.#paused = true
  }

  #piece(event: StreamEvent): StreamEvent {
    this.#units += EVENT_UNITS
    if (!isLong(event)) {
      this.#next++
      if ('text' in event) this.#units += event.text.length
      return this.#renewed(event)
    }
    const { text } = event
    let to = Math.min(text.length, this.#sent + PIECE)
    // Both halves of a character stay together.
    if (to < text.length && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800) to++
    const piece = { ...event, text: text.slice(this.#sent, to) }
    this.#units += PIECE
    this.#sent = to === text.length ? 0 : to
    if (this.#sent === 0) this.#next++
    return this.#renewed(piece)
  }

  /** Ids belong to one reply; those of reasoning are given on the way to the client. */
  #renewed(event: StreamEvent): StreamEvent {
    switch (event.type) {
      case 'tool_call':
        return { ...event, id: callId() }
      case 'reasoning': {
        const { type, text, part } = event
        return { type, text, part }
      }
      case 'reasoning_end': {
        const { type, continuation } = event
        return continuation === undefined ? { type } : { type, continuation }
      }
      case 'search_start':
        return { ...event, id: this.#searchId(event.id) }
      case 'search_end': {
        const id = this.#searchId(event.id)
        this.#searches.delete(event.id)
        return { ...event, id }
      }
      case 'compaction':
        return { ...event, id: itemId(), sealed: '' }
      default:
        return event
    }
  }

  #searchId(id: string): string {
    let renewed = this.#searches.get(id)
    if (!renewed) this.#searches.set(id, (renewed = searchId()))
    return renewed
  }

  pause(): void {
    this.#paused = true
  }
  resume(): void {
    this.#paused = false
    this.#run()
  }
  abort(): undefined {
    this.#over = true
  }
}

type Delta = Extract<StreamEvent, { type: 'text' | 'reasoning' | 'tool_args' }>

function isLong(event: StreamEvent): event is Delta {
  if (event.type !== 'text' && event.type !== 'reasoning' && event.type !== 'tool_args') return false
  return event.text.length > PIECE && !('logprobs' in event && event.logprobs)
}

/**
 * Passes a call's reply on and keeps its events, for `answerCall`. Deltas of one item are joined, whenever they came.
 * What is kept is no longer referenced once it is over the bound, or the reply failed.
 */
export class EventRecorder extends SinkAround {
  readonly #most: number
  readonly #done: (events: readonly StreamEvent[] | null) => void
  readonly #joiner = new DeltaJoiner(event => {
    this.#units += EVENT_UNITS
    this.#events?.push(event)
  })
  /** Null once the reply cannot be kept. */
  #events: StreamEvent[] | null = []
  #units = 0
  #finished = false

  /**
   * @param most UTF-16 units of the events as JSON, about; a longer reply is not kept
   * @param done called once the reply has ended and was passed on: with the events of a whole reply, the last one its
   * `finish`; with null where it failed, was cut, or is longer. Not called where the call was stopped.
   */
  constructor(sink: CallSink, most: number, done: (events: readonly StreamEvent[] | null) => void) {
    super(sink)
    this.#most = most
    this.#done = done
  }

  override emit(event: StreamEvent): void {
    this.#keep(event)
    this.sink.emit(event)
  }

  #keep(event: StreamEvent): void {
    if (!this.#events || (event.type === 'activity' && !event.unseen)) return
    this.#units += unitsOf(event)
    if (this.#units > this.#most || event.type === 'error' || (event.type === 'usage' && event.cut)) this.#events = null
    else this.#joiner.push(event)
    this.#finished ||= event.type === 'finish'
  }

  override end(): void {
    this.#joiner.flush()
    const events = this.#finished && this.#units <= this.#most ? this.#events : null
    this.#events = null
    this.sink.end()
    this.#done(events)
  }

  override fail(...failure: Parameters<CallSink['fail']>): void {
    this.#events = null
    this.sink.fail(...failure)
    this.#done(null)
  }
}

function unitsOf(event: StreamEvent): number {
  const delta = event.type === 'text' || event.type === 'reasoning' || event.type === 'tool_args'
  if (delta && !('logprobs' in event && event.logprobs)) return event.text.length + 1
  return JSON.stringify(event).length
}
