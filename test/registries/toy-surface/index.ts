/** An API that nobody has: `{ model, say }` is answered by `{ said, tokens }`, streamed as lines of it; a refusal is `{ oops, why }`. */
import type { FinishEvent, StreamEvent, Usage } from '../../../core/events.ts'
import type { Encoder, Surface } from '../../../core/surface.ts'
import { compileRequest } from '../../../surfaces/check.ts'
import { boolean, object, string } from '../../../surfaces/schema.ts'

const requestSchema = object({ model: string(), say: string(), stream: boolean() }, ['model', 'say'])

export const toy: Surface = {
  name: 'toy',
  title: 'Toys',
  path: '/v1/toy',
  requestSchema,
  validate: compileRequest(requestSchema),
  parse(body) {
    const { model, say, stream } = body as { model: string; say: string; stream?: boolean }
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
