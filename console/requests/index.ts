/** Requests: rows of the ledger, without content, and what to do about each code. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { html } from 'hono/html'
import type { LedgerRow } from '../gateway.ts'
import { queryOf, rangeFields, rangeOf } from '../usage/range.ts'
import { page } from '../views/layout.ts'
import { badge, count, dollars, empty, input, select, table, time } from '../views/parts.ts'
import { type Answer, get, type Html, type MemberVisit, type Page } from '../web/visit.ts'

export const requests: Page = {
  name: 'requests',
  menu: { label: 'Requests', path: '/requests', right: 'requests' },
  routes: [get.member('/requests', 'requests', show)],
}

/** By code: what it means, and what to do. `npm run generate` writes it from the gateway's own table. */
const CODES: Record<string, { meaning: string; next: string }> = JSON.parse(
  readFileSync(join(import.meta.dirname, 'codes.json'), 'utf8'),
)

const OUTCOMES: Record<string, [words: string, kind: 'good' | 'warn' | 'bad']> = {
  completed: ['completed', 'good'],
  incomplete: ['incomplete', 'warn'],
  replayed: ['replayed', 'good'],
  client_gone: ['client left', 'warn'],
  refused: ['refused', 'bad'],
  upstream_error: ['provider failed', 'bad'],
  gateway_error: ['service failed', 'bad'],
  lost: ['lost', 'bad'],
}

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization, url, now } = visit
  const query = url.searchParams
  const range = rangeOf(query, now)
  const wanted = (name: string) => (query.get(name) ?? '').trim().slice(0, 128)
  const filters = Object.fromEntries(
    ['key', 'code', 'outcome', 'after'].map(name => [name, wanted(name)] as const).filter(([, value]) => value !== ''),
  )
  const [{ rows, next }, keys] = await Promise.all([
    gateway.rows({ ...queryOf(range), ...filters, limit: '50' }),
    gateway.keys(),
  ])
  const labels = new Map(keys.map(({ id, label }) => [id, label ?? id]))
  const path = `/o/${organization.id}/requests`
  const more = new URLSearchParams({ ...range, ...filters, after: next ?? '' })
  return page(
    visit,
    'Requests',
    html`<form method="get" action="${path}"><div class="row">
        ${rangeFields(range)}
        ${select({
          name: 'key',
          label: 'Key',
          value: filters['key'],
          options: [['', 'all'], ...keys.map(({ id, label }) => [id, label ?? id] as const)],
        })}
        ${select({
          name: 'outcome',
          label: 'Outcome',
          value: filters['outcome'],
          options: [['', 'all'], ...Object.entries(OUTCOMES).map(([outcome, [words]]) => [outcome, words] as const)],
        })}
        ${input({ name: 'code', label: 'Code', value: filters['code'], more: { size: '22', maxlength: '64' } })}
        <button type="submit">Show</button>
      </div></form>
      <section>${
        rows.length === 0
          ? empty(next === null ? 'There is no such request in this time.' : 'None of these; look at older ones.')
          : table(
              'Requests',
              ['When (UTC)', 'Key', 'Model', 'Outcome', '#Input', '#Output', '#Cost', '#Seconds'],
              rows.map(row => [
                html`${time(row.time)}<br /><code class="muted">${row.request_id}</code>`,
                labels.get(row.key_id) ?? row.key_id,
                row.model,
                outcomeOf(row),
                row.cached > 0 ? `${count(row.input)} (${count(row.cached)} cached)` : count(row.input),
                count(row.output),
                dollars(row.cost_usd),
                (row.duration_ms / 1000).toFixed(2),
              ]),
            )
      }</section>
      ${next === null ? '' : html`<p><a href="${path}?${more.toString()}">Older</a></p>`}
      <p class="muted">Prompts and replies are not kept here. The id is that of the header X-Request-Id: name it
        when you
        ask for help.</p>`,
  )
}

function outcomeOf({ outcome, code }: LedgerRow): Html {
  const [words, kind] = OUTCOMES[outcome] ?? [outcome, 'warn']
  const known = code === '' ? undefined : CODES[code]
  const next = known
    ? html`<details class="more"><summary>What to do</summary>
        <p>${known.meaning}</p><p>${known.next}</p></details>`
    : ''
  return html`${badge(words, kind)}${code === '' ? '' : html` <code>${code}</code>`} ${next}`
}
