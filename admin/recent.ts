/** The last exchanges, for the dashboard: facts about them, never a body, a header or a key. */

import type { UpstreamFault } from '../core/canon/upstream-fault.ts'
import type { TimelineEntry } from '../core/engine/timeline.ts'
import type { FailedAttempt, PassedOver } from '../core/plugin.ts'
import { isLimit } from '../core/ports/store.ts'
import type { Reservation } from '../plugins/shared/slots.ts'

export interface ExchangeRecord {
  /** Number of the record, from 1 upwards: by it a page knows which records it already has. */
  seq: number
  /** `x-request-id`. */
  id: string
  /** When the request's head arrived, in Unix milliseconds. */
  at: number
  /** Method and path of the route; '' when none matched. */
  route: string
  /** Public model id, '' when none was resolved. */
  model: string
  /** The model id that the client sent and that no model has; '' when it is no plain word. */
  unknownModel: string
  /** `provider/model` of the backend that answered, else of the last that was tried; '' when none was. */
  backend: string
  organization: string
  key: string
  /** HTTP status, 0 when none was sent. */
  status: number
  outcome: string
  /** Code of the error table; '' when there was no error. */
  code: string
  /** The member or header at fault, '' when none is named. */
  param: string
  /** What only operators are told of its error: the limit that refused it, or what did not answer. '' for nothing. */
  cause: string
  /** The address, or the network of an IPv6 address, of a client whose organization is not known; '' for others. */
  client: string
  durationMs: number
  ttfbMs: number | null
  /** Billed tokens; 0 when nothing is. */
  input: number
  output: number
  /** nano-USD. */
  cost: number
  /** Failed attempts, oldest first. */
  failed: readonly (Omit<FailedAttempt, 'told'> & { told: ReturnType<UpstreamFault['toJSON']> | null })[]
  /** Backends that were not asked, and why. */
  passedOver: readonly PassedOver[]
  /** For how long a plugin made the request wait on purpose, in milliseconds. */
  slowedMs: number
  /** What `admission` took from the limits; null when the exchange was not admitted. */
  taken: Taken | null
  /** When each hook ran, for sampled exchanges; null for the others. */
  timeline: readonly TimelineEntry[] | null
}

/**
 * What an exchange took from the limits when it was admitted. The JSON is made only when somebody looks: few exchanges
 * are looked at.
 */
export class Taken {
  readonly #reservation: Reservation

  constructor(reservation: Reservation) {
    this.#reservation = reservation
  }

  /** `input` and `output` are reserved tokens, `cost` is nano-USD; `remaining` is what the limit had left after. */
  toJSON(): TakenJson {
    const { cells, states, input, output, cost } = this.#reservation
    const limits = cells.flatMap((cell, i) => {
      if (!isLimit(cell)) return []
      const { id, scope, dimension, capacity, period, windowMs } = cell
      const per = period ?? (windowMs === 60_000 ? 'minute' : windowMs === undefined ? undefined : 'day')
      return [{ id, scope, dimension, ...(per && { per }), capacity, remaining: states[i]!.remaining }]
    })
    return { input, output, cost, limits }
  }
}
export interface TakenJson {
  input: number
  output: number
  cost: number
  limits: { id: string; scope: string; dimension: string; per?: string; capacity: number; remaining: number }[]
}

/**
 * How many of the last exchanges are kept, and how many of the last that went wrong. The second list is there because a
 * busy gateway ends a hundred exchanges in a moment. Neither is for long: `Troubles` is.
 */
export const KEPT = 100

export class RecentExchanges {
  readonly #all: ExchangeRecord[] = []
  readonly #wrong = new FairList()
  #seq = 0

  add(record: Omit<ExchangeRecord, 'seq'>): void {
    const numbered = record as ExchangeRecord
    numbered.seq = ++this.#seq
    this.#all[this.#seq % KEPT] = numbered
    if (wentWrong(record.outcome)) this.#wrong.add(numbered)
  }

  /** `seq` of the last record. */
  get last(): number {
    return this.#seq
  }

  /** The record of a request id, if it is still kept. */
  find(id: string): ExchangeRecord | undefined {
    const isIt = (record: ExchangeRecord | undefined) => record?.id === id
    return this.#all.find(isIt) ?? [...this.#wrong].find(isIt)
  }

  /** The kept records with a number above `seq`, oldest first. */
  since(seq: number): ExchangeRecord[] {
    const found = [...this.#wrong].filter(record => record.seq > seq)
    for (const record of this.#all) if (record && record.seq > seq && !wentWrong(record.outcome)) found.push(record)
    return found.sort((a, b) => a.seq - b.seq)
  }
}

/**
 * The last records, of which whoever has most loses the oldest: an organization, and of clients without an account those
 * with the same error. So a flood leaves the rows of others on the page. `admin/dashboard/exchanges.mjs` does the same.
 */
class FairList {
  readonly #records = new Set<ExchangeRecord>()
  readonly #counts = new Map<string, number>()

  add(record: ExchangeRecord): void {
    const owner = ownerOf(record)
    this.#counts.set(owner, (this.#counts.get(owner) ?? 0) + 1)
    this.#records.add(record)
    if (this.#records.size > KEPT) this.#dropOne()
  }

  #dropOne(): void {
    let crowd = ''
    let most = 0
    for (const [owner, count] of this.#counts) {
      if (count <= most) continue
      most = count
      crowd = owner
    }
    for (const record of this.#records) {
      if (ownerOf(record) !== crowd) continue
      this.#records.delete(record)
      break
    }
    if (most > 1) this.#counts.set(crowd, most - 1)
    else this.#counts.delete(crowd)
  }

  [Symbol.iterator](): Iterator<ExchangeRecord> {
    return this.#records.values()
  }
}

const ownerOf = ({ organization, code }: ExchangeRecord) => organization || code

export function wentWrong(outcome: string): boolean {
  return outcome === 'refused' || outcome === 'upstream_error' || outcome === 'gateway_error'
}
