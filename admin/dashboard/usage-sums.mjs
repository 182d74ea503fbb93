/** Sums of the ledger for the usage page: asked of the admin API, divided for the bars, totalled for the table. */
import { barsOf, monthOf, queryOf, rangeOf, stepOf } from './usage-state.mjs'

/** As many as colours can be told apart; what is left is one more. */
export const MOST_PARTS = 5
const COUNTS = ['requests', 'input', 'cached', 'cache_write', 'output', 'reasoning', 'costed']
/** Of a sum; `cost` and `charged`, what the providers charge, are in nano-USD. */
const FIGURES = [...COUNTS, 'cost', 'charged']

/** An amount of the API, such as `1.250000001`, in nano-USD. */
export const nanoOf = text => Math.round(Number(text) * 1e9)

const tooMany = fault => fault.status === 400 && /more than \d+ groups/.test(fault.message)

/**
 * Sums by time and group, and by the group alone. Where the first are more than the gateway puts into one answer, the
 * bars come undivided, and where the second are, there are none of them.
 * @param ask asks for a path of the admin API: resolves with its body, rejects with a Fault
 * @returns { range, step, bars, sums, total, lines }: `sums` null where they are too many; `lines` are those of the API
 * with the names of their groups, which bars and sums are made of
 */
export async function readUsage(ask, state, now) {
  const range = rangeOf(state, now)
  const step = stepOf(range)
  const { by, organization } = state
  const path = organization === '' ? 'usage' : `organizations/${encodeURIComponent(organization)}/usage`
  const read = async (...groups) => {
    const query = new URLSearchParams({ ...queryOf(range), group_by: groups.join() })
    const { usage } = await ask(`${path}?${query}`)
    return { groups, lines: usage, sums: usage.map(sum => sumOf(sum, groups, by, step)) }
  }
  const all = (bars, sums, lines) => ({ range, step, bars, sums, lines, total: added(bars, '') })
  if (by === 'day') {
    const days = await read('day')
    const bars = days.sums.map(sum => ({ ...sum, name: '', time: step === 'day' ? sum.name : monthOf(sum.name) }))
    return all(
      together(bars, ({ time }) => time),
      days.sums,
      days,
    )
  }
  try {
    const both = await read(step, by)
    return all(
      both.sums,
      together(both.sums, ({ name }) => name).map(sum => ({ ...sum, time: '' })),
      both,
    )
  } catch (fault) {
    if (!tooMany(fault)) throw fault
  }
  const bars = await read(step)
  try {
    const groups = await read(by)
    return all(bars.sums, groups.sums, groups)
  } catch (fault) {
    if (!tooMany(fault)) throw fault
    return all(bars.sums, null, bars)
  }
}

function sumOf(sum, groups, by, step) {
  const counts = Object.fromEntries(COUNTS.map(name => [name, sum[name] ?? 0]))
  const [cost, charged] = [nanoOf(sum.cost_usd), nanoOf(sum.provider_cost_usd)]
  return { time: sum[step] ?? '', name: groups.includes(by) ? sum[by] : '', ...counts, cost, charged }
}

/** One sum of those that agree in what `of` says. */
function together(sums, of) {
  const found = new Map()
  for (const sum of sums) {
    const known = found.get(of(sum))
    if (known) add(known, sum)
    else found.set(of(sum), { ...sum })
  }
  return [...found.values()]
}

function add(to, sum) {
  for (const figure of FIGURES) to[figure] += sum[figure]
  return to
}

const added = (sums, name) =>
  sums.reduce(add, { time: '', name, ...Object.fromEntries(FIGURES.map(figure => [figure, 0])) })

/** Days from the last to the first, and of all else what costs most first. */
export const sorted = (sums, by) =>
  [...sums].sort((a, b) =>
    by === 'day'
      ? b.name.localeCompare(a.name)
      : b.cost - a.cost || b.requests - a.requests || (a.name < b.name ? -1 : 1),
  )

/** What is left of the cost when the providers are paid, nano-USD; null where that is not known of all requests. */
export const marginOf = ({ cost, charged, costed, requests }) => (costed < requests ? null : cost - charged)

/** The figure of a sum that bars are as high as. */
export const MEASURED = {
  cost: ({ cost }) => cost,
  requests: ({ requests }) => requests,
  tokens: ({ input, output }) => input + output,
}

/**
 * What bars are divided into: the five largest of the whole time, and all others together. A time of which nothing is
 * known has no value.
 * @returns [{ name, total, byTime }]
 */
export function partsOf(bars, measure) {
  const found = new Map()
  for (const sum of bars) {
    const part = found.get(sum.name) ?? { name: sum.name, total: 0, byTime: new Map() }
    found.set(sum.name, grown(part, sum.time, MEASURED[measure](sum)))
  }
  const parts = [...found.values()].sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1))
  const others = parts.slice(MOST_PARTS)
  if (others.length < 2) return parts
  const rest = { name: `${others.length} more`, total: 0, byTime: new Map() }
  for (const { byTime } of others) for (const [time, value] of byTime) grown(rest, time, value)
  return [...parts.slice(0, MOST_PARTS), rest]
}

function grown(part, time, value) {
  part.total += value
  part.byTime.set(time, (part.byTime.get(time) ?? 0) + value)
  return part
}

/** The times of all bars, also of those without a value. */
export const timesOf = ({ range, step }) => barsOf(range, step)

/** Heads and lines of a CSV file: one for each group that the gateway told apart, exact, and all of them. */
export function linesOf({ lines: { groups, lines } }) {
  const heads = [...groups, ...COUNTS, 'cost_usd', 'provider_cost_usd', 'margin_usd']
  return [
    heads,
    lines.map(line => {
      const sum = sumOf(line, groups, '', '')
      const margin = marginOf(sum)
      return [
        ...groups.map(name => line[name]),
        ...COUNTS.map(name => sum[name]),
        line.cost_usd,
        sum.costed === 0 ? '' : line.provider_cost_usd,
        margin === null ? '' : (margin / 1e9).toFixed(9),
      ]
    }),
  ]
}
