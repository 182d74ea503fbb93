/**
 * A bound on what a client makes the gateway do. Counting things (schemas, steps, patterns) is no bound where one thing
 * may cost a million times what another does. So the work itself is counted, in units, before it is done and before
 * memory is taken for it.
 *
 * A unit is about what it takes to look at one character: 1 to 20 nanoseconds, and 50 in code that never ran before
 * (`npm run attack` prints what it is). A step that walks a list takes a unit for each entry, a pattern takes its
 * instructions times the characters of the text, a value that is made takes what it holds.
 *
 * A conversation carries the budget of its request: `workOf` in core/canon/conversation.ts. A copy of the conversation
 * has the same budget, so that routing, translation, the search rounds, the attempts and the checks of all their
 * replies draw on one.
 */

/**
 * Units that one request may take of the event loop for what its text, its schemas and its history provoke beyond what
 * each request costs: at most some 35 ms, and 90 ms in code that never ran before (`npm run attack`).
 */
export const REQUEST_WORK = 2_000_000

let usedUp = 0

/** Budgets of which somebody wanted more than was left, since the process began. */
export const usedUpBudgets = (): number => usedUp

/** Units of work that one request may still take. All who work for the request draw on the same object. */
export class Work {
  #left: number
  #usedUp = false

  /** @param units a whole number; what the request may take in all */
  constructor(units: number) {
    this.#left = units
  }

  /** Units that are left; 0 once somebody wanted more than there were. */
  get left(): number {
    return this.#left
  }

  /**
   * Takes units for work that is about to be done.
   *
   * @param units not negative; need not be whole
   * @returns false when fewer are left. Then nothing is left for the others either: work that was cut short must not be
   * followed by more of it.
   */
  take(units: number): boolean {
    if (units > this.#left) {
      if (!this.#usedUp) usedUp++
      this.#usedUp = true
      this.#left = 0
      return false
    }
    this.#left -= units
    return true
  }
}
