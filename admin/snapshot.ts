/**
 * The gateway's state as one JSON object a second, for the dashboard. It is computed once for all open pages. While no
 * page is open only the figures of the charts are taken, for the hour that `History` keeps.
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import type { GatewayConfig } from '../config/types.ts'
import type { Chain, Link } from '../core/engine/chain.ts'
import type { PassedOver } from '../core/plugin.ts'
import { type UpstreamHealth, upstreamHealth } from '../plugins/upstream/health.ts'
import { AccountReader, type Accounts } from './accounts.ts'
import { History } from './history.ts'
import type { Impact, Incident, Incidents } from './incidents.ts'
import type { Metrics } from './metrics.ts'
import { quantilesOf } from './quantiles.ts'
import type { ExchangeRecord, RecentExchanges } from './recent.ts'
import { Shedding, type SheddingRow } from './shedding.ts'
import { ledgerDay, Today, type TodayRow } from './today.ts'
import type { Traced, Troubles } from './troubles.ts'
import type { UseByKey } from './usage.ts'
import type { ConfigState, GatewayFacts, GatewayView, Readiness } from './view.ts'

/** What the pages show: of this process (`Snapshots`), or of all workers (`AllWorkers`). */
export interface Shown {
  readonly history: History
  /** Resolves when the first snapshot can be taken. To be called when a first page opens. */
  start(): Promise<void>
  /** To be called when the last page has closed. */
  stop(): void
  close(): void
  /** To be called once a second. */
  tick(): unknown
  take(): Snapshot
  whole(snapshot: Snapshot): Snapshot
  find(text: string): Promise<Accounts>
  recorded(id: string): Traced | undefined | Promise<Traced | undefined>
}

/** Where the parts of a snapshot come from. */
export interface SnapshotSources {
  readonly view: GatewayView
  readonly metrics: Metrics
  readonly recent: RecentExchanges
  readonly troubles: Troubles
  readonly use: UseByKey
  readonly incidents: Incidents
  /** Those of the file, and those of the store that have called. */
  organizations(): GatewayConfig['organizations']
}

/** Counts of chains and backends are per second since the last snapshot, times in milliseconds. */
export interface Snapshot {
  at: number
  gateway: GatewayFacts
  config: ConfigState
  live: Live & { rss: number; heap: number }
  chains: ChainRow[]
  backends: BackendRow[]
  providers: UpstreamHealth['providers']
  retries: number
  accounts: Accounts
  ready: Ready
  today: TodayRow
  incidents: Incident[]
  /** Of the backends that were left out, or that failed, in the last minutes. */
  impacts: Impact[]
  /** Null while no load is shed, nor was in the last minute. */
  shedding: SheddingRow | null
  /** Exchanges that ended since the last snapshot; in the first snapshot of a page, all that are kept. */
  recent: ExchangeRecord[]
}

export interface Ready {
  ok: boolean
  reason: string
  /** Since when it is or is not, Unix milliseconds: since a page looks at the earliest. */
  since: number
}

/** Counts are per second, times in milliseconds; both of the second before `at`. */
export interface Live {
  /** Unix milliseconds at which the second ended. */
  at: number
  /**
   * `ok`, `refused`, `failed`, `gone`: exchanges that ended well, were refused, failed (upstream or here), or whose
   * client disconnected.
   */
  ok: number
  refused: number
  failed: number
  gone: number
  input: number
  output: number
  exchanges: number
  streams: number
  connections: number
  ttfb: { p50: number | null; p99: number | null }
  duration: { p50: number | null; p99: number | null }
  loop: { p50: number; p99: number; max: number }
}

export interface ChainRow {
  name: string
  routes: { name: string; surface: string; requests: number }[]
  /** Index of the terminal. */
  terminal: number
  links: LinkRow[]
}

/** Counts of one process, which `rowsOf` makes rows of when those of all processes are added. */
export interface ChainFigures extends Omit<ChainRow, 'links'> {
  links: LinkFigures[]
}

export interface LinkFigures extends Omit<LinkRow, 'share' | 'micros'> {
  /** Measured milliseconds and measured exchanges, in which older values count less (`FADE`). */
  ms: number
  exchanges: number
}

/** What a snapshot has of one process. */
export interface Figures
  extends Pick<Snapshot, 'config' | 'backends' | 'providers' | 'retries' | 'incidents' | 'impacts' | 'shedding'> {
  live: Pick<Snapshot['live'], 'exchanges' | 'streams' | 'connections' | 'rss' | 'heap'>
  chains: ChainFigures[]
}

/** The durations of the exchanges that ended between two calls of `tick`, by the buckets of `Quantiles`. */
export interface Durations {
  ttfb: ArrayLike<number>
  duration: ArrayLike<number>
}

export interface LinkRow {
  id: string
  plugin: string
  /** `down`: the plugin has a hook for requests, or it is the terminal. `back`: it has a hook for responses. */
  down: boolean
  back: boolean
  calls: number
  refusals: number
  errors: number
  /** Refusals and errors since the configuration was loaded. */
  refusalsTotal: number
  errorsTotal: number
  /** Share of the chain's measured time, 0 to 1, over about the last minute. */
  share: number
  /** Mean time for an exchange in microseconds, over about the last minute. */
  micros: number
}

export interface BackendRow {
  id: string
  provider: string
  dialect: string
  /** Public ids of the models it serves. */
  models: string[]
  breaker: 'closed' | 'open' | 'half-open'
  /**
   * Why it is left out, for whom and until when. Where it is so for some organizations alone: since the first of them
   * met it, and until the last one may send again. Null while it is not.
   */
  out: Omit<PassedOver, 'backend'> | null
  /** Organizations to which it is closed because of what they met themselves. */
  closedTo: number
  /** The first of them. */
  closedToFirst: string[]
  errorRate: number
  inFlight: number
  attempts: number
  failures: number
  attemptsTotal: number
}

/** Of the organizations that a backend is closed to, so many are named. */
export const CLOSED_TO_NAMED = 3

const TAKEN = [0.5, 0.99] as const
/**
 * Sampling interval of the event-loop monitor. The monitor reports the time between two samples, so this is subtracted.
 */
const LOOP_RESOLUTION_MS = 10
/** How often limits and health are read from the store. */
const STORE_EVERY_MS = 2000
/** After this many snapshots (one a second), a measured time counts half as much in a plugin's share. */
const SHARE_HALF_LIFE = 30
const FADE = 0.5 ** (1 / SHARE_HALF_LIFE)

interface Seen {
  calls: number
  refusals: number
  errors: number
  sampledMs: number
  sampledReplyMs: number
  sampledCalls: number
  /** Sums of milliseconds and of exchanges, in which older values count less (`FADE`). */
  ms: number
  exchanges: number
}

export class Snapshots implements Shown {
  readonly #sources: SnapshotSources
  readonly #view: GatewayView
  readonly #reader: AccountReader
  readonly history = new History()
  readonly #loop: IntervalHistogram = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS })
  #live: Live
  /** Of the last `tick`. */
  durations: Durations = { ttfb: [], duration: [] }
  #seen = new Map<Link, Seen>()
  /** Counts at the last call of `take`, cleared when the last page closes. `#ticked` has those of the last `tick`. */
  #rates = new Map<string, number>()
  readonly #ticked = new Map<string, number>()
  #lastMono = 0
  #tickMono: number
  #lastSeq = 0
  #accounts: Accounts = { rows: [], total: 0, failed: false }
  #ready: Ready = { ok: true, reason: '', since: 0 }
  readonly #today: Today
  readonly #shedding = new Shedding()
  #queriedAt = Number.NEGATIVE_INFINITY
  #asking = false

  constructor(sources: SnapshotSources) {
    this.#sources = sources
    this.#view = sources.view
    this.#reader = new AccountReader(sources.view.store, sources.use)
    this.#loop.enable()
    this.#tickMono = sources.view.clock.mono()
    this.#today = new Today((since, until) => ledgerDay(sources.view.store, since, until), sources.view.clock.now())
    this.#live = this.tick()
  }

  /**
   * To be called when a first page opens: from now on the data that only snapshots need is collected. Resolves when the
   * first snapshot can be taken.
   */
  async start(): Promise<void> {
    const { clock } = this.#view
    await Promise.all([this.#askStore(), this.#today.ask(clock.now(), () => clock.mono())])
    // Rates begin now: the counts until here did not happen within one second.
    this.#lastMono = this.#view.clock.mono()
    this.take()
  }

  /** To be called when the last page has closed. */
  stop(): void {
    this.#seen.clear()
    this.#rates.clear()
    this.#queriedAt = Number.NEGATIVE_INFINITY
  }

  /** To be called last: no `tick` may follow. */
  close(): void {
    this.#loop.disable()
  }

  /**
   * Takes the figures of the charts since the last call. To be called once a second, also while no page is open; costs
   * about 0.15 ms.
   */
  tick(): Live {
    const { clock } = this.#view
    const now = clock.mono()
    const seconds = Math.max(0.001, (now - this.#tickMono) / 1000)
    this.#tickMono = now
    this.#live = this.#figures(clock.now(), seconds)
    this.history.add(this.#live)
    this.#today.ended(this.#live.at, this.#live.refused * seconds, this.durations.ttfb)
    this.#shedding.saw(this.#view.shedding.shed, this.#live.at)
    return this.#live
  }

  /** Searches all organizations: the list of a snapshot has only the first of them. */
  find(text: string): Promise<Accounts> {
    return this.#reader.read({ organizations: this.#sources.organizations() }, text, this.#view.clock.now())
  }

  /** What is still known of an exchange by its request id. */
  recorded(id: string): Traced | undefined {
    const { recent, troubles } = this.#sources
    const whole = recent.find(id)
    const trouble = troubles.find(id)
    return whole ? { ...whole, alike: trouble?.alike ?? null } : trouble
  }

  /** A snapshot of everything since the last call. */
  take(): Snapshot {
    const { recent: kept } = this.#sources
    const { clock, facts } = this.#view
    const now = clock.mono()
    const seconds = Math.max(0.001, (now - this.#lastMono) / 1000)
    this.#lastMono = now
    if (now - this.#queriedAt >= STORE_EVERY_MS) void this.#askStore()
    void this.#today.ask(clock.now(), () => clock.mono())
    const recent = kept.since(this.#lastSeq)
    this.#lastSeq = kept.last
    const { config, live, chains, ...upstream } = this.#figuresOf(seconds)
    return {
      at: clock.now(),
      gateway: facts,
      config,
      live: { ...this.#live, ...live },
      chains: chains.map(rowsOf),
      ...upstream,
      accounts: this.#accounts,
      ready: this.#ready,
      today: this.#today.row(clock.now()),
      recent,
    }
  }

  /** The figures of this process since the last call, for a snapshot of all workers. */
  figures(): Figures {
    const now = this.#view.clock.mono()
    const seconds = Math.max(0.001, (now - this.#lastMono) / 1000)
    this.#lastMono = now
    return this.#figuresOf(seconds)
  }

  #figuresOf(seconds: number): Figures {
    return {
      config: this.#view.current.state,
      live: { ...this.#gauges(), ...memory() },
      chains: this.#chains(seconds),
      ...this.#upstream(seconds),
      ...this.#incidents(),
    }
  }

  #incidents(): Pick<Snapshot, 'incidents' | 'impacts' | 'shedding'> {
    const now = this.#view.clock.now()
    const { incidents } = this.#sources
    const shedding = this.#shedding.row(now, this.#view.current.config.platform)
    return { incidents: incidents.causes(now), impacts: incidents.impacts(now), shedding }
  }

  /** The snapshot for a new page: with all exchanges that are kept. */
  whole(snapshot: Snapshot): Snapshot {
    return { ...snapshot, recent: this.#sources.recent.since(0) }
  }

  /** Reads limits and health from the store, in the background, so that a slow store delays no snapshot. */
  async #askStore(): Promise<void> {
    if (this.#asking) return
    this.#asking = true
    const { organizations } = this.#sources
    const { clock } = this.#view
    this.#queriedAt = clock.mono()
    const [accounts, ready] = await Promise.all([
      this.#reader.read({ organizations: organizations() }, '', clock.now()),
      this.#view.ready().catch(() => ({ ok: false, reason: 'the check failed' })),
    ])
    this.#accounts = accounts
    this.#ready = readyOf(ready, this.#ready, clock.now())
    this.#asking = false
  }

  /** Growth of a count since the last call, per second; 0 at the first call for a name. */
  #rate(name: string, total: number, seconds: number, seen = this.#rates): number {
    const before = seen.get(name) ?? total
    seen.set(name, total)
    return Math.max(0, total - before) / seconds
  }

  #figures(at: number, seconds: number): Live {
    const { metrics } = this.#sources
    const { traffic } = metrics
    const rate = (name: string, total: number) => round(this.#rate(name, total, seconds, this.#ticked))
    this.durations = { ttfb: traffic.ttfb.drain(), duration: traffic.duration.drain() }
    const loop = this.#loop
    const delay = (nanos: number) => round(Math.max(0, nanos / 1e6 - LOOP_RESOLUTION_MS))
    const delays = { p50: delay(loop.percentile(50)), p99: delay(loop.percentile(99)), max: delay(loop.max) }
    loop.reset()
    return {
      at,
      ok: rate('ok', traffic.ok),
      refused: rate('refused', traffic.refused),
      failed: rate('failed', traffic.failed),
      gone: rate('gone', traffic.gone),
      input: rate('input', traffic.input),
      output: rate('output', traffic.output),
      ...this.#gauges(),
      ...quantiles(this.durations),
      loop: delays,
    }
  }

  #gauges(): Pick<Live, 'exchanges' | 'streams' | 'connections'> {
    const { exchanges, streams, connections } = this.#view.open
    return { exchanges, streams, connections }
  }

  #chains(seconds: number): ChainFigures[] {
    const { metrics } = this.#sources
    const routes = new Map<string, ChainRow['routes']>()
    for (const route of this.#view.current.config.routes) {
      const name = `${route.method} ${route.path}`
      const list = routes.get(route.pipeline) ?? []
      list.push({
        name,
        surface: route.surface ?? '',
        requests: round(this.#rate(`route ${name}`, metrics.exchangesOf(name), seconds)),
      })
      routes.set(route.pipeline, list)
    }
    const seen = new Map<Link, Seen>()
    const rows = [...this.#view.generations.serving].map(chain => ({
      name: chain.name,
      routes: routes.get(chain.name) ?? [],
      terminal: chain.terminal,
      links: this.#links(chain, seconds, seen),
    }))
    // Links of a replaced chain are not carried over.
    this.#seen = seen
    return rows
  }

  #links(chain: Chain, seconds: number, kept: Map<Link, Seen>): LinkFigures[] {
    return chain.links.map(link => {
      const { stats } = link
      const before = this.#seen.get(link) ?? { ...stats, ms: 0, exchanges: 0 }
      const ms = stats.sampledMs - before.sampledMs + (stats.sampledReplyMs - before.sampledReplyMs)
      const now: Seen = {
        ...stats,
        ms: before.ms * FADE + ms,
        exchanges: before.exchanges * FADE + (stats.sampledCalls - before.sampledCalls),
      }
      kept.set(link, now)
      return {
        id: link.id,
        plugin: link.plugin.name,
        down: link.hooks.onRequest !== undefined || link.plugin.layers !== undefined || link.index === chain.terminal,
        back: BACK.some(hook => link.hooks[hook] !== undefined),
        calls: round((now.calls - before.calls) / seconds),
        refusals: round((now.refusals - before.refusals) / seconds),
        errors: round((now.errors - before.errors) / seconds),
        refusalsTotal: now.refusals,
        errorsTotal: now.errors,
        ms: now.ms,
        exchanges: now.exchanges,
      }
    })
  }

  #upstream(seconds: number): Pick<Snapshot, 'backends' | 'providers' | 'retries'> {
    const { shared, clock } = this.#view
    const health = upstreamHealth(shared, clock.mono())
    const known = new Map(health.backends.map(backend => [backend.id, backend]))
    const rows = new Map<string, BackendRow>()
    for (const model of Object.values(this.#view.current.config.models)) {
      for (const { id, provider, dialect } of model.backends) {
        const row = rows.get(id)
        if (row) {
          row.models.push(model.id)
          continue
        }
        const now = known.get(id)
        rows.set(id, {
          id,
          provider,
          dialect,
          models: [model.id],
          breaker: now?.breaker ?? 'closed',
          out: now?.out ? { ...now.out.reason, scope: now.out.scope, until: clock.now() + now.out.forMs } : null,
          closedTo: now?.closedTo.length ?? 0,
          closedToFirst: now?.closedTo.slice(0, CLOSED_TO_NAMED) ?? [],
          errorRate: round(now?.errorRate ?? 0),
          inFlight: now?.inFlight ?? 0,
          attempts: round(this.#rate(`attempts ${id}`, now?.attempts ?? 0, seconds)),
          failures: round(this.#rate(`failures ${id}`, now?.failures ?? 0, seconds)),
          attemptsTotal: now?.attempts ?? 0,
        })
      }
    }
    return { backends: [...rows.values()], providers: health.providers, retries: health.retries }
  }
}

const BACK = ['onResponseHead', 'onEvent', 'rewriteEvent', 'onChunk', 'onResponseEnd', 'onError', 'onSettle'] as const

/** Each plugin's share of the chain's time, and its mean time. */
export function rowsOf({ links, ...chain }: ChainFigures): ChainRow {
  const sum = links.reduce((total, { ms }) => total + ms, 0)
  // No exchanges are counted for a plugin without a request hook. It is taken to see as many as the chain's busiest
  // plugin.
  const most = Math.max(...links.map(({ exchanges }) => exchanges))
  return {
    ...chain,
    links: links.map(({ ms, exchanges, ...link }) => ({
      ...link,
      share: sum > 0 ? round(ms / sum) : 0,
      micros: most > 0 ? round((1000 * ms) / (exchanges || most)) : 0,
    })),
  }
}

/** The state of readiness with the time of its last change. */
export function readyOf({ ok, reason = '' }: Readiness, before: Ready, now: number): Ready {
  return { ok, reason, since: ok === before.ok && before.since > 0 ? before.since : now }
}

export function quantiles(durations: Durations): Pick<Live, 'ttfb' | 'duration'> {
  const [ttfb50, ttfb99] = quantilesOf(durations.ttfb, TAKEN)
  const [duration50, duration99] = quantilesOf(durations.duration, TAKEN)
  return {
    ttfb: { p50: round(ttfb50), p99: round(ttfb99) },
    duration: { p50: round(duration50), p99: round(duration99) },
  }
}

function memory(): { rss: number; heap: number } {
  const { rss, heapUsed } = process.memoryUsage()
  return { rss, heap: heapUsed }
}

/** Rounds to three decimals. That is enough for a page, and makes the feed half as large. */
export function round<T extends number | null>(value: T): T {
  return (value === null ? null : Math.round(value * 1000) / 1000) as T
}
