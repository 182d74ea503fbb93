import type { CompactionEvent, FinishEvent, ProviderUsage, StreamEvent, Usage } from '../core/canon/events.ts'
import { lessCompaction, ZERO_USAGE } from '../core/canon/events.ts'
import { cost, type Price, priceUsed, ratesAt, shareOf } from '../core/canon/money.ts'
import {
  type CallReport,
  conversation,
  definePlugin,
  type Exchange,
  estimate,
  type LayerAnswer,
  type Settlement,
  slot,
  usage,
} from '../core/plugin.ts'
import { object } from '../core/tools/vocabulary.ts'
import { TokenCounter } from '../meter/index.ts'
import { sideOf } from './shared/provider-side.ts'
import { RoundsUsage } from './shared/rounds-usage.ts'
import {
  bodyDigest,
  callReport,
  consumption,
  identity,
  model,
  plan,
  providerSide,
  type Reservation,
  receivedBytes,
  reservation,
  takenOver,
} from './shared/slots.ts'
import { tagReader, tags } from './shared/tags.ts'

const tally = slot<Tally>('tally')
/** Bytes of a proxied reply. */
const repliedBytes = slot<number>('repliedBytes')

/**
 * Counts the reply, and closes the exchange's ledger row with the bill of what was delivered (METER-1…6, BILL-1…4). For
 * the limits it also counts what was consumed, which is more where the client left or the upstream failed
 * (decisions 49).
 */
export const usageCapture = definePlugin({
  name: 'usage-capture',
  summary: 'Counts the reply, prices it, and closes the ledger row.',
  config: object({ tags }),
  mayProvide: [tally, repliedBytes, consumption, providerSide],
  providesLate: [usage],
  create({ tags }, context) {
    const tagsOf = tagReader(tags, context.secret)
    return {
      onEvent(x, event) {
        let count = x.peek(tally)
        if (!count) x.set(tally, (count = new Tally()))
        // What upstream sends after the client has disconnected is consumed, and not delivered. Of the bill it changes
        // only the usage report (BILL-3).
        if (x.clientGone && event.type !== 'usage') count.clientLeft()
        count.look(event)
        if (event.type === 'finish') {
          count.finished = !STOPS.has(event.reason)
          capture(x, count)
        }
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
        if (count && !x.peek(usage)) capture(x, count)
        const counted = x.peek(usage)
        const report = x.peek(callReport)
        const billed = counted !== undefined && isBilled(settlement) && x.peek(takenOver)?.() !== true
        const final = billed ? within(counted, reserved) : UNBILLED
        x.set(usage, final)
        const consumed = consumedBy(x, count)
        const sent = Math.max(x.peek(plan)?.input ?? 0, promptOf(x)) + (report?.furtherInput ?? 0)
        if (!x.peek(consumption) && (billed || report?.promptTaken)) {
          const { usage: used, cost } = priced(x, consumed)
          const left = settlement.outcome === 'client_gone'
          x.set(consumption, { usage: used, sent, unbilled: left ? Math.max(0, cost - final.cost) : 0 })
        }
        const side = sideOf(report, count?.report ?? null, { input: sent, output: consumed.output })
        x.set(providerSide, side)
        const price = priceOf(x)
        const received = x.peek(receivedBytes)
        const tagged = tagsOf(x)
        const digest = x.peek(bodyDigest)
        const row = {
          request_id: x.id,
          provider: report?.served?.provider ?? report?.instead?.by ?? '',
          outcome: settlement.outcome,
          usage: final.usage,
          cost: final.cost,
          duration_ms: Math.round(settlement.durationMs),
          ttfb_ms: settlement.ttfbMs === null ? null : Math.round(settlement.ttfbMs),
          ...(tagged !== '' && { tags: tagged }),
          ...(received !== undefined && { bytes_in: received, bytes_out: x.peek(repliedBytes) ?? 0 }),
          ...side,
          ...(price && priceOn(price, promptOf(x))),
          output_reserved: reserved.output,
          code: settlement.error?.code ?? '',
          ...(digest !== undefined && { body_digest: digest }),
        }
        // A reply of one body counts as delivered, and is sent once the row is written.
        const unsent = settlement.delivered && x.peek(conversation)?.stream === false
        return context.store.ledger.outcome(row, unsent)
      },
    }
  },
})

function capture(x: Exchange, count: Tally): void {
  x.set(usage, { ...priced(x, count.usage(promptOf(x), 'delivered')), billed: true })
  const report = x.peek(callReport)
  // Known before the head of a whole reply, which has what is left of the limits.
  if (answeredByLayer(report) && !report?.promptTaken) x.set(consumption, NOTHING_CONSUMED)
}

/** The layer that answered, where no backend did. */
const answeredByLayer = (report: CallReport | undefined): LayerAnswer | undefined =>
  report?.served ? undefined : report?.instead

/** What limits of tokens protect is the backends' work. */
const NOTHING_CONSUMED = Object.freeze({ usage: ZERO_USAGE, sent: 0, unbilled: 0 })

function consumedBy(x: Exchange, count: Tally | undefined): Usage {
  return count ? count.usage(promptOf(x), 'all') : { ...ZERO_USAGE, input: promptOf(x) }
}

const promptOf = (x: Exchange): number => x.peek(estimate)?.input ?? 0

/** With its cost at list price, in nano-USD. */
function priced(x: Exchange, counted: Usage): { usage: Usage; cost: number } {
  const price = priceOf(x)
  return { usage: counted, cost: price ? costOf(counted, price) : 0 }
}

/** Each of two calls is priced by the length of its own prompt. */
function costOf(counted: Usage, price: Price): number {
  const { compaction } = counted
  return compaction ? cost(compaction, price) + cost(lessCompaction(counted), price) : cost(counted, price)
}

/** The price of this exchange; null where nothing is charged. */
function priceOf(x: Exchange): Price | null {
  const free = x.peek(identity)?.organization.billing === 'free'
  const price = free ? undefined : x.peek(model)?.price
  if (!price) return null
  const instead = answeredByLayer(x.peek(callReport))
  return instead && instead.share !== 1 ? shareOf(price, instead.share) : price
}

/** What the row says of the price, of a request whose prompt has this many tokens. */
function priceOn(price: Price, prompt: number) {
  const { input, output } = ratesAt(price, prompt)
  return { price_used: priceUsed(price, prompt), price_input: input, price_output: output }
}

/**
 * A request is billed at most what it can cost with the output cap that was sent (BILL-1, decision 150): o200k_base may
 * count more output than the cap, which the provider counts in its own tokens.
 */
function within<T extends { cost: number }>(counted: T, { most }: Reservation): T {
  return counted.cost > most ? { ...counted, cost: most } : counted
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

/** What one call has brought, as far as it was counted. */
interface Counts {
  visible: number
  reasoning: number
  searches: number
}

/** The token count of one reply. */
class Tally {
  /** The call that compacted the conversation. */
  #compaction: CompactionEvent | null = null
  /** Tokens of text, refusals and calls that are complete. */
  #visible = 0
  /** The counter of the item that is being counted. Each item is counted as a separate text. */
  #item: TokenCounter | null = null
  /** Kind and index of the item being counted. */
  #current = ''
  #reasoning: TokenCounter | null = null
  /** What the provider reported of the answer, once it has. */
  #report: ProviderUsage | null = null
  /** The gateway counted a part of the report itself. */
  #estimated = false
  #searches = 0
  /** A function call is open, and nothing of its arguments has come yet. */
  #bare = false
  /** What had been counted when the client disconnected; null while it is there. */
  #delivered: Counts | null = null
  /** The reply has come to an end of its own: the provider's report is final. */
  finished = false

  /** Nothing that is counted from now on is delivered. */
  clientLeft(): void {
    this.#delivered ??= {
      visible: this.#visible + (this.#item?.total ?? 0),
      reasoning: this.#reasoning?.total ?? 0,
      searches: this.#searches,
    }
  }

  look(event: StreamEvent): void {
    switch (event.type) {
      case 'compaction':
        this.#compaction = event
        return
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
      case 'activity':
        if (event.unseen) this.#count(event.unseen.item, event.unseen.text)
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

  /** What the provider reported of all calls. */
  get report(): ProviderUsage | null {
    if (!this.#compaction) return this.#report
    const { usage, next } = this.#compaction
    const calls = new RoundsUsage()
    if (usage) calls.add(usage, true)
    else calls.addUnreported(0)
    if (this.#report) calls.add(this.#report, false)
    else if (next !== null) calls.addUnreported(0)
    return calls.report()?.usage ?? null
  }

  /**
   * The usage of the whole exchange. Where the conversation was compacted, it is that of both calls.
   * @param input tokens of the client's prompt
   * @param part what was delivered to the client, or all that was counted
   */
  usage(input: number, part: 'delivered' | 'all'): Usage {
    this.#close()
    const counts = (part === 'delivered' && this.#delivered) || {
      visible: this.#visible,
      reasoning: this.#reasoning?.total ?? 0,
      searches: this.#searches,
    }
    if (!this.#compaction) return usageOf(input, counts, this.#report, this.finished, this.#estimated)
    const { tokens, reasoning, usage, estimated, asked, next } = this.#compaction
    const compaction = usageOf(input + asked, { visible: tokens, reasoning, searches: 0 }, usage, true, estimated)
    if (next === null) return { ...compaction, compaction }
    return both(compaction, usageOf(next, counts, this.#report, this.finished, this.#estimated))
  }
}

/**
 * The usage of one call.
 * @param finished the provider's report is final. The reasoning of a cut reply that was not reported is known only from
 * the deltas (decisions 17)
 * @param partly the gateway counted a part of the report itself
 */
function usageOf(
  input: number,
  counts: Counts,
  report: ProviderUsage | null,
  finished: boolean,
  partly: boolean,
): Usage {
  const known = report !== null && (report.reasoning !== undefined || finished)
  const reasoning = known ? (report.reasoning ?? 0) : counts.reasoning
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
    output: counts.visible + reasoning,
    reasoning,
    searches: counts.searches,
    estimated: (!known || partly) && reasoning > 0,
  }
}

function both(compaction: Usage, own: Usage): Usage {
  return {
    input: compaction.input + own.input,
    cached: compaction.cached + own.cached,
    cacheWrite: compaction.cacheWrite + own.cacheWrite,
    output: compaction.output + own.output,
    reasoning: compaction.reasoning + own.reasoning,
    searches: compaction.searches + own.searches,
    estimated: compaction.estimated || own.estimated,
    compaction,
  }
}
