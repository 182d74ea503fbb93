import type { FinishEvent, StreamEvent, Usage } from '../../core/canon/events.ts'
import type { EncodeContext, Encoder } from '../../core/ports/surface.ts'

/** Writes the vectors as the provider sent them, with the model and the usage that the gateway knows. */
export class EmbeddingsEncoder implements Encoder {
  readonly showsReasoning = false
  readonly #model: string
  #data = ''
  #tokens = 0

  constructor({ model }: EncodeContext) {
    this.#model = model
  }

  start(): string {
    return ''
  }

  event(event: StreamEvent): string {
    if (event.type === 'vectors') this.#data = event.json
    else if (event.type !== 'activity') throw new Error(`embeddings encoder: '${event.type}' is no part of this reply`)
    return ''
  }

  finish(_: FinishEvent, { input }: Usage): string {
    this.#tokens = input
    return ''
  }

  /** A reply is one body, so an error is never a frame. */
  error(): string {
    return ''
  }

  keepAlive(): string {
    return ''
  }

  body(): string {
    const usage = `{"prompt_tokens":${this.#tokens},"total_tokens":${this.#tokens}}`
    return `{"object":"list","data":${this.#data},"model":${JSON.stringify(this.#model)},"usage":${usage}}`
  }
}
