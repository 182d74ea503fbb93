/**
 * An invented API. The request is `{ model, say }`. The reply is `{ said, tokens }`, or a stream of such lines. A
 * refusal is `{ oops, why }`.
 */
import type { FinishEvent, StreamEvent, Usage } from '../../../core/canon/events.ts'
import type { Encoder } from '../../../core/ports/surface.ts'
import { compileRequest } from '../../../surfaces/check.ts'
import type { DescribedSurface } from '../../../surfaces/described.ts'
import { type Arrives, boolean, integer, object, shape, string } from '../../../surfaces/schema.ts'

const requestSchema = object({ model: string(), say: string(), stream: boolean() }, ['model', 'say'])

export const toy: DescribedSurface = {
  name: 'toy',
  title: 'Toys',
  path: '/v1/toy',
  requestSchema,
  reply: { name: 'Toy', schema: shape({ said: string(), tokens: integer(0) }) },
  errorReply: { name: 'ToyError', schema: shape({ oops: string(), why: string() }) },
  samples: {
    body: (model, prompt) => ({ model, say: prompt }),
    features: { 'Text, system text, history': {}, Streams: { stream: true }, seed: { seed: 1 } },
    stream: {
      members: { stream: true },
      read(data, told) {
        told.text += data.said ?? ''
        told.output = data.tokens ?? 0
        return data.tokens !== undefined
      },
    },
  },
  validate: compileRequest(requestSchema),
  parse(body) {
    const { model, say, stream } = body as Arrives<typeof requestSchema>
    return {
      surface: 'toy',
      requestedModel: model,
      model,
      stream: stream === true,
      system: [],
      turns: [{ role: 'user', parts: [{ type: 'text', text: say }] }],
      tools: [],
      toolChoice: { type: 'none' },
      parallelToolCalls: true,
      sampling: { stop: [], logprobs: false },
      reasoning: {},
    }
  },
  encoder: () => new ToyEncoder(),
  error: error => JSON.stringify({ oops: error.code, why: error.message }),
  requestIdHeaders: [],
}

class ToyEncoder implements Encoder {
  readonly showsReasoning = false
  #said = ''
  #tokens = 0

  start = () => ''
  event(event: StreamEvent): string {
    if (event.type !== 'text') return ''
    this.#said += event.text
    return `data: ${JSON.stringify({ said: event.text })}\n\n`
  }
  finish(_: FinishEvent, usage: Usage): string {
    this.#tokens = usage.output
    return `data: ${JSON.stringify({ tokens: usage.output })}\n\n`
  }
  error = () => 'data: {"oops":true}\n\n'
  keepAlive = () => ': \n\n'
  body = () => JSON.stringify({ said: this.#said, tokens: this.#tokens })
}
