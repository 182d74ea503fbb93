/** Usage: spend by day; sums by model, key or tag; as CSV. */
import { html } from 'hono/html'
import type { UsageSum } from '../gateway.ts'
import { page } from '../views/layout.ts'
import { count, dollars, empty, input, select, table } from '../views/parts.ts'
import { type Answer, get, type MemberVisit, type Page } from '../web/visit.ts'
import { spendChart } from './chart.ts'
import { csv } from './csv.ts'
import { daysOf, queryOf, rangeFields, rangeOf } from './range.ts'

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

function asked({ url, now }: MemberVisit) {
  const query = url.searchParams
  const range = rangeOf(query, now)
  const tag = (query.get('tag') ?? '').trim().slice(0, 64)
  const wanted = GROUPS.find(([group]) => group === query.get('by'))?.[0] ?? 'model'
  const by: Group = wanted === 'tag' && tag === '' ? 'model' : wanted
  return { range, tag, by }
}

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization } = visit
  const { range, tag, by } = asked(visit)
  const query = queryOf(range)
  const [days, sums, keys] = await Promise.all([
    gateway.usage({ ...query, group_by: 'day' }),
    gateway.usage({ ...query, group_by: by, ...(by === 'tag' && { tag }) }),
    by === 'key' ? gateway.keys() : [],
  ])
  const labels = new Map(keys.map(({ id, label }) => [id, label ?? id]))
  const nameOf = (sum: UsageSum) => (by === 'key' ? (labels.get(sum.key!) ?? sum.key!) : sum[by]!)
  const cost = new Map(days.map(sum => [sum.day!, Number(sum.cost_usd)]))
  const shown = sums.sort((a, b) => (by === 'day' ? b.day!.localeCompare(a.day!) : b.cost - a.cost))
  const link = new URLSearchParams({ ...range, by, ...(tag && { tag }) })
  const path = `/o/${organization.id}`
  return page(
    visit,
    'Usage',
    html`<form method="get" action="${path}/usage"><div class="row">
        ${rangeFields(range)}
        ${select({ name: 'by', label: 'Sums by', options: GROUPS, value: by })}
        ${input({ name: 'tag', label: 'Name of the tag', value: tag, more: { size: '14', maxlength: '64' } })}
        <button type="submit">Show</button>
        <a class="button" href="${path}/usage.csv?${link.toString()}">CSV</a>
      </div></form>
      <section class="card">${spendChart(daysOf(range).map(day => ({ day, usd: cost.get(day) ?? 0 })))}</section>
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
                dollars(sum.cost_usd),
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
  const sums = await gateway.usage({ ...queryOf(range), group_by: groups.join(','), ...(by === 'tag' && { tag }) })
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
