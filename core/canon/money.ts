/**
 * Money in whole numbers. Prices are in pico-USD per token (1 USD per million tokens is 1e6). Amounts are in nano-USD
 * (1e-9 USD), so that sums up to 9 million USD are exact in a double. A cost is rounded once, half up, when a request
 * is priced; after that amounts are only added.
 */

/** In whole pico-USD per token. */
export interface Price {
  input: number
  output: number
}
/** The priced part of a usage. `input` includes `cached`; `output` includes reasoning. */
export interface PricedUsage {
  input: number
  cached: number
  output: number
}

/**
 * The cost of a request in nano-USD (BILL-1): uncached input and cache writes at the input rate, cached input at a
 * tenth of it, output at the output rate. A fraction of a token is cut off; NaN and negative counts are 0; `cached`
 * above `input` counts as `input`. Never negative, never NaN.
 */
export function cost(usage: PricedUsage, price: Price): number {
  const input = wholeTokens(usage.input)
  const cached = Math.min(wholeTokens(usage.cached), input)
  const output = wholeTokens(usage.output)
  // In tenths of a pico-USD all terms are whole: (uncached · 10 + cached · 1) · rate.
  const weighted = (input - cached) * 10 + cached
  const deci = weighted * price.input + output * 10 * price.output
  if (deci <= Number.MAX_SAFE_INTEGER && weighted <= Number.MAX_SAFE_INTEGER)
    return Math.floor(deci / 10_000) + (deci % 10_000 >= 5000 ? 1 : 0)
  const exact =
    (BigInt(input - cached) * 10n + BigInt(cached)) * BigInt(price.input) + BigInt(output) * 10n * BigInt(price.output)
  const nano = (exact + 5000n) / 10_000n
  return nano > BigInt(Number.MAX_SAFE_INTEGER) ? Number.MAX_SAFE_INTEGER : Number(nano)
}

/** The most that a request with these token counts can cost, in nano-USD: when no input is cached. */
export function exposure(inputTokens: number, outputTokens: number, price: Price): number {
  return cost({ input: inputTokens, cached: 0, output: outputTokens }, price)
}

/**
 * The most output tokens with which a request can cost no more than this, in nano-USD: the inverse of `exposure`. 0
 * when the input alone costs more; infinite when output costs nothing.
 */
export function outputWithin(most: number, inputTokens: number, price: Price): number {
  const left = most - exposure(inputTokens, 0, price)
  if (left < 0) return 0
  return price.output === 0 ? Number.POSITIVE_INFINITY : Math.floor((left * 1000) / price.output)
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
