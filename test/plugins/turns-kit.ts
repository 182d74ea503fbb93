/**
 * Turns of conversations through the plugins that read, check, count and write them, without a network: what the
 * backend would get, what was counted, and what a client is refused with.
 */
import { parseOptions } from '../../config/options.ts'
import type { GatewayConfig } from '../../config/types.ts'
import { assemble } from '../../core/engine/assemble.ts'
import { RunningExchange } from '../../core/engine/exchange/index.ts'
import { MemoryIncoming } from '../../core/engine/memory-incoming.ts'
import { createSharedState } from '../../core/engine/shared-state.ts'
import { conversation, definePlugin, estimate, type Plugin, type WireControl } from '../../core/plugin.ts'
import type { Backend } from '../../core/ports/dialect.ts'
import type { Store } from '../../core/ports/store.ts'
import type { Surface } from '../../core/ports/surface.ts'
import { ManualClock } from '../../core/tools/clock.ts'
import { Ticker } from '../../core/tools/ticker.ts'
import { conversationPlugin } from '../../plugins/conversation/index.ts'
import { modelAccess } from '../../plugins/model-access/index.ts'
import { Report } from '../../plugins/shared/call-report.ts'
import { recentOf } from '../../plugins/shared/recent.ts'
import { callReport, candidates, identity } from '../../plugins/shared/slots.ts'
import { tickerKey } from '../../plugins/shared/state.ts'
import { joined } from '../../plugins/shared/verbatim.ts'
import { tokenEstimate } from '../../plugins/token-estimate.ts'
import { translation } from '../../plugins/translation/index.ts'
import { validation } from '../../plugins/validation.ts'
import { surfaces } from '../../surfaces/index.ts'
import { silent } from '../chain/harness.ts'
import { freezing } from '../frozen.ts'
import { backend, caller, gatewayOf, memoryStore, modelOf, platformOf } from './kit.ts'

/** What became of one request. */
export interface Outcome {
  status: number
  /** The error, where it was refused. */
  error: unknown
  /** What is told of it beside the reply. */
  told: Record<string, string | undefined>
  /** The prompt's tokens. */
  tokens: number | undefined
  /** What its backend got. */
  sent: { path: string; headers: Readonly<Record<string, string>>; body: string } | undefined
  /** The id by which the next request may continue it. */
  response: string | undefined
}

export interface TurnsOptions {
  /** The bounds of recent conversations; all else is as it is by default. */
  recent?: Partial<GatewayConfig['platform']['recent_conversations']>
  /** Options of `validation`. */
  validation?: Record<string, unknown>
  /** Plugins that stand above `token-estimate`. */
  above?: readonly Plugin[]
  /** Whether these are not the gateway's own. */
  foreign?: boolean
  store?: Store
}

/** Who asks, for what, and who serves it. */
export interface Asking {
  organization?: string
  to?: Partial<Backend>
  headers?: Record<string, string>
}

const frames = (...events: object[]) => events.map(event => `data: ${JSON.stringify(event)}\n\n`).join('')
/** The shortest reply of each dialect, with one text. */
const REPLIES: Record<string, string> = {
  'openai-chat': `${frames(
    { choices: [{ index: 0, delta: { content: 'hi' } }] },
    { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] },
  )}data: [DONE]\n\n`,
  'openai-responses': frames(
    { type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'hi' },
    { type: 'response.completed', response: { status: 'completed', output: [] } },
  ),
  'anthropic-messages': frames(
    { type: 'message_start', message: { usage: { input_tokens: 1, output_tokens: 1 } } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: 'hi' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } },
    { type: 'message_stop' },
  ),
  gemini: frames({ candidates: [{ content: { parts: [{ text: 'hi' }] }, finishReason: 'STOP' }] }),
}

const NO_CONTROL: WireControl = { aborted: false, pause() {}, resume() {}, abort() {} }

/** A process that takes requests one after the other. */
export class Turns {
  readonly shared = createSharedState()
  readonly #clock = new ManualClock()
  #options: TurnsOptions
  #store: Store | undefined
  #asking: Asking = {}
  #sent: Outcome['sent']
  #chain: Awaited<ReturnType<Turns['load']>> | undefined
  #asked = 0

  constructor(options: TurnsOptions = {}) {
    this.#options = options
    this.shared.use(tickerKey, () => new Ticker(new ManualClock(), 250))
  }

  get recent() {
    return recentOf(this.shared)
  }

  get clock() {
    return this.#clock
  }

  /** Other options from now on, as after a reload. */
  reload(options: TurnsOptions): void {
    this.#options = options
    this.#chain = undefined
  }

  async load() {
    const options = this.#options
    this.#store ??= options.store ?? (await memoryStore(this.#clock))
    const who = definePlugin({
      name: 'who',
      summary: 'Says who asks.',
      provides: [identity],
      create: () => ({
        onRequest: x => {
          const { organization = 'acme' } = this.#asking
          const of = caller()
          x.set(identity, { ...of, organization: { ...of.organization, id: organization } })
          return undefined
        },
      }),
    })
    const chosen = definePlugin({
      name: 'chosen',
      summary: 'Says who serves.',
      provides: [candidates],
      create: () => ({
        onRequest: x => {
          x.set(candidates, [backend(this.#asking.to ?? {})])
          return undefined
        },
      }),
    })
    const end = definePlugin({
      name: 'end',
      summary: 'Answers with an empty reply.',
      terminal: true,
      calls: true,
      create: () => ({
        forward(x, make) {
          const asked = x.get(conversation)
          const control = make(
            {
              asked,
              sent: asked,
              input: 0,
              candidates: x.get(candidates),
              clocks: { idle: 90_000, ceiling: 600_000, firstByte: 60_000, headWait: 30_000, drain: 0 },
              startedMono: 0,
              maxReply: Number.POSITIVE_INFINITY,
              facts: x,
              report: x.peek(callReport) ?? new Report({ set() {}, peek: () => undefined }),
            },
            x,
          )
          x.control(control)
          return undefined
        },
        call: next => (call, sink) => next({ ...call, backend: call.candidates[0]! }, sink),
        wire: (written, handler) => {
          const { path, headers, body } = written
          this.#sent = { path, headers, body: joined(body).toString() }
          handler.onRequestSent(written)
          handler.onRequestStart(NO_CONTROL)
          handler.onResponseStart(NO_CONTROL, 200, { 'content-type': 'text/event-stream' })
          handler.onResponseData(NO_CONTROL, Buffer.from(REPLIES[written.call.backend.dialect]!))
          handler.onResponseEnd(NO_CONTROL)
        },
      }),
    })
    const above = options.above ?? []
    const plugins = [
      ...[who, validation, modelAccess, conversationPlugin, ...above, tokenEstimate, chosen, translation, end],
    ] as Plugin[]
    const entries = plugins.map(plugin => ({
      plugin: plugin.name,
      id: plugin.name,
      on_failure: 'deny' as const,
      config: parseOptions(plugin, plugin === validation ? options.validation : {}),
      at: { file: 'test', line: 1, column: 1 },
    }))
    const { chains } = await assemble({
      pipelines: { test: entries },
      surfacesOf: () => Object.values(surfaces),
      plugins: new Map(plugins.map(plugin => [plugin.name, plugin])),
      around: (plugin, hooks) => (options.foreign ? hooks : freezing(plugin, hooks)),
      isForeign: name => options.foreign === true && above.some(plugin => plugin.name === name),
      services: {
        config: gatewayOf({
          models: { 'test-model': modelOf({ context_window: 10_000_000 }) },
          platform: platformOf({
            recent_conversations: { bytes: 1 << 27, organization_bytes: 1 << 25, ...options.recent },
          }),
        }) as GatewayConfig,
        store: this.#store,
        clock: this.#clock,
        random: () => 0,
        log: silent,
        shared: this.shared,
        secret: new Uint8Array(32),
        accounts: { find: () => null },
      },
    })
    return chains.get('test')!
  }

  async ask(surface: Surface, body: string | Uint8Array, asking: Asking = {}): Promise<Outcome> {
    const chain = (this.#chain ??= await this.load())
    this.#asking = asking
    this.#sent = undefined
    const bytes = typeof body === 'string' ? new TextEncoder().encode(body) : body
    const incoming = new MemoryIncoming({ body: bytes, headers: asking.headers ?? {} })
    const x = await new Promise<RunningExchange>(resolve => {
      const exchange = new RunningExchange(`req_${++this.#asked}`, incoming, chain, surface, 'POST /v1/test', {
        clock: this.#clock,
        log: silent,
        ticker: new Ticker(new ManualClock(), 1000),
        keepAliveMs: 15_000,
        random: () => 0,
        onSettled: resolve,
      })
      exchange.start()
    })
    const { status, sent, sentHeaders } = incoming
    return {
      status,
      error: status >= 400 ? JSON.parse(sent.replaceAll(/req_\d+/g, 'req')) : undefined,
      told: Object.fromEntries(['x-adjusted', 'x-sluice-stripped'].map(name => [name, sentHeaders.get(name)])),
      tokens: x.peek(estimate)?.input,
      sent: this.#sent,
      response: /"id":"(resp_[^"]+)"/.exec(sent)?.[1],
    }
  }
}
