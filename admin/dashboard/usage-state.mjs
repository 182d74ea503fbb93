/**
 * What the usage page shows, as it stands in the address: `#range=30d&by=model&organization=acme`. The parts that are as
 * usual are left out, and so is what may be a secret.
 */

const DAY_MS = 86_400_000
/** The admin API sums at most so much at once. */
const MOST_DAYS = 366
/** Bars of more days would be too narrow to point at. */
const MOST_BARS = 92

/** Of UTC days, all up to today. */
export const RANGES = [
  ['today', 'Today'],
  ['7d', '7 days'],
  ['30d', '30 days'],
  ['month', 'This month'],
  ['12m', '12 months'],
]

/** What sums are made by; those of one organization are not made by what it has one of, and those of all not by key. */
export const GROUPS = [
  ['organization', 'organization', 'all'],
  ['plan', 'plan', 'all'],
  ['key', 'key', 'one'],
  ['model', 'model'],
  ['backend', 'backend'],
  ['surface', 'surface'],
  ['outcome', 'outcome'],
  ['day', 'day'],
]

/** What bars are as high as. */
export const MEASURES = [
  ['cost', 'Cost'],
  ['requests', 'Requests'],
  ['tokens', 'Tokens'],
]

/** How a row of the ledger may have ended (docs/ledger.md). */
export const OUTCOMES = ['completed', 'incomplete', 'client_gone', 'upstream_error', 'gateway_error', 'refused', 'lost']

export const groupsOf = organization =>
  GROUPS.filter(([, , where]) => where === undefined || where === (organization === '' ? 'all' : 'one'))

const REQUEST_ID = /^req_[0-9A-Za-z]{24}$/
export const isRequestId = text => REQUEST_ID.test(text)

/** What looks like the secret of a key goes neither into the address nor to the gateway. */
export const looksSecret = text => /^sk-/i.test(text.trim())

const plain = { request: '', range: '30d', from: '', to: '', by: '', show: 'cost', organization: '', key: '' }
const START = { ...plain, code: '', outcome: '' }

/** What stands in an address, with whatever cannot be left out. */
export function stateOf(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ''))
  const one = (name, fits) => (fits(given.get(name) ?? '') ? given.get(name) : START[name])
  const among = list => value => list.some(([known]) => known === value)
  const organization = one('organization', isName)
  const [from, to] = [one('from', isDay), one('to', isDay)]
  const own = from !== '' && to !== '' && from <= to
  return {
    request: one('request', isRequestId),
    range: own ? '' : one('range', among(RANGES)),
    ...(own ? { from, to } : { from: '', to: '' }),
    by: one('by', among(groupsOf(organization))) || (organization === '' ? 'organization' : 'model'),
    show: one('show', among(MEASURES)),
    organization,
    // Rows are those of one organization.
    ...(organization === ''
      ? { key: '', code: '', outcome: '' }
      : {
          key: one('key', isName),
          code: one('code', isCode),
          outcome: one('outcome', value => OUTCOMES.includes(value)),
        }),
  }
}

const isName = text => text !== '' && text.length <= 128 && !looksSecret(text)
const isCode = text => /^[a-z0-9_]{1,64}$/.test(text)
const isDay = text => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text))

/** `#by=model`; `#` where all is as usual. `stateOf` makes the state of it again. */
export function hashOf(state) {
  const usual = stateOf(
    state.organization === '' ? '' : `#${new URLSearchParams({ organization: state.organization })}`,
  )
  const parts = Object.keys(START).filter(
    name => state[name] && (name === 'organization' || state[name] !== usual[name]) && !looksSecret(state[name]),
  )
  return `#${new URLSearchParams(parts.map(name => [name, state[name]]))}`
}

/** Where the usage page shows an organization, a request, or both. */
export const usageOf = parts => `/dashboard/usage.html${hashOf(stateOf(new URLSearchParams(parts).toString()))}`

/** A UTC day, such as 2026-11-01. */
export const dayOf = time => new Date(time).toISOString().slice(0, 10)

/** The first day and the last of what is shown. What cannot be is brought within what can. */
export function rangeOf({ range, from, to }, now) {
  const today = dayOf(now)
  if (range === '') {
    const last = Math.min(Date.parse(to), Date.parse(today))
    const first = Math.min(Date.parse(from), last)
    return { since: dayOf(Math.max(first, last - (MOST_DAYS - 1) * DAY_MS)), until: dayOf(last) }
  }
  const date = new Date(now)
  const month = back => dayOf(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - back, 1))
  const ago = days => dayOf(Date.parse(today) - (days - 1) * DAY_MS)
  const since = { today, '7d': ago(7), '30d': ago(30), month: month(0), '12m': month(11) }[range]
  return { since, until: today }
}

/** As the admin API takes it: `until` is the end of the last day. */
export const queryOf = ({ since, until }) => ({ since, until: dayOf(Date.parse(until) + DAY_MS) })

/** What each bar stands for: a day, or a month where days would be too many. */
export const stepOf = range => (daysOf(range).length > MOST_BARS ? 'month' : 'day')

/** Every day or month of a range; the first month and the last may be there in part. */
export function barsOf(range, step) {
  const days = daysOf(range)
  return step === 'day' ? days : [...new Set(days.map(monthOf))]
}

export const monthOf = day => day.slice(0, 'YYYY-MM'.length)

function daysOf({ since, until }) {
  const first = Date.parse(since)
  return Array.from({ length: (Date.parse(until) - first) / DAY_MS + 1 }, (_, i) => dayOf(first + i * DAY_MS))
}

/** The digits of base 62 in the order of request ids (core/tools/ids.ts): seven of them are the time that one was made. */
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** When a request id was made, Unix milliseconds. */
export const timeOf = id => [...id.slice(4, 11)].reduce((time, digit) => time * 62 + DIGITS.indexOf(digit), 0)
