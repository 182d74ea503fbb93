/** The output cap of a request: the client's, or for a request that names none the cap that is sent in its place. */
import type { ModelConfig } from '../../config/types.ts'
import { holdsMoney } from '../../core/canon/limits.ts'
import { outputWithin, type Price } from '../../core/canon/money.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import type { Cell, CellState } from '../../core/ports/store.ts'
import type { CellSet } from './cells.ts'

export interface OutputCap {
  /** Output tokens that token budgets reserve, and the least with which the request is admitted. */
  reserve: number
  /**
   * The most output tokens that may be sent as the cap, apart from what spend caps leave. Equal to `reserve` when the
   * client named the cap; infinite when nothing sets one.
   */
  most: number
}

/** What one request takes besides the call whose cap is looked for, such as the summary of a compaction. */
export interface Besides {
  input: number
  output: number
  /** Nano-USD. */
  cost: number
}

/** What is sent may cost at most this share of what the spend caps leave, so that a few requests do not take it all. */
const SHARE = 4

/**
 * A request that names no cap is sent with the least of the model's maximum, the account's limits of one request, the
 * rest of the window, and a share of what the spend caps leave (decisions 50). The window lowers a cap and sets none:
 * it is often larger than what a provider takes as a cap.
 * @param reserve `output_reserve`: what is reserved where the account can use that much
 * @param backends where the request may go; their windows may be smaller than the model's
 * @param price null when the request costs nothing
 */
export function outputCap(
  named: number | undefined,
  model: ModelConfig | undefined,
  backends: readonly Backend[],
  { maxima, minuteBudget, spendCells, userSpend }: CellSet,
  input: number,
  price: Price | null,
  reserve: number,
  besides: Besides,
): OutputCap {
  if (named !== undefined) return { reserve: named, most: named }
  const configured = Math.min(model?.max_output_tokens ?? Infinity, maxima.outputTokens ?? Infinity)
  const window = Math.max(1, windowOf(model, backends) - input)
  const least = Math.min(reserve, configured, window, (minuteBudget.output_tokens?.limit ?? Infinity) - besides.output)
  let most = configured
  if (maxima.requestTokens !== null)
    most = Math.min(most, maxima.requestTokens - input - besides.input - besides.output)
  if (maxima.requestCost !== null && price)
    most = Math.min(most, outputWithin(maxima.requestCost - besides.cost, input, price))
  const capped = most !== Infinity || (price !== null && (spendCells.length > 0 || userSpend !== Infinity))
  return { reserve: least, most: capped ? Math.max(least, Math.min(most, window)) : Infinity }
}

/** The largest window that one of the backends has. */
function windowOf(model: ModelConfig | undefined, backends: readonly Backend[]): number {
  const own = model?.context_window ?? Infinity
  let widest = 0
  for (const { contextWindow } of backends) widest = Math.max(widest, contextWindow ?? own)
  return Math.min(own, widest || own)
}

/** The cap that is sent when the spend cells leave this much, in nano-USD. */
export function capWithin(
  left: number,
  { reserve, most }: OutputCap,
  input: number,
  price: Price,
  besides: Besides,
): number {
  return Math.max(reserve, Math.min(most, outputWithin(Math.floor(left / SHARE) - besides.cost, input, price)))
}

/**
 * Whether the share of what is left pays for the whole of `most`, with a margin for what others have spent meanwhile.
 */
export function isPlentiful(left: number, exposure: number): boolean {
  return exposure * SHARE * 2 <= left
}

/** What the spend cells among `cells` leave, in nano-USD; infinite when there are none. */
export function spendLeft(cells: readonly Cell[], states: readonly CellState[]): number {
  let left = Infinity
  for (let i = 0; i < cells.length; i++)
    if (holdsMoney(cells[i]!)) left = Math.min(left, states[i]?.remaining ?? Infinity)
  return left
}
