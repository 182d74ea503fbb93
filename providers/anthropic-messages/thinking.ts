/** Reasoning controls towards the Messages API, with their side conditions (wire.md F.4). */
import type { Conversation, Effort } from '../../core/conversation.ts'
import type { Backend } from '../../core/dialect.ts'
import { wantedEffort } from '../effort.ts'
import { fitEffort } from '../effort-levels.ts'
import type { JsonObject } from '../loose-json.ts'
import { isForced, isPrefill } from '../requirements.ts'
import type { AnthropicEffort, ModelTraits } from './models.ts'

/** The API's own minimum of `budget_tokens`. */
const MIN_BUDGET = 1024
/** Cap when neither the request nor the backend has one; the member is mandatory. */
const DEFAULT_MAX_TOKENS = 8192
/** Thinking budgets for models that know no effort. */
const BUDGETS: Record<Exclude<Effort, 'none' | 'minimal' | 'low'>, number> = {
  medium: 8_192,
  high: 16_384,
  xhigh: 32_768,
  max: 32_768,
  ultra: 32_768,
}

export interface ThinkingPlan {
  maxTokens: number
  /** The model thinks: sampling is limited then. */
  on: boolean
  thinking?: JsonObject
  effort?: AnthropicEffort
}

/**
 * @param replayable false when thinking that opened the running tool loop is lost: models with budgets then refuse to think on, and the loop
 * goes on without (wire.md F.7: a miss is never a 4xx)
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

  const asked = explicitThinking(conversation)
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
  // Thinking that only our reading of an effort asks for gives way to what can't be had with it.
  const blocked = !asked && (isForced(conversation) || isPrefill(conversation))
  if (blocked) return traits.thinksByDefault ? disabled : off
  if (!asked && (wish === undefined || wish === 'minimal' || wish === 'low')) return off

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

/** The client itself asked for thinking, which it only can on Messages. */
export function explicitThinking(conversation: Conversation): boolean {
  const { thinking } = conversation.reasoning
  return thinking !== undefined && thinking !== 'disabled'
}
