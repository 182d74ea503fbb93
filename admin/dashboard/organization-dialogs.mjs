/** The dialogs that make, change, disable, enable and delete an organization. */
import { call } from './api.mjs'
import { area, change, choice, field, idField, limitsIn, linesOf, membersIn, patchOf } from './dialog.mjs'
import { h } from './dom.mjs'

const GRACES = [
  ['30d', '30 days'],
  ['7d', '7 days'],
  ['0', 'none: at once'],
]
const LIMITS = 'Limits beside those of the plan, one a line, such as daily_spend_usd: 9.50'

export class OrganizationDialogs {
  #dialog
  #failed

  /** @param failed called with a fault before a dialog opens */
  constructor(dialog, failed) {
    this.#dialog = dialog
    this.#failed = failed
  }

  /** @param made called with its id */
  async make(made) {
    const plans = await this.#plans()
    if (!plans) return
    const id = idField('Id of the new organization', '')
    const named = field('org-name', 'Its name, for people (may be empty)', '', { maxlength: '256' })
    // Nobody is put on a plan that was not chosen: the first of the file may be one that refuses what has a price.
    const plan = choice('org-plan', 'Plan', [['', 'Choose a plan'], ...plans], '')
    const limits = area('org-limits', LIMITS, '')
    const parts = [id.node, named.node, plan.node, limits.node]
    this.#dialog.show('Make an organization', 'Make the organization', parts, async () => {
      const more = named.value() === '' ? {} : { name: named.value() }
      const own = limitsIn(limits.value())
      if (Object.keys(own).length > 0) more.limits = own
      await call('organizations', { method: 'POST', body: { id: id.value(), plan: plan.value(), ...more } })
      this.#dialog.done(`${id.value()} is made.`)
      made(id.value())
    })
  }

  /** Name, plan, metadata and limits. Of the settings as they were shown, what is not in the dialog stays. */
  async set(account) {
    const plans = await this.#plans()
    if (!plans) return
    const { name = '', plan: current, metadata = {}, limits = {} } = account.settings
    // A plan that has gone from the file stays until somebody chooses another.
    const known = plans.some(([value]) => value === current) ? plans : [[current, current], ...plans]
    const named = field('org-name', 'Its name, for people', name, { maxlength: '256' })
    const plan = choice('org-plan', 'Plan', known, current)
    const notes = area('org-metadata', 'Metadata, one a line, such as customer: cus_17', linesOf(metadata))
    const narrow = area('org-limits', LIMITS, linesOf(limits))
    const parts = [named.node, plan.node, notes.node, narrow.node]
    this.#dialog.show(`Change ${account.id}`, 'Change the organization', parts, async () => {
      const patch = {
        name: named.value() || null,
        plan: plan.value(),
        metadata: patchOf(metadata, membersIn(notes.value())),
        limits: patchOf(limits, limitsIn(narrow.value())),
      }
      await change(account, '', patch, 'PATCH')
      this.#dialog.done(`${account.id} is changed.`)
    })
  }

  disable(account) {
    const words = 'Its keys answer 401 within a second; replies that are running go on to their end.'
    this.#status(account, 'disabled', `Disable ${account.id}`, words, 'danger')
  }

  enable(account) {
    const words = 'Its keys work within a second. A deletion that has not come to its end is taken back.'
    this.#status(account, 'active', `Enable ${account.id}`, words)
  }

  #status(account, status, title, words, kind) {
    const act = async () => {
      await change(account, '', { status }, 'PATCH')
      this.#dialog.done(`${account.id} is ${status}.`)
    }
    this.#dialog.show(`${title}?`, title, [h('p', {}, words)], act, kind)
  }

  delete(account) {
    const words = `It is disabled at once. After the time that you choose it is removed with its keys, levels, retained responses and idempotency records; until then it can be enabled again. Ledger rows, credits and audit stay. The id ${account.id} is not given again.`
    const grace = choice('grace', 'When it is removed', GRACES, '30d')
    const parts = [h('p', {}, words), grace.node]
    const act = async () => {
      await change(account, `?grace=${grace.value()}`, undefined, 'DELETE')
      this.#dialog.done(`${account.id} is deleted.`)
    }
    this.#dialog.show(`Delete ${account.id}?`, `Delete ${account.id}`, parts, act, 'danger')
  }

  /** The plans of the gateway as choices; undefined where they cannot be read. */
  async #plans() {
    try {
      const { plans } = (await call('plans')).body
      return plans.map(({ id }) => [id, id])
    } catch (fault) {
      this.#failed(fault)
    }
  }
}
