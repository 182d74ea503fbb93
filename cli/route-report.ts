/**
 * What the gateway would do with a request, without sending it. The route's real chain runs for a client that does not
 * exist, as far as its plugins declare that they may run dry.
 */

import { fills } from '../config/check-chain.ts'
import type { GatewayConfig, KeyConfig, OrganizationConfig } from '../config/types.ts'
import type { SurfaceName } from '../core/canon/conversation.ts'
import { RunningExchange } from '../core/engine/exchange/index.ts'
import { MemoryIncoming } from '../core/engine/memory-incoming.ts'
import { conversation as conversationSlot, estimate, type Plugin, type WireRequest } from '../core/plugin.ts'
import type { Backend } from '../core/ports/dialect.ts'
import { isLimit } from '../core/ports/store.ts'
import { systemClock } from '../core/tools/clock.ts'
import { Ticker } from '../core/tools/ticker.ts'
import { candidates, model, reservation, upstreamConversation } from '../plugins/shared/slots.ts'
import { joined } from '../plugins/shared/verbatim.ts'
import { callOf } from '../plugins/upstream/call.ts'
import { dialectOf } from '../providers/index.ts'
import { unfitFor } from '../providers/structured-output.ts'
import { surfaces } from '../surfaces/index.ts'
import { dryPlugins, dryRun } from './dry-run.ts'
import { silent } from './log.ts'
import { Failure } from './terminal.ts'

export interface RouteQuestion {
  surface: SurfaceName
  /** JSON text. */
  body: string
  organization?: string
  key?: string
}

/**
 * The body with another model in it.
 * @throws Failure when the body is not a JSON object
 */
export function withModel(body: string, model: string, name: string): string {
  try {
    const json: unknown = JSON.parse(body)
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) return JSON.stringify({ ...json, model })
  } catch {
    // Reported below.
  }
  throw new Failure(`${name} is not a JSON object, so the model has no place to go`)
}

export interface RouteReport {
  /** The gateway's error response, when no backend would be called. */
  refused?: { status: number; body: unknown }
  model?: string
  organization: string
  key: string
  /** In the order in which they would be tried. */
  candidates: string[]
  passed: { backend: string; because: string }[]
  /** The request to the first candidate. Secrets are redacted. */
  request?: { url: string; headers: Record<string, string>; body: unknown }
  /** The prompt tokens as metered, and the output tokens and the cost that would be reserved; cost in nano-USD. */
  estimate?: { input: number; output: number; cost: number }
  /** Plugins of the chain that did not look at the request, since they do not declare that they may run dry. */
  left_out?: string[]
  limits: { id: string; scope: string; dimension: string; capacity: number; per?: string }[]
}

/**
 * @param config is changed: pass a copy of one that is in use
 * @param outOf says why a backend gets no requests now, undefined when it does; only a running gateway knows
 * @throws Failure when the file has no route, organization or key for the question
 */
export async function routeReport(
  config: GatewayConfig,
  plugins: ReadonlyMap<string, Plugin>,
  file: string,
  question: RouteQuestion,
  outOf: OutOf = () => undefined,
): Promise<RouteReport> {
  const route = config.routes.find(
    candidate =>
      candidate.surface === question.surface &&
      config.pipelines[candidate.pipeline]!.some(entry => plugins.get(entry.plugin)?.calls),
  )
  if (!route) throw new Failure(`${file} has no route of the surface ${question.surface} that ends in upstream`)
  const caller = callerOf(config, file, question)
  let routed: Routed | undefined
  const dry = dryPlugins(plugins, caller, {
    call(x) {
      const call = callOf(x, config.stream_limits, NO_LIMITS)
      const chosen = call.candidates.filter(backend => outOf(backend.id, caller.organization.id) === undefined)
      routed = { chosen, request: undefined }
      return call
    },
    backend: () => routed!.chosen[0] && withoutSecrets(routed!.chosen[0]),
    written(request) {
      routed!.request ??= request
    },
  })
  const { chains, close } = await dryRun(config, dry.plugins)
  try {
    const chain = chains.get(route.pipeline)!
    const leftOut = dry.leftOut(route.pipeline)
    for (const { id, plugin } of leftOut) {
      const reader = chain.links.find(link => link.plugin.needs?.some(slot => fills(plugin.provides, slot)))
      if (reader)
        throw new Failure(
          `${file}: nobody can tell without '${id}', whose work '${reader.id}' needs. It does not declare that it may run ` +
            "where nothing may be sent (`dryRun: 'safe'` in the plugin)",
        )
    }
    const incoming = new MemoryIncoming({ path: route.path, body: question.body })
    const x = await new Promise<RunningExchange>(resolve => {
      new RunningExchange('req_route', incoming, chain, surfaces[question.surface], route.path, {
        clock: systemClock,
        log: silent,
        ticker: new Ticker(systemClock, 1000),
        keepAliveMs: 15_000,
        random: () => 0,
        onSettled: resolve,
      }).start()
    })
    const leftOutIds = leftOut.map(({ id }) => id)
    return {
      ...report(config, x, incoming, caller, outOf, routed),
      ...(leftOutIds.length > 0 && { left_out: leftOutIds }),
    }
  } finally {
    await close()
  }
}

/** Why an organization's requests pass a backend over at the moment; both by their ids. */
type OutOf = (backend: string, organization: string) => string | undefined

/** A request that reached the terminal. */
interface Routed {
  /** The candidates that get requests now. */
  chosen: Backend[]
  /** The request to the first of them. */
  request: WireRequest | undefined
}

/** Nothing is sent, so nothing can take too long or become too large. */
const NO_LIMITS = { first_byte_timeout: 0, max_reply: 0 }

interface Caller {
  organization: OrganizationConfig
  key: KeyConfig
}

function callerOf(config: GatewayConfig, file: string, question: RouteQuestion): Caller {
  const all = Object.values(config.organizations)
  const organization =
    question.organization === undefined
      ? all.find(candidate => candidate.keys.some(key => key.status === 'active'))
      : all.find(({ id }) => id === question.organization)
  if (!organization)
    throw new Failure(
      `${file} has no organization ${question.organization ?? 'with an active key'}; name one of its organizations`,
    )
  const key =
    question.key === undefined
      ? organization.keys.find(candidate => candidate.status !== 'revoked')
      : organization.keys.find(candidate => candidate.id === question.key)
  if (!key) throw new Failure(`${file}: the organization ${organization.id} has no key ${question.key ?? 'that works'}`)
  return { organization, key }
}

function report(
  config: GatewayConfig,
  x: RunningExchange,
  incoming: MemoryIncoming,
  caller: Caller,
  outOf: OutOf,
  routed: Routed | undefined,
): RouteReport {
  const requested = x.peek(model)
  const fit = x.peek(candidates) ?? []
  const { chosen = [], request } = routed ?? {}
  const reserved = x.peek(reservation)
  const conversation = x.peek(upstreamConversation) ?? x.peek(conversationSlot)
  const input = x.peek(estimate)?.input
  const result: RouteReport = {
    organization: caller.organization.id,
    key: caller.key.id,
    ...(requested && { model: requested.id }),
    candidates: chosen.map(backend => backend.id),
    passed: [],
    limits: (reserved?.cells ?? []).filter(isLimit).map(({ id, scope, dimension, capacity, windowMs, period }) => ({
      id,
      scope,
      dimension,
      capacity,
      ...((period ?? windowMs) !== undefined && { per: period ?? (windowMs === 60_000 ? 'minute' : 'day') }),
    })),
  }
  if (!routed) result.refused = { status: incoming.status, body: parsed(incoming.sent) }
  if (reserved) result.estimate = { input: reserved.input, output: reserved.output, cost: reserved.cost }
  for (const backend of requested && conversation ? requested.backends : []) {
    if (chosen.includes(backend)) continue
    const dialect = dialectOf(backend)
    let because = 'it was not asked'
    if (fit.includes(backend)) because = outOf(backend.id, caller.organization.id)!
    else if (backend.contextWindow !== undefined && input !== undefined && input > backend.contextWindow)
      because = `its context window is ${backend.contextWindow} tokens, the prompt has ${input}`
    else {
      const unfit = unfitFor(conversation!, backend, dialect)
      if (unfit) because = `it can't carry ${unfit.requirement} (${unfit.param})`
      else if (backend.group !== undefined && backend.weight === 0) because = 'its weight is 0'
    }
    result.passed.push({ backend: backend.id, because })
  }
  if (request) {
    const { provider } = request.call.backend
    result.request = {
      url: config.providers[provider]!.base_url.replace(/\/+$/, '') + request.path,
      headers: shown({ ...request.headers, ...request.own }),
      body: parsed(joined(request.body).toString()),
    }
  }
  return result
}

/** Stands for a secret. */
const REDACTED = '(redacted)'

/**
 * The backend without its secrets: its key, and the values of the provider's `headers`, whatever their names are. The
 * request that is written for it has them nowhere, neither in its headers nor in its body.
 */
function withoutSecrets(backend: Backend): Backend {
  const headers = Object.fromEntries(Object.keys(backend.headers).map(name => [name, REDACTED]))
  return { ...backend, headers, ...(backend.apiKey && { apiKey: REDACTED }) }
}

/** The headers, without words such as `Bearer` before a secret. */
function shown(headers: Readonly<Record<string, string>>): Record<string, string> {
  const whole = Object.entries(headers).map(([name, value]) => [name, value.includes(REDACTED) ? REDACTED : value])
  return Object.fromEntries(whole)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
