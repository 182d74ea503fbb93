/** Helpers for the DOM: make an element, change a text only when it differs, keep a list of rows equal to data. */

/**
 * Makes an element: `h('td', { class: 'n' }, 'text', child)`. Properties that start with `on` are event listeners; the
 * rest are attributes. Null and false are left out.
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value)
    else node.setAttribute(name, value === true ? '' : value)
  }
  node.append(...children.filter(child => child !== null && child !== undefined))
  return node
}

const SVG = 'http://www.w3.org/2000/svg'
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value)
  node.append(...children)
  return node
}

/** Sets an element's text only when it differs, so that the browser repaints nothing needlessly. */
export function text(node, value) {
  const string = String(value)
  if (node.textContent !== string) node.textContent = string
}

export function attribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name)
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value)
}

/**
 * Sets the width of a bar, 0 to 1. It uses the style object, because the page's security policy forbids style
 * attributes.
 */
export function fill(node, share) {
  const width = `${Math.round(Math.min(1, Math.max(0, share)) * 1000) / 10}%`
  if (node.style.width !== width) node.style.width = width
}

/**
 * Keeps the children of `parent` equal to `items`: one child for each item, in order, found again by `key`. A child
 * that stays is updated in place, so that focus and open details stay.
 * @param make builds { node, update(item) }
 */
export class Rows {
  #parent
  #make
  #key
  #known = new Map()

  constructor(parent, key, make) {
    this.#parent = parent
    this.#key = key
    this.#make = make
  }

  show(items) {
    const kept = new Map()
    let at = this.#parent.firstElementChild
    for (const item of items) {
      const key = this.#key(item)
      const row = this.#known.get(key) ?? this.#make(item)
      this.#known.delete(key)
      kept.set(key, row)
      row.update(item)
      if (row.node === at) at = at.nextElementSibling
      else this.#parent.insertBefore(row.node, at)
    }
    for (const row of this.#known.values()) row.node.remove()
    this.#known = kept
  }
}

/** A table that scrolls by itself when it is too wide; `columns` are [title, class]. */
export function table(label, columns) {
  const body = h('tbody')
  const head = h('tr', {}, ...columns.map(([title, kind]) => h('th', { scope: 'col', class: kind }, title)))
  const node = h(
    'div',
    { class: 'scroll card', role: 'region', 'aria-label': label, tabindex: '0' },
    h('table', {}, h('thead', {}, head), body),
  )
  return { node, body }
}

/**
 * A button that copies a text, and says whether it did; null where pages have no clipboard, outside of https and
 * localhost.
 * @param select selects the text where it is shown, for those whose browser does not allow it
 */
export function copyButton(value, select = () => {}) {
  if (!navigator.clipboard) return null
  const copied = h('span', { role: 'status' })
  const copy = async () => {
    select()
    const done = await navigator.clipboard.writeText(value).then(
      () => true,
      () => false,
    )
    copied.textContent = done ? 'Copied.' : 'The browser does not allow it: copy what is selected.'
  }
  return h('span', { class: 'copy' }, copied, h('button', { type: 'button', onclick: copy }, 'Copy'))
}

/** By when a browser has taken a file. */
const TAKEN_MS = 60_000
/** Gives a text to the browser as a file to be kept. */
export function download(name, content) {
  const url = URL.createObjectURL(new Blob([content], { type: 'text/csv' }))
  h('a', { href: url, download: name }).click()
  // Some browsers begin to read it later.
  setTimeout(() => URL.revokeObjectURL(url), TAKEN_MS)
}
