/** The refusals when a limit is reached (LIM-5…8, LIM-10, decisions 21–24). */

import { COUNTED, denialCode, isMoney, limitOf } from '../../core/canon/limits.ts'
import { formatUsd } from '../../core/canon/money.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import type { Cell, Denial } from '../../core/ports/store.ts'
import { HeaderFields } from '../../core/tools/header-fields.ts'
import type { Budget, Owner, ZeroCap } from './cells.ts'
import { denialHeaders } from './headers.ts'

/**
 * Messages for a spend limit that is reached. They tell no amounts (LIM-8), only until when it lasts and whether
 * waiting or a smaller request helps.
 * - never: the request alone is over the limit of a whole period, so waiting does not help
 * - smaller: something is left of the period, and it is less than this request may need
 * - later: nothing is left
 * Of a balance, no day brings anything back.
 */
const SPEND_DENIALS = {
  never: (_: string, whose: string) =>
    `This request may need more than a limit of this ${whose} allows in its whole period, so waiting does not help. Shorten the prompt, lower the output cap, or raise the limit.`,
  smaller: (until: string, whose: string) =>
    `This request may need more than what is left of a limit of this ${whose} until ${until}. Shorten the prompt, lower the output cap, retry then, or raise the limit.`,
  later: (until: string, whose: string) =>
    `A limit of this ${whose} is used up until ${until}. Retry then, or raise the limit.`,
  less: () =>
    'This request may need more than what is left of a limit of this account, and waiting does not help. Shorten the prompt, lower the output cap, or ask whoever runs this service to raise the limit.',
  over: () =>
    'A limit of this account is used up, and waiting does not help. Ask whoever runs this service to raise the limit.',
}

/**
 * The longest wait that is reported where a limit is in the way only as platform load has reduced it, in milliseconds.
 * How long the load lasts is not known, and no refill makes room for a request above the reduced limit.
 */
const LOAD_HORIZON_MS = 60_000

export interface DenialContext {
  /** The cells without the reduction by platform load, parallel to those that denied; left out where there is none. */
  full?: readonly Cell[]
  /** What the limit counts, in place of its dimension's words. */
  words?: string
  /** Of a limit of an end user: nobody was named. */
  nameless?: boolean
}

/** What is said with the refusal of an end user whom its request does not name. */
const NAMELESS = ' Requests that name no user count as one user together.'

/**
 * Which of the cells refuses, and for how long. One that could not hold what the request needs if it were full is final,
 * whatever its dimension and window (decision 80), and so is a balance that is used up.
 * @param full the cells without the reduction by platform load, parallel to those that denied
 */
export function verdict(
  cells: readonly Cell[],
  amounts: readonly number[],
  { denied, horizonMs }: Pick<Denial, 'denied' | 'horizonMs'>,
  full: readonly Cell[] = cells,
): { at: number; final: boolean; horizonMs: number } {
  const outgrown = full.findIndex((cell, i) => amounts[i]! > cell.capacity)
  const at = outgrown >= 0 ? outgrown : denied
  const final = outgrown >= 0 || full[at]!.kind === 'balance'
  const { capacity } = cells[at]!
  const outgrowsReduced = !final && capacity !== full[at]!.capacity && amounts[at]! > capacity
  return { at, final, horizonMs: outgrowsReduced ? Math.min(horizonMs, LOAD_HORIZON_MS) : horizonMs }
}

/** The refusal by the cell that denied, as `verdict` finds it. @param now Unix ms */
export function denied(
  cells: readonly Cell[],
  amounts: readonly number[],
  admission: Denial,
  now: number,
  { full = cells, words, nameless = false }: DenialContext = {},
): Reply {
  const { at, final, horizonMs } = verdict(cells, amounts, admission, full)
  const cell = cells[at]!
  const { remaining } = admission.states[at]!
  const reduced = !final && cell.capacity !== full[at]!.capacity
  const fate = final ? { retriable: false, horizonMs: null } : { horizonMs }
  const ofUser = cell.scope === 'user'
  const scope = reduced ? 'platform' : ofUser ? 'user' : 'org'
  const hint = nameless ? NAMELESS : ''

  if (isMoney(cell.dimension)) {
    const says =
      cell.kind === 'balance'
        ? remaining > 0
          ? 'less'
          : 'over'
        : final
          ? 'never'
          : cell.kind === 'spend' && remaining > 0
            ? 'smaller'
            : 'later'
    return deny(denialCode(cell.dimension), {
      // Whoever runs the service is told which one it was, and the amount.
      forOperators: `${ownerWords(cell, 'the')}: ${amountWords(cell)}${reduced ? ', under load' : ''}`,
      message: SPEND_DENIALS[says](final ? '' : utcMinute(now + horizonMs), ofUser ? 'user' : 'account') + hint,
      ...fate,
      details: { dimension: cell.dimension },
      headers: {
        ...(cell.dimension === 'spend' && { 'x-ratelimit-limit-spend': formatUsd(cell.capacity) }),
        'x-ratelimit-scope': scope,
      },
    })
  }
  const headers = new HeaderFields()
  denialHeaders(final ? full : cells, admission.states, at, headers)
  headers.set('x-ratelimit-scope', scope)
  const limit = (final ? full : cells)[at]!.capacity
  const name = (ofUser ? 'user_limits.' : '') + limitOf(cell).name
  const per = cell.kind === 'slots' ? '' : cell.windowMs === 60_000 ? ' per minute' : ' per day'
  const what = `${words ?? COUNTED[cell.dimension].words}${per}`
  const needs = `the request needs ${amounts[at]}`
  const left = Math.max(0, Math.floor(remaining))
  const message = final
    ? `The limit of ${limit} ${what} of ${ownerWords(cell)} is less than the request needs: ${amounts[at]}. Waiting does not help. ${limit > 0 ? 'Send less, or raise' : 'Raise'} ${name}.`
    : reduced
      ? `The platform is under load and allows ${ownerWords(cell)} ${limit} ${what} for now, in place of ${full[at]!.capacity}: ${needs}, ${left} remain. Retry after the wait.`
      : `The limit of ${limit} ${what} of ${ownerWords(cell)} is reached: ${needs}, ${left} remain. Retry after the wait, or raise ${name}.`
  return deny(denialCode(cell.dimension), {
    message: message + hint,
    ...fate,
    forOperators: `${ownerWords(cell, 'the')}: ${limit} ${what} (${name})${reduced ? `, under load in place of ${full[at]!.capacity}` : ''}`,
    details: { dimension: cell.dimension, limit },
    headers: Object.fromEntries(headers),
  })
}

/** Whose limit it is, and for which model. @param which `this` for the client, `the` for operators */
function ownerWords({ scope, model }: Owner, which: 'this' | 'the' = 'this'): string {
  if (scope === 'user') return `each user of ${which} key`
  return `${which} ${scope === 'key' ? 'key' : 'organization'}${model === undefined ? '' : ` for ${model}`}`
}

/** `10.00 USD (daily_spend_usd)`; for operators. Of a balance what is left changes with each request. */
function amountWords(cell: Cell): string {
  if (cell.kind === 'balance') return 'its balance'
  return `${formatUsd(cell.capacity)} USD (${cell.scope === 'user' ? 'user_limits.' : ''}${limitOf(cell).name})`
}

/** `2026-12-01 00:00 UTC`, the first full minute that is not earlier. */
function utcMinute(ms: number): string {
  return `${new Date(Math.ceil(ms / 60_000) * 60_000).toISOString().slice(0, 16).replace('T', ' ')} UTC`
}

/** The request is larger than the budget of one full minute (LIM-6). */
export function overMinute(estimate: number, { limit, setting }: Budget): Reply {
  return deny('request_exceeds_capacity', {
    message: `The request needs an estimated ${estimate} tokens; one full minute of the budget is ${limit} (${setting}). Shorten the prompt, lower the output cap, or raise ${setting}.`,
    forOperators: `${limit} tokens in one full minute (${setting})`,
    details: { dimension: 'token_budget_request', limit },
  })
}

/** The request is over the account's tokens for one request (LIM-7). */
export function overTokenBudget(estimate: number, limit: number): Reply {
  return deny('request_token_budget_exceeded', {
    message: `The request needs an estimated ${estimate} tokens; one request may need at most ${limit} (max_request_tokens). Shorten the prompt, lower the output cap, or raise max_request_tokens.`,
    forOperators: `${limit} tokens in one request (max_request_tokens)`,
    details: { dimension: 'token_budget', limit },
    headers: { 'x-ratelimit-scope': 'org' },
  })
}

/** The request may cost more than the account's cap in USD for one request (LIM-7). */
export function overSpendCap(exposure: number, limit: number): Reply {
  return deny('request_spend_cap_exceeded', {
    message: `The request may cost up to ${formatUsd(exposure)} USD; one request may cost ${formatUsd(limit)} (max_request_usd). Shorten the prompt, lower the output cap, or raise max_request_usd.`,
    forOperators: `${formatUsd(limit)} USD in one request (max_request_usd)`,
    details: { dimension: 'spend_request' },
    headers: { 'x-ratelimit-limit-spend': formatUsd(limit), 'x-ratelimit-scope': 'org' },
  })
}

/**
 * The request costs more than its client allows, with a single token of output.
 * @param least what it needs, nano-USD
 */
export function overMaxCost(least: number, bound: number): Reply {
  return deny('request_spend_cap_exceeded', {
    message: `The request needs at least ${formatUsd(least, 9)} USD for its prompt and a token of output, and x-max-cost allows ${formatUsd(bound, 9)}. Send a shorter prompt, or allow at least that.`,
    param: 'x-max-cost',
    horizonMs: null,
    details: { dimension: 'spend_request', least_usd: formatUsd(least, 9) },
  })
}

/** A cap of 0.00: waiting cannot help (LIM-7). */
export function zeroCap(exposure: number, cap: ZeroCap): Reply {
  return deny('request_spend_cap_exceeded', {
    message: `The request may cost up to ${formatUsd(exposure)} USD and the spend cap is 0.00: raise ${cap.setting} of ${ownerWords(cap)}.`,
    horizonMs: null,
    forOperators: `${ownerWords(cap, 'the')}: 0.00 USD (${cap.setting})`,
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
