/** Backends and the providers they are reached through. */
import { attribute, fill, h, Rows, table, text } from './dom.mjs'
import { count, percent, rate } from './format.mjs'
import { reasonOf } from './state.mjs'

/** From this share of failures on a backend that still gets requests is not called healthy. */
const FAILING = 0.1

const HEALTH = {
  closed: ['good', 'healthy', 'the breaker is closed: requests are sent'],
  'half-open': ['warn', 'on trial', 'the breaker is half-open: one request decides'],
  open: [
    'bad',
    'left out',
    'the breaker is open: no requests are sent but one a second where there is no other backend',
  ],
}

export class Backends {
  #rows
  #providers
  #retries

  constructor(parent) {
    const backends = table('Table of backends', [
      ['backend', ''],
      ['breaker', ''],
      ['in flight', 'n'],
      ['attempts/s', 'n wide'],
      ['failures/s', 'n wide'],
      ['error rate', ''],
    ])
    this.#rows = new Rows(backends.body, backend => backend.id, backendRow)
    const providers = h('ul', { class: 'providers' })
    this.#providers = new Rows(providers, provider => provider.provider, providerRow)
    this.#retries = h('li', { class: 'muted' })
    parent.append(
      backends.node,
      h('div', { class: 'under' }, providers, h('ul', { class: 'providers' }, this.#retries)),
    )
  }

  show({ at, backends, providers, retries }) {
    this.#rows.show(backends.map(backend => ({ ...backend, at })))
    // After a change of a provider it has two pools until the old one is idle. The last one in the list is shown.
    const byName = new Map(providers.map(provider => [provider.provider, provider]))
    this.#providers.show([...byName.values()])
    text(this.#retries, `${count(retries)} retries since the start`)
  }
}

function backendRow(backend) {
  const badge = h('span', { class: 'badge' })
  const why = h('small', { class: 'line bad' })
  const figures = ['n', 'n wide', 'n wide'].map(kind => h('td', { class: kind }))
  const bar = h('span', { class: 'fill' })
  const errorRate = h('span', { class: 'figure' })
  const node = h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      backend.id,
      h('small', { class: 'line' }, `${backend.dialect} · ${backend.models.join(', ')}`),
      why,
    ),
    h('td', {}, badge),
    ...figures,
    h('td', {}, h('span', { class: 'share' }, h('span', { class: 'bar' }, bar), errorRate)),
  )
  return {
    node,
    update(now) {
      const [kind, word, title] =
        now.attemptsTotal === 0 && now.breaker === 'closed'
          ? ['idle', 'not used yet', '']
          : now.breaker === 'closed' && now.closedTo > 0
            ? ['warn', `left out for ${count(now.closedTo)}`, 'closed to organizations that met faults; open to others']
            : now.breaker === 'closed' && now.errorRate >= FAILING
              ? ['warn', 'failing', 'requests are still sent: the breaker opens when more of them fail']
              : HEALTH[now.breaker]
      text(badge, word)
      attribute(badge, 'class', `badge ${kind}`)
      attribute(badge, 'title', title)
      text(figures[0], count(now.inFlight))
      text(figures[1], rate(now.attempts))
      text(figures[2], rate(now.failures))
      attribute(figures[2], 'class', now.failures > 0 ? 'n wide bad' : 'n wide')
      fill(bar, now.errorRate)
      attribute(bar, 'class', now.errorRate >= FAILING ? 'fill bad' : 'fill warn')
      text(why, reasonOf(now.out, now.at))
      text(errorRate, percent(now.errorRate))
    },
  }
}

function providerRow() {
  const node = h('li')
  return {
    node,
    update(now) {
      const queue = now.queued > 0 ? `, ${count(now.queued)} queued` : ''
      const refused = now.refused > 0 ? `, ${count(now.refused)} turned away` : ''
      text(node, `${now.provider}: ${count(now.inFlight)} of ${count(now.capacity)} connections${queue}${refused}`)
      attribute(node, 'class', now.queued > 0 ? 'warn' : null)
    },
  }
}
