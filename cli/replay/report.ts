/** What a replay has found, as text and for programs. */
import { formatUsd } from '../../core/canon/money.ts'
import { columns } from '../terminal.ts'
import type { Refusal, Untold } from './replay.ts'
import { type Compared, type LimitTotals, marginOf, type Side, type Totals } from './totals.ts'

export interface Found {
  /** Unix ms. */
  since: number
  until: number
  totals: Totals
  untold: Untold
}

/** This many organizations are in the text. */
const SHOWN = 20

const at = (time: number) => new Date(time).toISOString()
/** To the second. */
const clock = (time: number) => `${at(time).slice(0, 19)}Z`

/** One refused exchange, as JSON. Amounts are nano-USD, times ISO 8601. */
export function refusalLine({ row, scope, limit, model, code, fits }: Refusal): string {
  return JSON.stringify({
    ...{ time: at(row.time), request_id: row.request_id, organization: row.organization, key: row.key_id },
    ...{ model: row.model, refused_by: { scope, limit, model: model || null }, code },
    ...{ fits_at: fits === null ? null : at(fits), revenue: row.cost },
  })
}

export function asJson({ since, until, totals, untold }: Found): object {
  const { first } = totals.organizations(Number.POSITIVE_INFINITY)
  return {
    since: at(since),
    until: at(until),
    ...comparedJson(totals.all),
    refused_by: totals.limits.map(({ scope, limit, model, code, requests, organizations, revenue, first, last }) => ({
      ...{ scope, limit, model: model || null, code, requests, organizations, revenue },
      ...{ first: at(first), last: at(last) },
    })),
    organizations: first.map(({ organization, plan, ...compared }) => ({
      ...{ organization, plan: plan || null },
      ...comparedJson(compared),
    })),
    models: totals.models.map(({ model, ...compared }) => ({ model: model || null, ...comparedJson(compared) })),
    not_told: { ...untold },
  }
}

const comparedJson = ({ before, after, refused }: Compared) => ({
  before: sideJson(before),
  after: sideJson(after),
  refused,
})
const sideJson = (side: Side) => ({ ...side, margin: marginOf(side) })

export function asText({ since, until, totals, untold }: Found): string {
  const { all } = totals
  const head = `${clock(since)} to ${clock(until)}: ${exchanges(all.before.requests)}, ${count(all.refused)} would have been refused`
  if (all.before.requests === 0) return `${clock(since)} to ${clock(until)}: no exchanges`
  const { first, all: organizations } = totals.organizations(SHOWN)
  const shown = organizations > SHOWN ? `, the ${SHOWN} with the largest change of ${count(organizations)}` : ''
  return [
    head,
    '',
    table(['', 'was', 'would be', 'change'], sums(all)),
    ...section('Refused by', totals.limits.length > 0, () =>
      table(
        ['limit', 'code', 'exchanges', 'organizations', 'USD', 'first', 'last'],
        totals.limits.map(limit => [
          limitName(limit),
          ...[limit.code, count(limit.requests), count(limit.organizations), usd(limit.revenue)],
          ...[clock(limit.first), clock(limit.last)],
        ]),
      ),
    ),
    ...section(`Organizations${shown}`, true, () =>
      table(
        ['organization', 'plan', ...COMPARED],
        first.map(each => [each.organization, each.plan || 'gone', ...comparedCells(each)]),
      ),
    ),
    ...section('Models', true, () =>
      table(
        ['model', ...COMPARED],
        totals.models.map(each => [each.model || '-', ...comparedCells(each)]),
      ),
    ),
    '',
    'What rows do not tell',
    ...[...ALWAYS, ...untoldLines(untold, all)].map(line => `- ${line}`),
  ].join('\n')
}

const section = (title: string, wanted: boolean, body: () => string): string[] => (wanted ? ['', title, body()] : [])

const COMPARED = ['exchanges', 'refused', 'USD was', 'USD would be', 'margin was', 'margin would be']
const comparedCells = ({ before, after, refused }: Compared): string[] => [
  ...[count(before.requests), count(refused), usd(before.revenue), usd(after.revenue)],
  ...[margin(before), margin(after)],
]

function sums({ before, after }: Compared): string[][] {
  const line = (name: string, of: (side: Side) => number | null, written: (value: number) => string) => {
    const [was, would] = [of(before), of(after)]
    const cell = (value: number | null) => (value === null ? '-' : written(value))
    const change = was === null || would === null ? null : would - was
    return [name, cell(was), cell(would), change === null ? '-' : (change > 0 ? '+' : '') + written(change)]
  }
  return [
    line('exchanges', side => side.requests, count),
    line('input tokens', side => side.input, count),
    line('output tokens', side => side.output, count),
    line('revenue, USD', side => side.revenue, formatUsd),
    line('provider cost, USD', side => (side.costed < side.requests ? null : side.cost), formatUsd),
    line('margin, USD', marginOf, formatUsd),
    ...(isPartly(before) || isPartly(after)
      ? [
          line('with a provider cost', side => side.costed, count),
          line('their margin, USD', side => (side.costed > 0 ? side.costed_revenue - side.cost : null), formatUsd),
        ]
      : []),
  ]
}

/** Whether the provider cost is known of some rows and not of others: the margin of those tells something too. */
const isPartly = ({ requests, costed }: Side): boolean => costed > 0 && costed < requests

function limitName({ scope, limit, model }: LimitTotals): string {
  const of = scope === 'request' ? 'of one request' : `of ${scope === 'user' ? 'an end user' : `the ${scope}`}`
  return `${limit} ${of}${model === '' ? '' : `, for ${model}`}`
}

const count = (value: number): string => value.toLocaleString('en')
const exchanges = (value: number): string => (value === 1 ? '1 exchange' : `${count(value)} exchanges`)
const usd = (nano: number): string => formatUsd(nano, 4)
const margin = (side: Side): string => {
  const value = marginOf(side)
  return value === null ? '-' : usd(value)
}

/** Numbers stand to the right in their columns. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const isNumber = head.map((_, i) => rows.every(row => /^[-+]?[\d,.]*$/.test(row[i]!)))
  const widths = head.map((name, i) => Math.max(name.length, ...rows.map(row => row[i]!.length)))
  const aligned = [head, ...rows].map(row => row.map((cell, i) => (isNumber[i] ? cell.padStart(widths[i]!) : cell)))
  return columns(aligned, Number.POSITIVE_INFINITY)
}

/** True of every replay. */
const ALWAYS = [
  'Who was refused then has no row: what looser limits would have let in is not here.',
  'Each exchange is tried once, at its time. A client that is refused may send again, or less.',
  'A row has when its request came. It was admitted when its body was there: by then another may have ended.',
  'The output is what it was, also where a lower limit would have cut it short.',
  'Accounts are those of today, with the raises and credits that held then: other changes are not undone.',
]

function untoldLines(untold: Untold, { before }: Compared): string[] {
  const of = (lacking: number, of: string, so: string) => (lacking > 0 ? [`${of}: ${exchanges(lacking)}; ${so}`] : [])
  return [
    ...of(untold.organizations, 'Of organizations that are gone', 'these are taken as they were.'),
    ...of(untold.keys, 'Of keys that are gone', 'only limits of their organizations are asked.'),
    ...of(
      untold.models,
      'Of models that are gone',
      'these keep the price that was billed, and no limit of a model is asked.',
    ),
    ...of(
      untold.users,
      'Without a tag for the end user',
      'no limit of end users is asked. `usage-capture: { tags }` can write the user to a tag.',
    ),
    ...of(
      untold.reservations,
      'Of a release that did not write what was reserved',
      'these reserve as requests without an output cap.',
    ),
    ...of(
      before.requests - before.costed,
      'Without a provider cost, as their backend had no `cost:`',
      'so no margin of all is known.',
    ),
  ]
}
