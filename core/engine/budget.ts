/**
 * A budget bounds what a tenant, a connection, a request or the whole process may hold or do. Each is one entry: its
 * mechanism takes figures from the entry, /metrics and docs/security.md show it. cli/budgets.ts lists all entries.
 */
import { type ErrorCode, type ErrorInit, GatewayError } from '../canon/errors.ts'
import type { SharedState } from '../plugin.ts'
import type { Listener } from '../ports/listener.ts'

export interface Budget {
  /** The value of the label `budget` of the metrics `sluice_budget_…`; it stays as it is. */
  readonly name: string
  /** What is counted, in words. */
  readonly bound: string
  /** Who has a budget of its own. Tenants: core/engine/tenant.ts. */
  readonly owner: 'tenant' | 'connection' | 'request' | 'process'
  /** The most of one owner. */
  readonly each?: Amount | readonly Amount[]
  /** The most of all owners together. */
  readonly all?: Amount | readonly Amount[]
  /** The refusal of who is over the bound of its own, and of who is over that of all. */
  readonly refused?: { readonly each?: Refusal; readonly all?: Refusal }
  /** What else becomes of who wants more, in words. */
  readonly over?: string
  /** The metrics that show it, in words, besides `sluice_budget_…`. */
  readonly seen?: string
  /** The figures of `sluice_budget_…`. */
  readonly figures?: (sources: BudgetSources) => BudgetFigures
  /** Metrics with names of their own. Entries may share a name; type and help are then those of the first entry. */
  readonly metrics?: readonly BudgetMetric[]
}

/** A number, a setting of gateway.yaml, whose default the docs show, or words. */
export type Amount = number | Setting | string
export interface Setting {
  /** `platform.preparation.bytes`; the option's name where `plugin` has it. */
  readonly setting: string
  readonly plugin?: string
}

export interface Refusal {
  readonly code: ErrorCode
  /** @param limit what there may be at most, in words */
  readonly message: (limit: string) => string
  /** The wait that it advertises, in milliseconds and before jitter. Default: that of the code. */
  readonly horizonMs?: number
}

export interface BudgetFigures {
  /** What is held at present; summed over all owners. */
  readonly used?: number
  /** How many wait for their turn. */
  readonly waiting?: number
  /** How many were refused so far. */
  readonly refused?: number
}

export interface BudgetMetric {
  readonly name: string
  readonly type: 'counter' | 'gauge'
  readonly help: string
  readonly read: (sources: BudgetSources) => readonly { labels?: Record<string, string>; value: number }[]
}

/** Where figures are read at each scrape. */
export interface BudgetSources {
  readonly shared: SharedState
  readonly open: Pick<Listener, 'overrunTurns' | 'overrunTunnels'>
  /** What was refused to shed load, by reason, and how many young exchanges may run: 0 while load is not shed. */
  readonly shedding: { readonly shed: Readonly<Record<string, number>>; readonly limit: number }
}

/** The error of a refusal. @param limit in words; only where the message names it */
export function refusal(of: Refusal, limit = '', more: Omit<ErrorInit, 'message'> = {}): GatewayError {
  const { code, message, horizonMs } = of
  return new GatewayError(code, { message: message(limit), ...(horizonMs !== undefined && { horizonMs }), ...more })
}

/**
 * Which bound is passed when an owner is to hold more: its own, or that of all. By the latter nobody is refused who then
 * holds no more than its share.
 * @param own what the owner holds
 * @param held what is held by all
 * @param owners how many hold something
 */
export function passedBound(
  own: number,
  more: number,
  held: number,
  owners: number,
  { each, all }: { each: number; all: number },
): 'each' | 'all' | null {
  const after = own + more
  if (after > each) return 'each'
  return held + more > all && after > all / owners ? 'all' : null
}

/** @param path from the section on, with dots */
export const setting = (path: string): Setting => ({ setting: path })

/** An option of a plugin. */
export const option = (plugin: string, name: string): Setting => ({ setting: name, plugin })

export const gauge = (name: string, help: string, read: (sources: BudgetSources) => number): BudgetMetric => ({
  name,
  type: 'gauge',
  help,
  read: sources => [{ value: read(sources) }],
})

/** A counter with one label, or with none. */
export const counter = (
  name: string,
  help: string,
  read: (sources: BudgetSources) => number | Readonly<Record<string, number>>,
  label = '',
): BudgetMetric => ({
  name,
  type: 'counter',
  help,
  read: sources => {
    const values = read(sources)
    if (typeof values === 'number') return [{ value: values }]
    return Object.entries(values).map(([word, value]) => ({ labels: { [label]: word }, value }))
  },
})

/** The gauge of a gate: who has a place, and who waits for one. */
export const jobs = (
  name: string,
  help: string,
  read: (sources: BudgetSources) => { running: number; waiting: number },
): BudgetMetric => ({
  name,
  type: 'gauge',
  help,
  read: sources => {
    const { running, waiting } = read(sources)
    return [
      { labels: { state: 'running' }, value: running },
      { labels: { state: 'waiting' }, value: waiting },
    ]
  },
})
