/** One exchange, plugin by plugin: when each hook ran and how long it took. */
import { copyButton, h } from './dom.mjs'
import { clock, count, isMoney, moment, ms, usd, zone } from './format.mjs'

const PHASES = {
  beforeBody: 'before the body',
  body: 'waiting for the body',
  onRequest: 'request',
  forward: 'sends it upstream',
  upstream: 'waiting for the first event',
  reply: 'events of the reply',
  onResponseHead: 'response head',
  onEvent: 'events',
  rewriteEvent: 'rewrites events',
  onChunk: 'bytes',
  onError: 'error',
  onSettle: 'settles',
}
const KINDS = { beforeBody: 'down', body: 'wait', upstream: 'wait', reply: 'wait', onRequest: 'down', forward: 'down' }

/**
 * What is known about an exchange, its cause first.
 * @param file of the configuration that serves; '' where it is not known
 * @param more stands below
 */
export function panel(exchange, file, ...more) {
  const command = `npx sluice trace ${exchange.id}${file && ` --config ${quoted(file)}`}`
  const facts = [
    [
      'outcome',
      h(
        'span',
        { class: wrong(exchange) ? 'bad' : null },
        `${exchange.status} ${exchange.outcome.replace('_', ' ')}${exchange.code ? `, ${exchange.code}` : ''}${exchange.param ? ` at ${exchange.param}` : ''}`,
      ),
    ],
    ...(exchange.cause ? [['cause', exchange.cause]] : []),
    ...exchange.failed.map((attempt, i) => [`attempt ${i + 1} failed`, failure(attempt)]),
    ...exchange.passedOver.map(over => ['not asked', passedOver(over)]),
    ['request id', h('code', {}, exchange.id)],
    ['at', `${moment(exchange.at)}, ${zone()}`],
    ['route', h('code', {}, exchange.route || 'no route')],
    ['model', exchange.model || (exchange.unknownModel ? `${exchange.unknownModel}, which is not offered` : '–')],
    ['backend', exchange.backend || '–'],
    ...(exchange.slowedMs > 0 ? [['slowed', `by ${ms(exchange.slowedMs)}, on purpose`]] : []),
    ['account', exchange.organization ? `${exchange.organization} / ${exchange.key}` : '–'],
    ...(exchange.client ? [['client', exchange.client]] : []),
    ...alike(exchange),
    ...(exchange.input === null
      ? []
      : [['tokens', `${count(exchange.input)} in, ${count(exchange.output)} out, ${usd(exchange.cost)}`]]),
    ...taken(exchange),
    ...(exchange.durationMs === null
      ? []
      : [['time', `${ms(exchange.durationMs)}, first byte ${ms(exchange.ttfbMs)}`]]),
    ['in a shell', h('span', {}, h('code', {}, command), ' ', copyButton(command))],
  ]
  return h(
    'article',
    { class: 'timeline', 'aria-label': `What became of ${exchange.id}` },
    h('div', {}, h('dl', {}, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])), ...more),
    exchange.timeline
      ? waterfall(exchange)
      : h(
          'p',
          { class: 'muted' },
          'Its plugins were not timed: on a busy gateway one exchange in sixteen is. On the live page the filter “timed” finds those.',
        ),
  )
}

const wrong = ({ status, outcome }) => status >= 400 || outcome.endsWith('_error')

/** A path as a shell takes it. */
function quoted(path) {
  return /^[\w./@+-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`
}

/** Of those that are kept together, what one was is known by what all were. */
function alike({ alike: all }) {
  if (!all) return []
  const { count: many, first, last } = all
  return [
    ['alike', `1 of ${count(many)} of this caller that went the same way, from ${moment(first)} to ${moment(last)}`],
  ]
}

/** What was reserved, and what each limit had left then. */
function taken({ taken }) {
  if (taken === null) return []
  const limits = taken.limits.map(({ scope, dimension, per, capacity, remaining }) => {
    const amount = value => (isMoney(dimension) ? usd(value) : count(Math.floor(value)))
    return `${scope}: ${amount(remaining)} of ${amount(capacity)} ${dimension}${per ? ` per ${per}` : ''} left`
  })
  const reserved = `${count(taken.input)} in, ${count(taken.output)} out, at most ${usd(taken.cost)}`
  return [['reserved', reserved], ...limits.map(limit => ['limit', limit])]
}

/**
 * `openai/gpt-x after 120 ms: upstream_server_error; it answered 400, invalid_request_error, at messages[0].content`, or
 * `openai/gpt-x after 1 ms: provider_unavailable; could not connect: ECONNREFUSED`.
 */
function failure({ backend, code, status, told, why, ms: took }) {
  const said = [told?.type, told?.code, told?.param && `at ${told.param}`].filter(Boolean)
  const answered = status > 0 ? `it answered ${[status, ...said].join(', ')}` : ''
  const happened = [answered, why].filter(Boolean).join(', and ')
  return h(
    'span',
    { class: 'bad' },
    h('code', {}, backend),
    ` after ${ms(took)}: ${code}${happened && `; ${happened}`}`,
  )
}

/** `openai/gpt-x: paused for all until 23:08:03, since it answered req_… with capacity_exceeded at 23:07:56`. */
function passedOver({ backend, why, scope, code, how, requestId, since, until }) {
  const met = how ? `${code} (${how})` : code
  const state = why === 'pause' ? 'paused' : 'left out'
  const whom = scope === 'all' ? 'all' : 'this organization'
  const cause =
    why === 'pause'
      ? [', since it answered ', h('code', {}, requestId), ` with ${met}`]
      : [', since ', h('code', {}, requestId), ` and others before it failed with ${met}`]
  return h(
    'span',
    { class: 'bad' },
    h('code', {}, backend),
    `: ${state} for ${whom} until ${clock(until)}`,
    ...cause,
    ` at ${clock(since)}`,
  )
}

function waterfall({ timeline, durationMs }) {
  const order = [...timeline].sort((a, b) => a.at - b.at)
  const end = Math.max(durationMs, ...order.map(entry => entry.at + entry.ms), 0.001)
  return h(
    'table',
    { class: 'waterfall' },
    h('caption', { class: 'hidden' }, 'What ran when'),
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        ...[
          ['plugin', ''],
          ['does', ''],
          ['when', 'span'],
          ['took', 'n'],
        ].map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)),
      ),
    ),
    h(
      'tbody',
      {},
      ...order.map(entry => {
        const bar = h('span', { class: `when ${KINDS[entry.phase] ?? 'up'}` })
        bar.style.left = `${(100 * entry.at) / end}%`
        bar.style.width = `${(100 * entry.ms) / end}%`
        const calls = entry.calls > 1 ? ` × ${count(entry.calls)}` : ''
        return h(
          'tr',
          {},
          h('th', { scope: 'row' }, entry.plugin || 'gateway'),
          h('td', {}, `${PHASES[entry.phase] ?? entry.phase}${calls}`),
          h('td', { class: 'span' }, h('span', { class: 'lane' }, bar)),
          h('td', { class: 'n' }, ms(entry.ms)),
        )
      }),
    ),
  )
}
