/** The first page of an organization: notices, what it spent, how near its limits are, and the first request. */
import { html } from 'hono/html'
import { tierLine } from '../billing/index.ts'
import { limitMeters } from '../limits/meters.ts'
import { spendChart } from '../usage/chart.ts'
import { barsOf, queryOf, rangeOf } from '../usage/range.ts'
import { page } from '../views/layout.ts'
import { dollars } from '../views/parts.ts'
import { type Answer, get, type MemberVisit, type Page } from '../web/visit.ts'
import { notices } from './notices.ts'

export const overview: Page = {
  name: 'overview',
  menu: { label: 'Overview', path: '', right: 'overview' },
  routes: [get.member('', 'overview', show)],
}

async function show(visit: MemberVisit): Promise<Answer> {
  const { gateway, organization: here, parts } = visit
  const range = rangeOf(new URLSearchParams(), visit.now)
  const [stands, days] = await Promise.all([
    gateway.organization(),
    visit.may('usage') ? gateway.usage({ ...queryOf(range), group_by: 'day' }) : [],
  ])
  const { plan, status, limits, spend_usd, keys } = stands
  const spend = days.map(sum => ({ time: sum.day!, usd: Number(sum.cost_usd) }))
  const live = keys.filter(key => key.status !== 'revoked')
  const monthly = limits.find(({ dimension, per, model }) => dimension === 'spend' && per === 'month' && !model)
  const near = limits.filter(({ used, capacity }) => used >= 0.5 * capacity)
  const path = `/o/${here.id}`
  const { api } = parts.config.gateway
  return page(
    visit,
    here.name,
    html`${
      status === 'disabled'
        ? html`<p class="alert bad" role="status">This organization is disabled: its keys do not work.</p>`
        : ''
    }
    ${await notices(visit, stands)}
    <div class="cards">
      <div class="card"><h2>Spend this month</h2><span class="figure">${
        spend_usd ? dollars(spend_usd.month) : '–'
      }</span>
        <span class="muted">${monthly ? `of ${dollars(monthly.capacity_usd!)}` : 'without a limit'}; today
          ${spend_usd ? dollars(spend_usd.day) : '–'}</span></div>
      <div class="card"><h2>Plan</h2><span class="figure">${plan}</span>
        ${visit.may('billing.see') ? await tierLine(visit, plan) : ''}
        ${visit.may('limits') ? html`<a href="${path}/limits">Its limits</a>` : ''}</div>
      <div class="card"><h2>Keys</h2><span class="figure">${live.length}</span>
        ${visit.may('keys.see') ? html`<a href="${path}/keys">All keys</a>` : ''}</div>
    </div>
    ${
      live.length === 0 && visit.may('keys.change')
        ? html`<section class="card"><h2>Send the first request</h2>
            <ol><li><a href="${path}/keys/new">Make a key</a>. The page that shows it has a request to copy.</li>
            <li>Paste the request into a terminal. Or use a library: with the base URL <code>${api}</code> for
              OpenAI’s (Responses, Chat Completions), and <code>${api.replace(/\/v1$/, '')}</code> for Anthropic’s
              (Messages).</li></ol></section>`
        : ''
    }
    ${
      spend.length > 0
        ? html`<section class="card"><div class="head"><h2>Spend in the last 30 days</h2><a
          href="${path}/usage">Usage</a></div>
            ${spendChart('day', barsOf(range, 'day'), spend)}</section>`
        : ''
    }
    ${
      near.length > 0
        ? html`<section><h2>Limits that are half used and more</h2><div
      class="card">${limitMeters(near)}</div></section>`
        : ''
    }`,
  )
}
