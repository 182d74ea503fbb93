/**
 * An invented wire format. The request is `POST /ask { prompt }`. The reply is `{ said, tokens: [prompt, output] }`, or
 * the same in frames.
 */
import type { Decoder, Dialect } from '../../../core/dialect.ts'
import type { StreamEvent } from '../../../core/events.ts'
import { faultOf, kindOfStatus, retryAfterMs } from '../../../providers/faults.ts'
import { commonUnfit } from '../../../providers/requirements.ts'

export const toy: Dialect = {
  name: 'toy',
  vendor: 'toys',
  keyless: true,
  capabilities: new Set(),
  nativeTools: new Set(),
  unfit: commonUnfit,
  request(conversation, backend, context) {
    const text = conversation.turns.flatMap(turn => turn.parts.map(part => (part.type === 'text' ? part.text : '')))
    return {
      method: 'POST',
      path: '/ask',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: backend.model, prompt: text.join('\n'), stream: context.stream }),
      state: undefined,
    }
  },
  decoder: () => new ToyDecoder(),
  fault: (status, headers) => faultOf(kindOfStatus(status), retryAfterMs(headers)),
}

class ToyDecoder implements Decoder {
  done = false

  frame(_event: string, data: string, push: (event: StreamEvent) => void): void {
    const { said, tokens } = JSON.parse(data) as { said?: string; tokens?: [number, number] }
    if (said !== undefined) push({ type: 'text', text: said })
    if (tokens === undefined) return
    push({ type: 'usage', usage: { prompt: tokens[0], output: tokens[1] } })
    this.done = true
  }
  body(text: string, push: (event: StreamEvent) => void): void {
    this.frame('', text, push)
  }
  end(push: (event: StreamEvent) => void): void {
    push(this.done ? { type: 'finish', reason: 'stop' } : { type: 'error', error: faultOf('server') })
  }
}
