/** The provider's side of an exchange: who answered, what it counted, and what that costs the operator. */
import type { ProviderUsage } from '../../core/canon/events.ts'
import { costAt } from '../../core/canon/money.ts'
import type { CallReport } from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import type { ProviderSide } from '../../core/ports/store.ts'

/**
 * @param call what `upstream` says of the calls; undefined where there were none
 * @param report the provider's own, as far as there is one
 * @param counted what the gateway itself counted of all prompts that were sent, and of the output, delivered or not
 */
export function sideOf(
  call: Pick<CallReport, 'served' | 'promptTaken' | 'ownCost'> | undefined,
  report: ProviderUsage | null,
  counted: { input: number; output: number },
): ProviderSide {
  const side = ofCalls(call, report, counted)
  const own = call ? call.ownCost : 0
  // What is not known makes the whole unknown: a sum that is too low would look like a margin.
  if (own === null) delete side.provider_cost
  else if (side.provider_cost !== undefined) side.provider_cost += own
  return side
}

function ofCalls(
  call: Pick<CallReport, 'served' | 'promptTaken'> | undefined,
  report: ProviderUsage | null,
  counted: { input: number; output: number },
): ProviderSide {
  const backend = call?.served
  // A provider that has the prompt and did not answer may charge for it: what, nobody has said.
  if (!backend) return call?.promptTaken ? {} : { provider_cost: 0 }
  const requests = report?.rounds?.count ?? 1
  const side: ProviderSide = { provider_model: backend.model, service_tier: report?.tier ?? '', rounds: requests }
  const prompts = report?.rounds ?? report
  if (report && prompts) {
    side.provider_input = prompts.prompt
    side.provider_cached = prompts.cached
    side.provider_cache_write = prompts.cacheWrite
    side.provider_cache_write_1h = prompts.cacheWriteHour
    side.provider_output = report.output
    side.provider_reasoning = report.reasoning
    if (prompts.prompt !== undefined) side.counted_input = counted.input
    if (report.output !== undefined) side.counted_output = counted.output
  }
  const cost = costOf(backend, report, counted)
  if (cost !== null) side.provider_cost = cost
  return side
}

/**
 * What a backend charges for what it reports, nano-USD; null when the configuration does not say.
 * @param counted stands for what it does not report
 */
export function costOf(
  { cost }: Backend,
  report: ProviderUsage | null,
  counted: { input: number; output: number },
): number | null {
  if (!cost) return null
  const prompts = report?.rounds ?? report
  return costAt(cost, {
    requests: report?.rounds?.count ?? 1,
    prompt: prompts?.prompt ?? counted.input,
    cached: prompts?.cached ?? 0,
    cacheWrite: prompts?.cacheWrite ?? 0,
    cacheWriteHour: prompts?.cacheWriteHour ?? 0,
    output: report?.output ?? counted.output,
    searches: report?.searches ?? 0,
    ...(report?.tier !== undefined && { tier: report.tier }),
  })
}
