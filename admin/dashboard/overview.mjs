/** What one opens the page for: whether the gateway is well, the figures of the day, what goes wrong and whom it hits. */
import { attribute, h, Rows, table, text } from './dom.mjs'
import { clock, count, hits, ms, percent, shortClock, span, usd } from './format.mjs'

/** A fault within this time goes on, milliseconds; older ones are shown until they are over (admin/incidents.ts). */
const NOW_MS = 60_000
/** Seconds of which the share of failures is told: an incident is over when so long nothing has failed. */
const LATELY = 300
/** So many incidents are shown. */
const SHOWN = 8
/** And so many organizations of each. */
const NAMED = 3

export class Overview {
  #badge = h('span', { class: 'badge' })
  #words = h('span')
  #about = h('small')
  #tiles
  #models = share('Model')
  #organizations = share('Organization', id => `/dashboard/accounts.html#/${encodeURIComponent(id)}`)
  #rows
  #table
  #none = h('p', { class: 'muted' })

  #history

  constructor(now, wrong, history) {
    this.#history = history
    const tile = name => {
      const [value, note, before] = [h('b'), h('small', { class: 'line' }), h('small', { class: 'line' })]
      return { value, note, before, nodes: h('div', {}, h('dt', {}, name), h('dd', {}, value, note, before)) }
    }
    this.#tiles = {
      requests: tile('Requests'),
      tokens: tile('Tokens'),
      revenue: tile('Revenue'),
      failed: tile('Failed'),
      ttfb: tile('First byte, p99'),
    }
    now.append(
      h('p', { class: 'verdict', role: 'status' }, this.#badge, ' ', this.#words),
      h('h3', {}, 'Today ', this.#about),
      h('dl', { class: 'tiles' }, ...Object.values(this.#tiles).map(({ nodes }) => nodes)),
      h('div', { class: 'shares' }, this.#models.node, this.#organizations.node),
    )
    const { node, body } = table('Table of what goes wrong', [
      ['what', ''],
      ['since', ''],
      ['requests', 'n'],
      ['whom', ''],
      ['last', 'wide'],
    ])
    this.#table = node
    this.#rows = new Rows(body, ({ code, backend }) => `${code} ${backend}`, incidentRow)
    wrong.append(node, this.#none)
  }

  show(snapshot) {
    const { at, incidents, today } = snapshot
    const [kind, word, words] = verdict(snapshot, this.#failedLately())
    text(this.#badge, word)
    attribute(this.#badge, 'class', `badge ${kind}`)
    text(this.#words, words)
    this.#day(today)
    this.#rows.show(incidents.slice(0, SHOWN).map(incident => ({ ...incident, at })))
    this.#table.hidden = incidents.length === 0
    const more = incidents.length - SHOWN
    text(
      this.#none,
      incidents.length === 0 ? 'Nothing in the last five minutes.' : more > 0 ? `And ${more} causes more.` : '',
    )
  }

  /** `164 of 233 requests failed in the last five minutes (70 %)`; '' when none did. */
  #failedLately() {
    const of = name => Math.round(this.#history.count(name, LATELY))
    const failed = of('failed')
    const all = failed + of('ok') + of('refused') + of('gone')
    if (failed === 0) return ''
    return `. ${count(failed)} of ${count(all)} requests failed in the last five minutes (${percent(failed / all)})`
  }

  #day({ since, ledger, before, countedSince, refused, ttfb99 }) {
    const { requests, tokens, revenue, failed, ttfb } = this.#tiles
    text(this.#about, `the UTC day, since ${shortClock(since)}, by the ledger`)
    // Of a day in which the gateway was started, it has the times of its own life only.
    const counted = countedSince > since ? ` since ${clock(countedSince)}` : ''
    const tell = ({ value, note }, figure, words) => {
      text(value, figure)
      text(note, words)
    }
    const wrong = `${count(refused)} refused${counted}`
    if (ledger) {
      tell(requests, count(ledger.requests), wrong)
      tell(tokens, count(ledger.input + ledger.output), `${count(ledger.input)} in, ${count(ledger.output)} out`)
      tell(revenue, usd(ledger.cost), 'what was billed')
      tell(failed, count(ledger.failed), `${percent(ledger.failed / Math.max(1, ledger.requests))} of those admitted`)
    } else {
      tell(requests, '–', wrong)
      for (const one of [tokens, revenue, failed]) tell(one, '–', 'the ledger is not read yet')
    }
    const former = before?.ledger.requests > 0 ? before.ledger : null
    const yesterday = figure => (former ? `yesterday ${figure(former)} until ${shortClock(before.until)}` : '')
    text(
      requests.before,
      yesterday(sum => count(sum.requests)),
    )
    text(
      tokens.before,
      yesterday(sum => count(sum.input + sum.output)),
    )
    text(
      revenue.before,
      yesterday(sum => usd(sum.cost)),
    )
    text(
      failed.before,
      yesterday(sum => percent(sum.failed / sum.requests)),
    )
    this.#models.show(ledger?.models ?? [])
    this.#organizations.show(ledger?.organizations ?? [])
    attribute(failed.value, 'class', ledger?.failed > 0 ? 'bad' : null)
    tell(ttfb, ms(ttfb99), `of this gateway${counted}`)
  }
}

/** Those that bring most of the day: { node, show(sums) }. @param linkOf where more is told of one */
function share(title, linkOf) {
  const head = [
    [title, ''],
    ['requests', 'n'],
    ['tokens', 'n wide'],
    ['revenue', 'n'],
    ['failed', 'n'],
  ]
  const body = h('tbody')
  const node = h(
    'table',
    {},
    h('thead', {}, h('tr', {}, ...head.map(([name, kind]) => h('th', { scope: 'col', class: kind }, name)))),
    body,
  )
  const rows = new Rows(
    body,
    ({ name }) => name,
    ({ name }) => {
      const cells = head.slice(1).map(([, kind]) => h('td', { class: kind }))
      const words = name || '–'
      const link = linkOf && name ? h('a', { href: linkOf(name) }, words) : words
      return {
        node: h('tr', {}, h('th', { scope: 'row' }, link), ...cells),
        update({ requests, input, output, cost, failed }) {
          const figures = [count(requests), count(input + output), usd(cost), percent(failed / requests)]
          for (const [i, figure] of figures.entries()) text(cells[i], figure)
          attribute(cells.at(-1), 'class', failed > 0 ? 'n bad' : 'n')
        },
      }
    },
  )
  return {
    node,
    show(sums) {
      node.hidden = sums.length === 0
      rows.show(sums)
    },
  }
}

/** Whether the gateway is well: [kind, word, sentence]. @param lately how many requests failed, in words */
function verdict({ at, ready, config, backends, incidents }, lately) {
  if (!ready.ok) return ['bad', 'Not ready', `since ${clock(ready.since)}: ${ready.reason}`]
  const faults = incidents.filter(({ fault }) => fault)
  const [worst] = faults.filter(({ last }) => at - last < NOW_MS)
  if (worst) {
    const others = faults.length > 1 ? `, and ${faults.length - 1} more` : ''
    return ['bad', 'Failing', `${causeWords(worst)} since ${clock(worst.since)}${others}${lately}`]
  }
  if (faults.length > 0)
    return [
      'warn',
      'Recovering',
      `nothing has failed since ${clock(Math.max(...faults.map(({ last }) => last)))}${lately}`,
    ]
  const out = backends.filter(({ breaker }) => breaker !== 'closed')
  if (out.length > 0) return ['warn', 'Degraded', `${out.length} of ${backends.length} backends are left out`]
  if (config.refused) return ['warn', 'Healthy', 'but the file as it is now would not load']
  return ['good', 'Healthy', 'no request has failed in the last five minutes']
}

const causeWords = ({ code, cause, backend }) =>
  `${code.replaceAll('_', ' ')}${backend && ` at ${backend}`}${cause && ` (${cause})`}`

function incidentRow(incident) {
  const badge = h('span', { class: 'badge' })
  const since = h('td')
  const counted = h('td', { class: 'n' })
  const whom = h('td')
  const last = h('td', { class: 'wide' })
  const link = h('a')
  // A phone has no room for the last column.
  const cause = h('a', {}, incident.code.replaceAll('_', ' '))
  const ago = h('small', { class: 'line' })
  const told = h('small', { class: 'line' })
  last.append(link, ago)
  let named = ''
  const node = h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      badge,
      ' ',
      cause,
      incident.backend ? h('small', { class: 'line' }, incident.backend) : null,
      told,
    ),
    since,
    counted,
    whom,
    last,
  )
  return {
    node,
    update(now) {
      text(badge, now.status || '—')
      attribute(badge, 'class', `badge ${now.fault ? 'bad' : 'warn'}`)
      text(since, clock(now.since))
      attribute(since, 'title', now.first < now.since ? `first seen at ${clock(now.first)}` : null)
      text(counted, count(now.count))
      text(told, now.cause)
      if (named !== hits(now, NAMED)) {
        named = hits(now, NAMED)
        whom.replaceChildren(...who(now))
      }
      text(link, now.lastId)
      for (const one of [link, cause]) attribute(one, 'href', `#/${encodeURIComponent(now.lastId)}`)
      text(ago, `${span(now.at - now.last)} ago`)
    },
  }
}

/** Whom it hits, each with a link to the account. */
function who({ organizations, affected }) {
  const shown = organizations.slice(0, NAMED)
  const named = shown.flatMap(([id, n], i) => [
    i > 0 ? ', ' : '',
    id ? h('a', { href: `/dashboard/accounts.html#/${encodeURIComponent(id)}` }, id) : 'no account',
    ` ${count(n)}`,
  ])
  return affected > shown.length ? [...named, ` and ${count(affected - shown.length)} more`] : named
}
