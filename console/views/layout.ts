/** The frame of every page. */
import { html } from 'hono/html'
import { mayDo } from '../people/roles.ts'
import type { Answer, Html, MemberVisit, MenuEntry, Visit } from '../web/visit.ts'
import { NOTES } from './notes.ts'
import { button } from './parts.ts'

const HTML = { 'content-type': 'text/html; charset=utf-8' }

/** An answer that is a page. @param options `status` is 200 unless said otherwise */
export function page(
  visit: Visit,
  title: string,
  body: Html,
  options: { status?: number; headers?: Record<string, string>; scripts?: readonly string[] } = {},
): Answer {
  const { parts, url, fault } = visit
  const done = NOTES[url.searchParams.get('done') ?? '']
  const { assets, config } = parts
  const text = html`<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>${title} · ${config.name}</title>
    <link rel="icon" type="image/svg+xml" href="${assets.path('icon.svg')}" />
    <link rel="stylesheet" href="${assets.path('style.css')}" />
    <script type="module" src="${assets.path('page.mjs')}"></script>
    ${(options.scripts ?? []).map(name => html`<script type="module" src="${assets.path(name)}"></script>`)}
  </head>
  <body>
    <a class="skip" href="#main">Skip to the page</a>
    <header class="top">
      <a class="brand" href="/"><img src="${assets.path('icon.svg')}" alt="" width="22" height="22" />${config.name}</a>
      ${visit.session ? switcher(visit) : ''}
      <div class="who">
        <button id="theme" type="button" class="quiet" hidden>Theme</button>
        ${
          visit.session
            ? html`<a href="/account">${visit.session.who.email}</a>
              ${button(visit, '/sign-out', 'Sign out', { class: 'quiet' })}`
            : ''
        }
      </div>
    </header>
    ${menu(visit)}
    <main id="main" tabindex="-1">
      <h1>${title}</h1>
      ${fault ? html`<p class="alert bad" role="alert">${fault}</p>` : ''}
      ${done && !fault ? html`<p class="alert good" role="status">${done}</p>` : ''}
      ${body}
    </main>
  </body>
</html>`
  return { status: options.status ?? 200, headers: { ...HTML, ...options.headers }, body: text }
}

/** Who has one organization stays in it on the pages of the account, which belong to none. */
const organizationOf = (visit: Visit) =>
  (visit as Partial<MemberVisit>).organization ??
  (visit.memberships.length === 1 && /^\/account(\/|$)/.test(visit.url.pathname) ? visit.memberships[0] : undefined)

/** The organization that is shown, and the others. */
function switcher(visit: Visit): Html | string {
  const here = organizationOf(visit)
  const others = visit.memberships.filter(({ id }) => id !== here?.id)
  if (!here && others.length === 0) return ''
  if (others.length === 0) return html`<span class="organization">${here!.name}</span>`
  return html`<details class="organization">
    <summary>${here?.name ?? 'Organizations'}</summary>
    <ul>${others.map(({ id, name }) => html`<li><a href="/o/${id}">${name}</a></li>`)}</ul>
  </details>`
}

function menu(visit: Visit): Html | string {
  const { session, parts, url } = visit
  if (!session) return ''
  const here = organizationOf(visit)
  const entries = parts.menu.flatMap((entry): (MenuEntry & { href: string })[] => {
    if (entry.right === 'staff') return session.who.staff ? [{ ...entry, href: entry.path }] : []
    return here && mayDo(here.role, entry.right) ? [{ ...entry, href: `/o/${here.id}${entry.path}` }] : []
  })
  if (entries.length === 0) return ''
  // The longest path that this one begins with: /o/acme is the beginning of all of them.
  const current = entries
    .filter(({ href }) => url.pathname === href || url.pathname.startsWith(`${href}/`))
    .sort((a, b) => b.href.length - a.href.length)[0]
  return html`<nav class="menu" aria-label="Pages"><ul>${entries.map(
    entry =>
      html`<li><a href="${entry.href}"${entry === current ? html` aria-current="page"` : ''}>${entry.label}</a></li>`,
  )}</ul></nav>`
}
