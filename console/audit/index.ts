/** Audit: who did what in an organization. */
import { html } from 'hono/html'
import { personOf } from '../gateway.ts'
import { page } from '../views/layout.ts'
import { empty, table, time } from '../views/parts.ts'
import { type Answer, get, type MemberVisit, type Page } from '../web/visit.ts'
import { CONSOLE, OPERATOR, ofEvent, ofGateway, peopleOf } from './entries.ts'

export const audit: Page = {
  name: 'audit',
  menu: { label: 'Audit', path: '/audit', right: 'audit' },
  routes: [get.member('/audit', 'audit', show)],
}

const SHOWN = 50

async function show(visit: MemberVisit): Promise<Answer> {
  const { db, gateway, organization, url } = visit
  // Each source has its own place, from which the next page goes on.
  const places = { console: url.searchParams.get('c') ?? '', gateway: url.searchParams.get('g') ?? '' }
  const own = db.selectFrom('event').selectAll().where('organization', '=', organization.id)
  const [events, { entries }] = await Promise.all([
    (places.console === '' ? own : own.where('id', '<', places.console))
      .orderBy('id', 'desc')
      .limit(SHOWN + 1)
      .execute(),
    gateway.audit({ limit: String(SHOWN + 1), ...(places.gateway !== '' && { before: places.gateway }) }),
  ])
  const actors = entries.map(({ actor }) => personOf(actor))
  const people = await peopleOf(db, organization.id, [...events.map(({ person }) => person), ...actors])
  const all = [
    ...events.map(event => ofEvent(event, event.person === null ? CONSOLE : people(event.person))),
    ...entries.map((entry, i) => ofGateway(entry, actors[i] == null ? OPERATOR : people(actors[i]))),
  ].sort((a, b) => b.time - a.time)
  const shown = all.slice(0, SHOWN)
  for (const { source, id } of shown) places[source] = id
  const next = new URLSearchParams({ c: places.console, g: places.gateway })
  return page(
    visit,
    'Audit',
    shown.length === 0
      ? empty('Nothing has happened yet.')
      : html`${table(
          'What happened',
          ['When (UTC)', 'Who', 'What', 'From'],
          shown.map(({ time: when, who, what, detail, address }) => [
            time(when),
            who,
            html`${what} ${detail ? html`<span class="muted">${detail}</span>` : ''}`,
            html`<code>${address}</code>`,
          ]),
        )}${all.length > SHOWN ? html`<p><a href="?${next.toString()}">Older</a></p>` : ''}`,
  )
}
