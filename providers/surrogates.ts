/**
 * Keeps a character that a provider split over two deltas in one piece (wire.md G 16). JSON may spell an emoji as two
 * `\u` escapes, and some providers put the halves into different deltas: half a pair would leave the gateway as U+FFFD.
 */
export class SurrogateJoiner {
  #half = ''

  /** What can go out now: the text with a half held from before, without a trailing half. May be ''. */
  push(text: string): string {
    if (this.#half !== '') {
      text = this.#half + text
      this.#half = ''
    }
    if (text === '') return text
    const last = text.charCodeAt(text.length - 1)
    if ((last & 0xfc00) !== 0xd800) return text
    this.#half = text.slice(-1)
    return text.slice(0, -1)
  }

  /** The half that is still held, as U+FFFD since its other half never came; '' if none. */
  end(): string {
    if (this.#half === '') return ''
    this.#half = ''
    return '\ufffd'
  }
}
