/** Builds a configuration without listening, storing or calling a provider: for `check`, `explain` and `route`. */
import { formatError } from '../config/load.ts'
import type { GatewayConfig } from '../config/types.ts'
import { systemClock } from '../core/clock.ts'
import type { Plugin, PluginHooks } from '../core/plugin.ts'
import { createSharedState } from '../core/shared-state.ts'
import { openStore } from '../stores/index.ts'
import { type Assembly, buildAssembly, ConfigRefused } from './assembly.ts'
import { silent } from './log.ts'
import { Failure } from './terminal.ts'

/** Stands for the address of the built-in upstream, which does not run here. Nothing connects to it. */
const NOWHERE = 'http://127.0.0.1:9'

/**
 * The same plugins without their response hooks. A dry run has no real exchange, so no plugin may record or export one:
 * `otel` would send a trace of an exchange that never happened.
 */
export function requestsOnly(plugins: ReadonlyMap<string, Plugin>): Map<string, Plugin> {
  return new Map([...plugins].map(([name, plugin]) => [name, requestOnly(plugin)]))
}

function requestOnly(plugin: Plugin): Plugin {
  return {
    ...plugin,
    async create(options, context) {
      const hooks = await plugin.create(options, context)
      const kept: PluginHooks = hooks.body ? { body: hooks.body } : {}
      for (const name of ['onRequest', 'forward', 'close'] as const)
        if (hooks[name]) kept[name] = hooks[name].bind(hooks) as any
      return kept
    },
  }
}

/**
 * Builds the chains and routes with a store in memory and without a log.
 * @param config is changed: `base_url: simulator` becomes an address
 * @throws Failure with the message that a start would give
 */
export async function dryRun(config: GatewayConfig, plugins: ReadonlyMap<string, Plugin>): Promise<Assembly> {
  const clock = systemClock
  const store = await openStore({ url: 'sqlite::memory:', timeout: config.store.timeout, clock, log: silent })
  const shared = createSharedState()
  const secret = await store.secret(config.secret)
  const services = { config, store, clock, random: Math.random, log: silent, shared, secret }
  try {
    const assembly = await buildAssembly({ services, plugins, simulator: () => NOWHERE })
    const close = async () => {
      await assembly.close()
      await store.close()
    }
    return { ...assembly, close }
  } catch (error) {
    await store.close()
    if (error instanceof ConfigRefused) throw new Failure(error.errors.map(formatError).join('\n'))
    throw error
  }
}
