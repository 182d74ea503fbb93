/**
 * The last hundred exchanges, and the last hundred that went wrong. The list does not move while someone points at it
 * or walks through it with the keyboard.
 */
import { attribute, h, Rows, table, text } from './dom.mjs'
import { clock, count, ms, usd } from './format.mjs'

const KEPT = 100
const WRONG = new Set(['refused', 'upstream_error', 'gateway_error'])
const KINDS = { completed: 'good', incomplete: 'good', replayed: 'good', refused: 'warn', client_gone: 'idle' }

export class Exchanges {
  #all = []
  #wrong = []
  #rows
  #body
  #filter
  #wrongOnly
  #hold
  #count
  #timeline
  #chosen = null
  #pointed = false

  constructor({ table: parent, filter, wrongOnly, hold, count: counted, timeline }) {
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
    this.#timeline = timeline
    this.#rows = new Rows(
      body,
      exchange => exchange.seq,
      exchange => this.#row(exchange),
    )
    filter.addEventListener('input', () => this.draw(true))
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
        body.querySelector('button')?.focus()
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
      if (list.length > KEPT) list.shift()
    }
  }

  #forget() {
    this.#all.length = 0
    this.#wrong.length = 0
  }

  get #held() {
    return (
      this.#pointed || this.#hold.getAttribute('aria-pressed') === 'true' || this.#body.contains(document.activeElement)
    )
  }

  /** @param asked the user has changed the filter: draw even while the list is held still */
  draw(asked = false) {
    const held = this.#held
    const known = this.#all.length + this.#wrong.length
    if (!held || asked) {
      const words = this.#filter.value.trim().toLowerCase().split(/\s+/)
      const filtered = this.#wrongOnly.checked || words[0] !== ''
      const matching = (this.#wrongOnly.checked ? this.#wrong : [...this.#all, ...this.#wrong])
        .filter(exchange => words.every(word => hay(exchange).includes(word)))
        .sort((a, b) => b.seq - a.seq)
        .slice(0, KEPT)
      this.#rows.show(matching)
      const first = this.#body.querySelector('button')
      for (const button of this.#body.querySelectorAll('button[tabindex="0"]')) button.tabIndex = -1
      if (first) first.tabIndex = 0
      text(this.#count, known === 0 ? 'none yet' : filtered ? `${matching.length} match` : `${matching.length}`)
    }
    attribute(this.#count, 'class', held ? 'muted held' : 'muted')
  }

  #row(exchange) {
    const { outcome, code, status } = exchange
    const button = h(
      'button',
      {
        type: 'button',
        class: 'open',
        tabindex: '-1',
        'aria-expanded': String(this.#chosen === exchange.seq),
        'aria-controls': 'timeline',
        onclick: () => this.#choose(exchange, button),
      },
      clock(exchange.at),
    )
    const words = code === '' ? outcome.replace('_', ' ') : code.replaceAll('_', ' ')
    const node = h(
      'tr',
      { class: exchange.timeline ? 'timed' : null, onclick: event => event.target.closest('button') || button.click() },
      h('td', {}, button),
      h(
        'td',
        {},
        h('span', { class: `badge ${KINDS[outcome] ?? 'bad'}` }, status === 0 ? '—' : String(status)),
        ' ',
        words,
      ),
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
      h('td', { class: 'n wide' }, exchange.input === 0 ? '–' : count(exchange.input)),
      h('td', { class: 'n wide' }, exchange.output === 0 ? '–' : count(exchange.output)),
      h('td', { class: 'n wide' }, exchange.cost === 0 ? '–' : usd(exchange.cost)),
      h('td', { class: 'n wide' }, ms(exchange.ttfbMs)),
      h('td', { class: 'n' }, ms(exchange.durationMs)),
    )
    return {
      node,
      update: now => {
        const chosen = this.#chosen === now.seq
        node.classList.toggle('chosen', chosen)
        attribute(button, 'aria-expanded', chosen)
      },
    }
  }

  #choose(exchange, button) {
    const before = this.#body.querySelector('tr.chosen')
    before?.classList.remove('chosen')
    before?.querySelector('button').setAttribute('aria-expanded', 'false')
    const again = this.#chosen === exchange.seq
    this.#chosen = again ? null : exchange.seq
    this.#timeline.show(again ? null : exchange)
    if (again) return
    button.closest('tr').classList.add('chosen')
    button.setAttribute('aria-expanded', 'true')
  }

  /** The arrow keys go from row to row; Escape closes the timeline. */
  #walk(event) {
    const buttons = [...this.#body.querySelectorAll('button')]
    const at = buttons.indexOf(document.activeElement)
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key]
    if (to !== undefined && buttons[to]) {
      event.preventDefault()
      buttons[at].tabIndex = -1
      buttons[to].tabIndex = 0
      buttons[to].focus()
    } else if (event.key === 'ArrowUp' && at === 0) this.#filter.focus()
    else if (event.key === 'Escape' && this.#chosen !== null) {
      const button = this.#body.querySelector('tr.chosen button')
      this.#chosen = null
      this.#timeline.show(null)
      button?.closest('tr').classList.remove('chosen')
      button?.setAttribute('aria-expanded', 'false')
    }
  }
}

function hay(exchange) {
  const { id, route, organization, key, status, outcome, code, timeline } = exchange
  const model = exchange.model || exchange.unknownModel
  const others = [...exchange.failed, ...exchange.passedOver].map(({ backend }) => backend)
  const backends = [exchange.backend, ...others].join(' ')
  const timed = timeline ? 'timed' : ''
  return `${id} ${route} ${model} ${backends} ${organization} ${key} ${status} ${outcome} ${code} ${timed}`.toLowerCase()
}
