/**
 * The Chat Completions dialect: OpenAI and the servers that speak its API (vLLM, llama.cpp, Ollama, SGLang,
 * OpenRouter and others). Source: OpenAI's API reference for Chat Completions. Deviations of other servers are named
 * where the code handles them.
 */

import type { DecodeContext, Decoder, Dialect } from '../../core/ports/dialect.ts'
import { openAiBlames } from '../blame.ts'
import { settingsOf } from '../dialect-settings.ts'
import { faultOf, kindOfOpenAiReply, retryAfterMs } from '../faults.ts'
import { openAiEmbeddings } from '../openai-embeddings.ts'
import { allBut } from '../requirements.ts'
import { StopDecoder } from '../stop-matcher.ts'
import { toldInBody } from '../told.ts'
import { ChatDecoder } from './decode.ts'
import { chatUnfit } from './fit.ts'
import { chatRequest } from './request.ts'
import { type ChatSettings, settings } from './settings.ts'

export const openaiChat: Dialect = {
  name: 'openai-chat',
  vendor: 'openai',
  keyless: true,
  settings,
  seeds: backend => !settingsOf<ChatSettings>(backend).provider.omit?.includes('seed'),
  // Hosted search has no form in this dialect; the gateway may run one (decision 34).
  capabilities: allBut('web_search'),
  nativeTools: new Set(),
  bytesOnly: new Set(['document'] as const),
  unfit: chatUnfit,
  structures: () => true,
  request: chatRequest,
  embeddings: openAiEmbeddings,

  decoder(context: DecodeContext): Decoder {
    const decoder = new ChatDecoder(context)
    const { stop } = context.conversation.sampling
    return stop.length > 0 ? new StopDecoder(decoder, stop) : decoder
  },

  fault(status, headers, body) {
    return faultOf(kindOfOpenAiReply(status, body), retryAfterMs(headers), toldInBody(body))
  },
  blames: openAiBlames,
}
