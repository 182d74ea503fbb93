/**
 * Sums of the ledger by hour. Both engines keep them in the step that books a row. A reader takes whole hours from the
 * sums and only the parts of hours at both ends of its range from the rows.
 */
import { FIGURES, type LedgerRow, TOTALS, type UsageFilter, type UsageSum } from '../core/ports/store.ts'
import { memberOf } from './columns.ts'

export const HOUR_MS = 3_600_000

/** The texts that tell sums of one hour apart, with the names of their columns, in the order of keys and fields. */
export const TEXTS = ['organization', 'key_id', 'model', 'provider', 'surface', 'outcome', 'provider_model'] as const

/** The first instant of the UTC month of `time`, both Unix milliseconds. */
export function startOfMonth(time: number): number {
  return Date.UTC(1970, monthIndex(time), 1)
}

/** The number of the UTC month of `time` (Unix milliseconds): 0 is January 1970. */
export function monthIndex(time: number): number {
  const date = new Date(time)
  return (date.getUTCFullYear() - 1970) * 12 + date.getUTCMonth()
}

/** A range of time: at least `since`, below `until`; Unix milliseconds. */
export interface Range {
  since: number
  until: number
}

/**
 * Divides a range into whole hours and what is left at its ends.
 * @param from sums are complete from this time on, Unix milliseconds
 * @returns the first whole hour and the one after the last, as counts of hours since 1970; and ranges without sums.
 *   While `from` is not after `since`, each of these lies within one hour.
 */
export function divide({ since = 0, until = Number.POSITIVE_INFINITY }: UsageFilter, from: number) {
  const first = Math.ceil(Math.max(since, from) / HOUR_MS)
  const end = Math.floor(until / HOUR_MS)
  // The range begins and ends within one hour, or it ends before the first sum.
  if (end < first) return { first, end: first, rest: since < until ? [{ since, until }] : [] }
  const ends: Range[] = [
    { since, until: first * HOUR_MS },
    { since: end * HOUR_MS, until },
  ]
  return { first, end, rest: ends.filter(range => range.since < range.until) }
}

/** What sums of a tag do not tell. */
export const NOT_TOLD = { provider: '', surface: '', outcome: '', provider_model: '' } as const

/** Rows as sums: those that have the tag, where one is asked for. */
export function sumsOf(rows: readonly LedgerRow[], { tag }: UsageFilter): UsageSum[] {
  if (tag === undefined) return rows.map(sumOf)
  return rows.flatMap(row => {
    const value = row.tags ? (JSON.parse(row.tags) as Record<string, string>)[tag] : undefined
    return value === undefined ? [] : [{ ...sumOf(row), ...NOT_TOLD, tag: value }]
  })
}

/** One row as a sum. */
export function sumOf(row: LedgerRow): UsageSum {
  const sum: Record<string, unknown> = { time: row.time, requests: 1, costed: row.provider_cost === undefined ? 0 : 1 }
  for (const name of TEXTS) sum[name] = row[name] ?? ''
  for (const name of FIGURES) sum[memberOf(name)] = row[memberOf(name)] ?? 0
  return sum as unknown as UsageSum
}

/** The texts and counts of a sum in the order of `TEXTS` and `TOTALS`, for what stores them. */
export const textsOf = (sum: UsageSum): string[] => TEXTS.map(name => sum[name])
export const countsOf = (sum: Omit<UsageSum, (typeof TEXTS)[number]>): number[] =>
  TOTALS.map(name => sum[memberOf(name)])
