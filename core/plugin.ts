/**
 * The plugin contract, in one file. It is public: plugins outside this repository import it as `sluice`.
 *
 * A plugin is one line of a pipeline in gateway.yaml. `definePlugin` describes it; `create` makes one instance for
 * each place where a chain uses it, once per configuration. docs/plugins.md explains how to write one;
 * docs/architecture.md draws the way of an exchange.
 */

import type { Conversation, SurfaceName } from './canon/conversation.ts'
import { type ErrorCode, type ErrorInit, GatewayError } from './canon/errors.ts'
import type { StreamEvent, Usage } from './canon/events.ts'
import { loopTurns } from './engine/loop-turn.ts'
import { clientTenant } from './engine/tenant.ts'
import type {
  AttemptLayer,
  CallControl,
  CallFacts,
  CallLayer,
  CallSink,
  Send,
  SendAttempt,
  SendWire,
  WireLayer,
} from './ports/call.ts'
import type { Incoming } from './ports/listener.ts'
import type { SearchProviders } from './ports/search.ts'
import type { Outcome, RecordKind, Store } from './ports/store.ts'
import type { SentStream, Surface } from './ports/surface.ts'
import type { Clock } from './tools/clock.ts'
import { type Slot, slot } from './tools/slot.ts'
import type { Schema } from './tools/vocabulary.ts'

// ---- replies --------------------------------------------------------------------------------------------------------

/** What a request hook returns to answer the client instead of the terminal. */
export type Reply =
  | { kind: 'error'; error: GatewayError }
  | { kind: 'json'; status: number; body: unknown; headers?: Record<string, string> }
  /**
   * Bytes as they are, e.g. an idempotent replay. `whole: false` closes the connection without the chunk terminator.
   */
  | { kind: 'raw'; status: number; headers: readonly (readonly [string, string])[]; body: Uint8Array; whole: boolean }
  /** A refusal by the gateway, in the form in which the surface shows a model's refusal; zero usage (decisions 9). */
  | { kind: 'refusal'; text: string }
  /** A complete reply without output, in the surface's own form; zero usage. */
  | { kind: 'empty' }

/** Refuses the request with a code of the error table. */
export function deny(code: ErrorCode, init: ErrorInit): Reply {
  return { kind: 'error', error: new GatewayError(code, init) }
}
/** Answers with a JSON body. */
export function answer(status: number, body: unknown, headers?: Record<string, string>): Reply {
  return { kind: 'json', status, body, headers }
}
/** Answers with HTTP 200 and `text` in the form in which the surface shows a model's refusal; zero usage. */
export function refuse(text: string): Reply {
  return { kind: 'refusal', text }
}

// ---- the exchange, as a plugin sees it ------------------------------------------------------------------------------

/** The head of a reply, which `onResponseHead` may change. */
export interface ResponseHead {
  status: number
  /** Names are lower case. Plugins may set and delete fields. Values must not have CR, LF or NUL. */
  headers: Map<string, string>
  /** Who made this reply. */
  readonly origin: 'upstream' | 'gateway'
}

/** How an exchange ended. `onSettle` receives it. */
export interface Settlement {
  outcome: Outcome
  /** Whether model output reached the client (BILL-3). */
  delivered: boolean
  /** The HTTP status that was sent; 0 when none was. */
  status: number
  error?: GatewayError
  durationMs: number
  /** Milliseconds from the start of the exchange to the first byte of the reply; null when no byte was sent. */
  ttfbMs: number | null
}

/** One request and its response, as hooks see it. To the call of a model it is the outermost sink, and its facts. */
export interface Exchange extends CallFacts, CallSink {
  /** The request id, as sent in `x-request-id`. */
  readonly id: string
  readonly incoming: Incoming
  /** `validation` sets it on a route of `surface: any`. */
  surface: Surface | undefined
  /**
   * The surface whose clients read the gateway's errors here: on a route without a surface, and where it is not known
   * yet, that of the caller.
   */
  readonly errorForm: Surface | undefined
  readonly route: string
  /** Unix milliseconds, when the head was parsed. */
  readonly startedAt: number
  /** The id of the reply object without its prefix: [A-Za-z0-9]{24}. */
  readonly objectId: string
  readonly clock: Clock

  /** Reads a slot that the plugin lists in `needs`. @throws Error when the slot is empty */
  get<T>(slot: Slot<T>): T
  /** Reads a slot that may be empty. */
  peek<T>(slot: Slot<T>): T | undefined
  /**
   * Fills a slot that the plugin lists in `provides`, `mayProvide`, `providesLate` or `rewrites`. Tests reject any
   * other.
   */
  set<T>(slot: Slot<T>, value: T): void

  /**
   * Registers a function that releases what was just acquired. Each runs once, the last registered first, after every
   * `onSettle`.
   */
  defer(release: () => void): void
  /**
   * Pauses the upstream and keeps events from leaving until the returned function is called; further calls of it do
   * nothing. Holds are counted. A hold that is taken while an event passes also keeps that event and all behind it
   * (decisions 5).
   */
  hold(): () => void
  /**
   * Registers `tap`, which receives the status and headers as sent, then each piece of bytes as it is given to the
   * client, then whether the reply was whole. It receives the last bytes before `onSettle`, and the client after it.
   */
  onSent(tap: SentTap): void

  /**
   * The whole reply as the JSON of its surface, also of a stream; for `onSettle`. Undefined when the reply did not come
   * to its finish.
   */
  wholeReply(): string | undefined
  /**
   * The stream that is being sent, or was, on a surface whose streams can be read again. Undefined before its head, and
   * for every other reply.
   */
  readonly sentStream: SentStream | undefined
  /**
   * Lets the exchange run on without its client. When that disconnects after the head of a stream was sent, the reply is
   * made to its end as if the client took it, and is billed so; `clientGone` stays false. Call it on the way down, once.
   * @param watch is notified when others can read more of the stream
   * @returns takes it back: a client that has disconnected is gone from then on, and the upstream is cancelled
   */
  runOn(watch: StreamWatch): () => void

  // -- for terminals --
  /**
   * Passes an upstream event on: up through the plugins that the request passed, then out through those below the
   * terminal.
   */
  emit(event: StreamEvent): void
  /**
   * Sends what `emit` encoded. Call it once for each read from upstream.
   * @returns false when the upstream must be paused, until `resume` of the control is called
   */
  flush(): boolean
  /** Starts a reply of bytes (`proxy`) with this head; call `emit({type:'bytes'})` after it. */
  respondHead(status: number, headers: Iterable<readonly [string, string]>): void
  /** The upstream ended normally; on a route with a surface, after the `finish` event. */
  end(): void
  /** The upstream failed. The client gets an error reply if no head was sent yet, else an error frame. */
  fail(error: GatewayError): void
  /** Answers with a Reply by the gateway itself. It has no effect once the head is sent. */
  reply(reply: Reply): void
  /**
   * Registers how to pause, resume and stop the upstream. There is one control: that of a later attempt replaces the
   * former.
   */
  control(upstream: UpstreamControl): void
  /** The error that this exchange answered or ended with, once it is known. */
  readonly error: GatewayError | undefined
  /** True once the exchange is settled. */
  readonly closed: boolean
  /** True once the client has disconnected. An upstream that is being drained may still run. */
  readonly clientGone: boolean
  /** True once the head was sent. After that no other backend may be tried (decisions 11). */
  readonly headSent: boolean
  /** Sends the head now, although no event has come, and keep-alives from then on (decisions 11). */
  sendHead(): void
}

/**
 * Waits for a turn of the event loop, for a request hook that computes much: it does a few milliseconds of its work,
 * waits, and goes on. Organizations take turns, so that an exchange of another one waits for at most one such slice.
 * Look at `x.closed` afterwards: the client may have left.
 */
export function loopTurn(x: Pick<Exchange, 'peek' | 'incoming'>): Promise<void> {
  return loopTurns.next(tenantOf(x))
}

/**
 * Who shares in what the process has: the organization once a plugin has found it, else the client's address. Use it for
 * whatever must be shared fairly.
 */
export function tenantOf(x: Pick<Exchange, 'peek' | 'incoming'>): string {
  return x.peek(identity)?.organization.id ?? clientTenant(x.incoming)
}

/** Receives a copy of what the client is sent. A tap that throws receives nothing more. */
export interface SentTap {
  head(status: number, headers: readonly (readonly [string, string])[]): void
  bytes(bytes: Uint8Array): void
  end(whole: boolean): void
}

/** Learns how a reply goes on that others may read beside its client. */
export interface StreamWatch {
  /** The client was sent what `sentStream` has by now. Called once for each read from upstream, and for keep-alives. */
  more(): undefined
  /**
   * The exchange is over. Called once, whatever became of it.
   * @param whole the stream came to its end, with a terminal event or an error frame
   */
  end(whole: boolean): undefined
}

/** How core pauses, resumes and stops a terminal's upstream. */
export type UpstreamControl = CallControl

// ---- the plugin -----------------------------------------------------------------------------------------------------

/** The sections of gateway.yaml, checked. The engine does not know their content: config/types.ts declares it. */
// biome-ignore lint/suspicious/noEmptyInterface: config/types.ts fills it
export interface Configuration {}

/** What `create` gets from the gateway around the plugin. */
export interface PluginContext<S extends keyof Configuration = keyof Configuration> {
  /** The sections that the plugin lists in `uses`, and no others. */
  readonly config: Pick<Configuration, S>
  readonly store: Store
  readonly clock: Clock
  /** Uniform in [0, 1). */
  random(): number
  readonly log: Logger
  /** Accounts by their names, for a plugin that fills `identity` from something else than an API key. */
  readonly accounts: AccountFinder
  /** This instance's id in its pipeline. */
  readonly id: string
  readonly pipeline: string
  /** What the pipeline's terminal declares about itself. */
  readonly terminal: Pick<Plugin, 'advisory' | 'passesThrough'>
  /**
   * Whether the pipeline has a plugin that is not the gateway's own. Such a plugin may change in place what it finds in
   * slots, so what another request would meet again is not put there.
   */
  readonly foreign: boolean
  /** The surfaces of the routes that use this pipeline; several routes may share one. */
  readonly surfaces: readonly Surface[]
  /**
   * The plugin's state that its instances in all chains of the process share and that outlives a reload: platform load,
   * breakers, caches.
   */
  readonly shared: SharedState
  /** What the plugin keeps in the store, where all gateways on it and later starts find it. */
  readonly values: PluginValues
  /** The gateway's secret, for sealing stored data. */
  readonly secret: Uint8Array
  /** The kinds of records that some plugin of the configuration lists in `retrieves`. */
  readonly retrieved: ReadonlySet<RecordKind>
  /**
   * Where a plugin that can search the web registers itself (docs/web-search.md). It belongs to this configuration
   * only.
   */
  readonly searchProviders: SearchProviders
}

/**
 * Values that a plugin keeps in the store. All its instances share them, on all gateways on the store; other plugins do
 * not meet them. They are sealed with the gateway's secret, and keys are stored as digests. An organization's values may
 * take its share of `store.max_plugin_values`; above it the oldest go, and those of an organization that is deleted go
 * with it. So every value may be gone, and a move to another store takes none along.
 *
 * Each call rejects with StoreUnavailable when the store does not answer: catch it where a request can do without.
 */
export interface PluginValues {
  /**
   * @param organization whose value it is; null for one that belongs to no organization
   * @returns null when there is none, or no more
   */
  get(organization: string | null, key: string): Promise<Uint8Array | null>
  /**
   * Keeps a value, in place of one that is there. Once it has resolved, every gateway on the store finds it.
   * @param key at most 4,096 characters
   * @param value at most 1 MiB
   * @param ttlMs how long it is kept: from 1 millisecond to a year
   * @throws (rejects with) RangeError for what is larger or longer
   */
  put(organization: string | null, key: string, value: Uint8Array, ttlMs: number): Promise<void>
  delete(organization: string | null, key: string): Promise<void>
}

/** Finds accounts by their names, in gateway.yaml and in the store. */
export interface AccountFinder {
  /**
   * The value of the slot `identity` for a key of an organization; null when there is none, or when it may not be used:
   * revoked, expired, or of a disabled organization. A promise only when the store has to be asked.
   * @param client the caller, whose address bounds look-ups that find nothing
   * @param now Unix milliseconds
   * @throws (or rejects with) GatewayError, or an error of the store when it does not answer
   */
  find(
    organization: string,
    key: string,
    client: Pick<Incoming, 'remoteAddress'>,
    now: number,
  ): CallerIdentity | null | Promise<CallerIdentity | null>
}

/** Who calls, as the slot `identity` has it. It has more members, which the built-in plugins read. */
export interface CallerIdentity {
  organization: { id: string }
  key: { id: string }
}

/**
 * A registry of process-wide state that outlives a reload. A string is a key of the plugin's own: all instances of the
 * plugin share its value, and no other plugin meets it.
 */
export interface SharedState {
  /** The value under `key`; `make` makes it on first use. */
  use<T>(key: string | SharedKey<T>, make: () => T): T
}

/**
 * The key of state that several parts of the gateway share: who has this very object reaches the state.
 * plugins/shared/state.ts declares them all.
 */
export interface SharedKey<T> {
  /** For people who debug; two keys may have the same name. */
  readonly name: string
  /** Carries the type; no value is ever stored here. */
  readonly value?: T
}

/** Structured log: fields first, then the message. An error goes into the field `err`. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/**
 * What `create` returns. Response hooks return `undefined`, not `void`, so that an `async` function is a compile
 * error.
 */
export interface PluginHooks {
  /**
   * The body limits of a plugin that lists `requestBody` in `needs`: bytes and milliseconds. The strictest of the
   * chain hold.
   */
  readonly body?: { maxBytes: number; timeoutMs: number }
  /**
   * Runs before the gateway waits for the request body, for the plugins below the place of that wait, when those above
   * have run. It may return a promise. A returned Reply refuses the request, so that nothing of its body is read. Slots
   * of plugins below that place are still empty: use `peek`. It does not run in a chain in which no plugin needs the
   * body.
   */
  beforeBody?(x: Exchange): undefined | Reply | Promise<undefined | Reply>
  /** Runs on the way down. It may return a promise. A returned Reply answers the request. */
  onRequest?(x: Exchange): undefined | Reply | Promise<undefined | Reply>
  /**
   * Terminal only: starts the upstream and returns at once. Later the terminal calls `x.emit`, `x.flush`, `x.end` or
   * `x.fail`.
   * @param send where the terminal has `call`: that, with all layers of the chain around it
   */
  forward?(x: Exchange, send: Send): undefined
  /** A layer around the whole call of a model; no backend is chosen yet. */
  readonly callLayer?: CallLayer
  /** A layer around each attempt at one backend. */
  readonly attemptLayer?: AttemptLayer
  /** A layer below translation, around each request as it is written and its reply as it arrives. */
  readonly wireLayer?: WireLayer
  /** Of the one plugin that translates: makes attempts of written requests. */
  translate?(next: SendWire): SendAttempt
  /** Terminal only: makes calls of attempts. */
  call?(next: SendAttempt): Send
  /** Terminal only: carries written requests to their backends. */
  wire?: SendWire
  /**
   * Runs for replies that the gateway makes before an exchange begins, on the routes of the pipeline: the 204 to OPTIONS
   * where OPTIONS has no route, and refusals by the request's head or for overload. Headers may be changed, but not the
   * status. When it throws, the reply is sent without its changes.
   */
  onEarlyHead?(incoming: Incoming, head: ResponseHead): undefined
  /** Runs once for every reply, before its head is sent: status and headers may still be changed. */
  onResponseHead?(x: Exchange, head: ResponseHead): undefined
  /** Sees each event; it cannot change it. */
  onEvent?(x: Exchange, event: StreamEvent): undefined
  /** Replaces each event by the events that it pushes: none, one or many. */
  rewriteEvent?(x: Exchange, event: StreamEvent, push: (event: StreamEvent) => void): undefined
  /** Sees each piece of a reply of bytes (`proxy`). */
  onChunk?(x: Exchange, bytes: Uint8Array): undefined
  /**
   * The upstream ended normally, and the plugins before this one have pushed what they kept back. This is the last
   * chance to push events, before the plugin's own hooks see the `finish`. What is pushed goes on from the next plugin,
   * as it does in `rewriteEvent`. In a reply of bytes (`proxy`) there is no `finish`.
   */
  onResponseEnd?(x: Exchange, push: (event: StreamEvent) => void): undefined
  /** The reply will be this error, and no byte was sent yet. A returned Reply is sent instead. */
  onError?(x: Exchange, error: GatewayError): undefined | Reply
  /**
   * Runs exactly once, however the exchange ended, and before deferred releases. It runs for the plugins that the
   * request entered and for those below the terminal. The last bytes of the reply are not sent yet: they wait for a
   * promise that is returned. If it rejects, a stream is cut, and a reply of one body becomes an error. (A reply of
   * `proxy` has been sent by then.)
   */
  onSettle?(x: Exchange, settlement: Settlement): undefined | Promise<undefined>
  /** The chain is no longer used and its exchanges have ended. It may return a promise. */
  close?(): void | Promise<void>
}

/** A fact that protects the operator of a terminal that spends: a plugin above fills it, or the chain does not load. */
export interface Safeguard {
  /** The slot that a plugin above must fill for every exchange. */
  readonly slot: Slot<any>
  /** The terminal's option (true or false) that does without the safeguard. */
  readonly waiver: string
  /** What the terminal does without it, for messages: "serves everybody without limits". */
  readonly without: string
}

/** What an option of a plugin may bound in the store: bytes of a kept reply, and of all of them. */
export type StoreBound = 'idempotency.maxRecord' | 'idempotency.maxTotal'

/** Where around the call of a model a layer is; `translate` is the joint between `attempt` and `wire`. */
export type LayerPlace = 'call' | 'attempt' | 'translate' | 'wire'

/** The definition of a plugin. `C` is the type of its options; `S` the sections of gateway.yaml that it uses. */
export interface Plugin<C = any, S extends keyof Configuration = any> {
  /** The plugin's one name, in YAML, file, log lines and tests. */
  readonly name: string
  /** One sentence for `sluice list` and docs. */
  readonly summary: string
  /**
   * The JSON Schema of the options (the subset of 2020-12 that ajv supports): an object that refuses unknown keys.
   * Strings with `format: duration` or `format: size` arrive as numbers (milliseconds, bytes). Absent: the plugin has
   * no options.
   */
  readonly config?: Schema<C>
  /** Slots that plugins above must have filled. Core itself fills `requestBody`. */
  readonly needs?: readonly Slot<any>[]
  /** Slots this plugin fills on the way down. */
  readonly provides?: readonly Slot<any>[]
  /** Slots that this plugin fills for some exchanges only, private ones included: readers must use `peek`. */
  readonly mayProvide?: readonly Slot<any>[]
  /** Slots that this plugin fills during the response: readers must use `peek`. */
  readonly providesLate?: readonly Slot<any>[]
  /**
   * Slots that a plugin above fills and whose value this plugin replaces on the way down, e.g. `conversation` to
   * change a prompt.
   */
  readonly rewrites?: readonly Slot<any>[]
  /**
   * Slots that must be filled during the response of every exchange that has passed this plugin. A plugin that fills
   * one must be below the terminal or above this plugin: a reply that starts between the two would not pass it.
   */
  readonly needsLate?: readonly Slot<any>[]
  /**
   * Slots that this plugin reads where a plugin of the chain fills them, such as `estimate` by `admission`: what fills
   * one on the way down must be above this plugin. A chain in which nothing fills them loads, so readers must use `peek`.
   */
  readonly reads?: readonly Slot<any>[]
  /**
   * True for a plugin whose purpose is its work on the way down. A chain that lists it below the terminal, where no
   * request reaches it, does not load.
   */
  readonly aboveTerminal?: boolean
  /** Sections of gateway.yaml that `create` reads from its context. */
  readonly uses?: readonly S[]
  /** True for the plugin that answers, by itself or by calling an upstream. A pipeline has exactly one. */
  readonly terminal?: boolean
  /**
   * The layers that the plugin adds to the call of a model (docs/plugins.md#layers), by place. They work in a chain whose
   * terminal `calls`; the plugin has to stand above it.
   */
  readonly layers?: readonly LayerPlace[]
  /** True for a terminal that calls models: it has the hooks `call` and `wire`, and a plugin above translates for it. */
  readonly calls?: boolean
  /**
   * True for a terminal that passes a request and its reply on unchanged. WebSockets are tunnelled to it, where the
   * listener can tunnel.
   */
  readonly passesThrough?: boolean
  /**
   * For a terminal on routes that end in `/*`: the paths that it answers there, by method. `{id}` is one segment, and
   * `{id...}` as many as there are; an empty segment is none. Any other path is not found, as one that no route has.
   * Absent, or with a route of another method: it answers whatever comes.
   */
  readonly below?: Readonly<Record<string, readonly string[]>>
  /**
   * True for a terminal that answers a question about a request without executing it. The plugins above then accept
   * requests that they would otherwise refuse, as long as they can be read. A slot for which such a request has no
   * value stays empty, even one of `provides`.
   */
  readonly advisory?: boolean
  /** Terminal only, true where its answer is no reply of the surface: no WebSocket opens on its routes. */
  readonly postOnly?: boolean
  /**
   * Terminal only. It answers what the pipeline that serves the surface would do with a request, so the plugins above it
   * that fill or rewrite slots should be those of that pipeline, with the same options: `check` warns where they are not.
   * These slots of the other pipeline the terminal works out itself.
   */
  readonly foretells?: readonly Slot<any>[]
  /**
   * For a terminal that spends its operator's money or uses his credential when it has these options: what must protect
   * it. Absent, or an empty list: nothing has to.
   */
  safeguards?(config: C): readonly Safeguard[]
  /**
   * What of this plugin may run where nothing may be sent and nothing may be changed: `sluice route` and `POST /route`
   * ask what would become of a request. `safe`: on the way down the plugin reads and writes the exchange, its own memory
   * and `context.store`, which is an empty one there. A function returns the options with which that is so. Absent: its
   * `onRequest` does not run there, and the report names the plugin.
   */
  readonly dryRun?: 'safe' | ((config: C) => C)
  /**
   * Options that bound the store, which all pipelines share, with the bound that each sets. All entries of the plugin
   * must set the same, or the configuration does not load, and a change takes effect at the next start.
   */
  readonly storeBounds?: Readonly<Record<string, StoreBound>>
  /**
   * Kinds of records of the store that this plugin gives to clients. Who writes such records for clients alone looks at
   * `context.retrieved`, and writes none that nobody can get.
   */
  readonly retrieves?: readonly RecordKind[]
  /**
   * The option that names who runs this plugin's web searches: `simulator`, an entry of `providers`, or a plugin that
   * registers itself in `context.searchProviders`. A name of none of these does not load. Null: nobody runs them.
   */
  readonly searchProvider?: string
  /** Checks that the schema cannot express. Each returned message becomes a configuration error at the entry's line. */
  check?(config: C, gateway: Configuration): string[]
  create(config: C, context: PluginContext<S>): PluginHooks | Promise<PluginHooks>
}

/** Who calls. `auth` fills it; the built-in plugins know more of its members. */
const identity = slot<CallerIdentity>('identity')

/** Returns the plugin unchanged; it gives `create` and `check` their types. */
export function definePlugin<C = Record<string, never>, const S extends keyof Configuration = never>(
  plugin: Plugin<C, S>,
): Plugin<C, S> {
  return plugin
}

// ---- slots that core itself fills or reads --------------------------------------------------------------------------

/** The whole raw body. The chain waits for it just above the first plugin that needs it. */
export const requestBody = slot<Uint8Array>('requestBody')
/**
 * Called with the number of bytes each time that bytes of the body arrive; what it returns refuses the request. A
 * `beforeBody` hook may fill it.
 */
export const bodyMeter = slot<(bytes: number) => undefined | Reply>('bodyMeter')
/** The canonical conversation. Core reads it to encode the reply. */
export const conversation = slot<Conversation>('conversation')
/** The parsed and checked JSON body. Core reads it for members that a reply echoes. */
export const request = slot<Record<string, unknown>>('request')
/** The metered prompt tokens (METER-1). `token-estimate` fills it; core reads it for Messages `message_start`. */
export const estimate = slot<{ input: number }>('estimate')
/**
 * The billed usage, and its cost in nano-USD. `usage-capture` fills it during the response; it is final at `finish`
 * or at settlement. Core reads it for the terminal event.
 */
export const usage = slot<{ usage: Usage; cost: number; billed: boolean }>('usage')

export type { SearchResult } from './canon/conversation.ts'
export { GatewayError } from './canon/errors.ts'
export { cost } from './canon/money.ts'
export { answerCall, EventRecorder } from './engine/layer-answer.ts'
export { FactsAround, HandlerAround, Relay, SinkAround } from './engine/layers.ts'
export { LARGEST_VALUE } from './engine/plugin-values.ts'
export type * from './ports/call.ts'
export { SearchFailed, type SearchOptions, type SearchProvider } from './ports/search.ts'
export type { Clock } from './tools/clock.ts'
export { emptySlots, type Slot, slot } from './tools/slot.ts'
export type { Conversation, Incoming, SentStream, StreamEvent, SurfaceName }
