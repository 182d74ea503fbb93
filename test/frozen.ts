/**
 * Bodies and conversations that cannot be changed in place: the next turn of a conversation shares the values of the one
 * before, so whoever changes one throws here.
 */
import { conversation, type Exchange, type Plugin, type PluginHooks, type Reply, request } from '../core/plugin.ts'
import { freeze } from '../providers/testing.ts'

const HANDED_ON: Record<string, (x: Exchange) => unknown> = {
  validation: x => x.peek(request),
  conversation: x => [x.peek(conversation)?.turns, x.peek(conversation)?.system],
}

/** The hooks of a plugin; those of `validation` and `conversation` freeze what they hand on. */
export function freezing(plugin: Plugin, hooks: PluginHooks): PluginHooks {
  const handedOn = HANDED_ON[plugin.name]
  if (!handedOn) return hooks
  return {
    ...hooks,
    onRequest(x) {
      const handOn = (reply: undefined | Reply) => {
        freeze(handedOn(x))
        return reply
      }
      const reply = hooks.onRequest!(x)
      return reply instanceof Promise ? reply.then(handOn) : handOn(reply)
    },
  }
}
