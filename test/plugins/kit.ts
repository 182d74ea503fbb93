/**
 * Helpers for the tests of plugins: a caller, a model with its backend, a configuration, and stores that answer at
 * once, answer late, wait for the test, or fail.
 */
import { after } from 'node:test'
import type { GatewayConfig, KeyConfig, Limits, ModelConfig, OrganizationConfig } from '../../config/types.ts'
import type { SurfaceName } from '../../core/canon/conversation.ts'
import { StoreUnavailable } from '../../core/canon/errors.ts'
import type { Store } from '../../core/ports/store.ts'
import type { Surface } from '../../core/ports/surface.ts'
import { type Clock, ManualClock } from '../../core/tools/clock.ts'
import type { Identity } from '../../plugins/shared/slots.ts'
import { plainBackend, plainSurface } from '../../plugins/testing.ts'
import { openStore } from '../../stores/index.ts'
import { surfaces } from '../../surfaces/index.ts'
import { silent } from '../chain/harness.ts'

export const text = (words: string) => ({ type: 'text' as const, text: words })
export const finish = { type: 'finish' as const, reason: 'stop' as const }

/** A caller who may use all models without limits, except for what the arguments say. */
export function caller(
  organization: Partial<Omit<OrganizationConfig, 'limits'>> & { limits?: Partial<Limits> } = {},
  key: Partial<KeyConfig> = {},
): Identity {
  const all = { models: 'all', capabilities: 'all', streaming: true, limits: {}, model_limits: {} } as const
  return {
    organization: { ...all, id: 'acme', plan: 'free', billing: 'standard', keys: [], ...organization } as never,
    key: { ...all, id: 'key_ci', sha256: '', status: 'active', ...key } as never,
  }
}

export { plainBackend as backend }

/** A model that costs 1 USD per million input tokens and 4 USD per million output tokens, with the given changes. */
export function modelOf(over: Partial<ModelConfig> = {}): ModelConfig {
  return {
    id: 'test-model',
    aliases: [],
    listed: true,
    serves: 'text',
    listed_aliases: {},
    display_name: undefined,
    context_window: 1000,
    max_output_tokens: null,
    price: { input: 1_000_000, output: 4_000_000 },
    effort_ceiling: null,
    created: Date.UTC(2026, 0, 1),
    default_stream_row: 'medium',
    on_client_gone: 'cancel',
    backends: [plainBackend()],
    at: { file: 'gateway.yaml', line: 1, column: 1 },
    ...over,
  }
}

/** The default bounds of work before admission. */
export const PREPARATION = {
  requests: 8000,
  bytes: 1 << 30,
  organization_requests: 2000,
  organization_bytes: 1 << 28,
  unsent_bytes: 1 << 30,
  organization_unsent_bytes: 1 << 28,
  unsent_wait: 10_000,
}

/** The section `platform` with small bounds of its own. */
export const platformOf = (over: Partial<GatewayConfig['platform']> = {}): GatewayConfig['platform'] => ({
  max_concurrent_requests: 10,
  scale_limits_above: 0.8,
  overload_delay: 200,
  preparation: PREPARATION,
  recent_conversations: { bytes: 1 << 27, organization_bytes: 1 << 25 },
  ...over,
})

/** The parts of a configuration that plugins ask for. */
export function gatewayOf(over: Partial<GatewayConfig> = {}): Partial<GatewayConfig> {
  return {
    server: { websocket: 'off' } as GatewayConfig['server'],
    pipelines: {},
    organizations: {},
    models: {},
    price_book: '2026-11',
    platform: platformOf(),
    ...over,
  }
}

/**
 * A surface that validates and parses like the real one, and answers in the frames of `plainSurface`, which are easy to
 * read.
 */
export function reading(name: SurfaceName): Surface {
  const { encoder, error } = plainSurface
  return { ...surfaces[name]!, encoder, error }
}

/** A real store in memory. It is closed after all tests of the file. */
export async function memoryStore(clock: Clock = new ManualClock()): Promise<Store> {
  const store = await openStore({ url: 'sqlite::memory:', timeout: 1000, clock, log: silent })
  after(() => store.close())
  return store
}

/**
 * A store whose calls that return something go through `answer`, which calls `ask` for the real answer. Calls that only
 * give something to the store (settlements, outcomes) are unchanged.
 */
function answering(store: Store, answer: (ask: () => unknown) => unknown): Store {
  const part = <T extends object>(of: T, ...questions: (keyof T)[]): T =>
    new Proxy(of, {
      get(target, name) {
        const value = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        const ask = (...parameters: unknown[]) => value.apply(target, parameters)
        return questions.includes(name as keyof T) ? (...all: unknown[]) => answer(() => ask(...all)) : ask
      },
    })
  return new Proxy(store, {
    get(target, name) {
      if (name === 'limits') return part(target.limits, 'admit', 'peek')
      if (name === 'ledger') return part(target.ledger, 'intent')
      if (name === 'idempotency') return part(target.idempotency, 'begin', 'claim', 'finish', 'release')
      if (name === 'records') return part(target.records, 'put', 'get', 'getMany', 'hasAll', 'touch')
      return Reflect.get(target, name)
    },
  })
}

/** A store that answers with promises, like the shared one. */
export const lateStore = (store: Store): Store =>
  answering(store, async ask => {
    await new Promise(setImmediate)
    return ask()
  })

/** A store whose calls wait for the test: `hold` gets each call, and passes it on with `ask()`. */
export const heldStore = (store: Store, hold: (ask: () => unknown) => unknown): Store => answering(store, hold)

/** The two ways in which an unavailable store fails: it throws at once, or its promise rejects later. */
export const OUT: Record<string, (store: Store) => Store> = {
  'throws at once': store =>
    answering(store, () => {
      throw new StoreUnavailable('the disk is full')
    }),
  'rejects later': store =>
    answering(store, async () => {
      await new Promise(setImmediate)
      throw new StoreUnavailable('no connection')
    }),
}
