/** Formats numbers for people: short, of even width, and with no more digits than have a meaning. */

const plain = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 })

/** A count: 1,234, then 12.3K. */
export function count(n) {
  return Math.abs(n) < 10_000 ? plain.format(n) : short.format(n)
}

/** Per second: 0, 0.4, 12, 1.2K. */
export function rate(n) {
  if (n === 0) return '0'
  if (n < 0.1) return '<0.1'
  if (n < 10) return n.toFixed(1)
  return count(Math.round(n))
}

/** Milliseconds: 0.42 ms, 12 ms, 1.24 s, 3.1 min. */
export function ms(n) {
  if (n === null || n === undefined) return '–'
  if (n === 0) return '0 ms'
  if (n < 0.01) return `${(n * 1000).toFixed(1)} µs`
  if (n < 1) return `${n.toFixed(2)} ms`
  if (n < 10) return `${n.toFixed(1)} ms`
  if (n < 1000) return `${Math.round(n)} ms`
  if (n < 60_000) return `${(n / 1000).toFixed(n < 10_000 ? 2 : 1)} s`
  return `${(n / 60_000).toFixed(1)} min`
}

export function micros(n) {
  return n < 1000 ? `${n < 10 ? n.toFixed(1) : Math.round(n)} µs` : ms(n / 1000)
}

export function bytes(n) {
  if (n < 1 << 20) return `${Math.round(n / 1024)} KiB`
  if (n < 1 << 30) return `${(n / (1 << 20)).toFixed(0)} MiB`
  return `${(n / (1 << 30)).toFixed(2)} GiB`
}

/** Whether amounts of a limit's dimension are in nano-USD. */
export const isMoney = dimension => dimension === 'spend' || dimension === 'unbilled'

/** From nano-USD. */
export function usd(nano) {
  const value = nano / 1e9
  if (value === 0) return '$0'
  if (value < 0.000001) return '<$0.000001'
  if (value < 0.01) return `$${value.toFixed(6)}`
  if (value < 100) return `$${value.toFixed(value < 1 ? 4 : 2)}`
  return `$${count(value)}`
}

export function percent(share) {
  if (share === 0) return '0 %'
  if (share < 0.001) return '<0.1 %'
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`
}

/** A span of time: 45 s, 12 min, 3 h, 2 d. */
export function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000))
  if (seconds < 90) return `${seconds} s`
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} d`
}

const ZONE = 'sluice.zone'
const local = new Intl.DateTimeFormat().resolvedOptions().timeZone
/** Whether times are shown in UTC, as days and months of bills are, and not in the browser's zone. */
const inUtc = local === 'UTC' || globalThis.localStorage?.getItem(ZONE) === 'utc'
const zoned = options => new Intl.DateTimeFormat('en-GB', { ...options, ...(inUtc && { timeZone: 'UTC' }) })
const clocks = zoned({ hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' })
const minutes = zoned({ hour: '2-digit', minute: '2-digit', hourCycle: 'h23' })
const dates = zoned({ year: 'numeric', month: '2-digit', day: '2-digit' })

/** `Europe/Berlin (GMT+1)`; `UTC`. */
export function zone() {
  if (inUtc) return 'UTC'
  const parts = new Intl.DateTimeFormat('en-GB', { timeZoneName: 'shortOffset' }).formatToParts()
  return `${local} (${parts.find(({ type }) => type === 'timeZoneName').value})`
}

/** Names the zone in which times are shown, and makes the button choose between the browser's and UTC. */
export function zoneButton(button) {
  button.textContent = `Times: ${zone()}`
  button.disabled = local === 'UTC'
  button.addEventListener('click', () => {
    localStorage.setItem(ZONE, inUtc ? 'local' : 'utc')
    // Times stand all over the page, in rows that are not drawn again.
    location.reload()
  })
}

/** 09:05:07. */
export function clock(at) {
  return clocks.format(at)
}

/** 09:05, and 09:05:07 where there are seconds. */
export function shortClock(at) {
  return at % 60_000 === 0 ? minutes.format(at) : clock(at)
}

export function moment(at) {
  const of = Object.fromEntries(dates.formatToParts(at).map(({ type, value }) => [type, value]))
  return `${of.year}-${of.month}-${of.day} ${clock(at)}`
}

/** `acme, other and 3 more`. @param all how many there are, of which `some` are known */
export function names(some, all) {
  const more = all - some.length
  return `${some.join(', ')}${more > 0 ? ` and ${count(more)} more` : ''}`
}

/** `acme 30, other 8 and 3 more`: whom an incident hits. */
export function hits({ organizations, affected }, shown = 3) {
  const named = organizations.slice(0, shown).map(([id, n]) => `${id || 'no account'} ${count(n)}`)
  return names(named, affected)
}
