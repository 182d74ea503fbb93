/**
 * What the notices by mail are about, as it stands now: for the first page, out of what that page has anyway. Nothing
 * is kept of it, so that it goes by itself when the limit is higher, the key has another end, or the hold is lifted.
 */
import { html } from 'hono/html'
import { openHold } from '../billing/moves.ts'
import type { Key, Limit, Organization } from '../gateway.ts'
import { warningOf } from '../notices/keys.ts'
import { dollars, time } from '../views/parts.ts'
import type { Html, MemberVisit } from '../web/visit.ts'

/** In percent of a spend limit: as the gateway's notices of spend. */
const STEPS = [100, 80, 50] as const
/** The keys that are named; of more the page says how many there are. */
const MOST_KEYS = 5

/** The section, or nothing where there is nothing to say. */
export async function notices(visit: MemberVisit, { plan, limits, keys }: Organization): Promise<Html | ''> {
  const live = keys.filter(({ status }) => status !== 'revoked')
  const spend = [
    ...spentOf(visit, limits, 'the organization'),
    ...live.flatMap(key => spentOf(visit, key.limits ?? [], html`the key ${nameOf(visit, key)}`)),
  ]
  const lines = [...(await holdOf(visit, plan)), ...spend, ...(visit.may('keys.see') ? endsOf(visit, live) : [])]
  return lines.length === 0 ? '' : html`<section><h2>Notices</h2>${lines}</section>`
}

async function holdOf({ db, parts, organization, may }: MemberVisit, plan: string): Promise<Html[]> {
  const { open, table } = parts.config.tiers
  if (!may('billing.see') || !open || !table.some(tier => tier.plan === plan)) return []
  if (!(await openHold(db, organization.id))) return []
  return [
    html`<p class="alert bad">A hold stands: the tier does not rise until we have lifted it.
      <a href="/o/${organization.id}/billing">Billing</a></p>`,
  ]
}

function spentOf({ organization, may }: MemberVisit, limits: readonly Limit[], whose: Html | string): Html[] {
  return limits.flatMap(({ dimension, per, model, used, capacity, used_usd, capacity_usd }) => {
    const step = STEPS.find(percent => used * 100 >= percent * capacity)
    if (dimension !== 'spend' || (per !== 'day' && per !== 'month') || step === undefined) return []
    const then = step === 100 ? `: requests are refused until the ${per} is over, in UTC, or the limit is higher` : ''
    return [
      html`<p class="alert ${step === 100 ? 'bad' : 'warn'}">${step} % of the ${per === 'day' ? 'daily' : 'monthly'}
        spend limit of ${whose}${model === undefined ? '' : ` on ${model}`} is spent, ${dollars(used_usd ?? 0)} of
        ${dollars(capacity_usd ?? 0)}${then}. ${may('limits') ? html`<a href="/o/${organization.id}/limits">Limits</a>` : ''}</p>`,
    ]
  })
}

function endsOf(visit: MemberVisit, keys: readonly Key[]): Html[] {
  const ending = keys
    .filter(key => warningOf(key, visit.now) !== null)
    .sort((a, b) => Date.parse(a.expires!) - Date.parse(b.expires!))
  const lines = ending.slice(0, MOST_KEYS).map(
    key => html`<p class="alert ${warningOf(key, visit.now) === 'day' ? 'bad' : 'warn'}">The key ${nameOf(visit, key)} ends
      at ${time(Date.parse(key.expires!))} UTC. Requests with it are refused then.</p>`,
  )
  const more = ending.length - lines.length
  if (more > 0)
    lines.push(html`<p class="alert warn">${more} more ${more === 1 ? 'key ends' : 'keys end'} within a week:
      <a href="/o/${visit.organization.id}/keys">All keys</a></p>`)
  return lines
}

function nameOf({ organization, may }: MemberVisit, { id, label }: Key): Html {
  const name = label ?? id
  return may('keys.see')
    ? html`<a href="/o/${organization.id}/keys/${encodeURIComponent(id)}">${name}</a>`
    : html`${name}`
}
