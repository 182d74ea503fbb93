/**
 * Matches stop strings in the gateway, for dialects that do not say which one matched (wire.md F.5, F.8). Text that
 * may be the beginning of a stop string waits, so that no fragment of a stop string reaches the client, however the
 * provider splits its deltas.
 */

import type { StreamEvent, TokenLogprob } from '../core/canon/events.ts'
import type { Decoder } from '../core/ports/dialect.ts'
import { appendAll } from '../core/tools/append.ts'
import { OuterDecoder, type Push } from './outer-decoder.ts'

/** A stop string as a Knuth-Morris-Pratt automaton: linear time for any text and any string. */
interface Automaton {
  readonly stop: string
  readonly fallback: Int32Array
  /** How many characters of `stop` the text so far ends with. */
  matched: number
}

/** Finds the first of several stop strings in text that arrives in pieces. */
export class StopMatcher {
  readonly #automata: Automaton[]
  #pending = ''
  /**
   * The stop string that ended the text: the first that was complete, and the longest of those that were complete at
   * the same position.
   */
  matched: string | undefined

  /** @param stops strings, none of them empty */
  constructor(stops: readonly string[]) {
    this.#automata = stops.map(stop => ({ stop, fallback: fallbackTable(stop), matched: 0 }))
  }

  /**
   * Reads a delta. @returns the text that may be sent now; when a stop string matched (`matched` is set), the text
   * before it, and '' from then on
   */
  push(text: string): string {
    if (this.matched !== undefined || text === '') return ''
    const automata = this.#automata
    let longest = 0
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i)
      longest = 0
      for (const automaton of automata) {
        const { stop, fallback } = automaton
        let state = automaton.matched
        while (state > 0 && stop.charCodeAt(state) !== unit) state = fallback[state - 1]!
        if (stop.charCodeAt(state) === unit) state++
        automaton.matched = state
        if (state === stop.length && stop.length > (this.matched?.length ?? 0)) this.matched = stop
        if (state > longest) longest = state
      }
      if (this.matched !== undefined) {
        const whole = this.#pending + text.slice(0, i + 1)
        this.#pending = ''
        return whole.slice(0, whole.length - this.matched.length)
      }
    }
    if (longest === 0 && this.#pending === '') return text
    const whole = this.#pending + text
    this.#pending = whole.slice(whole.length - longest)
    return whole.slice(0, whole.length - longest)
  }

  /**
   * The text block has ended: text that waited is ordinary text. The next block starts without a partial match.
   * @returns the text that waited
   */
  flush(): string {
    const pending = this.#pending
    this.#pending = ''
    for (const automaton of this.#automata) automaton.matched = 0
    return pending
  }
}

/** For each prefix of the string, the length of its longest proper prefix that is also its suffix. */
function fallbackTable(stop: string): Int32Array {
  const table = new Int32Array(stop.length)
  let length = 0
  for (let i = 1; i < stop.length; i++) {
    while (length > 0 && stop.charCodeAt(i) !== stop.charCodeAt(length)) length = table[length - 1]!
    if (stop.charCodeAt(i) === stop.charCodeAt(length)) length++
    table[i] = length
  }
  return table
}

/**
 * A decoder that ends the reply at the first stop string. It pushes the text before it, then `finish` with
 * `stop_sequence`, then only a `usage` that still arrives. After that `finish` the caller can abort the upstream
 * request: everything else that the provider sends is dropped.
 */
export class StopDecoder extends OuterDecoder {
  readonly #matcher: StopMatcher
  /** The logprobs of text that has not been pushed yet. */
  #logprobs: TokenLogprob[] = []
  /**
   * How many UTF-16 units of text were pushed without their logprob: the first part of a token whose rest still
   * waits.
   */
  #credit = 0

  constructor(inner: Decoder, stops: readonly string[]) {
    super(inner)
    this.#matcher = new StopMatcher(stops)
  }

  protected override on(event: StreamEvent, push: Push): void {
    if (this.over) {
      if (event.type === 'usage') push(event)
      return
    }
    if (event.type !== 'text') {
      // `activity` and `usage` do not end the open text block.
      if (event.type !== 'activity' && event.type !== 'usage') this.#text(this.#matcher.flush(), true, push)
      push(event)
      return
    }
    if (event.logprobs) appendAll(this.#logprobs, event.logprobs)
    const text = this.#matcher.push(event.text)
    const stopSequence = this.#matcher.matched
    this.#text(text, false, push)
    if (stopSequence === undefined) return
    this.over = true
    push({ type: 'finish', reason: 'stop_sequence', stopSequence })
  }

  #text(text: string, all: boolean, push: Push): void {
    const logprobs = this.#logprobs.length === 0 ? undefined : this.#released(text.length, all)
    if (text !== '' || logprobs) push(logprobs ? { type: 'text', text, logprobs } : { type: 'text', text })
  }

  /** Takes the logprobs of the tokens whose text has been pushed completely. */
  #released(length: number, all: boolean): TokenLogprob[] | undefined {
    let count = 0
    this.#credit += length
    for (const { token } of this.#logprobs) {
      if (!all && token.length > this.#credit) break
      this.#credit -= token.length
      count++
    }
    if (all) this.#credit = 0
    return count === 0 ? undefined : this.#logprobs.splice(0, count)
  }
}
