/** Pieces of pages. Texts are escaped by `html`; nothing here takes markup from outside. */
import { html } from 'hono/html'
import type { Html, Visit } from '../web/visit.ts'

/** A form that is sent to this console, with its token. @param body its fields and its button */
export function form(visit: Visit, action: string, body: Html, options: { class?: string } = {}): Html {
  return html`<form method="post" action="${action}" class="${options.class ?? ''}">
    <input type="hidden" name="form" value="${visit.formToken}" />${body}</form>`
}

/** A form that is a button alone. @param fields hidden ones */
export function button(
  visit: Visit,
  action: string,
  label: string,
  options: { class?: string; fields?: Record<string, string>; about?: string } = {},
): Html {
  const about = options.about === undefined ? '' : html`<span class="hidden"> ${options.about}</span>`
  return form(
    visit,
    action,
    html`${Object.entries(options.fields ?? {}).map(
      ([name, value]) => html`<input type="hidden" name="${name}"
      value="${value}" />`,
    )}
      <button type="submit" class="${options.class ?? ''}">${label}${about}</button>`,
    { class: 'inline' },
  )
}

export interface Input {
  name: string
  label: string
  value?: string | null | undefined
  type?: 'text' | 'email' | 'number' | 'date' | 'search'
  hint?: string
  required?: boolean
  /** Further attributes: names are ours, values are escaped. */
  more?: Record<string, string>
}

export function input({ name, label, value, type = 'text', hint, required = false, more = {} }: Input): Html {
  const id = `field-${name}`
  const described = hint === undefined ? '' : html` aria-describedby="${id}-hint"`
  return html`<div class="field">
    <label for="${id}">${label}</label>
    <input id="${id}" name="${name}" type="${type}" value="${value ?? ''}"${required ? html` required` : ''}${described}
      ${Object.entries(more).map(([key, text]) => html` ${key}="${text}"`)} />
    ${hint === undefined ? '' : html`<small id="${id}-hint">${hint}</small>`}
  </div>`
}

/** The address of somebody who is invited. */
export const invitedInput = (value: string | null) =>
  input({ name: 'email', label: 'Address', type: 'email', value, required: true, more: { autocomplete: 'off' } })

export interface Select {
  name: string
  label: string
  options: readonly (readonly [value: string, label: string])[]
  value?: string | null | undefined
  hint?: string
  /** Not shown, but read by a screen reader. */
  quiet?: boolean
  /** Tells several of one name on a page apart. */
  about?: string
}

export function select({ name, label, options, value, hint, quiet = false, about }: Select): Html {
  const id = `field-${name}${about === undefined ? '' : `-${about.replace(/[^A-Za-z0-9_-]/g, '_')}`}`
  return html`<div class="field">
    <label for="${id}" class="${quiet ? 'hidden' : ''}">${label}${about === undefined ? '' : ` ${about}`}</label>
    <select id="${id}" name="${name}">
      ${options.map(
        ([option, text]) => html`<option value="${option}"${option === value ? html` selected` : ''}>${text}</option>`,
      )}
    </select>
    ${hint === undefined ? '' : html`<small>${hint}</small>`}
  </div>`
}

export function checkbox(name: string, value: string, label: string, checked: boolean): Html {
  return html`<label class="check"><input type="checkbox" name="${name}" value="${value}"${
    checked ? html` checked` : ''
  } />
    ${label}</label>`
}

/**
 * What the script passkey.mjs shows where the browser can: a button, which adds a passkey of who is signed in (`add`)
 * or signs in with one (`use`). @param body the button, with what stands before it. @param next where to go then
 */
export function passkey(visit: Visit, way: 'add' | 'use', body: Html, next = '/'): Html {
  return html`<p id="passkey" class="row" hidden data-way="${way}" data-form="${visit.formToken}" data-next="${next}">
    ${body} <span role="status"></span></p>`
}

/** What needs a second thought: opened, and then confirmed. It works without a script. */
export function confirm(
  visit: Visit,
  summary: string,
  words: Html | string,
  action: string,
  label: string,
  fields: Record<string, string> = {},
): Html {
  return html`<details class="confirm">
    <summary>${summary}</summary>
    <div class="card">
      <p>${words}</p>
      ${button(visit, action, label, { class: 'danger', fields })}
    </div>
  </details>`
}

/** A table. @param heads of its columns; `#` before one sets its cells to the right */
export function table(caption: string, heads: readonly string[], rows: readonly (readonly (Html | string)[])[]): Html {
  const right = heads.map(head => head.startsWith('#'))
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${caption}"><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${heads.map(
      (head, i) =>
        html`<th scope="col" class="${right[i] ? 'number' : ''}">${
          head === '' ? html`<span class="hidden">Actions</span>` : head.replace(/^#/, '')
        }</th>`,
    )}</tr></thead>
    <tbody>${rows.map(
      cells =>
        html`<tr>${cells.map(
          (cell, i) =>
            html`<td data-head="${heads[i]!.replace(/^#/, '')}" class="${right[i] ? 'number' : ''}">${cell}</td>`,
        )}</tr>`,
    )}</tbody>
  </table></div>`
}

/** How much of a limit is used: a bar with its words. */
export function meter(label: string, used: number, capacity: number, words: string): Html {
  const share = capacity > 0 ? Math.min(1, used / capacity) : 1
  const level = share >= 1 ? 'full' : share >= 0.8 ? 'high' : 'low'
  return html`<div class="meter ${level}">
    <span class="name">${label}</span><span class="words">${words}</span>
    <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
      <rect class="back" width="100" height="4" /><rect class="used" width="${(share * 100).toFixed(2)}" height="4" />
    </svg>
  </div>`
}

export const badge = (word: string, kind: 'good' | 'warn' | 'bad' | 'plain' = 'plain'): Html =>
  html`<span class="badge ${kind}">${word}</span>`

/** Nothing is here yet: why, and what to do. */
export const empty = (words: Html | string): Html => html`<p class="empty">${words}</p>`

/** A moment of time, in UTC, with the machine's form beside it. */
export function time(ms: number | null | undefined, precise = true): Html | string {
  if (ms === null || ms === undefined) return '–'
  const iso = new Date(ms).toISOString()
  const words = precise ? `${iso.slice(0, 10)} ${iso.slice(11, 16)}` : iso.slice(0, 10)
  return html`<time datetime="${iso}">${words}</time>`
}

/** A count with thin groups of three: 12 345. */
export const count = (value: number): string => value.toLocaleString('en-US')

/** USD as people read it: two digits, more where it is less than a cent. @param text decimal */
export function dollars(text: string | number): string {
  const value = Number(text)
  const small = value !== 0 && Math.abs(value) < 0.01
  return `$${value.toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: small ? 6 : 2 })}`
}
