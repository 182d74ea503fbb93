/** Chains of made-up plugins around a fake client: the exchange itself, without network. */

import type { GatewayConfig } from '../../config/types.ts'
import { assemble } from '../../core/engine/assemble.ts'
import type { Chain } from '../../core/engine/chain.ts'
import { RunningExchange } from '../../core/engine/exchange/index.ts'
import { MemoryIncoming, type MemoryRequest } from '../../core/engine/memory-incoming.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import {
  conversation,
  definePlugin,
  type Exchange,
  type Logger,
  type Plugin,
  type PluginHooks,
  request,
  type Settlement,
} from '../../core/plugin.ts'
import type { Store } from '../../core/ports/store.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { declaredOnly, plainConversation, plainSurface } from '../../plugins/testing.ts'

export const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} }

/** A plugin out of its hooks alone. */
export function part(name: string, hooks: PluginHooks, more: Partial<Plugin> = {}): Plugin {
  return definePlugin({ name, summary: name, create: () => hooks, ...more }) as Plugin
}

/** A terminal driven by the test: `run.x` is the exchange that reached it. */
export function terminal(start: (x: Exchange) => void = () => {}): Plugin {
  return part('terminal', { forward: x => void start(x) as undefined }, { terminal: true })
}

export const asks = (over = {}) =>
  part(
    'asks',
    {
      onRequest(x) {
        x.set(conversation, plainConversation(over))
        x.set(request, {})
        return undefined
      },
    },
    { provides: [conversation, request] },
  )

export interface Run {
  incoming: MemoryIncoming
  x: RunningExchange
  clock: ManualClock
  chain: Chain
  settlements: Settlement[]
  settled: Promise<Settlement>
  events(): any[]
}

export async function run(
  plugins: Plugin[],
  options: { request?: MemoryRequest; skip?: string[]; of?: (chain: Chain) => Chain } = {},
): Promise<Run> {
  const clock = new ManualClock()
  const at = { file: 'test.yaml', line: 1, column: 1 }
  const entries = plugins.map(p => ({
    plugin: p.name,
    id: p.name,
    on_failure: options.skip?.includes(p.name) ? ('skip' as const) : ('deny' as const),
    config: {},
    at,
  }))
  const { chains } = await assemble({
    pipelines: { test: entries },
    surfacesOf: () => [plainSurface],
    plugins: new Map(plugins.map(p => [p.name, p])),
    around: declaredOnly,
    services: {
      config: {} as GatewayConfig,
      store: {} as Store,
      clock,
      random: () => 0,
      log: silent,
      shared: createSharedState(),
      secret: new Uint8Array(32),
      accounts: { find: () => null },
    },
    forceAsync: process.env['SLUICE_FORCE_ASYNC'] === '1',
  })
  const whole = chains.get('test')!
  const chain = options.of?.(whole) ?? whole
  const incoming = new MemoryIncoming(options.request)
  const settlements: Settlement[] = []
  let resolve!: (s: Settlement) => void
  const settled = new Promise<Settlement>(r => (resolve = r))
  const x = new RunningExchange('req_test', incoming, chain, plainSurface, 'POST /v1/test', {
    clock,
    log: silent,
    ticker: new Ticker(clock, 1000),
    keepAliveMs: 15_000,
    random: () => 0,
    onSettled(_, settlement) {
      settlements.push(settlement)
      resolve(settlement)
    },
  })
  x.start()
  return {
    incoming,
    x,
    clock,
    chain,
    settlements,
    settled,
    events: () =>
      incoming.sent
        .split('\n')
        .filter(Boolean)
        .map(line => JSON.parse(line)),
  }
}

/** Lets promises of forced-asynchronous hooks run. */
export async function turn(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve()
}
