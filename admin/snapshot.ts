/**
 * The gateway's state as one JSON object a second, for the dashboard. Computed once for all open pages; while none is
 * open only the figures of the charts are taken, for the hour that `History` keeps.
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks'
import type { ConfigError } from '../config/load.ts'
import type { GatewayConfig } from '../config/types.ts'
import type { Chain, Link } from '../core/chain.ts'
import type { Clock } from '../core/clock.ts'
import type { Store } from '../core/store.ts'
import type { UpstreamHealth } from '../plugins/upstream/health.ts'
import { AccountReader, type Accounts } from './accounts.ts'
import { History } from './history.ts'
import type { Metrics } from './metrics.ts'
import type { ExchangeRecord, RecentExchanges } from './recent.ts'
import type { UseByKey } from './usage.ts'

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
  /** From 1; 0 when this process serves alone. */
  worker: number
  workers: number
}

export interface ConfigState {
  file: string
  /** Unix milliseconds of the configuration that serves. */
  loadedAt: number
  /** 0 is the one of the start. */
  generation: number
  warnings: ConfigError[]
  /** Sections that were changed and take effect at the next start. */
  pending: string[]
  /** The last reload, when it was refused; null once one was applied. */
  refused: { at: number; errors: ConfigError[] } | null
}

/** What a snapshot is made of; cli/gateway.ts has it. */
export interface SnapshotSources {
  readonly clock: Clock
  readonly metrics: Metrics
  readonly recent: RecentExchanges
  readonly use: UseByKey
  readonly store: Store
  facts(): GatewayFacts
  config(): GatewayConfig
  configState(): ConfigState
  chains(): Iterable<Chain>
  openExchanges(): number
  /** Replies that are being streamed. */
  openStreams(): number
  connections(): number
  upstream(): UpstreamHealth
  ready(): Promise<{ ok: boolean; reason?: string }>
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
  ready: { ok: boolean; reason: string }
  /** New ones since the last snapshot; of a page's first snapshot all that are kept. */
  recent: ExchangeRecord[]
}

/** Counts are per second, times in milliseconds; both of the second before `at`. */
export interface Live {
  /** Unix milliseconds at which the second ended. */
  at: number
  /** Exchanges that ended well, were refused, failed upstream or here, lost their client. */
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

export interface LinkRow {
  id: string
  plugin: string
  /** It has a hook on the way down (the terminal has); on the way back. */
  down: boolean
  back: boolean
  calls: number
  refusals: number
  errors: number
  /** Refusals and errors since the configuration was loaded. */
  refusalsTotal: number
  errorsTotal: number
  /** Of all the chain's measured time, 0 to 1, over the last minute. */
  share: number
  /** Mean microseconds of an exchange, over the last minute. */
  micros: number
}

export interface BackendRow {
  id: string
  provider: string
  dialect: string
  /** Public ids of the models it serves. */
  models: string[]
  breaker: 'closed' | 'open' | 'half-open'
  errorRate: number
  inFlight: number
  attempts: number
  failures: number
  attemptsTotal: number
}

const TAKEN = [0.5, 0.99] as const
/** Of the event-loop monitor: it reports the time between its looks, this included. */
const LOOP_RESOLUTION_MS = 10
/** How often the store is asked about limits and health. */
const STORE_EVERY_MS = 2000
/** Half of what a plugin's time weighed is forgotten after so many snapshots. */
const SHARE_HALF_LIFE = 30
const FADE = 0.5 ** (1 / SHARE_HALF_LIFE)

interface Seen {
  calls: number
  refusals: number
  errors: number
  sampledMs: number
  sampledReplyMs: number
  sampledCalls: number
  /** Faded sums of milliseconds and of exchanges. */
  ms: number
  exchanges: number
}

export class Snapshots {
  readonly #sources: SnapshotSources
  readonly #reader: AccountReader
  readonly history = new History()
  readonly #loop: IntervalHistogram = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS })
  #live: Live
  #seen = new Map<Link, Seen>()
  /** Counts at the last look: for snapshots, which begin anew with each first page, and for the charts' figures. */
  #rates = new Map<string, number>()
  readonly #ticked = new Map<string, number>()
  #lastMono = 0
  #tickMono: number
  #lastSeq = 0
  #accounts: Accounts = { rows: [], total: 0, failed: false }
  #ready = { ok: true, reason: '' }
  #asked = Number.NEGATIVE_INFINITY
  #asking = false
  #facts: GatewayFacts | undefined

  constructor(sources: SnapshotSources) {
    this.#sources = sources
    this.#reader = new AccountReader(sources.store, sources.use)
    this.#loop.enable()
    this.#tickMono = sources.clock.mono()
    this.#live = this.tick()
  }

  /** A first page opens: from now on what only snapshots need is collected. Resolves when there is something to show. */
  async start(): Promise<void> {
    await this.#askStore()
    // Rates begin now: what was counted before is no one second's.
    this.#lastMono = this.#sources.clock.mono()
    this.take()
  }

  /** The last page has gone. */
  stop(): void {
    this.#seen.clear()
    this.#rates.clear()
    this.#asked = Number.NEGATIVE_INFINITY
  }

  /** No tick follows. */
  close(): void {
    this.#loop.disable()
  }

  /** The figures of the charts since the last call. Due once a second, whether somebody looks or not: about 0.15 ms. */
  tick(): Live {
    const { clock } = this.#sources
    const now = clock.mono()
    const seconds = Math.max(0.001, (now - this.#tickMono) / 1000)
    this.#tickMono = now
    this.#live = this.#figures(clock.now(), seconds)
    this.history.add(this.#live)
    return this.#live
  }

  /** Organizations by name, for a search that the snapshot's list does not hold. */
  find(text: string): Promise<Accounts> {
    return this.#reader.read(this.#sources.config(), text, this.#sources.clock.now())
  }

  /** Everything since the last call. */
  take(): Snapshot {
    const sources = this.#sources
    const now = sources.clock.mono()
    const seconds = Math.max(0.001, (now - this.#lastMono) / 1000)
    this.#lastMono = now
    if (now - this.#asked >= STORE_EVERY_MS) void this.#askStore()
    const recent = sources.recent.since(this.#lastSeq)
    this.#lastSeq = sources.recent.last
    return {
      at: sources.clock.now(),
      gateway: (this.#facts ??= sources.facts()),
      config: sources.configState(),
      live: { ...this.#live, ...this.#gauges(), ...memory() },
      chains: this.#chains(seconds),
      ...this.#upstream(seconds),
      accounts: this.#accounts,
      ready: this.#ready,
      recent,
    }
  }

  /** A snapshot as a new page needs it. */
  whole(snapshot: Snapshot): Snapshot {
    return { ...snapshot, recent: this.#sources.recent.since(0) }
  }

  /** Asked in the background: a slow store delays no snapshot. */
  async #askStore(): Promise<void> {
    if (this.#asking) return
    this.#asking = true
    const { clock, config } = this.#sources
    this.#asked = clock.mono()
    const [accounts, ready] = await Promise.all([
      this.#reader.read(config(), '', clock.now()),
      this.#sources.ready().catch(() => ({ ok: false, reason: 'the check failed' })),
    ])
    this.#accounts = accounts
    this.#ready = { ok: ready.ok, reason: ready.reason ?? '' }
    this.#asking = false
  }

  /** Growth of a count since the last snapshot, per second. The first look at a count is no growth. */
  #rate(name: string, total: number, seconds: number, seen = this.#rates): number {
    const before = seen.get(name) ?? total
    seen.set(name, total)
    return Math.max(0, total - before) / seconds
  }

  #figures(at: number, seconds: number): Live {
    const { metrics } = this.#sources
    const { traffic } = metrics
    const rate = (name: string, total: number) => round(this.#rate(name, total, seconds, this.#ticked))
    const [ttfb50, ttfb99] = traffic.ttfb.take(TAKEN)
    const [duration50, duration99] = traffic.duration.take(TAKEN)
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
      ttfb: { p50: round(ttfb50), p99: round(ttfb99) },
      duration: { p50: round(duration50), p99: round(duration99) },
      loop: delays,
    }
  }

  #gauges(): Pick<Live, 'exchanges' | 'streams' | 'connections'> {
    const { openExchanges, openStreams, connections } = this.#sources
    return { exchanges: openExchanges(), streams: openStreams(), connections: connections() }
  }

  #chains(seconds: number): ChainRow[] {
    const { metrics } = this.#sources
    const routes = new Map<string, ChainRow['routes']>()
    for (const route of this.#sources.config().routes) {
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
    const rows = [...this.#sources.chains()].map(chain => ({
      name: chain.name,
      routes: routes.get(chain.name) ?? [],
      terminal: chain.terminal,
      links: this.#links(chain, seconds, seen),
    }))
    // Links of a chain that was replaced are forgotten with it.
    this.#seen = seen
    return rows
  }

  #links(chain: Chain, seconds: number, kept: Map<Link, Seen>): LinkRow[] {
    let sum = 0
    const all = chain.links.map(link => {
      const { stats } = link
      const before = this.#seen.get(link) ?? { ...stats, ms: 0, exchanges: 0 }
      const ms = stats.sampledMs - before.sampledMs + (stats.sampledReplyMs - before.sampledReplyMs)
      const now: Seen = {
        ...stats,
        ms: before.ms * FADE + ms,
        exchanges: before.exchanges * FADE + (stats.sampledCalls - before.sampledCalls),
      }
      kept.set(link, now)
      sum += now.ms
      return { link, before, now }
    })
    // A plugin without a request hook is not counted by exchange: as many as the chain's busiest one saw passed it.
    const most = Math.max(...all.map(({ now }) => now.exchanges))
    return all.map(({ link, before, now }) => ({
      id: link.id,
      plugin: link.plugin.name,
      down: link.hooks.onRequest !== undefined || link.index === chain.terminal,
      back: BACK.some(hook => link.hooks[hook] !== undefined),
      calls: round((now.calls - before.calls) / seconds),
      refusals: round((now.refusals - before.refusals) / seconds),
      errors: round((now.errors - before.errors) / seconds),
      refusalsTotal: now.refusals,
      errorsTotal: now.errors,
      share: sum > 0 ? round(now.ms / sum) : 0,
      micros: most > 0 ? round((1000 * now.ms) / (now.exchanges || most)) : 0,
    }))
  }

  #upstream(seconds: number): Pick<Snapshot, 'backends' | 'providers' | 'retries'> {
    const health = this.#sources.upstream()
    const known = new Map(health.backends.map(backend => [backend.id, backend]))
    const rows = new Map<string, BackendRow>()
    for (const model of Object.values(this.#sources.config().models)) {
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

function memory(): { rss: number; heap: number } {
  const { rss, heapUsed } = process.memoryUsage()
  return { rss, heap: heapUsed }
}

/** Three figures after the point are plenty for a page, and halve the feed. */
function round<T extends number | null>(value: T): T {
  return (value === null ? null : Math.round(value * 1000) / 1000) as T
}
