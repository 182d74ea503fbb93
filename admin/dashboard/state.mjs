/** The state of the gateway itself: the line at the top, what needs attention, and the configuration that serves. */
import { attribute, h, text } from './dom.mjs'
import { bytes, clock, count, hits, moment, ms, names, span } from './format.mjs'

/** So many backends that are left out have an alert each. */
const SHOWN = 5
/** From this share of requests without an answer on, a backend to which requests are sent has an alert. */
const FAILS = 0.1
/** An alert of what has ended stays for this long, milliseconds. */
const NOW_MS = 60_000
/** Load that was shed within this time is shed still, milliseconds. */
const SHEDS_MS = 10_000

export class State {
  #facts
  #alerts
  #announced
  #configuration
  #shown = ''
  #shownConfig = ''
  #age = null

  constructor({ facts, alerts, announced, configuration }) {
    this.#facts = facts
    this.#alerts = alerts
    this.#announced = announced
    this.#configuration = configuration
  }

  show(snapshot) {
    const { at, gateway, config, live } = snapshot
    const workers = gateway.workers === 1 ? '' : ` · ${gateway.workers} workers`
    text(
      this.#facts,
      `${gateway.address} · ${gateway.version} · ${gateway.listener}, ${gateway.store} · up ${span(at - gateway.startedAt)} · ${bytes(live.rss)}${workers}`,
    )
    attribute(this.#facts, 'title', `Node ${gateway.node}, process ${gateway.pid}`)
    this.#showAlerts(snapshot)
    this.#showConfig(at, config)
  }

  #showAlerts({ at, config, ready, backends, impacts, incidents, shedding }) {
    const alerts = []
    if (!ready.ok) alerts.push(['bad', 'Not ready', `since ${clock(ready.since)}: ${ready.reason}`])
    if (config.refused) {
      const { errors } = config.refused
      const more = errors.length > 1 ? `, and ${errors.length - 1} more` : ''
      alerts.push([
        'bad',
        'The last reload was refused',
        `at ${clock(config.refused.at)}: ${place(errors[0])} ${sentence(errors[0].message + more)} The former configuration serves.`,
      ])
    }
    if (shedding) alerts.push(shed(shedding, at))
    for (const full of incidents.filter(
      one => one.code === 'capacity_exceeded' && one.backend === '' && at - one.last < NOW_MS,
    ))
      alerts.push([
        'bad',
        'At capacity',
        `since ${clock(full.since)}, until exchanges end: as many run as platform.max_concurrent_requests allows. ${of(full.count, 'request')} refused, the last at ${clock(full.last)}: ${hits(full)}.`,
      ])
    const out = backends.filter(({ breaker, closedTo }) => breaker !== 'closed' || closedTo > 0)
    for (const backend of out.slice(0, SHOWN)) {
      const impact = impacts.find(one => one.backend === backend.id)
      const whom = backend.breaker !== 'closed' ? '' : ` for ${names(backend.closedToFirst, backend.closedTo)}`
      const words = [reasonOf(backend.out, at), harmOf(impact)].filter(Boolean).join(' ')
      alerts.push([impact?.wrong > 0 ? 'bad' : 'warn', `Left out${whom}: ${backend.id}`, words])
    }
    // A breaker opens for a second at first, and may be closed again before anybody has looked.
    for (const impact of impacts
      .filter(one => fails(one, at) && !out.some(({ id }) => id === one.backend))
      .slice(0, SHOWN))
      alerts.push([
        'bad',
        `Fails: ${impact.backend}`,
        [causeOf(incidents, impact), harmOf(impact)].filter(Boolean).join(' '),
      ])
    if (out.length > SHOWN) alerts.push(['warn', 'Left out', `and ${of(out.length - SHOWN, 'backend')} more`])
    if (config.pending.length > 0) alerts.push(['warn', 'Needs a restart', `${config.pending.join(', ')} changed`])
    const shown = JSON.stringify(alerts)
    if (shown === this.#shown) return
    this.#shown = shown
    // Figures change each second, and are not read out.
    text(this.#announced, alerts.map(([, title]) => title).join('. '))
    this.#alerts.replaceChildren(
      ...alerts.map(([kind, title, words]) =>
        h('p', { class: `alert ${kind}` }, h('strong', {}, title), ' ', ...linked(words)),
      ),
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

/** A question keeps its mark. */
const sentence = words => (/[.?!]$/.test(words) ? words : `${words}.`)

/** Request ids in it lead to their rows. */
const linked = words =>
  words.split(/(req_\w+)/).map((part, i) => (i % 2 === 1 ? h('a', { href: `#/${part}` }, part) : part))

const of = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`

/** `since 10:17:03, until 10:17:11, then one request tries it: upstream server error, met by req_…`. */
export function reasonOf(out, at) {
  if (out === null) return ''
  const until = out.until > at ? `until ${clock(out.until)}, then one request tries it` : 'the next request tries it'
  const met = out.why === 'pause' ? 'the provider asked for a pause with' : 'it failed with'
  const how = out.how ? ` (${out.how})` : ''
  return `since ${clock(out.since)}, ${until}: ${met} ${out.code.replaceAll('_', ' ')}${how} at ${out.requestId}.`
}

/** [kind, title, words]: `since 10:17:03, because the event loop is late by its own work, until …`. */
function shed({ since, last, lag, in_flight, overload_delay: delay, max_concurrent_requests: most }, at) {
  const ended = at - last >= SHEDS_MS
  const tense = ended ? 'was' : 'is'
  const why =
    lag > 0
      ? `the event loop ${tense} late by its own work`
      : `more than ${count(1.25 * most)} exchanges ${ended ? 'ran' : 'run'}`
  const until = ended ? clock(last) : lag > 0 ? `it is late by less than ${ms(delay / 20)}` : 'some of them end'
  const refused = `${of(lag + in_flight, 'request')} got 503 at once, before their keys were read.`
  return [
    ended ? 'warn' : 'bad',
    ended ? 'Load was shed' : 'Sheds load',
    `since ${clock(since)}, because ${why}, until ${until}. ${refused}`,
  ]
}

/** `with upstream server error, the last at req_….` */
function causeOf(incidents, { backend }) {
  const found = incidents.find(one => one.backend === backend)
  return found ? `with ${found.code.replaceAll('_', ' ')}, the last at ${found.lastId}.` : ''
}

const fails = ({ all, wrong, last }, at) => wrong >= FAILS * all && wrong > 0 && at - last < NOW_MS

/** `Of 40 requests for it since 10:16:50, 38 got no answer: acme 30, other 8.` */
function harmOf(impact) {
  if (!impact) return ''
  const asked = `Of ${of(impact.all, 'request')} for it since ${clock(impact.since)}`
  return impact.wrong === 0
    ? `${asked}, all were served by others.`
    : `${asked}, ${count(impact.wrong)} got no answer: ${hits(impact)}.`
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
