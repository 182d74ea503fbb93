/**
 * The budget of work in preparation: requests that have begun and are not admitted yet, with the bytes that are held
 * for them (bodies, complete or not, messages that wait on a WebSocket, recalled data and fetched media). It is bounded
 * for each organization and for the process. An organization that holds less than its share of the process bound is not
 * refused by that bound.
 */
import type { GatewayConfig } from '../../config/types.ts'
import {
  type Budget,
  type BudgetMetric,
  type BudgetSources,
  counter,
  gauge,
  passedBound,
  refusal,
  setting,
} from '../../core/engine/budget.ts'
import type { Reply, SharedState } from '../../core/plugin.ts'
import type { Incoming } from '../../core/ports/listener.ts'
import { preparationKey } from './state.ts'

/** The bounds, for the process and for each organization: `platform.preparation` of gateway.yaml. */
export type PreparationBounds = GatewayConfig['platform']['preparation']

type Refusal = Extract<Reply, { kind: 'error' }>

/** What one organization holds, or all of them together. */
interface Held {
  requests: number
  bytes: number
}

/** The wait that a refusal advertises, in milliseconds and before jitter. */
const WAIT_MS = 1000

const REFUSED = {
  each: {
    code: 'concurrency_limit_exceeded',
    message: limit =>
      `This organization has as many requests in preparation as it may: ${limit}. Retry after the wait, with fewer at once.`,
    horizonMs: WAIT_MS,
  },
  all: {
    code: 'route_capacity',
    message: () => 'The service has as many requests in preparation as it may. Retry after the advertised time.',
    horizonMs: WAIT_MS,
  },
} as const satisfies Budget['refused']

/** Requests refused by `platform.preparation`, by whose bound. */
export function refusedMetric(read: (sources: BudgetSources) => Readonly<Record<string, number>>): BudgetMetric {
  const help = 'Requests refused by the budget of work before admission, by whose bound.'
  return counter('sluice_preparation_refused_total', help, read, 'bound')
}

export const preparationBudget: Budget = {
  name: 'preparation',
  bound: 'requests and bytes in preparation',
  owner: 'tenant',
  each: [setting('platform.preparation.organization_requests'), setting('platform.preparation.organization_bytes')],
  all: [setting('platform.preparation.requests'), setting('platform.preparation.bytes')],
  refused: REFUSED,
  seen: '`sluice_preparation_refused_total{bound="organization"}`, `{bound="process"}`',
  metrics: [
    gauge(
      'sluice_preparing_requests',
      'Requests that are not admitted yet.',
      ({ shared }) => preparationOf(shared).held.requests,
    ),
    gauge(
      'sluice_preparing_bytes',
      'Bytes of the requests that are not admitted yet.',
      ({ shared }) => preparationOf(shared).held.bytes,
    ),
    refusedMetric(({ shared }) => preparationOf(shared).refused),
  ],
}

/** The ledger of a process. All chains share it; it outlives a reload. */
export class Preparation {
  readonly held: Held = { requests: 0, bytes: 0 }
  /** Refused requests so far, by whose bound refused them. */
  readonly refused = { organization: 0, process: 0 }
  readonly #organizations = new Map<string, Held>()

  /**
   * Enters a request.
   * @param bytes that are already known to come
   * @returns the refusal where a bound is reached
   */
  enter(organization: string, bytes: number, bounds: PreparationBounds): PreparedRequest | Refusal {
    let own = this.#organizations.get(organization)
    if (!own) this.#organizations.set(organization, (own = { requests: 0, bytes: 0 }))
    const others = own.requests
    const refusal = this.#over(own, others, 'requests', 1, bounds) ?? this.#over(own, others, 'bytes', bytes, bounds)
    if (!refusal) return new PreparedRequest(this, organization, own, bytes, bounds)
    if (others === 0) this.#organizations.delete(organization)
    return refusal
  }

  /**
   * Enters a request that waits on a WebSocket.
   * @returns the function that takes it out again; call it once
   * @throws GatewayError where a bound is reached
   */
  hold(organization: string, bytes: number, bounds: PreparationBounds): () => void {
    const entered = this.enter(organization, bytes, bounds)
    if (entered instanceof PreparedRequest) return () => entered.leave()
    throw entered.error
  }

  /** For `PreparedRequest`: whether an organization may hold more bytes for one of its requests. */
  overBytes(own: Held, more: number, bounds: PreparationBounds): Refusal | undefined {
    return this.#over(own, own.requests - 1, 'bytes', more, bounds)
  }

  /** For `PreparedRequest`: changes what an organization holds. */
  add(organization: string, own: Held, requests: number, bytes: number): void {
    own.requests += requests
    own.bytes += bytes
    this.held.requests += requests
    this.held.bytes += bytes
    if (own.requests === 0) this.#organizations.delete(organization)
  }

  /**
   * @param others other requests of the organization: a request that is alone is never over the organization's bound
   */
  #over(own: Held, others: number, unit: keyof Held, more: number, bounds: PreparationBounds): Refusal | undefined {
    const limit = bounds[`organization_${unit}`]
    const each = others > 0 ? limit : Number.POSITIVE_INFINITY
    const bound = passedBound(own[unit], more, this.held[unit], this.#organizations.size, { each, all: bounds[unit] })
    if (bound === null) return undefined
    if (bound === 'each') {
      this.refused.organization++
      return overOrganization(unit, limit)
    }
    this.refused.process++
    return overProcess()
  }
}

/** One request in preparation. */
export class PreparedRequest {
  readonly #ledger: Preparation
  readonly #organization: string
  readonly #own: Held
  readonly #bounds: PreparationBounds
  readonly #leaving: (() => void)[] = []
  #bytes: number
  #left = false

  constructor(ledger: Preparation, organization: string, own: Held, bytes: number, bounds: PreparationBounds) {
    this.#ledger = ledger
    this.#organization = organization
    this.#own = own
    this.#bounds = bounds
    this.#bytes = bytes
    ledger.add(organization, own, 1, bytes)
  }

  /** What is held for the request. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * Counts further bytes that are held for the request.
   * @returns the refusal when a bound is reached; the bytes are then not counted
   */
  take(bytes: number): Refusal | undefined {
    if (this.#left) return undefined
    const refusal = this.#ledger.overBytes(this.#own, bytes, this.#bounds)
    if (refusal) return refusal
    this.#bytes += bytes
    this.#ledger.add(this.#organization, this.#own, 0, bytes)
    return undefined
  }

  /** Calls a function when the request leaves preparation; at once where it has left. */
  onLeave(release: () => void): void {
    if (this.#left) release()
    else this.#leaving.push(release)
  }

  /** The request is admitted, refused or over. Further calls do nothing. */
  leave(): void {
    if (this.#left) return
    this.#left = true
    this.#ledger.add(this.#organization, this.#own, -1, -this.#bytes)
    for (const release of this.#leaving) release()
  }
}

/** The process's ledger. */
export function preparationOf(shared: SharedState): Preparation {
  return shared.use(preparationKey, () => new Preparation())
}

/** Bytes of a request's body, before it is read; undefined where its head does not say. */
export function declaredBytes({ bodyBytes, hasBody, headers }: Incoming): number | undefined {
  if (bodyBytes !== undefined) return bodyBytes
  if (!hasBody) return 0
  const length = headers.get('content-length')
  return length === undefined ? undefined : Number(length)
}

function overOrganization(unit: keyof Held, limit: number): Refusal {
  const what = unit === 'requests' ? `${limit} requests` : `${limit} bytes of requests`
  const error = refusal(
    REFUSED.each,
    `${what} that are being received, read or counted (platform.preparation.organization_${unit})`,
    {
      forOperators: `the organization: ${what} at a time (platform.preparation.organization_${unit})`,
      details: { dimension: 'concurrency', limit },
      // The headers of concurrency are those of `concurrent_requests`, of which nothing is known here.
      headers: { 'x-ratelimit-scope': 'org' },
    },
  )
  return { kind: 'error', error }
}

function overProcess(): Refusal {
  return { kind: 'error', error: refusal(REFUSED.all) }
}
