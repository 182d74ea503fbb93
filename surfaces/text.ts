/**
 * Joins text deltas so that no delta begins or ends in the middle of a surrogate pair (wire.md G 16): a leading half
 * at the end of a delta waits for the next delta. A half without its partner becomes U+FFFD (wire.md 0.2 rule 7).
 */
export class TextJoiner {
  #half = ''

  /** @returns the text that can be sent now; '' when all of it has to wait */
  push(delta: string): string {
    const text = this.#half === '' ? delta : this.#half + delta
    this.#half = ''
    const last = text.charCodeAt(text.length - 1)
    if (last >= 0xd800 && last <= 0xdbff) {
      this.#half = text.slice(-1)
      return text.slice(0, -1).toWellFormed()
    }
    return text.isWellFormed() ? text : text.toWellFormed()
  }

  /** Ends the text. @returns U+FFFD for a half that still waits, else '' */
  flush(): string {
    if (this.#half === '') return ''
    this.#half = ''
    return '\ufffd'
  }
}
