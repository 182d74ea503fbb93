/** Reads price lists: of models, and those of plans and organizations that take their place. */
import { type CostRates, formatUsd, type Price, type Rates, type TokenCost } from '../core/canon/money.ts'
import type { Arrives } from '../core/tools/vocabulary.ts'
import type { backend, priceList } from './schema.ts'
import type { Path } from './source.ts'

export type RawPrice = Arrives<typeof priceList>
type RawCost = NonNullable<Arrives<typeof backend>['cost']>

/**
 * A price, with its steps in order.
 * @param list whose list it is; undefined for the model's own
 * @param tell called with each fault, and the path of the member in the price
 */
export function readPrice(
  { steps, ...rates }: RawPrice,
  list: string | undefined,
  tell: (path: Path, message: string) => void,
): Price {
  return { ...rates, ...(steps && { steps: inOrder(steps, tell) }), ...(list !== undefined && { list }) }
}

function inOrder<S extends { above: number }>(steps: readonly S[], tell: (path: Path, message: string) => void): S[] {
  const above = steps.map(step => step.above)
  const twin = above.findIndex((tokens, i) => above.indexOf(tokens) < i)
  if (twin >= 0) tell(['steps', twin, 'above'], `an earlier step is above ${above[twin]} too; write one of them`)
  return steps.toSorted((a, b) => a.above - b.above)
}

/**
 * The cost of a backend. Like a price: what is cached costs a tenth of input, and what is written to a cache as much as
 * input.
 * @param tell as of `readPrice`
 */
export function readCost(raw: RawCost, tell: (path: Path, message: string) => void): CostRates {
  const whole = ({ input, output = 0, cached, cache_write = input, cache_write_1h }: RawRates): TokenCost => ({
    ...{ input, output, cached: cached ?? Math.round(input / 10), cache_write },
    cache_write_1h: cache_write_1h ?? cache_write,
  })
  const { steps, search = 0, tiers } = raw
  return {
    ...whole(raw),
    ...(steps && { steps: inOrder(steps, tell).map(step => ({ above: step.above, ...whole(step) })) }),
    ...{ search, tiers },
  }
}
type RawRates = Pick<RawCost, 'input' | 'output' | 'cached' | 'cache_write' | 'cache_write_1h'>

/** Rates as gateway.yaml has them: pico-USD per token are millionths of USD per million tokens. */
const writtenRates = (rates: Rates): Record<string, string> =>
  Object.fromEntries(Object.entries(rates).map(([name, rate]) => [name, formatUsd(rate * 1000)]))

const written = ({ steps, ...rates }: Rates & { steps?: readonly (Rates & { above: number })[] }) => ({
  ...writtenRates(rates),
  ...(steps && { steps: steps.map(({ above, ...rates }) => ({ above, ...writtenRates(rates) })) }),
})

/** A price as gateway.yaml has it, in USD per million tokens. */
export const writtenPrice = ({ list: _, ...price }: Price) => written(price)

/** The cost of a backend as gateway.yaml has it. */
export const writtenCost = ({ search, tiers, ...rates }: CostRates) => ({
  ...{ ...written(rates), search: formatUsd(search, 9), tiers },
})

/**
 * Says where a price differs from the specification, by which a read from a cache costs a tenth of the input, and a
 * write the input.
 */
export function warnOfOtherRates(price: RawPrice, warn: (path: Path, message: string) => void): void {
  const usd = (pico: number) => `${pico / 1e6}`
  const look = ({ input, cached, cache_write }: Rates, at: Path) => {
    if (cached !== undefined && cached * 10 !== input)
      warn(
        [...at, 'cached'],
        `cached is ${usd(cached)}, and the specification bills reads from a cache at a tenth of input, ${usd(input / 10)}; left out, it is that`,
      )
    if (cache_write !== undefined && cache_write !== input)
      warn(
        [...at, 'cache_write'],
        `cache_write is ${usd(cache_write)}, and the specification bills writes to a cache as input, ${usd(input)}; left out, it is that`,
      )
  }
  look(price, [])
  for (const [i, step] of (price.steps ?? []).entries()) look(step, ['steps', i])
}
