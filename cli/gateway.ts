/**
 * The composition root: builds a gateway from core, surfaces, providers, stores and plugins. Everything that touches
 * the outside (files, sockets, the clock) is passed in from here.
 */
import { randomBytes, randomUUID } from 'node:crypto'
import { isAbsolute, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AccountReader } from '../admin/accounts.ts'
import { answerApi, noteRefusedToken } from '../admin/api.ts'
import { type AccountNamesInUse, Metrics } from '../admin/metrics.ts'
import { Observer } from '../admin/observer.ts'
import { type Part, partOf } from '../admin/part.ts'
import { type Admin, addressOf, type RouteRequest, startAdmin } from '../admin/server.ts'
import { type ConfigState, type GatewayFacts, Snapshots } from '../admin/snapshot.ts'
import { changedNames } from '../config/changes.ts'
import { type ConfigError, formatError } from '../config/load.ts'
import {
  faultsOf,
  type Names,
  standingOf,
  takenAway,
  twiceFaults,
  unansweredFault,
  usersOf,
} from '../config/retired.ts'
import type { GatewayConfig } from '../config/types.ts'
import { type Watching, watchFiles } from '../config/watch.ts'
import type { SurfaceName } from '../core/canon/conversation.ts'
import { GatewayError } from '../core/canon/errors.ts'
import { type BuildOptions, type Chain, takesMessages } from '../core/engine/chain.ts'
import { createSharedState } from '../core/engine/shared-state.ts'
import type { Logger, Plugin } from '../core/plugin.ts'
import type { NameCount, NameUsers } from '../core/ports/accounts.ts'
import type { Listener, ListenerFactory, WebSocketOptions } from '../core/ports/listener.ts'
import { type Store, StoreRefused, StoreUnavailable } from '../core/ports/store.ts'
import { errorBody } from '../core/ports/surface.ts'
import { type Clock, SteadyClock, systemClock } from '../core/tools/clock.ts'
import { requestId } from '../core/tools/ids.ts'
import { Ticker } from '../core/tools/ticker.ts'
import { type Generation, Ingress } from '../http/ingress.ts'
import { callerOf, type LagProbe, OverloadGuard, TimerLag, YoungExchanges } from '../http/overload.ts'
import { meterPool } from '../meter/index.ts'
import packageJson from '../package.json' with { type: 'json' }
import { mediaGate } from '../plugins/media/index.ts'
import { directoryOf } from '../plugins/shared/directory.ts'
import { ownerOf, preparationOf } from '../plugins/shared/preparation.ts'
import { unsentOf } from '../plugins/shared/unsent.ts'
import { sharedBackends, upstreamHealth } from '../plugins/upstream/health.ts'
import { startSimulator } from '../providers/simulator/server.ts'
import { openStore } from '../stores/index.ts'
import { DRAIN_TAIL, drainOf, holdsDrained } from '../stores/redis/drained.ts'
import { Shipping } from '../stores/ship/background.ts'
import { checkTarget, nameOfTarget } from '../stores/ship/ship.ts'
import { callersSurface, offered, surfaces } from '../surfaces/index.ts'
import { buildAssembly, ConfigRefused, resolveSimulator } from './assembly.ts'
import { load, loadAside } from './load.ts'
import { routeReport, withModel } from './route-report.ts'
import { Failure } from './terminal.ts'

export interface GatewayOptions {
  log: Logger
  /** Called with the section `log` of each configuration that a reload applies. */
  configureLog?(settings: GatewayConfig['log']): void
  clock?: Clock
  random?(): number
  /** Source of the event-loop lag; by default it is measured. */
  lag?: LagProbe
  /** Times the reaction to that lag; by default the system's clock. */
  lagClock?: Clock
  /** Overrides `server.listen` of the file: tests listen on port 0. */
  listen?: { host?: string; port?: number }
  admin?: { host?: string; port?: number } | false
  listener?: 'uws' | 'node'
  /** Whether several processes share the port. */
  sharePort?: boolean
  /** Number of this process among `server.workers`, from 1. */
  worker?: number
  /** Called once it listens, instead of starting an admin listener: another process has one for all workers. */
  onPart?(part: Part, facts: GatewayFacts): void
  /** Asks once for all workers which names accounts of the store use; by default each process asks by itself. */
  usersOf?(names: Names): Promise<NameUsers[]>
  /** Names this process in leases and journals. */
  instance?: string
  /** Follow the file (default true). */
  watch?: boolean
  /** For tests: every request hook answers through a promise. */
  forceAsync?: boolean
  /** For tests: wraps the hooks of each plugin. */
  around?: BuildOptions['around']
  env?: Record<string, string | undefined>
}

export interface Gateway {
  readonly config: GatewayConfig
  /** `http://127.0.0.1:8080`. */
  readonly address: string
  readonly port: number
  readonly adminAddress: string | undefined
  readonly listener: Listener
  readonly store: Store
  readonly ingress: Ingress
  readonly warnings: ConfigError[]
  /**
   * Builds the chains of the file as it is now, and puts them into service. If the file is not valid, the old chains go
   * on serving.
   */
  reload(): Promise<{ applied: boolean; errors: ConfigError[] }>
  /**
   * Is not ready any more, and takes requests for `server.drain_delay` longer. Then stops accepting, lets exchanges run
   * for up to `server.drain`, ends the rest with an error frame, and closes.
   */
  drain(): Promise<void>
  /** Closes at once. */
  close(): Promise<void>
}

/**
 * Time in milliseconds for clients to read their last responses from the kernel's buffers, and to close idle
 * connections.
 */
const LAST_BYTES_MS = 200
/** Time in milliseconds for which the counts of accounts are shown as they were read. */
const NAMES_MS = 5000
/** Time in milliseconds between two looks whether the store answers, at a start. */
const STORE_AGAIN_MS = 250

const LISTENERS: Record<'uws' | 'node', () => Promise<ListenerFactory>> = {
  uws: async () => (await import('../http/uws/listener.ts')).listenUws,
  node: async () => (await import('../http/node/listener.ts')).listenNode,
}

/**
 * Loads, checks and starts a gateway.
 * @throws ConfigRefused when the file is not valid, or when one of its plugins does not start
 */
export async function buildGateway(configPath: string, options: GatewayOptions): Promise<Gateway> {
  const path = isAbsolute(configPath) ? configPath : resolve(configPath)
  const loaded = await load(path, { env: options.env, generation: 0 })
  if (loaded.errors) throw new ConfigRefused(loaded.errors)
  const gateway = new RunningGateway(path, loaded.config, loaded.warnings, loaded.files, options)
  try {
    await gateway.start(loaded.plugins)
  } catch (error) {
    await gateway.close()
    throw error
  }
  return gateway
}

class RunningGateway implements Gateway {
  config: GatewayConfig
  #loadWarnings: readonly ConfigError[]
  /** Warnings about the chains as they were built. */
  #chainWarnings: readonly ConfigError[] = []
  readonly #path: string
  readonly #options: GatewayOptions
  readonly #log: Logger
  readonly #clock: Clock
  readonly #random: () => number
  readonly #shared = createSharedState()
  readonly #metrics: Metrics
  readonly #observer: Observer
  readonly ingress: Ingress
  readonly #guard: OverloadGuard
  readonly #young: YoungExchanges
  #files: string[]
  #listener: Listener | undefined
  #admin: Admin | undefined
  #store: Store | undefined
  #shipping: Shipping | undefined
  #secret: Uint8Array = new Uint8Array()
  #plugins: ReadonlyMap<string, Plugin> = new Map()
  #simulator: { url: string; close(): Promise<void> } | undefined
  #watching: Watching | undefined
  #generation = 0
  #chains: Chain[] = []
  /** Chains of former generations on which exchanges still run. */
  readonly #retiring = new Set<Chain>()
  readonly #startedAt: number
  #loadedAt: number
  #refusedReload: ConfigState['refused'] = null
  #pendingSections: string[] = []
  /** What accounts of the store name, and until when that is not read again, by the monotonic clock. */
  #names: Promise<readonly NameCount[]> = Promise.resolve([])
  #namesUntil = Number.NEGATIVE_INFINITY
  /** The configuration of the start. Sections that a reload can't change, such as `server`, are compared with it. */
  readonly #atStart: GatewayConfig
  #reloading: Promise<unknown> = Promise.resolve()
  #closed: Promise<void> | undefined
  #draining = false

  constructor(path: string, config: GatewayConfig, warnings: ConfigError[], files: string[], options: GatewayOptions) {
    this.#path = path
    this.config = config
    this.#loadWarnings = warnings
    this.#files = files
    this.#options = options
    this.#log = options.log
    this.#clock = options.clock ?? new SteadyClock(systemClock)
    this.#random = options.random ?? Math.random
    this.#atStart = config
    this.#startedAt = this.#clock.now()
    this.#loadedAt = this.#startedAt
    this.#metrics = new Metrics({
      info: () => this.#info(),
      openExchanges: () => this.ingress.running.size,
      openStreams: () => this.#openStreams(),
      openWebSockets: () => this.ingress.webSockets,
      overrunTunnels: () => this.#listener?.overrunTunnels ?? 0,
      overrunTurns: () => this.#listener?.overrunTurns ?? 0,
      connections: () => this.#listener?.connections ?? 0,
      chains: () => [...this.#retiring, ...this.#chains],
      shed: () => this.#guard.shed,
      runningLimit: () => this.#guard.limit,
      upstream: () => upstreamHealth(this.#shared, this.#clock.mono()),
      store: () => this.#store,
      shipping: () => this.#shipping?.figures,
      meterJobs: () => meterPool().jobs,
      preparation: () => preparationOf(this.#shared),
      unsent: () => unsentOf(this.#shared),
      directory: () => directoryOf(this.#shared).stats,
      mediaFetches: () => mediaGate(this.#shared),
      accountNames: () => this.#accountNames(),
      config: () => this.#configState(),
    })
    this.#observer = new Observer(this.#metrics, this.#log)
    // The lag is that of the process, so it is measured with the system's clock, whichever clock the exchanges use.
    this.#guard = new OverloadGuard(
      options.lag ?? new TimerLag(systemClock),
      this.#random,
      options.lagClock ?? systemClock,
    )
    this.#young = new YoungExchanges(options.lagClock ?? systemClock)
    this.ingress = new Ingress({
      overloaded: (incoming, running) => {
        const caller = callerOf(incoming)
        if (this.#guard.refuses(caller, running, this.#young, this.config.platform)) return true
        this.#young.started(caller)
        return false
      },
      clock: this.#clock,
      log: this.#log,
      random: this.#random,
      keepAliveMs: config.server.keep_alive,
      ticker: new Ticker(this.#clock, Math.min(1000, Math.max(20, config.server.keep_alive / 4))),
      callersSurface,
      offered,
      hold: (handshake, bytes) =>
        preparationOf(this.#shared).hold(ownerOf(handshake), bytes, this.config.platform.preparation),
      onSettled: (x, settlement) => {
        this.#young.ended(callerOf(x.incoming), settlement.durationMs)
        this.#observer.settled(x, settlement)
      },
      onRefused: (route, error, id) => this.#observer.refused(route, error, id, this.#clock.now()),
    })
  }

  get address(): string {
    const scheme = this.config.server.tls ? 'https' : 'http'
    const { host, port } = this.listener
    return `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
  }
  get port(): number {
    return this.listener.port
  }
  get adminAddress(): string | undefined {
    return this.#admin && addressOf(this.#admin)
  }
  get listener(): Listener {
    if (!this.#listener) throw new Error('the gateway is not listening')
    return this.#listener
  }
  get store(): Store {
    if (!this.#store) throw new Error('the gateway has no store yet')
    return this.#store
  }

  /** Starts everything. A change of the file meanwhile is loaded once the start is finished. */
  start(plugins: ReadonlyMap<string, Plugin>): Promise<void> {
    if (this.#options.watch !== false) {
      this.#watching = watchFiles(
        this.#files,
        () => {
          this.reload().catch(error => this.#log.error({ err: error }, 'reload failed'))
        },
        { onError: error => this.#log.warn({ err: error }, 'a configuration folder can’t be watched') },
      )
    }
    const started = this.#start(plugins)
    this.#reloading = started.catch(() => {})
    return started
  }

  async #start(plugins: ReadonlyMap<string, Plugin>): Promise<void> {
    const config = this.config
    const options = this.#options
    const idempotency = optionsOf(config, 'idempotency')
    const { ship } = config.ledger
    if (ship) await checkTarget(ship.to)
    this.#store = await openStore({
      url: config.store.url,
      timeout: config.store.timeout,
      instance: options.instance,
      clock: this.#clock,
      log: this.#log,
      ledgerKeep: config.ledger.keep,
      ship: ship && { target: nameOfTarget(ship.to), keepUnshipped: ship.keep_unshipped },
      audit: config.server.admin.audit,
      maxMemory: config.store.max_memory,
      maxRecords: config.store.max_records,
      share: config.store.share,
      replicas: config.store.replicas,
      ...(idempotency && {
        idempotency: { maxRecord: idempotency['max_record'] as number, maxTotal: idempotency['max_total'] as number },
      }),
    })
    // The other workers of this gateway would only wait for the lease of the first.
    if (ship && (options.worker ?? 1) === 1) {
      const drained = drainOf(config.store.url)
      const drains = drained !== null && ship.to === `file:${drained}`
      if (drained !== null && !drains && holdsDrained(drained))
        this.#log.warn({ folder: drained }, 'ledger rows of before are in this folder, and are not shipped')
      const work = {
        ...{ store: config.store.url, to: ship.to, interval: ship.interval, holder: randomUUID() },
        ...(drains && { drain: { tail: DRAIN_TAIL, keep: config.ledger.keep } }),
      }
      this.#shipping = new Shipping(work, { clock: this.#clock, log: this.#log })
    }
    const directory = directoryOf(this.#shared)
    await directory.open({ store: this.#store.accounts, clock: this.#clock, log: this.#log }, config.directory)
    const twice = await this.#inBothPlaces(config)
    if (twice.length > 0) throw new ConfigRefused(twice)
    this.#plugins = plugins
    const secret = await this.#earlySecret()
    this.#secret = secret ?? randomBytes(32)
    const first = await this.#build(config, plugins)
    if (secret) this.ingress.use(first)
    try {
      await this.#listen()
      if (secret) return
      this.#secret = await this.#lateSecret()
      this.ingress.use(await this.#build(config, plugins))
    } finally {
      // Without the secret it only told of faults in plugins, and what the listener must know.
      if (!secret) await first.close()
    }
  }

  /** The secret; undefined when the store does not answer yet. */
  async #earlySecret(): Promise<Uint8Array | undefined> {
    try {
      return await this.store.secret(this.config.secret)
    } catch (error) {
      if (error instanceof StoreRefused || !(error instanceof StoreUnavailable)) throw error
      this.#log.warn(
        { error: error.message },
        'waiting for the store, which has the secret; until it answers, every request is refused with 503',
      )
      return undefined
    }
  }

  /** Waits for the store. Meanwhile the gateway listens, without a generation, and is not ready. */
  async #lateSecret(): Promise<Uint8Array> {
    for (;;) {
      await sleep(STORE_AGAIN_MS)
      try {
        const secret = await this.store.secret(this.config.secret)
        this.#log.info({}, 'the store answers')
        return secret
      } catch (error) {
        if (error instanceof StoreRefused || !(error instanceof StoreUnavailable)) throw error
      }
    }
  }

  async #listen(): Promise<void> {
    const config = this.config
    const options = this.#options
    const { server } = config
    const listen = await LISTENERS[options.listener ?? server.listener]()
    this.#listener = await listen(
      {
        host: options.listen?.host ?? server.listen.host,
        port: options.listen?.port ?? server.listen.port,
        sharePort: options.sharePort,
        clock: this.#clock,
        maxConnections: server.max_connections,
        stallTimeoutMs: server.stall_timeout,
        trustProxy: server.trust_proxy,
        ...(server.tls && { tls: server.tls }),
        ...(server.websocket === 'on' && { webSocket: this.#webSocketOptions() }),
        refuse,
        // The client was answered with 500, or its connection was closed.
        onError: error => this.#log.error({ err: error }, 'the listener failed an exchange'),
      },
      this.ingress.handle,
    )
    if (options.admin !== false) {
      const { registry } = this.#metrics
      const snapshots = this.#snapshots()
      const api = {
        store: this.store,
        config: () => this.config,
        reader: new AccountReader(this.store, this.#observer.use),
        now: () => this.#clock.now(),
      }
      const ready = () => this.#ready()
      const route = (request: RouteRequest) => this.#route(request)
      const tokens = () => this.config.server.admin.tokens
      if (options.onPart) {
        const { recent, use } = this.#observer
        const organizations = () => this.#organizations()
        const { reader } = api
        const usersOf = this.#usersOf
        const sources = { registry, snapshots, recent, use, reader, organizations, tokens, api, ready, route, usersOf }
        const part = partOf(sources)
        return options.onPart(part, this.#facts())
      }
      this.#admin = await startAdmin({
        host: options.admin?.host ?? server.admin.host,
        port: options.admin?.port ?? server.admin.port,
        token: server.admin.token,
        tokens,
        api: (caller, request, path, query) => answerApi(api, caller, request, path, query),
        tokenRefused: address => noteRefusedToken(api, address),
        hosts: server.admin.hosts,
        registry,
        metrics: () => registry.metrics(),
        snapshots,
        ready,
        route,
      })
    }
  }

  /**
   * What a listener must know about WebSocket messages before it starts. A message may have twice the size of the
   * largest body, so that one that is only too long for a body is read whole and refused with an error; only a much
   * longer one closes the connection. A peer that answers no ping gets the time limit of a body, because its pong waits
   * behind the message that it is sending.
   */
  #webSocketOptions(): WebSocketOptions {
    const spoken = this.config.routes.filter(route => route.surface && surfaces[route.surface]!.socket)
    const bodies = this.#chains
      .filter(chain => takesMessages(chain) && spoken.some(route => route.pipeline === chain.name))
      .map(chain => chain.body)
    return {
      maxMessageBytes: Math.min(2 ** 31 - 1, 2 * Math.max(1024 * 1024, ...bodies.map(body => body?.maxBytes ?? 0))),
      pongTimeoutMs: Math.max(1000, ...bodies.map(body => body?.timeoutMs ?? 0)),
    }
  }

  async #ready(): Promise<{ ok: boolean; reason?: string }> {
    if (this.#draining) return { ok: false, reason: 'draining' }
    const state = await this.store.ready()
    const reason = state.reason ?? this.#shipping?.waiting
    if (this.ingress.generation) return { ok: state.ok, ...(reason !== undefined && { reason }) }
    return { ok: false, reason: `starting${state.ok ? '' : `, and waiting for the store: ${state.reason}`}` }
  }

  /**
   * Answers `POST /route`: the report of `sluice route` for the configuration that serves, with the present health of
   * its backends.
   */
  async #route(request: RouteRequest): Promise<{ report: unknown } | { fault: string }> {
    const { surface = 'chat', model, organization, key } = request
    if (!Object.hasOwn(surfaces, surface)) return { fault: `there is no surface '${surface}'` }
    const backends = sharedBackends(this.#shared)
    const now = this.#clock.mono()
    try {
      const body = model === undefined ? request.body : withModel(request.body, model, 'the body')
      const question = { surface: surface as SurfaceName, body, organization, key }
      const outOf = (backend: string, organization: string) =>
        backends.leavesOut(backend, organization, now)
          ? 'it is out: its breaker is open, or it asked for a pause'
          : undefined
      const config = structuredClone(this.config)
      const stored = organization === undefined ? null : directoryOf(this.#shared).organization(organization)
      if (stored) config.organizations[stored.id] ??= structuredClone(stored)
      return { report: await routeReport(config, this.#plugins, this.#path, question, outOf) }
    } catch (error) {
      if (error instanceof Failure) return { fault: error.message }
      throw error
    }
  }

  // ---- what the admin pages show ------------------------------------------------------------------------------------

  #snapshots(): Snapshots {
    return new Snapshots({
      clock: this.#clock,
      metrics: this.#metrics,
      recent: this.#observer.recent,
      use: this.#observer.use,
      store: this.store,
      facts: () => this.#facts(),
      config: () => this.config,
      organizations: () => this.#organizations(),
      configState: () => this.#configState(),
      chains: () => this.#chains,
      openExchanges: () => this.ingress.running.size,
      openStreams: () => this.#openStreams(),
      connections: () => this.listener.connections,
      upstream: () => upstreamHealth(this.#shared, this.#clock.mono()),
      ready: () => this.#ready(),
    })
  }

  #organizations(): GatewayConfig['organizations'] {
    const all = { ...this.config.organizations }
    for (const id of this.#observer.use.organizations()) {
      const stored = Object.hasOwn(all, id) ? null : directoryOf(this.#shared).organization(id)
      if (stored) all[id] = stored
    }
    return all
  }

  #facts(): GatewayFacts {
    return {
      version: packageJson.version,
      node: process.version,
      pid: process.pid,
      startedAt: this.#startedAt,
      address: this.address,
      listener: this.listener.kind,
      store: this.store.engine,
      worker: this.#options.worker ?? 0,
      workers: this.#options.worker === undefined ? 1 : this.config.server.workers,
    }
  }

  #info(): Record<string, string> {
    const { version, node, listener, store, worker } = this.#facts()
    return { version, node, listener, store, worker: String(worker) }
  }

  #configState(): ConfigState {
    return {
      file: this.#path,
      loadedAt: this.#loadedAt,
      generation: this.ingress.generation?.number ?? 0,
      reloaded: this.#loadedAt !== this.#startedAt,
      warnings: this.warnings,
      pending: this.#pendingSections,
      refused: this.#refusedReload,
    }
  }

  #openStreams(): number {
    let open = 0
    for (const x of this.ingress.running) if (x.headSent) open++
    return open
  }

  readonly #simulatorUrl = async (): Promise<string> => (this.#simulator ??= await startSimulator({ port: 0 })).url

  /** Compiles a checked configuration: every chain, every route. */
  async #build(config: GatewayConfig, plugins: ReadonlyMap<string, Plugin>): Promise<Generation> {
    const { chains, router, warnings, close } = await buildAssembly({
      services: {
        config,
        store: this.store,
        clock: this.#clock,
        random: this.#random,
        log: this.#log,
        shared: this.#shared,
        secret: this.#secret,
      },
      plugins,
      simulator: this.#simulatorUrl,
      forceAsync: this.#options.forceAsync,
      around: this.#options.around,
    })
    for (const chain of this.#chains) this.#retiring.add(chain)
    this.#chains = [...chains.values()]
    this.#chainWarnings = warnings
    return {
      number: this.#generation,
      router,
      close: async () => {
        this.#metrics.retire(chains.values())
        for (const chain of chains.values()) this.#retiring.delete(chain)
        await close()
      },
    }
  }

  reload(): Promise<{ applied: boolean; errors: ConfigError[] }> {
    const next = this.#reloading.then(() => this.#reload())
    this.#reloading = next.catch(() => {})
    return next
  }

  get warnings(): ConfigError[] {
    return [...this.#loadWarnings, ...this.#chainWarnings]
  }

  async #reload(): Promise<{ applied: boolean; errors: ConfigError[] }> {
    if (this.#closed || this.#draining) return { applied: false, errors: [] }
    const generation = ++this.#generation
    const told = this.warnings
    const loaded = await loadAside(this.#path, { env: this.#options.env, generation, before: this.config })
    this.#watching?.update(loaded.files.length > 0 ? loaded.files : this.#files)
    const refuseReload = (errors: ConfigError[]) => {
      for (const error of errors)
        this.#log.error(
          { file: error.file, line: error.line, column: error.column },
          `configuration not reloaded: ${formatError(error)}`,
        )
      this.#metrics.reloaded('refused')
      this.#refusedReload = { at: this.#clock.now(), errors }
      return { applied: false, errors }
    }
    if (loaded.errors) return refuseReload(loaded.errors)
    const twice = await this.#inBothPlaces(loaded.config)
    if (twice.length > 0) return refuseReload(twice)
    const left = await this.#leftBehind(loaded.config)
    if (left.length > 0) return refuseReload(left)
    let changed: string[]
    try {
      await resolveSimulator(loaded.config, this.#simulatorUrl)
      changed = changedNames(this.config, loaded.config)
      const same = changed.length === 0 && !readsOtherFiles(loaded.config)
      const built = same ? undefined : await this.#build(loaded.config, loaded.plugins)
      const fixed = needRestart(this.#atStart, loaded.config)
      if (fixed.length > 0) this.#log.warn({ sections: fixed }, 'these sections take effect at the next start')
      this.config = loaded.config
      this.#plugins = loaded.plugins
      this.#loadWarnings = loaded.warnings
      this.#tellNew(told)
      this.#files = loaded.files
      if (built) this.ingress.use(built)
      directoryOf(this.#shared).resize(loaded.config.directory)
      this.#options.configureLog?.(loaded.config.log)
      this.#loadedAt = this.#clock.now()
      this.#refusedReload = null
      this.#pendingSections = fixed
    } catch (error) {
      if (error instanceof ConfigRefused) return refuseReload(error.errors)
      return refuseReload([{ file: this.#path, line: 1, column: 1, message: (error as Error).message }])
    }
    this.#metrics.reloaded('applied')
    this.#log.info({ generation, changed }, 'configuration reloaded')
    return { applied: true, errors: [] }
  }

  /**
   * The organizations that stand in the file and in the store. An id stands in one place only, so that nobody can take
   * over another's limits and spend. While the store does not answer, `Accounts` refuses the store's one when it is used.
   */
  async #inBothPlaces(config: GatewayConfig): Promise<ConfigError[]> {
    if (directoryOf(this.#shared).empty) return []
    const held = await Promise.resolve()
      .then(() => this.store.accounts.held(Object.keys(config.organizations)))
      .catch((error: Error) => {
        this.#log.warn({ err: error }, 'the store does not say which organizations it has')
        return []
      })
    return twiceFaults(held, config)
  }

  /**
   * What a file takes away from accounts of the store. The store is asked only when it takes a plan or model away, and a
   * store that does not answer keeps the configuration that serves: what goes by mistake is an outage for all who use it.
   */
  async #leftBehind(after: GatewayConfig): Promise<ConfigError[]> {
    const names = takenAway(this.config, after)
    if (names.plan.length + names.model.length === 0 || directoryOf(this.#shared).empty) return []
    try {
      const users = await (this.#options.usersOf ?? this.#usersOf)(names)
      return faultsOf(users, after)
    } catch (error) {
      return [unansweredFault(names, after, (error as Error).message)]
    }
  }

  /** Which of the names accounts of the store use. */
  readonly #usersOf = (names: Names): Promise<NameUsers[]> => usersOf(this.store.accounts, names)

  /** What accounts of the store name, for the metrics; as it was when the store does not answer. */
  async #accountNames(): Promise<AccountNamesInUse> {
    const now = this.#clock.mono()
    if (now >= this.#namesUntil && !directoryOf(this.#shared).empty) {
      this.#namesUntil = now + NAMES_MS
      const before = this.#names
      this.#names = Promise.resolve()
        .then(() => this.store.accounts.names())
        .catch(() => before)
    }
    const names = await this.#names
    const standing = standingOf(this.config)
    return names.map(count => ({ ...count, standing: standing(count.kind, count.name) }))
  }

  /** Logs the warnings of a reloaded file, except those that were told before. */
  #tellNew(before: readonly ConfigError[]): void {
    const told = new Set(before.map(({ message }) => message))
    for (const warning of this.warnings) {
      const { file, line, column, message } = warning
      if (!told.has(message)) this.#log.warn({ file, line, column }, `configuration warning: ${formatError(warning)}`)
    }
  }

  async drain(): Promise<void> {
    if (this.#draining) return this.close()
    this.#draining = true
    this.#watching?.close()
    const { drain_delay: delay } = this.config.server
    if (delay > 0) {
      this.#listener?.retire()
      await new Promise<void>(resolve => this.#clock.setTimer(delay, resolve))
      if (this.#closed) return this.#closed
    }
    this.#listener?.drain()
    let late = false
    const deadline = new Promise<void>(resolve => {
      this.#clock.setTimer(this.config.server.drain, () => {
        late = true
        resolve()
      })
    })
    await Promise.race([this.ingress.idle(), deadline])
    this.ingress.expire()
    await this.ingress.idle()
    // An exchange ends when its response is handed to the listener. To a slow client, sending it may take until the
    // deadline.
    const end = performance.now() + LAST_BYTES_MS
    const waits = () => performance.now() < end || (this.listener.unsent > 0 && !late)
    while (this.listener.connections > 0 && waits() && !this.#closed) await sleep(5)
    await this.close()
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.#guard.close()
    directoryOf(this.#shared).close()
    this.#watching?.close()
    await this.#reloading
    await this.#listener?.close()
    // Ends the exchanges whose client has disconnected and that still read their upstream (`on_client_gone: drain`).
    this.ingress.expire()
    await this.ingress.close()
    await this.#admin?.close()
    await this.#simulator?.close()
    await this.#shipping?.close()
    await this.#store?.close()
    this.#metrics.close()
  }
}

/** Whether a reload brings what stands in other files than those that were compared: plugins and certificates. */
function readsOtherFiles({ plugins, providers }: GatewayConfig): boolean {
  return plugins.length > 0 || Object.values(providers).some(({ tls }) => tls)
}

/** Names of the settings that differ and that a running process can't change. */
function needRestart(before: GatewayConfig, after: GatewayConfig): string[] {
  const fixed = (config: GatewayConfig) => {
    const { store, secret, ledger } = config
    // Tokens are read from the configuration that serves.
    const server = { ...config.server, admin: { ...config.server.admin, tokens: [] } }
    const { max_record, max_total } = optionsOf(config, 'idempotency') ?? {}
    const idempotency = { 'idempotency.max_record': max_record, 'idempotency.max_total': max_total }
    return { server, store, secret, 'ledger.keep': ledger.keep, 'ledger.ship': ledger.ship, ...idempotency }
  }
  const now = fixed(after)
  return Object.entries(fixed(before))
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(now[name as keyof typeof now]))
    .map(([name]) => name)
}

/** The options of a plugin's first entry in any pipeline; undefined when no pipeline has it. */
function optionsOf(config: GatewayConfig, plugin: string): Record<string, unknown> | undefined {
  for (const entries of Object.values(config.pipelines)) {
    const entry = entries.find(candidate => candidate.plugin === plugin)
    if (entry) return entry.config
  }
  return undefined
}

/** The listener's response to an ambiguous head (R4). */
function refuse(reason: string, words: string) {
  const id = requestId()
  const message = `The request head is not acceptable: ${reason}.${words && ` ${words}`}`
  const error = new GatewayError('bad_request', { message })
  return {
    status: 400,
    headers: [
      ['content-type', 'application/json'],
      ['x-request-id', id],
      ['x-should-retry', 'false'],
    ] as const,
    body: errorBody(undefined, error, id),
  }
}
