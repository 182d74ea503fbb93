/** The Responses API of OpenAI as an upstream dialect (wire.md F, column OR). */
import type { Conversation } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { Backend, DecodeContext, Decoder, Dialect, FaultHeaders, Unfit } from '../../core/ports/dialect.ts'
import { openAiBlames } from '../blame.ts'
import { faultOf, kindOfOpenAiReply, retryAfterMs } from '../faults.ts'
import { openAiEmbeddings } from '../openai-embeddings.ts'
import { allBut, commonUnfit, isPrefill, requirementsOf } from '../requirements.ts'
import { StopDecoder } from '../stop-matcher.ts'
import { toldInBody } from '../told.ts'
import { ResponsesDecoder } from './decoder.ts'
import { traitsOf } from './models.ts'
import { NAME, request } from './request.ts'

export const openaiResponses: Dialect = {
  name: NAME,
  vendor: 'openai',
  capabilities: allBut('prefill'),
  nativeTools: new Set(),
  unfit,
  structures: () => true,
  request,
  embeddings: openAiEmbeddings,
  decoder(context: DecodeContext): Decoder {
    const decoder = new ResponsesDecoder(context)
    const { stop } = context.conversation.sampling
    // The API has no stop strings (wire.md F.5).
    return stop.length === 0 ? decoder : new StopDecoder(decoder, stop)
  },
  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    return faultOf(kindOfOpenAiReply(status, body), retryAfterMs(headers), toldInBody(body))
  },
  blames: openAiBlames,
}

function unfit(conversation: Conversation, backend: Backend): Unfit | null {
  const lacking = commonUnfit(conversation, backend)
  if (lacking) return lacking
  const { sampling } = conversation
  if (sampling.topK !== undefined && sampling.topK > 0) return { param: 'top_k', requirement: 'top-k sampling' }
  if (isPrefill(conversation)) return { param: 'messages', requirement: 'an assistant message to continue' }
  const required = requirementsOf(conversation)
  const traits = traitsOf(backend.model)
  const reasoning = required.needs.get('reasoning')
  if (reasoning !== undefined && traits.efforts.length === 0)
    return { param: reasoning, requirement: 'reasoning controls' }
  if (sampling.logprobs && traits.fixedSampling) {
    return { param: required.needs.get('logprobs')!, requirement: 'log probabilities' }
  }
  if (required.blockedDomains !== undefined) {
    return { param: required.blockedDomains, requirement: 'web search that leaves out domains' }
  }
  return null
}
