/**
 * Limits retries to a share of the requests (10 % by default), so that they cannot multiply an outage: each request
 * adds the share, each retry takes 1. A few retries (`FLOOR`) are always possible after a while, so that a gateway with
 * little traffic can retry too.
 */
const FLOOR = 3
/** The most retries that can be saved up. */
const CEILING = 100
/** Milliseconds in which the floor refills. */
const FLOOR_MS = 10_000

export class RetryBudget {
  #requests = 0
  #saved = FLOOR
  #mono = 0
  #taken = 0

  /** One request was sent. */
  counted(now: number): void {
    this.#requests++
    if (this.#mono === 0) this.#mono = now
  }

  /**
   * Takes one retry if the budget allows it.
   * @param share of requests that may be retried
   */
  take(now: number, share: number): boolean {
    if (share <= 0) return false
    const floor = Math.min(FLOOR, (FLOOR * (now - this.#mono)) / FLOOR_MS)
    this.#mono = now
    this.#saved = Math.min(
      CEILING,
      Math.max(this.#saved, Math.min(FLOOR, this.#saved + floor)) + this.#requests * share,
    )
    this.#requests = 0
    if (this.#saved < 1) return false
    this.#saved -= 1
    this.#taken++
    return true
  }

  /** All retries so far, for metrics. */
  get taken(): number {
    return this.#taken
  }
}

/** One budget for each provider. */
export class RetryBudgets {
  readonly #budgets = new Map<string, RetryBudget>()

  of(provider: string): RetryBudget {
    let budget = this.#budgets.get(provider)
    if (!budget) this.#budgets.set(provider, (budget = new RetryBudget()))
    return budget
  }

  /** All retries so far, for metrics. */
  get taken(): number {
    let total = 0
    for (const budget of this.#budgets.values()) total += budget.taken
    return total
  }
}
