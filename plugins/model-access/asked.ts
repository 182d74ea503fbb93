/**
 * What a request asked for that plan or key may not include. It is stored with what the request leaves behind, and
 * whoever wants that later must be allowed to ask for the same (decision 79).
 */
import type { AccountCapability } from '../../config/types.ts'
import type { Conversation } from '../../core/canon/conversation.ts'
import { conversation as conversationSlot, deny, type Exchange, type Reply } from '../../core/plugin.ts'
import { type Identity, model, parsedConversation, recalledAsked } from '../shared/slots.ts'
import { type ModelAccess, noStreaming } from './access.ts'
import { firstLack, type Need, needsOf, unsatisfied } from './rights.ts'

/** It is stored as JSON. Later releases may add members, which earlier ones ignore. */
export interface Asked {
  /** Public ids, without aliases: the request's own model first, then those of the responses that it continues. */
  models: readonly string[]
  /** The reply is a stream. */
  stream?: boolean
  /** Where the request asked for each capability that it needs, recalled turns included. */
  capabilities?: Partial<Record<AccountCapability, string>>
}

/** What this exchange asked for; undefined where no model was found, as on a chain without `model-access`. */
export function askedBy(x: Exchange): Asked | undefined {
  const found = x.peek(model)
  const conversation = x.peek(conversationSlot) ?? x.peek(parsedConversation)
  return found && conversation && askedOf(found.id, conversation, x.peek(recalledAsked))
}

/** @param recalled what the responses that it continues asked for */
export function askedOf(model: string, conversation: Conversation, recalled?: Asked): Asked {
  const capabilities: Asked['capabilities'] = { ...recalled?.capabilities }
  for (const [capability, param] of needsOf(conversation)) capabilities[capability] ??= param
  return { models: [...new Set([model, ...(recalled?.models ?? [])])], stream: conversation.stream, capabilities }
}

/** What several requests asked for together. */
export function allAsked(several: readonly Asked[]): Asked {
  return {
    models: [...new Set(several.flatMap(({ models }) => models))],
    capabilities: Object.assign({}, ...several.map(({ capabilities }) => capabilities)),
  }
}

/**
 * The refusal of whoever may not ask for this, in the words of a request that asks for it.
 * @param streamed whether it would be answered as a stream, if it was one
 * @param param the parameter to name, where the request has none of those that asked for it
 */
export function refusalOf(
  access: ModelAccess,
  caller: Identity,
  { models, stream, capabilities = {} }: Asked,
  streamed: boolean,
  param?: string | null,
): undefined | Reply {
  for (const name of models) {
    const found = access.resolve(name, caller.organization, caller.key, undefined)
    if ('kind' in found) return naming(found, param)
  }
  const unstreamed = streamed && stream && noStreaming(caller.organization, caller.key)
  if (unstreamed) return unstreamed
  const needs = Object.entries(capabilities) as unknown as Iterable<Need>
  const lack = firstLack(needs, caller)
  return lack ? naming(unsatisfied(models[0]!, lack), param) : undefined
}

function naming(reply: Reply, param: string | null | undefined): Reply {
  if (param === undefined || reply.kind !== 'error') return reply
  const { code, message } = reply.error
  return deny(code, { message, param })
}

/**
 * The refusal of a key for what 0.1.0 stored, which does not tell what was asked for. A key that its organization does
 * not narrow gets it as before. A narrowed one gets it where the model is known by other means and allowed, unless the
 * key narrows capabilities.
 * @param modelOf finds the model that was asked; undefined when nothing says so
 */
export function refusalOfUnknown(
  access: ModelAccess,
  caller: Identity,
  modelOf: () => string | undefined,
  param: string | null,
): undefined | Reply {
  if (!isNarrowed(caller)) return undefined
  const model = caller.key.capabilities === 'all' ? modelOf() : undefined
  if (model !== undefined) return refusalOf(access, caller, { models: [model] }, false, param)
  return deny('model_not_available', {
    message:
      'An earlier release stored this response without what it was asked for, and this key has limits on models or capabilities. Use a key without such limits, or send the whole conversation as input.',
    param,
  })
}

/** Whether a key may use less than others of its organization may. */
export function isNarrowed({ key }: Identity): boolean {
  return key.models !== 'all' || key.capabilities !== 'all'
}
