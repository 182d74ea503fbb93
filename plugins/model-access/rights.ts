/** Which of the capabilities that a conversation needs the plan and the key include. */
import type { AccountCapability } from '../../config/types.ts'
import { type Conversation, EFFORTS } from '../../core/canon/conversation.ts'
import { deny, type Reply } from '../../core/plugin.ts'
import type { Unfit } from '../../core/ports/dialect.ts'
import { memberOf } from '../../providers/requirements.ts'
import type { Identity, Rights } from '../shared/slots.ts'

/** How a refusal names a capability. */
const WORDS: Record<AccountCapability, string> = {
  tools: 'tools',
  web_search: 'web_search',
  reasoning: 'reasoning',
  images: 'image input',
  documents: 'document input',
}

/** A capability that a conversation needs, and the parameter that asks for it. */
export type Need = readonly [capability: AccountCapability, param: string]

const everything: Rights = () => null

/** The check for all conversations of one caller. */
export function rightsOf(caller: Identity): Rights {
  const { organization, key } = caller
  if (organization.capabilities === 'all' && key.capabilities === 'all') return everything
  return conversation => firstLack(needsOf(conversation), caller)
}

/** The first of `needs` that plan or key do not include; null when they include all. */
export function firstLack(needs: Iterable<Need>, { organization, key }: Identity): Unfit | null {
  const includes = (list: 'all' | readonly AccountCapability[], capability: AccountCapability) =>
    list === 'all' || list.includes(capability)
  for (const [capability, param] of needs) {
    const inPlan = includes(organization.capabilities, capability)
    if (inPlan && includes(key.capabilities, capability)) continue
    const whose = inPlan ? 'this key' : 'the plan'
    return { param, requirement: `${WORDS[capability]}, which ${whose} does not include` }
  }
  return null
}

/** The capabilities that a conversation needs, in the order of its refusals; one may come several times. */
export function* needsOf(conversation: Conversation): Generator<Need> {
  for (const tool of conversation.tools) yield [tool.type === 'web_search' ? 'web_search' : 'tools', tool.path]
  const { effort, thinking } = conversation.reasoning
  const thinks =
    (effort !== undefined && EFFORTS.indexOf(effort) > 0) || (thinking !== undefined && thinking !== 'disabled')
  if (thinks) yield ['reasoning', memberOf(conversation, 'effort')]
  for (const turn of conversation.turns) {
    for (const part of turn.parts) {
      for (const item of part.type === 'result' ? part.content : [part]) {
        if (item.type === 'image') yield ['images', item.path]
        else if (item.type === 'document') yield ['documents', item.path]
      }
    }
  }
}

/**
 * The refusal of a request that asks for something that its model, plan or key cannot give.
 * @param together what can be had by itself, but not with the first
 */
export function unsatisfied(model: string, first: Unfit, ...together: readonly Unfit[]): Reply {
  const asked = [first, ...together]
    .map(({ requirement, param }) => `${requirement} (${param})`)
    .join(' together with ')
  const it = together.length === 0 ? 'it' : 'one of them'
  return deny('request_requirements_unsatisfied', {
    message: `The model ${model} can't serve this request: it asks for ${asked}. Remove ${it} or choose another model.`,
    param: first.param,
  })
}
