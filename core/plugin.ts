/**
 * The plugin contract, in one file. Public: plugins outside the clone import it as `sluice`.
 *
 * A plugin is one line of a pipeline in gateway.yaml. `definePlugin` describes it; `create` makes one instance for each place it stands in a
 * chain, once per configuration. docs/plugins.md walks through writing one; docs/architecture.md draws the way of an exchange.
 */

import type { Clock } from './clock.ts'
import type { Conversation, SurfaceName } from './conversation.ts'
import { type ErrorCode, type ErrorInit, GatewayError } from './errors.ts'
import type { StreamEvent, Usage } from './events.ts'
import type { Incoming } from './listener.ts'
import type { SearchProviders } from './search.ts'
import type { Outcome, Store } from './store.ts'
import type { Surface } from './surface.ts'
import type { Schema } from './vocabulary.ts'

// ---- slots ------------------------------------------------------------------------------------------------------------

/** A typed fact about an exchange: one plugin fills it, others read it. Make one with `slot`. */
export interface Slot<T> {
  readonly name: string
  readonly index: number
  /** Type only. */
  readonly value?: T
}

const slotIndexes = new Map<string, number>()

/**
 * Defines a slot. Two definitions of one name are one slot, so that a reloaded plugin file finds the same place.
 * Exporting a slot is a promise to other plugins.
 */
export function slot<T>(name: string): Slot<T> {
  let index = slotIndexes.get(name)
  if (index === undefined) {
    index = slotIndexes.size
    slotIndexes.set(name, index)
  }
  return { name, index }
}

/** Room for every slot that is defined so far, so that what an exchange sets one by one doesn't make it grow again and again. */
export function emptySlots(): unknown[] {
  return new Array(slotIndexes.size)
}

// ---- replies ----------------------------------------------------------------------------------------------------------

/** What a request hook returns to answer the client itself. */
export type Reply =
  | { kind: 'error'; error: GatewayError }
  | { kind: 'json'; status: number; body: unknown; headers?: Record<string, string> }
  /** Bytes as they are, e.g. an idempotent replay. `whole: false` closes without the terminator. */
  | { kind: 'raw'; status: number; headers: readonly (readonly [string, string])[]; body: Uint8Array; whole: boolean }
  /** A gateway-authored refusal in the surface's own form; zero usage (decisions 9). */
  | { kind: 'refusal'; text: string }
  /** A whole reply without output, in the surface's own form; zero usage. */
  | { kind: 'empty' }

/** Refuses the request with a code of the error table. */
export function deny(code: ErrorCode, init: ErrorInit): Reply {
  return { kind: 'error', error: new GatewayError(code, init) }
}
/** Answers with a JSON body. */
export function answer(status: number, body: unknown, headers?: Record<string, string>): Reply {
  return { kind: 'json', status, body, headers }
}
/** Answers as the model would refuse: HTTP 200, the surface's refusal shape, zero usage. */
export function refuse(text: string): Reply {
  return { kind: 'refusal', text }
}

// ---- the exchange, as a plugin sees it --------------------------------------------------------------------------------

export interface ResponseHead {
  status: number
  /** Names lower case; plugins set and delete. Values without CR, LF, NUL. */
  headers: Map<string, string>
  /** Who made this reply. */
  readonly origin: 'upstream' | 'gateway'
}

/** How an exchange ended; `onSettle` reads it. */
export interface Settlement {
  outcome: Outcome
  /** Model output reached the client (BILL-3). */
  delivered: boolean
  /** HTTP status sent, 0 when none. */
  status: number
  error?: GatewayError
  durationMs: number
  /** From the first byte of the request to the first byte of the reply; null when none. */
  ttfbMs: number | null
}

export interface Exchange {
  /** `x-request-id`. */
  readonly id: string
  readonly incoming: Incoming
  readonly surface: Surface | undefined
  readonly route: string
  /** Unix ms when the head was parsed. */
  readonly startedAt: number
  /** Id of the reply object without its prefix: [A-Za-z0-9]{24}. */
  readonly objectId: string
  readonly clock: Clock

  /** Reads a slot that `needs` promises. Throws when it is empty. */
  get<T>(slot: Slot<T>): T
  /** Reads a slot that may be empty. */
  peek<T>(slot: Slot<T>): T | undefined
  /** Fills a slot that the plugin declares: `provides`, `mayProvide`, `providesLate` or `rewrites`. Tests refuse any other. */
  set<T>(slot: Slot<T>, value: T): void

  /** Registers a release for what was just acquired. Runs once, last in first out, after every `onSettle`. */
  defer(release: () => void): void
  /**
   * Pauses the upstream and keeps events from leaving until the returned function is called (once; more does nothing). Counted.
   * Taken while an event passes, it also keeps that event and all behind it (decisions 5).
   */
  hold(): () => void
  /** Called with the status and headers as sent, then with each piece of bytes as handed to the client, then with null and whether it was whole. */
  onSent(tap: SentTap): void

  // -- for terminals --
  /** Hands an upstream event on: up through the plugins passed, out through those below. */
  emit(event: StreamEvent): void
  /** Flushes what `emit` encoded; call once per upstream read. False: pause until `onResume`. */
  flush(): boolean
  /** Bytes reply (proxy): sets the head; then `emit({type:'bytes'})`. */
  respondHead(status: number, headers: Iterable<readonly [string, string]>): void
  /** The upstream finished well (after the `finish` event, if the route has a surface). */
  end(): void
  /** The upstream failed: an error reply before the head, an error frame after it. */
  fail(error: GatewayError): void
  /** Answers with a Reply of the gateway's own; before the head only. */
  reply(reply: Reply): void
  /** Registers how to stop and resume the upstream. One at a time: a later attempt replaces the former. */
  control(upstream: UpstreamControl): void
  /** The error this exchange answers or ended with, once known. */
  readonly error: GatewayError | undefined
  /** True once the exchange is settled. */
  readonly closed: boolean
  /** True once the client has left; a draining upstream may still run. */
  readonly clientGone: boolean
  /** True once the head has gone out (no failover after that, decisions 11). */
  readonly headSent: boolean
  /** Sends the head now with keep-alives, although no event has come (decisions 11). */
  sendHead(): void
}

export interface SentTap {
  head(status: number, headers: readonly (readonly [string, string])[]): void
  bytes(bytes: Uint8Array): void
  end(whole: boolean): void
}

export interface UpstreamControl {
  pause(): void
  resume(): void
  /**
   * The client is gone or the exchange was ended: cancel. `draining` keeps the upstream running without a client, so that its usage
   * report still arrives (`on_client_gone: drain`); the terminal then still calls `end` or `fail`.
   */
  abort(reason: 'client_gone' | 'ended'): undefined | 'draining'
}

// ---- the plugin -------------------------------------------------------------------------------------------------------

/** The sections of gateway.yaml, checked. The engine knows none of them: config/types.ts says what they hold. */
// biome-ignore lint/suspicious/noEmptyInterface: config/types.ts fills it
export interface Configuration {}

/** The gateway around a plugin: what `create` may use. */
export interface PluginContext<S extends keyof Configuration = keyof Configuration> {
  /** The sections that the plugin `uses`, and no others. */
  readonly config: Pick<Configuration, S>
  readonly store: Store
  readonly clock: Clock
  /** Uniform in [0, 1). */
  random(): number
  readonly log: Logger
  /** This instance's id in its pipeline. */
  readonly id: string
  readonly pipeline: string
  /** What the definition of the pipeline's terminal says of it. */
  readonly terminal: Pick<Plugin, 'advisory' | 'passesThrough'>
  /** Surface of the routes that use this pipeline; several routes may share one. */
  readonly surfaces: readonly Surface[]
  /** Shared by all chains of the process and across reloads: platform load, breakers, caches. */
  readonly shared: SharedState
  /** The gateway's secret, for sealing. */
  readonly secret: Uint8Array
  /** Where a plugin that can search the web registers itself (docs/web-search.md); of this configuration alone. */
  readonly searchProviders: SearchProviders
}

/** A registry of process-wide state that outlives a reload. */
export interface SharedState {
  /** The value under `key`, made on first use. */
  use<T>(key: string, make: () => T): T
}

export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

/** What `create` returns. Stream hooks return `undefined`, not `void`: an `async` function is a compile error there. */
export interface PluginHooks {
  /** Limits of the body this plugin needs (list `requestBody` in `needs`). The strictest of the chain holds. */
  readonly body?: { maxBytes: number; timeoutMs: number }
  /** On the way down. Return a Reply to answer; may wait. */
  onRequest?(x: Exchange): undefined | Reply | Promise<undefined | Reply>
  /** Terminal only: starts the upstream and returns at once; later it calls `x.emit`, `x.flush`, `x.end` or `x.fail`. */
  forward?(x: Exchange): undefined
  /** Status and headers are known and may be changed. Once, for every reply. */
  onResponseHead?(x: Exchange, head: ResponseHead): undefined
  /** Looks at each event. */
  onEvent?(x: Exchange, event: StreamEvent): undefined
  /** Replaces each event by those it pushes: none, one or many. */
  rewriteEvent?(x: Exchange, event: StreamEvent, push: (event: StreamEvent) => void): undefined
  /** Looks at each piece of a bytes reply (proxy). */
  onChunk?(x: Exchange, bytes: Uint8Array): undefined
  /** Upstream finished well; last chance to push events, before the terminal event is written. */
  onResponseEnd?(x: Exchange, push: (event: StreamEvent) => void): undefined
  /** The reply will be this error and no byte has gone out; return a Reply to answer otherwise. */
  onError?(x: Exchange, error: GatewayError): undefined | Reply
  /** Always, exactly once, however the exchange ended; before deferred releases. Only for plugins the exchange entered and those below the terminal. */
  onSettle?(x: Exchange, settlement: Settlement): undefined
  /** The chain is retired: running exchanges have ended. May wait. */
  close?(): void | Promise<void>
}

export interface Plugin<C = any, S extends keyof Configuration = any> {
  /** One name everywhere: YAML, file, log line and test. */
  readonly name: string
  /** One sentence for `sluice list` and docs. */
  readonly summary: string
  /**
   * Schema of `config`: JSON Schema (the subset of 2020-12 that ajv takes), an object that refuses unknown keys. Strings
   * with `format: duration` or `format: size` arrive as numbers. Absent: no options.
   */
  readonly config?: Schema<C>
  /** Slots that must have been filled above. `requestBody` is filled by core. */
  readonly needs?: readonly Slot<any>[]
  /** Slots this plugin fills on the way down. */
  readonly provides?: readonly Slot<any>[]
  /** Slots this plugin fills for some exchanges only, private ones included: readers must `peek`. */
  readonly mayProvide?: readonly Slot<any>[]
  /** Slots filled during the response: readers must `peek`. */
  readonly providesLate?: readonly Slot<any>[]
  /** Slots that another plugin fills above, and whose value this one replaces on the way down, e.g. `conversation` to change a prompt. */
  readonly rewrites?: readonly Slot<any>[]
  /**
   * Slots that must be filled during the response of every exchange that has passed this plugin. Whoever fills one
   * stands below the terminal, or above this plugin: a reply that starts between the two would miss it.
   */
  readonly needsLate?: readonly Slot<any>[]
  /** Sections of gateway.yaml that `create` reads from its context. */
  readonly uses?: readonly S[]
  /** True for the one plugin of a pipeline that answers, by itself or by asking an upstream. */
  readonly terminal?: boolean
  /** Of a terminal that hands a request and its reply on as they are: a WebSocket is tunnelled to it, where the listener can. */
  readonly passesThrough?: boolean
  /**
   * Of a terminal that answers about a request without serving it. The plugins above let pass what they would refuse
   * elsewhere, as long as it can be read; a slot that such a request has no value for stays empty then, even one of
   * `provides`.
   */
  readonly advisory?: boolean
  /** Checks beyond the schema; each message becomes a configuration error at the entry's line. */
  check?(config: C, gateway: Configuration): string[]
  create(config: C, context: PluginContext<S>): PluginHooks | Promise<PluginHooks>
}

/** Identity function that types a plugin. */
export function definePlugin<C = Record<string, never>, const S extends keyof Configuration = never>(
  plugin: Plugin<C, S>,
): Plugin<C, S> {
  return plugin
}

// ---- slots that core itself fills or reads ----------------------------------------------------------------------------

/** The raw body, whole. Needing it makes the chain wait for the body just above. */
export const requestBody = slot<Uint8Array>('requestBody')
/** The canonical conversation; core reads it for encoding. */
export const conversation = slot<Conversation>('conversation')
/** The parsed and checked JSON body; core reads it for echo members. */
export const request = slot<Record<string, unknown>>('request')
/** Metered prompt tokens (METER-1); filled by `token-estimate`, read by core for Messages `message_start`. */
export const estimate = slot<{ input: number }>('estimate')
/** What is billed: filled late by `usage-capture`, final at `finish` or at settlement; core reads it for the terminal event. Cost in nano-USD. */
export const usage = slot<{ usage: Usage; cost: number; billed: boolean }>('usage')

export type { Clock } from './clock.ts'
export type { SearchResult } from './conversation.ts'
export { GatewayError } from './errors.ts'
export { SearchFailed, type SearchOptions, type SearchProvider } from './search.ts'
export type { Conversation, StreamEvent, SurfaceName }
