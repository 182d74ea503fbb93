/** The promises that the attack checks, each with its threshold. docs/security.md says the same in words. */

/** An event-loop delay of the gateway above this many ms is a breach, once for each case. */
export const LOOP_MS = 250
/**
 * One request may add at most this many MiB to the resident memory, for the values that `max_nodes` allows and because a
 * heap grows in steps, and this many times its size beside them.
 */
export const MEMORY_FIXED_MIB = 48
export const MEMORY_FACTOR = 6
/** A flood by one organization may add at most this many MiB to the resident memory. */
export const FLOOD_MIB = 512
/** The victim's p99 beside a flood, divided by its p99 without the flood. */
export const P99_RATIO = 2
/**
 * A quiet p99 below this many ms counts as this much. Else a flood that adds 10 ms to an answer of 5 ms would be a
 * breach, and on a machine with other work every run would be one.
 */
export const P99_FLOOR_MS = 50
/** An answer must be whole after this many ms. */
export const ANSWER_MS = 30_000

/** What may not happen, and how often it may: never, for all of them. */
export const PROMISES = {
  crash: 'the gateway process ends only when it is told to',
  internal: 'no request is answered with 500',
  unanswered: `each request has a whole answer within ${ANSWER_MS / 1000} s, or its connection is closed`,
  leak: 'no reply holds a name, an address, a credential or a text of an upstream',
  loop: `no request delays the event loop by more than ${LOOP_MS} ms`,
  memory: `no request takes more than ${MEMORY_FIXED_MIB} MiB and ${MEMORY_FACTOR} times its size, and no flood more than ${FLOOD_MIB} MiB`,
  victim: 'beside a flood by another organization all requests of a victim below its share succeed',
  p99: `a flood changes the victim's p99 by a factor of at most ${P99_RATIO}`,
  smuggled: 'no request that is hidden in the body of another one is served',
  desync: 'behind a proxy each request gets its own answer',
  'false end': 'a reply that was cut upstream does not look complete',
  shared: 'faults that one organization provokes do not take a backend from another one',
  books: 'each reply that a client has read whole has one ledger row, completed and with its cost',
  tenant: 'no organization sees data of another one, or learns whether an id of it exists',
  uncounted: 'an id of stored data stands at most once in a request, so that nothing is sent that was not counted',
} as const

export type Promised = keyof typeof PROMISES

export interface Breach {
  part: string
  promise: Promised
  detail: string
  times: number
}

/** Collects breaches. Those of one part, promise and kind are one entry with the first detail and a count. */
export class Breaches {
  readonly #found = new Map<string, Breach>()

  /** @param kind tells breaches of one promise apart; details of one kind are counted, not listed */
  add(part: string, promise: Promised, kind: string, detail = ''): void {
    const key = `${part}\0${promise}\0${kind}`
    const known = this.#found.get(key)
    if (known) known.times++
    else this.#found.set(key, { part, promise, detail: detail ? `${kind}: ${detail}` : kind, times: 1 })
  }

  get all(): Breach[] {
    return [...this.#found.values()]
  }
}
