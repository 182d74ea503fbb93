/** One request as the usage page shows it: what the gateway has of it in memory, and its row of the ledger. */
import { call } from './api.mjs'
import { copyButton, h } from './dom.mjs'
import { ask } from './feed.mjs'
import { count, moment, ms, usd, zone } from './format.mjs'
import { outcomeBadge } from './outcomes.mjs'
import { panel } from './timeline.mjs'
import { timeOf } from './usage-state.mjs'
import { nanoOf } from './usage-sums.mjs'

const HOUR_MS = 3_600_000
/** A row has the time when its request came, which is when its id was made. */
const APART_MS = 2000
/** So many organizations are searched for a row when nobody says whose it is, those with most requests first. */
const MOST_ORGANIZATIONS = 20
/** Pages that are read of each, of at most 500 rows. */
const MOST_PAGES = 20
const PAGE = 500

/**
 * What the memory of the gateway has of a request.
 * @returns { traced, words }: `words` say why there is nothing
 */
export async function remembered(id) {
  const answer = await ask(`/trace?id=${encodeURIComponent(id)}`).catch(() => null)
  if (answer?.ok) return { traced: await answer.json(), words: '' }
  if (answer?.status === 403) return { traced: null, words: 'This token may not read what the gateway has in memory.' }
  if (answer?.status === 404) return { traced: null, words: 'The gateway has it in memory no more.' }
  return { traced: null, words: 'The gateway does not tell what it has in memory.' }
}

/**
 * The row of a request, wherever it is.
 * @param organization whose it is; '' where that is not known: then it is looked for among those that were served in its
 * hour
 * @param guess the one that is looked at first; '' for none
 * @returns { row, words }: `words` say why there is none
 * @throws Fault
 */
export async function rowOf(id, organization, guess) {
  const at = timeOf(id)
  const first = organization || guess
  const guessed = first && (await rowAmong(id, at, first))
  if (guessed || organization) return { row: guessed, words: NO_ROW }
  const hours = new URLSearchParams({
    since: iso(Math.floor((at - APART_MS) / HOUR_MS) * HOUR_MS),
    until: iso(Math.ceil((at + APART_MS) / HOUR_MS) * HOUR_MS),
    group_by: 'organization',
  })
  const { usage } = (await call(`usage?${hours}`)).body
  const served = usage.sort((a, b) => b.requests - a.requests)
  for (const { organization: one } of served.slice(0, MOST_ORGANIZATIONS)) {
    if (one === guess) continue
    const row = await rowAmong(id, at, one)
    if (row) return { row, words: '' }
  }
  return { row: null, words: served.length > MOST_ORGANIZATIONS ? manyServed(served.length) : NO_ROW }
}

const NO_ROW =
  'It has no row in the ledger: it was refused before it was admitted, still runs, or is older than what is kept.'
const manyServed = many =>
  `${count(many)} organizations were served in its hour, and it is none of the ${MOST_ORGANIZATIONS} with most requests: name its organization below, and find it again.`

const iso = time => new Date(time).toISOString()

/** Null also where the organization is gone, so that nobody can ask for its rows. */
async function rowAmong(id, at, organization) {
  const query = { since: iso(at - APART_MS), until: iso(at + APART_MS), limit: PAGE }
  let after
  for (let page = 0; page < MOST_PAGES; page++) {
    const asked = new URLSearchParams({ ...query, ...(after && { after }) })
    const { rows, next } = await call(`organizations/${encodeURIComponent(organization)}/rows?${asked}`).then(
      ({ body }) => body,
      fault => {
        if (fault.status !== 404) throw fault
        return { rows: [], next: null }
      },
    )
    const row = rows.find(({ request_id }) => request_id === id)
    if (row) return row
    if (next === null) return null
    after = next
  }
  return null
}

/** What is known of one request, its cause first. @param words say what is not known */
export function requestView({ id, traced, row, words = [] }) {
  const shell = `npx sluice trace ${id}`
  return h(
    'div',
    { class: 'request' },
    ...words.map(said => h('p', { class: 'muted' }, said)),
    traced ? panel(traced, '', row && bill(row, true)) : row && bill(row, false),
    traced ? null : h('p', {}, 'In a shell, which asks the log too: ', h('code', {}, shell), ' ', copyButton(shell)),
  )
}

/** The row of the ledger. @param traced whether what became of it stands above */
function bill(row, traced) {
  const backend = [row.provider, row.provider_model].filter(Boolean).join('/')
  const charged = row.provider_cost_usd === undefined ? null : nanoOf(row.provider_cost_usd)
  const inside = (many, words) => (many > 0 ? [`${count(many)} ${words}`] : [])
  const input = [...inside(row.cached, 'cached'), ...inside(row.cache_write, 'written to the cache')]
  const output = inside(row.reasoning, 'reasoning')
  const facts = [
    ...(traced
      ? []
      : [
          ['outcome', h('span', {}, outcomeBadge(row.outcome), row.code ? ` ${row.code}` : '')],
          ['request id', h('code', {}, row.request_id)],
          ['at', `${moment(row.time)}, ${zone()}`],
          ['account', `${row.organization} / ${row.key_id}`],
          ['model', row.model || '–'],
          ['backend', backend || '–'],
          ['time', `${ms(row.duration_ms)}, first byte ${ms(row.ttfb_ms)}`],
        ]),
    ['surface', row.surface ?? '–'],
    ['input', `${count(row.input)}${within(input)}`],
    ['output', `${count(row.output)}${within(output)}${row.estimated ? ', estimated by the gateway' : ''}`],
    ...(row.searches > 0 ? [['searches', count(row.searches)]] : []),
    ['billed', `${usd(nanoOf(row.cost_usd))}, ${row.billing}${row.price_used ? `, price of ${row.price_used}` : ''}`],
    ['price book', row.price_book || '–'],
    ['provider charges', charged === null ? 'not known' : usd(charged)],
    ...(row.service_tier ? [['service tier', row.service_tier]] : []),
    ...(row.rounds > 1 ? [['rounds', count(row.rounds)]] : []),
    ...(row.tags ? [['tags', h('code', {}, row.tags)]] : []),
  ]
  return h(
    'section',
    { 'aria-label': `Row of ${row.request_id}` },
    h('h3', {}, 'By the ledger'),
    h('dl', {}, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
  )
}

const within = parts => (parts.length > 0 ? ` (${parts.join(', ')})` : '')
