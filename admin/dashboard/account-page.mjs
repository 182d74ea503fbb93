/**
 * The accounts page: finds organizations by the admin API, shows one, and changes it and its keys when the token may. The
 * organization that is shown stands in the address: `#/acme`.
 */
import { AccountView } from './account-view.mjs'
import { call } from './api.mjs'
import { Dialog } from './dialog.mjs'
import { attribute, h, Rows, text } from './dom.mjs'
import { count, zoneButton } from './format.mjs'
import { KeyDialogs } from './key-dialogs.mjs'
import { Login } from './login.mjs'
import { OrganizationDialogs } from './organization-dialogs.mjs'
import { Period } from './period.mjs'
import { themeButton } from './theme.mjs'

const FIND_DELAY_MS = 250
const REFRESH_MS = 5000
const PAGE = 50
const SHA256 = /^[0-9a-f]{64}$/i
/** What looks like a key is not sent, also while it is being typed. */
const SECRET = /^sk-/

const at = id => document.getElementById(id)
const dialog = new Dialog(at('dialog'), ended)
const organizations = new OrganizationDialogs(dialog, failed)
const period = new Period(() => show())
const view = new AccountView(at('account'), organizations, new KeyDialogs(dialog), period)
at('make-organization').addEventListener('click', () =>
  organizations.make(id => {
    location.hash = hashOf(id)
  }),
)
themeButton(at('theme'))
zoneButton(at('zone'))

// ---- the token ------------------------------------------------------------------------------------------------------

const login = new Login({
  may: ({ role }) =>
    role === 'operate' ? 'may change accounts' : 'may read; accounts are changed with a token of the role operate',
  opened() {
    at('make-organization').hidden = !mayChange()
    search()
    show()
  },
  locked: () => dialog.dismiss(),
  say(words) {
    passing = true
    say(words, 'bad')
  },
})
const mayChange = () => login.caller?.role === 'operate'

/** Whether the notice is about a failure that ends with the next success. */
let passing = false

function failed(fault) {
  login.failed(fault)
}

function say(words, kind = null) {
  text(at('notice'), words)
  attribute(at('notice'), 'class', kind)
}

// ---- the list -------------------------------------------------------------------------------------------------------

const rows = new Rows(at('list'), row => row.id, listRow)
let listed = []
let next = null
let lookup = 0
let timer

at('find').addEventListener('input', () => {
  clearTimeout(timer)
  timer = setTimeout(search, FIND_DELAY_MS)
})
document.querySelector('.skip').addEventListener('click', event => {
  // The address says which organization is shown.
  event.preventDefault()
  toFind()
})
at('search').addEventListener('submit', async event => {
  event.preventDefault()
  clearTimeout(timer)
  await search()
  if (listed.length === 1) location.hash = hashOf(listed[0].id)
})
at('more').addEventListener('click', async () => {
  const first = listed.length
  const { value } = at('find')
  const run = lookup
  try {
    const page = (
      await call(
        `organizations?limit=${PAGE}&find=${encodeURIComponent(value.trim())}&after=${encodeURIComponent(next)}`,
      )
    ).body
    if (run !== lookup) return
    draw([...listed, ...page.organizations], page.next, '')
    at('list').querySelectorAll('a')[first]?.focus()
  } catch (fault) {
    failed(fault)
  }
})

/** Looks for what stands in the field, in each of the ways that it may be meant. */
async function search() {
  const run = ++lookup
  let wanted = at('find').value.trim()
  if (SECRET.test(wanted)) {
    // Outside of https and localhost a browser gives pages no digests.
    if (!crypto.subtle)
      return draw([], null, 'This page can make a digest only on https or localhost. Give the SHA-256 of the key.')
    const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(wanted))
    wanted = [...new Uint8Array(bytes)].map(byte => byte.toString(16).padStart(2, '0')).join('')
  }
  const word = encodeURIComponent(wanted)
  try {
    if (SHA256.test(wanted)) {
      const { organizations } = (await call(`organizations?sha256=${word}`)).body
      if (run === lookup)
        draw(organizations, null, organizations.length > 0 ? 'Whose key this is' : 'Nobody has this key.')
      return
    }
    const [ids, keys] = await Promise.all([
      call(`organizations?limit=${PAGE}&find=${word}`),
      wanted === '' ? null : call(`organizations?limit=${PAGE}&key=${word}`),
    ])
    if (run !== lookup) return
    const known = new Set(ids.body.organizations.map(({ id }) => id))
    const byKey = (keys?.body.organizations ?? []).filter(({ id }) => !known.has(id))
    const all = [...ids.body.organizations, ...byKey.map(row => ({ ...row, key: wanted }))]
    const more = keys?.body.next ? `; more than ${PAGE} have a key with this id` : ''
    draw(all, ids.body.next, foundWords(wanted, ids.body, byKey.length) + more)
  } catch (fault) {
    if (run === lookup) failed(fault)
  }
}

function foundWords(wanted, { organizations, next }, byKey) {
  const n = next ? `The first ${organizations.length}` : count(organizations.length)
  if (organizations.length + byKey === 0)
    return wanted === '' ? 'There are no accounts yet.' : 'Nothing is found. Large and small letters count.'
  if (wanted === '') return `${n}${next ? ' accounts' : ' in all'}`
  const ids = organizations.length > 0 ? `${n} whose id begins with “${wanted}”` : ''
  return [ids, byKey > 0 ? `${count(byKey)} with a key “${wanted}”` : ''].filter(Boolean).join(', ')
}

function draw(organizations, after, words) {
  listed = organizations
  next = after
  rows.show(organizations)
  at('list').hidden = organizations.length === 0
  at('more').hidden = after === null
  text(at('found'), words || `The first ${count(organizations.length)}`)
  mark()
}

function listRow(row) {
  const small = h('small')
  const link = h('a', { href: hashOf(row.id) }, h('strong', {}, row.id), small)
  return {
    node: h('li', {}, link),
    update(now) {
      const keys = now.key ? `key ${now.key}` : `${count(now.keys)} ${now.keys === 1 ? 'key' : 'keys'}`
      const off = now.status === 'active' ? '' : ` · ${now.status}`
      text(small, ` ${now.plan} · ${keys} · ${now.place === 'file' ? 'gateway.yaml' : 'store'}${off}`)
    },
  }
}

const hashOf = id => `#/${encodeURIComponent(id)}`

/** Marks the organization that is shown in the list. */
function mark() {
  for (const link of at('list').querySelectorAll('a'))
    attribute(link, 'aria-current', link.getAttribute('href') === hashOf(chosen()) ? 'true' : null)
}

// ---- the account ----------------------------------------------------------------------------------------------------

let shown = null

/** The organization in the address; '' for none. */
function chosen() {
  try {
    return location.hash.startsWith('#/') ? decodeURIComponent(location.hash.slice(2)) : ''
  } catch {
    return ''
  }
}

/** Reads the chosen organization and shows it. @returns whether that worked */
async function show() {
  const id = chosen()
  at('main').classList.toggle('has-account', id !== '')
  mark()
  text(at('account-title'), id || 'No account is chosen')
  document.title = id ? `${id} · Accounts · Sluice` : 'Accounts · Sluice'
  if (shown?.id !== id) {
    shown = null
    view.show(null)
  }
  if (id === '') return true
  const here = `organizations/${encodeURIComponent(id)}`
  period.update(Date.now())
  const range = period.query(Date.now())
  const part = (path, name) =>
    call(path).then(
      ({ body }) => body[name],
      fault => {
        if (fault.status === 401) throw fault
        return null
      },
    )
  try {
    const [{ body, etag }, usage, days, exchanges, changes] = await Promise.all([
      call(here),
      part(`${here}/usage?${range}`, 'usage'),
      part(`${here}/usage?${range}&group_by=day`, 'usage'),
      part(`${here}/exchanges`, 'exchanges'),
      part(`audit?limit=10&organization=${encodeURIComponent(id)}`, 'entries'),
    ])
    const credits = body.balance === null ? [] : await part(`${here}/credits?limit=5`, 'credits')
    // The dialog goes by what it was opened on.
    if (chosen() !== id || dialog.isOpen || !login.caller || period.query(Date.now()) !== range) return true
    shown = { ...body, etag, credits, usage, days, exchanges, changes }
    view.show(shown, mayChange())
    if (passing) say('')
    passing = false
    return true
  } catch (fault) {
    if (chosen() === id && login.caller) failed(fault)
    return false
  }
}

/** After a dialog: reads again what it changed or found changed, and says what came of it. */
async function ended(words, fault, changed) {
  const opener = document.activeElement
  if (fault) {
    failed(fault)
    if (fault.status === 401) return
  } else say(words)
  passing = false
  if (fault || changed) await show()
  if (changed) search()
  // The button that opened the dialog may have gone with its key.
  if (!opener || opener === document.body || opener.hidden || !opener.isConnected) at('account-title').focus()
}

addEventListener('hashchange', () => {
  say('')
  show().then(() => at(chosen() === '' ? 'find' : 'account-title').focus())
})
document.addEventListener('visibilitychange', () => document.hidden || refresh())
document.addEventListener('keydown', event => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea, select, dialog'))
    return
  event.preventDefault()
  toFind()
})

/** A narrow page shows either the list or an organization. */
function toFind() {
  if (at('find').checkVisibility()) at('find').focus()
  else location.hash = '#/'
}

async function refresh() {
  if (login.caller && !document.hidden && !dialog.isOpen && chosen() !== '') await show()
}
setInterval(refresh, REFRESH_MS)
login.enter()
