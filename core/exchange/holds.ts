/** Events that may not leave yet, because somebody holds them back. */
import type { StreamEvent } from '../events.ts'

export interface HoldsOwner {
  /** An event's turn has come. */
  leave(event: StreamEvent): void
  /** The first hold has been taken: nothing more is wanted for now. */
  held(): void
  /** The last hold has been released, and all that it kept has left. */
  released(): void
  /** `leave` or `released` threw when a hold was released; whoever released it has no part in that. */
  crashed(cause: unknown): void
}

/** Counts holds. While there is one, and until all that was kept has left, an event waits behind those before it. */
export class Holds {
  readonly #owner: HoldsOwner
  #count = 0
  #kept: StreamEvent[] = []
  /** In `kept`: those before it have left. */
  #next = 0

  constructor(owner: HoldsOwner) {
    this.#owner = owner
  }

  get any(): boolean {
    return this.#count > 0
  }

  /** @returns what releases this hold; called again it does nothing */
  take(): () => void {
    if (this.#count++ === 0) this.#owner.held()
    let released = false
    return () => {
      if (released) return
      released = true
      // What was given up needs no release.
      if (this.#count === 0 || --this.#count > 0) return
      try {
        this.#letGo()
      } catch (error) {
        this.#owner.crashed(error)
      }
    }
  }

  /** The event leaves: now, or in its turn. */
  pass(event: StreamEvent): void {
    if (this.#count > 0 || this.#next < this.#kept.length) this.#kept.push(event)
    else this.#owner.leave(event)
  }

  /** All holds end. What was kept leaves, but not the finish: what it was held for has not come about. */
  giveUp(): void {
    this.#count = 0
    const kept = this.#kept
    const next = this.#next
    this.drop()
    for (let i = next; i < kept.length; i++) if (kept[i]!.type !== 'finish') this.#owner.leave(kept[i]!)
  }

  /** Forgets what was kept. */
  drop(): void {
    this.#kept = []
    this.#next = 0
  }

  /** An event that leaves may bring about another hold. */
  #letGo(): void {
    while (this.#count === 0 && this.#next < this.#kept.length) this.#owner.leave(this.#kept[this.#next++]!)
    if (this.#count > 0) return
    this.drop()
    this.#owner.released()
  }
}
