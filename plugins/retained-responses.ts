import { asGatewayError } from '../core/canon/errors.ts'
import { answer, definePlugin, deny, type Exchange, type Reply } from '../core/plugin.ts'
import { inputItems } from '../surfaces/responses/input-items.ts'
import type { Retained } from './conversation/memory.ts'
import { modelOf, notKnown, RetainedReplies, type Reply as Stored } from './conversation/replies.ts'
import { ModelAccess } from './model-access/access.ts'
import { refusalOf, refusalOfUnknown } from './model-access/asked.ts'
import { belowRoute } from './shared/below-route.ts'
import { listed, pageOf } from './shared/item-page.ts'
import { identity } from './shared/slots.ts'

/**
 * Answers GET and DELETE of /v1/responses/{id}, and GET of its input_items: the organization's own retained responses
 * (RESP-6, RESP-7).
 */
export const retainedResponses = definePlugin({
  name: 'retained-responses',
  summary: 'Answers with a retained response or the items of its input, or deletes it.',
  needs: [identity],
  terminal: true,
  below: { GET: ['{id}', '{id}/input_items'], DELETE: ['{id}'] },
  retrieves: ['reply'],
  uses: ['models'],
  create(_, context) {
    const access = new ModelAccess(context.config)
    const replies = new RetainedReplies(context.store, context.secret, context.clock)

    async function answerTo(x: Exchange): Promise<Reply> {
      const [id = '', items] = belowRoute(x) ?? []
      const { organization } = x.get(identity)
      if (!/^resp_\w{1,80}$/.test(id)) return unknown(id)
      if (x.incoming.method === 'DELETE') {
        const found = await replies.find(organization.id, id)
        if (!found) return unknown(id)
        const refused = refusalFor(x, found)
        // No key could ask for a model that does not exist any more. What it wrote can be deleted all the same.
        if (refused && !(refused.kind === 'error' && refused.error.code === 'model_not_found')) return refused
        await replies.delete(organization.id, id)
        return answer(200, { id, object: 'response', deleted: true })
      }
      if (items !== undefined) return listOf(x, organization.id, id)
      if (/(?:^|&)stream=true(?:&|$)/.test(x.incoming.query)) return noStream()
      const found = await replies.get(organization.id, id)
      if (!found) return unknown(id)
      return refusalFor(x, found) ?? answer(200, found.object)
    }

    async function listOf(x: Exchange, organization: string, id: string): Promise<Reply> {
      const page = pageOf(new URLSearchParams(x.incoming.query))
      if ('kind' in page) return page
      const record = await replies.request(organization, id)
      if (!record) return unknown(id)
      const object = record.asked ? undefined : (await replies.get(organization, id))?.object
      const refused = refusalFor(x, { object, asked: record.asked })
      if (refused) return refused
      return listed(inputItems(id, record.system, inputOf(record), page.include), page)
    }

    /** The key may be another one of the organization than that which asked for the response (decision 79). */
    function refusalFor(x: Exchange, { object, asked }: Stored): undefined | Reply {
      const caller = x.get(identity)
      if (asked) return refusalOf(access, caller, asked, false, null)
      return refusalOfUnknown(access, caller, () => modelOf(object), null)
    }

    return {
      forward(x) {
        answerTo(x).then(
          reply => x.reply(reply),
          error => x.fail(asGatewayError(error)),
        )
        return undefined
      },
    }
  },
})

function unknown(id: string): Reply {
  return deny('response_not_found', { message: notKnown(id) })
}

function noStream(): Reply {
  return deny('unsupported_parameter', {
    message: "'stream' is not offered here: a stored response is answered as one object. Leave it out.",
    param: 'stream',
  })
}

/** The turns of the request. A record of 0.1.0 does not tell where they end: the reply is the assistant's last turn. */
function inputOf({ turns, inputs }: Retained): Retained['turns'] {
  if (inputs !== undefined) return turns.slice(0, inputs)
  return turns.at(-1)?.role === 'assistant' ? turns.slice(0, -1) : turns
}
