/** The configuration that serves, and what became of the last reload. */
import type { ConfigState } from '../../admin/view.ts'
import type { ConfigError } from '../../config/load.ts'
import type { GatewayConfig } from '../../config/types.ts'
import type { Plugin } from '../../core/plugin.ts'
import type { Loaded } from '../problems.ts'

export class CurrentConfig {
  /** Absolute path of the main file. */
  readonly path: string
  /** The configuration of the start. Sections that a reload can't change, such as `server`, are compared with it. */
  readonly atStart: GatewayConfig
  /** Unix milliseconds. */
  readonly startedAt: number
  #loaded: Loaded
  /** Warnings about the chains as they were built. */
  #chainWarnings: readonly ConfigError[] = []
  #generation = 0
  #loadedAt: number
  #pending: string[] = []
  #refused: ConfigState['refused'] = null

  /** @param now Unix milliseconds */
  constructor(path: string, loaded: Loaded, now: number) {
    this.path = path
    this.atStart = loaded.config
    this.startedAt = now
    this.#loaded = loaded
    this.#loadedAt = now
  }

  get config(): GatewayConfig {
    return this.#loaded.config
  }

  /** The built-in plugins and those of the configuration's files. */
  get plugins(): ReadonlyMap<string, Plugin> {
    return this.#loaded.plugins
  }

  /** Absolute paths of the files that were read. */
  get files(): readonly string[] {
    return this.#loaded.files
  }

  get warnings(): ConfigError[] {
    return [...this.#loaded.warnings, ...this.#chainWarnings]
  }

  /** Notes the chains of the configuration, which were built. */
  built({ number, warnings }: { number: number; warnings: readonly ConfigError[] }): void {
    this.#generation = number
    this.#chainWarnings = warnings
  }

  /** @param pending names of settings that a running process cannot change and that this configuration changes */
  replace(loaded: Loaded, pending: string[], now: number): void {
    this.#loaded = loaded
    this.#pending = pending
    this.#loadedAt = now
    this.#refused = null
  }

  /** Notes that a reload was refused. */
  refuse(errors: ConfigError[], now: number): void {
    this.#refused = { at: now, errors }
  }

  get state(): ConfigState {
    return {
      file: this.path,
      loadedAt: this.#loadedAt,
      generation: this.#generation,
      reloaded: this.#loadedAt !== this.startedAt,
      warnings: this.warnings,
      pending: this.#pending,
      refused: this.#refused,
    }
  }
}
