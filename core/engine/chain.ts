/**
 * A pipeline of gateway.yaml, compiled once per configuration into flat arrays: one for each phase, in the order in
 * which that phase runs.
 *
 * A request goes down the list to the terminal. Its response comes back up through the plugins that the request
 * passed, then out through the plugins below the terminal. The request has not passed a plugin that answers it: the
 * response hooks of that plugin do not see its own reply.
 */
import { types } from 'node:util'
import type { StreamEvent } from '../canon/events.ts'
import type { Exchange, LayerPlace, Logger, Plugin, PluginContext, PluginHooks, Reply, Safeguard } from '../plugin.ts'
import { requestBody } from '../plugin.ts'
import type { Send } from '../ports/call.ts'
import { around, NO_CALLS } from './layers.ts'

/** Where a value is written, for messages: `gateway.yaml:14:5`. */
export interface Position {
  file: string
  line: number
  column: number
}

/** One line of a pipeline. */
export interface PipelineEntry {
  plugin: string
  /** The plugin's name unless the entry gives another; unique in its pipeline. */
  id: string
  on_failure: 'deny' | 'skip'
  /**
   * The options as `create` takes them: checked by the plugin's own schema, defaults filled in, durations in
   * milliseconds, sizes in bytes.
   */
  config: Record<string, unknown>
  at: Position
  /** True for an entry that `version: 1` adds and the file does not contain. `at` is then the entry below it. */
  implied?: true
}

/** One plugin at its place in a chain, with its counters. */
export interface Link {
  readonly index: number
  readonly id: string
  readonly plugin: Plugin
  readonly hooks: PluginHooks
  readonly skipFailures: boolean
  readonly stats: LinkStats
}

/**
 * Counters of one plugin. Calls are counted for every exchange; time is measured for sampled exchanges only (see
 * `SAMPLE` in timeline.ts).
 */
export interface LinkStats {
  calls: number
  refusals: number
  errors: number
  sampledCalls: number
  /** Milliseconds in request hooks, including the time they waited. */
  sampledMs: number
  /** Milliseconds in all response hooks. */
  sampledReplyMs: number
}

/**
 * A step on the way down: a request hook, the wait for the body, or before that wait the `beforeBody` hook of a plugin
 * that is below it.
 */
export type RequestStep =
  | { kind: 'body'; link: null }
  | { kind: 'hook' | 'beforeBody'; link: Link; run: (x: Exchange) => undefined | Reply | Promise<undefined | Reply> }

/** The hooks of one phase in response order. */
export interface Phase<F> {
  readonly links: readonly Link[]
  readonly hooks: readonly F[]
  /** `from[k]` is the index of the first hook to run for a reply that starts at link `k`. */
  readonly from: readonly number[]
}

/** An event hook: it either looks at events or replaces them. */
export type EventStep =
  | { link: Link; look: (x: Exchange, event: StreamEvent) => undefined; rewrite?: undefined }
  | {
      link: Link
      look?: undefined
      rewrite: (x: Exchange, event: StreamEvent, push: (event: StreamEvent) => void) => undefined
    }

/**
 * A hook for the end of a reply. The members below are places in `events` and `chunks`: indexes of the first hook from
 * there on, in response order.
 */
export interface EndStep {
  run: NonNullable<PluginHooks['onResponseEnd']>
  /** The plugin's own place. The hook runs when the finish is there: what plugins before it kept back has passed. */
  at: number
  /** The place of the next plugin, which is the first that sees what the hook pushes. */
  next: { event: number; chunk: number }
}

/** A compiled pipeline. Hooks are bound to their plugin instance. */
export interface Chain {
  readonly name: string
  readonly links: readonly Link[]
  readonly terminal: number
  /** What must protect the terminal with the options that it has here; a waived safeguard is one of them, too. */
  readonly safeguards: readonly Safeguard[]
  readonly steps: readonly RequestStep[]
  readonly forward: (x: Exchange) => undefined
  /** For replies without an exchange; every one of them runs. */
  readonly early: Phase<NonNullable<PluginHooks['onEarlyHead']>>
  readonly head: Phase<NonNullable<PluginHooks['onResponseHead']>>
  readonly events: Phase<EventStep>
  readonly chunks: Phase<NonNullable<PluginHooks['onChunk']>>
  readonly ends: Phase<EndStep>
  readonly errors: Phase<NonNullable<PluginHooks['onError']>>
  readonly settles: Phase<NonNullable<PluginHooks['onSettle']>>
  /**
   * The body limits that hold for the chain: the smallest of each among the plugins that need the body. Null when no
   * plugin needs it.
   */
  readonly body: { maxBytes: number; timeoutMs: number } | null
  readonly log: Logger
  readonly forceAsync: boolean
  close(): Promise<void>
}

export interface BuildOptions {
  entries: readonly PipelineEntry[]
  plugins: ReadonlyMap<string, Plugin>
  context(entry: PipelineEntry): PluginContext
  log: Logger
  /**
   * For tests: every request hook answers through a promise, so that one suite covers the synchronous and the
   * asynchronous way through the chain.
   */
  forceAsync?: boolean
  /** For tests: wraps the hooks of each plugin, e.g. `declaredOnly` of testing.ts. */
  around?(plugin: Plugin, hooks: PluginHooks): PluginHooks
}

/** The body limits of a plugin that needs the body and gives none. */
const DEFAULT_BODY = { maxBytes: 32 * 1024 * 1024, timeoutMs: 60_000 }

/**
 * A plugin could not be created, or its hooks do not fit together. `message` names the plugin; `at` is where its
 * entry is written.
 */
export class ChainError extends Error {
  readonly at: PipelineEntry['at']
  constructor(pipeline: string, entry: PipelineEntry, cause: unknown) {
    super(`pipeline ${pipeline}: plugin '${entry.id}' does not start: ${(cause as Error)?.message ?? cause}`, { cause })
    this.name = 'ChainError'
    this.at = entry.at
  }
}

/**
 * The time that a plugin's `create` and `close` may take, in milliseconds. Reloads run one after the other, and a
 * gateway that stops waits for the running one: without a bound one plugin could block both for ever.
 */
const CREATE_MS = 30_000
const CLOSE_MS = 10_000

async function within<T>(ms: number, what: string, work: T | Promise<T>): Promise<T> {
  if (!types.isPromise(work)) return work
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} was not done within ${ms / 1000} s`)), ms)
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

/** Hooks that run on the way back. */
const COMING_BACK = [
  'onEarlyHead',
  'onResponseHead',
  'onEvent',
  'rewriteEvent',
  'onChunk',
  'onResponseEnd',
  'onError',
] as const satisfies readonly (keyof PluginHooks)[]

/**
 * Hooks that must answer synchronously. Their types forbid a promise, but types are not checked when a plugin is
 * loaded, so `buildChain` checks for async functions.
 */
export const NEVER_WAIT = ['forward', ...COMING_BACK] as const

/** The hook of each place where a layer may be. */
export const LAYER_HOOKS = {
  call: 'callLayer',
  attempt: 'attemptLayer',
  translate: 'translate',
  wire: 'wireLayer',
} as const satisfies Record<LayerPlace, keyof PluginHooks>

/**
 * Creates every plugin of a checked pipeline and lays out its phases. Before it throws, it closes the plugins that it
 * has already created.
 * @throws ChainError for the first plugin that fails
 */
export async function buildChain(name: string, options: BuildOptions): Promise<Chain> {
  const links: Link[] = []
  for (const [index, entry] of options.entries.entries()) {
    try {
      const plugin = options.plugins.get(entry.plugin)
      if (!plugin) throw new Error('there is no such plugin')
      const hooks = await within(CREATE_MS, 'create', plugin.create(entry.config, options.context(entry)))
      if (typeof hooks !== 'object' || hooks === null) throw new Error('create returned no hooks; return an object')
      links.push({
        index,
        id: entry.id,
        plugin,
        hooks: options.around?.(plugin, hooks) ?? hooks,
        skipFailures: entry.on_failure === 'skip',
        stats: { calls: 0, refusals: 0, errors: 0, sampledCalls: 0, sampledMs: 0, sampledReplyMs: 0 },
      })
      if (hooks.rewriteEvent && hooks.onEvent) throw new Error('a plugin has onEvent or rewriteEvent, not both')
      if (plugin.terminal && !hooks.forward) throw new Error('it is a terminal and has no forward hook')
      if (plugin.calls && !(hooks.call && hooks.wire))
        throw new Error('it calls models and lacks the hook call or wire')
      for (const [place, hook] of Object.entries(LAYER_HOOKS) as [LayerPlace, keyof PluginHooks][])
        if ((hooks[hook] !== undefined) !== (plugin.layers?.includes(place) ?? false))
          throw new Error(`the hook ${hook} and layers: ['${place}'] belong together, and one of them is missing`)
      const waits = NEVER_WAIT.find(hook => types.isAsyncFunction(hooks[hook]))
      if (waits) throw new Error(`${waits} is async, and nobody would wait for it; take a hold for what takes time`)
    } catch (error) {
      await closeLinks(links).catch(fault =>
        options.log.error({ err: fault, pipeline: name }, 'closing a plugin failed'),
      )
      throw new ChainError(name, entry, error)
    }
  }
  const end = options.entries[links.findIndex(link => link.plugin.terminal)]
  const safeguards = end ? (options.plugins.get(end.plugin)?.safeguards?.(end.config) ?? []) : []
  return layOut(name, links, { ...options, safeguards })
}

function layOut(
  name: string,
  links: readonly Link[],
  options: Pick<BuildOptions, 'log' | 'forceAsync'> & Pick<Chain, 'safeguards'>,
): Chain {
  const terminal = links.findIndex(link => link.plugin.terminal)
  const end = links[terminal]!.hooks
  const forward = end.forward!.bind(end)
  const send = sendOf(links.slice(0, terminal), end)

  const steps: RequestStep[] = []
  let collected = false
  let body: Chain['body'] = null
  for (const link of links) {
    const needsBody = link.plugin.needs?.includes(requestBody) ?? false
    if (needsBody) {
      const limits = link.hooks.body ?? DEFAULT_BODY
      body = body
        ? { maxBytes: Math.min(body.maxBytes, limits.maxBytes), timeoutMs: Math.min(body.timeoutMs, limits.timeoutMs) }
        : { maxBytes: limits.maxBytes, timeoutMs: limits.timeoutMs }
    }
    if (link.index > terminal) continue
    if (needsBody && !collected) {
      for (const below of links.slice(link.index, terminal + 1)) {
        const run = below.hooks.beforeBody?.bind(below.hooks)
        if (run) steps.push({ kind: 'beforeBody', link: below, run: options.forceAsync ? async x => run(x) : run })
      }
      steps.push({ kind: 'body', link: null })
      collected = true
    }
    const run = link.hooks.onRequest?.bind(link.hooks)
    if (run && link.index < terminal)
      steps.push({ kind: 'hook', link, run: options.forceAsync ? async x => run(x) : run })
  }

  const order = [...links.slice(0, terminal).reverse(), ...links.slice(terminal + 1)]
  const phase = <F>(pick: (hooks: PluginHooks, link: Link) => F | undefined): Phase<F> => {
    const chosen: Link[] = []
    const hooks: F[] = []
    for (const link of order) {
      const hook = pick(link.hooks, link)
      if (!hook) continue
      chosen.push(link)
      hooks.push(hook)
    }
    const from = links.map((_, start) => chosen.filter(link => link.index >= start && link.index < terminal).length)
    return { links: chosen, hooks, from }
  }
  const events = phase<EventStep>((h, link) => {
    if (h.rewriteEvent) return { link, rewrite: h.rewriteEvent.bind(h) }
    if (h.onEvent) return { link, look: h.onEvent.bind(h) }
    return undefined
  })
  const chunks = phase(h => h.onChunk?.bind(h))

  return {
    name,
    links,
    terminal,
    safeguards: options.safeguards,
    steps,
    forward: x => forward(x, send),
    early: phase(h => h.onEarlyHead?.bind(h)),
    head: phase(h => h.onResponseHead?.bind(h)),
    events,
    chunks,
    ends: phase<EndStep>((h, link) => {
      const own = order.indexOf(link)
      const upTo = (phase: Phase<unknown>, end: number) => phase.links.filter(l => order.indexOf(l) < end).length
      const next = { event: upTo(events, own + 1), chunk: upTo(chunks, own + 1) }
      return h.onResponseEnd && { run: h.onResponseEnd.bind(h), at: upTo(events, own), next }
    }),
    errors: phase(h => h.onError?.bind(h)),
    settles: phase(h => h.onSettle?.bind(h)),
    body,
    log: options.log,
    forceAsync: options.forceAsync ?? false,
    close: () => closeLinks(links),
  }
}

/** A terminal's `call`, with the layers of the plugins above it; each plugin keeps its own `this`. */
function sendOf(above: readonly Link[], terminal: PluginHooks): Send {
  const { call, wire } = terminal
  const translate = above.find(({ hooks }) => hooks.translate)?.hooks
  if (!call || !wire || !translate) return NO_CALLS
  const of = <K extends 'callLayer' | 'attemptLayer' | 'wireLayer'>(place: K) =>
    above.flatMap(({ hooks }) => (hooks[place] ? [hooks[place].bind(hooks) as NonNullable<PluginHooks[K]>] : []))
  const sendWire = around(of('wireLayer'), wire.bind(terminal))
  const attempt = around(of('attemptLayer'), translate.translate!(sendWire))
  return around(of('callLayer'), call.call(terminal, attempt))
}

/** The safeguards of a chain's terminal that no plugin above it provides: the file waives them. */
export function waived({ links, terminal, safeguards }: Chain): Safeguard[] {
  const above = links.slice(0, terminal)
  return safeguards.filter(({ slot }) => !above.some(({ plugin }) => plugin.provides?.some(s => s.name === slot.name)))
}

/** Hooks that run on the way down only, and layers. */
const GOING_DOWN = [
  'onRequest',
  'beforeBody',
  'forward',
  ...Object.values(LAYER_HOOKS),
] as const satisfies readonly (keyof PluginHooks)[]
/** Hooks that run for every reply, whether their plugin is above or below the terminal. */
const FOR_EVERY_REPLY = [...COMING_BACK, 'onSettle'] as const

/**
 * The plugins of a chain that have hooks none of which can run at their place. A plugin without any hook is none of
 * them: it does its work when it is created.
 */
export function idleLinks({ links, terminal, steps }: Chain): Link[] {
  const { calls } = links[terminal]!.plugin
  return links.filter(link => {
    if (link.index === terminal || !GOING_DOWN.some(hook => link.hooks[hook])) return false
    if (calls && link.plugin.layers && link.index < terminal) return false
    return !FOR_EVERY_REPLY.some(hook => link.hooks[hook]) && !steps.some(step => step.link === link)
  })
}

/** Whether the messages of a WebSocket may be requests of a chain: it reads bodies, and its terminal serves them. */
export function takesMessages({ body, links, terminal }: Chain): boolean {
  const plugin = links[terminal]?.plugin
  return body !== null && plugin?.advisory !== true && plugin?.postOnly !== true
}

/**
 * The part of a chain that a WebSocket handshake runs through before the socket opens: the plugins above the body,
 * such as `auth`, and on the way out the plugins below the terminal. The other plugins run for each request that
 * arrives over the socket.
 */
export function handshakeChain(chain: Chain): Chain {
  const body = chain.links.findIndex(link => link.plugin.needs?.includes(requestBody))
  const above = chain.links.slice(0, body < 0 ? chain.terminal : Math.min(body, chain.terminal))
  const links = [...above, HANDSHAKE_END, ...chain.links.slice(chain.terminal + 1)]
  return layOut(
    chain.name,
    links.map((link, index) => ({ ...link, index })),
    // The messages of the socket run through the whole chain.
    { log: chain.log, forceAsync: chain.forceAsync, safeguards: [] },
  )
}

const handshakeEndHooks: PluginHooks = {
  forward(x) {
    x.reply({ kind: 'json', status: 101, body: '' })
    return undefined
  },
}
/** The link that takes the terminal's place in a handshake's chain: it answers with 101. */
const HANDSHAKE_END: Link = {
  index: 0,
  id: 'websocket',
  plugin: { name: 'websocket', summary: 'Opens a WebSocket.', terminal: true, create: () => handshakeEndHooks },
  hooks: handshakeEndHooks,
  skipFailures: false,
  stats: { calls: 0, refusals: 0, errors: 0, sampledCalls: 0, sampledMs: 0, sampledReplyMs: 0 },
}

/** Closes all links in reverse order, also when one of them fails; then throws the first error. */
async function closeLinks(links: readonly Link[]): Promise<void> {
  const faults: unknown[] = []
  for (const link of [...links].reverse()) {
    try {
      await within(CLOSE_MS, 'close', link.hooks.close?.())
    } catch (error) {
      faults.push(error)
    }
  }
  if (faults.length > 0) throw faults[0]
}
