/**
 * Bodies that cannot be changed in place: the next turn of a conversation shares the values of the one before, so whoever
 * changes one throws here.
 */
import { type Plugin, type PluginHooks, type Reply, request } from '../core/plugin.ts'

/** The hooks of a plugin; those of `validation` freeze the body that it hands on. */
export function freezing(plugin: Plugin, hooks: PluginHooks): PluginHooks {
  if (plugin.name !== 'validation') return hooks
  return {
    ...hooks,
    onRequest(x) {
      const handOn = (reply: undefined | Reply) => {
        freeze(x.peek(request))
        return reply
      }
      const reply = hooks.onRequest!(x)
      return reply instanceof Promise ? reply.then(handOn) : handOn(reply)
    },
  }
}

function freeze(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return
  Object.freeze(value)
  for (const inner of Object.values(value)) freeze(inner)
}
