/** The parts of a running gateway that /metrics and the pages read. Getters are read at each scrape and each snapshot. */
import type { Names } from '../config/retired.ts'
import type { ConfigError } from '../config/source.ts'
import type { GatewayConfig } from '../config/types.ts'
import type { Budget, BudgetSources } from '../core/engine/budget.ts'
import type { Chain } from '../core/engine/chain.ts'
import type { NameCount, NameUsers } from '../core/ports/accounts.ts'
import type { Store } from '../core/ports/store.ts'
import type { Clock } from '../core/tools/clock.ts'
import type { SpendWatch } from './spend-watch.ts'

export interface GatewayView extends BudgetSources {
  readonly facts: GatewayFacts
  readonly clock: Clock
  readonly store: Store
  /** The configuration that serves. */
  readonly current: { readonly config: GatewayConfig; readonly state: ConfigState }
  /** `serving`: the chains of the configuration that serves. `all`: also those on which former exchanges still run. */
  readonly generations: { readonly serving: Iterable<Chain>; readonly all: Iterable<Chain> }
  readonly open: OpenNow
  readonly accounts: {
    named(): Promise<AccountNamesInUse>
    usersOf(names: Names): Promise<NameUsers[]>
  }
  readonly spendWatch: Pick<SpendWatch, 'posted' | 'atCap'>
  /** Undefined where the ledger is not shipped. */
  readonly shipping:
    | { readonly figures: { shipped: number; failures: number; rows: number; seconds: number } }
    | undefined
  /** Every budget of the process. */
  readonly budgets: readonly Budget[]
  /** @param exclude what is not asked: the store may be out where a request need not be refused for it */
  ready(exclude?: 'store'): Promise<Readiness>
}

/** A reason beside `ok: true` is a warning. */
export interface Readiness {
  ok: boolean
  reason?: string
}

/** Facts that do not change while the process runs. */
export interface GatewayFacts {
  version: string
  node: string
  pid: number
  /** Unix milliseconds. */
  startedAt: number
  address: string
  listener: 'uws' | 'node'
  store: 'sqlite' | 'redis'
  /** Number of this worker, from 1; 0 when this process serves alone. */
  worker: number
  workers: number
}

export interface ConfigState {
  file: string
  /** When the configuration that serves was loaded, in Unix milliseconds. */
  loadedAt: number
  /** Generation of the configuration that serves; 0 is that of the start. */
  generation: number
  /** Whether a reload was applied since the start. One that changed nothing keeps the generation. */
  reloaded: boolean
  warnings: ConfigError[]
  /** Sections that were changed but take effect only at the next start. */
  pending: string[]
  /** The last reload, if it was refused; null if it was applied, or if there was none. */
  refused: { at: number; errors: ConfigError[] } | null
}

/** How much is open now, and what was closed for what it sent. */
export interface OpenNow {
  readonly exchanges: number
  /** Replies that are being streamed. */
  readonly streams: number
  readonly webSockets: number
  readonly connections: number
  /** WebSockets through `proxy` that were closed because their client sent more than the target took. */
  readonly overrunTunnels: number
  /** Connections that were closed because they brought too many pieces in one turn of the event loop. */
  readonly overrunTurns: number
}

/** Plans and models that accounts of the store name, and whether the configuration has them. */
export type AccountNamesInUse = readonly (NameCount & { standing: 'there' | 'retired' | 'gone' })[]
