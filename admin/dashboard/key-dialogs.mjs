/** The dialogs that make, change, replace, revoke and delete a key. */
import { area, change, choice, field, idField, limitsIn, linesOf, patchOf } from './dialog.mjs'
import { h } from './dom.mjs'

const GRACES = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['168h', '7 days'],
  ['0', 'none: it ends at once'],
]

export class KeyDialogs {
  #dialog

  constructor(dialog) {
    this.#dialog = dialog
  }

  /** @param account { id, etag, keys } as it is shown */
  make(account) {
    const id = idField('Id of the new key', freeId(account.keys))
    const label = field('key-label', 'What it is for (may be empty)', '', { maxlength: '128' })
    this.#dialog.show(`Make a key of ${account.id}`, 'Make the key', [id.node, label.node], async () => {
      const named = label.value() === '' ? {} : { label: label.value() }
      const { body } = await change(account, 'keys', { id: id.value(), ...named })
      this.#dialog.tell(account, body, 'It works within a second.')
    })
  }

  /** Label, end, models and limits. Of the settings as they were shown, what is not in the dialog stays. */
  set(account, key) {
    const { label = '', expires = '', models = 'all', limits = {} } = account.keys.find(one => one.id === key).settings
    const named = field('key-label', 'What it is for', label, { maxlength: '128' })
    const ends = field('key-ends', 'When it ends, such as 2027-01-31T00:00:00Z; empty: never', expires ?? '')
    const which = field('key-models', 'Models, with commas between; all', [models].flat().join(', '))
    const narrow = area('key-limits', 'Limits, one a line, such as requests_per_minute: 10', linesOf(limits))
    this.#dialog.show(
      `Change ${key} of ${account.id}`,
      'Change the key',
      [named.node, ends.node, which.node, narrow.node],
      async () => {
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
            limits: patchOf(limits, limitsIn(narrow.value())),
          },
          'PATCH',
        )
        this.#dialog.done(`${key} is changed.`)
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
    this.#dialog.show(`Stage a replacement of ${key} of ${account.id}`, 'Stage the key', parts, async () => {
      const {
        status: _,
        expires: _end,
        hint: _hint,
        creator: _who,
        created: _when,
        ...own
      } = account.keys.find(one => one.id === key).settings
      const { body } = await change(account, 'keys', { ...own, id: id.value(), status: 'staged' })
      this.#dialog.tell(account, body, `${key} works until it is revoked.`)
    })
  }

  delete(account, key) {
    const words = `It is revoked, as far as it is not, and leaves all lists. Ledger rows and audit stay. The id ${key} is not given again. This cannot be undone.`
    const act = async () => {
      await change(account, path(key), undefined, 'DELETE')
      this.#dialog.done(`${key} is deleted.`)
    }
    this.#dialog.show(`Delete ${key} of ${account.id}?`, `Delete ${key}`, [h('p', {}, words)], act, 'danger')
  }

  rotate(account, key) {
    const id = idField('Id of the new key', freeId(account.keys))
    const grace = choice('grace', 'How long the replaced key still works', GRACES, '24h')
    const parts = [
      h('p', {}, 'A new key takes the place of this one, which goes on working for a while.'),
      id.node,
      grace.node,
    ]
    this.#dialog.show(`Rotate ${key} of ${account.id}`, 'Rotate the key', parts, async () => {
      const { body } = await change(account, `${path(key)}/rotate`, { id: id.value(), grace: grace.value() })
      this.#dialog.tell(account, body, `${key} ends after the time that you chose.`)
    })
  }

  revoke(account, key) {
    const words =
      'New requests with it answer 401 within a second; replies that are running go on to their end. This cannot be undone.'
    const act = async () => {
      await change(account, `${path(key)}/revoke`)
      this.#dialog.done(`${key} is revoked.`)
    }
    this.#dialog.show(`Revoke ${key} of ${account.id}?`, `Revoke ${key}`, [h('p', {}, words)], act, 'danger')
  }

  activate(account, key) {
    const act = async () => {
      await change(account, `${path(key)}/activate`)
      this.#dialog.done(`${key} is active.`)
    }
    this.#dialog.show(
      `Activate ${key} of ${account.id}?`,
      `Activate ${key}`,
      [h('p', {}, 'It works within a second.')],
      act,
    )
  }
}

const path = key => `keys/${encodeURIComponent(key)}`

/** `key_3` when the organization has `key_1` and `key_2`. */
function freeId(keys) {
  let n = keys.length + 1
  while (keys.some(({ id }) => id === `key_${n}`)) n++
  return `key_${n}`
}
