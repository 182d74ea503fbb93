/** The members of a key in a form: label, end, models, limits. */
import { html } from 'hono/html'
import type { Key } from '../gateway.ts'
import { nameOf } from '../people/email.ts'
import { input, select } from '../views/parts.ts'
import { type Form, FormFault, type Html } from '../web/visit.ts'

/** Limits that a customer may put on a key. Those of the organization hold as well, so that these only narrow. */
const LIMITS = [
  ['daily_spend_usd', 'Spend a day, USD'],
  ['monthly_spend_usd', 'Spend a month, USD'],
  ['requests_per_minute', 'Requests a minute'],
  ['tokens_per_minute', 'Tokens a minute'],
  ['concurrent_requests', 'Requests at a time'],
] as const

const isMoney = (name: string) => name.endsWith('_usd')

export interface KeyMembers {
  label: string | null
  /** ISO 8601; not set where the end stays as it is. */
  expires?: string | null
  models: string[] | null
  limits: Record<string, number | string | null>
}

/** @param sent the form as it was sent, when it is shown again. @param key what it is now, of one that is changed */
export function keyFields(sent: Form, key?: Key): Html {
  const settings = key?.settings ?? {}
  const was = (name: string, now: unknown) => sent.get(name) ?? (now === undefined || now === null ? '' : String(now))
  const models = Array.isArray(settings['models']) ? settings['models'].join(', ') : ''
  return html`
    ${input({
      name: 'label',
      label: 'Label',
      value: was('label', settings['label']),
      hint: 'What it is for, such as “CI”.',
      more: { maxlength: '128' },
    })}
    ${input({
      name: 'expires',
      label: 'Ends on',
      type: 'date',
      value: was('expires', key && dayOf(key)),
      hint: 'At the end of that day, UTC. Empty: never.',
    })}
    <details class="more"${models !== '' || settings['limits'] ? html` open` : ''}>
      <summary>Models and limits</summary>
      ${input({
        name: 'models',
        label: 'Models',
        value: was('models', models),
        hint: 'With commas between. Empty: all that your plan has.',
      })}
      <p class="muted">Limits of the organization hold as well. Empty: no other limit for this key.</p>
      <div class="meters">${LIMITS.map(([name, label]) =>
        input({
          name,
          label,
          type: 'number',
          value: was(name, settings['limits']?.[name]),
          more: { min: '0', step: isMoney(name) ? '0.01' : '1' },
        }),
      )}</div>
    </details>`
}

/** The day on which a key ends, in UTC; '' for one without an end. */
const dayOf = ({ expires }: Key) => (expires === null ? '' : new Date(expires).toISOString().slice(0, 10))

/**
 * @param key what it is now, of one that is changed
 * @throws FormFault for a field that is not as it must be
 */
export function readKeyFields(sent: Form, now: number, key?: Key): KeyMembers {
  const text = (name: string) => (sent.get(name) ?? '').trim()
  const label = text('label') === '' ? null : nameOf(text('label'), 128)
  if (label === null && text('label') !== '') throw new FormFault('the label has at most 128 characters')
  const models = text('models')
    .split(',')
    .map(model => model.trim())
    .filter(Boolean)
  const limits = LIMITS.map(([name, words]) => {
    const value = text(name)
    if (value === '') return [name, null] as const
    if (!(isMoney(name) ? /^\d{1,9}(\.\d{1,6})?$/ : /^\d{1,12}$/).test(value))
      throw new FormFault(
        `${words}: write ${isMoney(name) ? 'an amount such as 25.00' : 'a whole number'}, or leave it empty`,
      )
    return [name, isMoney(name) ? value : Number(value)] as const
  })
  const day = text('expires')
  return {
    label,
    // A key may end within a day, as a replaced one does. The form shows the day alone, and sends it back with a label.
    ...((!key || day !== dayOf(key)) && { expires: endOf(day, now) }),
    models: models.length === 0 ? null : models,
    limits: Object.fromEntries(limits),
  }
}

/** The end of a day in UTC. */
function endOf(day: string, now: number): string | null {
  if (day === '') return null
  const end = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T23:59:59Z`) : Number.NaN
  if (Number.isNaN(end)) throw new FormFault('the end is no date; write one such as 2027-01-31, or leave it empty')
  if (end <= now) throw new FormFault('the end is in the past; choose a later day, or leave it empty')
  return new Date(end).toISOString()
}

const GRACES = [
  ['24h', 'after 24 hours'],
  ['168h', 'after 7 days'],
  ['1h', 'after one hour'],
  ['staged', 'when I revoke it'],
  ['0', 'at once'],
] as const

export const graceField = (): Html =>
  select({ name: 'grace', label: 'The old key ends', options: GRACES, value: '24h' })

/** @throws FormFault for a grace that the form does not offer */
export function readGrace(sent: Form): string {
  const grace = sent.get('grace')
  if (!GRACES.some(([value]) => value === grace)) throw new FormFault('choose when the old key ends')
  return grace!
}
