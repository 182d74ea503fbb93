/** What is built from one configuration and closed with it: its chains and its router. */
import type { ConfigError } from '../../config/load.ts'
import type { Services } from '../../core/engine/assemble.ts'
import type { BuildOptions, Chain } from '../../core/engine/chain.ts'
import type { Generation } from '../../http/ingress.ts'
import { startSimulator } from '../../providers/simulator/server.ts'
import { buildAssembly, resolveSimulator } from '../assembly.ts'
import type { Loaded } from '../problems.ts'

export interface BuiltGeneration extends Generation {
  /** What shows only once the plugins are created. */
  readonly warnings: ConfigError[]
}

export interface GenerationsOptions {
  /** What the plugins of all generations share. */
  services: Omit<Services, 'accounts' | 'config' | 'secret'>
  secret: Uint8Array
  simulator: BuiltInUpstream
  forceAsync?: boolean | undefined
  around?: BuildOptions['around']
  /** Called when the last exchange on these chains has ended, before their plugins are closed. */
  retired(chains: Iterable<Chain>): void
}

export class Generations {
  readonly #options: GenerationsOptions
  /** The gateway's. Where the store has it and does not answer yet, a random one, and what is built serves nobody. */
  secret: Uint8Array
  #serving: readonly Chain[] = []
  /** Chains of former generations on which exchanges still run. */
  readonly #retiring = new Set<Chain>()

  constructor(options: GenerationsOptions) {
    this.#options = options
    this.secret = options.secret
  }

  /** The chains that were built last. */
  get serving(): readonly Chain[] {
    return this.#serving
  }

  /** These, and those of former generations that are not closed yet. */
  get all(): Iterable<Chain> {
    return [...this.#retiring, ...this.#serving]
  }

  /** Replaces `base_url: simulator` in a configuration by an address. */
  async resolve({ config, plugins }: Pick<Loaded, 'config' | 'plugins'>): Promise<void> {
    await resolveSimulator(config, plugins, this.#options.simulator.url)
  }

  /**
   * Compiles a checked configuration: every chain, every route.
   * @throws ConfigRefused
   */
  async build(number: number, { config, plugins }: Pick<Loaded, 'config' | 'plugins'>): Promise<BuiltGeneration> {
    const { services, simulator, forceAsync, around, retired } = this.#options
    const { chains, router, warnings, close } = await buildAssembly({
      services: { ...services, config, secret: this.secret },
      plugins,
      simulator: simulator.url,
      forceAsync,
      around,
    })
    for (const chain of this.#serving) this.#retiring.add(chain)
    this.#serving = [...chains.values()]
    return {
      number,
      router,
      warnings,
      close: async () => {
        retired(chains.values())
        for (const chain of chains.values()) this.#retiring.delete(chain)
        await close()
      },
    }
  }
}

/** The simulator, which starts when a configuration first uses it. */
export class BuiltInUpstream {
  #running: { url: string; close(): Promise<void> } | undefined

  readonly url = async (): Promise<string> => (this.#running ??= await startSimulator({ port: 0 })).url

  async close(): Promise<void> {
    await this.#running?.close()
  }
}
