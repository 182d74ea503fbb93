/**
 * The Chat Completions dialect: OpenAI and the servers that speak its API (vLLM, llama.cpp, Ollama, SGLang,
 * OpenRouter and others). Source: OpenAI's API reference for Chat Completions. Deviations of other servers are named
 * where the code handles them.
 */
import type { DecodeContext, Decoder, Dialect } from '../../core/dialect.ts'
import { UpstreamFault } from '../../core/upstream-fault.ts'
import { openAiBlames } from '../blame.ts'
import { faultOf, kindOfOpenAiError, kindOfStatus, retryAfterMs } from '../faults.ts'
import { isObject } from '../loose-json.ts'
import { allBut } from '../requirements.ts'
import { StopDecoder } from '../stop-matcher.ts'
import { ChatDecoder } from './decode.ts'
import { chatUnfit } from './fit.ts'
import { type ChatState, chatRequest } from './request.ts'

export const openaiChat: Dialect = {
  name: 'openai-chat',
  vendor: 'openai',
  keyless: true,
  // Hosted search has no form in this dialect; the gateway may run one (decision 34).
  seeds: true,
  capabilities: allBut('web_search'),
  nativeTools: new Set(),
  bytesOnly: new Set(['document'] as const),
  unfit: chatUnfit,
  structures: () => true,
  request: chatRequest,

  decoder(context: DecodeContext): Decoder {
    const decoder = new ChatDecoder(context)
    const { stops } = context.state as ChatState
    return stops.length > 0 ? new StopDecoder(decoder, stops) : decoder
  },

  fault(status, headers, body) {
    return faultOf(faultKind(status, body), retryAfterMs(headers), UpstreamFault.ofBody(body))
  },
  blames: openAiBlames,
}

/**
 * 401 and 403 mean that the gateway's credential was refused, whatever the body says (AUTH-7). The exception is a
 * policy refusal, which some servers send with 403.
 */
function faultKind(status: number, body: string) {
  let parsed: unknown
  try {
    parsed = JSON.parse(body)
  } catch {
    return kindOfStatus(status)
  }
  // Some compatible servers send the object inside a list.
  const value: unknown = Array.isArray(parsed) ? parsed[0] : parsed
  if (!isObject(value)) return kindOfStatus(status)
  const kind = kindOfOpenAiError(value['error'] ?? value, status)
  if (status === 401 || status === 403) return kind === 'policy' ? kind : 'auth'
  // A server failure must not become the client's fault because of the body.
  if (status >= 500 && (kind === 'context' || kind === 'policy' || kind === 'auth')) return kindOfStatus(status)
  return kind
}
