/** What a worker reports about itself, for the pages that show all workers (all-workers.ts). Everything is JSON. */
import type { IncomingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import type { Registry } from 'prom-client'
import type { Names } from '../config/retired.ts'
import type { AdminToken } from '../config/types.ts'
import type { NameUsers } from '../core/ports/accounts.ts'
import type { AccountReader, AccountRow } from './accounts.ts'
import { type ApiAnswer, type ApiSources, answerApi, noteRefusedToken } from './api.ts'
import type { Caller } from './callers.ts'
import type { ExchangeRecord, RecentExchanges } from './recent.ts'
import type { RouteRequest } from './server.ts'
import type { Durations, Figures, Live, Snapshots } from './snapshot.ts'
import { ledgerDay } from './today.ts'
import type { Traced } from './troubles.ts'
import type { Use, UseByKey } from './usage.ts'
import type { GatewayView } from './view.ts'

export interface WorkerSources {
  registry: Registry
  snapshots: Snapshots
  recent: RecentExchanges
  use: UseByKey
  reader: AccountReader
  organizations(): Parameters<AccountReader['read']>[0]['organizations']
  tokens(): readonly AdminToken[]
  api: ApiSources
  ready: GatewayView['ready']
  route(question: RouteRequest): Promise<{ report: unknown } | { fault: string }>
  usersOf(names: Names): Promise<NameUsers[]>
}

/** A metric as `Registry.getMetricsAsJSON` has it. JSON has no NaN: it is null here. */
export interface MetricJson {
  name: string
  help: string
  type: string
  /** How the values of several workers become one: prom-client's `sum`, `min`, `max`, or `worker`: not at all. */
  aggregator: string
  values: { metricName?: string; labels: Record<string, string | number>; value: number | null }[]
}

/** A request of the admin API, read. */
export interface ReadRequest {
  caller: Caller
  method: string | undefined
  headers: IncomingHttpHeaders
  path: string
  query: string
  /** In base64. */
  body: string
}

/** Counts of buckets that are not 0, by their index. */
type Sparse = [number, number][]

export interface Tick {
  live: Live
  ttfb: Sparse
  duration: Sparse
  tokens: readonly AdminToken[]
}

/** The organizations that match, those with the most requests first, and how many there are. */
export interface Busiest {
  ids: string[]
  total: number
}

export function workerApi(sources: WorkerSources) {
  const { registry, snapshots, recent, use, reader, api } = sources
  return {
    metrics: async () => (await registry.getMetricsAsJSON()) as unknown as MetricJson[],
    ready: (exclude?: 'store') => sources.ready(exclude),
    tick(): Tick {
      const live = snapshots.tick()
      const { ttfb, duration } = snapshots.durations
      return { live, ttfb: sparse(ttfb), duration: sparse(duration), tokens: sources.tokens() }
    },
    /** @param fresh forget what was counted before the last page was closed */
    figures(fresh: boolean): Figures {
      if (fresh) snapshots.stop()
      return snapshots.figures()
    },
    /** The exchanges after the one with number `seq`. */
    recent: (seq: number): ExchangeRecord[] => recent.since(seq),
    recorded: (id: string): Traced | null => snapshots.recorded(id) ?? null,
    busiest: (find: string, most: number): Busiest => reader.busiest(sources.organizations(), find, most),
    /** What the keys of each organization used of this worker. */
    use: (ids: readonly string[]): Record<string, Record<string, Use>> =>
      Object.fromEntries(ids.map(id => [id, use.byKey(id)])),
    /** Rejects when the store does not answer. */
    rows(ids: readonly string[]): Promise<AccountRow[]> {
      const all = sources.organizations()
      const found = ids.flatMap(id => (Object.hasOwn(all, id) ? [all[id]!] : []))
      return reader.rows(found, api.now())
    },
    /** What the ledger has of whole hours. Rejects when the store does not answer. */
    today: (since: number, until: number) => ledgerDay(api.store, since, until),
    route: (question: RouteRequest) => sources.route(question),
    usersOf: (names: Names): Promise<{ users: NameUsers[] } | { fault: string }> =>
      sources.usersOf(names).then(
        users => ({ users }),
        (error: Error) => ({ fault: error.message }),
      ),
    api({ caller, method, headers, path, query, body }: ReadRequest): Promise<ApiAnswer> {
      const bytes = Buffer.from(body, 'base64')
      const request = Object.assign(Readable.from(bytes.length > 0 ? [bytes] : []), { method, headers })
      return answerApi(api, caller, request, path, new URLSearchParams(query))
    },
    tokenRefused: (address: string): void => noteRefusedToken(api, address),
  }
}

export type WorkerApi = ReturnType<typeof workerApi>

function sparse(counts: Durations['ttfb']): Sparse {
  const some: Sparse = []
  for (let i = 0; i < counts.length; i++) if (counts[i]! > 0) some.push([i, counts[i]!])
  return some
}
