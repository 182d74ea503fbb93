import { asGatewayError } from '../core/canon/errors.ts'
import { countedOf } from '../core/canon/limits.ts'
import { exposure, formatUsd, priceUsed, ratesAt } from '../core/canon/money.ts'
import { answer, conversation, definePlugin, type Exchange, estimate, type Reply } from '../core/plugin.ts'
import type { Cell, Store } from '../core/ports/store.ts'
import { count, object } from '../core/tools/vocabulary.ts'
import { type CellSet, cellsAt, cellsFor } from './admission/cells.ts'
import { counting } from './admission/counting.ts'
import { denied } from './admission/denials.ts'
import { type Need, needOf } from './admission/need.ts'
import { capWithin, spendLeft } from './admission/output-cap.ts'
import { platformFull, platformOf } from './admission/platform.ts'
import { type Identity, identity, model, reservation } from './shared/slots.ts'

const schema = object({
  output_reserve: count(4096, 'As `output_reserve` of the pipeline whose requests are quoted.', 1),
})

/**
 * Answers what a request would need: its prompt counted as it will be billed, the most that it can cost, and whether it
 * would be admitted now. It is the arithmetic of `admission` without the taking. Each quote takes one from the bucket of
 * counts of tokens.
 */
export const quote = definePlugin({
  name: 'quote',
  summary: 'Answers what a request would cost at most, and whether it would be admitted now.',
  config: schema,
  needs: [identity, conversation, estimate, model],
  terminal: true,
  postOnly: true,
  foretells: [reservation],
  uses: ['platform'],
  create({ output_reserve }, { store, config, shared }) {
    const platform = platformOf(shared)
    const { max_concurrent_requests } = config.platform
    const sets = new WeakMap<Identity, Map<string, CellSet>>()

    function setOf(caller: Identity, id: string): CellSet {
      let byModel = sets.get(caller)
      if (!byModel) sets.set(caller, (byModel = new Map()))
      let set = byModel.get(id)
      if (!set) byModel.set(id, (set = cellsFor(caller.organization, caller.key, id)))
      return set
    }

    return {
      // Before the body, because what it costs is to read and count it.
      beforeBody: counting(store),
      forward(x) {
        const set = setOf(x.get(identity), x.get(model).id)
        const need = needOf(x, set, output_reserve)
        const full = platform.running >= max_concurrent_requests ? platformFull() : undefined
        if ('kind' in need) x.reply(quoteOf(x, null, null, need))
        else
          lookAt(store, x, set, cellsAt(set, platform.running, config.platform), need, full).then(
            reply => x.reply(reply),
            error => x.fail(asGatewayError(error)),
          )
        return undefined
      },
    }
  },
})

/** What the limits say of it. Nothing is taken. @param cells those of `set`, lowered while the platform is under load */
async function lookAt(
  store: Store,
  x: Exchange,
  { cells: usual, spendCells }: CellSet,
  cells: readonly Cell[],
  need: Need,
  full: Reply | undefined,
): Promise<Reply> {
  const { input, price, cap, reserve, own, besides, costOf } = need
  const org = x.get(identity).organization.id
  const now = x.clock.now()
  const spends = price !== null && spendCells.length > 0
  const left = spends ? spendLeft(spendCells, await store.limits.peek(org, spendCells, now)) : Number.POSITIVE_INFINITY
  const output = spends ? Math.min(cap.most, capWithin(left, cap, own, price, besides)) : cap.most
  const cost = costOf(output === Number.POSITIVE_INFINITY ? cap.reserve : output)
  const amounts = cells.map(({ dimension }) => countedOf(dimension).reserve(input, reserve, cost, x.get(conversation)))
  const denial = full ? null : await store.limits.wouldDeny({ org, cells, amounts, now })
  return quoteOf(x, need, output, full ?? (denial ? denied(cells, amounts, denial, now, { full: usual }) : undefined))
}

/**
 * @param need null for a request that could never be admitted
 * @param output the cap that would be sent; infinite where nothing sets one
 */
function quoteOf(x: Exchange, need: Need | null, output: number | null, refusal: Reply | undefined): Reply {
  const { id, price: listed } = x.get(model)
  const price = x.get(identity).organization.billing === 'free' ? null : listed
  const input = x.get(estimate).input
  const capped = output !== null && output !== Number.POSITIVE_INFINITY
  const most = need && capped ? need.costOf(output) : price ? null : 0
  return answer(200, {
    object: 'quote',
    model: id,
    input_tokens: input,
    // What the provider may write at most, reasoning included; null where nothing bounds it.
    max_output_tokens: capped ? output : null,
    cost: {
      currency: 'USD',
      // Null where nothing bounds the output, or the request could never be admitted.
      most: most === null ? null : formatUsd(most, 9),
      input: formatUsd(price ? exposure(input, 0, price) : 0, 9),
      price: price && {
        used: priceUsed(price, input),
        input_per_million: formatUsd(ratesAt(price, input).input * 1000, 9),
        output_per_million: formatUsd(ratesAt(price, input).output * 1000, 9),
      },
    },
    admitted: refusal === undefined,
    refusal: refusal === undefined ? null : refusedBy(refusal),
  })
}

/** The error that the request would get now. */
function refusedBy(refusal: Reply): object {
  if (refusal.kind !== 'error') throw new Error(`a limit answered with ${refusal.kind}`)
  const { code, message, retriable, horizonMs, details } = refusal.error
  return {
    code,
    message,
    retryable: retriable,
    retry_after_seconds: horizonMs === null ? null : Math.ceil(horizonMs / 1000),
    ...(details && { details }),
  }
}
