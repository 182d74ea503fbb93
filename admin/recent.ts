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
 * busy gateway ends a hundred exchanges in a moment.
 */
export const KEPT = 100

export class RecentExchanges {
  readonly #all: ExchangeRecord[] = []
  readonly #wrong: ExchangeRecord[] = []
  #seq = 0

  add(record: Omit<ExchangeRecord, 'seq'>): void {
    const numbered = record as ExchangeRecord
    numbered.seq = ++this.#seq
    this.#all[this.#seq % KEPT] = numbered
    if (wentWrong(record.outcome)) {
      if (this.#wrong.length === KEPT) this.#wrong.shift()
      this.#wrong.push(numbered)
    }
  }

  /** `seq` of the last record. */
  get last(): number {
    return this.#seq
  }

  /** The record of a request id, if it is still kept. */
  find(id: string): ExchangeRecord | undefined {
    const isIt = (record: ExchangeRecord | undefined) => record?.id === id
    return this.#all.find(isIt) ?? this.#wrong.find(isIt)
  }

  /** The kept records with a number above `seq`, oldest first. */
  since(seq: number): ExchangeRecord[] {
    const found = this.#wrong.filter(record => record.seq > seq)
    for (const record of this.#all) if (record && record.seq > seq && !wentWrong(record.outcome)) found.push(record)
    return found.sort((a, b) => a.seq - b.seq)
  }
}

export function wentWrong(outcome: string): boolean {
  return outcome === 'refused' || outcome === 'upstream_error' || outcome === 'gateway_error'
}
