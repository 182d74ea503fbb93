/**
 * The token of a page that shows nothing without one: asks for it, keeps it for the tab, learns what it may do, and locks
 * the page when it is valid no more. The page has the elements `login`, `main`, `caller` and `other-token`.
 */
import { call, wordsOf } from './api.mjs'
import { h, text } from './dom.mjs'
import { keepToken } from './feed.mjs'

const RETRY_MS = 5000

const at = id => document.getElementById(id)

/** Fills the form `login`, which asks for the token. */
export function fillLogin(title) {
  at('login').append(
    h('h2', { id: 'login-title' }, title),
    h(
      'p',
      {},
      'It is the one of ',
      h('code', {}, 'server: admin: token'),
      ' in gateway.yaml, or a named one. It is kept for this tab only.',
    ),
    h('label', { for: 'token' }, 'Admin token'),
    h(
      'div',
      { class: 'row' },
      h('input', { id: 'token', type: 'password', autocomplete: 'current-password', required: true }),
      h('button', { type: 'submit' }, 'Open'),
    ),
    h('p', { id: 'login-fault', class: 'bad', role: 'alert' }),
  )
}

export class Login {
  /** What `GET /api/v1/caller` says; null while the page is locked. */
  caller = null
  #page
  #again
  #tried = false

  /**
   * @param page.may what a caller may do on the page, in words
   * @param page.opened called when a token is taken
   * @param page.locked called when the page is locked
   * @param page.say called with the words of a failure that locks nothing
   */
  constructor(page) {
    this.#page = page
    fillLogin('This page needs a token')
    at('login').addEventListener('submit', event => {
      event.preventDefault()
      this.#tried = true
      keepToken(at('token').value)
      at('token').value = ''
      this.enter()
    })
    at('other-token').addEventListener('click', () => {
      this.#tried = false
      this.#lock('')
    })
  }

  /** Learns what the token may do, then shows the page. */
  async enter() {
    clearTimeout(this.#again)
    try {
      this.caller = (await call('caller')).body
    } catch (fault) {
      this.failed(fault)
      if (fault.status !== 401) this.#again = setTimeout(() => this.enter(), RETRY_MS)
      return
    }
    const { by } = this.caller
    at('login').hidden = true
    at('main').hidden = false
    at('other-token').hidden = by === ''
    const may = this.#page.may(this.caller)
    text(at('caller'), by === '' ? `no token: you ${may}` : `${by} ${may}`)
    this.#page.opened()
  }

  /** Says what failed and what to do; an invalid token locks the page. */
  failed(fault) {
    if (fault.status === undefined) throw fault
    if (fault.status === 401) {
      // Several requests at once may find it.
      const known = this.caller || this.#tried
      if (known || at('login').hidden) this.#lock(known ? wordsOf(fault) : '')
    } else if (at('main').hidden) text(at('login').hidden ? at('caller') : at('login-fault'), wordsOf(fault))
    else this.#page.say(wordsOf(fault))
  }

  #lock(words) {
    this.caller = null
    this.#page.locked()
    at('main').hidden = true
    at('login').hidden = false
    text(at('login-fault'), words)
    at('token').focus()
  }
}
