/** A reload: loads the file as it is now, and puts it into service, or says why the configuration before stays. */
import { dirname, relative } from 'node:path'
import type { Metrics } from '../../admin/metrics.ts'
import { changedNames, repriced } from '../../config/changes.ts'
import { type ConfigError, formatError } from '../../config/load.ts'
import { storeSettings } from '../../config/store.ts'
import type { GatewayConfig } from '../../config/types.ts'
import type { Logger } from '../../core/plugin.ts'
import type { Clock } from '../../core/tools/clock.ts'
import { ConfigRefused } from '../assembly.ts'
import { loadAside } from '../load.ts'
import type { Loaded } from '../problems.ts'
import type { CurrentConfig } from './current.ts'
import type { BuiltGeneration, Generations } from './generations.ts'
import type { StoredAccounts } from './stored-accounts.ts'

export interface Reloaded {
  applied: boolean
  errors: ConfigError[]
}

export interface ReloadsOptions {
  current: CurrentConfig
  generations: Generations
  accounts: StoredAccounts
  metrics: Metrics
  env: Record<string, string | undefined> | undefined
  clock: Clock
  log: Logger
  /** Called with the files that were read, whether they are valid or not. */
  read(files: readonly string[]): void
  /** Puts a configuration into service. Without a generation, that which serves goes on: nothing of it has changed. */
  apply(config: GatewayConfig, generation: BuiltGeneration | undefined): void
}

export class Reloads {
  readonly #options: ReloadsOptions
  /** Number of the last load. It rises with each, refused ones included. */
  #number = 0

  constructor(options: ReloadsOptions) {
    this.#options = options
  }

  /**
   * To be called when the former call has ended.
   * @param files that are known to have changed, for the log: what differs may be the code of a plugin alone
   */
  async reload(files: readonly string[]): Promise<Reloaded> {
    const { current, generations, accounts, env, read } = this.#options
    const before = current.config
    const number = ++this.#number
    const loaded = await loadAside(current.path, { env, generation: number, before })
    read(loaded.files.length > 0 ? loaded.files : current.files)
    if (loaded.errors) return this.#refuse(loaded.errors)
    const { config } = loaded
    const twice = await accounts.inBothPlaces(config)
    if (twice.length > 0) return this.#refuse(twice)
    const left = await accounts.leftBehind(before, config)
    if (left.length > 0) return this.#refuse(left)
    let changed: string[]
    try {
      await generations.resolve(loaded)
      changed = changedNames(before, config)
      const same = changed.length === 0 && !readsOtherFiles(config)
      this.#apply(loaded, same ? undefined : await generations.build(number, loaded))
    } catch (error) {
      if (error instanceof ConfigRefused) return this.#refuse(error.errors)
      return this.#refuse([{ file: current.path, line: 1, column: 1, message: (error as Error).message }])
    }
    this.#options.metrics.reloaded('applied')
    const { log } = this.#options
    const names = files.map(file => relative(dirname(current.path), file))
    log.info({ generation: number, changed, ...(names.length > 0 && { files: names }) }, 'configuration reloaded')
    const { price_book } = config
    const prices = repriced(before, config)
    if (prices.length > 0)
      log.warn(
        { price_book, prices },
        'prices changed under the same price_book: give it a new name, ledger rows carry it',
      )
    return { applied: true, errors: [] }
  }

  #apply(loaded: Loaded, built: BuiltGeneration | undefined): void {
    const { current, log, clock, apply } = this.#options
    const { config } = loaded
    const known = new Set(current.warnings.map(({ message }) => message))
    const fixed = needRestart(current.atStart, loaded)
    if (fixed.length > 0) log.warn({ sections: fixed }, 'these sections take effect at the next start')
    current.replace(loaded, fixed, clock.now())
    if (built) current.built(built)
    for (const warning of current.warnings) {
      const { file, line, column, message } = warning
      if (!known.has(message)) log.warn({ file, line, column }, `configuration warning: ${formatError(warning)}`)
    }
    apply(config, built)
  }

  #refuse(errors: ConfigError[]): Reloaded {
    const { current, metrics, log, clock } = this.#options
    for (const error of errors)
      log.error(
        { file: error.file, line: error.line, column: error.column },
        `configuration not reloaded: ${formatError(error)}`,
      )
    metrics.reloaded('refused')
    current.refuse(errors, clock.now())
    return { applied: false, errors }
  }
}

/** Whether a reload reads what is in other files than those that were compared: plugins and certificates. */
function readsOtherFiles({ plugins, providers }: GatewayConfig): boolean {
  return plugins.length > 0 || Object.values(providers).some(({ tls }) => tls)
}

/** Names of the settings that differ and that a running process can't change. */
function needRestart(before: GatewayConfig, { config: after, plugins }: Loaded): string[] {
  const fixed = (config: GatewayConfig): Record<string, unknown> => {
    const { store, secret, ledger, pipelines } = config
    // Tokens are read from the configuration that serves.
    const server = { ...config.server, admin: { ...config.server.admin, tokens: [] } }
    const ofPlugins = storeSettings(pipelines, plugins).map(({ name, value }) => [name, value] as const)
    return {
      ...{ server, store, secret, 'ledger.keep': ledger.keep, 'ledger.ship': ledger.ship },
      ...Object.fromEntries(ofPlugins),
    }
  }
  const now = fixed(after)
  return Object.entries(fixed(before))
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(now[name]))
    .map(([name]) => name)
}
