/** Builds a configuration without listening, storing or calling a provider: for `check`, `explain` and `route`. */
import { fills } from '../config/check-chain.ts'
import { formatError } from '../config/load.ts'
import type { GatewayConfig } from '../config/types.ts'
import { LAYER_HOOKS } from '../core/engine/chain.ts'
import { createSharedState } from '../core/engine/shared-state.ts'
import {
  answer,
  type Call,
  type CallControl,
  type Exchange,
  type LayerPlace,
  type Plugin,
  type PluginHooks,
  type WireRequest,
} from '../core/plugin.ts'
import type { Backend } from '../core/ports/dialect.ts'
import { systemClock } from '../core/tools/clock.ts'
import { type Identity, identity } from '../plugins/shared/slots.ts'
import { openStore } from '../stores/index.ts'
import { type Assembly, buildAssembly, ConfigRefused } from './assembly.ts'
import { silent } from './log.ts'
import { Failure } from './terminal.ts'

/** Stands for the address of the built-in upstream, which does not run here. Nothing connects to it. */
const NOWHERE = 'http://127.0.0.1:9'

/** What a dry run makes of the plugins of a configuration. */
export interface DryPlugins {
  plugins: Map<string, Plugin>
  /** Once the chains are built: the entries of a pipeline that would work on a request and do not run here. */
  leftOut(pipeline: string): LeftOut[]
}

/** What becomes of a request that reaches a terminal which calls models. */
export interface DryCalls {
  /** The call that the terminal would make. */
  call(x: Exchange): Call
  /** The backend that gets the request; undefined when none would be called. */
  backend(call: Call): Backend | undefined
  /** The request as it would be sent. */
  written(request: WireRequest): void
}

interface LeftOut {
  /** The entry's id in its pipeline. */
  id: string
  plugin: Plugin
}

/**
 * The same plugins for a request that nobody sent, which must reach nobody. Only request hooks and layers run, for no
 * plugin may record or export what did not happen; of these, those of plugins that declare `dryRun`. Whatever fills `identity`
 * accepts the caller who is named, and the terminal answers by itself.
 */
export function dryPlugins(plugins: ReadonlyMap<string, Plugin>, caller: Identity, calls: DryCalls): DryPlugins {
  const left = new Map<string, LeftOut[]>()
  const dry = (plugin: Plugin): Plugin => ({
    ...plugin,
    async create(options, context) {
      if (fills(plugin.provides, identity)) {
        return {
          onRequest(x) {
            x.set(identity, caller)
            return undefined
          },
        }
      }
      const { dryRun } = plugin
      const hooks = await plugin.create(typeof dryRun === 'function' ? dryRun(options) : options, context)
      const kept: PluginHooks = hooks.body ? { body: hooks.body } : {}
      if (hooks.close) kept.close = hooks.close.bind(hooks)
      if (plugin.terminal) return { ...kept, ...(plugin.calls ? dryTerminal(calls) : ANSWERS) }
      if (!hooks.onRequest && !plugin.layers) return kept
      if (dryRun) {
        return { ...kept, ...bound(hooks, ['onRequest', ...Object.values(LAYER_HOOKS)]) }
      }
      left.set(context.pipeline, [...(left.get(context.pipeline) ?? []), { id: context.id, plugin }])
      return { ...kept, ...noLayers(plugin) }
    },
  })
  return {
    plugins: new Map([...plugins].map(([name, plugin]) => [name, dry(plugin)])),
    leftOut: pipeline => left.get(pipeline) ?? [],
  }
}

/** Those of these hooks that are there, each with its own `this`. */
function bound(hooks: PluginHooks, names: readonly (keyof PluginHooks)[]): PluginHooks {
  const there = names.filter(name => hooks[name] !== undefined)
  return Object.fromEntries(there.map(name => [name, (hooks[name] as () => unknown).bind(hooks)]))
}

/**
 * Layers that do nothing, in the places where a plugin that is left out has declared some. Where it would translate, no
 * request is written.
 */
function noLayers({ layers = [] }: Plugin): PluginHooks {
  const idle = (place: LayerPlace) => (next: unknown) => (place === 'translate' ? () => NO_CONTROL : next)
  return Object.fromEntries(layers.map(place => [LAYER_HOOKS[place], idle(place)]))
}

const ANSWERS: PluginHooks = {
  forward(x) {
    x.reply(answer(200, { routed: true }))
    return undefined
  },
}

/** A terminal that has its request written and sends it to nobody. */
function dryTerminal({ call, backend, written }: DryCalls): PluginHooks {
  return {
    forward(x, send) {
      send(call(x), x).abort('ended')
      x.reply(answer(200, { routed: true }))
      return undefined
    },
    call: next => (made, sink) => {
      const to = backend(made)
      return to ? next({ ...made, backend: to }, sink) : NO_CONTROL
    },
    wire: written,
  }
}

const NO_CONTROL: CallControl = { pause() {}, resume() {}, abort: () => undefined }

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
