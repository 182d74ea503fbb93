/** Rows of the ledger of one organization, a page at a time. One opens in view, with what the gateway still knows of it. */
import { attribute, h, Rows, table } from './dom.mjs'
import { count, moment, ms, usd } from './format.mjs'
import { outcomeBadge } from './outcomes.mjs'
import { remembered, requestView } from './request-view.mjs'
import { nanoOf } from './usage-sums.mjs'

const COLUMNS = [
  ['time', ''],
  ['outcome', ''],
  ['key', 'wide'],
  ['model', ''],
  ['in', 'n wide'],
  ['out', 'n wide'],
  ['cost', 'n'],
  ['duration', 'n wide'],
  ['request id', 'wide'],
]

export class PastRequests {
  #table
  #rows
  #shown = []
  /** The row that is open, and what is known of it: { row, known }. */
  #open = null

  constructor(parent) {
    const { node, body } = table('Table of past requests', COLUMNS)
    node.classList.add('tall', 'whole')
    this.#table = node
    this.#rows = new Rows(
      body,
      ({ request_id, detail }) => `${request_id} ${detail ? 'detail' : ''}`,
      item => (item.detail ? detailRow() : this.#row(item)),
    )
    parent.append(node)
  }

  /** All rows that have come; what was open is closed when its row is not among them. */
  show(rows) {
    this.#shown = rows
    this.#table.hidden = rows.length === 0
    if (this.#open && !rows.includes(this.#open.row)) this.#open = null
    this.#draw()
  }

  /** Puts the focus on a row. */
  focus(index) {
    this.#table.querySelectorAll('.open')[index]?.focus()
  }

  #draw() {
    const open = this.#open
    this.#rows.show(this.#shown.flatMap(row => (open?.row === row ? [row, { ...open, ...row, detail: true }] : [row])))
  }

  async #choose(row) {
    const opened = this.#open?.row === row ? null : { row, known: null }
    this.#open = opened
    this.#draw()
    if (!opened) return
    this.#intoView()
    opened.known = await remembered(row.request_id)
    if (this.#open !== opened) return
    this.#draw()
    this.#intoView()
  }

  #intoView() {
    const row = this.#table.querySelector('tr.chosen')
    row?.nextElementSibling?.scrollIntoView({ block: 'nearest' })
    row?.scrollIntoView({ block: 'nearest' })
  }

  #row(row) {
    // A line may break between them, and nowhere else.
    const [day, clock] = moment(row.time)
      .split(' ')
      .map(part => h('span', { class: 'value' }, part))
    const open = h('button', { type: 'button', class: 'open', 'aria-expanded': 'false' }, day, ' ', clock)
    const node = h(
      'tr',
      // The button's click comes here, too.
      { onclick: () => this.#choose(row) },
      h('td', {}, open),
      h(
        'td',
        {},
        outcomeBadge(row.outcome),
        row.code ? h('small', { class: 'line' }, row.code.replaceAll('_', ' ')) : null,
      ),
      h('td', { class: 'wide' }, h('code', {}, row.key_id)),
      h('td', {}, row.model || '–', row.provider ? h('small', { class: 'line' }, row.provider) : null),
      h('td', { class: 'n wide' }, count(row.input)),
      h('td', { class: 'n wide' }, count(row.output)),
      h('td', { class: 'n' }, usd(nanoOf(row.cost_usd))),
      h('td', { class: 'n wide' }, ms(row.duration_ms)),
      h('td', { class: 'wide' }, h('code', {}, row.request_id)),
    )
    return {
      node,
      update: now => {
        const chosen = this.#open?.row === now
        node.classList.toggle('chosen', chosen)
        attribute(open, 'aria-expanded', String(chosen))
      },
    }
  }
}

/** Below an open row: its bill at once, and the cause when the gateway has said whether it still knows it. */
function detailRow() {
  const cell = h('td', { colspan: String(COLUMNS.length) })
  let known
  return {
    node: h('tr', { class: 'detail' }, cell),
    update(item) {
      if (known === item.known) return
      known = item.known
      const { traced, words } = known ?? { traced: null, words: '' }
      const id = item.request_id
      cell.replaceChildren(requestView({ id, traced, row: item.row, words: words ? [words] : [] }))
    },
  }
}

/** Members of a row in a file, behind its time. */
const MEMBERS = [
  ...['request_id', 'organization', 'key_id', 'surface', 'model', 'provider', 'provider_model', 'outcome', 'code'],
  ...['input', 'cached', 'cache_write', 'output', 'reasoning', 'cost_usd', 'provider_cost_usd'],
  ...['duration_ms', 'ttfb_ms'],
]

/** Heads and lines of a CSV file of rows. */
export function linesOfRows(rows) {
  return [
    ['time', ...MEMBERS],
    rows.map(row => [new Date(row.time).toISOString(), ...MEMBERS.map(name => row[name] ?? '')]),
  ]
}
