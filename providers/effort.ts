/** Reasoning effort towards providers (wire.md F.4). */
import type { Conversation, Effort } from '../core/conversation.ts'

/**
 * The effort that a conversation asks for: its own effort; else what a Messages thinking budget comes nearest to;
 * `none` for thinking switched off; undefined when the client said nothing or left it to the model.
 */
export function wantedEffort(conversation: Conversation): Effort | undefined {
  const { effort, budgetTokens, thinking } = conversation.reasoning
  if (effort !== undefined) return effort
  if (thinking === 'disabled') return 'none'
  return budgetTokens === undefined ? undefined : effortOfBudget(budgetTokens)
}

/** The nearest effort of a thinking budget in tokens. */
export function effortOfBudget(tokens: number): Effort {
  if (tokens < 2_000) return 'low'
  if (tokens < 8_000) return 'medium'
  return tokens < 24_000 ? 'high' : 'xhigh'
}
