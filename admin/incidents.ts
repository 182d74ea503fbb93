/**
 * What goes wrong now: by cause, since when, how often, and whom it hits. An incident begins with the first exchange
 * that ended wrong for its cause, and is over when none has for five minutes. Where the backend has served for half a
 * minute without it meanwhile, another one begins: a single failure some minutes before an outage is not its beginning.
 * Counts are of a process and of its memory: the ledger has no rows of requests that were refused at once, and these are
 * most of an outage.
 */
import type { ExchangeRecord } from './recent.ts'
import { wentWrong } from './recent.ts'

/** An incident is over when nothing has gone wrong for so long, milliseconds. */
const QUIET_MS = 300_000
/** A backend that has served for so long without a failure has recovered, milliseconds. */
const RECOVERED_MS = 30_000
/** Causes come from tables and backends from the configuration, so there are few; this bounds them all the same. */
const MOST_CAUSES = 200
/** Of one incident, so many organizations are told apart. */
const MOST_ORGANIZATIONS = 1000
/** So many of them are sent to a page: those that it hits most. */
const SHOWN_ORGANIZATIONS = 10
/** So many incidents are sent to a page. */
const SHOWN_INCIDENTS = 50

/** Members of an exchange that say what went wrong. */
export type Ended = Pick<
  ExchangeRecord,
  'id' | 'status' | 'outcome' | 'code' | 'cause' | 'backend' | 'organization' | 'failed' | 'passedOver'
>

export interface Incident {
  /** Code of the error table. */
  code: string
  /** `provider/model`; '' where no backend has to do with it. */
  backend: string
  /** Whether it is the service that failed: otherwise requests were refused for what they were, or by a limit. */
  fault: boolean
  /** HTTP status of the last one. */
  status: number
  /** What operators are told of the last one: what did not answer, or which limit it was; '' for nothing. */
  cause: string
  /** Unix milliseconds of the first and the last, and of the first one before the backend recovered for a while. */
  first: number
  since: number
  last: number
  count: number
  /** Request id of the last one. */
  lastId: string
  /** Those that it hits most, with how often; '' stands for requests without an account. */
  organizations: [id: string, count: number][]
  /** How many it hits; `MOST_ORGANIZATIONS` stands for that many or more. */
  affected: number
}

/** What became of the requests for one backend since it began to fail. */
export interface Impact {
  backend: string
  since: number
  last: number
  /** Exchanges that tried it or would have, and those of them that ended wrong. */
  all: number
  wrong: number
  organizations: [id: string, count: number][]
  affected: number
}

type Hit<T> = Omit<T, 'organizations' | 'affected'> & { hits: Map<string, number> }

export class Incidents {
  readonly #causes = new Map<string, Hit<Incident>>()
  readonly #backends = new Map<string, Hit<Impact>>()
  /** When each backend served last. */
  readonly #servedAt = new Map<string, number>()

  /** @param now Unix milliseconds */
  saw(exchange: Ended, now: number): void {
    const wrong = wentWrong(exchange.outcome)
    if (wrong) this.#cause(exchange, now)
    const { backend, failed, passedOver } = exchange
    if (!wrong && backend !== '') this.#servedAt.set(backend, now)
    if (failed.length > 0 || passedOver.length > 0) this.#impact(exchange, wrong, now)
    else if (this.#backends.size > 0) this.#served(backend, now)
  }

  /** Those of the last minutes: what failed before what was refused, the most frequent first. */
  causes(now: number): Incident[] {
    return sorted([...living(this.#causes, now).values()].map(shown))
  }

  impacts(now: number): Impact[] {
    return [...living(this.#backends, now).values()].map(shown)
  }

  #cause({ id, status, outcome, code, cause: told, backend, organization, passedOver }: Ended, now: number): void {
    const at = backend || passedOver[0]?.backend || ''
    const cause = code || outcome
    const served = this.#servedAt.get(at)
    const incident = begun(this.#causes, `${cause}\0${at}`, now, served, (since, first) => ({
      code: cause,
      backend: at,
      fault: false,
      status,
      cause: told,
      first,
      since,
      last: since,
      count: 0,
      lastId: id,
      hits: new Map(),
    }))
    incident.fault = outcome !== 'refused' || isTheServices(status, code) || passedOver.length > 0
    incident.status = status
    incident.cause = told
    incident.lastId = id
    incident.count++
    hit(incident.hits, organization)
  }

  #impact({ backend, failed, passedOver, organization }: Ended, wrong: boolean, now: number): void {
    const trouble = new Set([...failed, ...passedOver].map(one => one.backend))
    for (const id of trouble) {
      const impact = begun(this.#backends, id, now, this.#servedAt.get(id), since => ({
        backend: id,
        since,
        last: since,
        all: 0,
        wrong: 0,
        hits: new Map(),
      }))
      impact.all++
      if (!wrong) continue
      impact.wrong++
      hit(impact.hits, organization)
    }
    if (!trouble.has(backend)) this.#served(backend, now)
  }

  /** One that it served is among all of them, and no reason for the incident to go on. */
  #served(backend: string, now: number): void {
    const impact = this.#backends.get(backend)
    if (!impact) return
    if (now - impact.last < QUIET_MS) impact.all++
    else this.#backends.delete(backend)
  }
}

/** Whether a refusal says that the gateway itself cannot serve: load is shed, or the platform is full. */
const isTheServices = (status: number, code: string) => status >= 500 || code === 'capacity_exceeded'

/**
 * The running incident of this key, else a new one.
 * @param served when its backend served last
 */
function begun<T extends { last: number; since: number; first?: number }>(
  all: Map<string, T>,
  key: string,
  now: number,
  served: number | undefined,
  make: (since: number, first: number) => T,
): T {
  let found = all.get(key)
  const over = !found || now - found.last >= QUIET_MS
  const recovered = found && served !== undefined && served >= found.last && now - found.last >= RECOVERED_MS
  if (!found || over || recovered) {
    const first = over ? now : (found!.first ?? found!.since)
    all.delete(key)
    if (all.size >= MOST_CAUSES) all.delete(all.keys().next().value!)
    all.set(key, (found = make(now, first)))
  }
  found.last = now
  return found
}

/** Forgets those that are over. */
function living<T extends { last: number }>(all: Map<string, T>, now: number): Map<string, T> {
  for (const [key, one] of all) if (now - one.last >= QUIET_MS) all.delete(key)
  return all
}

function hit(hits: Map<string, number>, organization: string): void {
  const known = hits.get(organization)
  if (known !== undefined || hits.size < MOST_ORGANIZATIONS) hits.set(organization, (known ?? 0) + 1)
}

function shown<T extends { hits: Map<string, number> }>({ hits, ...one }: T) {
  return { ...one, organizations: most([...hits]), affected: hits.size }
}

const most = (organizations: [string, number][]) =>
  organizations.sort((a, b) => b[1] - a[1]).slice(0, SHOWN_ORGANIZATIONS)

const sorted = (all: Incident[]) =>
  all.sort((a, b) => Number(b.fault) - Number(a.fault) || b.count - a.count).slice(0, SHOWN_INCIDENTS)

// ---- of several workers ---------------------------------------------------------------------------------------------

/** Incidents of several processes with one cause are one. */
export function sumOfIncidents(lists: readonly (readonly Incident[])[]): Incident[] {
  const all = grouped(lists.flat(), ({ code, backend }) => `${code}\0${backend}`)
  return sorted(
    all.map(same => {
      const latest = same.reduce((a, b) => (b.last > a.last ? b : a))
      const count = same.reduce((sum, one) => sum + one.count, 0)
      const first = Math.min(...same.map(one => one.first))
      return { ...latest, ...together(same), first, fault: same.some(({ fault }) => fault), count }
    }),
  )
}

export function sumOfImpacts(lists: readonly (readonly Impact[])[]): Impact[] {
  return grouped(lists.flat(), ({ backend }) => backend).map(same => ({
    backend: same[0]!.backend,
    ...together(same),
    all: same.reduce((sum, one) => sum + one.all, 0),
    wrong: same.reduce((sum, one) => sum + one.wrong, 0),
  }))
}

function grouped<T>(all: readonly T[], key: (one: T) => string): T[][] {
  const groups = new Map<string, T[]>()
  for (const one of all) {
    const group = groups.get(key(one))
    if (group) group.push(one)
    else groups.set(key(one), [one])
  }
  return [...groups.values()]
}

/** Who is hit is a bound from below where each process names only those that it sees most. */
function together(same: readonly (Incident | Impact)[]) {
  const hits = new Map<string, number>()
  for (const { organizations } of same)
    for (const [id, count] of organizations) hits.set(id, (hits.get(id) ?? 0) + count)
  return {
    since: Math.min(...same.map(({ since }) => since)),
    last: Math.max(...same.map(({ last }) => last)),
    organizations: most([...hits]),
    affected: Math.max(hits.size, ...same.map(({ affected }) => affected)),
  }
}
