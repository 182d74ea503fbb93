/** The state of the gateway itself: the line at the top, what needs attention, and the configuration that serves. */
import { attribute, h, text } from './dom.mjs'
import { bytes, moment, span } from './format.mjs'

export class State {
  #facts
  #alerts
  #configuration
  #shown = ''
  #shownConfig = ''
  #age = null

  constructor({ facts, alerts, configuration }) {
    this.#facts = facts
    this.#alerts = alerts
    this.#configuration = configuration
  }

  show({ at, gateway, config, live, ready, backends }) {
    const workers = gateway.workers === 1 ? '' : ` · ${gateway.workers} workers`
    text(
      this.#facts,
      `${gateway.address} · ${gateway.version} · ${gateway.listener}, ${gateway.store} · up ${span(at - gateway.startedAt)} · ${bytes(live.rss)}${workers}`,
    )
    attribute(this.#facts, 'title', `Node ${gateway.node}, process ${gateway.pid}`)
    this.#showAlerts({ config, ready, backends })
    this.#showConfig(at, config)
  }

  #showAlerts({ config, ready, backends }) {
    const open = backends.filter(backend => backend.breaker === 'open').map(backend => backend.id)
    const alerts = []
    if (!ready.ok) alerts.push(['bad', 'Not ready', ready.reason])
    if (config.refused) {
      const { errors } = config.refused
      const more = errors.length > 1 ? `, and ${errors.length - 1} more` : ''
      alerts.push([
        'bad',
        'The last reload was refused',
        `${place(errors[0])} ${errors[0].message}${more}. The former configuration serves.`,
      ])
    }
    if (open.length > 0)
      alerts.push([
        'warn',
        'Left out',
        `${open.join(', ')}: ${open.length === 1 ? 'its breaker is' : 'their breakers are'} open`,
      ])
    if (config.pending.length > 0) alerts.push(['warn', 'Needs a restart', `${config.pending.join(', ')} changed`])
    const shown = JSON.stringify(alerts)
    if (shown === this.#shown) return
    this.#shown = shown
    this.#alerts.replaceChildren(
      ...alerts.map(([kind, title, words]) => h('p', { class: `alert ${kind}` }, h('strong', {}, title), ' ', words)),
    )
  }

  #showConfig(at, config) {
    const shown = JSON.stringify(config)
    if (shown !== this.#shownConfig) {
      this.#shownConfig = shown
      this.#age = h('span', { class: 'muted' })
      const { refused, warnings } = config
      this.#configuration.replaceChildren(
        h(
          'dl',
          {},
          ...pair('file', h('code', {}, config.file)),
          ...pair('loaded', h('span', {}, `${moment(config.loadedAt)} `, this.#age)),
          ...pair('generation', String(config.generation)),
          ...pair(
            'last reload',
            refused
              ? h('span', { class: 'bad' }, `refused at ${moment(refused.at)}`)
              : config.reloaded
                ? 'applied'
                : 'none since the start',
          ),
        ),
        ...list('Why it was refused', refused?.errors ?? [], 'bad'),
        ...list('Warnings', warnings, 'warn'),
      )
    }
    text(this.#age, `${span(at - config.loadedAt)} ago`)
  }
}

function pair(name, value) {
  return [h('dt', {}, name), h('dd', {}, value)]
}

function list(title, faults, kind) {
  if (faults.length === 0) return []
  return [
    h('h3', {}, title),
    h(
      'ul',
      { class: `faults ${kind}` },
      ...faults.map(fault => h('li', {}, h('code', {}, place(fault)), ' ', fault.message)),
    ),
  ]
}

/** `gateway.yaml:14:5`. */
function place({ file, line, column }) {
  return `${file.slice(file.lastIndexOf('/') + 1)}:${line}:${column}`
}
