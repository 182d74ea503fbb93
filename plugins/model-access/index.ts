import { type Conversation, workOf } from '../../core/canon/conversation.ts'
import { definePlugin, type Exchange, GatewayError, type Reply, request } from '../../core/plugin.ts'
import { identity, model, parsedConversation, rights, wouldRefuse } from '../shared/slots.ts'
import { checkEffort, checkOutputCap, checkServes, ModelAccess, noStreaming, reasoningOf } from './access.ts'
import { rightsOf, unsatisfied } from './rights.ts'
import { strayRoutes } from './stray-routes.ts'

/**
 * Parses the request and decides whether this caller may use the model that it names: the model exists, plan and key
 * include it, and the client has not excluded it. Then checks what depends on the model and not on the turns:
 * streaming, the highest reasoning effort, the output cap. Capabilities are only handed on, as `rights`: `routing`
 * checks them with the other needs of the whole conversation.
 */
export const modelAccess = definePlugin({
  name: 'model-access',
  summary: 'Finds the model that a request names, and refuses what plan, key or model do not allow.',
  needs: [identity, request],
  provides: [parsedConversation, model, rights],
  aboveTerminal: true,
  dryRun: 'safe',
  uses: ['models'],
  check: (own, config) => strayRoutes(config, own),
  create(_, context) {
    const access = new ModelAccess(context.config)
    const { advisory } = context.terminal

    /** An advisory chain refuses no body that can be counted: it parses an invalid request loosely, and `faulty` is true. */
    function readBody(x: Exchange): { conversation: Conversation; faulty: boolean } {
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
        const { conversation: read, faulty } = readBody(x)
        // Before anybody copies it: all copies draw on this one budget.
        workOf(read)
        const counts = advisory && !(x.surface!.judgesCounts && x.get(request)['model'] != null)
        const caller = x.get(identity)
        const { organization, key } = caller
        const excluded = x.incoming.headers.get('x-excluded-models')
        const found = faulty && counts ? undefined : access.resolve(read.model, organization, key, excluded)
        if (found === undefined || 'kind' in found) {
          x.set(parsedConversation, read)
          return counts ? undefined : found
        }
        const other = counts ? undefined : checkServes(found, x.surface!)
        if (other) {
          x.set(parsedConversation, read)
          return other
        }
        const conversation = { ...read, model: found.id, reasoning: reasoningOf(read, found) }
        x.set(parsedConversation, conversation)
        x.set(model, found)
        x.set(rights, rightsOf(caller))
        if (counts) return undefined

        if (advisory) {
          // No `routing` is below: the capabilities are checked here, but for those of recalled turns.
          const lack = x.get(rights)(conversation)
          if (lack) return unsatisfied(found.id, lack)
        } else {
          const unstreamed = conversation.stream && noStreaming(organization, key)
          if (unstreamed) return unstreamed
        }
        return checkEffort(conversation, found) ?? checkOutputCap(conversation, found)
      },
    }
  },
})
