/** Keys: list, make, replace in stages, change, revoke, delete. */
import { randomBytes } from 'node:crypto'
import { html } from 'hono/html'
import { type Key, personOf } from '../gateway.ts'
import { limitMeters } from '../limits/meters.ts'
import { membersOf } from '../people/memberships.ts'
import { page } from '../views/layout.ts'
import { badge, button, confirm, empty, form, table, time } from '../views/parts.ts'
import { type Answer, get, type Html, type MemberVisit, type Page, post, Refusal, see } from '../web/visit.ts'
import { graceField, keyFields, readGrace, readKeyFields } from './fields.ts'

export const keys: Page = {
  name: 'keys',
  menu: { label: 'Keys', path: '/keys', right: 'keys.see' },
  routes: [
    get.member('/keys', 'keys.see', list),
    get.member('/keys/new', 'keys.change', showNew),
    post.member('/keys/new', 'keys.change', make, showNew),
    get.member('/keys/:key', 'keys.see', show),
    post.member('/keys/:key', 'keys.change', change, show),
    post.member('/keys/:key/replace', 'keys.change', replace, show),
    post.member('/keys/:key/revoke', 'keys.change', revoke, show),
    post.member('/keys/:key/activate', 'keys.change', activate, show),
    post.member('/keys/:key/delete', 'keys.change', remove, show),
  ],
}

const pathOf = ({ organization }: MemberVisit, id?: string) =>
  `/o/${organization.id}/keys${id === undefined ? '' : `/${encodeURIComponent(id)}`}`

/**
 * An id for the key that a form makes. It stands in the form, so that sending the form twice makes one key; the
 * gateway tells the repetition by it.
 */
const newKeyId = () => `key_${randomBytes(8).toString('hex')}`
const KEY_ID = /^key_[0-9a-f]{16}$/

function readKeyId({ form: sent }: MemberVisit): string {
  const id = sent.get('id') ?? ''
  if (!KEY_ID.test(id)) throw new Refusal(400, 'This form is not complete. Go back, reload and try again.')
  return id
}

// ---- the list -------------------------------------------------------------------------------------------------------

async function list(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization, db, now } = visit
  const [all, members] = await Promise.all([gateway.keys(), membersOf(db, organization.id)])
  const names = new Map(members.map(({ person, name, email }) => [person, name || email]))
  const change = visit.may('keys.change')
  const shown = all.sort((a, b) => rank(a, now) - rank(b, now) || (b.created ?? '').localeCompare(a.created ?? ''))
  const make = change ? html`<a class="button main" href="${pathOf(visit)}/new">Make a key</a>` : ''
  return page(
    visit,
    'Keys',
    html`<div class="head"><p class="muted">A key lets a program use the API. Keys are shown once, when they are
      made.</p>${make}</div>
    ${
      all.length === 0
        ? empty(change ? 'There is no key yet. Make one to send the first request.' : 'There is no key yet.')
        : table(
            'Keys',
            ['Key', 'Status', 'Made by', 'Last used (UTC)', 'Ends (UTC)'],
            shown.map(key => [
              html`<a href="${pathOf(visit, key.id)}">${key.label ?? key.id}</a>
                ${key.hint ? html`<br /><code class="muted">…${key.hint}</code>` : ''}`,
              statusOf(key, now),
              makerOf(key, names),
              lastUseOf(key),
              key.expires ? time(Date.parse(key.expires)) : 'never',
            ]),
          )
    }`,
  )
}

const isOver = ({ expires }: Key, now: number) => expires !== null && Date.parse(expires) <= now
const works = (key: Key, now: number) => key.status !== 'revoked' && !isOver(key, now)
const rank = (key: Key, now: number) => (works(key, now) ? 0 : 1)

function statusOf(key: Key, now: number): Html {
  if (key.status === 'revoked') return badge('revoked', 'bad')
  if (isOver(key, now)) return badge('ended', 'bad')
  if (key.status === 'staged') return badge('staged', 'warn')
  return key.expires ? badge('active until its end', 'warn') : badge('active', 'good')
}

/** The gateway knows the hour alone, so that this begins before the use, and may begin before the key. */
function lastUseOf({ last_used }: Key): Html | string {
  if (last_used === null) return 'never'
  const hour = new Date(last_used).getUTCHours()
  return html`<time datetime="${last_used}">${last_used.slice(0, 10)}, ${clock(hour)} to ${clock(hour + 1)}</time>`
}

const clock = (hour: number) => `${String(hour).padStart(2, '0')}:00`

function makerOf({ creator }: Key, names: ReadonlyMap<string, string>): string {
  const person = personOf(creator)
  return person === null ? 'the operator' : (names.get(person) ?? 'a former member')
}

// ---- making one -----------------------------------------------------------------------------------------------------

function showNew(visit: MemberVisit): Answer {
  const { form: sent } = visit
  const id = KEY_ID.test(sent.get('id') ?? '') ? sent.get('id')! : newKeyId()
  return page(
    visit,
    'Make a key',
    html`<div class="card narrow">
      ${form(
        visit,
        `${pathOf(visit)}/new`,
        html`<input type="hidden" name="id" value="${id}" />${keyFields(sent)}
          <button type="submit" class="main">Make the key</button>`,
      )}
    </div>`,
  )
}

async function make(visit: MemberVisit): Promise<Answer> {
  const { gateway, form: sent, now } = visit
  const id = readKeyId(visit)
  const { limits, ...members } = readKeyFields(sent, now)
  const set = Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== null))
  const given = Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null))
  const secret = await gateway.createKey(id, { ...given, ...(Object.keys(set).length > 0 && { limits: set }) })
  return showSecret(visit, 'Your new key', id, secret)
}

/** The only page that has a secret. It is an answer to a form, so that no address shows it again. */
function showSecret(visit: MemberVisit, title: string, id: string, secret: string | null, words = ''): Answer {
  const { api } = visit.parts.config.gateway
  const { model } = visit.parts.config
  if (secret === null)
    return page(
      visit,
      title,
      html`<p>This key was made before, and its secret has been shown. If you do not have it, delete the key and make
        another.</p><p><a class="button" href="${pathOf(visit, id)}">Go to the key</a></p>`,
    )
  const example = `curl -N ${api}/chat/completions \\
  -H 'Authorization: Bearer ${secret}' \\
  -H 'Content-Type: application/json' \\
  -d '{"model":"${model}","stream":true,"messages":[{"role":"user","content":"Hello"}]}'`
  return page(
    visit,
    title,
    html`<p>Copy it now: it is not shown again. ${words}</p>
      <div class="secret"><code id="secret">${secret}</code><button type="button" data-copy="secret"
        hidden>Copy the key</button></div>
      <section><div class="head"><h2>Send a request with it</h2><button type="button" data-copy="example"
        hidden>Copy the request</button></div>
        <p>Paste the request into a terminal: the reply comes as a stream. The request is then listed under
          <a href="/o/${visit.organization.id}/requests">Requests</a>.</p>
        <pre id="example">${example}</pre></section>
      <section><a class="button main" href="${pathOf(visit)}">Go to the keys</a></section>`,
  )
}

// ---- one key --------------------------------------------------------------------------------------------------------

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization, params, db, now, form: sent } = visit
  const key = await gateway.key(params['key']!)
  const members = await membersOf(db, organization.id)
  const names = new Map(members.map(({ person, name, email }) => [person, name || email]))
  const path = pathOf(visit, key.id)
  const mayChange = visit.may('keys.change')
  return page(
    visit,
    key.label ?? key.id,
    html`<div class="card"><dl>
        <dt>Status</dt><dd>${statusOf(key, now)}</dd>
        <dt>Id</dt><dd><code>${key.id}</code></dd>
        ${key.hint ? html`<dt>Secret</dt><dd><code>…${key.hint}</code></dd>` : ''}
        <dt>Made by</dt><dd>${makerOf(key, names)}, ${
          key.created ? html`${time(Date.parse(key.created))} UTC` : 'some time ago'
        }</dd>
        <dt>Last used</dt><dd>${lastUseOf(key)}${key.last_used ? ' UTC' : ''}</dd>
        <dt>Ends</dt><dd>${key.expires ? html`${time(Date.parse(key.expires))} UTC` : 'never'}</dd>
        <dt>Models</dt><dd>${key.models === 'all' ? 'all' : key.models.join(', ')}</dd>
      </dl></div>
    ${
      key.limits && key.limits.length > 0
        ? html`<section><h2>Its limits now</h2><div
      class="card">${limitMeters(key.limits)}</div></section>`
        : ''
    }
    ${
      mayChange && works(key, now)
        ? html`<section class="card narrow"><h2>Change it</h2>
            ${form(visit, path, html`${keyFields(sent, key)}<button type="submit">Save</button>`)}
          </section>
          <section class="card narrow"><h2>Replace it</h2>
            <p class="muted">A new key with its label, models and limits. Both work until the old one ends.</p>
            ${form(
              visit,
              `${path}/replace`,
              html`<input type="hidden" name="id" value="${newKeyId()}"
              />${graceField()}<button type="submit">Make the new key</button>`,
            )}
          </section>`
        : ''
    }
    ${
      mayChange
        ? html`<section>
            ${
              key.status === 'staged' && works(key, now)
                ? button(visit, `${path}/activate`, 'Activate', { about: key.id })
                : ''
            }
            ${
              works(key, now)
                ? confirm(
                    visit,
                    'Revoke it',
                    'Requests with this key are refused from now on. This cannot be undone.',
                    `${path}/revoke`,
                    'Revoke the key',
                  )
                : ''
            }
            ${confirm(
              visit,
              'Delete it',
              'The key is revoked and leaves the list. What it used stays in usage and bills. This cannot be undone.',
              `${path}/delete`,
              'Delete the key',
            )}
          </section>`
        : ''
    }`,
  )
}

async function change(visit: MemberVisit): Promise<Answer> {
  const { gateway, params, form: sent, now } = visit
  const id = params['key']!
  await gateway.changeKey(id, { ...readKeyFields(sent, now, await gateway.key(id)) })
  return see(pathOf(visit, id), 'key-changed')
}

async function replace(visit: MemberVisit): Promise<Answer> {
  const { gateway, params, form: sent } = visit
  const [old, id, grace] = [params['key']!, readKeyId(visit), readGrace(sent)]
  if (grace !== 'staged') {
    const secret = await gateway.rotateKey(old, id, grace)
    return showSecret(
      visit,
      'The new key',
      id,
      secret,
      grace === '0' ? 'The old one has ended.' : 'The old one still works.',
    )
  }
  // What a rotation hands on, without an end of the old key.
  const { settings } = await gateway.key(old)
  const { status, expires, hint, creator, created, ...own } = settings ?? {}
  const secret = await gateway.createKey(id, { ...own, status: 'staged' })
  return showSecret(visit, 'The new key', id, secret, 'When your programs use it, revoke the old one.')
}

async function revoke(visit: MemberVisit): Promise<Answer> {
  const id = visit.params['key']!
  await visit.gateway.revokeKey(id)
  return see(pathOf(visit, id), 'key-revoked')
}

async function activate(visit: MemberVisit): Promise<Answer> {
  const id = visit.params['key']!
  await visit.gateway.activateKey(id)
  return see(pathOf(visit, id), 'key-activated')
}

async function remove(visit: MemberVisit): Promise<Answer> {
  await visit.gateway.deleteKey(visit.params['key']!)
  return see(pathOf(visit), 'key-deleted')
}
