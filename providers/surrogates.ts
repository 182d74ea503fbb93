/**
 * Joins a character that a provider split over two deltas (wire.md G 16). JSON may write an emoji as two `\u`
 * escapes, and some providers put the two halves into different deltas. Half a pair would leave the gateway as
 * U+FFFD.
 */
export class SurrogateJoiner {
  #half = ''

  /**
   * @returns the text that can be sent now: it begins with a half that waited, and a trailing half waits. May be ''.
   */
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

  /** @returns U+FFFD for a half whose other half never came; '' when there is none */
  end(): string {
    if (this.#half === '') return ''
    this.#half = ''
    return '\ufffd'
  }
}
