/**
 * Collects the events of one reply (core/events.ts, in grammar order) into the canonical assistant turn that the next request would
 * replay. Retained responses store such turns, not wire items, so that any model and dialect can continue them (RESP-2).
 */
import type { CallPart, Part, ReasoningPart, SearchPart, Turn } from './conversation.ts'
import type { StreamEvent } from './events.ts'

export class ReplyRecorder {
  readonly #parts: Part[] = []
  readonly #path: string
  /** The text or refusal that further deltas extend. */
  #open: { type: 'text' | 'refusal'; text: string } | undefined
  #reasoning: ReasoningPart | undefined
  #call: CallPart | undefined
  #search: SearchPart | undefined

  /** @param path named by errors about recorded calls: the request member that brings them back */
  constructor(path = 'previous_response_id') {
    this.#path = path
  }

  push(event: StreamEvent): void {
    switch (event.type) {
      case 'text':
      case 'refusal':
        if (event.text === '') return
        if (this.#open?.type === event.type) this.#open.text += event.text
        else this.#parts.push((this.#open = { type: event.type, text: event.text }))
        return
      case 'break':
        this.#open = undefined
        return
      case 'reasoning': {
        const part = this.#reasoningPart()
        if (event.id !== undefined) part.handle = event.id
        while (part.summary.length <= event.part) part.summary.push('')
        part.summary[event.part] += event.text
        return
      }
      case 'reasoning_end': {
        const part = this.#reasoningPart()
        if (event.handle !== undefined) part.handle = event.handle
        if (event.continuation !== undefined) part.continuation = event.continuation
        this.#reasoning = undefined
        return
      }
      case 'tool_call': {
        this.#open = undefined
        const { id, kind, name } = event
        const call: CallPart = { type: 'call', id, kind, name, input: '', path: this.#path }
        if (event.namespace !== undefined) call.namespace = event.namespace
        if (event.continuation !== undefined) call.continuation = event.continuation
        this.#call = call
        return
      }
      case 'tool_args':
        if (this.#call) this.#call.input += event.text
        return
      case 'tool_end':
        // A call enters the turn when it is whole: a cut one can't be answered, so it must not be replayed.
        if (this.#call) {
          if (this.#call.kind === 'function' && this.#call.input.trim() === '') this.#call.input = '{}'
          this.#parts.push(this.#call)
        }
        this.#call = undefined
        return
      case 'search_start':
        this.#open = undefined
        this.#search = { type: 'search', id: event.id, query: '', results: [] }
        return
      case 'search_end': {
        const search: SearchPart = this.#search ?? { type: 'search', id: event.id, query: '', results: [] }
        search.query = event.query
        search.results = event.results
        if (event.errorCode !== undefined) search.errorCode = event.errorCode
        if (event.continuation !== undefined) search.continuation = event.continuation
        this.#parts.push(search)
        this.#search = undefined
        return
      }
      default:
        // citations, activity, usage and the end leave nothing to replay
        return
    }
  }

  /** What was said so far; null when nothing was. */
  turn(): Turn | null {
    return this.#parts.length === 0 ? null : { role: 'assistant', parts: this.#parts }
  }

  #reasoningPart(): ReasoningPart {
    this.#open = undefined
    if (!this.#reasoning) this.#parts.push((this.#reasoning = { type: 'reasoning', summary: [] }))
    return this.#reasoning
  }
}
