/** Which month or day of use is shown. */
import { h, text } from './dom.mjs'
import { moment, zone } from './format.mjs'

const MONTHS = 12
const DAY_MS = 86_400_000
const names = new Intl.DateTimeFormat('en', { month: 'long', year: 'numeric', timeZone: 'UTC' })
const iso = time => new Date(time).toISOString()

function nextMonth(first) {
  const date = new Date(first)
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1)
}

/**
 * Two choices, of a month and of a day in it. Both are those of the calendar in UTC, whatever zone times are shown in:
 * limits of spend begin anew then, and bills, statements and the console are made by them.
 */
export class Period {
  #months = h('select', { id: 'which-month', 'aria-label': 'Use in which month, in UTC' })
  #days = h('select', { id: 'which-day', 'aria-label': 'Use on which day, in UTC' })
  #note = h('p', { class: 'muted' })
  #built = ''

  /** @param changed called when somebody has chosen */
  constructor(changed) {
    this.#months.addEventListener('change', () => {
      this.#days.value = ''
      this.update(Date.now())
      changed()
    })
    this.#days.addEventListener('change', () => {
      this.update(Date.now())
      changed()
    })
    this.update(Date.now())
  }

  get tools() {
    return [this.#months, this.#days]
  }

  get note() {
    return this.#note
  }

  /** Offers what there is at `now`. The running month stays chosen when the next one begins. */
  update(now) {
    const date = new Date(now)
    const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()]
    const today = iso(now).slice(0, 10)
    const firsts = Array.from({ length: MONTHS }, (_, back) => Date.UTC(year, month - back, 1))
    const chosen = this.#months.value || 'running'
    const built = `${today} ${chosen}`
    if (built !== this.#built) {
      this.#built = built
      const months = firsts.map((first, back) => [
        back === 0 ? 'running' : iso(first).slice(0, 7),
        `${names.format(first)} (UTC)`,
      ])
      options(this.#months, months, chosen)
      const first = this.#first(now)
      const end = Math.min(nextMonth(first), Date.parse(today) + DAY_MS)
      const days = Array.from({ length: (end - first) / DAY_MS }, (_, n) => iso(first + n * DAY_MS).slice(0, 10))
      options(this.#days, [['', 'All days'], ...days.map(day => [day, day])], this.#days.value)
    }
    const { since, until } = this.range(now)
    const where = zone() === 'UTC' ? '' : ` What is shown goes from ${moment(since)} to ${moment(until)} in ${zone()}.`
    text(this.#note, `Days and months are those of UTC, as for limits of spend and bills.${where}`)
  }

  #first(now) {
    const { value } = this.#months
    return Date.parse(`${value === 'running' ? iso(now).slice(0, 7) : value}-01T00:00:00Z`)
  }

  /** @returns Unix milliseconds, until exclusive */
  range(now) {
    if (this.#days.value !== '') {
      const since = Date.parse(`${this.#days.value}T00:00:00Z`)
      return { since, until: since + DAY_MS }
    }
    const since = this.#first(now)
    return { since, until: nextMonth(since) }
  }

  /** For `GET organizations/{id}/usage`. */
  query(now) {
    const { since, until } = this.range(now)
    return `since=${iso(since)}&until=${iso(until)}`
  }
}

/** Keeps what is chosen where it is still offered; else the first is. */
function options(select, offered, chosen) {
  select.replaceChildren(...offered.map(([value, words]) => h('option', { value }, words)))
  select.value = offered.some(([value]) => value === chosen) ? chosen : offered[0][0]
}
