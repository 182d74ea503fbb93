/** What the rounds of one exchange used together. */
import type { ProviderUsage, StreamEvent } from '../../core/events.ts'

export class RoundsUsage {
  /** Null until a round is reported. */
  #sum: ProviderUsage | null = null
  /** Reasoning, by its deltas, of rounds whose provider told nothing: a clock stopped them, or it never does. */
  #unreported = 0

  /** The prompt is the client's, once: its cache figures are those of the first round. Output is that of all rounds. */
  add(round: ProviderUsage, first: boolean): void {
    const sum = this.#sum
    if (first) this.#sum = round
    else if (sum === null) this.#sum = { output: round.output, reasoning: round.reasoning, searches: round.searches }
    else
      this.#sum = {
        ...sum,
        output: plus(sum.output, round.output),
        reasoning: plus(sum.reasoning, round.reasoning),
        searches: plus(sum.searches, round.searches),
      }
  }

  /** @param reasoning tokens of a round that its provider did not report */
  addUnreported(reasoning: number): void {
    this.#unreported += reasoning
  }

  /** Tokens, as far as they were reported. */
  get output(): number {
    return this.#sum?.output ?? 0
  }

  /**
   * The report of the whole, which is taken at its word: where some rounds were reported, the others' reasoning is
   * added (METER-4). Null when none was.
   */
  report(): StreamEvent | null {
    const usage = this.#sum
    if (usage === null) return null
    if (this.#unreported === 0) return { type: 'usage', usage }
    const reasoning = (usage.reasoning ?? 0) + this.#unreported
    return { type: 'usage', usage: { ...usage, reasoning }, estimated: true }
  }
}

function plus(a: number | undefined, b: number | undefined): number | undefined {
  return b === undefined ? a : (a ?? 0) + b
}
