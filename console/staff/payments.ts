/** Staff: the money of one organization. */
import { html } from 'hono/html'
import type { Selectable } from 'kysely'
import { droppedMetered } from '../billing/meters.ts'
import { openHold } from '../billing/moves.ts'
import { countOf, paymentsOf } from '../billing/payments.ts'
import { paymentsTable, usd } from '../billing/views.ts'
import type { CreditTable, MeteredTable, TierMoveTable } from '../db/tables.ts'
import { page } from '../views/layout.ts'
import { badge, button, empty, table, time } from '../views/parts.ts'
import type { Answer, Html, PersonVisit } from '../web/visit.ts'
import { HERE, liftButton, METERED, meteredCells, SHOWN } from './billing-views.ts'
import { tabs } from './index.ts'

export async function showPayments(visit: PersonVisit): Promise<Answer> {
  const { db, params } = visit
  const id = params['id']!
  const [rows, hold, moves, credits, customers, dropped] = await Promise.all([
    paymentsOf(db, id),
    openHold(db, id),
    db
      .selectFrom('tier_move')
      .selectAll()
      .where('organization', '=', id)
      .where('dropped', 'is', null)
      .orderBy('created', 'desc')
      .limit(SHOWN)
      .execute(),
    db
      .selectFrom('credit')
      .selectAll()
      .where('organization', '=', id)
      .where('amount', '<>', 0)
      .orderBy('created', 'desc')
      .limit(SHOWN)
      .execute(),
    db.selectFrom('customer').selectAll().where('organization', '=', id).orderBy('created').limit(SHOWN).execute(),
    droppedMetered(db, id).orderBy('dropped', 'desc').limit(SHOWN).execute(),
  ])
  const { arrived, counted } = countOf(rows)
  return page(
    visit,
    `Payments of ${id}`,
    html`${tabs(HERE)}
      <div class="card"><dl>
        <dt>Organization</dt><dd><a href="/staff/organizations/${encodeURIComponent(id)}">${id}</a></dd>
        <dt>Counts</dt><dd>${usd(counted)}</dd>
        <dt>Arrived</dt><dd>${usd(arrived)}</dd>
        <dt>At Stripe</dt><dd>${
          customers.length === 0 ? '–' : customers.map(({ customer }) => html`<code>${customer}</code> `)
        }</dd>
        <dt>Hold</dt><dd>${hold ? html`${hold.note}, ${time(hold.created)} ${liftButton(visit, hold)}` : 'none'}</dd>
      </dl></div>
      <section><h2>Payments</h2>${
        rows.length === 0 ? empty('Nothing has been paid yet.') : paymentsTable(rows.toReversed().slice(0, SHOWN))
      }</section>
      ${moves.length === 0 ? '' : movesPart(moves)}
      ${credits.length === 0 ? '' : creditsPart(credits)}
      ${dropped.length === 0 ? '' : droppedPart(visit, dropped)}`,
  )
}

const movesPart = (moves: readonly Selectable<TierMoveTable>[]): Html =>
  html`<section><h2>Tiers</h2>${table(
    'Tiers',
    ['When (UTC)', 'Plan', 'Why', '#Counted', 'At the gateway'],
    moves.map(({ created, from_plan, to_plan, because, counted, applied }) => [
      time(created),
      `${from_plan} → ${to_plan}`,
      because,
      usd(counted),
      applied === null ? badge('waits', 'warn') : time(applied),
    ]),
  )}</section>`

const creditsPart = (credits: readonly Selectable<CreditTable>[]): Html =>
  html`<section><h2>Balance</h2>${table(
    'Credits',
    ['When (UTC)', '#Amount', 'Of', 'At the gateway'],
    credits.map(({ created, amount, payment, given }) => [
      time(created),
      usd(amount),
      html`<code>${payment}</code>`,
      given === null ? badge('waits', 'warn') : time(given),
    ]),
  )}</section>`

const droppedPart = (visit: PersonVisit, dropped: readonly Selectable<MeteredTable>[]): Html =>
  html`<section><h2>Usage that was given up</h2>
    <p>Stripe did not take it, and its meters bill nothing of it. What is billed in another way stays in this list.</p>
    ${table(
      'Usage that was given up',
      [...METERED, 'What Stripe said', 'Given up', ''],
      dropped.map(event => [
        ...meteredCells(event),
        event.fault ?? '',
        time(event.dropped),
        button(visit, `${HERE}/metered/${event.id}/again`, 'Send it after all', { about: event.id }),
      ]),
    )}</section>`
