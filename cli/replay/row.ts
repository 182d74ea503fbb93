/** What a row of the ledger tells of its exchange: what it asked for, what it used, and what that costs at a price. */
import type { ModelConfig } from '../../config/types.ts'
import { ZERO_USAGE } from '../../core/canon/events.ts'
import type { Consumed } from '../../core/canon/limits.ts'
import { type CostRates, cost, costAt, type Price, ratesAt, shareOf } from '../../core/canon/money.ts'
import type { LedgerRow } from '../../core/ports/store.ts'
import type { CellSet } from '../../plugins/admission/cells.ts'
import { type Figures, needFor } from '../../plugins/admission/need.ts'

const NOTHING = { input: 0, output: 0 }

/** Whether the row has an output; `proxy` routes and embeddings have none. */
export const isText = (row: LedgerRow, model: ModelConfig | undefined): boolean =>
  row.model !== '' && model?.serves !== 'embeddings'

/**
 * What its request asked for.
 * @param model undefined where it has none, or where the configuration does not have it any more
 * @param cap the output cap that it named; undefined where it named none
 */
export function figuresOf(
  row: LedgerRow,
  model: ModelConfig | undefined,
  price: Price | null,
  cap: number | undefined,
): Figures {
  return {
    model,
    backends: model?.backends ?? [],
    own: row.input_tokens,
    further: NOTHING,
    price,
    text: isText(row, model),
    cap,
    field: undefined,
    summary: undefined,
    maxCost: Number.POSITIVE_INFINITY,
  }
}

/**
 * The output cap that a request named, and what is reserved where it names none. A row has what was reserved, and does
 * not tell the two apart: a reservation as a request without a cap has it is taken for one.
 * @param set the limits by which the row was admitted, as far as they are known
 * @param reserves what `output_reserve` is in the pipelines
 */
export function capOf(
  row: LedgerRow,
  model: ModelConfig | undefined,
  price: Price | null,
  set: CellSet,
  reserves: readonly number[],
): { cap: number | undefined; reserve: number } {
  const reserved = row.output_reserved
  if (reserved === undefined || !isText(row, model)) return { cap: undefined, reserve: reserves[0]! }
  for (const reserve of reserves) {
    if (reserved === reserve) return { cap: undefined, reserve }
    const need = needFor(figuresOf(row, model, price, undefined), set, reserve)
    if ('reserve' in need && need.reserve === reserved) return { cap: undefined, reserve }
  }
  return { cap: reserved, reserve: reserves[0]! }
}

/**
 * The price that a row has been billed at, for a model that is gone, with the share that was charged in it; null where
 * nothing was charged.
 */
export function recordedPrice(row: LedgerRow): Price | null {
  const { price_used, price_input, price_output } = row
  if (!price_used || price_input === undefined) return null
  return { input: price_input, output: price_output ?? 0, share: shareUsed(row) }
}

/** The share of its price that a row was charged, as `priceUsed` writes it: a layer that answers may ask for less. */
function shareUsed({ price_used }: LedgerRow): number {
  const [, share] = /\*(\d[\d.]*(?:e-\d+)?)$/.exec(price_used ?? '') ?? []
  return share === undefined ? 1 : Number(share)
}

/** The part of a price that a row is charged. */
function chargedOf(row: LedgerRow, price: Price): Price {
  const share = shareUsed(row)
  return share === 1 || price.share !== undefined ? price : shareOf(price, share)
}

/**
 * What a row costs at a price, nano-USD. One that was billed at these rates keeps its cost where nothing else is
 * proposed: it may have been the sum of two calls, or was billed before bills were cut to `most`. So does one of an
 * older release, which has a cost and not its rates.
 * @param price null where nothing is charged
 * @param changed whether another price may be proposed for it
 * @param most what a gateway would bill at most, nano-USD. It does not hold for one that was compacted, which is replayed
 * as one call
 */
export function revenueOf(row: LedgerRow, price: Price | null, changed: boolean, most: number): number {
  if (!price) return 0
  const charged = chargedOf(row, price)
  if (!changed && (isBilledAt(row, charged) || (row.price_input === undefined && row.cost > 0))) return row.cost
  const revenue = cost(row, charged)
  return row.input > row.input_tokens ? revenue : Math.min(revenue, most)
}

function isBilledAt({ price_input, price_output, input_tokens }: LedgerRow, charged: Price): boolean {
  const { input, output } = ratesAt(charged, input_tokens)
  return price_input === input && price_output === output
}

/**
 * What the provider charges for a row, nano-USD; undefined where that is not known. At proposed rates that is known also
 * where its backend had none: the row has what was used.
 * @param rates those that are proposed for the backend that served it
 */
export function providerCostOf(row: LedgerRow, rates: CostRates | undefined): number | undefined {
  if (!rates) return row.provider_cost
  const requests = row.rounds ?? 1
  return costAt(rates, {
    requests,
    prompt: row.provider_input ?? row.input_tokens,
    cached: row.provider_cached ?? 0,
    cacheWrite: row.provider_cache_write ?? 0,
    cacheWriteHour: row.provider_cache_write_1h ?? 0,
    output: row.provider_output ?? row.output,
    // Where there are several requests, the gateway has searched, and not the provider.
    searches: requests === 1 ? row.searches : 0,
    ...(row.service_tier && { tier: row.service_tier }),
  })
}

/** Whether a layer answered, such as a cache of replies: limits of tokens count what backends do. */
const isOfLayer = ({ provider, provider_model, model }: LedgerRow): boolean =>
  provider !== '' && !provider_model && model !== ''

/** What its exchange consumed. @param billed nano-USD */
export function consumedOf(row: LedgerRow, billed: number, price: Price | null): Consumed {
  const wasBilled = row.input > 0 || row.output > 0
  // A row says that its provider costs nothing where none got the prompt.
  const taken =
    row.outcome === 'lost' || row.provider_cost === undefined || (!isOfLayer(row) && (wasBilled || row.provider !== ''))
  if (!taken) return { usage: ZERO_USAGE, sent: 0, billed, unbilled: 0 }
  const output = Math.max(row.output, row.counted_output ?? 0)
  const usage = { ...ZERO_USAGE, input: row.input_tokens, cached: row.cached, cacheWrite: row.cacheWrite, output }
  const left = row.outcome === 'client_gone' && price !== null
  return {
    usage,
    sent: Math.max(row.input, row.input_tokens, row.counted_input ?? 0),
    billed,
    unbilled: left ? Math.max(0, cost(usage, chargedOf(row, price)) - billed) : 0,
  }
}
