/** Organizations and their keys: what they used since the start, and how near each limit they are. */
import { attribute, fill, h, Rows, text } from './dom.mjs'
import { ask } from './feed.mjs'
import { count, isMoney, percent, usd } from './format.mjs'

const FIND_DELAY_MS = 250
/** This many organizations are shown open at first. */
const OPEN = 2

export class Accounts {
  #rows
  #note = h('p', { class: 'muted' })
  #find
  #found = null
  #timer
  #made = 0

  constructor(parent, find) {
    const list = h('div', { class: 'accounts' })
    this.#rows = new Rows(
      list,
      account => account.id,
      account => organization(account, this.#made++ < OPEN),
    )
    parent.append(list, this.#note)
    this.#find = find
    find.addEventListener('input', () => {
      clearTimeout(this.#timer)
      this.#timer = setTimeout(() => this.#search(), FIND_DELAY_MS)
    })
  }

  show({ accounts }) {
    if (this.#find.value.trim() === '') {
      this.#found = null
      this.#draw(accounts)
    } else this.#search()
  }

  async #search() {
    const wanted = this.#find.value.trim()
    if (wanted === '') return
    const answer = await ask(`/accounts?find=${encodeURIComponent(wanted)}`).catch(() => null)
    if (!answer?.ok || this.#find.value.trim() !== wanted) return
    this.#found = await answer.json()
    this.#draw(this.#found)
  }

  #draw({ rows, total, failed }) {
    this.#rows.show(rows)
    text(
      this.#note,
      failed
        ? 'The store does not answer: limits are not known.'
        : total === 0
          ? 'None.'
          : total > rows.length
            ? `${rows.length} of ${count(total)}, the busiest first. Find looks at all of them.`
            : '',
    )
  }
}

function organization(account, open) {
  const worst = h('span', { class: 'figure' })
  const bar = h('span', { class: 'fill' })
  const use = h('span', { class: 'use' })
  const limits = limitList()
  const maxima = maximaLine()
  const keys = h('div', { class: 'keys' })
  const keyRows = new Rows(keys, key => key.id, keyRow)
  const node = h(
    'details',
    { class: 'card account', open },
    h(
      'summary',
      {},
      h('strong', {}, account.id),
      h('span', { class: 'muted plan' }, account.billing === 'free' ? `${account.plan}, free` : account.plan),
      use,
      h('span', { class: 'share' }, h('span', { class: 'bar' }, bar), worst),
    ),
    limits.node,
    maxima.node,
    keys,
  )
  return {
    node,
    update(now) {
      text(use, usedWords(now.use))
      const all = [now.limits, ...now.keys.map(key => key.limits)].flat()
      const most = Math.max(0, ...all.map(shareOf))
      fill(bar, most)
      attribute(bar, 'class', `fill ${level(most)}`)
      bar.parentElement.hidden = all.length === 0
      text(worst, all.length === 0 ? 'no limits' : `${percent(most)} of the nearest limit`)
      limits.update(now.limits)
      maxima.update(now.maxima)
      keyRows.show(now.keys)
    },
  }
}

function keyRow(key) {
  const status = h('span', { class: 'badge' })
  const use = h('span', { class: 'use' })
  const limits = limitList()
  const maxima = maximaLine()
  const node = h('div', { class: 'key' }, h('p', {}, h('code', {}, key.id), status, use), limits.node, maxima.node)
  return {
    node,
    update(now) {
      text(status, now.status)
      attribute(status, 'class', `badge ${{ active: 'good', staged: 'warn' }[now.status] ?? 'idle'}`)
      text(use, usedWords(now.use))
      limits.update(now.limits)
      maxima.update(now.maxima)
    },
  }
}

/** What a single request may need at most: { node, update(maxima) }. It has no bar, since nothing of it is used up. */
export function maximaLine() {
  const node = h('p', { class: 'muted maxima', hidden: true })
  return {
    node,
    update(maxima) {
      node.hidden = maxima.length === 0
      text(node, `Each request at most: ${maxima.map(maximumWords).join(' · ')}`)
    },
  }
}

/** `8,192 output tokens`; `$0.50`; `64 tokens of eb1-preview`. */
function maximumWords({ model, limit, most, most_usd: money }) {
  const what = limit.replace(/^max_(request_)?/, '').replaceAll('_', ' ')
  return `${money === undefined ? `${count(most)} ${what}` : `$${money}`}${model ? ` of ${model}` : ''}`
}

/** A list of limits with what is used of each: { node, update(limits) }. */
export function limitList() {
  const node = h('ul', { class: 'limits' })
  const rows = new Rows(node, limit => `${limit.model ?? ''} ${limit.dimension} ${limit.per}`, limitRow)
  return { node, update: limits => rows.show(limits) }
}

/** Days and months of spend are those of the calendar in UTC; counts by the day are buckets, which refill all the time. */
function perWords({ dimension, per }) {
  if (per === '') return ''
  return ` / ${per}${dimension === 'spend' ? ' (UTC)' : ''}`
}

function limitRow(limit) {
  const bar = h('span', { class: 'fill' })
  const figure = h('span', { class: 'figure' })
  const words = `${limit.dimension === 'concurrency' ? 'at once' : limit.dimension.replaceAll('_', ' ')}${perWords(limit)}`
  const node = h(
    'li',
    {},
    h('span', { class: 'what' }, words, limit.model ? h('small', {}, ` ${limit.model}`) : null),
    h('span', { class: 'bar' }, bar),
    figure,
  )
  return {
    node,
    update(now) {
      const share = shareOf(now)
      const amount = isMoney(now.dimension) ? usd : count
      fill(bar, share)
      attribute(bar, 'class', `fill ${level(share)}`)
      text(figure, `${amount(now.used)} of ${amount(now.capacity)}`)
    },
  }
}

function shareOf({ used, capacity }) {
  return capacity > 0 ? used / capacity : used > 0 ? 1 : 0
}

function level(share) {
  return share >= 1 ? 'bad' : share >= 0.8 ? 'warn' : ''
}

function usedWords({ requests, input, output, cost }) {
  if (requests === 0) return 'not used since the start'
  return `${count(requests)} requests · ${count(input)} in · ${count(output)} out · ${usd(cost)}`
}
