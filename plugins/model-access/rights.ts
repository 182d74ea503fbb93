/** Which of the capabilities that a conversation needs the plan and the key include. */
import type { AccountCapability } from '../../config/types.ts'
import { type Conversation, EFFORTS } from '../../core/conversation.ts'
import type { Unfit } from '../../core/dialect.ts'
import type { Identity, Rights } from '../shared/slots.ts'

const everything: Rights = () => null

/** The check for all conversations of one caller. */
export function rightsOf({ organization, key }: Identity): Rights {
  const lists = [organization.capabilities, key.capabilities]
  if (lists.every(list => list === 'all')) return everything
  return conversation =>
    lackOf(conversation, capability => lists.some(list => list !== 'all' && !list.includes(capability)))
}

/** The first capability that a conversation needs and the caller lacks. */
function lackOf(conversation: Conversation, lacks: (capability: AccountCapability) => boolean): Unfit | null {
  for (const tool of conversation.tools) {
    const capability = tool.type === 'web_search' ? 'web_search' : 'tools'
    if (lacks(capability)) return { param: tool.path, requirement: `${capability}, which the plan does not include` }
  }
  const { effort, thinking } = conversation.reasoning
  const thinks =
    (effort !== undefined && EFFORTS.indexOf(effort) > 0) || (thinking !== undefined && thinking !== 'disabled')
  if (thinks && lacks('reasoning'))
    return { param: 'reasoning', requirement: 'reasoning, which the plan does not include' }
  for (const turn of conversation.turns) {
    for (const part of turn.parts) {
      for (const item of part.type === 'result' ? part.content : [part]) {
        if (item.type === 'image' && lacks('images'))
          return { param: item.path, requirement: 'image input, which the plan does not include' }
        if (item.type === 'document' && lacks('documents'))
          return { param: item.path, requirement: 'document input, which the plan does not include' }
      }
    }
  }
  return null
}
