/** Usage: spend by day or month, and within it by model, key or tag; sums of these; as CSV. */
import { html } from 'hono/html'
import { type Gateway, GatewayRefused, type UsageSum } from '../gateway.ts'
import { page } from '../views/layout.ts'
import { count, dollars, empty, input, select, table } from '../views/parts.ts'
import { type Answer, get, type MemberVisit, type Page } from '../web/visit.ts'
import { spendChart } from './chart.ts'
import { csv } from './csv.ts'
import { barsOf, queryOf, type Range, rangeFields, rangeOf, type Step, stepOf } from './range.ts'

export const usage: Page = {
  name: 'usage',
  menu: { label: 'Usage', path: '/usage', right: 'usage' },
  routes: [get.member('/usage', 'usage', show), get.member('/usage.csv', 'usage', download)],
}

const GROUPS = [
  ['model', 'model'],
  ['key', 'key'],
  ['day', 'day'],
  ['tag', 'tag'],
] as const
type Group = (typeof GROUPS)[number][0]

function asked({ url, now }: MemberVisit): Asked {
  const query = url.searchParams
  const range = rangeOf(query, now)
  const tag = (query.get('tag') ?? '').trim().slice(0, 64)
  const wanted = GROUPS.find(([group]) => group === query.get('by'))?.[0] ?? 'model'
  const by: Group = wanted === 'tag' && tag === '' ? 'model' : wanted
  return { range, tag, by, step: by === 'day' ? 'day' : stepOf(range) }
}

interface Asked {
  range: Range
  /** Only what has this tag; '' for everything. */
  tag: string
  by: Group
  step: Step
}

/** Of what the page shows. */
type Sum = Pick<UsageSum, 'requests' | 'input' | 'cached' | 'output' | 'cost'> & { time: string; name: string }

/**
 * Sums by time and group, and by the group alone. Where the first are more than the gateway puts into one answer, the
 * bars come undivided.
 */
async function read(gateway: Gateway, { range, tag, by, step }: Asked): Promise<{ bars: Sum[]; sums: Sum[] }> {
  const ask = async (...groups: (Group | Step)[]): Promise<Sum[]> => {
    const query = { ...queryOf(range), group_by: groups.join(','), ...(tag !== '' && { tag }) }
    const found = await gateway.usage(query)
    return found.map(sum => ({ ...sum, time: sum[step] ?? '', name: groups.includes(by) ? sum[by]! : '' }))
  }
  if (by === 'day') {
    const sums = await ask('day')
    return { sums, bars: sums.map(sum => ({ ...sum, name: '' })) }
  }
  try {
    const bars = await ask(step, by)
    return { bars, sums: withoutTime(bars) }
  } catch (error) {
    if (!(error instanceof GatewayRefused) || error.status !== 400) throw error
    const [bars, sums] = await Promise.all([ask(step), ask(by)])
    return { bars, sums }
  }
}

function withoutTime(bars: readonly Sum[]): Sum[] {
  const sums = new Map<string, Sum>()
  for (const one of bars) {
    const sum = sums.get(one.name)
    if (!sum) sums.set(one.name, { ...one, time: '' })
    else for (const figure of FIGURES) sum[figure] += one[figure]
  }
  return [...sums.values()]
}

const FIGURES = ['requests', 'input', 'cached', 'output', 'cost'] as const

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization } = visit
  const { range, tag, by, step } = asked(visit)
  const [{ bars, sums }, keys] = await Promise.all([
    read(gateway, { range, tag, by, step }),
    by === 'key' ? gateway.keys() : [],
  ])
  const labels = new Map(keys.map(({ id, label }) => [id, label ?? id]))
  const nameOf = ({ name }: Sum) => labels.get(name) ?? name
  // Two keys of one label are two parts: the id tells them apart, and the label is what is read.
  const spend = bars.map(sum => ({ time: sum.time, usd: sum.cost / 1e9, part: sum.name }))
  const shown = sums.sort((a, b) => (by === 'day' ? b.time.localeCompare(a.time) : b.cost - a.cost))
  const link = new URLSearchParams({ ...range, by, ...(tag && { tag }) })
  const path = `/o/${organization.id}`
  return page(
    visit,
    'Usage',
    html`<form method="get" action="${path}/usage"><div class="row">
        ${rangeFields(range)}
        ${select({ name: 'by', label: 'Sums by', options: GROUPS, value: by })}
        ${input({ name: 'tag', label: 'Only with the tag', value: tag, more: { size: '14', maxlength: '64' } })}
        <button type="submit">Show</button>
        <a class="button" href="${path}/usage.csv?${link.toString()}">CSV</a>
      </div></form>
      <section class="card">${spendChart(step, barsOf(range, step), spend, part => labels.get(part) ?? part)}</section>
      <section>${
        shown.length === 0
          ? empty('Nothing was used in this time.')
          : table(
              'Sums',
              [
                by.charAt(0).toUpperCase() + by.slice(1),
                '#Requests',
                '#Input tokens',
                '#of them cached',
                '#Output tokens',
                '#Cost',
              ],
              shown.map(sum => [
                nameOf(sum),
                ...[sum.requests, sum.input, sum.cached, sum.output].map(count),
                dollars(sum.cost / 1e9),
              ]),
            )
      }</section>
      <p class="muted">Days are of UTC. What was used in the last minute may be missing.</p>`,
  )
}

/** One line for each day, model and key: what the page shows is sums of these. */
async function download(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization } = visit
  const { range, tag, by } = asked(visit)
  const groups = by === 'tag' ? ['day', 'model', 'key', 'tag'] : ['day', 'model', 'key']
  const sums = await gateway.usage({ ...queryOf(range), group_by: groups.join(','), ...(tag !== '' && { tag }) })
  // Of what a row of the gateway has, what a customer pays for; not what providers charge.
  const columns = [
    ...groups,
    'requests',
    'input',
    'cached',
    'cache_write',
    'output',
    'reasoning',
    'searches',
    'cost_usd',
  ]
  const lines = sums.map(sum => columns.map(column => sum[column as keyof UsageSum] ?? ''))
  const name = `${organization.id}-${range.since}-${range.until}.csv`
  return {
    status: 200,
    headers: { 'content-type': 'text/csv; charset=utf-8', 'content-disposition': `attachment; filename="${name}"` },
    body: csv(columns, lines),
  }
}
