/**
 * The dialogs that make, change, replace, revoke and delete a key. A new secret is shown in its dialog and nowhere else: it leaves the
 * document when the dialog closes.
 */
import { call, isOpen, wordsOf } from './api.mjs'
import { h } from './dom.mjs'

const GRACES = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['168h', '7 days'],
  ['0', 'none: it ends at once'],
]

export class AccountDialogs {
  #dialog
  #ended
  /** A secret is shown: only its button closes the dialog. */
  #hasSecret = false
  #changed = false

  /**
   * @param ended called when a dialog has closed: with what to say ('' when nothing was done), the fault that closed it,
   * and whether something changed, or may have
   */
  constructor(dialog, ended) {
    this.#dialog = dialog
    this.#ended = ended
    dialog.addEventListener('cancel', event => {
      if (this.#hasSecret) event.preventDefault()
      else this.#close()
    })
  }

  get isOpen() {
    return this.#dialog.open
  }

  /** @param account { id, etag, keys } as it is shown */
  make(account) {
    const id = idField('Id of the new key', freeId(account.keys))
    const label = field('key-label', 'What it is for (may be empty)', '', { maxlength: '128' })
    this.#show(`Make a key of ${account.id}`, 'Make the key', [id.node, label.node], async () => {
      const named = label.value() === '' ? {} : { label: label.value() }
      const { body } = await change(account, 'keys', { id: id.value(), ...named })
      this.#tell(account, body, 'It works within a second.')
    })
  }

  /** Label, end, models and limits. Of the settings as they were shown, what is not in the dialog stays. */
  set(account, key) {
    const { label = '', expires = '', models = 'all', limits = {} } = account.keys.find(one => one.id === key).settings
    const named = field('key-label', 'What it is for', label, { maxlength: '128' })
    const ends = field('key-ends', 'When it ends, such as 2027-01-31T00:00:00Z; empty: never', expires ?? '')
    const which = field('key-models', 'Models, with commas between; all', [models].flat().join(', '))
    const lines = Object.entries(limits ?? {}).map(([name, value]) => `${name}: ${value}`)
    const narrow = area('key-limits', 'Limits, one a line, such as requests_per_minute: 10', lines.join('\n'))
    this.#show(
      `Change ${key} of ${account.id}`,
      'Change the key',
      [named.node, ends.node, which.node, narrow.node],
      async () => {
        const wanted = limitsIn(narrow.value())
        const gone = Object.keys(limits ?? {}).filter(name => !(name in wanted))
        const names = which
          .value()
          .split(',')
          .map(name => name.trim())
        await change(
          account,
          path(key),
          {
            label: named.value() || null,
            expires: ends.value() || null,
            models: which.value() === 'all' || which.value() === '' ? null : names,
            limits: { ...Object.fromEntries(gone.map(name => [name, null])), ...wanted },
          },
          'PATCH',
        )
        this.#changed = true
        this.#close(`${key} is changed.`)
      },
    )
  }

  /** Makes a staged key beside this one. */
  stage(account, key) {
    const id = idField('Id of the new key', freeId(account.keys))
    const parts = [
      h(
        'p',
        {},
        `A new key, with the label, rights and limits of this one, works beside it. When your clients use it, revoke ${key} and activate the new one.`,
      ),
      id.node,
    ]
    this.#show(`Stage a replacement of ${key} of ${account.id}`, 'Stage the key', parts, async () => {
      const {
        status: _,
        expires: _end,
        hint: _hint,
        creator: _who,
        created: _when,
        ...own
      } = account.keys.find(one => one.id === key).settings
      const { body } = await change(account, 'keys', { ...own, id: id.value(), status: 'staged' })
      this.#tell(account, body, `${key} works until it is revoked.`)
    })
  }

  delete(account, key) {
    const words = `It is revoked, as far as it is not, and leaves all lists. Ledger rows and audit stay. The id ${key} is not given again. This cannot be undone.`
    const act = async () => {
      await change(account, path(key), undefined, 'DELETE')
      this.#changed = true
      this.#close(`${key} is deleted.`)
    }
    this.#show(`Delete ${key} of ${account.id}?`, `Delete ${key}`, [h('p', {}, words)], act, 'danger')
  }

  rotate(account, key) {
    const id = idField('Id of the new key', freeId(account.keys))
    const grace = h(
      'select',
      { id: 'grace' },
      ...GRACES.map(([value, words]) => h('option', { value, selected: value === '24h' }, words)),
    )
    const parts = [
      h('p', {}, 'A new key takes the place of this one, which goes on working for a while.'),
      id.node,
      h('p', {}, h('label', { for: 'grace' }, 'How long the replaced key still works'), grace),
    ]
    this.#show(`Rotate ${key} of ${account.id}`, 'Rotate the key', parts, async () => {
      const { body } = await change(account, `${path(key)}/rotate`, { id: id.value(), grace: grace.value })
      this.#tell(account, body, `${key} ends after the time that you chose.`)
    })
  }

  revoke(account, key) {
    const words =
      'New requests with it answer 401 within a second; replies that are running go on to their end. This cannot be undone.'
    const act = async () => {
      await change(account, `${path(key)}/revoke`)
      this.#changed = true
      this.#close(`${key} is revoked.`)
    }
    this.#show(`Revoke ${key} of ${account.id}?`, `Revoke ${key}`, [h('p', {}, words)], act, 'danger')
  }

  activate(account, key) {
    const act = async () => {
      await change(account, `${path(key)}/activate`)
      this.#changed = true
      this.#close(`${key} is active.`)
    }
    this.#show(`Activate ${key} of ${account.id}?`, `Activate ${key}`, [h('p', {}, 'It works within a second.')], act)
  }

  /** Closes what is open without a word. A secret that is shown stays. */
  dismiss() {
    if (this.#dialog.open && !this.#hasSecret) this.#dialog.close()
  }

  #show(title, verb, parts, act, kind = 'primary') {
    const fault = h('p', { class: 'bad', role: 'alert' })
    const go = h('button', { type: 'submit', class: kind }, verb)
    const cancel = h('button', { type: 'button', onclick: () => this.#close() }, 'Cancel')
    const form = h('form', {}, heading(title), ...parts, fault, h('p', { class: 'buttons' }, cancel, go))
    form.addEventListener('submit', async event => {
      event.preventDefault()
      if (go.disabled) return
      go.disabled = true
      fault.textContent = ''
      try {
        await act()
      } catch (error) {
        if (error.status === undefined) throw error
        this.#failed(error, fault)
      } finally {
        go.disabled = false
      }
    })
    this.#changed = false
    this.#dialog.replaceChildren(form)
    this.#dialog.showModal()
    // What cannot be undone is not what Enter does at once.
    const first = kind === 'danger' ? cancel : (form.querySelector('input') ?? go)
    first.focus()
    if (first.select) first.select()
  }

  #failed(error, fault) {
    // These are about the page, or about what it shows, and not about what was typed.
    if ([401, 403, 404, 412].includes(error.status)) return this.#close('', error)
    if (isOpen(error)) this.#changed = true
    const open = isOpen(error)
      ? ' It is not known whether it was done: doing it again with the same id does no harm.'
      : ''
    fault.textContent = wordsOf(error) + open
  }

  /** Shows the secret of a new key, once. */
  #tell(account, { id, secret }, more) {
    this.#changed = true
    if (secret === undefined) {
      this.#close(
        `${id} was made before, and its secret was shown then. If nobody has it, revoke ${id} and make another.`,
      )
      return
    }
    this.#hasSecret = true
    const field = h('input', { id: 'secret', readonly: true, value: secret, class: 'secret', spellcheck: 'false' })
    const copied = h('span', { role: 'status' })
    const copy = h(
      'button',
      {
        type: 'button',
        onclick: async () => {
          field.select()
          const done = await navigator.clipboard.writeText(secret).then(
            () => true,
            () => false,
          )
          copied.textContent = done ? 'Copied.' : 'The browser does not allow it: copy what is selected.'
        },
      },
      'Copy',
    )
    const close = h('button', { type: 'button', class: 'primary' }, 'I have stored it')
    close.addEventListener('click', () => {
      this.#hasSecret = false
      this.#close(`${id} is made.`)
    })
    this.#dialog.replaceChildren(
      heading(`The secret of ${id}`),
      h(
        'p',
        {},
        h('strong', {}, 'It is shown this once.'),
        ' The gateway keeps only its digest, and this page forgets it when you close this. Store it now; if it is lost, revoke the key and make another.',
      ),
      h('p', {}, h('label', { for: 'secret' }, `Secret of ${id} of ${account.id}`), field),
      h('p', { class: 'muted' }, more),
      // Outside of https and localhost a browser has no clipboard for pages.
      h('p', { class: 'buttons' }, copied, navigator.clipboard ? copy : null, close),
    )
    field.focus()
    field.select()
  }

  #close(words = '', fault = null) {
    this.#dialog.close()
    this.#dialog.replaceChildren()
    this.#ended(words, fault, this.#changed)
  }
}

const path = key => `keys/${encodeURIComponent(key)}`

function change({ id, etag }, what, body, method = 'POST') {
  return call(`organizations/${encodeURIComponent(id)}/${what}`, { method, etag, body })
}

/** Limits as they are written in a dialog, one a line. What is no number goes as text: the answer says what is wrong. */
function limitsIn(lines) {
  const limits = {}
  for (const line of lines.split('\n')) {
    const [, name, value] = /^\s*(\S+?)\s*[:=]\s*(.*?)\s*$/.exec(line) ?? []
    if (name) limits[name] = /_usd/.test(name) || Number.isNaN(Number(value)) ? value : Number(value)
    else if (line.trim() !== '') limits[line.trim()] = ''
  }
  return limits
}

function field(id, label, value, more = {}) {
  const input = h('input', { id, value, autocomplete: 'off', ...more })
  return { node: h('p', {}, h('label', { for: id }, label), input), value: () => input.value.trim() }
}

function area(id, label, value) {
  const input = h('textarea', { id, rows: '4', spellcheck: 'false' })
  input.value = value
  return { node: h('p', {}, h('label', { for: id }, label), input), value: () => input.value }
}

const heading = title => h('h2', { id: 'dialog-title' }, title)

function idField(label, proposed) {
  const input = h('input', {
    id: 'key-id',
    value: proposed,
    required: true,
    maxlength: '128',
    autocomplete: 'off',
    spellcheck: 'false',
  })
  return { node: h('p', {}, h('label', { for: 'key-id' }, label), input), value: () => input.value.trim() }
}

/** `key_3` when the organization has `key_1` and `key_2`. */
function freeId(keys) {
  let n = keys.length + 1
  while (keys.some(({ id }) => id === `key_${n}`)) n++
  return `key_${n}`
}
