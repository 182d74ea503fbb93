/** One organization: its limits and spend, its keys, what they used, its last exchanges, and who changed it. */
import { limitList, maximaLine } from './accounts.mjs'
import { attribute, h, Rows, table, text } from './dom.mjs'
import { count, moment, ms, usd } from './format.mjs'
import { outcomeBadge } from './outcomes.mjs'
import { usageOf } from './usage-state.mjs'

const STATUSES = { active: 'good', staged: 'warn', disabled: 'bad' }

export class AccountView {
  #parent
  #organizations
  #keys
  #period
  #shown = null
  #parts = null

  /**
   * @param organizations { set, disable, enable, delete }(account)
   * @param keys { make }(account), and with a key { set, stage, rotate, activate, revoke, delete }(account, key)
   * @param period the Period of `usage` and `days`
   */
  constructor(parent, organizations, keys, period) {
    this.#parent = parent
    this.#organizations = organizations
    this.#keys = keys
    this.#period = period
  }

  /**
   * @param account as `GET organizations/{id}` has it, with `etag`, `credits`, `usage`, `days`, `exchanges` and
   * `changes`, each null while it is not known; null shows nothing
   * @param mayChange whether the caller has the role operate
   */
  show(account, mayChange) {
    if (!account) {
      this.#parent.replaceChildren()
      this.#shown = null
      return
    }
    if (this.#shown !== account.id) {
      this.#shown = account.id
      this.#parts = this.#build()
      this.#parent.replaceChildren(this.#parts.node)
    }
    this.#parts.update(account, mayChange && account.place === 'store')
  }

  #build() {
    let now
    const badges = h('p', { class: 'badges' })
    const notes = h('div', { class: 'alerts' })
    const spend = h('dl')
    const credits = list(
      'Table of credits',
      [
        ['given', ''],
        ['amount', 'n'],
        ['id', 'wide'],
        ['by', ''],
        ['note', 'wide'],
      ],
      credit => credit.id,
      creditRow,
    )
    const limits = limitList()
    const maxima = maximaLine()
    const noLimits = h('p', { class: 'muted' }, 'No limits.')
    const actions = ORGANIZATION_ACTIONS.map(([action, words, when]) => ({
      when,
      node: h(
        'button',
        { type: 'button', onclick: () => this.#organizations[action](now) },
        ...[words, h('span', { class: 'hidden' }, ' the organization')],
      ),
    }))
    const tools = h('p', { class: 'tools' }, ...actions.map(({ node }) => node))
    const make = h('button', { type: 'button', onclick: () => this.#keys.make(now) }, 'Make a key')
    const keys = h('ul', { class: 'keys' })
    const noKeys = h('p', { class: 'muted' }, 'No keys.')
    const keyRows = new Rows(
      keys,
      key => key.id,
      key => keyRow(key, action => this.#keys[action](now, key.id)),
    )
    const used = list(
      'Table of use',
      [['key', ''], ['model', ''], ...FIGURES],
      sum => `${sum.key}\n${sum.model}\n${sum.all ?? ''}`,
      usageRow,
    )
    const days = list('Table of days', [['day (UTC)', ''], ...FIGURES], sum => sum.day, dayRow)
    const longer = h('a', {}, 'Longer times')
    const older = h('a', {}, 'Older ones')
    const which = h('select', { id: 'which-key', 'aria-label': 'Exchanges of which key' })
    which.addEventListener('change', () => drawExchanges())
    const exchanges = list(
      'Table of exchanges',
      [
        ['time', ''],
        ['outcome', ''],
        ['key', ''],
        ['model', 'wide'],
        ['in', 'n wide'],
        ['out', 'n wide'],
        ['cost', 'n'],
        ['duration', 'n wide'],
        ['request id', 'wide'],
      ],
      exchange => exchange.request_id,
      exchangeRow,
    )
    const changes = list(
      'Table of changes',
      [
        ['time', ''],
        ['what', ''],
        ['key', ''],
        ['who', ''],
        ['from', 'wide'],
      ],
      entry => entry.id,
      changeRow,
    )
    const drawExchanges = () => {
      const all = now.exchanges
      const chosen = all?.filter(({ key }) => which.value === '' || key === which.value)
      exchanges.update(chosen?.map(one => ({ ...one, organization: now.id })))
    }
    const update = (account, mayChange) => {
      now = account
      for (const link of [longer, older]) attribute(link, 'href', usageOf({ organization: account.id }))
      fit(badges, badgesOf(account))
      fit(notes, notesOf(account))
      fit(spend, spendOf(account))
      credits.update(account.credits)
      credits.node.hidden = account.balance === null
      limits.update(account.limits)
      maxima.update(account.maxima)
      noLimits.hidden = account.limits.length + account.maxima.length > 0
      make.hidden = !mayChange
      tools.hidden = !mayChange
      for (const { node, when } of actions) node.hidden = !(mayChange && when(account))
      const alive = account.keys.filter(({ status }) => status !== 'revoked')
      const revoked = account.keys.filter(({ status }) => status === 'revoked')
      keyRows.show([...alive, ...revoked].map(key => ({ ...key, mayChange })))
      noKeys.hidden = account.keys.length > 0
      used.update(withTotal(account.usage))
      days.update(account.days)
      choices(
        which,
        account.keys.map(({ id }) => id),
      )
      drawExchanges()
      changes.update(account.changes)
    }
    const node = h(
      'div',
      {},
      badges,
      tools,
      notes,
      part('Spend', [], h('div', { class: 'card pad' }, spend), credits.node),
      part('Limits', [], h('div', { class: 'card pad' }, limits.node, maxima.node, noLimits)),
      part('Keys', [make], h('div', { class: 'card pad' }, keys, noKeys)),
      part('Used', [longer, ...this.#period.tools], this.#period.note, used.node, days.node),
      part('Last exchanges', [older, which], exchanges.node),
      part('Last changes', [], changes.node),
    )
    return { node, update }
  }
}

function part(title, tools, ...children) {
  return h('section', {}, h('div', { class: 'head' }, h('h3', {}, title), ...tools), ...children)
}

/** Replaces the children of `node` when they read differently, so that nothing is told twice. */
function fit(node, children) {
  const next = h('div', {}, ...children)
  if (node.innerHTML !== next.innerHTML) node.replaceChildren(...next.childNodes)
}

const badge = (words, kind) => h('span', { class: `badge ${kind ?? ''}` }, words)

function badgesOf({ status, place, plan, billing, version, name }) {
  const paid = billing === 'free' || billing === 'prepaid' ? `, ${billing}` : ''
  const where = place === 'file' ? 'in gateway.yaml' : `in the store, version ${version}`
  return [
    badge(status, STATUSES[status]),
    ' ',
    h('span', { class: 'muted' }, `${name === null ? '' : `${name} · `}plan ${plan}${paid} · ${where}`),
  ]
}

/** What was spent, and of a prepaid organization what is left of what was given. */
function spendOf({ spend, balance, billing }) {
  const rows = []
  if (balance !== null) {
    const { left_nano_usd: left, credited_nano_usd: credited } = balance
    const out = billing === 'prepaid' && left < NEARLY_NOTHING
    const words = `${signedUsd(left)} of ${usd(credited)} left${out ? '; what may cost more is refused' : ''}`
    rows.push(['balance', words, out ? 'bad' : null])
  }
  if (spend !== null) rows.push(['today (UTC)', usd(spend.day), null], ['this month (UTC)', usd(spend.month), null])
  return rows.flatMap(([name, value, kind]) => [h('dt', {}, name), h('dd', { class: kind }, value)])
}

/**
 * A cent, in nano-USD. A request is refused when the most that it may cost is not left, so that a balance that is used
 * up hardly ever is 0.
 */
const NEARLY_NOTHING = 1e7
const signedUsd = nano => (nano < 0 ? `-${usd(-nano)}` : usd(nano))

function notesOf({ id, place, status, faults, leaves }) {
  const notes = faults.map(fault => ['bad', 'It cannot be used as it is stored.', fault])
  if (leaves !== null)
    notes.push([
      'warn',
      'Deleted.',
      `It is removed after ${moment(Date.parse(leaves))}. \`npx sluice org enable ${id}\` takes it back until then.`,
    ])
  else if (status === 'disabled')
    notes.push(['warn', 'Disabled.', `Its keys answer 401. \`npx sluice org enable ${id}\` takes it back.`])
  if (place === 'file')
    notes.push([
      'plain',
      'This organization stands in gateway.yaml.',
      `Its keys are changed there, or by npx sluice key.`,
    ])
  return notes.map(([kind, title, words]) => h('p', { class: `alert ${kind}` }, h('strong', {}, title), ' ', words))
}

/** A table that says so when it is empty, or not known. */
function list(label, columns, key, make) {
  const { node, body } = table(label, columns)
  const rows = new Rows(body, key, make)
  const none = h('p', { class: 'muted' })
  return {
    node: h('div', {}, node, none),
    update(items) {
      node.hidden = !items || items.length === 0
      none.hidden = !node.hidden
      text(none, items ? 'None.' : 'Not known now.')
      rows.show(items ?? [])
    },
  }
}

/** What can be done with an organization, by its state. */
const ORGANIZATION_ACTIONS = [
  ['set', 'Change', () => true],
  ['disable', 'Disable', ({ status }) => status !== 'disabled'],
  ['enable', 'Enable', ({ status }) => status === 'disabled'],
  ['delete', 'Delete', ({ leaves }) => leaves === null],
]

/** What can be done with a key, by its state. */
const KEY_ACTIONS = [
  ['set', 'Change', ({ alive }) => alive],
  ['activate', 'Activate', ({ status }) => status === 'staged'],
  ['stage', 'Stage', ({ alive, over }) => alive && !over],
  ['rotate', 'Rotate', ({ alive, over }) => alive && !over],
  ['revoke', 'Revoke', ({ alive }) => alive],
  ['delete', 'Delete', ({ alive, over }) => !alive || over],
]

/** @param act called with the name of an action */
function keyRow(key, act) {
  const status = h('span', { class: 'badge' })
  const ends = h('span', { class: 'use' })
  const about = h('p', { class: 'muted' })
  const limits = limitList()
  const maxima = maximaLine()
  const buttons = KEY_ACTIONS.map(([action, words, when]) => {
    const name = h('span', { class: 'hidden' }, ` ${key.id}`)
    return { when, node: h('button', { type: 'button', onclick: () => act(action) }, words, name) }
  })
  const tools = h('span', { class: 'tools' }, ...buttons.map(({ node }) => node))
  const node = h(
    'li',
    { class: 'key' },
    h('p', {}, h('code', {}, key.id), status, ends, tools),
    about,
    limits.node,
    maxima.node,
  )
  return {
    node,
    update(now) {
      const over = now.expires !== null && Date.parse(now.expires) <= Date.now()
      const alive = now.status !== 'revoked'
      const word = over && alive ? 'ended' : now.status
      text(status, word)
      attribute(status, 'class', `badge ${STATUSES[word] ?? ''}`)
      const narrowed = [
        now.models === 'all' ? '' : `models ${[now.models].flat().join(', ') || 'none'}`,
        now.capabilities === 'all' ? '' : `capabilities ${[now.capabilities].flat().join(', ') || 'none'}`,
        now.streaming ? '' : 'no streaming',
        ...Object.entries(now.settings?.user_limits ?? {}).map(
          ([name, value]) => `each user ${name} ${value ?? 'unlimited'}`,
        ),
      ].filter(Boolean)
      const end = now.expires === null ? [] : [`${over ? 'ended' : 'ends'} ${moment(Date.parse(now.expires))}`]
      text(ends, [...end, ...narrowed].join(' · '))
      text(about, aboutKey(now))
      for (const button of buttons)
        button.node.hidden = !(now.mayChange && button.when({ status: now.status, alive, over }))
      limits.update(now.limits ?? [])
      maxima.update(now.maxima ?? [])
    },
  }
}

/** What a key is for, by what people tell it from others, and when it was last used. */
function aboutKey({ label, hint, creator, created, last_used }) {
  const made = [creator === null ? '' : `by ${creator}`, created === null ? '' : moment(Date.parse(created))]
  return [
    label ?? '',
    hint === null ? '' : `secret ends in ${hint}`,
    made.some(Boolean) ? `made ${made.filter(Boolean).join(', ')}` : '',
    last_used === null ? 'not used of late' : `last used in the hour from ${moment(Date.parse(last_used))}`,
  ]
    .filter(Boolean)
    .join(' · ')
}

/** A row whose cells are made anew when something of it has changed. */
function plainRow(cells) {
  const node = h('tr')
  let shown = ''
  return {
    node,
    update(item) {
      const next = JSON.stringify(item)
      if (next === shown) return
      shown = next
      node.replaceChildren(...cells(item))
    },
  }
}

const td = (value, kind) => h('td', { class: kind }, value)

/** The heads of `figures`. */
const FIGURES = [
  ['requests', 'n'],
  ['in', 'n wide'],
  ['out', 'n wide'],
  ['cost', 'n'],
]
const figures = sum => [
  td(count(sum.requests), 'n'),
  td(count(sum.input), 'n wide'),
  td(count(sum.output), 'n wide'),
  td(usd(sum.cost), 'n'),
]

/** Sums with the total of all, which is then that of the rows below each other. */
function withTotal(sums) {
  if (!sums || sums.length === 0) return sums
  const total = { key: '', model: '', all: true, requests: 0, input: 0, output: 0, cost: 0 }
  for (const sum of sums) for (const name of ['requests', 'input', 'output', 'cost']) total[name] += sum[name]
  return [...sums, total]
}

const dayRow = () => plainRow(sum => [h('th', { scope: 'row' }, sum.day), ...figures(sum)])

const usageRow = () =>
  plainRow(sum => [
    h('th', { scope: 'row' }, sum.all ? 'All keys' : h('code', {}, sum.key)),
    td(sum.all ? '' : sum.model || '–'),
    ...figures(sum),
  ])

const exchangeRow = () =>
  plainRow(({ time, outcome, key, model, provider, input, output, cost, duration_ms, request_id, organization }) => [
    td(moment(time)),
    td(outcomeBadge(outcome)),
    td(h('code', {}, key)),
    h('td', { class: 'wide' }, model || '–', provider ? h('small', { class: 'line' }, provider) : null),
    td(count(input), 'n wide'),
    td(count(output), 'n wide'),
    td(usd(cost), 'n'),
    td(ms(duration_ms), 'n wide'),
    td(h('a', { href: usageOf({ organization, request: request_id }) }, h('code', {}, request_id)), 'wide'),
  ])

const changeRow = () =>
  plainRow(({ time, operation, key, by, actor, address }) => [
    td(moment(time)),
    td(operation),
    td(key ? h('code', {}, key) : '–'),
    td(actor === undefined ? by || 'unknown' : `${actor}, through ${by}`),
    td(address || '–', 'wide'),
  ])

const creditRow = () =>
  plainRow(({ id, amount_nano_usd, time, by, note }) => [
    td(moment(time)),
    td(signedUsd(amount_nano_usd), 'n'),
    td(h('code', {}, id), 'wide'),
    td(by),
    td(note || '–', 'wide'),
  ])

/** Keeps the options of the choice of a key, and what is chosen. */
function choices(select, ids) {
  const wanted = ['', ...ids]
  if (wanted.join('\n') === [...select.options].map(({ value }) => value).join('\n')) return
  const { value } = select
  select.replaceChildren(...wanted.map(id => h('option', { value: id }, id || 'All keys')))
  select.value = ids.includes(value) ? value : ''
}
