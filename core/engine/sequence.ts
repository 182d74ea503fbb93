/**
 * Puts a decoder's events in the order of the grammar in core/canon/events.ts: items strictly one after the other,
 * `usage` and `finish` last. Providers may interleave parallel calls; the events of a later item wait until the open
 * item is complete.
 *
 * Many providers never say that a call has ended. A function call counts as complete once its arguments are one
 * balanced JSON value, or when the stream ends; until then a second call waits. A call with empty arguments is not
 * complete: its deltas may still arrive.
 */
import type { FinishEvent, ProviderUsage, StreamEvent } from '../canon/events.ts'
import { JsonNesting } from '../tools/json-text.ts'

/** The events of one call, or the events between two calls. */
interface EventGroup {
  /** Index of the call; -1 for everything that is not a call. */
  call: number
  /** Its events, while an earlier group is open. */
  waiting: StreamEvent[]
  /** Follows the arguments of a function call, to see when they are complete. Null for all other groups. */
  json: JsonNesting | null
  /** True once the provider has ended the call. Always true of a group that is not a call. */
  ended: boolean
}

export class Sequencer {
  /** The first group is open: its events pass at once. Those of the others wait. */
  #groups: EventGroup[] = []
  /** Calls that have ended. */
  #calls = 0
  /** True while a reasoning item is open. */
  #reasoning = false
  #usage: ProviderUsage | null = null
  #estimated = false
  #finish: FinishEvent | null = null
  readonly #pass: (event: StreamEvent) => void

  constructor(pass: (event: StreamEvent) => void) {
    this.#pass = pass
  }

  push(event: StreamEvent): void {
    switch (event.type) {
      case 'usage':
        this.#usage = { ...this.#usage, ...event.usage }
        this.#estimated ||= event.estimated === true
        return
      case 'finish':
        this.#finish = event
        return
      case 'activity':
      case 'error':
      case 'bytes':
        this.#pass(event)
        return
      case 'tool_call': {
        const group: EventGroup = {
          call: event.index,
          waiting: [],
          json: event.kind === 'function' ? new JsonNesting() : null,
          ended: false,
        }
        this.#closeIfComplete()
        this.#groups.push(group)
        this.#deliver(group, event)
        return
      }
      case 'tool_args':
      case 'tool_end': {
        const group = this.#group(event.index)
        if (!group) return
        if (event.type === 'tool_end') group.ended = true
        else {
          group.json?.push(event.text)
          if (event.text !== '') this.#deliver(group, event)
        }
        if (event.type === 'tool_end' && group === this.#groups[0]) this.#closeOpen()
        return
      }
      default: {
        if (this.#groups.length > 0) {
          this.#closeIfComplete()
          if (this.#groups.length > 0) {
            let last = this.#groups.at(-1)!
            if (last.call !== -1) {
              last = { call: -1, waiting: [], json: null, ended: true }
              this.#groups.push(last)
            }
            last.waiting.push(event)
            return
          }
        }
        this.#item(event)
      }
    }
  }

  /** The provider's finish event, if it has arrived. */
  get finish(): FinishEvent | null {
    return this.#finish
  }

  /** The provider's usage report, unless it was passed already. For a cut reply this is all that it reported. */
  takeReport(): StreamEvent | null {
    const usage = this.#usage
    if (!usage) return null
    this.#usage = null
    return this.#estimated ? { type: 'usage', usage, estimated: true } : { type: 'usage', usage }
  }

  /**
   * The upstream has ended: passes the waiting events, then `usage`, then `finish`.
   * @param otherwise the finish when the provider sent none
   */
  end(otherwise: FinishEvent): void {
    const finish = this.#finish ?? otherwise
    this.flush(finish)
    const report = this.takeReport()
    if (report) this.#pass(report)
    // A reply with complete calls ends so that the client runs them, whatever reason the provider gave (wire.md F.6).
    let reason = finish.reason
    if (reason === 'stop' && this.#calls > 0) reason = 'tool_calls'
    else if (reason === 'tool_calls' && this.#calls === 0) reason = 'stop'
    this.#pass(reason === finish.reason ? finish : { ...finish, reason })
  }

  /**
   * Passes the waiting events. A call that a limit cut off gets no `tool_end`: it cannot be executed (wire.md F.6).
   * The events that wait behind it, of parallel calls, are then dropped.
   */
  flush(finish?: FinishEvent): void {
    const cut = finish !== undefined && finish.reason !== 'stop' && finish.reason !== 'tool_calls'
    while (this.#groups.length > 0) {
      const group = this.#groups[0]!
      if (group.call !== -1 && cut && !group.ended && !(group.json?.closed ?? false)) return
      this.#closeOpen()
    }
    if (this.#reasoning) this.#endReasoning()
  }

  #group(call: number): EventGroup | undefined {
    for (const group of this.#groups) if (group.call === call) return group
    return undefined
  }

  #deliver(group: EventGroup, event: StreamEvent): void {
    if (group === this.#groups[0]) this.#item(event)
    else group.waiting.push(event)
  }

  #closeIfComplete(): void {
    const open = this.#groups[0]
    if (open?.json?.closed) this.#closeOpen()
  }

  /** Ends the open group and opens the next one, with all its waiting events. */
  #closeOpen(): void {
    for (;;) {
      const group = this.#groups.shift()
      if (!group) return
      if (group.call !== -1) {
        this.#calls++
        this.#pass({ type: 'tool_end', index: group.call })
      }
      const next = this.#groups[0]
      if (!next) return
      for (const event of next.waiting) this.#item(event)
      next.waiting = []
      if (!next.ended && !(next.json?.closed && this.#groups.length > 1)) return
    }
  }

  #item(event: StreamEvent): void {
    if (event.type === 'reasoning') this.#reasoning = true
    else if (event.type === 'reasoning_end') this.#reasoning = false
    else if (this.#reasoning) this.#endReasoning()
    this.#pass(event)
  }

  #endReasoning(): void {
    this.#reasoning = false
    this.#pass({ type: 'reasoning_end' })
  }
}
