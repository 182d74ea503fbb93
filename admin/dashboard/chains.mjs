/**
 * Each pipeline as it runs. Requests go down the blue rail to the terminal. Responses come up the green rail through
 * the plugins that the request passed, then out through those below the terminal. A dot marks a plugin with a hook
 * there.
 */
import { attribute, fill, h, Rows, svg, text } from './dom.mjs'
import { micros, percent, rate } from './format.mjs'

/** Height of a row in pixels, the same as in style.css. */
const ROW = 26
const DOWN = 10
const UP = 28
const OUT = 46
/** A chain is folded when no request has come for so long, milliseconds. */
const IDLE_MS = 60_000

export class Chains {
  #rows

  constructor(parent) {
    this.#rows = new Rows(parent, shape, chain => card(chain))
  }

  show({ at, chains }) {
    // The longest chain first: people mostly look for that one.
    this.#rows.show([...chains].sort((a, b) => b.links.length - a.links.length).map(chain => ({ ...chain, at })))
  }
}

/**
 * The key of a chain's card. A card is kept while everything in its key is the same; a reload that changes the chain
 * makes a new card.
 */
function shape(chain) {
  return JSON.stringify([
    chain.name,
    chain.terminal,
    chain.links.map(link => [link.id, link.down, link.back]),
    chain.routes.map(route => route.name),
  ])
}

function card(chain) {
  const routes = chain.routes.map(route => ({ name: route.name, value: h('b', {}, '') }))
  const links = chain.links.map((link, i) => row(link, i === chain.terminal))
  const rails = drawing(chain)
  const busy = h('small')
  const paths = h('small', { class: 'paths' }, chain.routes.map(route => route.name).join(', '))
  let chosen = false
  let busyAt = Number.NEGATIVE_INFINITY
  const node = h(
    'details',
    { class: 'card chain' },
    // What somebody has opened or folded stays so.
    h('summary', { onclick: () => (chosen = true) }, h('h3', {}, chain.name), ' ', busy, ' ', paths),
    h(
      'ul',
      { class: 'routes' },
      ...routes.map(({ name, value }) => h('li', {}, h('code', {}, name), ' ', value)),
      ...(routes.length === 0 ? [h('li', { class: 'muted' }, 'no route')] : []),
    ),
    h(
      'div',
      { class: 'track' },
      rails,
      h(
        'table',
        {},
        h('caption', { class: 'hidden' }, `Plugins of ${chain.name} in the order of the configuration`),
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            ...[
              ['request', ''],
              ['time', ''],
              ['mean', 'n wide'],
              ['calls/s', 'n wide'],
              ['refused/s', 'n'],
              ['errors/s', 'n'],
            ].map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)),
          ),
        ),
        h('tbody', {}, ...links.map(link => link.node)),
        h('tfoot', {}, h('tr', {}, h('td', { colspan: '6' }, chain.terminal < chain.links.length - 1 ? 'reply' : ''))),
      ),
    ),
  )
  return {
    node,
    update(now) {
      const requests = now.routes.reduce((sum, route) => sum + route.requests, 0)
      if (requests > 0 || now.links.some(link => link.calls > 0)) busyAt = now.at
      text(busy, requests > 0 ? `${rate(requests)}/s` : 'idle')
      if (!chosen && node.open !== now.at - busyAt < IDLE_MS) node.open = !node.open
      for (const [i, route] of now.routes.entries()) text(routes[i].value, `${rate(route.requests)}/s`)
      for (const [i, link] of now.links.entries()) links[i].update(link)
      attribute(rails, 'class', now.links.some(link => link.calls > 0) ? 'rails flowing' : 'rails')
    },
  }
}

function row(link, isTerminal) {
  const bar = h('span', { class: 'fill' })
  const share = h('span', { class: 'figure' })
  const mean = h('td', { class: 'n wide' })
  const calls = h('td', { class: 'n wide' })
  const refusals = h('td', { class: 'n' })
  const errors = h('td', { class: 'n' })
  const name = h('th', { scope: 'row' }, link.id)
  if (link.plugin !== link.id) name.append(' ', h('small', {}, link.plugin))
  if (isTerminal) name.append(' ', h('small', { class: 'terminal' }, 'terminal'))
  const node = h(
    'tr',
    { class: isTerminal ? 'is-terminal' : null },
    name,
    h('td', {}, h('span', { class: 'share' }, h('span', { class: 'bar' }, bar), share)),
    mean,
    calls,
    refusals,
    errors,
  )
  return {
    node,
    update(now) {
      fill(bar, now.share)
      text(share, percent(now.share))
      text(mean, now.micros === 0 ? '–' : micros(now.micros))
      text(calls, now.calls === 0 && !now.down ? '–' : rate(now.calls))
      figure(refusals, now.refusals, now.refusalsTotal, 'refused', 'warn')
      figure(errors, now.errors, now.errorsTotal, 'errors', 'bad')
    },
  }
}

function figure(node, perSecond, total, word, kind) {
  text(node, rate(perSecond))
  attribute(node, 'class', perSecond > 0 ? `n ${kind}` : 'n')
  attribute(node, 'title', `${total} ${word} since the configuration was loaded`)
}

function drawing({ links, terminal }) {
  // The head takes one row above the first plugin and the foot one row below the last: this is the middle of plugin i's
  // row.
  const y = i => ROW * (i + 1) + ROW / 2
  const below = links.length - 1 > terminal
  const height = ROW * (links.length + 2)
  const node = svg('svg', { class: 'rails', width: OUT + 10, height, 'aria-hidden': 'true' })
  const end = y(terminal)
  const line = (kind, d) => node.append(svg('path', { class: `rail ${kind}`, d }))
  line('down', `M${DOWN} 6 V${end}`)
  line('down', `M${DOWN - 4} 6 L${DOWN} 12 L${DOWN + 4} 6`)
  if (below) {
    line('up', `M${UP} ${end} V20 Q${UP} 10 ${UP + 9} 10 H${OUT - 9} Q${OUT} 10 ${OUT} 20`)
    line('out', `M${OUT} 20 V${height - 12}`)
    line('out', `M${OUT - 4} ${height - 14} L${OUT} ${height - 8} L${OUT + 4} ${height - 14}`)
  } else {
    line('up', `M${UP} ${end} V8`)
    line('up', `M${UP - 4} 14 L${UP} 8 L${UP + 4} 14`)
  }
  node.append(svg('rect', { class: 'station', x: DOWN - 6, y: end - 7, width: UP - DOWN + 12, height: 14, rx: 7 }))
  links.forEach((link, i) => {
    if (i === terminal) return
    const dot = (kind, x) => node.append(svg('circle', { class: `dot ${kind}`, cx: x, cy: y(i), r: 4 }))
    if (i < terminal && link.down) dot('down', DOWN)
    if (i < terminal && link.back) dot('up', UP)
    if (i > terminal) dot('out', OUT)
  })
  return node
}
