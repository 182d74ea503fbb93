/** What the rounds of one exchange used in all. */
import type { ProviderUsage, RoundsReport, StreamEvent } from '../../core/canon/events.ts'

export class RoundsUsage {
  /** Null until a round was reported. */
  #sum: ProviderUsage | null = null
  /**
   * Reasoning tokens, counted from the deltas, of rounds that the provider did not report: a clock stopped them, or it
   * never reports.
   */
  #unreported = 0
  #rounds: RoundsReport = { count: 0 }

  /**
   * The prompt is the client's and counts once: its cache figures are those of the first round. Output is that of all
   * rounds. What the provider gets for the prompts of all rounds is kept beside it.
   */
  add(round: ProviderUsage, first: boolean): void {
    const sum = this.#sum
    const { count, prompt, cached, cacheWrite, cacheWriteHour } = this.#rounds
    // It may be the sum of several rounds itself.
    const all = round.rounds ?? { ...round, count: 1 }
    this.#rounds = {
      count: count + all.count,
      prompt: plus(prompt, all.prompt),
      cached: plus(cached, all.cached),
      cacheWrite: plus(cacheWrite, all.cacheWrite),
      cacheWriteHour: plus(cacheWriteHour, all.cacheWriteHour),
    }
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
    this.#rounds.count++
    this.#unreported += reasoning
  }

  /** Output tokens, as far as rounds were reported. */
  get output(): number {
    return this.#sum?.output ?? 0
  }

  /**
   * The report for the whole exchange; null when no round was reported. Its figures are billed as they are, so the
   * reasoning of rounds without a report is added (METER-4).
   */
  report(): Extract<StreamEvent, { type: 'usage' }> | null {
    if (this.#sum === null) return null
    const usage = this.#rounds.count === 1 ? this.#sum : { ...this.#sum, rounds: this.#rounds }
    if (this.#unreported === 0) return { type: 'usage', usage }
    const reasoning = (usage.reasoning ?? 0) + this.#unreported
    return { type: 'usage', usage: { ...usage, reasoning }, estimated: true }
  }
}

function plus(a: number | undefined, b: number | undefined): number | undefined {
  return b === undefined ? a : (a ?? 0) + b
}
