/**
 * Money in whole numbers. Prices are in pico-USD per token (1 USD per million tokens is 1e6). Amounts are in nano-USD
 * (1e-9 USD), so that sums up to 9 million USD are exact in a double. A cost is rounded once, half up, when a request
 * is priced; after that amounts are only added.
 */

/** In whole pico-USD per token. */
export interface Rates {
  input: number
  output: number
  /** Input that was read from a cache; left out: a tenth of `input`. */
  cached?: number
  /** Input that was written to a cache; left out: `input`. */
  cache_write?: number
}
/** What a model costs: its rates, and others where the prompt is long. */
export interface Price extends Rates {
  /** In ascending order of `above`. Of those whose `above` the prompt passes, the last holds for the whole request. */
  steps?: readonly (Rates & { above: number })[]
  /** Whose price it is: `plan:NAME` or `organization`; absent where it is the model's own. */
  list?: string
  /** The share of it that is charged, where that is not the whole; the rates have it already. */
  share?: number
}
/** The priced part of a usage. `input` includes `cached` and `cacheWrite`; `output` includes reasoning. */
export interface PricedUsage {
  input: number
  cached: number
  cacheWrite?: number
  output: number
}

/** The step of a price that holds for a prompt of this many tokens; undefined below the first. */
function stepAt<S extends { above: number }>({ steps }: { steps?: readonly S[] }, input: number): S | undefined {
  return steps?.findLast(({ above }) => input > above)
}

/** The rates of a price that hold for a prompt of this many tokens. */
export const ratesAt = (price: Price, input: number): Rates => stepAt(price, input) ?? price

/**
 * Which price a request has, for its ledger row: `model`, `plan:NAME` or `organization`, with the step and the share of it:
 * `model>200000*0.1`.
 */
export function priceUsed(price: Price, input: number): string {
  const step = stepAt(price, input)
  const share = price.share === undefined ? '' : `*${price.share}`
  return (price.list ?? 'model') + (step ? `>${step.above}` : '') + share
}

/** A price of which a share is charged, with its rates rounded to whole pico-USD. @param share from 0 to 1 */
export function shareOf(price: Price, share: number): Price {
  const scaled = (rates: Rates): Rates => ({
    input: Math.round(rates.input * share),
    output: Math.round(rates.output * share),
    ...(rates.cached !== undefined && { cached: Math.round(rates.cached * share) }),
    ...(rates.cache_write !== undefined && { cache_write: Math.round(rates.cache_write * share) }),
  })
  const { list, steps } = price
  return {
    ...scaled(price),
    ...(steps && { steps: steps.map(step => ({ above: step.above, ...scaled(step) })) }),
    ...(list !== undefined && { list }),
    share,
  }
}

/** Whether each request has a cost, however long its prompt is. */
export const alwaysCosts = (price: Price): boolean =>
  [price, ...(price.steps ?? [])].every(({ input, output }) => input > 0 || output > 0)

/**
 * The cost of a request in nano-USD (BILL-1): uncached input and cache writes at the input rate, cached input at a
 * tenth of it, output at the output rate, unless the price says otherwise. A fraction of a token is cut off; NaN and
 * negative counts are 0; what is cached or written above `input` counts as `input`. Never negative, never NaN.
 */
export function cost(usage: PricedUsage, price: Price): number {
  const input = wholeTokens(usage.input)
  const rates = ratesAt(price, input)
  const cached = Math.min(wholeTokens(usage.cached), input)
  const written = rates.cache_write === undefined ? 0 : Math.min(wholeTokens(usage.cacheWrite ?? 0), input - cached)
  const output = wholeTokens(usage.output)
  const plain = input - cached - written
  // In tenths of a pico-USD all terms are whole.
  const read = rates.cached === undefined ? rates.input : rates.cached * 10
  const write = (rates.cache_write ?? rates.input) * 10
  const deci = plain * rates.input * 10 + cached * read + written * write + output * rates.output * 10
  if (deci <= Number.MAX_SAFE_INTEGER) return Math.floor(deci / 10_000) + (deci % 10_000 >= 5000 ? 1 : 0)
  const term = (tokens: number, rate: number) => BigInt(tokens) * BigInt(rate)
  const exact =
    term(plain, rates.input) * 10n + term(cached, read) + term(written, write) + term(output, rates.output) * 10n
  const nano = (exact + 5000n) / 10_000n
  return nano > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(nano)
}

/** In whole pico-USD per token. */
export interface TokenCost extends Required<Rates> {
  /** Of cache writes that the provider keeps for an hour. */
  cache_write_1h: number
}
/**
 * What a backend costs the operator. A service tier multiplies the cost of tokens by its factor; one that is not named
 * has the factor 1.
 */
export interface CostRates extends TokenCost {
  /** As those of a price. */
  steps?: readonly (TokenCost & { above: number })[]
  /** nano-USD. */
  search: number
  tiers: Readonly<Record<string, number>>
}

/**
 * The counts that a provider charges for, over all its requests. `prompt` includes the three parts that follow,
 * `cacheWrite` the last one.
 */
export interface Charged {
  /** The prompts of several requests are taken to be of one length, where a step goes by it. */
  requests: number
  prompt: number
  cached: number
  cacheWrite: number
  cacheWriteHour: number
  output: number
  searches: number
  tier?: string
}

/** What a provider charges, in nano-USD. Parts that are more than the whole count as the whole; never negative. */
export function costAt(rates: CostRates, charged: Charged): number {
  const prompt = wholeTokens(charged.prompt)
  const cached = Math.min(wholeTokens(charged.cached), prompt)
  const written = Math.min(wholeTokens(charged.cacheWrite), prompt - cached)
  const hour = Math.min(wholeTokens(charged.cacheWriteHour), written)
  const of = stepAt(rates, prompt / charged.requests) ?? rates
  const pico =
    (prompt - cached - written) * of.input +
    cached * of.cached +
    (written - hour) * of.cache_write +
    hour * of.cache_write_1h +
    wholeTokens(charged.output) * of.output
  const factor =
    (charged.tier !== undefined && Object.hasOwn(rates.tiers, charged.tier) && rates.tiers[charged.tier]) || 1
  const nano = Math.round((pico * factor) / 1000) + wholeTokens(charged.searches) * rates.search
  return Math.min(nano, Number.MAX_SAFE_INTEGER)
}

/**
 * The dearest rates that a request can have whose prompt has at most this many tokens: of the steps up to there, and of
 * input that is plain, cached or written.
 */
function dearest(price: Price, most: number): Rates {
  let { input, output } = price
  for (const step of [price, ...(price.steps ?? [])]) {
    if ('above' in step && most <= (step as { above: number }).above) break
    input = Math.max(input, step.input, step.cached ?? 0, step.cache_write ?? 0)
    output = Math.max(output, step.output)
  }
  return { input, output }
}

/**
 * The most that a request with these token counts can cost, in nano-USD, whatever of its input is read from a cache or
 * written to one; also when less of the prompt is billed than is sent, at a step below.
 */
export function exposure(inputTokens: number, outputTokens: number, price: Price): number {
  return cost({ input: inputTokens, cached: 0, output: outputTokens }, dearest(price, inputTokens))
}

/**
 * The most output tokens with which a request can cost no more than this, in nano-USD: the inverse of `exposure`. 0
 * when the input alone costs more; infinite when output costs nothing.
 */
export function outputWithin(most: number, inputTokens: number, price: Price): number {
  const left = most - exposure(inputTokens, 0, price)
  if (left < 0) return 0
  const { output } = dearest(price, inputTokens)
  return output === 0 ? Number.POSITIVE_INFINITY : Math.floor((left * 1000) / output)
}

function wholeTokens(count: number): number {
  if (!(count > 0)) return 0
  return count < Number.MAX_SAFE_INTEGER ? Math.floor(count) : Number.MAX_SAFE_INTEGER
}

/**
 * Formats nano-USD as `12.50`: cut to `places` decimals (never rounded up), without trailing zeros, but with at least
 * two decimals.
 */
export function formatUsd(nano: number, places = 6): string {
  const sign = nano < 0 ? '-' : ''
  const amount = Math.abs(Math.trunc(nano))
  const below = amount % 1e9
  let fraction = Math.floor(below / 10 ** (9 - places))
  let width = places
  while (width > 2 && fraction % 10 === 0) {
    fraction /= 10
    width--
  }
  return `${sign}${(amount - below) / 1e9}.${String(fraction).padStart(width, '0')}`
}
