/** What this dialect, or a backend of it, can't carry (wire.md F.9, column OC; decisions 30). */
import type { Conversation } from '../../core/conversation.ts'
import type { Backend, Unfit } from '../../core/dialect.ts'
import { commonUnfit, requirementsOf } from '../requirements.ts'

/**
 * The first requirement that fails, or null. A hosted search always fails: the dialect has none. The gateway may run it
 * (decisions 34) by taking the search tool out of the conversation that is asked about.
 */
export function chatUnfit(conversation: Conversation, backend: Backend): Unfit | null {
  const unfit = commonUnfit(conversation, backend)
  if (unfit) return unfit
  const { documentUrl } = requirementsOf(conversation)
  if (documentUrl !== undefined) return { param: documentUrl, requirement: 'a document by URL' }
  const { topK } = conversation.sampling
  if (topK !== undefined && topK > 0) return { param: 'top_k', requirement: 'top_k' }
  return null
}
