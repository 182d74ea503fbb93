/**
 * The one dialog of the accounts page: a form with its fault, or a secret that is shown once and leaves the document
 * when the dialog closes.
 */
import { call, isOpen, wordsOf } from './api.mjs'
import { copyButton, h } from './dom.mjs'

export class Dialog {
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

  /** Closes what is open without a word. A secret that is shown stays. */
  dismiss() {
    if (this.#dialog.open && !this.#hasSecret) this.#dialog.close()
  }

  /**
   * Shows a form.
   * @param act does what the form is for, and ends with `done` or `tell`; a fault of the API is shown
   * @param kind `danger`: what Enter does at once is to cancel
   */
  show(title, verb, parts, act, kind = 'primary') {
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

  /** What the form is for is done: closes it, and says so. */
  done(words) {
    this.#changed = true
    this.#close(words)
  }

  /** Shows the secret of a new key, once. */
  tell(account, { id, secret }, more) {
    this.#changed = true
    if (secret === undefined) {
      this.#close(
        `${id} was made before, and its secret was shown then. If nobody has it, revoke ${id} and make another.`,
      )
      return
    }
    this.#hasSecret = true
    const field = h('input', { id: 'secret', readonly: true, value: secret, class: 'secret', spellcheck: 'false' })
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
      h(
        'p',
        { class: 'buttons' },
        copyButton(secret, () => field.select()),
        close,
      ),
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

/** Asks for a change of an account { id, etag }, or of a part of it. */
export function change({ id, etag }, what, body, method = 'POST') {
  const path = `organizations/${encodeURIComponent(id)}`
  return call(what === '' || what.startsWith('?') ? path + what : `${path}/${what}`, { method, etag, body })
}

/** `name: value` on each line. A null stays out of the dialog, and as it is. */
export function linesOf(members) {
  return Object.entries(members ?? {})
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}: ${value}`)
    .join('\n')
}

/** What stands in such lines, all as text. */
export function membersIn(lines) {
  const members = {}
  for (const line of lines.split('\n')) {
    const [, name, value] = /^\s*(\S+?)\s*[:=]\s*(.*?)\s*$/.exec(line) ?? []
    if (name) members[name] = value
    else if (line.trim() !== '') members[line.trim()] = ''
  }
  return members
}

/** Limits in such lines. What is no number goes as text: the answer says what is wrong. */
export function limitsIn(lines) {
  const numberOf = (name, value) =>
    /_usd/.test(name) || value === '' || Number.isNaN(Number(value)) ? value : Number(value)
  return Object.fromEntries(Object.entries(membersIn(lines)).map(([name, value]) => [name, numberOf(name, value)]))
}

/** A merge patch that makes `before` to `after`: what has gone is null. */
export function patchOf(before, after) {
  const gone = Object.keys(before ?? {}).filter(name => before[name] !== null && !(name in after))
  return { ...Object.fromEntries(gone.map(name => [name, null])), ...after }
}

export function field(id, label, value, more = {}) {
  const input = h('input', { id, value, autocomplete: 'off', ...more })
  return { node: h('p', {}, h('label', { for: id }, label), input), value: () => input.value.trim() }
}

export function area(id, label, value) {
  const input = h('textarea', { id, rows: '4', spellcheck: 'false' })
  input.value = value
  return { node: h('p', {}, h('label', { for: id }, label), input), value: () => input.value }
}

/** The id of something new. */
export function idField(label, proposed) {
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

/** @param choices [value, words] */
export function choice(id, label, choices, chosen) {
  const select = h(
    'select',
    { id, required: choices[0]?.[0] === '' },
    ...choices.map(([value, words]) => h('option', { value, selected: value === chosen }, words)),
  )
  return { node: h('p', {}, h('label', { for: id }, label), select), value: () => select.value }
}

const heading = title => h('h2', { id: 'dialog-title' }, title)
