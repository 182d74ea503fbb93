/** A configuration built without listening, storing or calling anyone: for `check`, `explain` and `route`. */
import { formatError } from '../config/load.ts'
import type { GatewayConfig } from '../config/types.ts'
import { systemClock } from '../core/clock.ts'
import type { Plugin, PluginHooks } from '../core/plugin.ts'
import { createSharedState } from '../core/shared-state.ts'
import { openStore } from '../stores/index.ts'
import { buildHouse, ConfigRefused, type House } from './assembly.ts'
import { silent } from './log.ts'
import { Failure } from './terminal.ts'

/** Where the built-in upstream would be, if it ran. Nothing connects. */
const NOWHERE = 'http://127.0.0.1:9'

/**
 * The same plugins without their hooks on the way back. Nothing is replied in a dry run, so nothing may be exported,
 * recorded or announced as if it had been: `otel` would post a trace of an exchange that never was.
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
 * @param config is changed
 * @throws Failure with what a start would say
 */
export async function dryRun(config: GatewayConfig, plugins: ReadonlyMap<string, Plugin>): Promise<House> {
  const clock = systemClock
  const store = await openStore({ url: 'sqlite::memory:', timeout: config.store.timeout, clock, log: silent })
  const shared = createSharedState()
  const secret = await store.secret(config.secret)
  const services = { config, store, clock, random: Math.random, log: silent, shared, secret }
  try {
    const house = await buildHouse({ services, plugins, simulator: () => NOWHERE })
    const close = async () => {
      await house.close()
      await store.close()
    }
    return { ...house, close }
  } catch (error) {
    await store.close()
    if (error instanceof ConfigRefused) throw new Failure(error.errors.map(formatError).join('\n'))
    throw error
  }
}
