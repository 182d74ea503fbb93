/** The dashboard: reads one feed and shows it in seven views. Draws once a second, and not while the page is hidden. */
import { Accounts } from './accounts.mjs'
import { Backends } from './backends.mjs'
import { Chains } from './chains.mjs'
import { Charts, SERIES, valuesOf } from './charts.mjs'
import { attribute, text } from './dom.mjs'
import { Exchanges } from './exchanges.mjs'
import { follow, keepToken, past } from './feed.mjs'
import { zoneButton } from './format.mjs'
import { History } from './history.mjs'
import { fillLogin } from './login.mjs'
import { Overview } from './overview.mjs'
import { State } from './state.mjs'
import { themeButton } from './theme.mjs'

const at = id => document.getElementById(id)

// ---- views ----------------------------------------------------------------------------------------------------------

const main = at('main')
const history = new History(SERIES)
const charts = new Charts(at('charts'), history)
const chains = new Chains(at('chains'))
const backends = new Backends(at('backends'))
const accounts = new Accounts(at('accounts'), at('accounts-find'))
const overview = new Overview(at('now'), at('wrong'), history)
const exchanges = new Exchanges({
  table: at('exchanges-table'),
  filter: at('exchanges-filter'),
  wrongOnly: at('exchanges-wrong'),
  hold: at('exchanges-hold'),
  count: at('exchanges-count'),
  note: at('exchanges-note'),
})
const state = new State({
  facts: at('facts'),
  alerts: at('alerts'),
  announced: at('announced'),
  configuration: at('configuration'),
})

let latest = null
let waiting = false

function draw() {
  waiting = false
  if (!latest) return
  const first = main.hidden
  if (first) {
    main.hidden = false
    charts.build()
  }
  state.show(latest)
  overview.show(latest)
  exchanges.file = latest.config.file
  charts.draw()
  chains.show(latest)
  backends.show(latest)
  accounts.show(latest)
  exchanges.draw()
  if (first) openAddressed()
}

/** Opens the exchange whose request id stands in the address: `#/req_…`. */
function openAddressed() {
  if (location.hash.startsWith('#/')) exchanges.open(decodeURIComponent(location.hash.slice(2)))
}

/** Draws once for any number of snapshots that have come: after the computer has slept there are many. */
function drawSoon() {
  if (waiting || document.hidden) return
  waiting = true
  requestAnimationFrame(draw)
}

document.addEventListener('visibilitychange', drawSoon)
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.build())
zoneButton(at('zone'))
addEventListener('hashchange', openAddressed)
themeButton(at('theme'), () => charts.build())
at('window').addEventListener('change', event => {
  charts.seconds = Number(event.target.value)
  charts.draw()
})

// ---- the feed -------------------------------------------------------------------------------------------------------

const STATES = {
  live: ['good', 'live'],
  lost: ['bad', 'connection lost, trying again'],
  full: ['warn', 'too many dashboards are open'],
  locked: ['idle', 'locked'],
}
let attempts = 0

/**
 * Loads the charts' points of the time before this page was opened, or while it had lost the gateway. If that fails,
 * the charts show only what comes from now on.
 */
async function loadPast() {
  const { times, rows } = await past(history.last).catch(() => ({ times: [], rows: [] }))
  history.fill(times, rows)
  drawSoon()
}

fillLogin('This dashboard needs its token')
follow({
  snapshot(snapshot) {
    latest = snapshot
    history.push(snapshot.live.at / 1000, valuesOf(snapshot))
    exchanges.add(snapshot)
    drawSoon()
  },
  state(name, go) {
    const [kind, words] = STATES[name]
    text(at('connection'), words)
    attribute(at('connection'), 'class', `badge ${kind}`)
    at('login').hidden = name !== 'locked'
    if (name === 'live') {
      attempts = 0
      loadPast()
    }
    if (name !== 'locked') return
    main.hidden = true
    text(at('login-fault'), attempts > 0 ? 'That is not the token.' : '')
    at('token').focus()
    at('login').onsubmit = event => {
      event.preventDefault()
      attempts++
      keepToken(at('token').value)
      at('token').value = ''
      go()
    }
  },
})
