/** Reasoning effort as it is requested from providers (wire.md F.4). */
import type { Conversation, Effort } from '../core/canon/conversation.ts'

/**
 * The effort that a conversation requests: its own effort; otherwise the effort nearest to the thinking budget of a
 * Messages request; `none` when thinking is switched off. Undefined when the client did not say.
 */
export function wantedEffort(conversation: Conversation): Effort | undefined {
  const { effort, budgetTokens, thinking } = conversation.reasoning
  if (effort !== undefined) return effort
  if (thinking === 'disabled') return 'none'
  return budgetTokens === undefined ? undefined : effortOfBudget(budgetTokens)
}

/**
 * The effort for a provider that knows efforts and no other form of thinking: where the client asks for thinking as the
 * model sees fit (Messages `adaptive`) and names no effort, it is the model's own.
 */
export function effortToSend(conversation: Conversation): Effort | undefined {
  const { thinking, modelEffort } = conversation.reasoning
  return wantedEffort(conversation) ?? (thinking === 'adaptive' ? (modelEffort ?? 'medium') : undefined)
}

/** The effort nearest to a thinking budget in tokens. */
export function effortOfBudget(tokens: number): Effort {
  if (tokens < 2_000) return 'low'
  if (tokens < 8_000) return 'medium'
  return tokens < 24_000 ? 'high' : 'xhigh'
}
