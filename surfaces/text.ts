/**
 * Joins text deltas so that no delta ends or starts in the middle of a surrogate pair (wire.md G16): the leading half waits for the next
 * delta. A half that stays alone becomes U+FFFD (wire.md 0.2 rule 7).
 */
export class TextJoiner {
  #held = ''

  /** What can be sent now; '' when all of it waits. */
  push(delta: string): string {
    const text = this.#held === '' ? delta : this.#held + delta
    this.#held = ''
    const last = text.charCodeAt(text.length - 1)
    if (last >= 0xd800 && last <= 0xdbff) {
      this.#held = text.slice(-1)
      return text.slice(0, -1).toWellFormed()
    }
    return text.isWellFormed() ? text : text.toWellFormed()
  }

  /** Ends the text. */
  flush(): string {
    if (this.#held === '') return ''
    this.#held = ''
    return '\ufffd'
  }
}
