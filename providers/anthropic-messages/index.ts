/** The Messages API of Anthropic as an upstream dialect (wire.md F, column AM). */
import { type Conversation, workOf } from '../../core/canon/conversation.ts'
import type { GatewayError } from '../../core/canon/errors.ts'
import type { Backend, DecodeContext, Decoder, Dialect, FaultHeaders, Unfit } from '../../core/ports/dialect.ts'
import { anthropicBlames } from '../blame.ts'
import { faultOf, retryAfterMs } from '../faults.ts'
import { parseObject } from '../loose-json.ts'
import { allBut, commonUnfit, isForced, isPrefill, requirementsOf } from '../requirements.ts'
import { StopDecoder } from '../stop-matcher.ts'
import { toldInBody } from '../told.ts'
import { MessagesDecoder } from './decoder.ts'
import { kindOfAnthropicError } from './faults.ts'
import { traitsOf } from './models.ts'
import { outputSchema } from './output-schema.ts'
import { NAME, nativeStops, request } from './request.ts'
import { settings } from './settings.ts'
import { DEFAULT_MAX_TOKENS, explicitThinking } from './thinking.ts'

export const anthropicMessages: Dialect = {
  name: NAME,
  vendor: 'anthropic',
  capabilities: allBut('logprobs'),
  outputCap: DEFAULT_MAX_TOKENS,
  nativeTools: new Set([
    'bash_20250124',
    'text_editor_20250124',
    'text_editor_20250429',
    'text_editor_20250728',
    'memory_20250818',
  ]),
  settings,
  unfit,
  structures,
  request,
  decoder(context: DecodeContext): Decoder {
    const decoder = new MessagesDecoder(context)
    const { stop } = context.conversation.sampling
    const native = nativeStops(stop)
    return native.length === stop.length
      ? decoder
      : new StopDecoder(
          decoder,
          stop.filter(string => !native.includes(string)),
        )
  },
  fault(status: number, headers: FaultHeaders, body: string): GatewayError {
    const kind = kindOfAnthropicError(parseObject(body)?.['error'], status)
    return faultOf(kind, retryAfterMs(headers), toldInBody(body))
  },
  blames: anthropicBlames,
}

function structures(conversation: Conversation, backend: Backend): boolean {
  const { output } = conversation
  if (!output!.schema || !traitsOf(backend.model).outputFormat) return false
  return outputSchema(output!.schema, workOf(conversation)) !== null
}

function unfit(conversation: Conversation, backend: Backend): Unfit | null {
  const lacking = commonUnfit(conversation, backend)
  if (lacking) return lacking
  const traits = traitsOf(backend.model)
  const reasoning = requirementsOf(conversation).needs.get('reasoning')
  if (reasoning !== undefined && traits.thinking === 'none') {
    return { param: reasoning, requirement: 'reasoning controls' }
  }
  const { topK } = conversation.sampling
  if (topK !== undefined && topK > 0 && traits.sampling === 'refused') {
    return { param: 'top_k', requirement: 'top-k sampling' }
  }
  const thinks = traits.off === 'never' || (explicitThinking(conversation) && traits.thinking !== 'none')
  if (thinks && isForced(conversation)) {
    return { param: 'tool_choice', requirement: 'a forced tool choice together with thinking' }
  }
  if (isPrefill(conversation) && (thinks || !traits.prefill)) {
    return { param: 'messages', requirement: 'an assistant message to continue' }
  }
  return null
}
