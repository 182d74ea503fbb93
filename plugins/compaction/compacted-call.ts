/**
 * A call whose conversation is compacted first:
 *
 *   start ──► the next layer writes a summary ──► the compaction, as an event ──► the reply ends (`only`)
 *                                                        │
 *                                                        └──► the next layer answers the compacted conversation
 *
 * Nothing of the first call's reply reaches the client but the compaction. The second call's events pass unchanged.
 */
import { keptTurns, standIn, withCapsule } from '../../core/canon/compaction.ts'
import type { Conversation } from '../../core/canon/conversation.ts'
import { asGatewayError, type ErrorCode, GatewayError } from '../../core/canon/errors.ts'
import type { CompactionEvent, FinishReason, StreamEvent } from '../../core/canon/events.ts'
import {
  type Call,
  type CallControl,
  type CallFault,
  type CallSink,
  Relay,
  type Send,
  SinkAround,
} from '../../core/plugin.ts'
import { itemId } from '../../core/tools/ids.ts'
import { MeterBusy } from '../../meter/index.ts'
import type { CompactionPlan } from '../shared/slots.ts'
import { askingForSummary, SummaryReader } from './summary.ts'

export interface CompactedCallOptions {
  plan: CompactionPlan
  /** UTF-16 units of messages of the user that stay. */
  keepText: number
  /** @throws MeterBusy when no thread is there to count a large one */
  tokens(conversation: Conversation): Promise<number>
}

export class CompactedCall extends SinkAround implements CallControl {
  readonly #call: Call
  readonly #next: Send
  readonly #options: CompactedCallOptions
  readonly #relay = new Relay()
  readonly #reader = new SummaryReader()
  /** The call was stopped, or has ended. */
  #over = false

  constructor(call: Call, sink: CallSink, next: Send, options: CompactedCallOptions) {
    super(sink)
    this.#call = call
    this.#next = next
    this.#options = options
  }

  start(): this {
    const sent = askingForSummary(this.#call.sent, this.#options.plan)
    this.#relay.make(() => this.#next({ ...this.#call, sent }, this))
    return this
  }

  // ---- the reply to the first call --------------------------------------------------------------------------------------

  override emit(event: StreamEvent): void {
    this.#reader.push(event)
  }

  /** A summary is small and goes nowhere yet, so its upstream is never paused. */
  override flush(): boolean {
    return true
  }

  override fail(error: GatewayError, fault?: CallFault): void {
    this.#over = true
    this.sink.fail(this.#named(error), fault)
  }

  override end(): void {
    if (this.#over || this.closed) return
    const { wish } = this.#options.plan
    const fault = faultOf(this.#reader.end(), this.#reader.summary, this.#options.plan)
    if (fault) return this.fail(fault)
    // Nobody waits for the answer any more, and the summary was paid for.
    if (wish.only || this.clientGone) return this.#conclude()
    this.#relay.to(null)
    const compacted = this.#compacted()
    this.#options.tokens(compacted).then(
      tokens => this.#goOn(compacted, tokens),
      error => {
        if (!this.#over && !this.closed) this.fail(error instanceof MeterBusy ? busy() : asGatewayError(error))
      },
    )
  }

  /** An error of the first call says what it was made for. */
  #named(error: GatewayError): GatewayError {
    const { code, details, headers, horizonMs, retriable, cause, bound } = error
    const { path } = this.#options.plan.wish
    const message = `The conversation could not be compacted ('${path}'): ${error.message}`
    return new GatewayError(code, {
      message,
      param: error.param ?? path,
      horizonMs,
      retriable,
      cause,
      bound,
      ...(details && { details }),
      ...(headers && { headers }),
    })
  }

  // ---- the compaction, and what follows ---------------------------------------------------------------------------------

  /** What the model answers: the summary in place of what was said before it. */
  #compacted(): Conversation {
    const { sent } = this.#call
    const text = { type: 'text' as const, text: standIn(this.#reader.summary) }
    return withCapsule(sent, keptTurns(sent.turns, this.#options.plan.wish.keeps), text, [])
  }

  #event(next: number | null): CompactionEvent {
    const { plan, keepText } = this.#options
    const { keeps } = plan.wish
    const kept = keptTurns(this.#call.asked.turns, keeps, keepText)
    const { summary, tokens, usage } = this.#reader
    const said = { id: itemId(), summary, sealed: '', keeps, kept, most: keepText }
    return { type: 'compaction', ...said, tokens, asked: plan.asked, next, ...usage }
  }

  #conclude(): void {
    this.#over = true
    this.sink.emit(this.#event(null))
    this.sink.emit({ type: 'finish', reason: 'compaction' })
    this.sink.end()
  }

  #goOn(sent: Conversation, input: number): void {
    if (this.#over || this.closed) return
    this.sink.emit(this.#event(input))
    if (this.closed) return
    this.sink.flush()
    this.#call.report.calledAgain(input)
    this.#relay.make(() => this.#next({ ...this.#call, sent, input }, this.sink))
  }

  // ---- the call's control -----------------------------------------------------------------------------------------------

  pause(): void {
    this.#relay.pause()
  }
  resume(): void {
    this.#relay.resume()
  }
  abort(reason: 'client_gone' | 'ended'): undefined | 'draining' {
    const draining = this.#relay.abort(reason)
    if (draining === undefined) this.#over = true
    return draining
  }
}

function busy(): GatewayError {
  return new GatewayError('route_capacity', { message: 'it could not be counted. Retry shortly.' })
}

/** Why what the model wrote is no summary; undefined when it is one. */
function faultOf(reason: FinishReason, summary: string, { cap }: CompactionPlan): GatewayError | undefined {
  const fault = (code: ErrorCode, message: string, retriable = true) => new GatewayError(code, { message, retriable })
  switch (reason) {
    case 'length':
    case 'context_full':
      return fault(
        'upstream_server_error',
        `the model's summary did not end within ${cap} tokens. Retry, or send a shorter conversation.`,
      )
    case 'refusal':
    case 'content_filter':
      return fault(
        'upstream_server_error',
        'the model refused to summarise it. Leave the compaction out, or send other content.',
        false,
      )
    case 'idle_timeout':
    case 'ceiling_timeout':
      return fault(
        'gateway_timeout',
        "the model's summary did not come in time. Retry, or send a shorter conversation.",
      )
    default:
      return summary === ''
        ? fault('upstream_server_error', 'the model wrote no summary. Retry, or choose another model.')
        : undefined
  }
}
