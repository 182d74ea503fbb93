/** Reasoning controls of the Messages API and the conditions under which they are accepted (wire.md F.4). */
import type { Conversation, Effort } from '../../core/canon/conversation.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import { wantedEffort } from '../effort.ts'
import { fitEffort } from '../effort-levels.ts'
import type { JsonObject } from '../loose-json.ts'
import { isForced, isPrefill } from '../requirements.ts'
import type { AnthropicEffort, ModelTraits } from './models.ts'

/** The API's minimum of `budget_tokens`. */
const MIN_BUDGET = 1024
/** `max_tokens` when neither the request nor the backend has a cap; the member is mandatory. */
export const DEFAULT_MAX_TOKENS = 8192
/** Thinking budgets in tokens, for models without effort levels. */
const BUDGETS: Record<Exclude<Effort, 'none' | 'minimal' | 'low'>, number> = {
  medium: 8_192,
  high: 16_384,
  xhigh: 32_768,
  max: 32_768,
  ultra: 32_768,
}

/** The reasoning members of a request. */
export interface ThinkingPlan {
  maxTokens: number
  /** The model thinks; sampling parameters are restricted then. */
  on: boolean
  thinking?: JsonObject
  effort?: AnthropicEffort
}

/**
 * Chooses the reasoning members of a request.
 * @param replayable false when the thinking at the beginning of the running tool loop is lost. Models with budgets
 *   then refuse to think, and the loop continues without thinking: lost data must never cause a 4xx (wire.md F.7).
 */
export function planThinking(
  conversation: Conversation,
  backend: Backend,
  traits: ModelTraits,
  replayable: boolean,
): ThinkingPlan {
  const { reasoning } = conversation
  const maxTokens = conversation.maxOutputTokens ?? backend.maxOutputTokens ?? DEFAULT_MAX_TOKENS
  const wish = wantedEffort(conversation)
  if (!backend.supports.has('reasoning')) return { maxTokens, on: traits.off === 'never' }

  const explicit = explicitThinking(conversation)
  const nativeBudget =
    traits.thinking === 'budget' && reasoning.effort === undefined && reasoning.budgetTokens !== undefined
  const effort =
    wish === undefined || traits.efforts.length === 0 || nativeBudget || (wish === 'none' && traits.off !== 'never')
      ? undefined
      : fitEffort(wish, traits.efforts, backend.effortCeiling)

  const off: ThinkingPlan = { maxTokens, on: traits.off === 'never', effort }
  const disabled =
    traits.off === 'disabled' && traits.thinking !== 'none' ? { ...off, thinking: { type: 'disabled' } } : off
  if (reasoning.thinking === 'disabled' || wish === 'none') return disabled
  // Thinking that the gateway derives only from an effort is dropped when the request needs something that excludes
  // thinking.
  const blocked = !explicit && (isForced(conversation) || isPrefill(conversation))
  if (blocked) return traits.thinksByDefault ? disabled : off
  if (!explicit && (wish === undefined || wish === 'minimal' || wish === 'low')) return off

  if (traits.thinking === 'none') return off
  const display = reasoning.summary === undefined ? undefined : 'summarized'
  if (traits.thinking === 'adaptive') {
    const between = reasoning.thinking === 'between_tools' && traits.midSystem
    return {
      maxTokens,
      on: true,
      effort,
      thinking: between ? { type: 'between_tools' } : { type: 'adaptive', display },
    }
  }
  if (!replayable) return disabled
  const level = wish === undefined || wish === 'minimal' || wish === 'low' ? 'medium' : wish
  let budget = nativeBudget ? reasoning.budgetTokens! : BUDGETS[level]
  if (conversation.maxOutputTokens === undefined && backend.maxOutputTokens === undefined) {
    return {
      maxTokens: maxTokens + budget,
      on: true,
      effort,
      thinking: { type: 'enabled', budget_tokens: budget, display },
    }
  }
  budget = Math.min(budget, maxTokens - 1)
  if (budget < MIN_BUDGET) return disabled
  return { maxTokens, on: true, effort, thinking: { type: 'enabled', budget_tokens: budget, display } }
}

/** True when the client itself requested thinking; only Messages clients can. */
export function explicitThinking(conversation: Conversation): boolean {
  const { thinking } = conversation.reasoning
  return thinking !== undefined && thinking !== 'disabled'
}
