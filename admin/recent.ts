/** The last exchanges, for the dashboard: facts about them, never a body, a header or a key. */
import type { TimelineEntry } from '../core/timeline.ts'
import type { UpstreamFault } from '../core/upstream-fault.ts'
import type { FailedAttempt } from '../plugins/shared/slots.ts'

export interface ExchangeRecord {
  /** Counts up from 1, so that a page can tell what it has seen. */
  seq: number
  /** `x-request-id`. */
  id: string
  /** Unix milliseconds of the request's head. */
  at: number
  /** As the configuration names it; '' when none matched. */
  route: string
  /** Public model id, '' when none was resolved. */
  model: string
  /** What the client asked for instead; '' when it is no plain id. */
  unknownModel: string
  /** `provider/model`: the one that answered, else the last that was tried; '' when none was. */
  backend: string
  organization: string
  key: string
  /** HTTP status, 0 when none was sent. */
  status: number
  outcome: string
  /** Of the error table, '' when there was none. */
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
  /** Attempts that came to nothing, oldest first. */
  failed: readonly (Omit<FailedAttempt, 'told'> & { told: ReturnType<UpstreamFault['toJSON']> | null })[]
  /** Of sampled exchanges; null for the others. */
  timeline: readonly TimelineEntry[] | null
}

/** Kept of all exchanges, and as many of those that went wrong: on a busy gateway the last hundred are a moment. */
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

  /** Number of the last one. */
  get last(): number {
    return this.#seq
  }

  /** Those kept with a number above `seq`, oldest first. */
  since(seq: number): ExchangeRecord[] {
    const found = this.#wrong.filter(record => record.seq > seq)
    for (const record of this.#all) if (record && record.seq > seq && !wentWrong(record.outcome)) found.push(record)
    return found.sort((a, b) => a.seq - b.seq)
  }
}

export function wentWrong(outcome: string): boolean {
  return outcome === 'refused' || outcome === 'upstream_error' || outcome === 'gateway_error'
}
