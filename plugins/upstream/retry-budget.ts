/**
 * Retries are a share of traffic (10 % by default), so that they can't multiply an outage: each request earns the share, each retry spends one
 * whole. A little is always there, so that a quiet gateway can retry too.
 */
const FLOOR = 3
const CEILING = 100
/** The floor refills over so long. */
const FLOOR_MS = 10_000

export class RetryBudget {
  #requests = 0
  #saved = FLOOR
  #mono = 0
  #taken = 0

  /** One request went out. */
  counted(now: number): void {
    this.#requests++
    if (this.#mono === 0) this.#mono = now
  }

  /** Takes one retry when the budget allows it. @param share of requests that may be retried */
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

  /** Retries ever taken, for metrics. */
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

  /** Retries ever taken, for metrics. */
  get taken(): number {
    let total = 0
    for (const budget of this.#budgets.values()) total += budget.taken
    return total
  }
}
