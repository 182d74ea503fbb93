/** What a process knows of conversations that may repeat themselves: bounded for each organization and in all. */

/** Places of one organization, and of all. What was used longest ago is forgotten. */
const MOST_OF_ONE = 1024
const MOST = 65_536

/** When a conversation that repeats itself is slowed and refused. Times are milliseconds, money is nano-USD. */
export interface Bounds {
  window: number
  slow: Bound
  refuse: Bound
  refuseFor: number
}
/** Both are reached, or the bound is not. */
interface Bound {
  repeats: number
  cost: number
}
export type Level = 'free' | 'slow' | 'refuse'

/** A place at which a conversation of one key was seen. Times are monotonic. */
export class Place {
  /** Requests that stand there and run. */
  running = 0
  /** Requests that came back to it and were billed, since the first of them. */
  repeats = 0
  cost = 0
  /** What the log was told last. */
  told: Level = 'free'
  #since = 0
  #refusedAt: number | null = null

  /** A request that came back has ended. */
  add(cost: number, now: number): void {
    if (this.repeats === 0) this.#since = now
    this.repeats++
    this.cost += cost
  }

  /** What becomes of a request that comes back now. */
  level(now: number, { window, slow, refuse, refuseFor }: Bounds): Level {
    const over = this.#refusedAt === null ? now - this.#since >= window : now - this.#refusedAt >= refuseFor
    if (over && this.repeats > 0) {
      this.repeats = 0
      this.cost = 0
      this.#refusedAt = null
      this.told = 'free'
    }
    if (!this.#reaches(refuse)) {
      this.#refusedAt = null
      return this.#reaches(slow) ? 'slow' : 'free'
    }
    this.#refusedAt ??= now
    return 'refuse'
  }

  #reaches({ repeats, cost }: Bound): boolean {
    return this.repeats >= repeats && this.cost >= cost
  }

  /** How long it is still refused. */
  left(now: number, { refuseFor }: Bounds): number {
    return Math.max(0, (this.#refusedAt ?? now) + refuseFor - now)
  }
}

/** The places of one organization. */
export class Organization {
  readonly #all: Watch
  readonly #places = new Map<string, Place>()
  readonly #keys = new Map<string, Place>()
  /** Requests that are being slowed. */
  waiting = 0

  constructor(all: Watch) {
    this.#all = all
  }

  /** @returns the place, and whether it was seen before */
  at(id: string): { place: Place; known: boolean } {
    const found = this.#places.get(id)
    const place = found ?? new Place()
    this.#places.delete(id)
    this.#places.set(id, place)
    if (!found) {
      if (this.#places.size > MOST_OF_ONE) this.forget()
      else this.#all.added()
    }
    return { place, known: found !== undefined }
  }

  /** Where a conversation of the key was slowed or refused last. */
  ofKey(key: string): Place | undefined {
    return this.#keys.get(key)
  }

  /** @param place undefined when none is slowed or refused any more */
  keep(key: string, place: Place | undefined): void {
    this.#keys.delete(key)
    if (place) this.#keys.set(key, place)
    const [oldest] = this.#keys.keys()
    if (this.#keys.size > MOST_OF_ONE) this.#keys.delete(oldest!)
  }

  /** Forgets the place that was used longest ago. @returns whether none is left */
  forget(): boolean {
    const [oldest] = this.#places.keys()
    if (oldest !== undefined) this.#places.delete(oldest)
    return this.#places.size === 0
  }
}

export class Watch {
  /** In the order of their last use. */
  readonly #organizations = new Map<string, Organization>()
  #places = 0

  of(id: string): Organization {
    const found = this.#organizations.get(id) ?? new Organization(this)
    this.#organizations.delete(id)
    this.#organizations.set(id, found)
    return found
  }

  /** There is one place more. */
  added(): void {
    this.#places++
    if (this.#places <= MOST) return
    this.#places--
    for (const [id, oldest] of this.#organizations) {
      if (oldest.forget()) this.#organizations.delete(id)
      return
    }
  }
}
