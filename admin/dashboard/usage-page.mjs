/**
 * The usage page: what the whole service or one organization used in a time, the requests of an organization, and any
 * one request by its id. What is shown stands in the address (usage-state.mjs).
 */
import { call, isOpen } from './api.mjs'
import { csv } from './csv.mjs'
import { download, h, table, text } from './dom.mjs'
import { count, moment, percent, usd, zone, zoneButton } from './format.mjs'
import { Login } from './login.mjs'
import { linesOfRows, PastRequests } from './past-requests.mjs'
import { remembered, requestView, rowOf } from './request-view.mjs'
import { themeButton } from './theme.mjs'
import { UsageChart } from './usage-chart.mjs'
import {
  GROUPS,
  groupsOf,
  hashOf,
  isRequestId,
  looksSecret,
  MEASURES,
  OUTCOMES,
  queryOf,
  RANGES,
  rangeOf,
  stateOf,
  timeOf,
} from './usage-state.mjs'
import { linesOf, partsOf, readUsage, sorted, timesOf } from './usage-sums.mjs'

const FIND_DELAY_MS = 250
const RETRY_MS = 5000
/** Rows of the table of sums; a file has all. */
const MOST_SUMS = 100
const PAGE = 50
/** Pages of rows that are read for one click, where the gateway looks at very many rows and few of them match. */
const MOST_PAGES = 10
const NO_SECRET = 'This looks like a key. Keys are not sent: the accounts page tells whose one is.'

const at = id => document.getElementById(id)
const chart = new UsageChart(at('chart'))
const past = new PastRequests(at('past'))
themeButton(at('theme'))
zoneButton(at('zone'))

const login = new Login({
  may: () => 'may read',
  opened: () => show(true),
  locked() {
    shown++
    found = ''
  },
  say: words => say(words, 'bad'),
})

function say(words, kind = '') {
  text(at('notice'), words)
  at('notice').className = kind
}

// ---- what is asked for ----------------------------------------------------------------------------------------------

let state = stateOf(location.hash)

/** Goes to what is asked for: the address tells it, so that Back goes back to what was asked for before. */
function go(change) {
  const hash = hashOf({ ...state, ...change })
  // The same again is read again.
  if (hash === hashOf(stateOf(location.hash))) show(true)
  else location.hash = hash
}

const radio = (name, [value, words]) => h('label', {}, h('input', { type: 'radio', name, value }), h('span', {}, words))
at('ranges').append(...RANGES.map(one => radio('range', one)))
at('measures').append(...MEASURES.map(one => radio('show', one)))
at('past-outcome').append(
  ...['', ...OUTCOMES].map(value => h('option', { value }, value === '' ? 'any' : value.replace('_', ' '))),
)
at('ranges').addEventListener('change', ({ target }) => go({ range: target.value, from: '', to: '' }))
at('measures').addEventListener('change', ({ target }) => go({ show: target.value }))
at('by').addEventListener('change', ({ target }) => go({ by: target.value }))

at('asked').addEventListener('submit', event => {
  event.preventDefault()
  const organization = at('organization').value.trim()
  const [from, to] = [at('from').value, at('to').value]
  if (looksSecret(organization)) return text(at('asked-fault'), NO_SECRET)
  if (from > to) return text(at('asked-fault'), 'The first day lies behind the last.')
  const { since, until } = rangeOf(state, Date.now())
  const same = from === since && to === until
  const other = organization !== state.organization
  go({
    organization,
    ...(same ? {} : { range: '', from, to }),
    // Keys, codes and groups of one organization are not those of another, nor of all.
    ...(other && {
      key: '',
      code: '',
      outcome: '',
      by: groupsOf(organization).some(([by]) => by === state.by) ? state.by : '',
    }),
  })
})

at('past-asked').addEventListener('submit', event => {
  event.preventDefault()
  const [key, code, outcome] = ['past-key', 'past-code', 'past-outcome'].map(id => at(id).value.trim())
  if (looksSecret(key) || looksSecret(code)) return text(at('past-fault'), NO_SECRET)
  if (!/^[a-z0-9_]*$/.test(code)) return text(at('past-fault'), 'A code is a word such as rate_limit_exceeded.')
  go({ key, code, outcome })
})

at('find-request').addEventListener('submit', event => {
  event.preventDefault()
  const request = at('find').value.trim()
  if (request !== '' && !isRequestId(request)) {
    at('request').hidden = true
    const words = 'That is no request id: they are req_ and 24 letters or digits, as in x-request-id. It was not sent.'
    return text(at('found'), looksSecret(request) ? NO_SECRET : words)
  }
  go({ request })
})

/** Offers organizations whose ids begin with what is typed. */
let timer
at('organization').addEventListener('input', () => {
  clearTimeout(timer)
  const begin = at('organization').value.trim()
  if (begin === '' || looksSecret(begin)) return at('organizations').replaceChildren()
  timer = setTimeout(async () => {
    const found = await call(`organizations?limit=10&find=${encodeURIComponent(begin)}`).catch(() => null)
    const ids = found?.body.organizations.map(({ id }) => id) ?? []
    at('organizations').replaceChildren(...ids.map(id => h('option', { value: id })))
  }, FIND_DELAY_MS)
})

/** Shows in the fields what the address asks for. */
function fill() {
  const { since, until } = rangeOf(state, Date.now())
  const today = rangeOf({ range: 'today' }, Date.now()).until
  for (const [id, value] of [
    ['from', since],
    ['to', until],
  ]) {
    at(id).value = value
    at(id).max = today
  }
  for (const input of document.querySelectorAll('#ranges input')) input.checked = input.value === state.range
  for (const input of document.querySelectorAll('#measures input')) input.checked = input.value === state.show
  at('organization').value = state.organization
  at('by').replaceChildren(...groupsOf(state.organization).map(([value, words]) => h('option', { value }, words)))
  at('by').value = state.by
  at('past-key').value = state.key
  at('past-code').value = state.code
  at('past-outcome').value = state.outcome
  at('find').value = state.request
  for (const id of ['asked-fault', 'past-fault']) text(at(id), '')
  document.title = `${[state.request || state.organization, 'Usage', 'Sluice'].filter(Boolean).join(' · ')}`
}

// ---- reading --------------------------------------------------------------------------------------------------------

/** Grows when something else is shown, or when the page is locked: what was asked for before is then not drawn. */
let shown = 0
let read = null

let again

/** @param fresh reads also what is there already */
async function show(fresh) {
  clearTimeout(again)
  state = stateOf(location.hash)
  // An address of somebody else's making may have had what does not belong there.
  if (location.hash !== '' && location.hash !== hashOf(state)) history.replaceState(null, '', hashOf(state))
  fill()
  if (!login.caller) return
  const run = ++shown
  const now = () => run === shown && login.caller !== null
  const ends = await Promise.all([showUsage(now, fresh), showPast(now, fresh), showRequest(now)])
  if (!now()) return
  if (ends.every(end => end === undefined)) say('')
  if (ends.includes('again')) again = setTimeout(() => show(true), RETRY_MS)
}

/**
 * Says what failed: what the token may not read, beside what it may; an invalid token locks the page.
 * @returns `again` where it may go well the next time, `said` where the notice tells it
 */
function failed(fault, note) {
  if (fault.status === 403) return void text(note, `This token may not read it: ${fault.message}.`)
  login.failed(fault)
  return isOpen(fault) ? 'again' : 'said'
}

/** What sums are of, and what rows are of: what is drawn of them may change without their being read again. */
const usageOf = ({ range, from, to, by, organization }) => [range, from, to, by, organization].join('\n')
const pastOf = ({ range, from, to, organization, key, code, outcome }) =>
  [range, from, to, organization, key, code, outcome].join('\n')

async function showUsage(now, fresh) {
  const of = usageOf(state)
  if (!fresh && read?.of === of) return drawUsage()
  text(at('usage-note'), 'Reading …')
  try {
    const found = await readUsage(async path => (await call(path)).body, state, Date.now())
    if (!now()) return
    read = { ...found, of }
    drawUsage()
    at('usage-csv').disabled = false
  } catch (fault) {
    if (!now()) return
    read = null
    at('usage-csv').disabled = true
    at('totals').replaceChildren()
    at('chart').replaceChildren()
    at('sums').replaceChildren()
    text(at('usage-note'), 'Not known now.')
    return failed(fault, at('usage-note'))
  }
}

const AMOUNTS = { cost: usd, requests: count, tokens: count }

function drawUsage() {
  const { step, bars, sums, total } = read
  const what = MEASURES.find(([measure]) => measure === state.show)[1]
  const amount = value => AMOUNTS[state.show](value)
  const named = partsOf(bars, state.show).map(part => ({ ...part, name: nameOf(part.name, bars) }))
  chart.show({ step, times: timesOf(read), parts: named, what, amount })
  at('totals').replaceChildren(...tilesOf(total))
  const rows = sums === null ? [] : sorted(sums, state.by)
  at('sums').replaceChildren(...(rows.length === 0 ? [] : [tableOf(rows, total)]))
  text(at('usage-note'), notesOf(rows.length).join(' '))
}

/** A sum may have no name: a request that no provider answered has no backend. */
const nameOf = (name, bars) => (name === '' && bars.some(sum => sum.name !== '') ? 'none' : name)

function notesOf(rows) {
  const { bars, sums, step } = read
  const by = GROUPS.find(([group]) => group === state.by)[1]
  const undivided = state.by !== 'day' && bars.length > 0 && bars.every(({ name }) => name === '')
  const more = rows - MOST_SUMS
  return [
    ...(more > 0 ? [`${count(more)} more rows: the CSV file has all.`] : []),
    ...(sums === null
      ? [
          `There are too many of ${by} for one answer: neither the bars nor a table are divided by it. Choose a shorter time.`,
        ]
      : undivided && sums.length > 0 && sums.some(({ name }) => name !== '')
        ? [`There are too many for bars that are divided by ${by}: a shorter time has them.`]
        : []),
    `Days${step === 'month' ? ' and months' : ''} are those of UTC. What was used in the last minute may be missing.`,
  ]
}

function tilesOf(total) {
  const tile = (name, value, note = '') =>
    h('div', {}, h('dt', {}, name), h('dd', {}, h('b', {}, value), h('small', { class: 'line' }, note)))
  const cached = total.input === 0 ? 0 : total.cached / total.input
  const known = total.costed < total.requests ? `, known of ${count(total.costed)} requests` : ''
  return [
    tile('Cost', usd(total.cost), 'what was billed'),
    tile('Requests', count(total.requests), 'that were admitted'),
    tile('Input tokens', count(total.input), `${percent(cached)} of them cached`),
    tile('Output tokens', count(total.output)),
    tile('Providers charge', chargedWords(total), `margin ${marginWords(total)}${known}`),
  ]
}

/**
 * The provider's side is known where the configuration has its cost, and where the provider answered. What is not known
 * can only add to what is charged, and take from the margin.
 */
const chargedWords = sum => (sum.costed === 0 ? '–' : `${isPart(sum) ? '≥ ' : ''}${usd(sum.charged)}`)
const marginWords = sum => (sum.costed === 0 ? '–' : `${isPart(sum) ? '≤ ' : ''}${signed(sum.cost - sum.charged)}`)
const isPart = ({ costed, requests }) => costed < requests
const signed = nano => (nano < 0 ? `-${usd(-nano)}` : usd(nano))

function tableOf(rows, total) {
  const [, title] = GROUPS.find(([group]) => group === state.by)
  const { node, body } = table('Table of sums', [
    [state.by === 'day' ? 'day (UTC)' : title, ''],
    ['requests', 'n'],
    ['input', 'n wide'],
    ['cached', 'n wide'],
    ['output', 'n wide'],
    ['cost', 'n'],
    ['provider charges', 'n wide'],
    ['margin', 'n wide'],
  ])
  const row = (sum, head) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, head),
      ...['requests', 'input', 'cached', 'output'].map((name, i) =>
        h('td', { class: i === 0 ? 'n' : 'n wide' }, count(sum[name])),
      ),
      h('td', { class: 'n' }, usd(sum.cost)),
      h('td', { class: 'n wide' }, chargedWords(sum)),
      h('td', { class: 'n wide' }, marginWords(sum)),
    )
  body.append(...rows.slice(0, MOST_SUMS).map(sum => row(sum, headOf(sum.name))), row(total, h('strong', {}, 'All')))
  return node
}

/** The name of a row: an organization leads to its own use. */
function headOf(name) {
  if (name === '') return h('span', { class: 'muted' }, 'none')
  if (state.by !== 'organization') return name
  return h('a', { href: hashOf({ ...state, organization: name, by: '' }) }, name)
}

at('usage-csv').addEventListener('click', () => {
  if (read) download(`${fileName('usage')}.csv`, csv(...linesOf(read)))
})

function fileName(what) {
  const { since, until } = rangeOf(state, Date.now())
  return ['sluice', what, state.organization.replace(/[^\w.-]/g, '_'), since, until].filter(Boolean).join('-')
}

// ---- past requests --------------------------------------------------------------------------------------------------

let rows = []
let next = null
/** What the rows are of; null while they are not there. */
let listed = null

async function showPast(now, fresh) {
  const of = pastOf(state)
  if (!fresh && listed === of) return
  listed = null
  rows = []
  next = null
  const { organization } = state
  at('past-asked').hidden = organization === ''
  past.show(rows)
  at('past-more').hidden = true
  at('past-csv').hidden = true
  if (organization === '') return text(at('past-note'), 'Name an organization above: requests are listed by it.')
  const end = await readRows(now)
  if (now() && end === undefined) listed = of
  return end
}

/** Reads until there are as many rows more as a page has, or none. */
async function readRows(now) {
  const { organization, key, code, outcome } = state
  text(at('past-note'), 'Reading …')
  const wanted = rows.length + PAGE
  try {
    for (let page = 0; page < MOST_PAGES && rows.length < wanted; page++) {
      const query = new URLSearchParams({
        ...queryOf(rangeOf(state, Date.now())),
        limit: wanted - rows.length,
        ...(key && { key }),
        ...(code && { code }),
        ...(outcome && { outcome }),
        ...(next !== null && { after: next }),
      })
      const { body } = await call(`organizations/${encodeURIComponent(organization)}/rows?${query}`)
      if (!now()) return
      rows = [...rows, ...body.rows]
      next = body.next
      if (next === null) break
    }
    past.show(rows)
    text(at('past-note'), pastWords())
    at('past-more').hidden = next === null
    at('past-csv').hidden = rows.length === 0
  } catch (fault) {
    if (!now()) return
    text(at('past-note'), 'Not known now.')
    // That there is no such organization is told of its use.
    return fault.status === 404 ? undefined : failed(fault, at('past-note'))
  }
}

function pastWords() {
  const refused = 'Requests that were refused before they were admitted have no row.'
  if (rows.length > 0)
    return `${count(rows.length)}${next === null ? ' in all' : ', and there are older ones'}. ${refused}`
  return `${next === null ? 'None in this time.' : 'None among the latest; there are older ones.'} ${refused}`
}

at('past-more').addEventListener('click', async () => {
  const [run, first] = [shown, rows.length]
  at('past-more').disabled = true
  await readRows(() => run === shown && login.caller !== null)
  at('past-more').disabled = false
  past.focus(first)
})
at('past-csv').addEventListener('click', () => download(`${fileName('requests')}.csv`, csv(...linesOfRows(rows))))

// ---- one request ----------------------------------------------------------------------------------------------------

let found = ''

async function showRequest(now) {
  const id = state.request
  const box = at('request')
  if (id === '') {
    found = ''
    box.hidden = true
    return text(at('found'), '')
  }
  // What else the page shows may change around it.
  if (found === id) return
  box.hidden = true
  text(at('found'), 'Looking …')
  try {
    const { traced, words } = await remembered(id)
    const ledger = await rowFor(id, traced)
    if (!now()) return
    const { row } = ledger
    found = traced || row ? id : ''
    const made = `It was made at ${moment(timeOf(id))}, ${zone()}.`
    text(at('found'), traced || row ? '' : [`Nothing is known of ${id}.`, made, words, ledger.words].join(' '))
    box.hidden = false
    const missing = traced ? [] : [words]
    box.replaceChildren(requestView({ id, traced, row, words: traced || row ? missing : [] }))
  } catch (fault) {
    if (!now()) return
    text(at('found'), '')
    return failed(fault, at('found'))
  }
}

/** Its row; what keeps the token from that is told beside what else is known. */
async function rowFor(id, traced) {
  // Whoever has no account was not admitted.
  if (traced && !traced.organization) return { row: null, words: '' }
  try {
    return await rowOf(id, traced?.organization ?? '', state.organization)
  } catch (fault) {
    if (![0, 403, 404].includes(fault.status)) throw fault
    return { row: null, words: fault.status === 403 ? `This token may not read its row: ${fault.message}.` : '' }
  }
}

// ---- the page -------------------------------------------------------------------------------------------------------

addEventListener('hashchange', () => {
  say('')
  show(false)
})
document.querySelector('.skip').addEventListener('click', event => {
  // The address says what is shown.
  event.preventDefault()
  at('find').focus()
})
document.addEventListener('keydown', event => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea, select')) return
  event.preventDefault()
  at('find').focus()
})
fill()
login.enter()
