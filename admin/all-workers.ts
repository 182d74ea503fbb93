/** All workers as one gateway, for the admin listener of their primary process: figures add up, readiness is common. */
import type { IncomingMessage } from 'node:http'
import { AggregatorRegistry, type Metric, Registry } from 'prom-client'
import type { Names } from '../config/retired.ts'
import type { AdminToken } from '../config/types.ts'
import type { NameUsers } from '../core/ports/accounts.ts'
import { appendAll } from '../core/tools/append.ts'
import type { Clock } from '../core/tools/clock.ts'
import { type Accounts, MOST_ORGANIZATIONS } from './accounts.ts'
import { type ApiAnswer, bytesOf } from './api.ts'
import type { Caller } from './callers.ts'
import { readOnly } from './distribution.ts'
import { History } from './history.ts'
import { sumOfImpacts, sumOfIncidents } from './incidents.ts'
import { type Peer, within } from './peer.ts'
import { type ExchangeRecord, RecentExchanges } from './recent.ts'
import type { AdminOptions, RouteRequest } from './server.ts'
import { sumOfShedding } from './shedding.ts'
import {
  type ChainFigures,
  CLOSED_TO_NAMED,
  type Durations,
  type Figures,
  type Live,
  quantiles,
  type Ready,
  readyOf,
  round,
  rowsOf,
  type Shown,
  type Snapshot,
} from './snapshot.ts'
import { Today } from './today.ts'
import type { Traced } from './troubles.ts'
import type { Use } from './usage.ts'
import type { GatewayFacts, Readiness } from './view.ts'
import type { MetricJson, WorkerApi } from './worker-api.ts'

/** A worker that takes longer than this for an answer is passed over, ms. Prometheus waits 10 s by default. */
const ANSWER_MS = 5000
/** For a call of the admin API, which may wait for the store. */
const ANY_MS = 30_000
/** For a point of the charts, of which there is one a second. */
const TICK_MS = 900
/** Workers that reload a file within this time get one answer about the accounts of the store, ms. */
const DECIDED_MS = 10_000
/** How often limits are read from the store for a page, in points of the charts. */
const ACCOUNTS_EVERY = 2

interface Worker {
  readonly number: number
  readonly peer: Peer<WorkerApi>
  readonly facts: GatewayFacts
  /** Whether it missed the last point of the charts. */
  late: boolean
  /** What it answered last. */
  metrics: MetricJson[]
  /** The last exchange that was taken over from it. */
  seq: number
}

export class AllWorkers implements Shown {
  readonly history = new History()
  /** The metrics of the primary process itself. */
  readonly registry = new Registry()
  readonly #count: number
  readonly #clock: Clock
  readonly #startedAt: number
  /** Those that listen. */
  readonly #workers = new Map<number, Worker>()
  /** Counters and histograms of workers that have ended: a sum must not fall. */
  #ended: MetricJson[] = []
  readonly #up = new Map<number, boolean>()
  readonly #starts = new Map<number, number>()
  /** What was last asked about accounts of the store, until when it holds, and the workers that know it. */
  #decided: { question: string; until: number; told: Set<number>; answer: Promise<NameUsers[]> } | undefined
  #tokens: readonly AdminToken[]
  /** Whether all workers have listened once. */
  #complete = false
  #draining = false

  readonly #recent = new RecentExchanges()
  #lastSeq = 0
  #live: Live = NOTHING
  #figures: Figures[] = []
  #accounts: Accounts = { rows: [], total: 0, failed: false }
  #ready: Ready = { ok: false, reason: 'starting', since: 0 }
  readonly #today: Today
  #tickedAt: number
  #ticks = 0
  /** Whether a page is open. */
  #shown = false
  #ticking = false

  /** @param count of workers @param tokens those of the start; afterwards the workers report which there are */
  constructor(count: number, tokens: readonly AdminToken[], clock: Clock) {
    this.#count = count
    this.#tokens = tokens
    this.#clock = clock
    this.#startedAt = clock.now()
    this.#tickedAt = clock.mono()
    this.#today = new Today((since, until) => this.#askAny('today', since, until), this.#startedAt)
    const own = (name: string, type: 'counter' | 'gauge', help: string, read: (worker: number) => number) => {
      const values = () =>
        this.#numbers().map(worker => ({ metricName: name, labels: { worker: String(worker) }, value: read(worker) }))
      this.registry.registerMetric(readOnly(name, help, type, values) as unknown as Metric)
    }
    own('sluice_worker_up', 'gauge', '1 when the worker answered this scrape: its figures are in all sums.', worker =>
      this.#up.get(worker) ? 1 : 0,
    )
    own(
      'sluice_worker_starts_total',
      'counter',
      'Times that the worker has been started.',
      worker => this.#starts.get(worker) ?? 0,
    )
  }

  #numbers(): number[] {
    return Array.from({ length: this.#count }, (_, i) => i + 1)
  }

  // ---- which workers there are --------------------------------------------------------------------------------------

  started(number: number): void {
    this.#starts.set(number, (this.#starts.get(number) ?? 0) + 1)
  }

  /** A worker listens. */
  joined(number: number, peer: Peer<WorkerApi>, facts: GatewayFacts): void {
    this.#workers.set(number, { number, peer, facts, late: false, metrics: [], seq: 0 })
    if (this.#workers.size === this.#count) this.#complete = true
  }

  left(number: number): void {
    const worker = this.#workers.get(number)
    if (!worker) return
    this.#workers.delete(number)
    this.#ended = sum([this.#ended, growing(worker.metrics)])
  }

  /**
   * Which of the names accounts of the store use, for a worker that reloads. One worker asks the store, and all that
   * reload the same file get its answer: else one of them could find the store out, or an account that was made
   * meanwhile, and keep another configuration than the others. A worker that asks again has another reload to decide.
   * Rejects when the store or no worker answers.
   */
  usersOf(worker: number, names: Names): Promise<NameUsers[]> {
    const question = JSON.stringify(names)
    const now = this.#clock.mono()
    let decided = this.#decided
    if (decided?.question !== question || now >= decided.until || decided.told.has(worker)) {
      const answer = this.#askAny('usersOf', names).then(found => {
        if (found && 'users' in found) return found.users
        throw new Error(found?.fault ?? 'no worker answers')
      })
      this.#decided = decided = { question, until: now + DECIDED_MS, told: new Set(), answer }
    }
    decided.told.add(worker)
    return decided.answer
  }

  draining(): void {
    this.#draining = true
  }

  /** The answers of all workers to a call, those of the workers that did not answer in time are missing. */
  async #ask<N extends keyof WorkerApi>(
    name: N,
    argumentsFor: (worker: Worker) => Parameters<WorkerApi[N]>,
    ms = ANSWER_MS,
  ): Promise<Map<Worker, Awaited<ReturnType<WorkerApi[N]>>>> {
    const answers = new Map<Worker, Awaited<ReturnType<WorkerApi[N]>>>()
    const ask = async (worker: Worker) => {
      const answer = await within(worker.peer.call(name, ...argumentsFor(worker)), ms)
      if (answer !== undefined) answers.set(worker, answer)
    }
    const asked = [...this.#workers.values()]
    await Promise.all(asked.map(ask))
    // In the order of their numbers, whoever answered first.
    return new Map(
      asked.sort(byNumber).flatMap(worker => (answers.has(worker) ? [[worker, answers.get(worker)!]] : [])),
    )
  }

  /** Asks a worker for what any of them can do. Undefined when none runs, or it does not answer in time. */
  async #askAny<N extends keyof WorkerApi>(
    name: N,
    ...args: Parameters<WorkerApi[N]>
  ): Promise<Awaited<ReturnType<WorkerApi[N]>> | undefined> {
    const [first] = [...this.#workers.values()].sort((a, b) => Number(a.late) - Number(b.late) || byNumber(a, b))
    return first && within(first.peer.call(name, ...args), ANY_MS)
  }

  // ---- what the listener is given -----------------------------------------------------------------------------------

  get options(): Omit<AdminOptions, 'host' | 'port' | 'token' | 'hosts'> {
    return {
      tokens: () => this.#tokens,
      api: (caller, request, path, query) => this.#api(caller, request, path, query),
      tokenRefused: address => {
        void this.#askAny('tokenRefused', address)
      },
      registry: this.registry,
      metrics: () => this.#metrics(),
      snapshots: this,
      ready: exclude => this.ready(exclude),
      route: async (question: RouteRequest) =>
        (await this.#askAny('route', question)) ?? { fault: 'no worker answers at the moment' },
    }
  }

  async #api(caller: Caller, request: IncomingMessage, path: string, query: URLSearchParams): Promise<ApiAnswer> {
    // The worker refuses one that is too large.
    const body = (await bytesOf(request)).toString('base64')
    const { authorization: _, ...headers } = request.headers
    const { method } = request
    const answer = await this.#askAny('api', { caller, method, headers, path, query: String(query), body })
    if (answer) return answer
    // A worker that hangs may do later what it was asked for.
    const message = 'No worker has answered. Look whether a change was made before you try again.'
    return { status: 503, body: { error: { code: 'no_worker', message } } }
  }

  /**
   * Ready when all workers have listened once, and each that listens now is ready: connections are shared among those.
   * One that has died gets none until it listens again, so it does not matter while others run.
   */
  async ready(exclude?: 'store'): Promise<Readiness> {
    if (this.#draining) return { ok: false, reason: 'draining' }
    const answers = await this.#ask('ready', () => [exclude])
    const missing = this.#numbers().filter(number => !this.#workers.has(number))
    const reasons = new Map<string, number[]>()
    let ok = this.#complete && this.#workers.size > 0
    for (const worker of [...this.#workers.values()].sort(byNumber)) {
      const state = answers.get(worker) ?? { ok: false, reason: 'does not answer' }
      ok &&= state.ok
      if (state.reason !== undefined) reasons.set(state.reason, [...(reasons.get(state.reason) ?? []), worker.number])
    }
    if (missing.length > 0)
      reasons.set(
        'starting',
        [...missing, ...(reasons.get('starting') ?? [])].sort((a, b) => a - b),
      )
    const texts = [...reasons].map(([reason, of]) => (of.length === this.#count ? reason : `${named(of)}: ${reason}`))
    return { ok, ...(texts.length > 0 && { reason: texts.join('; ') }) }
  }

  async #metrics(): Promise<string> {
    const answers = await this.#ask('metrics', () => [])
    for (const [worker, metrics] of answers) worker.metrics = labelled(metrics, worker.number)
    this.#up.clear()
    const parts = [this.#ended]
    for (const worker of this.#workers.values()) {
      this.#up.set(worker.number, answers.has(worker))
      parts.push(answers.has(worker) ? worker.metrics : growing(worker.metrics))
    }
    const own = (await this.registry.getMetricsAsJSON()) as unknown as MetricJson[]
    return aggregate([own, ...parts]).metrics()
  }

  // ---- what the pages show ------------------------------------------------------------------------------------------

  async start(): Promise<void> {
    this.#shown = true
    await Promise.all([this.#look(true), this.#account(), this.#askToday()])
  }

  stop(): void {
    this.#shown = false
    this.#figures = []
  }

  close(): void {}

  /** Asks the workers for a point of the charts and, while a page is open, for what it shows. */
  async tick(): Promise<void> {
    if (this.#ticking) return
    this.#ticking = true
    try {
      const told = await this.#ask('tick', () => [], TICK_MS)
      for (const worker of this.#workers.values()) worker.late = !told.has(worker)
      const answers = [...told.values()]
      if (answers[0]) this.#tokens = answers[0].tokens
      const ttfb = full(answers.map(answer => answer.ttfb))
      this.#live = sumOfLives(
        answers.map(({ live }) => live),
        { ttfb, duration: full(answers.map(({ duration }) => duration)) },
        this.#clock.now(),
      )
      this.history.add(this.#live)
      const mono = this.#clock.mono()
      this.#today.ended(this.#live.at, (this.#live.refused * (mono - this.#tickedAt)) / 1000, ttfb)
      this.#tickedAt = mono
      if (!this.#shown) return
      void this.#askToday()
      if (++this.#ticks % ACCOUNTS_EVERY === 0) void this.#account()
      await this.#look(false)
    } finally {
      this.#ticking = false
    }
  }

  #askToday(): Promise<void> {
    return this.#today.ask(this.#clock.now(), () => this.#clock.mono())
  }

  async #look(fresh: boolean): Promise<void> {
    const [figures, recent] = await Promise.all([
      this.#ask('figures', () => [fresh], TICK_MS),
      this.#ask('recent', worker => [worker.seq], TICK_MS),
    ])
    this.#figures = [...figures.values()]
    const records: ExchangeRecord[] = []
    for (const [worker, of] of recent) {
      // A page that opens meanwhile asks for the same ones.
      appendAll(
        records,
        of.filter(({ seq }) => seq > worker.seq),
      )
      worker.seq = Math.max(worker.seq, of.at(-1)?.seq ?? 0)
    }
    records.sort((a, b) => a.at + a.durationMs - (b.at + b.durationMs))
    for (const record of records) this.#recent.add(record)
  }

  async #account(): Promise<void> {
    const [accounts, ready] = await Promise.all([this.find(''), this.ready()])
    this.#accounts = accounts
    this.#ready = readyOf(ready, this.#ready, this.#clock.now())
  }

  /** The use of an organization is that of all workers; limits are in the store, and any worker reads them. */
  async find(text: string): Promise<Accounts> {
    const busiest = await this.#ask('busiest', () => [text, MOST_ORGANIZATIONS])
    const knownBy = new Map<string, Worker>()
    let total = 0
    for (const [worker, of] of busiest) {
      total = Math.max(total, of.total)
      for (const id of of.ids) if (!knownBy.has(id)) knownBy.set(id, worker)
    }
    const use = [...(await this.#ask('use', () => [[...knownBy.keys()]])).values()]
    const ofOrganization = (id: string) => sumOfUse(use.flatMap(of => Object.values(of[id] ?? {})))
    const chosen = [...knownBy.keys()]
      .map(id => ({ id, requests: ofOrganization(id).requests }))
      .sort((a, b) => b.requests - a.requests)
      .slice(0, MOST_ORGANIZATIONS)
      .map(({ id }) => id)
    const of = (worker: Worker) => chosen.filter(id => knownBy.get(id) === worker)
    const read = await Promise.all(
      [...this.#workers.values()]
        .filter(worker => of(worker).length > 0)
        .map(worker => within(worker.peer.call('rows', of(worker)), ANSWER_MS)),
    )
    if (busiest.size === 0 || read.includes(undefined)) return { rows: [], total, failed: true }
    const rows = read
      .flatMap(some => some!)
      .map(row => ({
        ...row,
        use: ofOrganization(row.id),
        keys: row.keys.map(key => ({ ...key, use: sumOfUse(use.flatMap(all => all[row.id]?.[key.id] ?? [])) })),
      }))
      .sort((a, b) => chosen.indexOf(a.id) - chosen.indexOf(b.id))
    return { rows, total: Math.max(total, knownBy.size), failed: false }
  }

  /** The worker that has it answers: nobody waits for one that hangs. Of one that has ended, what the page shows is left. */
  async recorded(id: string): Promise<Traced | undefined> {
    const asked = [...this.#workers.values()].map(async ({ peer }) => {
      const found = await within(peer.call('recorded', id), ANSWER_MS)
      if (!found) throw new Error('not there')
      return found
    })
    const shown = () => {
      const record = this.#recent.find(id)
      return record && { ...record, alike: null }
    }
    return Promise.any(asked).catch(shown)
  }

  take(): Snapshot {
    const recent = this.#recent.since(this.#lastSeq)
    this.#lastSeq = this.#recent.last
    const figures = this.#figures
    return {
      at: this.#clock.now(),
      gateway: this.#facts(),
      config: configOf(figures.map(({ config }) => config)),
      live: { ...this.#live, ...sumOf(figures.map(({ live }) => live)) },
      chains: sumOfChains(figures.map(({ chains }) => chains)).map(rowsOf),
      backends: sumOfBackends(figures.map(({ backends }) => backends)),
      providers: joined(
        figures.map(({ providers }) => providers),
        ({ provider }) => provider,
        sumOf,
      ),
      retries: figures.reduce((all, { retries }) => all + retries, 0),
      accounts: this.#accounts,
      ready: this.#ready,
      today: this.#today.row(this.#clock.now()),
      incidents: sumOfIncidents(figures.map(({ incidents }) => incidents)),
      impacts: sumOfImpacts(figures.map(({ impacts }) => impacts)),
      shedding: sumOfShedding(figures.map(({ shedding }) => shedding)),
      recent,
    }
  }

  whole(snapshot: Snapshot): Snapshot {
    return { ...snapshot, recent: this.#recent.since(0) }
  }

  #facts(): GatewayFacts {
    const [first] = this.#workers.values()
    const none = { version: '', node: process.version, address: '', listener: 'uws', store: 'redis' } as const
    return { ...none, ...first?.facts, pid: process.pid, startedAt: this.#startedAt, worker: 0, workers: this.#count }
  }
}

const byNumber = (a: Worker, b: Worker) => a.number - b.number

const named = (numbers: readonly number[]) => `worker${numbers.length > 1 ? 's' : ''} ${numbers.join(', ')}`

// ---- metrics --------------------------------------------------------------------------------------------------------

/** Metrics of a process, which mean nothing when they are added. */
const OF_A_PROCESS = /^(process|nodejs)_/

/** Marks the values that are not added by the number of their worker. */
function labelled(metrics: MetricJson[], worker: number): MetricJson[] {
  return metrics.map(metric => {
    const apart = metric.aggregator === 'worker' || OF_A_PROCESS.test(metric.name)
    const values = metric.values.map(({ metricName, labels, value }) => ({
      ...(metricName !== undefined && { metricName }),
      labels: apart ? { ...labels, worker: String(worker) } : labels,
      value: value ?? Number.NaN,
    }))
    return { ...metric, aggregator: apart ? 'sum' : metric.aggregator, values }
  })
}

const growing = (metrics: MetricJson[]) => metrics.filter(({ type }) => type === 'counter' || type === 'histogram')

const aggregate = (parts: MetricJson[][]) => AggregatorRegistry.aggregate(parts)

const sum = (parts: MetricJson[][]) => aggregate(parts).getMetricsAsArray() as unknown as MetricJson[]

// ---- the dashboard --------------------------------------------------------------------------------------------------

const NOTHING = sumOfLives([], { ttfb: full([]), duration: full([]) }, 0)

/** Adds numbers member by member; other members are those of the first. */
function sumOf<T extends object>(all: readonly T[]): T {
  const out: Record<string, unknown> = { ...all[0] }
  for (const one of all.slice(1))
    for (const [name, value] of Object.entries(one))
      if (typeof value === 'number') out[name] = round(((out[name] as number | undefined) ?? 0) + value)
  return out as T
}

/** Joins lists: what has one name becomes one. */
function joined<T>(lists: readonly (readonly T[])[], name: (one: T) => string, join: (same: T[]) => T): T[] {
  const all = new Map<string, T[]>()
  for (const one of lists.flat()) all.set(name(one), [...(all.get(name(one)) ?? []), one])
  return [...all.values()].map(join)
}

function full(parts: readonly (readonly [number, number][])[]): number[] {
  const counts: number[] = []
  for (const [i, count] of parts.flat()) counts[i] = (counts[i] ?? 0) + count
  return counts
}

/** Rates and open exchanges add up; the event-loop delay is that of the worst worker. */
function sumOfLives(lives: readonly Live[], durations: Durations, at: number): Live {
  const of = (name: keyof Live) => round(lives.reduce((all, live) => all + (live[name] as number), 0))
  const worst = (name: keyof Live['loop']) => Math.max(0, ...lives.map(({ loop }) => loop[name]))
  return {
    at,
    ok: of('ok'),
    refused: of('refused'),
    failed: of('failed'),
    gone: of('gone'),
    input: of('input'),
    output: of('output'),
    exchanges: of('exchanges'),
    streams: of('streams'),
    connections: of('connections'),
    ...quantiles(durations),
    loop: { p50: worst('p50'), p99: worst('p99'), max: worst('max') },
  }
}

/** The configuration that the workers have; the refusal of any of them is shown. */
function configOf(configs: readonly Snapshot['config'][]): Snapshot['config'] {
  const first = configs[0]
  if (!first) {
    return { file: '', loadedAt: 0, generation: 0, reloaded: false, warnings: [], pending: [], refused: null }
  }
  return {
    ...first,
    generation: Math.max(...configs.map(({ generation }) => generation)),
    loadedAt: Math.max(...configs.map(({ loadedAt }) => loadedAt)),
    reloaded: configs.some(({ reloaded }) => reloaded),
    pending: [...new Set(configs.flatMap(({ pending }) => pending))],
    refused: configs.find(({ refused }) => refused !== null)?.refused ?? null,
  }
}

function sumOfChains(lists: readonly ChainFigures[][]): ChainFigures[] {
  return joined(
    lists,
    ({ name }) => name,
    same => ({
      ...same[0]!,
      routes: joined(
        same.map(({ routes }) => routes),
        ({ name }) => name,
        sumOf,
      ),
      links: joined(
        same.map(({ links }) => links),
        ({ id }) => id,
        sumOf,
      ),
    }),
  )
}

const WORST = ['closed', 'half-open', 'open'] as const

/** Each worker has breakers of its own: the state that is shown is the worst. */
function sumOfBackends(lists: readonly Snapshot['backends'][]): Snapshot['backends'] {
  return joined(
    lists,
    ({ id }) => id,
    same => ({
      ...sumOf(same),
      breaker: WORST[Math.max(...same.map(({ breaker }) => WORST.indexOf(breaker)))]!,
      out: latestOut(same),
      closedTo: Math.max(...same.map(({ closedTo }) => closedTo)),
      closedToFirst: [...new Set(same.flatMap(({ closedToFirst }) => closedToFirst))].slice(0, CLOSED_TO_NAMED),
      errorRate: Math.max(...same.map(({ errorRate }) => errorRate)),
    }),
  )
}

/** Of the worker that leaves it out longest. */
function latestOut(same: Snapshot['backends']): Snapshot['backends'][number]['out'] {
  return same.reduce<Snapshot['backends'][number]['out']>(
    (latest, { out }) => (out && (!latest || out.until > latest.until) ? out : latest),
    null,
  )
}

function sumOfUse(all: readonly Use[]): Use {
  return sumOf([{ requests: 0, input: 0, output: 0, cost: 0 }, ...all])
}
