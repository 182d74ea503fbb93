import type { Conversation } from '../../core/canon/conversation.ts'
import { conversation, type Exchange } from '../../core/plugin.ts'
import { assumedCap, upstreamConversation } from './slots.ts'

/** What goes upstream: the conversation, with an output cap where the client named none and one applies. */
export function sentConversation(x: Exchange): Conversation {
  const own = x.peek(upstreamConversation) ?? x.get(conversation)
  const cap = x.peek(assumedCap)
  return cap === undefined ? own : { ...own, maxOutputTokens: cap }
}
