/**
 * Test harness for plugins, exported as `sluice/testing`. It runs one plugin in a real chain, without a network and
 * with a manual clock.
 *
 *   const run = await runPlugin(myPlugin, { config: { … }, slots: [[identity, me]], events: [text('hi')] })
 *   assert.equal(run.status, 200)
 *
 * The harness also checks what every plugin owes: it fills the slots that it promises, sets no slot that it does not
 * declare, settles exactly once, and leaves no hold and no timer behind.
 */

import { parseOptions } from '../config/options.ts'
import type { GatewayConfig } from '../config/types.ts'
import { asGatewayError, errorMembers, type GatewayError } from '../core/canon/errors.ts'
import type { FinishEvent, StreamEvent, Usage } from '../core/canon/events.ts'
import { assemble } from '../core/engine/assemble.ts'
import { NEVER_WAIT } from '../core/engine/chain.ts'
import { RunningExchange } from '../core/engine/exchange/index.ts'
import { MemoryIncoming, type MemoryRequest } from '../core/engine/memory-incoming.ts'
import { createSharedState } from '../core/engine/shared-state.ts'
import {
  type AccountFinder,
  type AttemptCall,
  type Call,
  type CallControl,
  type CallReport,
  type CallSink,
  conversation,
  definePlugin,
  type Exchange,
  estimate,
  type LayerAnswer,
  type Logger,
  type Plugin,
  type PluginHooks,
  request,
  type SendAttempt,
  type Settlement,
  type SharedState,
  SinkAround,
  type Slot,
  type WireControl,
  type WireHandler,
  type WireHeaders,
  type WireRequest,
} from '../core/plugin.ts'
import type { Store } from '../core/ports/store.ts'
import type { EncodeContext, Encoder, Surface } from '../core/ports/surface.ts'
import { ManualClock } from '../core/tools/clock.ts'
import { Ticker } from '../core/tools/ticker.ts'
import { plainBackend, plainConversation } from '../providers/testing.ts'
import { Report } from './shared/call-report.ts'
import { callReport, candidates, plan, upstreamConversation } from './shared/slots.ts'
import { tickerKey } from './shared/state.ts'

/** A surface that writes each event as one line of JSON, so that a test can read which events passed the chain. */
export const plainSurface: Surface = {
  name: 'chat',
  title: 'Plain',
  path: '/v1/chat/completions',
  requestSchema: { type: 'object' },
  requestIdHeaders: [],
  validate: () => [],
  parse: body => plainConversation(body as Record<string, unknown>),
  encoder: context => new PlainEncoder(context),
  error: (error, requestId) => JSON.stringify({ error: errorMembers(error, requestId) }),
}

class PlainEncoder implements Encoder {
  readonly showsReasoning = true
  readonly #context: EncodeContext
  readonly #events: unknown[] = []
  constructor(context: EncodeContext) {
    this.#context = context
  }
  #line(value: unknown): string {
    this.#events.push(value)
    return `${JSON.stringify(value)}\n`
  }
  start(): string {
    return this.#line({ type: 'start', model: this.#context.model })
  }
  event(event: StreamEvent): string {
    return this.#line(event)
  }
  finish(finish: FinishEvent, usage: Usage): string {
    return this.#line({ ...finish, usage })
  }
  error(error: GatewayError): string {
    return this.#line({ type: 'error', error: errorMembers(error, this.#context.requestId) })
  }
  keepAlive(): string {
    return `{"type":"keep-alive"}\n`
  }
  body(): string {
    return JSON.stringify({ events: this.#events })
  }
}

/** What the plugin under test is given; everything has a default. */
export interface RunOptions<C> {
  /** The plugin's options; the defaults of its schema are filled in. */
  config?: Partial<C>
  /** Slots that the plugins above would have filled. */
  slots?: readonly (readonly [Slot<any>, unknown])[]
  /** A test that makes its own `MemoryIncoming` can disconnect the client at any moment: `client.abort()`. */
  request?: MemoryRequest | MemoryIncoming
  /** The exchange's id; default `req_test`. Two requests at the same time need two ids. */
  id?: string
  /** The name of the route; default `POST /v1/test`. */
  route?: string
  /** The surface of the route; it should write the same frames as `plainSurface`. */
  surface?: Surface
  /**
   * What the backend sends; a `finish` is added when the list has no end. A function is called between two events, with
   * the exchange. For a layer that makes several calls: what the backend sends to each, by the number of calls before.
   */
  events?: TestEvents | ((call: AttemptCall, before: number) => TestEvents)
  /**
   * For a plugin that translates, or whose wire layer looks at replies: what the backend answers to a written request.
   * Absent: `events`, one line of JSON each.
   */
  reply?(request: WireRequest): TestReply
  /** Attempts that fail before the one that gets `events`, each with its error, at one candidate after the other. */
  failures?: readonly GatewayError[]
  /** Stands for `translation`, above a terminal that calls models. */
  translate?: PluginHooks['translate']
  /** The parts of the configuration that the plugin uses. */
  gateway?: Partial<GatewayConfig>
  store?: Store
  /** What the plugin keeps with `context.values`, for several runs: `memoryValues()`. Absent: for this run alone. */
  values?: Store['pluginValues']
  /** What `context.accounts` finds; nothing by default. */
  accounts?: AccountFinder
  /** State that outlives a configuration. Two runs with the same state act as two requests to one process. */
  shared?: SharedState
  /** Makes the terminal advisory, as `count-tokens` is: the plugin must let pass what it would refuse elsewhere. */
  advisory?: boolean
  /** Place the plugin below the terminal, where it sees every reply. */
  below?: boolean
  clock?: ManualClock
  /** The client disconnects after this many events. */
  leaveAfter?: number
  /** Milliseconds of real time after which the exchange is given up. Default 2000. */
  giveUpMs?: number
}

export type TestEvents = readonly (StreamEvent | ((x: Exchange) => void))[]
export interface TestReply {
  status?: number
  headers?: WireHeaders
  body: string
}

/** What came of a run. */
export interface PluginRun {
  /** HTTP status that the client got; 0 when it disconnected first. */
  status: number
  headers: ReadonlyMap<string, string>
  /** Raw text that the client got. */
  body: string
  /** The body as JSON, when the reply is not a stream. */
  json: any
  /** Events that reached the client's encoder, in order. */
  events: any[]
  settlement: Settlement
  exchange: RunningExchange
  /** The answer that a layer gave in place of a backend (`answerCall`). */
  instead: LayerAnswer | undefined
  /** The requests that were written for backends, with what the layer under test added. */
  requests: WireRequest[]
  log: { level: string; fields: any; message: string }[]
}

/**
 * Runs one exchange through a plugin.
 * @throws (rejects) when the plugin breaks a rule that all plugins must keep
 */
export async function runPlugin<C>(plugin: Plugin<C>, options: RunOptions<C> = {}): Promise<PluginRun> {
  const clock = options.clock ?? new ManualClock()
  const timersBefore = clock.pending
  const log: PluginRun['log'] = []
  const logger: Logger = {
    debug: (fields, message) => void log.push({ level: 'debug', fields, message }),
    info: (fields, message) => void log.push({ level: 'info', fields, message }),
    warn: (fields, message) => void log.push({ level: 'warn', fields, message }),
    error: (fields, message) => void log.push({ level: 'error', fields, message }),
  }
  const owes: string[] = []
  const surface = options.surface ?? plainSurface
  const client = options.request
  const incoming = client instanceof MemoryIncoming ? client : new MemoryIncoming(client)
  const filled = new Map<Slot<any>, unknown>([
    [conversation, plainConversation()],
    [request, {}],
  ])
  for (const [slot, value] of options.slots ?? []) filled.set(slot, value)

  const above = definePlugin({
    name: 'above',
    summary: 'Fills the slots the plugin under test reads.',
    provides: [...filled.keys()],
    create: () => ({
      onRequest(x) {
        for (const [slot, value] of filled) x.set(slot, value)
        return undefined
      },
    }),
  })
  const requests: WireRequest[] = []
  const reports: CallReport[] = []
  const { translator, upstream } = testCalls(options, incoming, requests, reports)
  const callers = plugin.layers?.includes('translate') ? [upstream] : [translator, upstream]
  const order = plugin.terminal
    ? plugin.calls
      ? [above, translator, plugin]
      : [above, plugin]
    : options.below
      ? [above, ...callers, plugin]
      : [above, plugin, ...callers]
  const at = { file: 'test', line: 1, column: 1 }
  const config = parseOptions(plugin, options.config)
  const entries = order.map(entry => ({
    plugin: entry.name,
    id: entry.name,
    on_failure: 'deny' as const,
    config: entry === plugin ? (config as Record<string, unknown>) : {},
    at,
  }))
  const shared = options.shared ?? createSharedState()
  // This ticker, as the one of the exchange below, has a clock of its own: timers that are left on the plugin's clock are
  // the plugin's.
  shared.use(tickerKey, () => new Ticker(new ManualClock(), 250))
  const { chains } = await assemble({
    pipelines: { test: entries },
    surfacesOf: () => [surface],
    plugins: new Map(order.map(entry => [entry.name, entry as Plugin])),
    around: (of, hooks) => declaredOnly(of, hooks, fault => owes.push(fault)),
    services: {
      config: (options.gateway ?? {}) as GatewayConfig,
      store: options.store ?? storeWith(options.values ?? memoryValues()),
      clock,
      random: () => 0,
      log: logger,
      shared,
      secret: new Uint8Array(32),
      accounts: options.accounts ?? { find: () => null },
    },
  })
  const chain = chains.get('test')!
  let settlements = 0
  const settled = new Promise<{ settlement: Settlement; exchange: RunningExchange }>(resolve => {
    const route = options.route ?? 'POST /v1/test'
    const exchange = new RunningExchange(options.id ?? 'req_test', incoming, chain, surface, route, {
      clock,
      log: logger,
      ticker: new Ticker(new ManualClock(), 1000),
      keepAliveMs: 15_000,
      random: () => 0,
      onSettled(x, settlement) {
        settlements++
        resolve({ settlement, exchange: x })
      },
    })
    exchange.start()
  })
  const { settlement, exchange } = await orGiveUp(settled, plugin.name, options.giveUpMs ?? 2000)
  await chain.close()
  await Promise.resolve()

  if (settlements !== 1) owes.push(`settled ${settlements} times`)
  if (incoming.answers > 1) owes.push(`answered ${incoming.answers} times`)
  if (clock.pending > timersBefore) owes.push(`${clock.pending - timersBefore} timers left`)
  const reachedTerminal =
    chain.links[chain.terminal]!.plugin !== plugin &&
    !options.advisory &&
    settlement.error === undefined &&
    settlement.outcome === 'completed'
  if (reachedTerminal) {
    for (const slot of plugin.provides ?? [])
      if (exchange.peek(slot) === undefined) owes.push(`slot '${slot.name}' not filled`)
  }
  if (owes.length > 0) throw new Error(`${plugin.name}: ${owes.join('; ')}`)

  const type = incoming.sentHeaders.get('content-type') ?? ''
  const json = type.startsWith('application/json') && incoming.sent !== '' ? JSON.parse(incoming.sent) : undefined
  const events =
    json?.events ??
    (type.startsWith('text/event-stream')
      ? incoming.sent
          .split('\n')
          .filter(line => line.startsWith('{'))
          .map(line => JSON.parse(line))
      : [])
  return {
    status: incoming.status,
    headers: incoming.sentHeaders,
    body: incoming.sent,
    json,
    events,
    settlement,
    exchange,
    instead: reports[0]?.instead,
    requests,
    log,
  }
}

/** A terminal that makes one attempt at the first candidate, and what translates for it: a line of JSON is an event. */
function testCalls(options: RunOptions<any>, incoming: MemoryIncoming, requests: WireRequest[], reports: CallReport[]) {
  let calls = 0
  const events = ({ call }: WireRequest): TestEvents => {
    const before = calls++
    return typeof options.events === 'function' ? options.events(call, before) : (options.events ?? [])
  }
  let sent = 0
  const leave = () => {
    if (sent === options.leaveAfter) incoming.abort()
  }
  const translator = definePlugin({
    name: 'test-translation',
    summary: 'Writes the conversation as JSON.',
    layers: ['translate'],
    create: () => ({
      translate:
        options.translate ??
        (next => (call, sink) => {
          const reader = new PlainReader(sink)
          const body = JSON.stringify(call.sent)
          next(
            { call, method: 'POST', path: '/plain', headers: { 'content-type': 'application/json' }, own: {}, body },
            reader,
          )
          return reader
        }),
    }),
  })
  const upstream = definePlugin({
    name: 'test-upstream',
    summary: 'Sends the given events.',
    terminal: true,
    calls: true,
    advisory: options.advisory,
    create: () => ({
      forward(x, make) {
        const asked = x.get(conversation)
        const report = x.peek(callReport) ?? new Report({ set() {}, peek: () => undefined })
        reports.push(report)
        const call: Call = {
          asked,
          sent: x.peek(upstreamConversation) ?? asked,
          input: x.peek(plan)?.input ?? x.peek(estimate)?.input ?? 0,
          candidates: x.peek(candidates) ?? [],
          clocks: { idle: 90_000, ceiling: 600_000, firstByte: 60_000, headWait: 30_000, drain: 0 },
          startedMono: x.clock.mono(),
          maxReply: Number.POSITIVE_INFINITY,
          facts: x,
          report,
        }
        x.control(make(call, x))
        return undefined
      },
      call: next => (call, sink) => {
        const at = (n: number) => ({ ...call, backend: call.candidates[n] ?? call.candidates[0] ?? plainBackend() })
        const failures = options.failures?.length ?? 0
        for (let n = 0; n < failures; n++) next(at(n), new Untold(sink))
        return next(at(failures), sink)
      },
      wire(request, handler) {
        const failure = options.failures?.[requests.length]
        requests.push(request)
        handler.onRequestSent(request)
        handler.onRequestStart(NO_CONTROL)
        if (failure) return handler.onResponseError(NO_CONTROL, failure)
        if (options.reply) {
          const { status = 200, headers = {}, body } = options.reply(request)
          handler.onResponseStart(NO_CONTROL, status, headers)
          handler.onResponseData(NO_CONTROL, Buffer.from(body))
        } else {
          handler.onResponseStart(NO_CONTROL, 200, {})
          for (const event of events(request)) {
            if (typeof event === 'function') {
              event(request.call.facts as Exchange)
              continue
            }
            leave()
            sent++
            if (event.type === 'error') handler.onResponseError(NO_CONTROL, event.error)
            else handler.onResponseData(NO_CONTROL, Buffer.from(`${JSON.stringify(event, withBytes)}\n`))
          }
        }
        leave()
        handler.onResponseEnd(NO_CONTROL)
      },
    }),
  })
  return { translator, upstream }
}

/** Keeps the failure of an attempt from the client: another one follows. */
class Untold extends SinkAround {
  override fail(): void {}
}

const NO_CONTROL: WireControl = { aborted: false, pause() {}, resume() {}, abort() {} }

/** Bytes in a line of JSON. */
const withBytes = (_: string, value: unknown) =>
  value instanceof Uint8Array ? { base64: Buffer.from(value).toString('base64') } : value
const asBytes = (_: string, value: any) =>
  typeof value?.base64 === 'string' ? new Uint8Array(Buffer.from(value.base64, 'base64')) : value

/** Reads events that are lines of JSON. */
class PlainReader implements WireHandler, CallControl {
  over = false
  readonly #sink: CallSink
  #rest = ''

  constructor(sink: CallSink) {
    this.#sink = sink
  }
  onRequestSent() {}
  onRequestStart() {}
  onRequestLost() {}
  onResponseStart() {}
  onResponseData(_: WireControl, chunk: Buffer): void {
    const lines = (this.#rest + chunk.toString()).split('\n')
    this.#rest = lines.pop()!
    for (const line of lines) {
      if (!this.over) this.#sink.emit(JSON.parse(line, asBytes))
    }
  }
  onResponseEnd(): void {
    if (this.over) return
    this.over = true
    this.#sink.flush()
    this.#sink.end()
  }
  onResponseError(_: WireControl | null, error: Error): void {
    if (this.over) return
    this.over = true
    this.#sink.fail(asGatewayError(error), { kind: 'broken' })
  }
  pause() {}
  resume() {}
  abort(): undefined {
    this.over = true
  }
}

/** The exchange behind a view of `declaredOnly`. */
const exchanges = new WeakMap<Exchange, Exchange>()

/**
 * A plugin's hooks on a view of the exchange whose `set` throws for a slot that the plugin does not declare: the
 * `around` of a chain under test.
 * @param tell is also called with the fault, because the chain may only log what a hook throws
 */
export function declaredOnly(
  plugin: Plugin,
  hooks: PluginHooks,
  tell: (fault: string) => void = () => {},
): PluginHooks {
  const { provides = [], mayProvide = [], providesLate = [], rewrites = [] } = plugin
  const declared = new Set([...provides, ...mayProvide, ...providesLate, ...rewrites].map(slot => slot.name))
  const set = (x: Exchange, slot: Slot<unknown>, value: unknown) => {
    if (!declared.has(slot.name)) {
      const fault = `the plugin ${plugin.name} sets the slot '${slot.name}', which it does not declare. Add it to provides, or to mayProvide, providesLate or rewrites`
      tell(fault)
      throw new Error(fault)
    }
    x.set(slot, value)
  }
  const views = new WeakMap<Exchange, Exchange>()
  const viewOf = (of: Exchange): Exchange => {
    const x = exchanges.get(of) ?? of
    let view = views.get(x)
    if (!view) {
      view = new Proxy(x, {
        get(_, name) {
          if (name === 'set') return (slot: Slot<unknown>, value: unknown) => set(x, slot, value)
          const member = Reflect.get(x, name, x)
          return typeof member === 'function' ? member.bind(x) : member
        },
      })
      views.set(x, view)
      exchanges.set(view, x)
    }
    return view
  }
  const checked: Record<string, unknown> = { body: hooks.body, close: hooks.close?.bind(hooks) }
  for (const name of ['callLayer', 'attemptLayer', 'translate'] as const) {
    const layer = hooks[name] as ((next: unknown) => SendAttempt) | undefined
    if (layer)
      checked[name] = (next: unknown): SendAttempt => {
        const send = layer.call(hooks, next)
        return (call, sink) => send({ ...call, facts: viewOf(call.facts as Exchange) }, sink)
      }
  }
  for (const name of ['wireLayer', 'call', 'wire'] as const)
    if (hooks[name]) checked[name] = (hooks[name] as (...args: unknown[]) => unknown).bind(hooks)
  for (const name of ['beforeBody', 'onRequest', ...NEVER_WAIT, 'onSettle'] as const) {
    const hook = hooks[name] as ((x: Exchange, ...more: unknown[]) => unknown) | undefined
    if (hook) checked[name] = (x: Exchange, ...more: unknown[]) => hook.call(hooks, viewOf(x), ...more)
  }
  return checked as PluginHooks
}

/** Without this, a hold that is never released, or a hook that never answers, would keep the test waiting for ever. */
async function orGiveUp<T>(settled: Promise<T>, name: string, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const never = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(
        new Error(
          `${name}: the exchange has not ended after ${ms} ms; a hold was not released, or a hook did not answer`,
        ),
      )
    }, ms)
  })
  try {
    return await Promise.race([settled, never])
  } finally {
    clearTimeout(timer)
  }
}

const storeWith = (pluginValues: Store['pluginValues']): Store =>
  new Proxy({} as Store, {
    get(_, name) {
      if (name === 'pluginValues') return pluginValues
      throw new Error(`the plugin uses the store (${String(name)}): give runPlugin one`)
    },
  })

/** Keeps in memory what plugins keep with `context.values`; without bounds. */
export function memoryValues(): Store['pluginValues'] {
  const kept = new Map<string, { value: Uint8Array; until: number }>()
  const nameOf = (organization: string, id: string) => JSON.stringify([organization, id])
  return {
    put(organization, _, id, value, ttlMs, now) {
      kept.set(nameOf(organization, id), { value, until: now + ttlMs })
    },
    get(organization, _, id, now) {
      const found = kept.get(nameOf(organization, id))
      return found && found.until > now ? found.value : null
    },
    delete(organization, _, id) {
      kept.delete(nameOf(organization, id))
    },
  }
}

export { GatewayError } from '../core/canon/errors.ts'
export { MemoryIncoming } from '../core/engine/memory-incoming.ts'
export { createSharedState } from '../core/engine/shared-state.ts'
export { ManualClock } from '../core/tools/clock.ts'
export {
  type DialectOptions,
  type DialectRun,
  plainBackend,
  plainConversation,
  runDialect,
} from '../providers/testing.ts'
