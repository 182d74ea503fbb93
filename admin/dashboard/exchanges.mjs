/**
 * The last hundred exchanges, and the last hundred that went wrong. The list does not move while someone points at it
 * or walks through it with the keyboard.
 */
import { attribute, h, Rows, table, text } from './dom.mjs'
import { ask } from './feed.mjs'
import { clock, count, ms, usd } from './format.mjs'
import { kindOf } from './outcomes.mjs'
import { panel } from './timeline.mjs'
import { isRequestId, usageOf } from './usage-state.mjs'

const KEPT = 100
const WRONG = new Set(['refused', 'upstream_error', 'gateway_error'])

export class Exchanges {
  #all = []
  #wrong = []
  #rows
  #body
  #filter
  #wrongOnly
  #hold
  #count
  #note
  #matching = []
  /** One that was asked for by its id, and that is in neither list. */
  #looked = []
  /** What is known of the open row; null while none is open. */
  #chosen = null
  #pointed = false
  /** The file of the configuration that serves. */
  file = ''

  constructor({ table: parent, filter, wrongOnly, hold, count: counted, note }) {
    const { node, body } = table('Table of exchanges', [
      ['time', ''],
      ['outcome', ''],
      ['route', 'wide'],
      ['model', ''],
      ['organization', 'wide'],
      ['in', 'n wide'],
      ['out', 'n wide'],
      ['cost', 'n wide'],
      ['first byte', 'n wide'],
      ['duration', 'n'],
    ])
    node.classList.add('tall')
    parent.append(node)
    this.#body = body
    this.#filter = filter
    this.#wrongOnly = wrongOnly
    this.#hold = hold
    this.#count = counted
    this.#note = note
    this.#rows = new Rows(
      body,
      ({ seq, id, detail }) => `${seq} ${id} ${detail ? 'detail' : ''}`,
      exchange => (exchange.detail ? this.#detail(exchange) : this.#row(exchange)),
    )
    filter.addEventListener('input', () => {
      const id = filter.value.trim()
      if (isRequestId(id) && !this.#known(id)) void this.#look(id).then(() => this.draw(true))
      else this.draw(true)
    })
    wrongOnly.addEventListener('change', () => this.draw(true))
    hold.addEventListener('click', () => {
      attribute(hold, 'aria-pressed', hold.getAttribute('aria-pressed') !== 'true')
      this.draw()
    })
    body.addEventListener('pointerenter', () => (this.#pointed = true))
    body.addEventListener('pointerleave', () => {
      this.#pointed = false
      this.draw()
    })
    body.addEventListener('keydown', event => this.#walk(event))
    document.addEventListener('keydown', event => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea')) return
      event.preventDefault()
      filter.focus()
    })
    filter.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        filter.value = ''
        this.draw(true)
      }
      if (event.key === 'ArrowDown') {
        event.preventDefault()
        body.querySelector('.open')?.focus()
      }
    })
  }

  add({ recent }) {
    for (const exchange of recent) {
      const list = WRONG.has(exchange.outcome) ? this.#wrong : this.#all
      // After a lost connection the feed begins again with everything that is kept. A restarted gateway counts from 1.
      if (list.length > 0 && exchange.seq <= list.at(-1).seq) {
        if (list.some(known => known.id === exchange.id)) continue
        if (exchange.at >= list.at(-1).at) this.#forget()
      }
      list.push(exchange)
      if (list.length > KEPT) list.splice(list === this.#wrong ? oldestOfMost(list) : 0, 1)
    }
  }

  #forget() {
    this.#all.length = 0
    this.#wrong.length = 0
  }

  get #held() {
    return (
      this.#chosen !== null ||
      this.#pointed ||
      this.#hold.getAttribute('aria-pressed') === 'true' ||
      this.#body.contains(document.activeElement)
    )
  }

  /** @param asked the user has changed the filter: draw even while the list is held still */
  draw(asked = false) {
    const held = this.#held
    const known = this.#all.length + this.#wrong.length
    if (!held || asked) {
      const words = this.#filter.value.trim().toLowerCase().split(/\s+/)
      const filtered = this.#wrongOnly.checked || words[0] !== ''
      this.#matching = (this.#wrongOnly.checked ? this.#wrong : [...this.#all, ...this.#wrong, ...this.#looked])
        .filter(exchange => words.every(word => hay(exchange).includes(word)))
        .sort((a, b) => b.seq - a.seq)
        .slice(0, KEPT)
      const found = this.#matching.length
      if (this.#chosen && !this.#matching.includes(this.#chosen)) this.#chosen = null
      this.#show()
      const first = this.#body.querySelector('.open')
      for (const button of this.#body.querySelectorAll('.open[tabindex="0"]')) button.tabIndex = -1
      if (first) first.tabIndex = 0
      text(this.#count, known === 0 ? 'none yet' : filtered ? `${found} match` : `${found}`)
      if (asked) text(this.#note, '')
    }
    attribute(this.#count, 'class', held ? 'muted held' : 'muted')
  }

  /** Shows the list with what is known of the open row below it. */
  #show() {
    this.#rows.show(this.#matching.flatMap(one => (one === this.#chosen ? [one, { ...one, detail: true }] : [one])))
  }

  /** Shows one exchange by its request id: one of the list, or what the gateway still has of it. */
  async open(id) {
    this.#wrongOnly.checked = false
    this.#filter.value = id
    const found = this.#known(id) ?? (await this.#look(id))
    this.#chosen = null
    this.draw(true)
    this.#note.replaceChildren(...(found ? [] : forgotten(id)))
    if (found) this.#choose(found)
    this.#filter.scrollIntoView({ block: 'nearest' })
    this.#body.querySelector('.open')?.focus()
  }

  #known(id) {
    return [...this.#all, ...this.#wrong].find(one => one.id === id)
  }

  /** Asks the gateway for one that is in neither list. */
  async #look(id) {
    const answer = await ask(`/trace?id=${encodeURIComponent(id)}`).catch(() => null)
    const traced = answer?.ok ? await answer.json() : undefined
    // The feed may have brought it meanwhile.
    const found = this.#known(id)
    this.#looked = traced && !found ? [{ seq: 0, ...traced }] : []
    return found ?? this.#looked[0]
  }

  #detail(exchange) {
    const wide = h('td', { id: 'timeline', colspan: '10' }, panel(exchange, this.file))
    return { node: h('tr', { class: 'detail' }, wide), update() {} }
  }

  #row(exchange) {
    const { outcome, code, status } = exchange
    const button = h(
      'button',
      {
        type: 'button',
        class: 'open',
        tabindex: '-1',
        'aria-expanded': 'false',
        'aria-controls': 'timeline',
        onclick: () => this.#choose(exchange),
      },
      clock(exchange.at),
    )
    const words = code === '' ? outcome.replace('_', ' ') : code.replaceAll('_', ' ')
    const node = h(
      'tr',
      { class: exchange.timeline ? 'timed' : null, onclick: event => event.target.closest('button') || button.click() },
      h('td', {}, button),
      h('td', {}, h('span', { class: `badge ${kindOf(outcome)}` }, status === 0 ? '—' : String(status)), ' ', words),
      h('td', { class: 'wide' }, h('code', {}, exchange.route || 'no route')),
      h(
        'td',
        {},
        exchange.model || exchange.unknownModel || '–',
        exchange.backend ? h('small', { class: 'line' }, exchange.backend) : null,
      ),
      h(
        'td',
        { class: 'wide' },
        exchange.organization || '–',
        exchange.key ? h('small', { class: 'line' }, exchange.key) : null,
      ),
      h('td', { class: 'n wide' }, !exchange.input ? '–' : count(exchange.input)),
      h('td', { class: 'n wide' }, !exchange.output ? '–' : count(exchange.output)),
      h('td', { class: 'n wide' }, !exchange.cost ? '–' : usd(exchange.cost)),
      h('td', { class: 'n wide' }, ms(exchange.ttfbMs)),
      h('td', { class: 'n' }, ms(exchange.durationMs)),
    )
    return {
      node,
      update: now => {
        const chosen = this.#chosen === now
        node.classList.toggle('chosen', chosen)
        attribute(button, 'aria-expanded', String(chosen))
      },
    }
  }

  /** Opens a row, or closes it when it is open, and brings what is known of it into view. */
  #choose(exchange) {
    this.#chosen = this.#chosen === exchange ? null : exchange
    this.#show()
    if (!this.#chosen) return
    const row = this.#body.querySelector('tr.chosen')
    // The row itself comes last: where both are higher than the screen, the cause stands right below it.
    row.nextElementSibling.scrollIntoView({ block: 'nearest' })
    row.scrollIntoView({ block: 'nearest' })
  }

  /** The arrow keys go from row to row; Escape closes the timeline. */
  #walk(event) {
    const buttons = [...this.#body.querySelectorAll('.open')]
    const at = buttons.indexOf(document.activeElement)
    const to = at < 0 ? undefined : { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key]
    if (to !== undefined && buttons[to]) {
      event.preventDefault()
      buttons[at].tabIndex = -1
      buttons[to].tabIndex = 0
      buttons[to].focus()
    } else if (event.key === 'ArrowUp' && at === 0) this.#filter.focus()
    else if (event.key === 'Escape' && this.#chosen !== null) {
      this.#body.querySelector('tr.chosen .open')?.focus()
      this.#choose(this.#chosen)
    }
  }
}

/** What is said of a request that the memory does not have, and where else to look. */
function forgotten(id) {
  const page = h('a', { href: usageOf({ request: id }) }, 'The usage page')
  return [
    `The gateway has ${id} in memory no more. `,
    page,
    ` asks the ledger, and npx sluice trace ${id} the log, too.`,
  ]
}

/** The place of the oldest row of whoever has most of them, as the gateway keeps them (admin/recent.ts). */
function oldestOfMost(list) {
  const owner = ({ organization, code }) => organization || code
  const counts = new Map()
  for (const one of list) counts.set(owner(one), (counts.get(owner(one)) ?? 0) + 1)
  const most = Math.max(...counts.values())
  return list.findIndex(one => counts.get(owner(one)) === most)
}

function hay(exchange) {
  const { id, route, organization, key, status, outcome, code, timeline } = exchange
  const model = exchange.model || exchange.unknownModel
  const others = [...exchange.failed, ...exchange.passedOver].map(({ backend }) => backend)
  const backends = [exchange.backend, ...others].join(' ')
  const timed = timeline ? 'timed' : ''
  return `${id} ${route} ${model} ${backends} ${organization} ${key} ${status} ${outcome} ${code} ${timed}`.toLowerCase()
}
