/** What this dialect, or one of its backends, cannot carry (wire.md F.9, column OC; decision 30). */
import type { Conversation } from '../../core/canon/conversation.ts'
import type { Backend, Unfit } from '../../core/ports/dialect.ts'
import { commonUnfit, requirementsOf } from '../requirements.ts'

/**
 * The first requirement that is not met, or null. The requirement of a hosted search is never met: the dialect has
 * none. When the gateway runs the search itself (decision 34), it passes a conversation without the search tool.
 */
export function chatUnfit(conversation: Conversation, backend: Backend): Unfit | null {
  const unfit = commonUnfit(conversation, backend)
  if (unfit) return unfit
  const { documentUrl } = requirementsOf(conversation)
  if (documentUrl !== undefined) return { param: documentUrl, requirement: 'a document by URL' }
  const { topK } = conversation.sampling
  if (topK !== undefined && topK > 0) return { param: 'top_k', requirement: 'top-k sampling' }
  return null
}
