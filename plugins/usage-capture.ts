import type { FinishEvent, ProviderUsage, StreamEvent, Usage } from '../core/events.ts'
import { ZERO_USAGE } from '../core/events.ts'
import { cost } from '../core/money.ts'
import { definePlugin, type Exchange, estimate, type Settlement, slot, usage } from '../core/plugin.ts'
import { TokenCounter } from '../meter/index.ts'
import { identity, model, receivedBytes, reservation, servedBy } from './shared/slots.ts'

const tally = slot<Tally>('tally')
/** Bytes of a proxied reply. */
const repliedBytes = slot<number>('repliedBytes')

/** Counts what is delivered, settles the bill, and closes the exchange's ledger row (METER-1…6, BILL-1…4). */
export const usageCapture = definePlugin({
  name: 'usage-capture',
  summary: 'Counts the reply, prices it, and closes the ledger row.',
  mayProvide: [tally, repliedBytes],
  providesLate: [usage],
  create(_, context) {
    return {
      onEvent(x, event) {
        let count = x.peek(tally)
        if (!count) x.set(tally, (count = new Tally()))
        // What upstream sends after the client has disconnected was not delivered: only its usage report counts
        // (BILL-3).
        if (!x.clientGone || event.type === 'usage') count.look(event)
        if (event.type === 'finish') capture(x, count, !STOPS.has(event.reason))
        return undefined
      },
      onChunk(x, bytes) {
        x.set(repliedBytes, (x.peek(repliedBytes) ?? 0) + bytes.length)
        return undefined
      },
      onSettle(x, settlement) {
        const reserved = x.peek(reservation)
        if (!reserved) return undefined
        const count = x.peek(tally)
        if (count && !x.peek(usage)) capture(x, count, false)
        const counted = x.peek(usage)
        const billed = counted !== undefined && isBilled(settlement)
        const final = billed ? counted : UNBILLED
        x.set(usage, final)
        const received = x.peek(receivedBytes)
        context.store.ledger.outcome({
          request_id: x.id,
          provider: x.peek(servedBy)?.provider ?? '',
          outcome: settlement.outcome,
          usage: final.usage,
          cost: final.cost,
          duration_ms: Math.round(settlement.durationMs),
          ttfb_ms: settlement.ttfbMs === null ? null : Math.round(settlement.ttfbMs),
          ...(received !== undefined && { bytes_in: received, bytes_out: x.peek(repliedBytes) ?? 0 }),
        })
        return undefined
      },
    }
  },
})

function capture(x: Exchange, count: Tally, finished: boolean): void {
  const input = x.peek(estimate)?.input ?? 0
  const billed = count.usage(input, finished)
  const requested = x.peek(model)
  const free = x.peek(identity)?.organization.billing === 'free'
  x.set(usage, { usage: billed, cost: requested?.price && !free ? cost(billed, requested.price) : 0, billed: true })
}

/** Finish reasons with which the gateway ended the reply itself, so the provider's final report is missing. */
const STOPS: ReadonlySet<FinishEvent['reason']> = new Set(['idle_timeout', 'ceiling_timeout'])

const UNBILLED = Object.freeze({ usage: ZERO_USAGE, cost: 0, billed: false })

/**
 * BILL-3: a reply that was cut is billed if output was delivered. A reply that ended, also by an idle or ceiling
 * timeout, is always billed.
 */
function isBilled(settlement: Settlement): boolean {
  switch (settlement.outcome) {
    case 'completed':
    case 'incomplete':
      return true
    case 'client_gone':
    case 'upstream_error':
    case 'gateway_error':
      return settlement.delivered
    default:
      return false
  }
}

/** The token count of one reply. */
class Tally {
  /** Tokens of text, refusals and calls that are complete. */
  #visible = 0
  /** The counter of the item that is being counted. Each item is counted as a separate text. */
  #item: TokenCounter | null = null
  /** Kind and index of the item being counted. */
  #current = ''
  #reasoning: TokenCounter | null = null
  #report: ProviderUsage | null = null
  /** The gateway counted a part of the report itself. */
  #estimated = false
  #searches = 0
  /** A function call is open, and nothing of its arguments has come yet. */
  #bare = false

  look(event: StreamEvent): void {
    switch (event.type) {
      case 'text':
      case 'refusal':
        this.#count(event.type, event.text)
        return
      case 'break':
        this.#close()
        return
      case 'tool_call':
        this.#count(`name${event.index}`, event.name)
        this.#bare = event.kind === 'function'
        return
      case 'tool_args':
        this.#count(`args${event.index}`, event.text)
        this.#bare = false
        return
      case 'tool_end':
        // A client gets `{}` for a call without arguments, whether the provider writes it or leaves it out.
        if (this.#bare) this.#count(`args${event.index}`, '{}')
        this.#bare = false
        return
      case 'reasoning':
        this.#reasoning ??= new TokenCounter()
        this.#reasoning.push(event.text)
        return
      case 'search_end':
        // A failed search is shown to the client but not charged for.
        if (event.errorCode === undefined && !event.unfinished) this.#searches++
        return
      case 'usage':
        this.#report = event.usage
        this.#estimated = event.estimated === true
        return
    }
  }

  #count(item: string, text: string): void {
    if (item !== this.#current) {
      this.#close()
      this.#current = item
    }
    this.#item ??= new TokenCounter()
    this.#item.push(text)
  }

  #close(): void {
    if (!this.#item) return
    this.#visible += this.#item.total
    this.#item = null
    this.#current = ''
  }

  /** @param finished false for a cut reply: its reasoning is known only from the deltas (decisions 17) */
  usage(input: number, finished: boolean): Usage {
    this.#close()
    const report = this.#report
    const known = report !== null && (report.reasoning !== undefined || finished)
    const reasoning = known ? (report.reasoning ?? 0) : (this.#reasoning?.total ?? 0)
    // The provider's cache figures refer to its own count of the prompt. Only their share is used (METER-5).
    const prompt = report?.prompt ?? 0
    const share = (part: number | undefined): number =>
      prompt > 0 && part ? Math.round((input * Math.min(part, prompt)) / prompt) : 0
    const cached = Math.min(share(report?.cached), input)
    const cacheWrite = Math.min(share(report?.cacheWrite), input - cached)
    return {
      input,
      cached,
      cacheWrite,
      output: this.#visible + reasoning,
      reasoning,
      searches: this.#searches,
      estimated: (!known || this.#estimated) && reasoning > 0,
    }
  }
}
