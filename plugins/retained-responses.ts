import { asGatewayError } from '../core/errors.ts'
import { answer, definePlugin, deny, type Exchange, type Reply } from '../core/plugin.ts'
import { RetainedReplies } from './conversation/replies.ts'
import { belowRoute } from './shared/below-route.ts'
import { identity } from './shared/slots.ts'

/** Answers GET and DELETE of /v1/responses/{id}: the organization's own retained responses (RESP-6). */
export const retainedResponses = definePlugin({
  name: 'retained-responses',
  summary: 'Answers with a retained response, or deletes it.',
  needs: [identity],
  terminal: true,
  create(_, context) {
    const replies = new RetainedReplies(context.store, context.secret, context.clock)

    async function answerTo(x: Exchange): Promise<Reply> {
      const id = belowRoute(x) ?? ''
      const { organization } = x.get(identity)
      if (!/^resp_\w{1,80}$/.test(id)) return unknown(id)
      if (x.incoming.method === 'DELETE') {
        const deleted = await replies.delete(organization.id, id)
        return deleted ? answer(200, { id, object: 'response', deleted: true }) : unknown(id)
      }
      if (/(?:^|&)stream=true(?:&|$)/.test(x.incoming.query)) return noStream()
      const object = await replies.get(organization.id, id)
      return object === null ? unknown(id) : answer(200, object)
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
  const shown = /^[\w.-]{1,80}$/.test(id) ? ` ${id}` : ''
  return deny('response_not_found', {
    message: `The response${shown} is not known: it was never stored, has expired or was deleted, or is another organization's.`,
  })
}

function noStream(): Reply {
  return deny('unsupported_parameter', {
    message: "'stream' is not offered here: a stored response is answered as one object. Leave it out.",
    param: 'stream',
  })
}
