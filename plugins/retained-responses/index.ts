import { asGatewayError } from '../../core/canon/errors.ts'
import { answer, definePlugin, deny, type Exchange, type Reply } from '../../core/plugin.ts'
import { inputItems } from '../../surfaces/responses/input-items.ts'
import { streamOf } from '../../surfaces/responses/sent-stream.ts'
import { counting } from '../admission/counting.ts'
import type { Retained } from '../conversation/memory.ts'
import { modelOf, notKnown, RetainedReplies, type Reply as Stored } from '../conversation/replies.ts'
import { ModelAccess, noStreaming } from '../model-access/access.ts'
import { refusalOf, refusalOfUnknown } from '../model-access/asked.ts'
import { belowRoute } from '../shared/below-route.ts'
import { listed, pageOf } from '../shared/item-page.ts'
import { type ReadableResponse, readableOf } from '../shared/readable.ts'
import { identity } from '../shared/slots.ts'
import { sendStream } from './reading.ts'

/** Sends a stream to the client of the exchange. */
type Streamed = { kind: 'stream'; response: ReadableResponse; after: number }

/**
 * Answers GET and DELETE of /v1/responses/{id}, and GET of its input_items: the organization's own retained responses
 * (RESP-6, RESP-7), and those that run and can be read meanwhile (RESP-8, RESP-9).
 */
export const retainedResponses = definePlugin({
  name: 'retained-responses',
  summary: 'Answers with a retained response, its stream or the items of its input, or deletes it.',
  needs: [identity],
  terminal: true,
  below: { GET: ['{id}', '{id}/input_items'], DELETE: ['{id}'] },
  retrieves: ['reply'],
  uses: ['models'],
  create(_, context) {
    const access = new ModelAccess(context.config)
    const replies = new RetainedReplies(context.store, context.secret, context.clock)
    const readable = readableOf(context.shared)
    const takeOne = counting(context.store)

    async function answerTo(x: Exchange): Promise<Reply | Streamed> {
      const [id = '', items] = belowRoute(x) ?? []
      const { organization } = x.get(identity)
      if (!/^resp_\w{1,80}$/.test(id)) return unknown(id)
      const running = readable.running(organization.id, id)
      if (x.incoming.method === 'DELETE') {
        const found = running ? foundOf(running) : await replies.find(organization.id, id)
        if (!found) return unknown(id)
        const refused = refusalFor(x, found)
        // No key could ask for a model that does not exist any more. What it wrote can be deleted all the same.
        if (refused && !(refused.kind === 'error' && refused.error.code === 'model_not_found')) return refused
        readable.delete(organization.id, id)
        await replies.delete(organization.id, id)
        return answer(200, { id, object: 'response', deleted: true })
      }
      if (items !== undefined) return listOf(x, organization.id, id)
      const query = new URLSearchParams(x.incoming.query)
      if (query.get('stream') === 'true') return streamTo(x, id, query.get('starting_after'))
      const found = running ? foundOf(running) : await replies.get(organization.id, id)
      if (!found) return unknown(id)
      return refusalFor(x, found) ?? answer(200, found.object)
    }

    async function streamTo(x: Exchange, id: string, startingAfter: string | null): Promise<Reply | Streamed> {
      const { organization, key } = x.get(identity)
      if (startingAfter !== null && !/^\d{1,15}$/.test(startingAfter)) return notANumber()
      const after = startingAfter === null ? -1 : Number(startingAfter)
      const refused = noStreaming(organization, key) ?? (await takeOne(x))
      if (refused) return refused
      const running = readable.running(organization.id, id)
      if (running) {
        const withheld = refusalFor(x, foundOf(running)) ?? beyond(after, running.visible)
        if (withheld) return withheld
        if (running.cut) return { kind: 'error', error: running.cut }
        return { kind: 'stream', response: running.hold(), after }
      }
      const found = await replies.get(organization.id, id)
      if (!found) return unknown(id)
      const withheld = refusalFor(x, found)
      if (withheld) return withheld
      if (after >= 0 && found.events === undefined) return unnumbered()
      const { object, asked, events } = found
      const response = readable.stored(organization.id, id, asked, () => streamOf(object, events))
      const tooFar = beyond(after, response.visible)
      if (!tooFar) return { kind: 'stream', response, after }
      response.release()
      return tooFar
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
          reply => (reply.kind === 'stream' ? sendStream(x, reply.response, reply.after) : x.reply(reply)),
          error => x.fail(asGatewayError(error)),
        )
        return undefined
      },
    }
  },
})

function unknown(id: string): Reply {
  return deny('response_not_found', {
    message: `${notKnown(id)} One that still runs is known to the gateway process that runs it, if its request had 'x-sluice-resumable: true', and to nobody else: ask again when it has ended.`,
  })
}

/** What is known of a response that runs. */
const foundOf = ({ object, asked }: ReadableResponse) => ({ object, asked: asked() })

function notANumber(): Reply {
  return deny('invalid_value', {
    message: "'starting_after' must be the 'sequence_number' of the last event that you have: a whole number from 0.",
    param: 'starting_after',
  })
}

/** The refusal of a place behind the events that there are. */
function beyond(after: number, events: number): undefined | Reply {
  if (after < events) return undefined
  return deny('invalid_value', {
    message: `'starting_after' is ${after}, and the stream has the events 0 to ${events - 1}. Send the 'sequence_number' of the last event that you have, or leave it out to get all.`,
    param: 'starting_after',
  })
}

function unnumbered(): Reply {
  return deny('invalid_value', {
    message:
      "An earlier release stored this response, without the numbers of its events. Leave 'starting_after' out to get all of its stream.",
    param: 'starting_after',
  })
}

/** The turns of the request. A record of 0.1.0 does not tell where they end: the reply is the assistant's last turn. */
function inputOf({ turns, inputs }: Retained): Retained['turns'] {
  if (inputs !== undefined) return turns.slice(0, inputs)
  return turns.at(-1)?.role === 'assistant' ? turns.slice(0, -1) : turns
}
