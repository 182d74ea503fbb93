/**
 * The composition root: builds a gateway from core, surfaces, providers, stores and plugins. Everything that touches
 * the outside (files, sockets, the clock) is passed in from here. The parts are in cli/gateway/; this file has the order
 * in which they are opened and closed.
 */
import { randomBytes } from 'node:crypto'
import { isAbsolute, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Metrics } from '../admin/metrics.ts'
import { Observer } from '../admin/observer.ts'
import { type Admin, addressOf } from '../admin/server.ts'
import { SpendWatch } from '../admin/spend-watch.ts'
import { troublesOf } from '../admin/troubles.ts'
import type { GatewayFacts, GatewayView } from '../admin/view.ts'
import { type WorkerApi, workerApi } from '../admin/worker-api.ts'
import type { ConfigError } from '../config/load.ts'
import { RETIRED_API } from '../config/pipelines.ts'
import type { Names } from '../config/retired.ts'
import type { GatewayConfig } from '../config/types.ts'
import { type Watching, watchFiles } from '../config/watch.ts'
import type { BuildOptions } from '../core/engine/chain.ts'
import { createSharedState } from '../core/engine/shared-state.ts'
import { Tenants } from '../core/engine/tenant.ts'
import { type Logger, tenantOf } from '../core/plugin.ts'
import type { NameUsers } from '../core/ports/accounts.ts'
import type { Listener } from '../core/ports/listener.ts'
import type { Store } from '../core/ports/store.ts'
import { type Clock, SteadyClock, systemClock } from '../core/tools/clock.ts'
import { Ticker } from '../core/tools/ticker.ts'
import { Ingress } from '../http/ingress.ts'
import type { LagProbe } from '../http/overload.ts'
import packageJson from '../package.json' with { type: 'json' }
import { accountsOf, directoryOf } from '../plugins/shared/directory.ts'
import { preparationOf } from '../plugins/shared/preparation.ts'
import { recentOf } from '../plugins/shared/recent.ts'
import { identity } from '../plugins/shared/slots.ts'
import type { Shipping } from '../stores/ship/background.ts'
import { callersSurface, offered } from '../surfaces/index.ts'
import { ConfigRefused } from './assembly.ts'
import { budgets } from './budgets.ts'
import { adminSources, openAdmin } from './gateway/admin.ts'
import { CurrentConfig } from './gateway/current.ts'
import { BuiltInUpstream, Generations } from './gateway/generations.ts'
import { openListener } from './gateway/listen.ts'
import { type Reloaded, Reloads } from './gateway/reload.ts'
import { answerRoute } from './gateway/route.ts'
import { Shedding } from './gateway/shedding.ts'
import { earlySecretOf, lateSecretOf, openStoreOf, shippingOf } from './gateway/store.ts'
import { StoredAccounts } from './gateway/stored-accounts.ts'
import { openNow, readiness } from './gateway/view.ts'
import { load } from './load.ts'
import type { Loaded } from './problems.ts'

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
  onWorkerApi?(api: WorkerApi, facts: GatewayFacts): void
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
  reload(): Promise<Reloaded>
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

/**
 * Loads, checks and starts a gateway.
 * @throws ConfigRefused when the file is not valid, or when one of its plugins does not start
 */
export async function buildGateway(configPath: string, options: GatewayOptions): Promise<Gateway> {
  const path = isAbsolute(configPath) ? configPath : resolve(configPath)
  const loaded = await load(path, { env: options.env, generation: 0 })
  if (loaded.errors) throw new ConfigRefused(loaded.errors)
  const gateway = new RunningGateway(path, loaded, options)
  try {
    await gateway.start()
  } catch (error) {
    await gateway.close()
    throw error
  }
  return gateway
}

class RunningGateway implements Gateway {
  readonly #options: GatewayOptions
  readonly #clock: Clock
  readonly #current: CurrentConfig
  readonly #shared = createSharedState()
  readonly #metrics = new Metrics()
  readonly #observer: Observer
  readonly #spendWatch: SpendWatch
  readonly #shedding: Shedding
  readonly #simulator = new BuiltInUpstream()
  readonly ingress: Ingress
  #watching: Watching | undefined
  #store: Store | undefined
  #shipping: Shipping | undefined
  #reloads: Reloads | undefined
  #listener: Listener | undefined
  #admin: Admin | undefined
  /** The start and the reloads, one after the other. */
  #reloading: Promise<unknown> = Promise.resolve()
  #draining = false
  #closed: Promise<void> | undefined

  constructor(path: string, loaded: Loaded, options: GatewayOptions) {
    const { log, random = Math.random, lag, lagClock } = options
    const clock = options.clock ?? new SteadyClock(systemClock)
    const current = new CurrentConfig(path, loaded, clock.now())
    const known = (credential: string) => accountsOf(this.#shared, current.config).known(credential, clock.now())
    const tenants = new Tenants(known, clock)
    const shedding = new Shedding({ tenants, random, lag, lagClock })
    recentOf(this.#shared).pressed = () => shedding.limit > 0
    const spendWatch = new SpendWatch({ store: () => this.#store, clock, log })
    const observer = new Observer(this.#metrics, spendWatch, log, troublesOf(this.#shared))
    this.#options = options
    this.#clock = clock
    this.#current = current
    this.#shedding = shedding
    this.#spendWatch = spendWatch
    this.#observer = observer
    const keepAliveMs = current.config.server.keep_alive
    this.ingress = new Ingress({
      tenants,
      overloaded: (incoming, running) => shedding.refuses(incoming, running, current.config.platform),
      clock,
      log,
      random,
      keepAliveMs,
      ticker: new Ticker(clock, Math.min(1000, Math.max(20, keepAliveMs / 4))),
      callersSurface,
      offered,
      retired: RETIRED_API,
      hold: (handshake, bytes) =>
        preparationOf(this.#shared).hold(tenantOf(handshake), bytes, current.config.platform.preparation),
      onSettled(x, settlement) {
        shedding.ended(x.incoming, settlement.durationMs)
        const caller = x.peek(identity)
        if (caller) tenants.learn(x.incoming, caller.organization.id)
        observer.settled(x, settlement)
      },
      onRefused: (route, error, id, incoming) => observer.refused(route, error, id, clock.now(), tenants.of(incoming)),
    })
  }

  get config(): GatewayConfig {
    return this.#current.config
  }
  get warnings(): ConfigError[] {
    return this.#current.warnings
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
  start(): Promise<void> {
    const { watch, log } = this.#options
    if (watch !== false) {
      this.#watching = watchFiles(
        this.#current.files,
        files => {
          this.reload(files).catch(error => log.error({ err: error }, 'reload failed'))
        },
        { onError: error => log.warn({ err: error }, 'a configuration folder can’t be watched') },
      )
    }
    const started = this.#start()
    this.#reloading = started.catch(() => {})
    return started
  }

  async #start(): Promise<void> {
    const { log, random = Math.random, instance, worker = 1, env, forceAsync, around } = this.#options
    const clock = this.#clock
    const current = this.#current
    const { config } = current
    const store = await openStoreOf(current, instance, { clock, log })
    this.#store = store
    // The other workers of this gateway would only wait for the lease of the first.
    if (worker === 1) this.#shipping = shippingOf(config, { clock, log })
    const directory = directoryOf(this.#shared)
    await directory.open({ store: store.accounts, clock, log }, config.directory)
    const askAll = this.#options.usersOf
    const accounts = new StoredAccounts({ store: store.accounts, directory, current, clock, log, askAll })
    const twice = await accounts.inBothPlaces(config)
    if (twice.length > 0) throw new ConfigRefused(twice)

    const early = await earlySecretOf(store, config.secret, log)
    const generations = new Generations({
      services: { store, clock, random, log, shared: this.#shared },
      secret: early ?? randomBytes(32),
      simulator: this.#simulator,
      forceAsync,
      around,
      retired: chains => this.#metrics.retire(chains),
    })
    // Without the secret it serves nobody; it shows faults in plugins, and what the listener must know.
    const first = await generations.build(0, current)
    current.built(first)
    if (early) this.ingress.use(first)
    try {
      await this.#listen(generations, accounts)
      if (!early) {
        generations.secret = await lateSecretOf(store, config.secret, log)
        const built = await generations.build(0, current)
        current.built(built)
        this.ingress.use(built)
      }
    } finally {
      if (!early) await first.close()
    }
    this.#reloads = new Reloads({
      ...{ current, generations, accounts, metrics: this.#metrics, env, clock, log },
      read: files => this.#watching?.update(files),
      apply: (config, generation) => {
        if (generation) this.ingress.use(generation)
        directory.resize(config.directory)
        this.#options.configureLog?.(config.log)
      },
    })
  }

  async #listen(generations: Generations, accounts: StoredAccounts): Promise<void> {
    const { log, worker, admin, listen, listener, sharePort, onWorkerApi } = this.#options
    const clock = this.#clock
    const current = this.#current
    const { config } = current
    const options = { listen, listener, sharePort, clock, log }
    this.#listener = await openListener(config, generations.serving, options, this.ingress.handle)
    if (admin === false) return
    const view: GatewayView = {
      ...{ clock, store: this.store, current, generations, accounts, shared: this.#shared },
      ...{ shedding: this.#shedding, shipping: this.#shipping, budgets, spendWatch: this.#spendWatch },
      facts: {
        version: packageJson.version,
        node: process.version,
        pid: process.pid,
        startedAt: current.startedAt,
        address: this.address,
        listener: this.#listener.kind,
        store: this.store.engine,
        worker: worker ?? 0,
        workers: worker === undefined ? 1 : config.server.workers,
      },
      open: openNow(this.ingress, this.#listener),
      ready: readiness(this.ingress, this.store, this.#shipping, () => this.#draining),
    }
    const sources = adminSources(view, this.#metrics, this.#observer, request =>
      answerRoute(current, this.#shared, clock, request),
    )
    if (onWorkerApi) onWorkerApi(workerApi(sources), view.facts)
    else this.#admin = await openAdmin(sources, config.server.admin, admin)
  }

  /** @param files that are known to have changed */
  reload(files: readonly string[] = []): Promise<Reloaded> {
    const next = this.#reloading.then((): Reloaded | Promise<Reloaded> => {
      if (this.#closed || this.#draining || !this.#reloads) return { applied: false, errors: [] }
      return this.#reloads.reload(files)
    })
    this.#reloading = next.catch(() => {})
    return next
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
    this.#shedding.close()
    directoryOf(this.#shared).close()
    this.#watching?.close()
    await this.#reloading
    await this.#listener?.close()
    // Ends the exchanges whose client has disconnected and that still read their upstream (`on_client_gone: drain`).
    this.ingress.expire()
    await this.ingress.close()
    await this.#admin?.close()
    await this.#simulator.close()
    await this.#shipping?.close()
    this.#spendWatch.close()
    await this.#store?.close()
    this.#metrics.close()
  }
}
