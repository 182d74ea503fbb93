/** What a request may take of limits and money: the same for its admission and for a quote. */
import { exposure as mostCost, outputWithin, type Price } from '../../core/canon/money.ts'
import { conversation as conversationSlot, deny, type Exchange, estimate, type Reply } from '../../core/plugin.ts'
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
  /** What `x-max-cost` allows, nano-USD; infinite where there is none. */
  maxCost: number
  /** The most that the request can cost with this cap, nano-USD. */
  costOf(output: number): number
}

/** The header with which a client bounds the cost of one request. */
export const MAX_COST = 'x-max-cost'

const NOTHING = { input: 0, output: 0 }
/** The output of a route that has no conversation. */
const NO_OUTPUT: OutputCap = { reserve: 0, most: 0 }

/**
 * @param outputReserve the option `output_reserve`
 * @returns the refusal of a request that could never be admitted
 */
export function needOf(x: Exchange, set: CellSet, outputReserve: number): Need | Reply {
  const requested = x.peek(model)
  const conversation = x.peek(conversationSlot)
  // With what was fetched for it. The ledger's row has the prompt that is billed.
  const own = x.peek(plan)?.input ?? x.peek(estimate)?.input ?? 0
  // What a compaction takes is billed, so all of it is reserved. Its two calls have prompts of their own.
  const compaction = x.peek(plan)?.compaction
  const further = compaction?.further ?? NOTHING
  const input = own + further.input
  const price = requested?.price && x.get(identity).organization.billing !== 'free' ? requested.price : null
  const backends = x.peek(candidates) ?? requested?.backends ?? []
  const besides: Besides = { ...further, cost: price ? mostCost(further.input, further.output, price) : 0 }
  const named = compaction?.wish.only ? compaction.cap : conversation?.maxOutputTokens
  const usual = conversation
    ? outputCap(named, requested, backends, set, own, price, outputReserve, besides)
    : NO_OUTPUT
  const costOf = (output: number) => (price ? mostCost(own, output, price) + besides.cost : 0)
  const bound = boundOf(x)
  if (typeof bound === 'object') return bound
  // A summary is not cut: it would be worth nothing.
  const least = conversation && !compaction?.wish.only ? 1 : usual.reserve
  if (price && costOf(least) > bound) return overMaxCost(costOf(least), bound)
  const within = price ? outputWithin(bound - besides.cost, own, price) : Number.POSITIVE_INFINITY
  const bounded = within < usual.most
  const cap = bounded ? { reserve: Math.min(usual.reserve, within), most: within } : usual
  const reserve = cap.reserve + further.output
  return (
    checkMaxima(
      set,
      conversation?.maxOutputTokens,
      conversation?.maxOutputField,
      input,
      reserve,
      costOf(cap.reserve),
    ) ?? { own, input, price, besides, cap, reserve, bounded, maxCost: bound, costOf }
  )
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

function checkMaxima(
  set: CellSet,
  cap: number | undefined,
  field: string | undefined,
  input: number,
  output: number,
  exposure: number,
): undefined | Reply {
  const { maxima, minuteBudget } = set
  if (maxima.outputTokens !== null && cap !== undefined && cap > maxima.outputTokens)
    return overOutput(field ?? 'max_tokens', cap, maxima.outputTokens)
  if (set.zeroSpend && exposure > 0) return zeroCap(exposure, set.zeroSpend)
  if (minuteBudget.tokens && input + output > minuteBudget.tokens.limit)
    return overMinute(input + output, minuteBudget.tokens)
  if (minuteBudget.input_tokens && input > minuteBudget.input_tokens.limit)
    return overMinute(input, minuteBudget.input_tokens)
  if (minuteBudget.output_tokens && output > minuteBudget.output_tokens.limit)
    return overMinute(output, minuteBudget.output_tokens)
  if (maxima.requestTokens !== null && input + output > maxima.requestTokens)
    return overTokenBudget(input + output, maxima.requestTokens)
  if (maxima.requestCost !== null && exposure > maxima.requestCost) return overSpendCap(exposure, maxima.requestCost)
  return undefined
}
