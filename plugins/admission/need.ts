/** What a request may take of limits and money: the same for its admission, for a quote and for `sluice replay`. */
import type { ModelConfig } from '../../config/types.ts'
import { exposure as mostCost, outputWithin, type Price } from '../../core/canon/money.ts'
import { conversation as conversationSlot, deny, type Exchange, estimate, type Reply } from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { candidates, identity, model, plan } from '../shared/slots.ts'
import type { CellSet } from './cells.ts'
import { overMaxCost, overMinute, overOutput, overSpendCap, overTokenBudget, zeroCap } from './denials.ts'
import { type Besides, type OutputCap, outputCap } from './output-cap.ts'

export interface Need {
  /** Prompt tokens of the call whose output is capped, and of all calls. */
  own: number
  input: number
  /** Null when the request costs nothing. */
  price: Price | null
  besides: Besides
  cap: OutputCap
  /** Output tokens that token budgets reserve. */
  reserve: number
  /** `x-max-cost` lowers the cap. */
  bounded: boolean
  /** The most that the request can cost with this cap, nano-USD. */
  costOf(output: number): number
}

/** The header with which a client bounds the cost of one request. */
export const MAX_COST = 'x-max-cost'

const NOTHING = { input: 0, output: 0 }
/** The output of a route that has no conversation. */
const NO_OUTPUT: OutputCap = { reserve: 0, most: 0 }

/** What a request asks for, in figures that are known before its admission. */
export interface Figures {
  model: ModelConfig | undefined
  backends: readonly Backend[]
  /** Prompt tokens of the call whose output is capped. */
  own: number
  /** What a compaction takes beside that call. */
  further: { input: number; output: number }
  /** Null when the request costs nothing. */
  price: Price | null
  /** Whether it has a conversation, and with it an output. */
  text: boolean
  /** The output cap that the client names, and its member. */
  cap: number | undefined
  field: string | undefined
  /** The output cap of a summary that is the whole reply. It is not cut: it would be worth nothing. */
  summary: number | undefined
  /** What `x-max-cost` allows, nano-USD; infinite where there is none. */
  maxCost: number
}

/** The refusal of a request that could never be admitted. */
export interface Excess {
  /** The key in gateway.yaml of what it is over; the header `x-max-cost` is one. */
  setting: string
  reply: Reply
}

/**
 * @param outputReserve the option `output_reserve`
 * @returns the refusal of a request that could never be admitted
 */
export function needOf(x: Exchange, set: CellSet, outputReserve: number): Need | Reply {
  const requested = x.peek(model)
  const conversation = x.peek(conversationSlot)
  const compaction = x.peek(plan)?.compaction
  const maxCost = boundOf(x)
  if (typeof maxCost === 'object') return maxCost
  const figures: Figures = {
    model: requested,
    backends: x.peek(candidates) ?? requested?.backends ?? [],
    // With what was fetched for it. The ledger's row has the prompt that is billed.
    own: x.peek(plan)?.input ?? x.peek(estimate)?.input ?? 0,
    further: compaction?.further ?? NOTHING,
    price: requested?.price && x.get(identity).organization.billing !== 'free' ? requested.price : null,
    text: conversation !== undefined,
    cap: conversation?.maxOutputTokens,
    field: conversation?.maxOutputField,
    summary: compaction?.wish.only ? compaction.cap : undefined,
    maxCost,
  }
  const need = needFor(figures, set, outputReserve)
  return 'reply' in need ? need.reply : need
}

/** What a request with these figures needs. @param outputReserve the option `output_reserve` */
export function needFor(figures: Figures, set: CellSet, outputReserve: number): Need | Excess {
  const { model, backends, own, further, price, text, summary, maxCost } = figures
  // What a compaction takes is billed, so all of it is reserved. Its two calls have prompts of their own.
  const input = own + further.input
  const besides: Besides = { ...further, cost: price ? mostCost(further.input, further.output, price) : 0 }
  const usual = text
    ? outputCap(summary ?? figures.cap, model, backends, set, own, price, outputReserve, besides)
    : NO_OUTPUT
  const costOf = (output: number) => (price ? mostCost(own, output, price) + besides.cost : 0)
  const least = text && summary === undefined ? 1 : usual.reserve
  if (price && costOf(least) > maxCost) return { setting: MAX_COST, reply: overMaxCost(costOf(least), maxCost) }
  const within = price ? outputWithin(maxCost - besides.cost, own, price) : Number.POSITIVE_INFINITY
  const bounded = within < usual.most
  const cap = bounded ? { reserve: Math.min(usual.reserve, within), most: within } : usual
  const reserve = cap.reserve + further.output
  const excess = overMaxima(set, figures, input, reserve, costOf(cap.reserve))
  return excess ?? { own, input, price, besides, cap, reserve, bounded, costOf }
}

/** What the client allows the request to cost, nano-USD; infinite where it says nothing. */
function boundOf(x: Exchange): number | Reply {
  const value = x.incoming.headers.get(MAX_COST)
  if (value === undefined) return Number.POSITIVE_INFINITY
  const [, whole, fraction = ''] = /^(\d{1,7})(?:\.(\d{1,9}))?$/.exec(value.trim()) ?? []
  if (whole !== undefined) return Number(whole) * 1e9 + Number(fraction.padEnd(9, '0'))
  return deny('bad_request', {
    message: `The header ${MAX_COST} is an amount of USD such as 0.02, with at most nine decimals.`,
    param: MAX_COST,
  })
}

function overMaxima(
  { maxima, minuteBudget, zeroSpend }: CellSet,
  { cap, field }: Figures,
  input: number,
  output: number,
  exposure: number,
): undefined | Excess {
  if (maxima.outputTokens !== null && cap !== undefined && cap > maxima.outputTokens)
    return { setting: 'max_output_tokens', reply: overOutput(field ?? 'max_tokens', cap, maxima.outputTokens) }
  if (zeroSpend && exposure > 0) return { setting: zeroSpend.setting, reply: zeroCap(exposure, zeroSpend) }
  for (const [budget, estimate] of [
    [minuteBudget.tokens, input + output],
    [minuteBudget.input_tokens, input],
    [minuteBudget.output_tokens, output],
  ] as const)
    if (budget && estimate > budget.limit) return { setting: budget.setting, reply: overMinute(estimate, budget) }
  if (maxima.requestTokens !== null && input + output > maxima.requestTokens)
    return { setting: 'max_request_tokens', reply: overTokenBudget(input + output, maxima.requestTokens) }
  if (maxima.requestCost !== null && exposure > maxima.requestCost)
    return { setting: 'max_request_usd', reply: overSpendCap(exposure, maxima.requestCost) }
  return undefined
}
