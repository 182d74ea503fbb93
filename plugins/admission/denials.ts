/** The refusals when a limit is reached (LIM-5…8, LIM-10, decisions 21–24). */

import { HeaderFields } from '../../core/header-fields.ts'
import { COUNTED, denialCode, isMoney, limitOf } from '../../core/limits.ts'
import { formatUsd } from '../../core/money.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import type { Cell, Denial } from '../../core/store.ts'
import { limitHeaders } from './headers.ts'

/**
 * Messages for a spend limit that is reached. They tell no amounts (LIM-8), only whether waiting or a smaller request
 * helps.
 * - never: the request alone is over the limit of a whole period, so waiting does not help
 * - smaller: something is left of the period, and it is less than this request may need
 * - later: nothing is left
 */
const SPEND_DENIALS = {
  never:
    'This request may need more than a limit of this account allows in its whole period, so waiting does not help. Shorten the prompt, lower the output cap, or raise the limit.',
  smaller:
    'This request may need more than what is left of a limit of this account. Shorten the prompt, lower the output cap, retry later, or raise the limit.',
  later: 'A limit of this account is used up for now. Retry later, or raise the limit.',
}

/**
 * The refusal by the cell that denied.
 * @param compressed the platform, not the account, is the reason: limits were reduced by load
 */
export function denied(
  cells: readonly Cell[],
  amounts: readonly number[],
  admission: Denial,
  compressed: boolean,
): Reply {
  const scope = compressed ? 'platform' : 'org'
  const outgrown = cells.find((cell, i) => cell.kind === 'spend' && amounts[i]! > cell.capacity)
  const cell = outgrown ?? cells[admission.denied]!
  if (cell.dimension === 'spend') {
    const fate = outgrown ? 'never' : admission.states[admission.denied]!.remaining > 0 ? 'smaller' : 'later'
    return deny(denialCode(cell.dimension), {
      message: SPEND_DENIALS[fate],
      ...(fate === 'never' ? { retriable: false } : { horizonMs: admission.horizonMs }),
      headers: { 'x-ratelimit-limit-spend': formatUsd(cell.capacity), 'x-ratelimit-scope': scope },
    })
  }
  if (isMoney(cell.dimension))
    return deny(denialCode(cell.dimension), {
      message: SPEND_DENIALS.later,
      horizonMs: admission.horizonMs,
      headers: { 'x-ratelimit-scope': scope },
    })
  const headers = new HeaderFields()
  limitHeaders([cell], [admission.states[admission.denied]!], headers)
  headers.set('x-ratelimit-scope', scope)
  const per = cell.kind === 'slots' ? '' : cell.windowMs === 60_000 ? ' per minute' : ' per day'
  const owner = cell.scope === 'key' ? 'this key' : 'this organization'
  return deny(denialCode(cell.dimension), {
    message: `The limit of ${cell.capacity} ${COUNTED[cell.dimension].words}${per} of ${owner} is reached: the request needs ${amounts[admission.denied]}, ${Math.max(0, Math.floor(admission.states[admission.denied]!.remaining))} remain. Retry after the wait, or raise ${limitOf(cell).name}.`,
    horizonMs: admission.horizonMs,
    details: { dimension: cell.dimension, limit: cell.capacity },
    headers: Object.fromEntries(headers),
  })
}

/** The request is larger than the budget of one full minute (LIM-6). */
export function overMinute(field: string, estimate: number, budget: number): Reply {
  return deny('request_exceeds_capacity', {
    message: `The request needs an estimated ${estimate} tokens; one full minute of the budget is ${budget} (${field}). Shorten the prompt, lower the output cap, or raise ${field}.`,
    details: { dimension: 'token_budget_request', limit: budget },
  })
}

/** The request is over the account's tokens for one request (LIM-7). */
export function overTokenBudget(estimate: number, limit: number): Reply {
  return deny('request_token_budget_exceeded', {
    message: `The request needs an estimated ${estimate} tokens; one request may need at most ${limit} (max_request_tokens). Shorten the prompt, lower the output cap, or raise max_request_tokens.`,
    details: { dimension: 'token_budget', limit },
  })
}

/** The request may cost more than the account's cap in USD for one request (LIM-7). */
export function overSpendCap(exposure: number, limit: number): Reply {
  return deny('request_spend_cap_exceeded', {
    message: `The request may cost up to ${formatUsd(exposure)} USD; one request may cost ${formatUsd(limit)} (max_request_usd). Shorten the prompt, lower the output cap, or raise max_request_usd.`,
    details: { dimension: 'spend_request' },
    headers: { 'x-ratelimit-limit-spend': formatUsd(limit), 'x-ratelimit-scope': 'org' },
  })
}

/** A cap of 0.00: waiting cannot help (LIM-7). */
export function zeroCap(exposure: number): Reply {
  return deny('request_spend_cap_exceeded', {
    message: `The request may cost up to ${formatUsd(exposure)} USD and the spend cap is 0.00. Raise the spend cap (max_request_usd, daily_spend_usd or monthly_spend_usd).`,
    horizonMs: null,
    details: { dimension: 'spend_request' },
    headers: { 'x-ratelimit-limit-spend': '0.00', 'x-ratelimit-scope': 'org' },
  })
}

/** An output cap above the account's maximum is refused, never lowered (decisions 23). */
export function overOutput(field: string, requested: number, maximum: number): Reply {
  return deny('invalid_value', {
    message: `${field} is ${requested}; the account's maximum is ${maximum} (max_output_tokens). Lower it.`,
    param: field,
  })
}

/** The platform runs as many requests as it may (LIM-10). */
export function platformFull(): Reply {
  return deny('capacity_exceeded', { message: 'The service is at capacity. Retry shortly.' })
}
