import type { Conversation } from '../core/canon/conversation.ts'
import type { GatewayError } from '../core/canon/errors.ts'
import {
  type AttemptCall,
  conversation,
  definePlugin,
  type Exchange,
  estimate,
  type Reply,
  request,
  type WireRequest,
} from '../core/plugin.ts'
import type { Decoder, Dialect, EmbeddingsRequest, FaultHeaders } from '../core/ports/dialect.ts'
import { wellFormed } from '../core/tools/json.ts'
import { countTokens, EACH_TEXT, meterPool, SYNC_LIMIT } from '../meter/index.ts'
import { blaming } from '../providers/blame.ts'
import { dialectOf } from '../providers/index.ts'
import { type EmbeddingInput, inputsOf } from '../surfaces/embeddings/parse.ts'
import type { EmbeddingsBody } from '../surfaces/embeddings/schema.ts'
import { leastOf } from './shared/account-limits.ts'
import { choicesOf } from './shared/backend-order.ts'
import { inThreads, tooLong } from './shared/prompt-counting.ts'
import { candidates, identity, model, parsedConversation } from './shared/slots.ts'
import { sharedTicker } from './shared/ticker.ts'
import { Attempt, type WrittenCall } from './translation/attempt.ts'

/**
 * Prepares a request for embeddings: counts its inputs exactly, and fills what `admission` and `upstream` read, in the
 * place of the plugins that prepare a conversation.
 */
export const embeddings = definePlugin({
  name: 'embeddings',
  summary: 'Counts the inputs of a request for embeddings, and writes it for the backend.',
  needs: [identity, request, parsedConversation, model],
  provides: [conversation, estimate, candidates],
  layers: ['translate'],
  aboveTerminal: true,
  dryRun: 'safe',
  create(_, { clock, shared }) {
    const ticker = sharedTicker(shared, clock)
    // The tables are built on first use: build them at start, so that the first request does not wait.
    countTokens('')

    return {
      async onRequest(x): Promise<undefined | Reply> {
        const inputs = inputsOf(x.get(request) as unknown as EmbeddingsBody)
        const counted = await countInputs(x, inputs)
        if (!Array.isArray(counted)) return counted
        const refused = over(x, counted)
        if (refused) return refused
        const said = x.get(parsedConversation)
        x.set(conversation, said)
        x.set(estimate, { input: sum(counted) })
        x.set(candidates, choicesOf(x.get(model)).order().by(x.id))
        return undefined
      },
      translate: next => (call, sink) => new Attempt(call, new AskedVectors(call), sink, ticker).start(next),
    }
  },
})

/** The request of one attempt, as the client wrote it, and the decoder for its reply. */
class AskedVectors implements WrittenCall {
  readonly wire: WireRequest
  // The vectors are found and passed on, not parsed, so only the gateway's own bound holds.
  readonly maxWhole = Number.POSITIVE_INFINITY
  readonly #asked: Conversation
  readonly #dialect: Dialect
  readonly #inputs: number

  constructor(call: AttemptCall) {
    const { backend, facts } = call
    const body = facts.get(request) as unknown as EmbeddingsBody
    const { input, encoding_format, dimensions } = body
    const asked: EmbeddingsRequest = {
      input,
      ...(encoding_format != null && { encoding_format }),
      ...(dimensions != null && { dimensions }),
    }
    this.#asked = call.asked
    this.#dialect = dialectOf(backend)
    this.#inputs = inputsOf(body).length
    const { method, path, headers, body: json } = this.#dialect.embeddings!.request(asked, backend)
    this.wire = { call, method, path, headers, own: {}, body: wellFormed(json) }
  }

  decoder(): Decoder {
    return this.#dialect.embeddings!.decoder(this.#inputs)
  }

  frames(): null {
    return null
  }

  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    return blaming(this.#asked, this.#dialect, this.#dialect.fault(status, headers, body), status === 400)
  }

  eventFault(error: GatewayError): GatewayError {
    return error
  }
}

/** The tokens of each input, or the refusal when no thread is there to count them. */
async function countInputs(x: Exchange, inputs: readonly EmbeddingInput[]): Promise<number[] | Reply | undefined> {
  const texts = inputs.filter(input => typeof input === 'string')
  // A token id is one token, whoever counted it.
  if (texts.length === 0) return inputs.map(({ length }) => length)
  let size = 0
  for (const text of texts) size += text.length + EACH_TEXT
  if (size <= SYNC_LIMIT) return texts.map(text => countTokens(text))
  return inThreads(
    x,
    (signal, owner) => meterPool().count(texts, signal, owner),
    'The input could not be counted. Retry shortly.',
  )
}

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0)

/** The window of the model holds for each input, `max_input_tokens` of the account for all of them together. */
function over(x: Exchange, counted: readonly number[]): undefined | Reply {
  const { id, context_window } = x.get(model)
  const longest = counted.findIndex(count => count > context_window)
  const input = counted.length === 1 ? 'input' : `input[${longest}]`
  if (longest >= 0) return tooLong(input, counted[longest]!, context_window)
  const most = leastOf('max_input_tokens', x.get(identity), id)
  const all = sum(counted)
  return most !== null && all > most ? tooLong('input', all, most) : undefined
}
