import { argumentsOf, keepArguments } from '../core/canon/arguments.ts'
import type { CallPart, Conversation } from '../core/canon/conversation.ts'
import { InOrder } from '../core/tools/in-order.ts'

/** Texts that were counted together, up to the one at `to`, and the tokens of all of them. */
export interface Counted {
  readonly to: number
  readonly tokens: number
}

/**
 * What is known of the prompt of a conversation's last turn. A text has the tokens that it had when it is the same text,
 * wherever it comes from: texts are compared, and the next turn has them at the same places, since a conversation grows
 * at its end.
 */
export class KnownPrompt {
  /** The schemas of tools as they are counted. */
  readonly schemas = new InOrder<object, string>()
  readonly #arguments = new InOrder<string, string>()
  #texts: readonly string[] = []
  #counted: readonly Counted[] = []

  /** Brings the arguments of calls into the form that they had in the last turn, without looking at them. */
  recallArguments(conversation: Conversation): void {
    const known = this.#arguments
    known.begin()
    for (const call of functionCalls(conversation)) {
      const text = known.find(call.input)
      if (text !== undefined) keepArguments(call, text)
    }
  }

  /** Keeps the form of all arguments, which have been brought into it. */
  learnArguments(conversation: Conversation): void {
    this.#arguments.begin()
    for (const call of functionCalls(conversation)) this.#arguments.add(call.input, argumentsOf(call))
  }

  /**
   * Calls `found` for the texts at the beginning that were counted before, one or several at a time.
   * @param alone the indexes of texts whose own count is needed, in ascending order
   * @returns the index of the first text that was not
   */
  recall(
    texts: readonly string[],
    alone: readonly number[],
    found: (from: number, to: number, tokens: number) => void,
  ): number {
    const last = this.#texts
    let same = 0
    while (same < last.length && same < texts.length && last[same] === texts[same]) same++
    let from = 0
    let next = 0
    for (const { to, tokens } of this.#counted) {
      while (alone[next]! < from) next++
      if (to > same || (to > from + 1 && alone[next]! < to)) break
      found(from, to, tokens)
      from = to
    }
    return from
  }

  /** @param counted all texts, in their order */
  learn(texts: readonly string[], counted: readonly Counted[]): void {
    this.#texts = texts
    this.#counted = counted
  }
}

function* functionCalls({ turns }: Conversation): Generator<CallPart> {
  for (const { role, parts } of turns) {
    if (role !== 'assistant') continue
    for (const part of parts) if (part.type === 'call' && part.kind === 'function' && part.input !== '') yield part
  }
}
