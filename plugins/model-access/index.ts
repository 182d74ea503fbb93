import type { Conversation } from '../../core/conversation.ts'
import { definePlugin, deny, type Exchange, GatewayError, type Reply, request } from '../../core/plugin.ts'
import { identity, model, parsedConversation, rights, wouldRefuse } from '../shared/slots.ts'
import { assumeOutputCap, checkEffort, checkOutputCap, ModelAccess } from './access.ts'
import { rightsOf } from './rights.ts'

/**
 * Reads what the request asks for, and decides which model that is for this caller: it exists, plan and key include it, the client has not excluded
 * it. Then what holds for the model whatever the conversation says: streaming, the highest reasoning effort, the output cap. Which capabilities plan
 * and key include it hands on as `rights`: those are judged with the rest of what a request needs, over the whole conversation.
 */
export const modelAccess = definePlugin({
  name: 'model-access',
  summary: 'Finds the model that a request asks for, and holds it to what plan, key and model allow.',
  needs: [identity, request],
  provides: [parsedConversation, model, rights],
  uses: ['models'],
  create(_, context) {
    const access = new ModelAccess(context.config)
    const { advisory } = context.terminal

    /** Where nothing is refused, a request that would be is read as far as it goes. */
    function read(x: Exchange): { conversation: Conversation; faulty: boolean } {
      const surface = x.surface!
      const body = x.get(request)
      if (advisory && x.peek(wouldRefuse)) return { conversation: surface.parseLoosely!(body), faulty: true }
      try {
        return { conversation: surface.parse(body), faulty: false }
      } catch (error) {
        if (!advisory || !(error instanceof GatewayError)) throw error
        return { conversation: surface.parseLoosely!(body), faulty: true }
      }
    }

    return {
      onRequest(x): undefined | Reply {
        const { conversation, faulty } = read(x)
        x.set(parsedConversation, conversation)
        if (faulty) return undefined
        const caller = x.get(identity)
        const { organization, key } = caller
        const found = access.resolve(conversation.model, organization, key, x.incoming.headers.get('x-excluded-models'))
        if ('kind' in found) return advisory ? undefined : found
        conversation.model = found.id
        x.set(model, found)
        x.set(rights, rightsOf(caller))
        if (advisory) return undefined

        if (conversation.stream && !(organization.streaming && key.streaming)) return noStreaming()
        const refused = checkEffort(conversation, found) ?? checkOutputCap(conversation, found)
        if (refused) return refused
        assumeOutputCap(conversation, found, caller)
        return undefined
      },
    }
  },
})

function noStreaming(): Reply {
  return deny('streaming_not_available', {
    message: 'The plan does not include streaming. Send the request with "stream": false, or change the plan.',
    param: 'stream',
  })
}
