/** The time that a page shows. */
import { html } from 'hono/html'
import { input } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'

const DAY = 86_400_000
/** The gateway sums at most so much at once. */
const MOST_DAYS = 366
const DEFAULT_DAYS = 30
/** A bar of a longer time would be too narrow to point at. */
const MOST_BARS = 92

export interface Range {
  /** The first day and the last, such as 2026-11-01. */
  since: string
  until: string
}

const dayOf = (time: number) => new Date(time).toISOString().slice(0, 10)
const timeOf = (day: string | null) => (/^\d{4}-\d{2}-\d{2}$/.test(day ?? '') ? Date.parse(day!) : Number.NaN)

/** The range of an address, or the last 30 days; what cannot be is brought within what can. */
export function rangeOf(query: URLSearchParams, now: number): Range {
  const today = Date.parse(dayOf(now))
  const until = timeOf(query.get('until'))
  const last = Number.isNaN(until) ? today : Math.min(until, today)
  const since = timeOf(query.get('since'))
  const first = Number.isNaN(since) || since > last ? last - (DEFAULT_DAYS - 1) * DAY : since
  return { since: dayOf(Math.max(first, last - (MOST_DAYS - 1) * DAY)), until: dayOf(last) }
}

/** As the admin API takes it: `until` is the end of the last day. */
export const queryOf = ({ since, until }: Range) => ({ since, until: dayOf(Date.parse(until) + DAY) })

/** What a chart has one bar for; UTC. */
export type Step = 'day' | 'month'

/** Days, or months where days would be too many. */
export const stepOf = (range: Range): Step => (daysOf(range).length > MOST_BARS ? 'month' : 'day')

/** Every day or month of a range, such as 2026-11-01 or 2026-11; the first month and the last may be there in part. */
export function barsOf(range: Range, step: Step): string[] {
  const days = daysOf(range)
  return step === 'day' ? days : [...new Set(days.map(day => day.slice(0, 'YYYY-MM'.length)))]
}

function daysOf({ since, until }: Range): string[] {
  const first = Date.parse(since)
  return Array.from({ length: (Date.parse(until) - first) / DAY + 1 }, (_, i) => dayOf(first + i * DAY))
}

export const rangeFields = ({ since, until }: Range): Html =>
  html`${input({ name: 'since', label: 'From', type: 'date', value: since })}
    ${input({ name: 'until', label: 'To', type: 'date', value: until })}`
