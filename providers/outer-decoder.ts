import type { ProviderUsage, StreamEvent } from '../core/canon/events.ts'
import type { Decoder } from '../core/ports/dialect.ts'

export type Push = (event: StreamEvent) => void

/** A decoder around another one: it changes or drops what that one decodes. */
export abstract class OuterDecoder implements Decoder {
  readonly #inner: Decoder
  /** The rest of the reply makes no difference, so the caller may abort the upstream request. */
  protected over = false

  constructor(inner: Decoder) {
    this.#inner = inner
  }

  get done(): boolean {
    return this.over || this.#inner.done === true
  }
  frame(event: string, data: string, push: Push): void {
    this.#inner.frame(event, data, out => this.on(out, push))
  }
  body(text: string, push: Push): void {
    this.#inner.body(text, out => this.on(out, push))
  }
  end(push: Push): void {
    this.#inner.end(out => this.on(out, push))
  }
  reported(): ProviderUsage | undefined {
    return this.#inner.reported?.()
  }

  /** Gets each event of the inner decoder, and pushes what the client shall have of it. */
  protected abstract on(event: StreamEvent, push: Push): void
}
