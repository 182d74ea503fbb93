/** Events that must wait because a plugin has taken a hold. */
import type { StreamEvent } from '../../canon/events.ts'

/** Callbacks of the exchange that owns the holds. */
export interface HoldsOwner {
  /** The event may leave now. */
  leave(event: StreamEvent): void
  /** The first hold was taken: the upstream should send nothing for now. */
  held(): void
  /** The last hold was released, and all kept events have left. */
  released(): void
  /**
   * `leave` or `released` threw while a hold was released. The error is not thrown to the plugin that released the
   * hold, since it is not the plugin's.
   */
  crashed(cause: unknown): void
}

/** Counts holds. While there is one, and until all kept events have left, each event waits behind those before it. */
export class Holds {
  readonly #owner: HoldsOwner
  #count = 0
  #kept: StreamEvent[] = []
  /** Index in `#kept` of the next event to leave. */
  #next = 0

  constructor(owner: HoldsOwner) {
    this.#owner = owner
  }

  get any(): boolean {
    return this.#count > 0
  }

  /** @returns a function that releases this hold; further calls of it do nothing */
  take(): () => void {
    if (this.#count++ === 0) this.#owner.held()
    let released = false
    return () => {
      if (released) return
      released = true
      // After `giveUp` there is no hold left to release.
      if (this.#count === 0 || --this.#count > 0) return
      try {
        this.#letGo()
      } catch (error) {
        this.#owner.crashed(error)
      }
    }
  }

  /** Lets the event leave: now, or after the kept events. */
  pass(event: StreamEvent): void {
    if (this.#count > 0 || this.#next < this.#kept.length) this.#kept.push(event)
    else this.#owner.leave(event)
  }

  /** Ends all holds. The kept events leave, except a finish: the reason for which it was held has not been resolved. */
  giveUp(): void {
    this.#count = 0
    const kept = this.#kept
    const next = this.#next
    this.drop()
    for (let i = next; i < kept.length; i++) if (kept[i]!.type !== 'finish') this.#owner.leave(kept[i]!)
  }

  /** Discards the kept events. */
  drop(): void {
    this.#kept = []
    this.#next = 0
  }

  /** An event that leaves may cause a plugin to take another hold; then the rest is kept. */
  #letGo(): void {
    while (this.#count === 0 && this.#next < this.#kept.length) this.#owner.leave(this.#kept[this.#next++]!)
    if (this.#count > 0) return
    this.drop()
    this.#owner.released()
  }
}
