/**
 * The metrics of /metrics. Label values come from the configuration or from closed lists, never from a client, so the
 * number of series is bounded (routes × models × statuses). Names are stable; docs/metrics.md lists them all.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { collectDefaultMetrics, type Metric, type MetricValueWithName, Registry } from 'prom-client'
import type { Usage } from '../core/canon/events.ts'
import { DIMENSIONS, denialCode } from '../core/canon/limits.ts'
import type { BudgetFigures, BudgetMetric } from '../core/engine/budget.ts'
import { type Chain, type LinkStats, waived } from '../core/engine/chain.ts'
import { NAME_KINDS, type NameCount } from '../core/ports/accounts.ts'
import type { ProviderSide } from '../core/ports/store.ts'
import { CONTENT_BOUNDS } from '../plugins/shared/content-bounds.ts'
import { directoryOf } from '../plugins/shared/directory.ts'
import { reservation } from '../plugins/shared/slots.ts'
import { type UpstreamHealth, upstreamHealth } from '../plugins/upstream/health.ts'
import { type Aggregator, Distribution, readOnly } from './distribution.ts'
import type { ExchangeRecord } from './recent.ts'
import { Traffic } from './traffic.ts'
import type { GatewayView } from './view.ts'

/** What /metrics reads of a gateway. */
export type MetricsView = Omit<GatewayView, 'ready'>

/** The facts of an exchange that the metrics count. */
export type ExchangeFacts = Pick<
  ExchangeRecord,
  'route' | 'model' | 'status' | 'outcome' | 'durationMs' | 'ttfbMs' | 'cost'
>

/** At most this many plans or models have series of their own; the others are added up as `(others)`. */
const MOST_NAMES = 50

/**
 * The counts of one route. They are looked up step by step (route, model, status and outcome), because a joined key
 * would be a new string for each exchange.
 */
interface OfRoute {
  readonly duration: Distribution
  readonly firstByte: Distribution
  /** By model: the few pairs of status and outcome that have occurred. */
  readonly ended: Map<string, Ended[]>
}
interface Ended {
  readonly status: number
  readonly outcome: string
  count: number
}
/** What was billed for one model: tokens by kind, and spend in nano-USD. */
interface OfModel extends Record<TokenKind, number> {
  spend: number
}
const TOKEN_KINDS = ['input', 'output', 'cached', 'reasoning'] as const
type TokenKind = (typeof TOKEN_KINDS)[number]

/** The kinds of tokens that a provider reports of a backend's replies, and those that the gateway counts, too. */
const REPORTED = {
  input: 'provider_input',
  cached: 'provider_cached',
  cache_write: 'provider_cache_write',
  output: 'provider_output',
  reasoning: 'provider_reasoning',
} as const
const COUNTED = { input: 'counted_input', output: 'counted_output' } as const

interface Count {
  labels: Record<string, string>
  value: number
}
type Values = MetricValueWithName<string>[]

/** By error code: the limit that denies with this code. */
const DENIALS: Record<string, string> = {
  ...Object.fromEntries(DIMENSIONS.map(([dimension]) => [denialCode(dimension), dimension])),
  request_spend_cap_exceeded: 'request_spend',
  request_token_budget_exceeded: 'request_tokens',
  request_exceeds_capacity: 'minute_budget',
  capacity_exceeded: 'platform',
}

/**
 * Sampling interval of the event-loop monitor. The monitor reports the time between two samples, so this is subtracted.
 */
const LOOP_RESOLUTION_MS = 10

export class Metrics {
  readonly registry = new Registry()
  readonly traffic = new Traffic()
  readonly #loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS })
  readonly #routes = new Map<string, OfRoute>()
  readonly #models = new Map<string, OfModel>()
  readonly #reported = new Map<string, Count>()
  readonly #counted = new Map<string, Count>()
  /** By backend, in nano-USD. */
  readonly #costs = new Map<string, number>()
  /** Times to the first byte of streams, by model and, within it, by backend. */
  readonly #streams = new Map<string, Map<string, Distribution>>()
  readonly #refused = new Map<string, Count>()
  readonly #withoutRow = new Map<string, Count>()
  readonly #slowed = new Map<string, Count>()
  readonly #denials = new Map<string, Count>()
  readonly #overBound = new Map<string, Count>(CONTENT_BOUNDS.map(bound => [bound, { labels: { bound }, value: 0 }]))
  readonly #plugins = new PluginTotals()
  #reloads = { applied: 0, refused: 0 }

  constructor() {
    collectDefaultMetrics({ register: this.registry })
    // Gauges by a counter's name: the sums of nodejs_active_handles, nodejs_active_requests and nodejs_active_resources.
    for (const kind of ['handles', 'requests', 'resources'])
      this.registry.removeSingleMetric(`nodejs_active_${kind}_total`)
    this.#loop.enable()
  }

  // ---- what is counted ----------------------------------------------------------------------------------------------

  /**
   * Counts an exchange that has ended.
   * @param usage what was billed, if anything
   */
  observe({ route, model, status, outcome, durationMs, ttfbMs, cost }: ExchangeFacts, usage: Usage | undefined): void {
    let times = this.#routes.get(route)
    if (!times) {
      times = { duration: new Distribution(), firstByte: new Distribution(), ended: new Map() }
      this.#routes.set(route, times)
    }
    endedOf(times, model, status, outcome).count++
    times.duration.observe(durationMs / 1000)
    if (ttfbMs !== null) times.firstByte.observe(ttfbMs / 1000)
    this.traffic.ended(outcome, durationMs, ttfbMs)
    if (!usage) return
    this.traffic.input += usage.input
    this.traffic.output += usage.output
    let used = this.#models.get(model)
    if (!used) this.#models.set(model, (used = { input: 0, output: 0, cached: 0, reasoning: 0, spend: 0 }))
    used.input += usage.input
    used.output += usage.output
    used.cached += usage.cached
    used.reasoning += usage.reasoning
    used.spend += cost
  }

  /** Counts what the provider reported of an exchange that `backend` answered, and what it cost there. */
  answered(backend: string, side: ProviderSide): void {
    const addAll = (counts: Map<string, Count>, kinds: Readonly<Record<string, keyof ProviderSide>>) => {
      for (const kind in kinds) {
        const tokens = (side[kinds[kind]!] as number | undefined) ?? 0
        if (tokens > 0) add(counts, `${backend}\0${kind}`, () => ({ backend, kind }), tokens)
      }
    }
    addAll(this.#reported, REPORTED)
    addAll(this.#counted, COUNTED)
    if (side.provider_cost !== undefined) this.#costs.set(backend, (this.#costs.get(backend) ?? 0) + side.provider_cost)
  }

  /**
   * Counts a streamed reply that a backend began.
   * @param ttfbMs from the request head to the first byte, milliseconds
   */
  streamBegan(model: string, backend: string, ttfbMs: number): void {
    let backends = this.#streams.get(model)
    if (!backends) this.#streams.set(model, (backends = new Map()))
    let times = backends.get(backend)
    if (!times) backends.set(backend, (times = new Distribution()))
    times.observe(ttfbMs / 1000)
  }

  /**
   * Counts an exchange that ended with an error.
   * @param admitted the exchange held a reservation: the error comes from upstream and is not the denial of a limit
   */
  refused(route: string, code: string, admitted: boolean): void {
    add(this.#refused, `${route}\0${code}`, () => ({ route, code }), 1)
    const dimension = admitted ? undefined : DENIALS[code]
    if (dimension !== undefined) add(this.#denials, dimension, () => ({ dimension }), 1)
  }

  /** Counts a request that a plugin made to wait on purpose. */
  slowed(route: string): void {
    add(this.#slowed, route, () => ({ route }), 1)
  }

  /** Counts an exchange that reached the terminal of this chain and has no ledger row; only of a terminal that spends. */
  withoutRow(chain: Chain): void {
    const labels = withoutRowLabels(chain)
    if (labels) add(this.#withoutRow, Object.values(labels).join('\0'), () => labels, 1)
  }

  /** Counts a request that was refused because it holds more than a bound on content allows. */
  overBound(bound: string): void {
    add(this.#overBound, bound, () => ({ bound }), 1)
  }

  /** Counts a request that was refused before it became an exchange. */
  refusedEarly(route: string, code: string): void {
    this.refused(route, code, true)
    this.traffic.refused++
  }

  reloaded(result: 'applied' | 'refused'): void {
    this.#reloads[result]++
  }

  /** Keeps the counts of chains that are being closed in the totals. */
  retire(chains: Iterable<Chain>): void {
    this.#plugins.retire(chains)
  }

  /** Exchanges of a route since the start. */
  exchangesOf(route: string): number {
    return this.#routes.get(route)?.duration.count ?? 0
  }

  close(): void {
    this.#loop.disable()
    this.registry.clear()
  }

  // ---- what is shown ------------------------------------------------------------------------------------------------

  /** Registers every metric of the gateway: what is counted here, and what the view has at each scrape. */
  expose(view: MetricsView): void {
    this.#traffic(view)
    this.#gateway(view)
    this.#perPlugin(view.generations)
    this.#upstream(() => upstreamHealth(view.shared, view.clock.mono()))
    this.#store(view)
    this.#budgets(view)
  }

  #expose(
    name: string,
    type: 'counter' | 'gauge' | 'histogram' | 'summary',
    help: string,
    read: () => Values | Promise<Values>,
    aggregator?: Aggregator,
  ) {
    this.registry.registerMetric(readOnly(name, help, type, read, aggregator) as unknown as Metric)
  }

  #traffic({ open, generations }: MetricsView): void {
    const counts = (name: string, help: string, read: () => Iterable<Count>) =>
      this.#expose(name, 'counter', help, () =>
        Array.from(read(), ({ labels, value }) => ({ metricName: name, labels, value })),
      )
    const times = (name: string, help: string, pick: (route: OfRoute) => Distribution) =>
      this.#expose(name, 'histogram', help, () =>
        [...this.#routes].flatMap(([route, all]) => pick(all).values(name, { route })),
      )
    counts('sluice_exchanges_total', 'Exchanges ended.', () => this.#exchangeCounts())
    counts('sluice_refused_total', 'Requests that were answered with an error, by its code.', () =>
      this.#refused.values(),
    )
    counts('sluice_slowed_total', 'Requests that a plugin made to wait on purpose.', () => this.#slowed.values())
    counts('sluice_limit_denials_total', 'Requests denied by a limit, by what it counts.', () => this.#denials.values())
    counts('sluice_exchanges_without_row_total', 'Exchanges that were served without a ledger row.', () =>
      this.#withoutRowCounts(generations.all),
    )
    counts('sluice_content_refused_total', 'Requests that hold more than a bound on content allows, by bound.', () =>
      this.#overBound.values(),
    )
    counts('sluice_tokens_total', 'Billed o200k_base tokens.', () => this.#tokenCounts())
    counts('sluice_spend_usd_total', 'Billed USD.', () => this.#spendCounts())
    counts('sluice_backend_reported_tokens_total', 'Tokens as the provider counted them.', () =>
      this.#reported.values(),
    )
    counts(
      'sluice_backend_counted_tokens_total',
      'The gateway’s own count of what the provider counted, billed or not.',
      () => this.#counted.values(),
    )
    counts('sluice_backend_cost_usd_total', 'USD that backends with a cost charged.', () =>
      Array.from(this.#costs, ([backend, nano]) => ({ labels: { backend }, value: nano * 1e-9 })),
    )
    times('sluice_exchange_duration_seconds', 'From the request head to the end of the reply.', all => all.duration)
    times(
      'sluice_exchange_first_byte_seconds',
      'From the request head to the first byte of the reply.',
      all => all.firstByte,
    )
    const streams = 'sluice_stream_first_byte_seconds'
    this.#expose(streams, 'histogram', 'From the request head to the first byte of a streamed reply.', () =>
      [...this.#streams].flatMap(([model, backends]) =>
        [...backends].flatMap(([backend, times]) => times.values(streams, { model, backend })),
      ),
    )
    this.#gauge('sluice_open_exchanges', 'Exchanges running now.', () => open.exchanges)
    this.#gauge('sluice_open_streams', 'Replies being streamed now.', () => open.streams)
    this.#gauge('sluice_open_websockets', 'WebSockets open now.', () => open.webSockets)
    this.#gauge('sluice_open_connections', 'Client connections open now.', () => open.connections)
  }

  *#exchangeCounts(): Generator<Count> {
    for (const [route, { ended }] of this.#routes)
      for (const [model, ways] of ended)
        for (const { status, outcome, count } of ways)
          yield { labels: { route, model, status: String(status), outcome }, value: count }
  }

  /** Each pipeline that spends has a sample from the start on, so that its first exchange shows as an increase. */
  #withoutRowCounts(chains: Iterable<Chain>): Iterable<Count> {
    const counts = new Map(this.#withoutRow)
    for (const chain of chains) {
      const labels = withoutRowLabels(chain)
      if (labels) add(counts, Object.values(labels).join('\0'), () => labels, 0)
    }
    return counts.values()
  }

  *#tokenCounts(): Generator<Count> {
    for (const [model, used] of this.#models)
      for (const kind of TOKEN_KINDS) if (used[kind] > 0) yield { labels: { model, kind }, value: used[kind] }
  }

  *#spendCounts(): Generator<Count> {
    for (const [model, { spend }] of this.#models) if (spend > 0) yield { labels: { model }, value: spend * 1e-9 }
  }

  #counter(name: string, help: string, read: () => number): void {
    this.#expose(name, 'counter', help, () => [{ metricName: name, labels: {}, value: read() }])
  }

  #gauge(name: string, help: string, read: () => number, aggregator?: Aggregator): void {
    this.#expose(name, 'gauge', help, () => [{ metricName: name, labels: {}, value: read() }], aggregator)
  }

  #gateway({ facts, current, shared, accounts, spendWatch }: MetricsView): void {
    const { version, node, listener, store, worker } = facts
    const info = { version, node, listener, store, worker: String(worker) }
    this.#expose('sluice_info', 'gauge', 'Always 1; its labels say what runs.', () => [
      { metricName: 'sluice_info', labels: info, value: 1 },
    ])
    const reloads = 'sluice_config_reloads_total'
    const counts = () => [
      { metricName: reloads, labels: { result: 'applied' }, value: this.#reloads.applied },
      { metricName: reloads, labels: { result: 'refused' }, value: this.#reloads.refused },
    ]
    this.#expose(reloads, 'counter', 'Configuration reloads.', counts, 'worker')
    this.#gauge(
      'sluice_config_last_reload_ok',
      '0 when the last reload was refused, else 1.',
      () => (current.state.refused === null ? 1 : 0),
      'worker',
    )
    this.#gauge(
      'sluice_config_generation',
      'Generation of the configuration that serves.',
      () => current.state.generation,
      'worker',
    )
    this.#gauge(
      'sluice_config_loaded_timestamp_seconds',
      'When the configuration that serves was loaded.',
      () => current.state.loadedAt / 1000,
      'worker',
    )
    const loop = this.#loop
    const delay = 'sluice_event_loop_delay_seconds'
    let [sum, count] = [0, 0]
    const delays = () => {
      const seconds = (nanos: number) => Math.max(0, nanos / 1e9 - LOOP_RESOLUTION_MS / 1e3)
      if (loop.count > 0) sum += seconds(loop.mean) * loop.count
      count += loop.count
      const values = [
        { metricName: delay, labels: { quantile: '0.5' }, value: seconds(loop.percentile(50)) },
        { metricName: delay, labels: { quantile: '0.99' }, value: seconds(loop.percentile(99)) },
        { metricName: delay, labels: { quantile: '1' }, value: seconds(loop.max) },
        { metricName: `${delay}_sum`, labels: {}, value: sum },
        { metricName: `${delay}_count`, labels: {}, value: count },
      ]
      loop.reset()
      return values
    }
    const delayHelp = 'Event-loop delay; quantiles are of the time since the last scrape.'
    this.#expose(delay, 'summary', delayHelp, delays, 'worker')
    this.#gauge('sluice_directory_cached_keys', 'Keys of the store in memory.', () => directoryOf(shared).stats.cached)
    // All workers count the same accounts.
    this.#expose(
      'sluice_accounts',
      'gauge',
      'Organizations of the store, by plan.',
      async () =>
        largest((await accounts.named()).filter(({ kind }) => kind === 'plan')).map(([name, value]) => ({
          metricName: 'sluice_accounts',
          labels: { plan: name },
          value,
        })),
      'max',
    )
    const left = 'sluice_accounts_left_behind'
    const leftBehind = async (): Promise<Values> => {
      const all = await accounts.named()
      return NAME_KINDS.flatMap(kind =>
        (['gone', 'retired'] as const).flatMap(standing =>
          largest(all.filter(of => of.kind === kind && of.standing === standing)).map(([name, value]) => ({
            metricName: left,
            labels: { kind, name, standing },
            value,
          })),
        ),
      )
    }
    const leftHelp = 'Organizations of the store that name a plan or model which the configuration does not have.'
    this.#expose(left, 'gauge', leftHelp, leftBehind, 'max')
    const notices = 'sluice_spend_notices_total'
    this.#expose(notices, 'counter', 'Notices of spend limits that were posted, by percent of the limit.', () =>
      Array.from(spendWatch.posted, ([percent, value]) => ({
        metricName: notices,
        labels: { percent: String(percent) },
        value,
      })),
    )
    const atCap = 'sluice_accounts_at_spend_cap'
    const caps = () =>
      (['org', 'key'] as const).map(scope => ({
        metricName: atCap,
        labels: { scope: scope === 'org' ? 'organization' : 'key' },
        value: spendWatch.atCap(scope),
      }))
    // Workers that serve the same customer know of the same limits.
    this.#expose(atCap, 'gauge', 'Spend limits that are used up in the running day or month.', caps, 'max')
    const lookUps = 'sluice_directory_lookups_total'
    this.#expose(lookUps, 'counter', 'Keys that were not in memory, by what came of the look-up.', () => {
      const { cached: _, ...results } = directoryOf(shared).stats
      return Object.entries(results).map(([result, value]) => ({ metricName: lookUps, labels: { result }, value }))
    })
  }

  #budgets(view: MetricsView): void {
    const { budgets } = view
    const named = new Map<string, BudgetMetric[]>()
    for (const metric of budgets.flatMap(({ metrics }) => metrics ?? [])) {
      const same = named.get(metric.name)
      if (same) same.push(metric)
      else named.set(metric.name, [metric])
    }
    for (const [metricName, metrics] of named) {
      const { type, help } = metrics[0]!
      this.#expose(metricName, type, help, () =>
        metrics.flatMap(({ read }) => read(view).map(({ labels = {}, value }) => ({ metricName, labels, value }))),
      )
    }
    const figure = (metricName: string, type: 'counter' | 'gauge', help: string, which: keyof BudgetFigures) =>
      this.#expose(metricName, type, help, () =>
        budgets.flatMap(({ name, figures }) => {
          const value = figures?.(view)[which]
          return value === undefined ? [] : [{ metricName, labels: { budget: name }, value }]
        }),
      )
    figure('sluice_budget_used', 'gauge', 'What is held of a budget, over all who share it.', 'used')
    figure('sluice_budget_waiting', 'gauge', 'How many wait for a budget.', 'waiting')
    figure('sluice_budget_refused_total', 'counter', 'Requests that a budget refused.', 'refused')
  }

  #perPlugin(generations: MetricsView['generations']): void {
    const perPlugin = (name: string, help: string, read: (stats: LinkStats) => number) =>
      this.#expose(name, 'counter', help, () =>
        this.#plugins
          .read(generations.all)
          .map(({ labels, stats }) => ({ metricName: name, labels, value: read(stats) })),
      )
    perPlugin('sluice_plugin_calls_total', 'Request hooks run.', stats => stats.calls)
    perPlugin('sluice_plugin_refusals_total', 'Requests this plugin refused.', stats => stats.refusals)
    perPlugin('sluice_plugin_errors_total', 'Hooks that threw.', stats => stats.errors)
    perPlugin(
      'sluice_plugin_sampled_calls_total',
      'Request hooks whose time was measured.',
      stats => stats.sampledCalls,
    )
    perPlugin(
      'sluice_plugin_sampled_seconds_total',
      'Time of the request hooks that were measured, waiting included.',
      stats => stats.sampledMs / 1000,
    )
    perPlugin(
      'sluice_plugin_sampled_reply_seconds_total',
      'Time of the response hooks of measured exchanges.',
      stats => stats.sampledReplyMs / 1000,
    )
  }

  #upstream(health: () => UpstreamHealth): void {
    const perBackend = (
      name: string,
      type: 'counter' | 'gauge',
      help: string,
      read: (backend: UpstreamHealth['backends'][number]) => number,
      aggregator?: Aggregator,
    ) => {
      const values = () => health().backends.map(b => ({ metricName: name, labels: { backend: b.id }, value: read(b) }))
      this.#expose(name, type, help, values, aggregator)
    }
    perBackend('sluice_backend_attempts_total', 'counter', 'Requests sent to a backend.', b => b.attempts)
    perBackend('sluice_backend_failures_total', 'counter', 'Attempts held against a backend’s health.', b => b.failures)
    const failed = 'sluice_backend_attempt_failures_total'
    this.#expose(failed, 'counter', 'Attempts that came to nothing, by the error’s code.', () =>
      health().backends.flatMap(b =>
        [...b.failed].map(([code, value]) => ({ metricName: failed, labels: { backend: b.id, code }, value })),
      ),
    )
    perBackend(
      'sluice_backend_oversized_replies_total',
      'counter',
      'Replies that were cut or refused because of their size.',
      b => b.oversized,
    )
    perBackend(
      'sluice_backend_oversized_requests_total',
      'counter',
      'Requests that were not sent, because they were larger than what was counted allows.',
      b => b.oversizedRequests,
    )
    perBackend(
      'sluice_backend_forgotten_organizations_total',
      'counter',
      'Organizations that a full breaker forgot.',
      b => b.forgotten,
    )
    perBackend('sluice_backend_in_flight', 'gauge', 'Attempts under way.', b => b.inFlight)
    perBackend('sluice_backend_held', 'gauge', 'Requests held until a trial of the backend is answered.', b => b.held)
    const inVain = 'sluice_backend_held_in_vain_total'
    perBackend(inVain, 'counter', 'Requests held for a trial for too long, or without room.', b => b.heldInVain)
    perBackend(
      'sluice_backend_error_rate',
      'gauge',
      'Share of failed attempts in the breaker’s window.',
      b => b.errorRate,
      'worker',
    )
    perBackend(
      'sluice_backend_closed_organizations',
      'gauge',
      'Organizations to which a backend is closed because of faults or pauses that they met themselves.',
      b => b.closedTo.length,
      'worker',
    )
    const state = 'sluice_backend_breaker_state'
    const states = () =>
      health().backends.flatMap(b =>
        (['closed', 'open', 'half-open'] as const).map(name => ({
          metricName: state,
          labels: { backend: b.id, state: name },
          value: b.breaker === name ? 1 : 0,
        })),
      )
    this.#expose(state, 'gauge', '1 for the state a backend’s breaker is in, 0 for the others.', states, 'worker')
    this.#counter('sluice_upstream_retries_total', 'Attempts beyond an exchange’s first.', () => health().retries)
    const perProvider = (name: string, help: string, read: (provider: UpstreamHealth['providers'][number]) => number) =>
      this.#expose(name, 'gauge', help, () => {
        // A provider whose settings changed has two pools until the former is idle.
        const sums = new Map<string, number>()
        for (const p of health().providers) sums.set(p.provider, (sums.get(p.provider) ?? 0) + read(p))
        return [...sums].map(([provider, value]) => ({ metricName: name, labels: { provider }, value }))
      })
    perProvider('sluice_provider_in_flight', 'Requests in flight to a provider.', p => p.inFlight)
    perProvider('sluice_provider_queued', 'Requests waiting for a place at a provider.', p => p.queued)
    perProvider('sluice_provider_capacity', 'Most requests in flight to a provider.', p => p.capacity)
    const refused = 'sluice_provider_refused'
    perProvider(refused, 'Requests turned away at a provider’s queue since its pool was opened.', p => p.refused)
  }

  #store({ store, shipping }: MetricsView): void {
    const up = async () => {
      const state = await store.ready().catch(() => undefined)
      return [{ metricName: 'sluice_store_up', labels: {}, value: state?.ok ? 1 : 0 }]
    }
    this.#expose('sluice_store_up', 'gauge', '1 when the store answers and its journal can be written.', up, 'worker')
    // Each worker asks at another moment. A store that does not answer, or does not tell, has no sample.
    for (const [name, help, member] of [
      ['sluice_store_used_bytes', 'Bytes that the store takes of its memory or its disk.', 'used'],
      ['sluice_store_limit_bytes', 'Bytes that the store can take at most.', 'limit'],
    ] as const) {
      const read = async () => {
        const size = await store.size?.().catch(() => undefined)
        return size ? [{ metricName: name, labels: {}, value: size[member] }] : []
      }
      this.#expose(name, 'gauge', help, read, 'max')
    }
    const stats = () => store.stats?.()
    this.#gauge('sluice_ledger_open_rows', 'Exchanges whose ledger row is open.', () => stats()?.openRows ?? 0)
    this.#gauge(
      'sluice_ledger_pending_rows',
      'Ledger rows that the store has not taken yet.',
      () => stats()?.pendingRows ?? 0,
    )
    this.#gauge(
      'sluice_ledger_unreplicated_rows',
      'Ledger rows that the store has and its replica has not.',
      () => stats()?.unreplicatedRows ?? 0,
    )
    const figures = () => shipping?.figures
    for (const [name, help, member] of [
      ['sluice_ledger_shipped_rows_total', 'Ledger rows that this process has shipped.', 'shipped'],
      ['sluice_ledger_ship_failures_total', 'Tries to ship the ledger that failed.', 'failures'],
    ] as const)
      this.#expose(name, 'counter', help, () => [{ metricName: name, labels: {}, value: figures()?.[member] ?? 0 }])
    this.#gauge('sluice_ledger_ship_lag_rows', 'Ledger rows that were not shipped yet.', () => figures()?.rows ?? 0)
    this.#gauge('sluice_ledger_ship_lag_seconds', 'Age of the oldest of them.', () => figures()?.seconds ?? 0)
    this.#gauge('sluice_journal_segments', 'Files of the local journal.', () => stats()?.journalSegments ?? 0)
    const kept = () => Object.entries(stats()?.kept ?? {})
    const bytes = 'sluice_store_kept_bytes'
    const keptBytes = () => kept().map(([kind, { bytes: value }]) => ({ metricName: bytes, labels: { kind }, value }))
    const help = 'Bytes of retained records, of kept replies of idempotency keys, and of what plugins keep.'
    // Each worker has read the one figure of the store, at another moment.
    this.#expose(bytes, 'gauge', help, keptBytes, 'max')
    const evicted = 'sluice_store_evicted_total'
    this.#expose(evicted, 'counter', 'Of those, what was evicted because a share or the total was full.', () =>
      kept().flatMap(([kind, of]) =>
        Object.entries(of.evicted).map(([full, value]) => ({ metricName: evicted, labels: { kind, full }, value })),
      ),
    )
  }
}

/**
 * Counts of plugins over all generations of the configuration: a Prometheus counter must not fall because of a reload.
 */
class PluginTotals {
  readonly #retired = new Map<string, { labels: Record<string, string>; stats: LinkStats }>()

  retire(chains: Iterable<Chain>): void {
    for (const { key, labels, stats } of each(chains)) {
      const known = this.#retired.get(key)
      this.#retired.set(key, { labels, stats: known ? sum(known.stats, stats) : { ...stats } })
    }
  }

  /** Totals of the plugins that are in `chains`. A plugin that is in none of them any more loses its series. */
  read(chains: Iterable<Chain>): { labels: Record<string, string>; stats: LinkStats }[] {
    const rows = new Map<string, { labels: Record<string, string>; stats: LinkStats }>()
    for (const { key, labels, stats } of each(chains)) {
      const known = rows.get(key) ?? this.#retired.get(key)
      rows.set(key, { labels, stats: known ? sum(known.stats, stats) : stats })
    }
    for (const key of this.#retired.keys()) if (!rows.has(key)) this.#retired.delete(key)
    return [...rows.values()]
  }
}

function* each(chains: Iterable<Chain>) {
  for (const chain of chains) {
    for (const link of chain.links) {
      const labels = { pipeline: chain.name, plugin: link.id }
      yield { key: `${chain.name}\0${link.id}`, labels, stats: link.stats }
    }
  }
}

function sum(a: LinkStats, b: LinkStats): LinkStats {
  return {
    calls: a.calls + b.calls,
    refusals: a.refusals + b.refusals,
    errors: a.errors + b.errors,
    sampledCalls: a.sampledCalls + b.sampledCalls,
    sampledMs: a.sampledMs + b.sampledMs,
    sampledReplyMs: a.sampledReplyMs + b.sampledReplyMs,
  }
}

/** The names with the most organizations. */
function largest(names: readonly NameCount[]): [name: string, organizations: number][] {
  const sorted = [...names].sort((a, b) => b.organizations - a.organizations || (a.name < b.name ? -1 : 1))
  const shown = sorted.slice(0, MOST_NAMES).map(({ name, organizations }) => [name, organizations] as [string, number])
  const others = sorted.slice(MOST_NAMES).reduce((sum, { organizations }) => sum + organizations, 0)
  return others > 0 ? [...shown, ['(others)', others]] : shown
}

function endedOf({ ended }: OfRoute, model: string, status: number, outcome: string): Ended {
  let ways = ended.get(model)
  if (!ways) ended.set(model, (ways = []))
  for (const way of ways) if (way.status === status && way.outcome === outcome) return way
  const way = { status, outcome, count: 0 }
  ways.push(way)
  return way
}

/**
 * Labels of an exchange without a ledger row; null where the terminal does not spend. The cause is `unlimited` where the
 * file says so, and `fault` where the chain has what writes rows, so that it should have written one.
 */
function withoutRowLabels(chain: Chain): { pipeline: string; cause: 'unlimited' | 'fault' } | null {
  const limited = chain.safeguards.find(({ slot }) => slot.name === reservation.name)
  return limited ? { pipeline: chain.name, cause: waived(chain).includes(limited) ? 'unlimited' : 'fault' } : null
}

function add(counts: Map<string, Count>, key: string, labels: () => Record<string, string>, value: number): void {
  const count = counts.get(key)
  if (count) count.value += value
  else counts.set(key, { labels: labels(), value })
}
