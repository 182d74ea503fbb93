/**
 * Bodies and conversations that cannot be changed in place: the next turn of a conversation shares the values of the one
 * before, so whoever changes one throws here.
 */
import { conversation, type Exchange, type Plugin, type PluginHooks, type Reply, request } from '../core/plugin.ts'

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

function freeze(value: unknown): void {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value)) return
  // A call keeps the form of its arguments beside them (core/canon/arguments.ts).
  if ((value as { type?: unknown }).type === 'call')
    for (const name of Object.keys(value)) Object.defineProperty(value, name, { writable: false, configurable: true })
  else Object.freeze(value)
  for (const inner of Object.values(value)) freeze(inner)
}
