/** What the customer's page and that of staff show alike. */
import { html } from 'hono/html'
import { badge, dollars, table, time } from '../views/parts.ts'
import type { Html } from '../web/visit.ts'
import { usdOf } from './config.ts'
import { COUNTED_CURRENCY, type Payment } from './payments.ts'
import type { Tier } from './tiers.ts'

const KINDS: Record<Payment['kind'], string> = {
  settled: 'Payment',
  refund: 'Refund',
  dispute: 'Dispute',
  adjustment: 'Adjustment',
}
const STATES: Record<Payment['state'], string> = {
  '': '',
  made: '',
  failed: 'failed: it counts again',
  open: 'open: it counts until it is lost',
  won: 'won: it counts',
  lost: 'lost',
}

/** What a row is, in words. */
export function kindOf({ kind, state, currency }: Payment): Html {
  const words = currency === COUNTED_CURRENCY ? STATES[state] : 'not counted: USD alone counts'
  return html`${KINDS[kind]}${words ? html` <span class="muted">${words}</span>` : ''}`
}

/** An amount with its sign: refunds and lost disputes take away, others are shown as what they are about. */
export function amountOf({ kind, state, amount, currency }: Payment): string {
  const takes = (kind === 'refund' && state === 'made') || state === 'lost'
  const signed = takes ? -amount : amount
  return currency === COUNTED_CURRENCY ? usd(signed) : inCurrency(signed, currency)
}

/** @param amount in the smallest unit, which is a cent for most currencies and a whole yen for some */
function inCurrency(amount: number, currency: string): string {
  if (!/^[a-z]{3}$/.test(currency)) return `${amount} ${currency}`
  const format = new Intl.NumberFormat('en-US', { style: 'currency', currency, currencyDisplay: 'code' })
  return format.format(amount / 10 ** (format.resolvedOptions().maximumFractionDigits ?? 2))
}

/** Cents as `$5.00`, `−$5.00`. */
export const usd = (cents: number): string => `${cents < 0 ? '−' : ''}${dollars(usdOf(Math.abs(cents)))}`

export const paymentsTable = (rows: readonly Payment[]): Html =>
  table(
    'Payments',
    ['When (UTC)', 'What', '#Amount', 'Reference'],
    rows.map(row => [
      time(row.time),
      kindOf(row),
      amountOf(row),
      html`<code>${row.object}</code> ${row.note ? html`<span class="muted">${row.note}</span>` : ''}`,
    ]),
  )

type Limits = Record<string, number | string>

const COLUMNS = [
  ['#Requests a minute', 'requests_per_minute'],
  ['#Tokens a minute', 'tokens_per_minute'],
  ['#Input tokens a minute', 'input_tokens_per_minute'],
  ['#Output tokens a minute', 'output_tokens_per_minute'],
  ['#At a time', 'concurrent_requests'],
] as const

/** @param plans limits by plan, as the gateway has them; null when they are not known now */
export function tierTable(tiers: readonly Tier[], plan: string, plans: ReadonlyMap<string, Limits> | null): Html {
  const limit = ({ plan }: Tier, name: string, show: (value: number | string) => string, none = 'none'): string => {
    if (!plans) return '–'
    const limits = plans.get(plan)
    if (!limits) return 'not offered'
    return limits[name] === undefined || limits[name] === null ? none : show(limits[name])
  }
  return table(
    'Tiers',
    ['Tier', '#Paid', '#Spend a month', 'Comes', ...COLUMNS.map(([head]) => head)],
    tiers.map(tier => [
      html`${tier.name} ${tier.plan === plan ? badge('yours', 'good') : ''}`,
      tier.basis === 0 ? '–' : usd(tier.basis),
      // A plan without one leaves it to the organization: "Custom" in the specification's table.
      limit(tier, 'monthly_spend_usd', value => dollars(value), 'custom'),
      tier.activation === 'automatic' ? 'by itself' : `after a ${tier.activation}`,
      ...COLUMNS.map(([, name]) => limit(tier, name, value => Number(value).toLocaleString('en-US'))),
    ]),
  )
}
