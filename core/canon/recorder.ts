/**
 * Collects the events of one reply (core/canon/events.ts, in grammar order) into the canonical assistant turn that the
 * next request would send back. Retained responses store such turns instead of wire items, so that any model and
 * dialect can continue them (RESP-2).
 */
import type { CallPart, Part, ReasoningPart, SearchPart, Turn } from './conversation.ts'
import type { CompactionEvent, StreamEvent } from './events.ts'

export class ReplyRecorder {
  /** The compaction with which the reply began. Its summary is no part of the turn: it comes before it. */
  compaction: CompactionEvent | undefined
  readonly #parts: Part[] = []
  readonly #path: string
  /** The text or refusal that further deltas extend. */
  #open: { type: 'text' | 'refusal'; text: string } | undefined
  /** The reasoning, call or search whose events are arriving. */
  #reasoning: ReasoningPart | undefined
  #call: CallPart | undefined
  #search: SearchPart | undefined

  /** @param path the request member that brings recorded calls back; errors about them name it */
  constructor(path = 'previous_response_id') {
    this.#path = path
  }

  push(event: StreamEvent): void {
    switch (event.type) {
      case 'compaction':
        this.compaction = event
        return
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
        // A call is added to the turn only when it is complete: a cut call cannot be answered, so it must not be
        // replayed.
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
        // Citations, activity, usage and the end leave nothing to replay.
        return
    }
  }

  /** The turn so far; null when it is empty. */
  turn(): Turn | null {
    return this.#parts.length === 0 ? null : { role: 'assistant', parts: this.#parts }
  }

  #reasoningPart(): ReasoningPart {
    this.#open = undefined
    if (!this.#reasoning) this.#parts.push((this.#reasoning = { type: 'reasoning', summary: [] }))
    return this.#reasoning
  }
}
